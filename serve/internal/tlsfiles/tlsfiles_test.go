package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/tlstest"
)

// says has the lines that a server logs, one for each handshake that failed.
type says chan string

func (s says) Write(line []byte) (int, error) {
	s <- string(line)
	return len(line), nil
}

// serve has net/http serve with a configuration: the answer is the name of the client's certificate. It returns the address.
func serve(t *testing.T, c *tls.Config, to io.Writer) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{TLSConfig: c, ErrorLog: log.New(to, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := access.Certificate(r.TLS); c != nil {
			_, _ = io.WriteString(w, strings.Join(access.CertificateNames(c), ","))
		}
	})}
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(listener, "", "") }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return listener.Addr().String()
}

func client(t *testing.T, c *tls.Config) *http.Client {
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func get(c *http.Client, addr string) (*http.Response, string, error) {
	r, err := c.Get("https://" + addr)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	return r, string(body), err
}

// TestVersions: TLS 1.0 and 1.1 are refused, 1.2 and 1.3 are not, and HTTP/2 is spoken.
func TestVersions(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	c, err := Files{Certificate: certificate, Key: key}.Config(slog.Default(), "h2", "http/1.1")
	require.NoError(t, err)
	addr := serve(t, c, io.Discard)
	for version, fits := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		r, _, err := get(client(t, &tls.Config{RootCAs: ca.Pool(), MinVersion: version, MaxVersion: version}), addr)
		if !fits {
			require.ErrorContains(t, err, "protocol version", "%x", version)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, version, r.TLS.Version)
		require.Equal(t, 2, r.ProtoMajor)
	}
}

// TestClientCertificates: no certificate, one of another authority, one that is over, a good one.
func TestClientCertificates(t *testing.T) {
	ca, other, dir := tlstest.New(t), tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	files := Files{Certificate: certificate, Key: key, ClientCAs: tlstest.Put(t, dir, "ca.crt", ca.PEM)}
	c, err := files.Config(slog.Default(), "h2")
	require.NoError(t, err)
	said := make(says, 16) // clients see a reason or a connection that is closed: what comes first
	addr := serve(t, c, said)
	files.ClientsOptional = true
	c, err = files.Config(slog.Default(), "h2")
	require.NoError(t, err)
	optional := serve(t, c, said)
	ask := func(addr string, pairs ...tls.Certificate) (string, error) {
		_, name, err := get(client(t, &tls.Config{RootCAs: ca.Pool(), GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if len(pairs) == 0 {
				return &tls.Certificate{}, nil
			}
			return &pairs[0], nil // even if the server does not know who signed it
		}}), addr)
		return name, err
	}
	for _, addr := range []string{addr, optional} {
		name, err := ask(addr, ca.Pair("ann", time.Hour))
		require.NoError(t, err)
		require.Equal(t, "ann", name)
		_, err = ask(addr, other.Pair("ann", time.Hour))
		require.Error(t, err)
		require.Contains(t, <-said, "signed by unknown authority")
		_, err = ask(addr, ca.Pair("ann", -time.Minute))
		require.Error(t, err)
		require.Contains(t, <-said, "certificate has expired")
	}
	_, err = ask(addr)
	require.Error(t, err)
	require.Contains(t, <-said, "client didn't provide a certificate")
	name, err := ask(optional)
	require.NoError(t, err)
	require.Empty(t, name)
}

// TestReplacedUnderLoad: clients that connect anew for every request while the certificate is replaced again and again, key and
// certificate one after the other, see no failure, and the last certificate at the end.
func TestReplacedUnderLoad(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "first", time.Hour)
	var logged bytes.Buffer
	c, err := Files{Certificate: certificate, Key: key}.Config(slog.New(slog.NewTextHandler(&logged, nil)), "h2", "http/1.1")
	require.NoError(t, err)
	addr := serve(t, c, io.Discard)
	var stop atomic.Bool
	var requests atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool()}}
				_, _, err := get(&http.Client{Transport: tr}, addr)
				tr.CloseIdleConnections()
				if err != nil {
					t.Error(err)
					return
				}
				requests.Add(1)
			}
		})
	}
	const enough = 20
	for end := time.Now().Add(2500 * time.Millisecond); !t.Failed() && (time.Now().Before(end) || requests.Load() <= enough); time.Sleep(10 * time.Millisecond) {
		ca.Write(dir, "next", time.Hour)
	}
	ca.Write(dir, "last", time.Hour)
	require.Eventually(t, func() bool {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool()})
		if err != nil {
			t.Error(err)
			return true
		}
		defer func() { _ = conn.Close() }()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName == "last"
	}, time.Minute, 100*time.Millisecond)
	stop.Store(true)
	clients.Wait()
	require.Greater(t, requests.Load(), int64(enough))
}

// TestRevoked: once the file of authorities changes, a client of the old one is refused, its session ticket notwithstanding.
func TestRevoked(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	files := Files{Certificate: certificate, Key: key, ClientCAs: tlstest.Put(t, dir, "ca.crt", ca.PEM)}
	c, err := files.Config(slog.Default(), "http/1.1")
	require.NoError(t, err)
	addr := serve(t, c, io.Discard)
	config := &tls.Config{RootCAs: ca.Pool(), Certificates: []tls.Certificate{ca.Pair("ann", time.Hour)}, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	ask := func() error {
		tr := &http.Transport{TLSClientConfig: config}
		defer tr.CloseIdleConnections()
		_, _, err := get(&http.Client{Transport: tr}, addr)
		return err
	}
	require.NoError(t, ask())
	require.NoError(t, ask())
	tlstest.Put(t, dir, "ca.crt", tlstest.New(t).PEM)
	require.Eventually(t, func() bool { return ask() != nil }, time.Minute, 100*time.Millisecond)
	require.Error(t, ask())
}

// TestBadFiles: at the start an error, later the log and the files from before.
func TestBadFiles(t *testing.T) {
	ca, dir := tlstest.New(t), t.TempDir()
	certificate, key := ca.Write(dir, "server", time.Hour)
	for want, f := range map[string]Files{
		"TLS needs the file of a certificate and that of its key": {Certificate: certificate},
		"client certificates are optional, but no file":           {Certificate: certificate, Key: key, ClientsOptional: true},
		"no certificate in PEM":                                   {Certificate: certificate, Key: key, ClientCAs: key},
		"tls.key with the key":                                    {Certificate: key, Key: key},
		"no such file":                                            {Certificate: certificate + "x", Key: key},
	} {
		_, err := f.Config(slog.Default())
		require.ErrorContains(t, err, want)
	}
	_, otherKey := tlstest.New(t).Sign("x", time.Hour)
	_, err := Files{Certificate: certificate, Key: tlstest.Put(t, dir, "other.key", otherKey)}.Config(slog.Default())
	require.ErrorContains(t, err, "private key does not match public key")
	var logged bytes.Buffer
	c, err := Files{Certificate: certificate, Key: key}.Config(slog.New(slog.NewTextHandler(&logged, nil)))
	require.NoError(t, err)
	ca.Write(dir, "over", -time.Minute)
	time.Sleep(1100 * time.Millisecond)
	now, err := c.GetConfigForClient(nil)
	require.NoError(t, err)
	require.Equal(t, "server", now.Certificates[0].Leaf.Subject.CommonName)
	require.Contains(t, logged.String(), "the certificate is over since")
	secret, err := os.ReadFile(key)
	require.NoError(t, err)
	require.NotContains(t, logged.String(), string(secret[40:80]))
}
