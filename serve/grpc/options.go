package grpcserve

import (
	"fmt"
	"runtime"
	"time"

	"google.golang.org/grpc"
)

// options of a server. Limits stand in docs/serving.md.
type options struct {
	streams    uint32
	workers    uint32
	message    int64
	age, grace time.Duration
	reflection bool
	repository Repository
	more       []grpc.ServerOption
}

func defaults() options {
	return options{streams: 128, workers: uint32(4 * runtime.GOMAXPROCS(0)), reflection: true}
}

// Option is an option of [Register].
type Option func(*options) error

// WithMaxStreams limits the requests that one connection has under way, 128 by default.
func WithMaxStreams(n int) Option {
	return func(o *options) error {
		if n < 1 || n > 1<<20 {
			return fmt.Errorf("gRPC: %d requests at a time on a connection: want 1 to %d", n, 1<<20)
		}
		o.streams = uint32(n)
		return nil
	}
}

// WithWorkers sets how many goroutines are kept for requests, 4 for each processor by default; requests beyond
// them have goroutines of their own. 0 keeps none.
func WithWorkers(n int) Option {
	return func(o *options) error {
		if n < 0 || n > 1<<16 {
			return fmt.Errorf("gRPC: %d workers: want 0 to %d", n, 1<<16)
		}
		o.workers = uint32(n)
		return nil
	}
}

// WithMaxMessage sets how many bytes of a message the server reads before it knows which model it is for. The default is what
// the largest request to one of the models that are served at the start needs: set it where models come later.
func WithMaxMessage(bytes int64) Option {
	return func(o *options) error {
		if bytes < 1 || bytes > 1<<31-1 {
			return fmt.Errorf("gRPC: messages of at most %d bytes: want 1 to %d", bytes, int64(1<<31-1))
		}
		o.message = bytes
		return nil
	}
}

// WithMaxConnectionAge has connections end after age, so that clients behind a balancer of connections spread over
// new servers; requests under way have grace to end. By default connections do not end.
func WithMaxConnectionAge(age, grace time.Duration) Option {
	return func(o *options) error {
		if age <= 0 || grace <= 0 {
			return fmt.Errorf("gRPC: connections of at most %v with %v of grace: want both above 0", age, grace)
		}
		o.age, o.grace = age, grace
		return nil
	}
}

// WithoutReflection leaves out the service by which tools such as grpcurl find out what the calls are.
func WithoutReflection() Option {
	return func(o *options) error {
		o.reflection = false
		return nil
	}
}

// WithServerOptions adds options of grpc-go. They come last. An interceptor sees requests of ModelInfer as values without
// fields: their tensors are in the model's memory by then.
func WithServerOptions(more ...grpc.ServerOption) Option {
	return func(o *options) error {
		o.more = append(o.more, more...)
		return nil
	}
}
