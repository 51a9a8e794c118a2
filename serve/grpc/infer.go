package grpcserve

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/popefgen/popefgen/serve/access"
	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// exchange is a request of ModelInfer, or one of a stream, and then its answer. It is decoded straight into the
// memory of a call and encoded from it.
type exchange struct {
	service *service
	ctx     context.Context
	stream  bool // answers are of the type ModelStreamInferResponse

	segments [][]byte
	in       wire.Proto
	out      wire.ProtoWriter
	version  *core.Version
	call     *core.Call
	err      error
	answer   mem.BufferSlice
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

func (s *service) exchange(ctx context.Context, stream bool) *exchange {
	x := exchanges.Get().(*exchange)
	x.service, x.ctx, x.stream = s, ctx, stream
	return x
}

// drop gives back what the request has, and x itself.
func (x *exchange) drop() {
	x.end()
	x.service, x.ctx, x.err, x.answer = nil, nil, nil, nil
	exchanges.Put(x)
}

// end lets the call and the version go.
func (x *exchange) end() {
	x.out.Reset()
	if x.call != nil {
		x.version.Put(x.call)
	}
	if x.version != nil {
		x.version.Release()
	}
	x.call, x.version = nil, nil
}

// decode reads the request. Its error is kept for the handler: grpc-go would call any error of a codec an internal one.
func (x *exchange) decode(data mem.BufferSlice) error {
	defer func() {
		if p := recover(); p != nil {
			x.err = panicked(p)
		}
		x.in.Reset()
		clear(x.segments)
		x.segments = x.segments[:0]
	}()
	x.segments = segments(x.segments, data)
	x.err = x.read(data.Len())
	return nil
}

func (x *exchange) read(size int) error {
	if err := x.in.Scan(x.segments); err != nil {
		return err
	}
	if x.service.core.Guarded() {
		if err := x.service.allow(x.ctx, access.Infer, string(x.in.Name)); err != nil {
			return err
		}
	}
	var err error
	if x.version, err = x.service.core.Lookup(x.in.Name, x.in.Version); err != nil {
		return err
	}
	if err := x.version.Refusal(); err != nil {
		return err
	}
	if most := wire.MaxProto(x.version.Spec); int64(size) > most {
		return oip.Errorf(oip.TooLarge, "request for model '%s' has %d bytes, expected at most %d, which is what the largest one needs", x.version.Spec.Name, size, most)
	}
	c := x.version.Get()
	x.call = c
	c.Protocol, c.Received = core.GRPC, size
	c.Deadline, _ = x.ctx.Deadline()
	if x.service.core.Traced() {
		if v := metadata.ValueFromIncomingContext(x.ctx, "traceparent"); len(v) > 0 {
			c.Traceparent, c.Tracestate = v[0], strings.Join(metadata.ValueFromIncomingContext(x.ctx, "tracestate"), ",")
		}
	}
	if err := x.in.Request(&c.Request, c.Memory); err != nil {
		return err
	}
	if len(c.Contract) == 0 {
		if v := metadata.ValueFromIncomingContext(x.ctx, agree.Header); len(v) > 0 {
			return c.SetContract([]byte(v[0]))
		}
	}
	return nil
}

// run computes the request and writes its answer, or returns why not. The call's memory is free then: a client that reads
// slowly holds a copy of the answer, not the memory of a model.
func (x *exchange) run(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
		x.end()
	}()
	if x.err != nil {
		if x.call != nil {
			x.call.Err = x.err
		}
		return x.err
	}
	if err := x.version.Run(ctx, x.call); err != nil {
		return err
	}
	x.out.Answer(x.version.Name, &x.call.Request, x.call.Memory)
	size := x.out.Size
	if x.stream {
		size += wire.MaxPrefix
	}
	b, pool := buffer(size)
	if x.stream {
		*b = wire.AppendPrefix(*b, x.out.Size)
	}
	*b = x.out.AppendTo(*b)
	x.call.Sent = len(*b)
	x.answer = mem.BufferSlice{mem.NewBuffer(b, pool)}
	return nil
}

// encode returns the answer, and is the last to use x.
func (x *exchange) encode() (mem.BufferSlice, error) {
	a := x.answer
	x.drop()
	return a, nil
}

// panicked is the error of a panic in a model's own code.
func panicked(p any) error {
	return &oip.Error{Code: oip.Internal, Text: "the request made the server panic", Cause: fmt.Errorf("panic: %v", p)}
}

// modelInfer is the handler of ModelInfer.
func modelInfer(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	s := srv.(*service)
	x := s.exchange(ctx, false)
	if err := decode(x); err != nil {
		x.drop()
		return nil, err
	}
	if interceptor == nil {
		return s.infer(ctx, x)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: inferMethod}
	return interceptor(ctx, x, info, func(ctx context.Context, request any) (any, error) {
		return s.infer(ctx, request.(*exchange))
	})
}

func (s *service) infer(ctx context.Context, x *exchange) (any, error) {
	if err := x.run(ctx); err != nil {
		x.drop()
		return nil, toStatus(err)
	}
	return x, nil
}

// modelStreamInfer is the handler of ModelStreamInfer: one answer for each request, in their order. A request that fails does not end
// the stream; a server that stops does, after the answer to the request under way.
func modelStreamInfer(srv any, stream grpc.ServerStream) error {
	s := srv.(*service)
	ctx := stream.Context()
	received := make(chan *exchange)
	ended := make(chan error, 1)
	go func() {
		for {
			x := s.exchange(ctx, true)
			if err := stream.RecvMsg(x); err != nil {
				x.drop()
				ended <- err
				return
			}
			select {
			case received <- x:
			case <-ctx.Done(): // also when the handler has returned
				x.drop()
				ended <- ctx.Err()
				return
			}
		}
	}()
	for {
		select {
		case x := <-received:
			id := ""
			if x.call != nil {
				id = string(x.call.ID)
			}
			var answer any = x
			if err := x.run(ctx); err != nil {
				x.drop()
				answer = streamFailure(err, id)
			}
			if err := stream.SendMsg(answer); err != nil {
				return err
			}
		case err := <-ended:
			if err == io.EOF {
				return nil
			}
			return err
		case <-s.draining:
			return toStatus(oip.Errorf(oip.Unavailable, "the server stops: send what had no answer to another one"))
		}
	}
}
