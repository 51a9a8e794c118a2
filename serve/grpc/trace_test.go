package grpcserve

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	pb "github.com/popefgen/popefgen/serve/grpc/internal/inference"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// tracing notes of which trace requests are a part.
type tracing struct {
	mu   sync.Mutex
	seen [][2]string
}

func (*tracing) Begin(ctx context.Context, _ *core.Version, _ *core.Call) context.Context { return ctx }

func (s *tracing) End(_ context.Context, _ *core.Version, c *core.Call, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, [2]string{c.Traceparent, c.Tracestate})
}

func (*tracing) Mark(context.Context) any             { return nil }
func (*tracing) Ran(*core.Version, rt.Run, []any) any { return nil }

// TestTraceMetadata: a call has the metadata of traces if somebody wants to know, also one that can not be right, and the next one has its own.
func TestTraceMetadata(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, wanted := range []bool{true, false} {
		srv, err := serve.New(serve.WithModel(testmodel.Simple()))
		require.NoError(t, err)
		var s tracing
		if wanted {
			srv.Core().ObserveTraces(&s)
		} else {
			srv.Core().Observe(&s)
		}
		l, err := net.Listen("tcp", "localhost:0")
		require.NoError(t, err)
		require.NoError(t, RegisterListener(srv, l))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- srv.Run(ctx) }()
		c := plain(t, l.Addr().String())
		infer := func(q *pb.ModelInferRequest, header ...string) error {
			return c.Invoke(metadata.AppendToOutgoingContext(t.Context(), header...), inferMethod, q, new(pb.ModelInferResponse))
		}
		right, _ := simple(1)
		wrong, _ := simple(1)
		wrong.RawInputContents = wrong.RawInputContents[:1]
		require.NoError(t, infer(right, "traceparent", parent, "tracestate", "a=1", "tracestate", "b=2"))
		require.NoError(t, infer(right))
		require.Error(t, infer(wrong, "traceparent", parent))
		cancel()
		require.NoError(t, <-done)
		if wanted {
			require.Equal(t, [][2]string{{parent, "a=1,b=2"}, {}, {parent, ""}}, s.seen)
		} else {
			require.Equal(t, make([][2]string, 3), s.seen)
		}
	}
}
