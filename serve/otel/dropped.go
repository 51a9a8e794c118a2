package otelserve

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/popefgen/popefgen/serve/internal/core"
)

// drops reports whether Ratio does not sample a request.
func (s *spans) drops(ctx context.Context, c *core.Call) bool {
	if s.ratio == nil {
		return false
	}
	if around := trace.SpanContextFromContext(ctx); around.IsValid() {
		return !around.IsSampled()
	}
	if valid, sampled := flags(c.Traceparent); valid {
		return !sampled
	}
	return rand.Float64() >= *s.ratio
}

// flags reports whether a traceparent is one, as [propagation.TraceContext] reads it, and whether its trace is sampled.
func flags(traceparent string) (valid, sampled bool) {
	// version, trace, span, flags: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const trace, span, flags, end = 3, 36, 53, 55
	t := traceparent
	if len(t) < end || t[trace-1] != '-' || t[span-1] != '-' || t[flags-1] != '-' || len(t) > end && t[end] != '-' {
		return false, false
	}
	version, ok := number(t[:trace-1])
	bits, hexadecimal := number(t[flags:end])
	// A later version may have more fields, and flags that nobody knows yet.
	if !ok || !hexadecimal || version == 255 || version == 0 && (len(t) > end+1 || bits > 3) {
		return false, false
	}
	for _, id := range []string{t[trace : span-1], t[span : flags-1]} {
		if n, ok := number(id); n == 0 || !ok {
			return false, false
		}
	}
	return true, bits&1 != 0
}

// number reads digits of small hexadecimals. What is too large for an int is another number above 0.
func number(digits string) (n int, ok bool) {
	for _, d := range []byte(digits) {
		switch {
		case '0' <= d && d <= '9':
			d -= '0'
		case 'a' <= d && d <= 'f':
			d -= 'a' - 10
		default:
			return 0, false
		}
		if n < 1<<8 {
			n = n<<4 | int(d)
		} else {
			n |= int(d)
		}
	}
	return n, true
}

// unsampled is the context of a request that Ratio does not sample. Hooks and models find a span context in it, which is made when they ask
// for it: what they begin, and what they ask others, is not sampled either.
type unsampled struct {
	context.Context
	header carrier

	mu   sync.Mutex
	span trace.Span // nil until somebody asks
}

// dropped returns the context of a request that is dropped. Each call has one, for all its requests.
func dropped(ctx context.Context, c *core.Call) context.Context {
	x, ok := c.Kept.(*unsampled)
	if !ok {
		x = &unsampled{}
		c.Kept = x
	}
	x.Context, x.header, x.span = ctx, carrier{c.Traceparent, c.Tracestate}, nil
	return x
}

// isDropped reports whether a context is of a request that is dropped.
func isDropped(ctx context.Context) bool {
	_, ok := ctx.(*unsampled)
	if !ok {
		_, ok = ctx.Value(droppedKey{}).(*unsampled)
	}
	return ok
}

// droppedKey is of the unsampled in a context.
type droppedKey struct{}

// Value returns the span, and what the transport's context has.
func (x *unsampled) Value(key any) any {
	switch key {
	case droppedKey{}:
		return x
	case spanKey:
		return x.made()
	}
	return x.Context.Value(key)
}

// made returns the span: that of a handler around the server, or of the request's header, or of a trace of its own.
func (x *unsampled) made() trace.Span {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.span != nil {
		return x.span
	}
	x.span = trace.SpanFromContext(x.Context)
	if x.span.SpanContext().IsValid() {
		return x.span
	}
	x.span = trace.SpanFromContext(propagation.TraceContext{}.Extract(context.Background(), x.header))
	if x.span.SpanContext().IsValid() {
		return x.span
	}
	var c trace.SpanContextConfig
	binary.LittleEndian.PutUint64(c.TraceID[:], rand.Uint64())
	binary.LittleEndian.PutUint64(c.TraceID[8:], rand.Uint64()|1)
	binary.LittleEndian.PutUint64(c.SpanID[:], rand.Uint64()|1)
	x.span = trace.SpanFromContext(trace.ContextWithSpanContext(context.Background(), trace.NewSpanContext(c)))
	return x.span
}

// spanKey is the key under which package trace has spans in contexts. It has no name for others, but asks for it.
var spanKey = func() any {
	var x asked
	trace.SpanFromContext(&x)
	return x.key
}()

// asked is a context that keeps what was asked for.
type asked struct {
	context.Context
	key any
}

func (x *asked) Value(key any) any {
	x.key = key
	return nil
}
