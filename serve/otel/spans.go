package otelserve

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/oip"
)

// Attributes of the span of a request. They are set at its end: a sampler sees name and kind.
const (
	Model    = attribute.Key("popefgen.model")          // the model's name
	Version  = attribute.Key("popefgen.version")        // of the model
	Protocol = attribute.Key("popefgen.protocol")       // REST, gRPC or queue
	Code     = attribute.Key("popefgen.code")           // OK, or the name of an oip.Code, such as INVALID_ARGUMENT
	Samples  = attribute.Key("popefgen.samples")        // in the request, 1 if it has no dimension of them
	Received = attribute.Key("popefgen.received_bytes") // of the request's body
	Sent     = attribute.Key("popefgen.sent_bytes")     // of the answer's body
)

// errorType is the attribute that OpenTelemetry's conventions have for what kind of error it was.
const errorType = attribute.Key("error.type")

// scope is the name of the tracer: spans are by this package.
const scope = "github.com/popefgen/popefgen/serve/otel"

// With has the server make spans of its requests by a tracer of p, which decides what is sampled and where it goes, and which the caller shuts
// down after [serve.Server.Run]. A server has one at most.
func With(p trace.TracerProvider) serve.Option {
	return func(s *serve.Server) error {
		if p == nil {
			return errors.New("serve: traces: the TracerProvider is nil")
		}
		if !s.Core().ObserveTraces(newSpans(p)) {
			return errors.New("serve: traces: the server has a TracerProvider already: want one, which may export to several places")
		}
		return nil
	}
}

// spans makes the spans. It is a [core.Observer].
type spans struct {
	tracer trace.Tracer

	// Names of spans are made once for each model, and read without a lock.
	mu    sync.Mutex
	names atomic.Pointer[map[string]string]
}

// server is an option that would be made for each span.
var server = trace.WithSpanKind(trace.SpanKindServer)

func newSpans(p trace.TracerProvider) *spans {
	s := &spans{tracer: p.Tracer(scope)}
	s.names.Store(&map[string]string{})
	return s
}

// Begin begins the span of a request, at the time when its header was there.
func (s *spans) Begin(ctx context.Context, v *core.Version, c *core.Call) context.Context {
	ctx, _ = s.start(ctx, v, c)
	return ctx
}

// End ends the span, and makes its children if somebody will see them.
func (s *spans) End(ctx context.Context, v *core.Version, c *core.Call, err error) {
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsValid() { // the request did not come to Begin
		ctx, span = s.start(ctx, v, c)
	}
	if !span.IsRecording() {
		return
	}
	t := &c.Times
	for _, step := range []struct {
		name     string
		from, to time.Time
	}{
		{"decode", t.Begun, t.Queued}, {"queue", t.Queued, t.Computing}, {"compute", t.Computing, t.Computed}, {"encode", t.Computed, t.Ended},
	} {
		if step.from.IsZero() {
			break
		}
		if step.to.IsZero() { // it failed there
			step.to = t.Ended
		}
		_, child := s.tracer.Start(ctx, step.name, trace.WithTimestamp(step.from))
		child.End(trace.WithTimestamp(step.to))
	}
	span.SetAttributes(Model.String(v.Spec.Name), Version.String(v.Name), Protocol.String(c.Protocol.String()), Samples.Int(c.Samples()), Received.Int(c.Received), Sent.Int(c.Sent))
	outcome(span, err)
	span.End(trace.WithTimestamp(t.Ended))
}

// outcome says how the request ended.
func outcome(span trace.Span, err error) {
	if err == nil {
		span.SetAttributes(Code.String("OK"))
		return
	}
	code := oip.Internal
	var e *oip.Error
	if errors.As(err, &e) {
		code = e.Code
	}
	span.SetAttributes(Code.String(code.String()), errorType.String(code.String()))
	switch code {
	case oip.Internal, oip.Unavailable, oip.Deadline, oip.Unimplemented:
		span.SetStatus(codes.Error, err.Error())
	}
}

// start starts the span of a request.
func (s *spans) start(ctx context.Context, v *core.Version, c *core.Call) (context.Context, trace.Span) {
	if c.Traceparent != "" && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = propagation.TraceContext{}.Extract(ctx, carrier{c})
	}
	// Attributes would be made for spans, too, that nobody sees: they are set at the end.
	return s.tracer.Start(ctx, s.name(v.Spec.Name), server, trace.WithTimestamp(c.Times.Begun))
}

func (s *spans) name(model string) string {
	if n, ok := (*s.names.Load())[model]; ok {
		return n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	more := maps.Clone(*s.names.Load())
	more[model] = "infer " + model
	s.names.Store(&more)
	return more[model]
}

// carrier is a call's headers as propagators read them.
type carrier struct{ call *core.Call }

func (c carrier) Get(name string) string {
	switch name {
	case "traceparent":
		return c.call.Traceparent
	case "tracestate":
		return c.call.Tracestate
	}
	return ""
}

func (c carrier) Set(string, string) {}

func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
