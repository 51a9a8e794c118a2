package serve

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/popefgen/popefgen/serve/internal/accesslog"
	"github.com/popefgen/popefgen/serve/internal/admin"
	"github.com/popefgen/popefgen/serve/internal/metrics"
	"github.com/popefgen/popefgen/serve/internal/rest"
)

// WithAdmin listens at an address for those who run the server, such as "localhost:9090": a page for people, /metrics, profiles
// (/debug/pprof), and all calls of REST, those of the repository among them. It speaks no TLS and asks for
// credentials only [WithAuthorization]: it should be an address that callers of the models do not reach.
func WithAdmin(addr string) Option {
	return func(s *Server) error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("serve the admin page: %w", err)
		}
		return WithAdminListener(l)(s)
	}
}

// WithAdminListener is [WithAdmin] on a listener, which the server closes.
func WithAdminListener(l net.Listener) Option {
	return func(s *Server) error {
		s.admin = append(s.admin, l)
		return nil
	}
}

// AdminHandler returns what the address of [WithAdmin] answers, for programs that have an HTTP server of their own.
func (s *Server) AdminHandler() http.Handler {
	o := s.rest
	if o.Repository == nil {
		o.Repository = s.repository
	}
	if o.Metrics == nil {
		o.Metrics = TextMetrics(false)(s)
	}
	return admin.New(s.core, rest.New(s.core, o), o.Metrics)
}

// WithAdminRepository lets callers of the admin address load and unload models through r, and nobody else.
func WithAdminRepository(r Repository) Option {
	return func(s *Server) error {
		s.repository = r
		return nil
	}
}

// WithMetrics has the server answer /metrics on the addresses of REST, and on that of the admin page with the same: TextMetrics,
// or the Handler of package serve/grpc/metrics.
func WithMetrics(of func(*Server) http.Handler) Option {
	return func(s *Server) error {
		s.rest.Metrics = of(s)
		return nil
	}
}

// TextMetrics returns a handler of a server's metrics in Prometheus' text format, popefgen_* and, if triton, what Triton has of
// them by its names, nv_inference_*.
func TextMetrics(triton bool) func(*Server) http.Handler {
	tables := [][]metrics.Metric{metrics.Table}
	if triton {
		tables = append(tables, metrics.TritonTable)
	}
	return func(s *Server) http.Handler {
		return metrics.Handler(func() *metrics.Snapshot { return metrics.Of(s.core) }, tables...)
	}
}

// WithAccessLog writes a line to the log for one of every so many requests that succeed, and for all that fail, up to 100 a second.
// No line has what is in a tensor, a token or a header.
func WithAccessLog(to *slog.Logger, every int) Option {
	return func(s *Server) error {
		if every < 1 {
			return fmt.Errorf("serve: the log has one of %d requests: want at least 1", every)
		}
		s.core.Observe(accesslog.New(to, every))
		return nil
	}
}
