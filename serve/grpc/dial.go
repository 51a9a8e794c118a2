package grpcserve

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// policy spreads requests over all addresses of the target's name, and sends those again that a server did not take because it
// stops, or that could not reach it: a request has no effect but its answer.
const policy = `{"loadBalancingConfig":[{"round_robin":{}}],"methodConfig":[{"name":[{"service":"` + serviceName + `"}],
"retryPolicy":{"maxAttempts":4,"initialBackoff":"0.05s","maxBackoff":"1s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`

// dialing is what options of Dial set.
type dialing struct {
	tls    *tls.Config
	header []string
	more   []grpc.DialOption
}

// DialOption is an option of [Dial].
type DialOption func(*dialing)

// WithTLS speaks TLS with that configuration; one with certificates shows them to the server.
func WithTLS(c *tls.Config) DialOption { return func(d *dialing) { d.tls = c } }

// WithHeader sends metadata with each request, such as "authorization" and "Bearer TOKEN".
func WithHeader(key, value string) DialOption {
	return func(d *dialing) { d.header = append(d.header, strings.ToLower(key), value) }
}

// WithDialOptions adds options of grpc-go. They come last.
func WithDialOptions(more ...grpc.DialOption) DialOption {
	return func(d *dialing) { d.more = append(d.more, more...) }
}

// Dial returns a transport of typed clients to the server at target, as grpc-go names it: "localhost:9000", or
// "dns:///digits:9000", whose addresses take turns. It connects with the first request.
func Dial(target string, opts ...DialOption) (oip.Transport, error) {
	var d dialing
	for _, o := range opts {
		o(&d)
	}
	c := insecure.NewCredentials()
	if d.tls != nil {
		c = credentials.NewTLS(d.tls)
	}
	conn, err := grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(c), grpc.WithDefaultServiceConfig(policy),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())),
	}, d.more...)...)
	if err != nil {
		return nil, fmt.Errorf("gRPC to %s: %w", target, err)
	}
	return &transport{conn: conn, header: d.header}, nil
}

type transport struct {
	conn      *grpc.ClientConn
	header    []string
	contracts agree.Client
}

// Close closes the connections.
func (t *transport) Close() error { return t.conn.Close() }

// Infer sends one request. If the server has another contract that is compatible it sends it once more.
func (t *transport) Infer(ctx context.Context, spec *oip.Spec, x oip.Exchange) error {
	if len(t.header) > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, t.header...)
	}
	for asked := 0; ; asked++ {
		hash, err := t.contracts.Hash(spec)
		if err != nil {
			return err
		}
		err = t.ask(ctx, spec, hash, x)
		if err == nil || asked > 0 {
			return err
		}
		again, err := t.contracts.Answer(spec, hash, err)
		if !again {
			return err
		}
	}
}

func (t *transport) ask(ctx context.Context, spec *oip.Spec, hash string, x oip.Exchange) error {
	q := queries.Get().(*query)
	q.spec, q.hash, q.exchange, q.err = spec, hash, x, nil
	err := t.conn.Invoke(ctx, inferMethod, q, q,
		grpc.MaxCallRecvMsgSize(int(min(wire.MaxProtoAnswer(spec), math.MaxInt32))), grpc.MaxCallSendMsgSize(math.MaxInt32),
		grpc.MaxRetryRPCBufferSize(int(min(wire.MaxProto(spec), math.MaxInt32))))
	if err == nil {
		err = q.err
	}
	q.spec, q.exchange, q.err = nil, nil, nil
	queries.Put(q)
	return fromStatus(err)
}

// query is a request of a client, and its answer.
type query struct {
	spec     *oip.Spec
	hash     string
	exchange oip.Exchange
	segments [][]byte
	in       wire.Proto
	out      wire.ProtoWriter
	err      error
}

var queries = sync.Pool{New: func() any { return new(query) }}

// encode copies the inputs: grpc-go may still read the message when the caller has left because its context ended.
func (q *query) encode() (mem.BufferSlice, error) {
	q.out.Request(q.spec, q.hash, q.exchange)
	b, pool := buffer(q.out.Size)
	*b = q.out.AppendTo(*b)
	q.out.Reset()
	return mem.BufferSlice{mem.NewBuffer(b, pool)}, nil
}

// decode fills the outputs. Its error is kept, as grpc-go would hide what it says.
func (q *query) decode(data mem.BufferSlice) error {
	q.segments = segments(q.segments, data)
	q.err = q.in.Answer(q.segments, q.spec, q.exchange)
	q.in.Reset()
	clear(q.segments)
	q.segments = q.segments[:0]
	return nil
}
