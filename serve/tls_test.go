package serve_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/tlstest"
)

// TestWithTLS: mistakes show when the server is made, and each protocol gets a configuration of its own.
func TestWithTLS(t *testing.T) {
	_, err := serve.New(serve.WithTLS(serve.TLS{Certificate: "missing.crt", Key: "missing.key"}))
	require.ErrorContains(t, err, "missing.crt")
	s, err := serve.New()
	require.NoError(t, err)
	c, err := s.TLSConfig("h2")
	require.NoError(t, err)
	require.Nil(t, c)
	ca := tlstest.New(t)
	certificate, key := ca.Write(t.TempDir(), "server", time.Hour)
	s, err = serve.New(serve.WithTLS(serve.TLS{Certificate: certificate, Key: key}))
	require.NoError(t, err)
	c, err = s.TLSConfig("h2")
	require.NoError(t, err)
	require.Equal(t, []string{"h2"}, c.NextProtos)
	require.Equal(t, uint16(tls.VersionTLS12), c.MinVersion)
}

// TestLogOfTLS: a certificate that can not be read again is said in the log of the server.
func TestLogOfTLS(t *testing.T) {
	certificate, key := tlstest.New(t).Write(t.TempDir(), "server", time.Hour)
	var said lockedBuffer
	s, err := serve.New(serve.WithTLS(serve.TLS{Certificate: certificate, Key: key}), serve.WithLog(slog.New(slog.NewTextHandler(&said, nil))))
	require.NoError(t, err)
	c, err := s.TLSConfig()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certificate, []byte("no certificate"), 0o600))
	require.Eventually(t, func() bool {
		_, err := c.GetConfigForClient(nil)
		require.NoError(t, err)
		return strings.Contains(said.String(), "the certificates can not be read again")
	}, 10*time.Second, 50*time.Millisecond)
}

// lockedBuffer is a buffer that a log is written to while a test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// TestServeTLS: health over TLS, with HTTP/2, after the certificate was replaced as before; plain HTTP is refused.
func TestServeTLS(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s, err := serve.New(serve.WithTLS(serve.TLS{Certificate: certificate, Key: key}), serve.WithHTTPListener(l))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	name := func() string {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		r, err := (&http.Client{Transport: tr}).Get("https://" + l.Addr().String() + "/v2/health/live")
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 200, r.StatusCode)
		require.Equal(t, 2, r.ProtoMajor)
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	require.Equal(t, "server", name())
	ca.Write(dir, "next", time.Hour)
	require.Eventually(t, func() bool { return name() == "next" }, 10*time.Second, 50*time.Millisecond)
	r, err := http.Get("http://" + l.Addr().String() + "/v2/health/live")
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 400, r.StatusCode)
	cancel()
	require.NoError(t, <-done)
}
