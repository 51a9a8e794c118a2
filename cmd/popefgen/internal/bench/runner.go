package bench

import (
	"cmp"
	"context"

	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// runner is what generated code is, for a model that is only known now.
type runner struct {
	core     genrt.Core
	contract contract.Contract
	replicas []*ports
	slots    []exchange // of submitted requests, by slot
}

// ports are the ends of the streams of one replica.
type ports struct {
	in  []*genrt.RawInput
	out []*genrt.RawOutput
}

// exchange is the memory of a request: of its inputs and outputs.
type exchange struct{ in, out [][]byte }

// bind makes the streams of a replica work on a request's memory.
func (p *ports) bind(e *exchange) error {
	for i, in := range p.in {
		if err := in.Bind(e.in[i]); err != nil {
			return err
		}
	}
	for i, out := range p.out {
		if err := out.Bind(e.out[i]); err != nil {
			return err
		}
	}
	return nil
}

// openCore opens a runner with places for so many submitted requests. spec may
// be changed before.
func (t *Target) openCore(ctx context.Context, depth int, change func(*genrt.Spec), opts ...rt.RunnerOption) (*runner, error) {
	c, err := t.contract()
	if err != nil {
		return nil, err
	}
	r := &runner{contract: c, slots: make([]exchange, depth)}
	spec := &genrt.Spec{Package: t.base(), Contract: c.Callers().Text(), Iterations: c.DeviceIterations(), QueueDepth: depth}
	anchors := make([]contract.Anchor, 0, len(t.Inputs))
	for _, in := range t.Inputs {
		anchors = append(anchors, in.Anchor)
	}
	for _, a := range append(anchors, outputs(c)...) {
		n, err := transferBytes(a)
		if err != nil {
			return nil, err
		}
		spec.Anchors = append(spec.Anchors, genrt.AnchorSpec{Name: a.Name, Handle: a.Handle, GoName: a.Name, Role: a.Role, Bytes: n, Transfers: a.Transfers})
	}
	if change != nil {
		change(spec)
	}
	bindings := func() []genrt.Binding {
		p, all := &ports{}, []genrt.Binding{}
		for at, a := range spec.Anchors {
			n := a.Bytes * cmp.Or(a.Transfers, spec.Iterations)
			if a.Role == genrt.RunInput {
				p.in = append(p.in, genrt.NewRawInput(n))
				all = append(all, genrt.Binding{Anchor: at, Stream: p.in[len(p.in)-1]})
			} else {
				p.out = append(p.out, genrt.NewRawOutput(n))
				all = append(all, genrt.Binding{Anchor: at, Stream: p.out[len(p.out)-1]})
			}
		}
		r.replicas = append(r.replicas, p)
		return all
	}
	bind := func(replica, slot int) {
		if replica < 0 {
			return
		}
		// Memory of another size stays unbound, and the request fails with that.
		_ = r.replicas[replica].bind(&r.slots[slot])
	}
	source := genrt.Source{Name: t.Name, Bytes: t.Bytes}
	for _, o := range t.options() {
		opts = append(opts, o)
	}
	if len(t.Files) > 0 {
		opts = append(opts, rt.WithModelFile(t.Files...))
	}
	if err := r.core.Open(ctx, spec, source, bindings, bind, opts...); err != nil {
		return nil, err
	}
	return r, nil
}

// openRunner opens a runner for the modes Run and Submit.
func (t *Target) openRunner(ctx context.Context, c Config) (*driver, error) {
	opts := []rt.RunnerOption{rt.WithReplicas(c.Replicas)}
	if !c.ThreadSafe && c.Clients == 1 && c.Replicas == 1 {
		opts = append(opts, rt.SingleCaller())
	}
	depth := 1
	if c.Mode == Submit {
		depth = c.Clients * c.InFlight
	}
	r, err := t.openCore(ctx, depth, nil, opts...)
	if err != nil {
		return nil, err
	}
	d := &driver{close: r.core.Close, runner: r}
	for i := range c.Clients {
		base := requester{ctx: ctx, runner: r, turns: turns{inputs: t.Inputs, at: i}}
		for range c.InFlight {
			out, err := memories(r.contract)
			if err != nil {
				r.core.Close()
				return nil, err
			}
			base.memory = append(base.memory, exchange{make([][]byte, len(t.Inputs)), out})
		}
		if c.Mode == Submit {
			d.clients = append(d.clients, &submitter{base, make([]rt.Ticket, c.InFlight)})
		} else {
			d.clients = append(d.clients, &base)
		}
	}
	return d, nil
}

// requester is a client that calls Run.
type requester struct {
	ctx    context.Context
	runner *runner
	turns  turns
	memory []exchange // by slot
}

func (c *requester) start(slot int) error {
	e := &c.memory[slot]
	c.turns.next(e.in)
	replica, err := c.runner.core.Begin(c.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	if err := c.runner.replicas[replica].bind(e); err != nil {
		_ = c.runner.core.Main(c.ctx, replica) // hands the engine back
		return err
	}
	return c.runner.core.Main(c.ctx, replica)
}

func (c *requester) finish(int) error { return nil }

// submitter is a client that calls Submit, and Wait for each ticket.
type submitter struct {
	requester
	tickets []rt.Ticket
}

func (c *submitter) start(slot int) error {
	e := &c.memory[slot]
	c.turns.next(e.in)
	at, err := c.runner.core.Reserve(c.ctx, rt.LeastBusy)
	if err != nil {
		return err
	}
	c.runner.slots[at] = *e
	c.tickets[slot] = c.runner.core.Enqueue(c.ctx, at, rt.LeastBusy)
	return nil
}

func (c *submitter) finish(slot int) error { return c.tickets[slot].Wait(c.ctx) }
