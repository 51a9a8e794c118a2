// Package tlsfiles makes the configuration of TLS of a server from files that may be replaced while it serves.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"

	"github.com/popefgen/popefgen/serve/internal/reloaded"
)

// Files names the files, in PEM.
type Files struct {
	Certificate string // the server's, with those that sign it
	Key         string // the server's private key
	// ClientCAs are the certificates that sign those of clients. "": clients need none, and those they have do not count.
	ClientCAs string
	// ClientsOptional lets clients without a certificate connect: what they may do is up to the authorisation.
	ClientsOptional bool
}

// Config returns the configuration of a server that speaks the protocols of ALPN, best first. Every handshake uses the files as
// they are, looked at once a second at most; connections that are open stay. A file that can't be read, a key of
// another certificate, or a certificate that is over leaves what was before, and log says so.
func (f Files) Config(log *slog.Logger, protocols ...string) (*tls.Config, error) {
	if f.Certificate == "" || f.Key == "" {
		return nil, fmt.Errorf("TLS needs the file of a certificate and that of its key, found %q and %q", f.Certificate, f.Key)
	}
	paths := []string{f.Certificate, f.Key}
	if f.ClientCAs != "" {
		paths = append(paths, f.ClientCAs)
	} else if f.ClientsOptional {
		return nil, fmt.Errorf("TLS: client certificates are optional, but no file says which are good")
	}
	value, err := reloaded.Open(func(contents [][]byte) (*tls.Config, error) {
		return f.config(contents, protocols)
	}, func(err error) {
		log.Error("the certificates can not be read again, those from before stay", "error", err)
	}, paths...)
	if err != nil {
		return nil, err
	}
	outer := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols}
	// A whole configuration for each version of the files: with it the keys of session tickets change too, so that no client goes
	// on with a session that the new certificates of clients would not allow.
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return value.Get(), nil }
	// Never reached, but what some packages check for before they listen.
	outer.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &value.Get().Certificates[0], nil }
	return outer, nil
}

func (f Files) config(contents [][]byte, protocols []string) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s with the key %s: %w", f.Certificate, f.Key, err)
	}
	if now := time.Now(); now.After(pair.Leaf.NotAfter) {
		return nil, fmt.Errorf("%s: the certificate is over since %s", f.Certificate, pair.Leaf.NotAfter.Format(time.RFC3339))
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: protocols}
	if f.ClientCAs != "" {
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(contents[2]) {
			return nil, fmt.Errorf("%s: no certificate in PEM", f.ClientCAs)
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
		if f.ClientsOptional {
			c.ClientAuth = tls.VerifyClientCertIfGiven
		}
	}
	return c, nil
}
