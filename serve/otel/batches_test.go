package otelserve

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve/dynamic"
)

// TestBatches: requests that share a run, each of a trace of its own, and the span of that run have links to each other; one that is not
// sampled has none.
func TestBatches(t *testing.T) {
	m, err := dynamic.Open(t.Context(), []string{"../../generated_examples/digits/digits.onnx"}, dynamic.WithCompile(dynamic.Compile{Batch: "4"}),
		dynamic.WithReplicas(1), dynamic.WithBatching(rt.BatchPolicy{Linger: 1500 * time.Millisecond}))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Shutdown(context.Background())) }()
	h, to := traced(t, m, sdk.ParentBased(sdk.AlwaysSample()))
	body := `{"inputs":[{"name":"image","datatype":"FP32","shape":[1,1,8,8],"data":[` + strings.Repeat("1,", 63) + `1]}]}`
	var all sync.WaitGroup
	for _, header := range []string{"", "", strings.TrimSuffix(parent, "-01") + "-00"} {
		all.Go(func() {
			if code := ask(h, "/v2/models/digits/infer", body, "traceparent", header); code != 200 {
				t.Error(code)
			}
		})
	}
	all.Wait()
	requests := map[trace.SpanID]tracetest.SpanStub{}
	var batch tracetest.SpanStub
	var computes []tracetest.SpanStub
	for _, s := range to.GetSpans() {
		switch s.Name {
		case "infer digits":
			requests[s.SpanContext.SpanID()] = s
		case "batch digits":
			require.Zero(t, batch.Name, "they share one")
			batch = s
		case "compute":
			computes = append(computes, s)
		}
	}
	require.Len(t, requests, 2)
	require.Len(t, computes, 2)
	require.Len(t, batch.Links, 2)
	require.Equal(t, batch.Links[0].SpanContext.SpanID(), batch.Parent.SpanID())
	for _, l := range batch.Links {
		request, ok := requests[l.SpanContext.SpanID()]
		require.True(t, ok)
		require.Equal(t, request.SpanContext.TraceID(), l.SpanContext.TraceID())
	}
	require.NotEqual(t, batch.Links[0].SpanContext.TraceID(), batch.Links[1].SpanContext.TraceID())
	for _, c := range computes {
		require.Len(t, c.Links, 1)
		require.Equal(t, batch.SpanContext.SpanID(), c.Links[0].SpanContext.SpanID())
		require.Equal(t, batch.StartTime, c.StartTime, "until then it was in the queue")
		require.False(t, c.EndTime.Before(batch.EndTime))
	}
	a := attributes(batch)
	require.Equal(t, []any{"digits", "1", int64(3), int64(1), int64(3), int64(0)}, []any{a[Model], a[Version], a[Samples], a[Padding], a[Requests], a[Replica]})
	require.Len(t, a, 6, "no others")
	require.Equal(t, trace.SpanKindInternal, batch.SpanKind)
}
