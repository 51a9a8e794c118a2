// Package client is how typed clients, which generated packages have, reach a server over REST: the Open Inference Protocol, version 2,
// with tensors as bytes. It needs nothing but net/http.
//
//	remote, err := client.New("http://localhost:8000")
//	...
//	r := digits.NewClient(remote)
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/internal/agree"
	"github.com/popefgen/popefgen/serve/internal/wire"
	"github.com/popefgen/popefgen/serve/oip"
)

// client is a Transport over HTTP.
type client struct {
	base   *url.URL
	http   *http.Client
	own    *http.Transport // nil: the caller's
	header http.Header
	agree  agree.Client
	states sync.Pool // of *state

	addresses sync.Map // *url.URL by model
}

// Option is an option of [New].
type Option func(*client) error

// WithHTTPClient sends requests through c, which may have TLS certificates, a proxy or limits of its own. Closing the transport does
// not close it.
func WithHTTPClient(c *http.Client) Option {
	return func(t *client) error {
		if c == nil {
			return errors.New("the HTTP client is nil")
		}
		t.http, t.own = c, nil
		return nil
	}
}

// WithHeader sends a header with every request, such as Authorization.
func WithHeader(key, value string) Option {
	return func(t *client) error {
		t.header.Add(key, value)
		return nil
	}
}

// New returns a transport to the server at a URL such as http://localhost:8000. It connects when the first request is
// sent, and keeps connections open for the next ones. A request that no server took, because it stops or can not be reached, is sent again, up to
// three times within half a second: it has no effect but its answer. Errors of its Infer are of the type [*oip.Error]: those of the server with
// the code that it gave; Unavailable if it can not be reached; Deadline or Canceled if the context ended.
func New(server string, opts ...Option) (oip.Transport, error) {
	base, err := url.Parse(server)
	if err == nil && (base.Scheme != "http" && base.Scheme != "https" || base.Host == "") {
		err = errors.New("expected http://HOST:PORT or https://HOST:PORT")
	}
	if err != nil {
		return nil, fmt.Errorf("client of %q: %w", server, err)
	}
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.MaxIdleConnsPerHost, own.MaxIdleConns = 256, 256
	own.DisableCompression = true // of bytes that do not become smaller
	own.WriteBufferSize = 16 << 10
	t := &client{base: base, http: &http.Client{Transport: own}, own: own, header: http.Header{}}
	t.header.Set("Content-Type", "application/octet-stream")
	t.states.New = func() any { return new(state) }
	for _, o := range opts {
		if err := o(t); err != nil {
			return nil, fmt.Errorf("client of %q: %w", server, err)
		}
	}
	return t, nil
}

// Close closes the connections that carry no request.
func (t *client) Close() error {
	if t.own != nil {
		t.own.CloseIdleConnections()
	}
	return nil
}

// state is the memory of a request, kept for the next ones.
type state struct {
	writer wire.Writer
	reader wire.Reader
	bodies sync.WaitGroup // that net/http has not closed
}

// Infer sends a request and waits for its answer.
func (t *client) Infer(ctx context.Context, spec *oip.Spec, x oip.Exchange) error {
	s := t.states.Get().(*state)
	defer t.states.Put(s)
	for asked := 0; ; asked++ {
		sent, err := t.agree.Hash(spec)
		if err != nil {
			return err
		}
		err = t.persist(ctx, s, spec, sent, x)
		if err == nil || asked > 0 {
			return err
		}
		if again, err := t.agree.Answer(spec, sent, err); !again {
			return err
		}
	}
}

// How long a request waits before it is sent again, the first time; twice as long after each. As with gRPC, there are 4 tries in all.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 4 * firstWait
)

// persist sends a request until a server takes it: beside one that stops there may be another one, or it comes again.
func (t *client) persist(ctx context.Context, s *state, spec *oip.Spec, contract string, x oip.Exchange) error {
	for wait := firstWait; ; wait *= 2 {
		err := t.ask(ctx, s, spec, contract, x)
		var e *oip.Error
		if !errors.As(err, &e) || e.Code != oip.Unavailable || wait > lastWait {
			return err
		}
		timer := time.NewTimer(wait/2 + rand.N(wait)) // callers that failed together come again one after the other
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return t.failure(ctx, spec, err)
		}
	}
}

// ask sends one request.
func (t *client) ask(ctx context.Context, s *state, spec *oip.Spec, contract string, x oip.Exchange) error {
	timeout := time.Duration(0)
	if until, ok := ctx.Deadline(); ok {
		timeout = max(time.Until(until), time.Microsecond)
	}
	s.writer.Request(spec, contract, timeout, x)
	defer s.writer.Reset()
	// net/http may read the body after it has returned, and the body is memory of the caller.
	defer s.bodies.Wait()
	body := func() (io.ReadCloser, error) {
		s.bodies.Add(1)
		return &body{w: &s.writer, open: &s.bodies}, nil
	}
	first, _ := body()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "", first)
	if err != nil {
		first.Close()
		return err
	}
	if r.URL, err = t.address(spec.Name); err != nil {
		first.Close()
		return err
	}
	r.Host = r.URL.Host
	for k, v := range t.header {
		r.Header[k] = v
	}
	r.Header["Inference-Header-Content-Length"] = []string{strconv.Itoa(len(s.writer.Text))}
	// For net/http, which then sends it again if the server closes a kept connection in the moment in which it is sent. The header itself stays here.
	r.Header["Idempotency-Key"] = nil
	r.ContentLength, r.GetBody = int64(s.writer.Size()), body
	answer, err := t.http.Do(r)
	if err != nil {
		return t.failure(ctx, spec, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return t.refusal(s, spec, answer)
	}
	header := int64(-1)
	if h := answer.Header.Get("Inference-Header-Content-Length"); h != "" {
		if header, err = strconv.ParseInt(h, 10, 64); err != nil || header < 0 {
			return oip.Errorf(oip.Internal, "answer of %s: Inference-Header-Content-Length is %q, expected a number of bytes", t.base.Host, h)
		}
	}
	s.reader.Reset(answer.Body, limit(spec, header >= 0))
	if err := s.reader.Answer(spec, x, header); err != nil {
		if ctx.Err() != nil {
			return t.failure(ctx, spec, err)
		}
		return &oip.Error{Code: oip.Internal, Text: fmt.Sprintf("answer of %s for model '%s': %v", t.base.Host, spec.Name, err), Cause: err}
	}
	return nil
}

// address returns where requests to a model go. Nobody changes it.
func (t *client) address(model string) (*url.URL, error) {
	if u, ok := t.addresses.Load(model); ok {
		return u.(*url.URL), nil
	}
	u, err := url.Parse(t.base.JoinPath("v2", "models", url.PathEscape(model), "infer").String()) // joining leaves out the first slash
	if err != nil {
		return nil, err
	}
	t.addresses.Store(model, u)
	return u, nil
}

// limit returns how many bytes an answer has at most.
func limit(spec *oip.Spec, binary bool) int64 {
	const (
		text       = 1 << 20 // beside the elements: names, parameters
		perElement = 64      // bytes in JSON, from servers that write numbers at length, with white space
	)
	n := int64(text)
	for i := range spec.Outputs {
		of := spec.Outputs[i].MaxBytes()
		if !binary {
			of = spec.Outputs[i].MaxElements()
			if of > math.MaxInt64/perElement {
				return math.MaxInt64
			}
			of *= perElement
		}
		if n > math.MaxInt64-of {
			return math.MaxInt64
		}
		n += of
	}
	return n
}

// failure is the error of a request that did not reach the server, or whose answer did not come.
func (t *client) failure(ctx context.Context, spec *oip.Spec, err error) error {
	code, text := oip.Unavailable, "server "+t.base.Host+" can not be reached"
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		code, text = oip.Deadline, "the time of the request to model '"+spec.Name+"' was over before its answer"
	case ctx.Err() != nil:
		code, text = oip.Canceled, "the request to model '"+spec.Name+"' was cancelled"
	default:
		text += ": " + strings.TrimPrefix(err.Error(), "Post ")
	}
	return &oip.Error{Code: code, Text: text, Cause: err}
}

// refusal is the error that the server answered with.
func (t *client) refusal(s *state, spec *oip.Spec, answer *http.Response) error {
	s.reader.Reset(answer.Body, 1<<16)
	text, name, contract, err := s.reader.Failure()
	if err != nil || text == "" {
		text = fmt.Sprintf("server %s answered a request to model '%s' with %s", t.base.Host, spec.Name, answer.Status)
	}
	e := &oip.Error{Code: code(answer.StatusCode, name), Text: text, Contract: contract}
	if n, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && n >= 0 && n < 1<<20 {
		e.RetryAfter = time.Duration(n) * time.Second
	}
	return e
}

// code returns what kind of failure a status is. Some statuses are of two kinds: the name decides.
func code(status int, name string) oip.Code {
	found, any := oip.Internal, false
	for c := oip.Internal; c <= oip.Unsupported; c++ {
		if c.HTTP() == status && (!any || c.String() == name) {
			found, any = c, true
		}
	}
	if any {
		return found
	}
	switch status {
	case http.StatusRequestTimeout:
		return oip.Deadline
	case http.StatusTooManyRequests:
		return oip.Exhausted
	case http.StatusBadGateway:
		return oip.Unavailable
	}
	if status >= 400 && status < 500 {
		return oip.InvalidArgument
	}
	return oip.Internal
}

// body reads what a Writer has.
type body struct {
	w      *wire.Writer
	part   int // the next one; 0 is the text
	off    int
	closed atomic.Bool
	open   *sync.WaitGroup // of bodies that are not closed
}

func (b *body) Read(p []byte) (int, error) {
	for b.part <= len(b.w.Parts) {
		of := b.w.Text
		if b.part > 0 {
			of = b.w.Parts[b.part-1]
		}
		if b.off < len(of) {
			n := copy(p, of[b.off:])
			b.off += n
			return n, nil
		}
		b.part, b.off = b.part+1, 0
	}
	return 0, io.EOF
}

func (b *body) Close() error {
	if !b.closed.Swap(true) {
		b.open.Done()
	}
	return nil
}
