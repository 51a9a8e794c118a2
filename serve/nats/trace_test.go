package natsserve

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

const (
	parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	child  = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
)

// tracing notes of which trace requests are a part, and makes a span of those.
type tracing struct {
	mu   sync.Mutex
	seen [][2]string
}

func (s *tracing) Begin(ctx context.Context, _ *core.Version, c *core.Call) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, [2]string{c.Traceparent, c.Tracestate})
	c.Traceparent = child
	return ctx
}

func (*tracing) End(context.Context, *core.Version, *core.Call, error) {}
func (*tracing) Mark(context.Context) any                              { return nil }
func (*tracing) Ran(*core.Version, rt.Run, []any) any                  { return nil }

// TestTraces: the worker's server knows of which trace a job is a part, also one that another program submitted, or that fails, and its
// answer says which span computed it; without spans the answer is of the trace of the job.
func TestTraces(t *testing.T) {
	for _, traced := range []bool{true, false} {
		b := newBroker(t)
		var s tracing
		srv, err := serve.New(serve.WithModel(testmodel.Simple()))
		require.NoError(t, err)
		if traced {
			require.True(t, srv.Core().ObserveTraces(&s))
		}
		w, err := NewWorker(srv, b.connect(t), quick, nil)
		require.NoError(t, err)
		srv.Register(w, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		done := make(chan error, 1)
		go func() { done <- srv.Run(ctx) }()
		c := b.client(t, quick)
		c.Trace = func(context.Context) (string, string) { return parent, "a=1" }
		p := newPair()
		require.NoError(t, c.Infer(ctx, testmodel.Simple().Spec(), &p))
		body := []byte(`{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]},{"name":"INPUT1","datatype":"INT32","shape":[1,16],"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}]}`)
		js, err := jetstream.New(b.connect(t))
		require.NoError(t, err)
		_, err = js.PublishMsg(ctx, &nats.Msg{Subject: "popefgen.jobs.simple", Data: body, Header: nats.Header{jetstream.MsgIDHeader: {"capital"}, "Traceparent": {parent}}})
		require.NoError(t, err)
		a, err := c.Await(ctx, "capital")
		require.NoError(t, err)
		require.NoError(t, c.Submit(ctx, &Job{ID: "none", Model: "simple", Header: -1, Body: body}))
		none, err := c.Await(ctx, "none")
		require.NoError(t, err)
		require.NoError(t, c.Submit(ctx, &Job{ID: "wrong", Model: "simple", Header: -1, Body: []byte("{"), Traceparent: parent}))
		wrong, err := c.Await(ctx, "wrong")
		require.Error(t, err)
		require.Equal(t, parent, wrong.Traceparent)
		require.Error(t, c.Submit(ctx, &Job{ID: "lines", Model: "simple", Header: -1, Body: body, Traceparent: "a\r\nb: c"}))
		if traced {
			require.Equal(t, [][2]string{{parent, "a=1"}, {parent, ""}, {}}, s.seen)
			require.Equal(t, []string{child, child}, []string{a.Traceparent, none.Traceparent})
		} else {
			require.Equal(t, []string{parent, ""}, []string{a.Traceparent, none.Traceparent})
		}
		cancel()
		require.NoError(t, <-done)
	}
}
