package natsserve

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/wire"
)

// NewWorker returns a worker that computes with the models of s, within their limits, over a connection that stays the
// caller's to close. It works by itself with Run, or the server starts and drains it with itself:
//
//	srv.Register(worker, nil)
//
// A connection for workers is made with nats.MaxReconnects(-1), so that it outlasts restarts of the NATS server. log may be nil: nothing is logged.
func NewWorker(s *serve.Server, nc *nats.Conn, c Config, log *slog.Logger) (*Worker, error) {
	if _, err := c.withDefaults(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	return &Worker{cfg: c, nc: nc, models: &served{core: s.Core()}, log: log, hand: map[jetstream.Msg]struct{}{},
		ctx: ctx, stop: stop, begun: make(chan struct{}), ended: make(chan struct{})}, nil
}

// Name is what errors of a server call it.
func (w *Worker) Name() string { return "queue" }

// Serve is Run until Drain. A worker listens to nobody: l is nil.
func (w *Worker) Serve(l net.Listener) error {
	close(w.begun)
	defer close(w.ended)
	w.err = w.Run(w.ctx)
	return w.err
}

// Drain ends Serve as the end of its context ends Run. If ctx ends first, it returns the error of ctx.
func (w *Worker) Drain(ctx context.Context) error {
	w.stop()
	select {
	case <-w.begun:
	default:
		return nil // the server ended before it started this
	}
	select {
	case <-w.ended:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// served is the models of a server.
type served struct {
	core *core.Core
	jobs sync.Pool // of *buffers
}

// buffers is what it takes to compute a job.
type buffers struct {
	source bytes.Reader
	reader wire.Reader
	writer wire.Writer
}

func (s *served) names() []string { return s.core.Names() }

func (s *served) room(model string) int {
	v, err := s.core.Lookup([]byte(model), nil)
	if err != nil {
		return 0
	}
	defer v.Release()
	return v.Limits().Computing
}

func (s *served) compute(ctx context.Context, j *Job) (a Answer, err error) {
	a.Traceparent = j.Traceparent
	b, _ := s.jobs.Get().(*buffers)
	if b == nil {
		b = new(buffers)
	}
	defer s.jobs.Put(b)
	v, err := s.core.Lookup([]byte(j.Model), []byte(j.Version))
	if err != nil {
		return a, err
	}
	defer v.Release()
	if err := v.Refusal(); err != nil {
		return a, err
	}
	c := v.Get()
	defer v.Put(c)
	c.Protocol, c.Received = core.Queue, len(j.Body)
	if s.core.Traced() {
		c.Traceparent, c.Tracestate = j.Traceparent, j.Tracestate
	}
	defer func() {
		c.Err = err
		if c.Traceparent != "" {
			a.Traceparent = c.Traceparent
		}
	}()
	b.source.Reset(j.Body)
	b.reader.Reset(&b.source, int64(len(j.Body)))
	if j.Header == 0 && len(j.Body) > 0 {
		err = b.reader.Raw(&c.Request, c.Memory, int64(len(j.Body)))
	} else {
		err = b.reader.Request(&c.Request, c.Memory, int64(j.Header))
	}
	if err != nil {
		return a, err
	}
	if err := v.Run(ctx, c); err != nil {
		return a, err
	}
	if err := b.writer.Answer(v.Spec.Name, v.Name, &c.Request, c.Memory); err != nil {
		return a, err
	}
	a.Body, a.Header = append(make([]byte, 0, b.writer.Size()), b.writer.Text...), -1
	if b.writer.Split {
		a.Header = len(a.Body)
	}
	for _, p := range b.writer.Parts {
		a.Body = append(a.Body, p...)
	}
	c.Sent = len(a.Body)
	return a, nil
}

var _ serve.Endpoint = (*Worker)(nil)
