// Package serve is an inference server for models that are known when the program is built, and for files. It speaks the
// Open Inference Protocol, version 2, with the extensions of Triton that its clients rely on: REST here, on
// net/http; gRPC in serve/grpc, which is a module of its own.
//
//	r, err := digits.Open(ctx)
//	...
//	srv, err := serve.New(serve.WithModel(digits.Served(r)))
//	...
//	err = srv.Run(ctx)
package serve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/rest"
	"github.com/popefgen/popefgen/serve/oip"
)

// Server serves models over every protocol that is registered with it.
type Server struct {
	core         *core.Core
	http         []net.Listener
	endpoints    []listening
	delay, limit time.Duration // of a drain
	tls          *TLS
	log          *slog.Logger // nil: the default one
	rest         rest.Options
	connections  int
	streams      int
	models       []oip.Model // until all options are read
	admin        []net.Listener
	repository   Repository // of the admin address
}

// Limits are those of requests to one version of a model. A field that is 0 has the default.
type Limits = core.Limits

// Option is an option of [New].
type Option func(*Server) error

// WithModel serves a model under the name of its Spec.
func WithModel(m oip.Model) Option {
	return func(s *Server) error {
		s.models = append(s.models, m)
		return nil
	}
}

// WithLimits sets the limits of requests to a model, or to all that have none of their own if model is "". The
// default is that as many compute as the model computes in parallel, 4 times as many wait, and each takes a minute at most.
func WithLimits(model string, l Limits) Option {
	return func(s *Server) error {
		if l.Computing < 0 || l.Timeout < 0 {
			return fmt.Errorf("serve: limits of model %q: %d requests compute for %v at most: want 0 (the default) or more", model, l.Computing, l.Timeout)
		}
		s.core.SetLimits(model, l)
		return nil
	}
}

// WithServerName says what the metadata of the server calls it and its version. Some clients of other servers want the name
// "triton". The default is popefgen.
func WithServerName(name, version string) Option {
	return func(s *Server) error {
		s.rest.Name, s.rest.Version = name, version
		return nil
	}
}

// Name returns the name and the version of the server, as its metadata gives them.
func (s *Server) Name() (name, version string) {
	return cmp.Or(s.rest.Name, "popefgen"), cmp.Or(s.rest.Version, "2")
}

// WithRepository has clients load and unload models by their names, through r. Without it they are refused.
func WithRepository(r Repository) Option {
	return func(s *Server) error {
		s.rest.Repository = r
		return nil
	}
}

// Repository loads and unloads models. The names are what clients say: they are looked up, never taken for paths.
type Repository interface {
	Load(ctx context.Context, model string) error
	Unload(ctx context.Context, model string) error
}

// WithRate says how many bytes of a body a second clients of REST have to send at least, and take of an answer, on average after the first
// grace. The default is 64 KiB and 5 seconds.
func WithRate(bytes int64, grace time.Duration) Option {
	return func(s *Server) error {
		if bytes <= 0 || grace <= 0 {
			return fmt.Errorf("serve: a body comes at %d bytes a second after %v: want both above 0", bytes, grace)
		}
		s.rest.Rate, s.rest.Grace = bytes, grace
		return nil
	}
}

// WithAuthorization has f asked whether a caller may do what it asks for, for every request of every protocol.
// Package access has ready-made ones. Without it everybody may do everything.
func WithAuthorization(f access.Func) Option {
	return func(s *Server) error {
		s.core.SetAuthorization(f)
		return nil
	}
}

// New returns a server of the models that its options name.
func New(opts ...Option) (*Server, error) {
	s := &Server{core: core.New(), limit: 30 * time.Second, connections: defaultConnections, streams: 128}
	for _, o := range append(opts, addModels) {
		if err := o(s); err != nil {
			for _, l := range append(s.http, s.admin...) {
				l.Close()
			}
			return nil, err
		}
	}
	return s, nil
}

// addModels is the last option: the others say how models are served.
func addModels(s *Server) error {
	for _, m := range s.models {
		if _, err := s.core.Add(m); err != nil {
			return err
		}
	}
	return nil
}

// Core returns the part of the server that protocols share, for the packages of protocols below serve.
func (s *Server) Core() *core.Core { return s.core }
