// Package otelserve makes OpenTelemetry spans of a server's requests:
//
//	srv, err := serve.New(serve.WithModel(digits.Served(r)), otelserve.With(provider))
//
// A request that came as far as its version of a model is a span of kind server, such as "infer digits", with a child for each step that it got to:
//
//	decode   its header was there, its body is read
//	queue    it waits for a place, and for the run that computes it
//	compute  the model is at it
//	encode   its answer is written
//
// Samples of several requests may be computed by one run. Each such batch, also one of a single request, is a span such as "batch digits" with links to
// the spans of its requests that are sampled; the compute of each has links to the batches that computed it. It belongs to the trace of the first of them.
//
// The caller's span is its parent if the request has the header traceparent of W3C Trace Context, over REST, or the metadata of that name, over gRPC;
// a span that a handler or an interceptor around the server has begun is preferred. What is sampled, the provider says, or [Ratio], which costs less. Hooks and models find the
// span in their context.
//
// The attributes of a request are [Model], [Version], [Protocol], [Code], [Samples], [Received] and [Sent], those of a batch [Model], [Version], [Samples], [Padding], [Requests] and [Replica]. No span has what is in a tensor, a token, an id or
// another header. Errors of the server make its status Error, with their text; mistakes of callers leave it unset, as OpenTelemetry's
// conventions want it, and have [Code] and error.type.
package otelserve
