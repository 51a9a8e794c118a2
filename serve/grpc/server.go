package grpcserve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/wire"
)

// Limits of connections that have no option.
const (
	maxHeader  = 16 << 10         // bytes of a request's metadata
	handshake  = 5 * time.Second  // until a connection speaks HTTP/2
	pingAtMost = 10 * time.Second // between pings of a client
	pingAfter  = 2 * time.Minute  // of silence, whether the client is still there
)

// Register has srv serve gRPC at an address such as ":9000" or "localhost:0", with TLS if srv does.
func Register(srv *serve.Server, addr string, opts ...Option) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	if err := RegisterListener(srv, l, opts...); err != nil {
		l.Close()
		return err
	}
	return nil
}

// RegisterListener has srv serve gRPC on a listener, which Run of srv closes.
func RegisterListener(srv *serve.Server, l net.Listener, opts ...Option) error {
	o := defaults()
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return err
		}
	}
	config, err := srv.TLSConfig("h2")
	if err != nil {
		return fmt.Errorf("serve gRPC: %w", err)
	}
	if config != nil {
		o.more = append([]grpc.ServerOption{grpc.Creds(credentials.NewTLS(config))}, o.more...)
	}
	s := &service{core: srv.Core(), options: o, draining: make(chan struct{})}
	s.name, s.numbered = srv.Name()
	srv.Register(&endpoint{service: s}, l)
	return nil
}

// endpoint is gRPC as an endpoint of a server.
type endpoint struct {
	service *service
	mu      sync.Mutex
	server  *grpc.Server
	drained bool
}

func (e *endpoint) Name() string { return "gRPC" }

// Serve answers requests until Drain.
func (e *endpoint) Serve(l net.Listener) error {
	e.mu.Lock()
	if e.drained {
		e.mu.Unlock()
		return l.Close()
	}
	e.server = e.service.server()
	e.mu.Unlock()
	if err := e.server.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Drain ends connections as their requests end, and at once when ctx does.
func (e *endpoint) Drain(ctx context.Context) error {
	e.mu.Lock()
	server := e.server
	first := !e.drained
	e.drained = true
	e.mu.Unlock()
	if first {
		close(e.service.draining)
	}
	if server == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		server.Stop()
		<-done
		return ctx.Err()
	}
}

// server returns the server of grpc-go with all services.
func (s *service) server() *grpc.Server {
	o := s.options
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(int(s.message())),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.MaxConcurrentStreams(o.streams),
		grpc.NumStreamWorkers(o.workers),
		grpc.ConnectionTimeout(handshake),
		grpc.UnknownServiceHandler(unknown),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingAtMost, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: o.age, MaxConnectionAgeGrace: o.grace, Time: pingAfter}),
	}
	server := grpc.NewServer(append(opts, o.more...)...)
	server.RegisterService(&description, s)
	healthpb.RegisterHealthServer(server, &health{service: s})
	if o.reflection {
		reflection.Register(server)
	}
	return server
}

// message returns the most bytes of a message that is read: what the largest model needs, unless an option says.
func (s *service) message() int64 {
	if s.options.message > 0 {
		return s.options.message
	}
	most := int64(64 << 10)
	for _, name := range s.core.Names() {
		v, err := s.core.Lookup([]byte(name), nil)
		if err != nil {
			continue // it has gone since
		}
		most = max(most, wire.MaxProto(v.Spec))
		v.Release()
	}
	return min(most, math.MaxInt32)
}
