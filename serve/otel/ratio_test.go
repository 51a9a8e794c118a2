package otelserve

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/serve"
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
