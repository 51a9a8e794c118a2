package genserve

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
	"github.com/popefgen/popefgen/serve/oip"
)

// Hook is what a server calls before or after a model computes a request. An *oip.Error that it returns is what the client
// gets; any other is one of the code Internal, with its text. A panic is one too, and ends nothing but its request.
type Hook[In, Out any] struct {
	Before func(ctx context.Context, in *In) error
	After  func(ctx context.Context, in *In, out *Out) error
}

// Runner is what generated code says of how its model runs.
type Runner[In, Out any] struct {
	New      func() (*In, *Out) // memory for a request
	Run      func(ctx context.Context, in *In, out *Out) error
	Shutdown func(ctx context.Context) error
	Parallel int            // requests that are computed at the same time
	Frozen   func(int) bool // whether input i has the same data in every request: clients do not see it
}

// Served returns the model as servers take it.
func Served[In, Out any](p *Package[In, Out], r Runner[In, Out], hooks []Hook[In, Out]) oip.Model {
	m := &model[In, Out]{Package: p, Runner: r, hooks: hooks, all: p.layouts(), spec: *p.Spec}
	m.spec.Inputs = nil
	for i, t := range p.Spec.Inputs {
		if r.Frozen == nil || !r.Frozen(i) {
			m.inputs = append(m.inputs, i)
			m.spec.Inputs = append(m.spec.Inputs, t)
		}
	}
	return m
}

type model[In, Out any] struct {
	*Package[In, Out]
	Runner[In, Out]
	hooks  []Hook[In, Out]
	all    []layout // of every input, and then of every output
	spec   oip.Spec // that of the package without inputs that are frozen
	inputs []int    // of these, their indices in the package's
}

func (m *model[In, Out]) Spec() *oip.Spec                    { return &m.spec }
func (m *model[In, Out]) Parallel() int                      { return max(1, m.Runner.Parallel) }
func (m *model[In, Out]) Shutdown(ctx context.Context) error { return m.Runner.Shutdown(ctx) }

func (m *model[In, Out]) NewCall() oip.Call {
	c := &call[In, Out]{model: m, views: make([]genrt.View, len(m.all)), shapes: shapes(m.all)}
	c.in, c.out = m.New()
	m.Views(c.in, c.out, c.views)
	c.answer = append(c.answer, c.views...)
	return c
}

// call is the memory of one request. Hooks and the runner see copies of the structs: a tensor that they
// put in the place of another is that of this request alone.
type call[In, Out any] struct {
	model  *model[In, Out]
	in     *In
	out    *Out
	views  []genrt.View // of these
	inNow  In           // of this request
	outNow Out
	answer []genrt.View // of these
	shapes [][]int64
}

func (c *call[In, Out]) Input(i int, shape []int64) ([]byte, error) {
	i = c.model.inputs[i]
	return c.model.all[i].resize(c.views[i], shape)
}

func (c *call[In, Out]) Output(i int) ([]byte, []int64) {
	i += len(c.model.Package.Spec.Inputs)
	return c.model.all[i].read(c.answer[i], c.shapes[i]), c.shapes[i]
}

func (c *call[In, Out]) Run(ctx context.Context) error {
	m := c.model
	if m.spec.Samples > 0 { // outputs have as many samples as inputs
		n := 1
		if len(m.inputs) > 0 {
			n = c.views[m.inputs[0]].Size(0)
		}
		for i := len(m.Package.Spec.Inputs); i < len(m.all); i++ {
			c.views[i].SetSize(0, n)
			c.views[i].Resize(n, m.all[i].bytes)
		}
	}
	c.inNow, c.outNow = *c.in, *c.out
	var runs muted
	if len(m.hooks) > 0 { // the server follows the runs of this model, not of others that hooks have compute
		runs, _ = ctx.Value(rt.RunFollowerKey{}).(muted)
	}
	mute(runs, true)
	if err := c.before(ctx); err != nil {
		return failure(err)
	}
	mute(runs, false)
	if err := m.Run(ctx, &c.inNow, &c.outNow); err != nil {
		return failure(err)
	}
	mute(runs, true)
	if err := c.after(ctx); err != nil {
		return failure(err)
	}
	m.Views(&c.inNow, &c.outNow, c.answer)
	return c.whole()
}

// muted is an rt.RunFollower of a server that can be hidden for a while.
type muted interface{ Mute(on bool) }

func mute(f muted, on bool) {
	if f != nil {
		f.Mute(on)
	}
}

// whole returns an error if a hook left an output with other memory than its shape says.
func (c *call[In, Out]) whole() error {
	if len(c.model.hooks) == 0 {
		return nil
	}
	for i := range c.model.Package.Spec.Outputs {
		data, shape := c.Output(i)
		n, t := int64(1), &c.model.Package.Spec.Outputs[i]
		for _, d := range shape {
			n *= d
		}
		if int64(len(data)) != n*int64(t.Type.Size()) || c.answer[len(c.model.Package.Spec.Inputs)+i].Missing() {
			return oip.Errorf(oip.Internal, "a hook of model '%s' left output '%s' with %d bytes, and its shape is %d", c.model.spec.Name, t.Name, len(data), append([]int64(nil), shape...))
		}
	}
	return nil
}

func (c *call[In, Out]) before(ctx context.Context) (err error) {
	defer c.recovered(&err)
	for _, h := range c.model.hooks {
		if h.Before != nil {
			if err := h.Before(ctx, &c.inNow); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *call[In, Out]) after(ctx context.Context) (err error) {
	defer c.recovered(&err)
	for _, h := range c.model.hooks {
		if h.After != nil {
			if err := h.After(ctx, &c.inNow, &c.outNow); err != nil {
				return err
			}
		}
	}
	return nil
}

// recovered makes the panic of a hook the error of its request. The client sees no more than that there was one.
func (c *call[In, Out]) recovered(err *error) {
	if p := recover(); p != nil {
		*err = &oip.Error{
			Code: oip.Internal, Text: fmt.Sprintf("a hook of model '%s' panicked", c.model.spec.Name),
			Cause: fmt.Errorf("%v\n%s", p, debug.Stack()),
		}
	}
}
