package otelserve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/serve"
	"github.com/popefgen/popefgen/serve/internal/core"
	"github.com/popefgen/popefgen/serve/oip"
)

// Attributes of spans. Those of a request are set at its end: a sampler sees name and kind.
const (
	Model    = attribute.Key("popefgen.model")          // the model's name
	Version  = attribute.Key("popefgen.version")        // of the model
	Protocol = attribute.Key("popefgen.protocol")       // REST, gRPC or queue
	Code     = attribute.Key("popefgen.code")           // OK, or the name of an oip.Code, such as INVALID_ARGUMENT
	Samples  = attribute.Key("popefgen.samples")        // in the request, 1 if it has no dimension of them; in the batch, without padding
	Received = attribute.Key("popefgen.received_bytes") // of the request's body
	Sent     = attribute.Key("popefgen.sent_bytes")     // of the answer's body
	Padding  = attribute.Key("popefgen.padding")        // samples of the batch that are nobody's
	Requests = attribute.Key("popefgen.requests")       // that share the batch, sampled or not
	Replica  = attribute.Key("popefgen.replica")        // that computed the batch
)

// errorType is the attribute that OpenTelemetry's conventions have for what kind of error it was.
const errorType = attribute.Key("error.type")

// scope is the name of the tracer: spans are by this package.
const scope = "github.com/popefgen/popefgen/serve/otel"

// With has the server make spans of its requests by a tracer of p, which decides what is sampled and where it goes, and which the caller shuts
// down after [serve.Server.Run]. A server has one at most.
func With(p trace.TracerProvider, options ...Option) serve.Option {
	return func(s *serve.Server) error {
		if p == nil {
			return errors.New("serve: traces: the TracerProvider is nil")
		}
		made := newSpans(p)
		for _, o := range options {
			if err := o(made); err != nil {
				return err
			}
		}
		if !s.Core().ObserveTraces(made) {
			return errors.New("serve: traces: the server has a TracerProvider already: want one, which may export to several places")
		}
		return nil
	}
}

// Option is an option of [With].
type Option func(*spans) error

// Ratio decides what is sampled before the provider is asked, which costs less than its answer: a request whose caller says of which trace it is,
// as its caller decided; of the others as many as the ratio says, from 0 to 1. What it samples the provider should sample too: leave that
// its default sampler, ParentBased(AlwaysSample). Contexts of requests that are not sampled have a span context that says so, made when it is asked for.
func Ratio(of float64) Option {
	return func(s *spans) error {
		if !(of >= 0 && of <= 1) {
			return fmt.Errorf("serve: traces: the ratio is %v: want 0 to 1", of)
		}
		s.ratio = &of
		return nil
	}
}

// spans makes the spans. It is a [core.TraceObserver].
type spans struct {
	tracer trace.Tracer
	ratio  *float64 // nil: the provider decides alone

	// Names of spans are made once for each model, and read without a lock.
	mu    sync.Mutex
	names atomic.Pointer[map[string]names]
}

// names are those of a model's spans.
type names struct{ infer, batch string }

// server is an option that would be made for each span.
var server = trace.WithSpanKind(trace.SpanKindServer)

func newSpans(p trace.TracerProvider) *spans {
	s := &spans{tracer: p.Tracer(scope)}
	s.names.Store(&map[string]names{})
	return s
}

// Begin begins the span of a request, at the time when its header was there.
func (s *spans) Begin(ctx context.Context, v *core.Version, c *core.Call) context.Context {
	if s.drops(ctx, c) {
		return dropped(ctx, c)
	}
	ctx, span := s.start(ctx, v, c)
	if of := span.SpanContext(); c.Protocol == core.Queue && of.IsValid() { // the answer says which span it is of
		c.Traceparent = "00-" + of.TraceID().String() + "-" + of.SpanID().String() + "-" + of.TraceFlags().String()
	}
	return ctx
}

// End ends the span, and makes its children if somebody will see them.
func (s *spans) End(ctx context.Context, v *core.Version, c *core.Call, err error) {
	if isDropped(ctx) {
		return
	}
	span := trace.SpanFromContext(ctx)
	if !span.SpanContext().IsValid() { // the request did not come to Begin
		if s.drops(ctx, c) {
			return
		}
		ctx, span = s.start(ctx, v, c)
	}
	if !span.IsRecording() {
		return
	}
	t := &c.Times
	computes := t.Computes()
	for _, step := range []struct {
		name     string
		from, to time.Time
	}{
		{"decode", t.Begun, t.Queued}, {"queue", t.Queued, computes}, {"compute", computes, t.Computed}, {"encode", t.Computed, t.Ended},
	} {
		if step.from.IsZero() {
			break
		}
		if step.to.IsZero() { // it failed there
			step.to = t.Ended
		}
		options := append(make([]trace.SpanStartOption, 0, 2), trace.WithTimestamp(step.from))
		if step.name == "compute" && len(c.Batches) > 0 {
			options = append(options, trace.WithLinks(links(c.Batches)...))
		}
		_, child := s.tracer.Start(ctx, step.name, options...)
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
		ctx = propagation.TraceContext{}.Extract(ctx, carrier{c.Traceparent, c.Tracestate})
	}
	// Attributes would be made for spans, too, that nobody sees: they are set at the end.
	return s.tracer.Start(ctx, s.name(v.Spec.Name).infer, server, trace.WithTimestamp(c.Times.Begun))
}

// Mark returns the span of a request that is sampled.
func (s *spans) Mark(ctx context.Context) any {
	if isDropped(ctx) {
		return nil
	}
	if c := trace.SpanContextFromContext(ctx); c.IsSampled() {
		return c
	}
	return nil
}

// Ran makes the span of a run that computed requests of which some are sampled, and returns which it is. It is sampled with the first of
// them, whose trace it belongs to, and has links to all.
func (s *spans) Ran(v *core.Version, r rt.Run, requests []any) any {
	if len(requests) == 0 {
		return nil
	}
	first, _ := requests[0].(trace.SpanContext)
	_, span := s.tracer.Start(trace.ContextWithSpanContext(context.Background(), first), s.name(v.Spec.Name).batch, trace.WithTimestamp(r.Begun), trace.WithLinks(links(requests)...),
		trace.WithAttributes(Model.String(v.Spec.Name), Version.String(v.Name), Samples.Int(r.Samples), Padding.Int(r.Padding()), Requests.Int(r.Calls), Replica.Int(r.Replica)))
	if r.Err != nil {
		span.SetStatus(codes.Error, core.Failure(v.Spec.Name, r.Err).Error())
	}
	span.End(trace.WithTimestamp(r.Ended))
	if c := span.SpanContext(); c.IsSampled() {
		return c
	}
	return nil
}

func links(to []any) []trace.Link {
	all := make([]trace.Link, len(to))
	for i := range to {
		all[i].SpanContext, _ = to[i].(trace.SpanContext)
	}
	return all
}

func (s *spans) name(model string) names {
	if n, ok := (*s.names.Load())[model]; ok {
		return n
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	more := maps.Clone(*s.names.Load())
	more[model] = names{"infer " + model, "batch " + model}
	s.names.Store(&more)
	return more[model]
}

// carrier is the headers of a request as propagators read them.
type carrier struct{ traceparent, tracestate string }

func (c carrier) Get(name string) string {
	switch name {
	case "traceparent":
		return c.traceparent
	case "tracestate":
		return c.tracestate
	}
	return ""
}

func (c carrier) Set(string, string) {}

func (c carrier) Keys() []string { return []string{"traceparent", "tracestate"} }
