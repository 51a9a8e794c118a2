package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/popefgen/popefgen/serve/internal/rest"
)

// Endpoint is a protocol with a listener of its own, which the server starts, drains and stops with itself.
type Endpoint interface {
	// Name is what errors call it, such as gRPC.
	Name() string
	// Serve answers requests until Drain, and returns nil then. It closes l.
	Serve(l net.Listener) error
	// Drain refuses new connections and waits until requests under way have ended. If ctx ends first it
	// closes what is left at once and returns the error of ctx.
	Drain(ctx context.Context) error
}

// listening is an endpoint with its listener.
type listening struct {
	Endpoint
	listener net.Listener
}

// Register serves e on a listener, which Run closes; nil for an endpoint that listens to nobody, as the workers of a queue.
func (s *Server) Register(e Endpoint, l net.Listener) {
	s.endpoints = append(s.endpoints, listening{e, l})
}

// WithHTTP serves REST at an address such as ":8080" or "localhost:0". New listens; Run serves.
func WithHTTP(addr string) Option {
	return func(s *Server) error {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return WithHTTPListener(l)(s)
	}
}

// WithHTTPListener serves REST on a listener, which the server closes.
func WithHTTPListener(l net.Listener) Option {
	return func(s *Server) error {
		s.http = append(s.http, l)
		return nil
	}
}

// WithDrain says how a server ends: for delay it is not ready and serves as before, so that those who send it
// requests learn of it; then requests under way have until limit to end. The default is no delay and 30 seconds.
func WithDrain(delay, limit time.Duration) Option {
	return func(s *Server) error {
		if delay < 0 || limit <= 0 {
			return fmt.Errorf("serve: a drain takes %v and then at most %v: want a delay of 0 or more and a limit above 0", delay, limit)
		}
		s.delay, s.limit = delay, limit
		return nil
	}
}

// WithConnections sets how many connections each listener has at the same time; others wait. The default is 1,024.
func WithConnections(n int) Option {
	return func(s *Server) error {
		if n < 1 {
			return fmt.Errorf("serve: %d connections: want 1 at least", n)
		}
		s.connections = n
		return nil
	}
}

// WithStreams sets how many requests one connection of HTTP/2 has under way over REST; more are refused. The default is 128.
func WithStreams(n int) Option {
	return func(s *Server) error {
		if n < 1 || n > 1<<20 {
			return fmt.Errorf("serve: %d requests at a time on a connection: want 1 to %d", n, 1<<20)
		}
		s.streams = n
		return nil
	}
}

// Handler returns the handler of REST, for programs that have an HTTP server of their own. Such a program
// calls Run too, which makes the server ready, or serves the handler alone and is never asked whether it is.
func (s *Server) Handler() http.Handler { return rest.New(s.core, s.rest) }

// Run listens, has every model compute zeros once, is ready then, and serves until ctx ends. It drains as [WithDrain] says, closes the
// models and returns nil. If a listener or a model fails at that it closes all and returns that error. It is called once.
func (s *Server) Run(ctx context.Context) error {
	encrypted, err := s.TLSConfig("h2", "http/1.1")
	if err != nil {
		return errors.Join(err, s.close())
	}
	for i := range s.endpoints {
		if e := &s.endpoints[i]; e.listener != nil {
			e.listener = limitConnections(e.listener, s.connections)
		}
	}
	for _, l := range s.http {
		e := newHTTP(s.Handler(), encrypted, s.streams)
		limited := limitConnections(l, s.connections)
		e.server.ConnState = limited.note
		s.endpoints = append(s.endpoints, listening{e, limited})
	}
	for _, l := range s.admin {
		s.endpoints = append(s.endpoints, listening{newHTTP(s.AdminHandler(), nil, s.streams), l})
	}
	failed := make(chan error, len(s.endpoints))
	for _, e := range s.endpoints {
		go func() {
			if err := e.Serve(e.listener); err != nil {
				name := e.Name()
				if e.listener != nil {
					name += " at " + e.listener.Addr().String()
				}
				failed <- fmt.Errorf("serve %s: %w", name, err)
			}
		}()
	}
	if err := s.core.Warm(ctx); err != nil && ctx.Err() == nil {
		return errors.Join(err, s.close())
	}
	s.core.Start()
	select {
	case err = <-failed:
		s.core.StartDraining()
	case <-ctx.Done():
		s.core.StartDraining()
		timer := time.NewTimer(s.delay)
		defer timer.Stop()
		select {
		case err = <-failed:
		case <-timer.C:
		}
	}
	return errors.Join(err, s.close())
}

// close ends all within the drain's limit.
func (s *Server) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.limit)
	defer cancel()
	ended := make(chan error, len(s.endpoints))
	for _, e := range s.endpoints {
		go func() {
			err := e.Drain(ctx)
			if err != nil {
				err = fmt.Errorf("%s: requests under way were cut off: %w", e.Name(), err)
			}
			ended <- err
		}()
	}
	var errs []error
	for range s.endpoints {
		errs = append(errs, <-ended)
	}
	errs = append(errs, s.core.Close(ctx))
	return errors.Join(errs...)
}

// httpEndpoint is REST as an endpoint.
type httpEndpoint struct{ server *http.Server }

func newHTTP(h http.Handler, encrypted *tls.Config, streams int) *httpEndpoint {
	return &httpEndpoint{&http.Server{
		Handler:           h,
		TLSConfig:         encrypted, // nil: plain
		ReadHeaderTimeout: 5 * time.Second,
		MaxHeaderBytes:    maxHeader - 4<<10, // net/http reads so many more
		IdleTimeout:       2 * time.Minute,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
	}}
}

// maxHeader is how many bytes the header of a request has at most.
const maxHeader = 16 << 10

func (e *httpEndpoint) Name() string { return "HTTP" }

func (e *httpEndpoint) Serve(l net.Listener) error {
	serve := e.server.Serve
	if e.server.TLSConfig != nil {
		serve = func(l net.Listener) error { return e.server.ServeTLS(l, "", "") }
	}
	if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *httpEndpoint) Drain(ctx context.Context) error {
	err := e.server.Shutdown(ctx)
	if err != nil {
		e.server.Close()
	}
	return err
}
