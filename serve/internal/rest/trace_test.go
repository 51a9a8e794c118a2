package rest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// tracing notes of which trace requests are a part.
type tracing struct{ seen [][2]string }

func (*tracing) Begin(ctx context.Context, _ *core.Version, _ *core.Call) context.Context { return ctx }

func (s *tracing) End(_ context.Context, _ *core.Version, c *core.Call, _ error) {
	s.seen = append(s.seen, [2]string{c.Traceparent, c.Tracestate})
}

func (*tracing) Mark(context.Context) any             { return nil }
func (*tracing) Ran(*core.Version, rt.Run, []any) any { return nil }

// TestTraceHeaders: a call has the headers of traces if somebody wants to know, also one that can not be read, and the next one has its own.
func TestTraceHeaders(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	body := fmt.Sprintf(simple16, numbers(0, 16, 1), numbers(0, 16, 1), "")
	for _, wanted := range []bool{true, false} {
		c := core.New()
		_, err := c.Add(testmodel.Simple())
		require.NoError(t, err)
		c.Start()
		var s tracing
		if wanted {
			c.ObserveTraces(&s)
		} else {
			c.Observe(&s)
		}
		h := New(c, Options{})
		require.Equal(t, 200, ask(h, "POST", "/v2/models/simple/infer", body, "traceparent", parent, "tracestate", "a=1").Code)
		require.Equal(t, 200, ask(h, "POST", "/v2/models/simple/infer", body).Code)
		require.Equal(t, 400, ask(h, "POST", "/v2/models/simple/infer", "{", "traceparent", parent).Code)
		if wanted {
			require.Equal(t, [][2]string{{parent, "a=1"}, {}, {parent, ""}}, s.seen)
		} else {
			require.Equal(t, make([][2]string, 3), s.seen)
		}
	}
}
