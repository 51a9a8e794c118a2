package serve_test

import (
	"crypto/tls"
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
