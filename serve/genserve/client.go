package genserve

import (
	"context"
	"fmt"
	"sync"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/oip"
)

// Client is what a generated client is built around: it makes requests through a transport. Its methods may be called from any
// goroutine.
type Client[In, Out any] struct {
	of        *Package[In, Out]
	transport oip.Transport
	all       []layout // of every input, and then of every output
	exchanges sync.Pool

	mu      sync.RWMutex
	without map[uint64]*oip.Spec // the specification without the inputs of these bits
}

// NewClient returns a client of a server with the package's model.
func NewClient[In, Out any](p *Package[In, Out], t oip.Transport) *Client[In, Out] {
	c := &Client[In, Out]{of: p, transport: t, all: p.layouts(), without: map[uint64]*oip.Spec{0: p.Spec}}
	c.exchanges.New = func() any {
		return &exchange{all: c.all, inputs: len(p.Spec.Inputs), views: make([]genrt.View, len(c.all)), samples: make([]genrt.Samples, len(c.all)), shapes: shapes(c.all)}
	}
	return c
}

// Frozen reports whether a request may leave out input i: one without open dimensions, which the server's runner may have
// frozen. If it has not, the server says that the input is missing.
func (c *Client[In, Out]) Frozen(i int) bool { return !c.of.Open || c.all[i].open == 0 }

// Run has the server compute out from in, no pointer of which is nil but for inputs that Frozen allows.
func (c *Client[In, Out]) Run(ctx context.Context, in *In, out *Out) error {
	x := c.exchanges.Get().(*exchange)
	defer c.put(x)
	c.of.Views(in, out, x.views)
	x.given = x.given[:0]
	var left uint64
	for i := range x.inputs {
		if x.views[i].Missing() {
			left |= 1 << i
		} else {
			x.given = append(x.given, i)
		}
	}
	return c.infer(ctx, left, x)
}

// RunSamples has the server compute samples, given for every input and then for every output, in requests of at
// most as many as it takes at a time. An input that the server's runner has frozen is empty.
func (c *Client[In, Out]) RunSamples(ctx context.Context, samples ...genrt.Samples) error {
	n := 0
	for _, s := range samples {
		n = max(n, s.Len())
	}
	x := c.exchanges.Get().(*exchange)
	defer c.put(x)
	x.given, x.sampled = x.given[:0], true
	copy(x.samples, samples)
	var left uint64
	for i, s := range samples {
		switch {
		case i < x.inputs && s.Len() == 0:
			left |= 1 << i
		case s.Len() != n:
			return fmt.Errorf("model %q: %w: %d samples of %q, and %d of another", c.of.Spec.Name, rt.ErrLength, s.Len(), c.all[i].tensor.Name, n)
		case i < x.inputs:
			x.given = append(x.given, i)
		}
	}
	for x.from = 0; x.from < n; x.from += x.count {
		x.count = min(n-x.from, c.of.Spec.Samples)
		if err := c.infer(ctx, left, x); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the transport.
func (c *Client[In, Out]) Close() error { return c.transport.Close() }

func (c *Client[In, Out]) infer(ctx context.Context, left uint64, x *exchange) error {
	if err := c.transport.Infer(ctx, c.spec(left), x); err != nil {
		return fmt.Errorf("model %q: %w", c.of.Spec.Name, err)
	}
	return nil
}

// put gives an exchange back, without references to the caller's memory.
func (c *Client[In, Out]) put(x *exchange) {
	clear(x.views)
	clear(x.samples)
	x.sampled = false
	c.exchanges.Put(x)
}

// spec returns the specification without some inputs: always the same for the same ones.
func (c *Client[In, Out]) spec(left uint64) *oip.Spec {
	c.mu.RLock()
	s := c.without[left]
	c.mu.RUnlock()
	if s != nil {
		return s
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.without[left]; s != nil {
		return s
	}
	less := *c.of.Spec
	less.Inputs = nil
	for i, t := range c.of.Spec.Inputs {
		if left&(1<<i) == 0 {
			less.Inputs = append(less.Inputs, t)
		}
	}
	c.without[left] = &less
	return &less
}

// exchange is one request.
type exchange struct {
	all    []layout
	inputs int
	given  []int // inputs that the request has
	views  []genrt.View
	shapes [][]int64

	sampled     bool            // it is about samples, count of them from the one with the index from
	samples     []genrt.Samples // by tensor
	from, count int
}

func (x *exchange) Given(i int) ([]byte, []int64) {
	i = x.given[i]
	shape := x.shapes[i]
	if x.sampled {
		copy(shape, x.all[i].tensor.Shape)
		shape[0] = int64(x.count)
		return x.part(i), shape
	}
	return x.all[i].read(x.views[i], shape), shape
}

func (x *exchange) Take(i int, shape []int64) ([]byte, error) {
	i += x.inputs
	if !x.sampled {
		return x.all[i].resize(x.views[i], shape)
	}
	if shape[0] != int64(x.count) {
		return nil, x.all[i].unfit(shape, fmt.Sprintf("want %d samples", x.count))
	}
	return x.part(i), nil
}

// part returns the memory of the samples of this request.
func (x *exchange) part(i int) []byte {
	bytes := x.all[i].bytes
	return x.samples[i].Bytes()[x.from*bytes : (x.from+x.count)*bytes]
}
