package otelserve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/testmodel"
	"github.com/popefgen/popefgen/serve/oip"
)

const (
	traceID = "0af7651916cd43dd8448eb211c80319c"
	spanID  = "b7ad6b7169203331"
	parent  = "00-" + traceID + "-" + spanID + "-01"
	infer   = "/v2/models/simple/infer"
	secret  = "4242424242" // an element that no span has
)

// traced returns the handler of a server of the model with spans, and what they are exported to.
func traced(t testing.TB, m oip.Model, sampler sdk.Sampler) (http.Handler, *tracetest.InMemoryExporter) {
	t.Helper()
	to := tracetest.NewInMemoryExporter()
	p := sdk.NewTracerProvider(sdk.WithSyncer(to), sdk.WithSampler(sampler))
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	srv, err := serve.New(serve.WithModel(m), With(p))
	require.NoError(t, err)
	return srv.Handler(), to
}

// ask sends a request and returns the status of its answer.
func ask(h http.Handler, path, body string, header ...string) int {
	r := httptest.NewRequest("POST", path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+secret)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// request is one of so many samples to the model simple.
func request(samples int) string {
	data := "[" + strings.Repeat(secret[:9]+",", samples*testmodel.Elements-1) + "0]"
	return fmt.Sprintf(`{"id":%q,"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[%d,16],"data":%s},{"name":"INPUT1","datatype":"INT32","shape":[%[2]d,16],"data":%[3]s}]}`, secret, samples, data)
}

func attributes(s tracetest.SpanStub) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, kv := range s.Attributes {
		all[kv.Key] = kv.Value.AsInterface()
	}
	return all
}

// TestSpans: which spans a request has, one below the other, whatever becomes of it.
func TestSpans(t *testing.T) {
	steps := []string{"decode", "queue", "compute", "encode"}
	for _, c := range []struct {
		name   string
		before func(context.Context) error
		path   string
		body   string
		http   int
		steps  []string
		code   string
		status codes.Code
		text   string
	}{
		{name: "success", body: request(2), http: 200, steps: steps, code: "OK"},
		{name: "cannot be read", body: `{"inputs":[{"name":"` + secret, http: 400, steps: steps[:1], code: "INVALID_ARGUMENT"},
		{name: "the model fails", before: func(context.Context) error { return errors.New("out of order") }, body: request(2), http: 500, steps: steps, code: "INTERNAL", status: codes.Error, text: "simple"},
		{name: "the model panics", before: func(context.Context) error { panic(secret) }, body: request(2), http: 500, steps: steps, code: "INTERNAL", status: codes.Error, text: "simple"},
		{name: "a hook refuses", before: func(context.Context) error { return oip.Errorf(oip.InvalidArgument, "no: %s", secret) }, body: request(2), http: 400, steps: steps, code: "INVALID_ARGUMENT"},
		{name: "too late", before: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, body: strings.Replace(request(2), `"inputs"`, `"parameters":{"timeout":1000000},"inputs"`, 1), http: 504, steps: steps, code: "DEADLINE_EXCEEDED", status: codes.Error, text: "simple"},
		{name: "unknown version", path: "/v2/models/simple/versions/7/infer", body: request(2), http: 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testmodel.Simple()
			var inside trace.SpanContext
			m.Before = func(ctx context.Context) error {
				inside = trace.SpanContextFromContext(ctx)
				if c.before != nil {
					return c.before(ctx)
				}
				return nil
			}
			h, to := traced(t, m, sdk.ParentBased(sdk.NeverSample())) // the caller samples it
			if c.path == "" {
				c.path = infer
			}
			require.Equal(t, c.http, ask(h, c.path, c.body, "traceparent", parent, "tracestate", "a=1"))
			got := to.GetSpans()
			if c.code == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, len(c.steps)+1)
			span := got[len(c.steps)] // the last to end
			require.Equal(t, "infer simple", span.Name)
			require.Equal(t, trace.SpanKindServer, span.SpanKind)
			require.Equal(t, traceID, span.SpanContext.TraceID().String())
			require.Equal(t, spanID, span.Parent.SpanID().String())
			require.True(t, span.Parent.IsRemote())
			require.Equal(t, "a=1", span.SpanContext.TraceState().String())
			if inside.IsValid() {
				require.Equal(t, span.SpanContext.SpanID(), inside.SpanID(), "the model's context has the span")
			}
			at := span.StartTime
			for i, s := range got[:len(c.steps)] {
				require.Equal(t, c.steps[i], s.Name)
				require.Equal(t, span.SpanContext.SpanID(), s.Parent.SpanID())
				require.Equal(t, traceID, s.SpanContext.TraceID().String())
				require.True(t, s.StartTime.Equal(at), "each step begins as the last one ends")
				at = s.EndTime
			}
			require.True(t, span.EndTime.Equal(at) && at.After(span.StartTime))
			a := attributes(span)
			require.Equal(t, c.code, a[Code])
			require.Equal(t, []any{"simple", "1", "REST"}, []any{a[Model], a[Version], a[Protocol]})
			if c.code == "OK" {
				require.Equal(t, int64(2), a[Samples])
				require.Equal(t, int64(len(c.body)), a[Received])
				require.Greater(t, a[Sent], int64(0))
				require.Len(t, a, 7, "no others")
			} else {
				require.Equal(t, c.code, a[errorType])
				require.Len(t, a, 8, "no others")
			}
			require.Equal(t, c.status, span.Status.Code)
			require.Contains(t, span.Status.Description, c.text)
			require.NotContains(t, fmt.Sprintf("%+v", got), secret[:9])
		})
	}
}

// TestQueue: a request that waits has a step as long as it waits, and one that finds no room ends there.
func TestQueue(t *testing.T) { synctest.Test(t, queue) }

func queue(t *testing.T) {
	m := testmodel.Simple()
	m.Replicas = 1
	free := make(chan struct{})
	m.Before = func(context.Context) error {
		<-free
		return nil
	}
	h, to := traced(t, m, sdk.AlwaysSample())
	done := make(chan int, 2)
	for range 2 { // one computes, one waits
		go func() { done <- ask(h, infer, request(1)) }()
		synctest.Wait()
	}
	require.Equal(t, 504, ask(h, infer, strings.Replace(request(1), `"inputs"`, `"parameters":{"timeout":50000},"inputs"`, 1)))
	late := to.GetSpans()
	require.Len(t, late, 3)
	require.Equal(t, []string{"decode", "queue", "infer simple"}, []string{late[0].Name, late[1].Name, late[2].Name})
	require.Equal(t, 50*time.Millisecond, late[1].EndTime.Sub(late[1].StartTime))
	require.False(t, late[2].Parent.IsValid())
	time.Sleep(20 * time.Millisecond)
	close(free)
	require.Equal(t, 200, <-done)
	require.Equal(t, 200, <-done)
	var longest time.Duration
	for _, s := range to.GetSpans()[3:] {
		if s.Name == "queue" {
			longest = max(longest, s.EndTime.Sub(s.StartTime))
		}
	}
	require.Equal(t, 70*time.Millisecond, longest)
}

// TestNothingSampled: what the provider or the caller does not sample is exported nowhere, and the model's context still says of which trace it is.
func TestNothingSampled(t *testing.T) {
	for name, c := range map[string]struct {
		sampler sdk.Sampler
		flags   string
	}{
		"never":              {sdk.NeverSample(), "-01"},
		"0 %":                {sdk.TraceIDRatioBased(0), "-01"},
		"the caller did not": {sdk.ParentBased(sdk.AlwaysSample()), "-00"},
	} {
		t.Run(name, func(t *testing.T) {
			m := testmodel.Simple()
			var inside trace.SpanContext
			m.Before = func(ctx context.Context) error {
				inside = trace.SpanContextFromContext(ctx)
				return nil
			}
			h, to := traced(t, m, c.sampler)
			require.Equal(t, 200, ask(h, infer, request(1), "traceparent", strings.TrimSuffix(parent, "-01")+c.flags))
			require.Equal(t, 400, ask(h, infer, "{", "traceparent", strings.TrimSuffix(parent, "-01")+c.flags))
			require.Empty(t, to.GetSpans())
			require.Equal(t, traceID, inside.TraceID().String())
			require.False(t, inside.IsSampled())
		})
	}
}

// TestParents: a header that is none begins a trace, and the span of a handler around the server comes before the header.
func TestParents(t *testing.T) {
	h, to := traced(t, testmodel.Simple(), sdk.AlwaysSample())
	for _, wrong := range []string{"", "x", parent[:54], strings.ToUpper(parent), "ff" + parent[2:], "00-" + strings.Repeat("0", 32) + parent[35:]} {
		to.Reset()
		require.Equal(t, 200, ask(h, infer, request(1), "traceparent", wrong))
		require.Len(t, to.GetSpans(), 5)
		require.False(t, to.GetSpans()[4].Parent.IsValid(), wrong)
	}
	to.Reset()
	around := sdk.NewTracerProvider().Tracer("around")
	var outer trace.SpanContext
	ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := around.Start(r.Context(), "outer")
		defer span.End()
		outer = span.SpanContext()
		h.ServeHTTP(w, r.WithContext(ctx))
	}), infer, request(1), "traceparent", parent)
	require.Equal(t, outer.SpanID(), to.GetSpans()[4].Parent.SpanID())
	require.Equal(t, outer.TraceID(), to.GetSpans()[4].SpanContext.TraceID())
}

// TestSampler: it sees the model, in the name, and the kind.
func TestSampler(t *testing.T) {
	var s sees
	h, _ := traced(t, testmodel.Simple(), &s)
	require.Equal(t, 200, ask(h, infer, request(1)))
	require.Equal(t, sees{"infer simple", trace.SpanKindServer}, s)
}

type sees struct {
	name string
	kind trace.SpanKind
}

func (s *sees) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	s.name, s.kind = p.Name, p.Kind
	return sdk.SamplingResult{Decision: sdk.Drop}
}

func (*sees) Description() string { return "sees" }

// TestOptions: one provider at most, and one that makes no spans at all does no harm.
func TestOptions(t *testing.T) {
	_, err := serve.New(With(nil))
	require.ErrorContains(t, err, "nil")
	_, err = serve.New(With(noop.NewTracerProvider()), With(noop.NewTracerProvider()))
	require.ErrorContains(t, err, "already")
	srv, err := serve.New(serve.WithModel(testmodel.Simple()), With(noop.NewTracerProvider()))
	require.NoError(t, err)
	require.Equal(t, 200, ask(srv.Handler(), infer, request(1), "traceparent", parent))
	require.Equal(t, 400, ask(srv.Handler(), infer, "{", "traceparent", parent))
}
