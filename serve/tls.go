package serve

import (
	"cmp"
	"crypto/tls"
	"log/slog"

	"github.com/popefgen/popefgen/serve/internal/tlsfiles"
)

// TLS names the files, in PEM, of a server that speaks TLS 1.2 and later. They are looked at when clients connect, once a second at
// most: a replaced certificate needs no restart.
type TLS struct {
	Certificate string // the server's, with those that sign it
	Key         string // the server's private key
	// ClientCAs are the certificates that sign those of clients. "": clients need none, and those they have do not count.
	ClientCAs string
	// ClientsOptional lets clients without a certificate connect: what they may do is up to the authorisation.
	ClientsOptional bool
}

// WithTLS has the server speak TLS, on the addresses of its models' protocols; that of the admin page is as it was.
func WithTLS(t TLS) Option {
	return func(s *Server) error {
		s.tls = &t
		_, err := s.TLSConfig() // so that mistakes show before anything listens
		return err
	}
}

// WithLog has the server say in a log what goes wrong beside requests: certificates that are there and can not be read again. The default is
// [slog.Default].
func WithLog(to *slog.Logger) Option {
	return func(s *Server) error {
		s.log = to
		return nil
	}
}

// TLSConfig returns the configuration for a protocol that listens with one of its own, nil if the server does not
// speak TLS. The protocols are those of ALPN, best first.
func (s *Server) TLSConfig(protocols ...string) (*tls.Config, error) {
	if s.tls == nil {
		return nil, nil
	}
	return tlsfiles.Files(*s.tls).Config(cmp.Or(s.log, slog.Default()), protocols...)
}
