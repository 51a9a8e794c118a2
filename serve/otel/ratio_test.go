package otelserve

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
)

// TestRatio: callers that say of which trace a request is decide, the ratio decides of others, and hooks see what was decided.
func TestRatio(t *testing.T) {
	to := tracetest.NewInMemoryExporter()
	p := sdk.NewTracerProvider(sdk.WithSyncer(to))
	for _, c := range []struct {
		name    string
		ratio   float64
		header  string
		sampled bool
		trace   string
	}{
		{"none", 0, "", false, ""}, {"all", 1, "", true, ""},
		{"the caller did", 0, parent, true, traceID}, {"the caller did not", 1, strings.TrimSuffix(parent, "1") + "0", false, traceID},
	} {
		t.Run(c.name, func(t *testing.T) {
			to.Reset()
			m := testmodel.Simple()
			var inside trace.SpanContext
			m.Before = func(ctx context.Context) error {
				inside = trace.SpanContextFromContext(ctx)
				_, span := p.Tracer("hook").Start(ctx, "hook")
				span.End()
				return nil
			}
			srv, err := serve.New(serve.WithModel(m), With(p, Ratio(c.ratio)))
			require.NoError(t, err)
			require.Equal(t, 200, ask(srv.Handler(), infer, request(1), "traceparent", c.header))
			require.Equal(t, 400, ask(srv.Handler(), infer, "{", "traceparent", c.header))
			require.True(t, inside.IsValid())
			require.Equal(t, c.sampled, inside.IsSampled())
			if c.trace != "" {
				require.Equal(t, c.trace, inside.TraceID().String())
			}
			if c.sampled {
				require.Len(t, to.GetSpans(), 8, "two requests, five steps, the hook's")
			} else {
				require.Empty(t, to.GetSpans())
			}
		})
	}
	for _, wrong := range []float64{-0.1, 1.1, math.NaN()} {
		_, err := serve.New(With(p, Ratio(wrong)))
		require.ErrorContains(t, err, "want 0 to 1")
	}
}

// TestFlags: which headers say of which trace a request is, and whether it is sampled, is what OpenTelemetry's own reader finds: of headers with any byte
// at any place, cut anywhere, with more after them, of other versions.
func TestFlags(t *testing.T) {
	headers := []string{"", "-", "00", "cc" + parent[2:] + "-more", "cc" + parent[2:] + "more", "ff" + parent[2:], parent + "-", "01" + parent[2:53] + "ff",
		"00-" + strings.Repeat("0", 32) + parent[35:], parent[:36] + strings.Repeat("0", 16) + parent[52:], strings.Repeat("-", 55), strings.ToUpper(parent)}
	for i := range parent {
		headers = append(headers, parent[:i], parent[:i]+parent[i+1:], parent[:i]+"-"+parent[i:])
		for b := range 256 {
			headers = append(headers, parent[:i]+string([]byte{byte(b)})+parent[i+1:])
		}
	}
	none := 0
	for _, h := range headers {
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier{h, ""}))
		valid, sampled := flags(h)
		require.Equal(t, want.IsValid(), valid, "%q", h)
		require.Equal(t, want.IsSampled(), sampled, "%q", h)
		if !valid {
			none++
		}
	}
	require.Less(t, none, len(headers), "some are right")
}

// TestDroppedAllocatesNothing: of a request that is not sampled nothing is made, whether its header says so or the ratio, unless a hook asks.
func TestDroppedAllocatesNothing(t *testing.T) {
	s := newSpans(sdk.NewTracerProvider())
	require.NoError(t, Ratio(0)(s))
	for _, header := range []string{"", strings.TrimSuffix(parent, "1") + "0"} {
		v, c := &core.Version{}, &core.Call{Traceparent: header, Tracestate: "a=1"}
		var ctx context.Context
		require.Zero(t, testing.AllocsPerRun(100, func() {
			ctx = s.Begin(t.Context(), v, c)
			if s.Mark(ctx) != nil {
				t.Error("a mark of a request that is not sampled")
			}
			s.End(ctx, v, c, nil)
		}))
		inside := trace.SpanContextFromContext(ctx)
		require.True(t, inside.IsValid())
		require.Equal(t, inside, trace.SpanContextFromContext(ctx), "it stays the same")
		if header != "" {
			require.Equal(t, "a=1", inside.TraceState().String())
			require.True(t, inside.IsRemote())
		}
		again := trace.SpanContextFromContext(s.Begin(t.Context(), v, c))
		require.Equal(t, header != "", inside.Equal(again), "the next request is of its own trace")
	}
}
