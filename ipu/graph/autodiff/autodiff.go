// Package autodiff is reverse-mode differentiation of portable executables: [Backward] appends to an
// executable the graph that computes gradients of another of its graphs.
//
// A program calls the two one after the other. The backward graph reads what the forward graph left in its
// tensors, and the gradients of the provided tensors, which something between the two has to write; what
// it computes are the gradients of the required tensors. Differentiate the executable as it was lowered and
// let [github.com/popefgen/popefgen/ipu/graph/pass] optimise both halves afterwards: operators that its
// passes make have no gradients.
//
// There is one rule for each operator, [Rules] lists them. Rules emit operators of the portable
// executable, so that a backward graph can be differentiated again ([Options.Before]). Gradients of several
// uses of a tensor are added in the order of the nodes, last use first, and whatever adds up elements does
// so in an order of its own: the bits of a gradient do not depend on the number of threads.
package autodiff

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Options say what [Backward] differentiates.
type Options struct {
	// Provided are the tensors whose gradients are given, normally the loss alone: floats that the graph
	// computes. The gradient of the loss with respect to itself is 1, or the factor of loss scaling.
	Provided []graph.TensorID
	// Required are the tensors whose gradients are wanted: floats that the graph reads, weights
	// (persistent tensors) or inputs, or that it computes on the way.
	Required []graph.TensorID
	// Detached are tensors through which no gradient flows: they count as constants.
	Detached []graph.TensorID
	// Before are graphs that have run before the graph, in this order, and that are differentiated with
	// it as if all were one. For gradients of gradients they are the forward graph, and the
	// graph is the backward one.
	Before []graph.GraphID
	// Recompute says which tensors of the forward graph the backward graph computes again instead of
	// reading them, so that their memory is free in between. Results have equal bits.
	Recompute Recompute
	// Checkpoints are tensors that are kept with [RecomputeMarked].
	Checkpoints []graph.TensorID
	// Name is the name of the graph; empty for that of the differentiated graph with "/grad" behind it.
	Name string
}

// LinkKind says what a tensor of a backward graph stands for.
type LinkKind uint8

// The kinds of [Link].
const (
	Fwd     LinkKind = iota // a tensor of the forward graph itself
	FwdGrad                 // the gradient of one
)

// String returns "Fwd" or "FwdGrad".
func (k LinkKind) String() string {
	if k == Fwd {
		return "Fwd"
	}
	return "FwdGrad"
}

// Link says what a tensor that a backward graph reads or writes is to the forward graph.
type Link struct {
	Kind    LinkKind
	Forward graph.TensorID // tensor of the forward graph
	Tensor  graph.TensorID // Forward itself, or its gradient
}

// Info describes a backward graph.
type Info struct {
	Graph graph.GraphID
	// Inputs are what the graph reads, constants aside: first the gradients of Options.Provided in their
	// order, which are new local tensors that something has to write before the graph is called, then
	// tensors of the forward graph, in the order of their numbers, weights included: they must hold what the forward
	// graph left there.
	Inputs []Link
	// Outputs are the gradients of Options.Required, in their order. One tensor may be several
	// gradients.
	Outputs []Link
	// Held are tensors for [github.com/popefgen/popefgen/ipu/graph/pass.OptimizeOptions], which keep what is
	// computed equal bit for bit, whichever of the recomputations but RecomputeMarked is chosen: the local
	// tensors of the forward graph that a backward graph of any of these may read, and copies of such.
	Held []graph.TensorID
}

// Obstacle is something that blocks a gradient.
type Obstacle struct {
	Operator string // kind of the node's operator; empty where a tensor by itself is at fault
	Node     string // its name
	Tensor   string // name of the tensor at fault, where it is one
	Why      string
}

// String returns the obstacle as a clause.
func (o Obstacle) String() string {
	switch {
	case o.Operator != "":
		return fmt.Sprintf("node %q (%s): %s", o.Node, o.Operator, o.Why)
	case o.Tensor != "":
		return fmt.Sprintf("tensor %q: %s", o.Tensor, o.Why)
	}
	return o.Why
}

// Blocked is the error of [Backward] where gradients are wanted that can't be computed. It lists all that is in the
// way.
type Blocked struct {
	Graph     string
	Obstacles []Obstacle
}

// Error returns a line for every obstacle.
func (b *Blocked) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "differentiate graph %q: %d obstacles", b.Graph, len(b.Obstacles))
	if len(b.Obstacles) == 1 {
		s.Reset()
		fmt.Fprintf(&s, "differentiate graph %q", b.Graph)
	}
	for _, o := range b.Obstacles {
		sep := "\n  "
		if len(b.Obstacles) == 1 {
			sep = ": "
		}
		s.WriteString(sep + o.String())
	}
	return s.String()
}

// ErrTooBig is wrapped by the error of [Backward] where gradients need more than an executable may hold:
// [graph.MaxTotalBytes] of tensors, or too many nodes.
var ErrTooBig = errors.New("the gradients are too big")

// Backward appends to e the graph that computes gradients of graph g. Constants and
// tensors are appended too; what was there stays as it is. An error, [*Blocked] where gradients do not exist, leaves e
// unchanged. Of e all that g, Options.Before and the graphs that their nodes run have to do with must be verified; graphs that use themselves,
// nodes that read what comes after them, and Options.Before in another order than that in which the graphs run are errors that wrap [graph.ErrInvalid].
func Backward(e *graph.Executable, g graph.GraphID, o Options) (*Info, error) {
	b, err := newBackward(e, g, o)
	if err != nil {
		return nil, err
	}
	info := b.run()
	if len(b.obstacles) > 0 {
		return nil, &Blocked{Graph: e.Graphs[g].Name, Obstacles: b.obstacles}
	}
	if b.tooBig != nil {
		return nil, fmt.Errorf("differentiate graph %q: %w", e.Graphs[g].Name, b.tooBig)
	}
	e.Tensors, e.Graphs = b.e.Tensors, b.e.Graphs
	return info, nil
}

// backward is one call of [Backward].
type backward struct {
	*emitter
	o       Options
	forward []graph.Node                   // of all graphs, in the order in which they run
	writes  map[graph.TensorID]*graph.Node // persistent tensors that they write
}

func newBackward(e *graph.Executable, g graph.GraphID, o Options) (*backward, error) {
	b := &backward{emitter: newEmitter(e), o: o, writes: map[graph.TensorID]*graph.Node{}}
	for _, id := range append(slices.Clone(o.Before), g) {
		if id < 0 || int(id) >= len(e.Graphs) {
			return nil, fmt.Errorf("differentiate graph %d: it does not exist, want 0 to %d", id, len(e.Graphs)-1)
		}
		if f := &e.Graphs[id]; len(f.Params)+len(f.Results) > 0 {
			return nil, fmt.Errorf("differentiate graph %q: it has parameters or results, want a graph that programs call", f.Name)
		}
		b.forward = append(b.forward, e.Graphs[id].Nodes...)
	}
	if err := wellFounded(e, append(slices.Clone(o.Before), g)); err != nil {
		return nil, fmt.Errorf("differentiate graph %q: %w: %w", e.Graphs[g].Name, graph.ErrInvalid, err)
	}
	if o.Name == "" {
		b.o.Name = e.Graphs[g].Name + "/grad"
	}
	for i := range b.forward {
		b.noteWrites(&b.forward[i], &b.forward[i])
	}
	if err := b.check(e.Graphs[g].Name); err != nil {
		return nil, err
	}
	return b, b.order(e.Graphs[g].Name)
}

// noteWrites notes which persistent tensors a node and the graphs that it runs write.
func (b *backward) noteWrites(top, n *graph.Node) {
	for _, t := range n.Outputs {
		if t != graph.None && b.e.Tensors[t].Persistent {
			b.writes[t] = top
		}
	}
	for _, s := range graph.Subgraphs(n.Op) {
		for _, t := range b.outside(s).writes {
			b.writes[t] = top
		}
	}
}

// check refuses options that make no sense.
func (b *backward) check(name string) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("differentiate graph %q: %w", name, fmt.Errorf(format, args...))
	}
	if len(b.o.Provided) == 0 {
		return fail("no tensor's gradient is provided, want that of the loss at least")
	}
	if len(b.o.Required) == 0 {
		return fail("no tensor's gradient is required, want at least one: is every weight frozen?")
	}
	for what, list := range map[string][]graph.TensorID{"provided": b.o.Provided, "required": b.o.Required, "detached": b.o.Detached, "checkpoint": b.o.Checkpoints} {
		seen := map[graph.TensorID]bool{}
		for _, t := range list {
			if t < 0 || int(t) >= len(b.e.Tensors) {
				return fail("%s tensor %d does not exist, want 0 to %d", what, t, len(b.e.Tensors)-1)
			}
			if seen[t] {
				return fail("%s tensor %q is listed twice", what, b.e.Tensors[t].Name)
			}
			seen[t] = true
			if (what == "provided" || what == "required") && !differentiable(b.e.Tensors[t].Type.DType) {
				return fail("%s tensor %q is %v, want elements of type f16, bf16, f32 or f64", what, b.e.Tensors[t].Name, b.e.Tensors[t].Type)
			}
		}
	}
	if !b.o.Recompute.valid() {
		return fail("recomputation %q is none of %s", string(b.o.Recompute), strings.Join(recomputations, ", "))
	}
	if len(b.o.Checkpoints) > 0 && b.o.Recompute != RecomputeMarked {
		return fail("checkpoints are marked, but the recomputation is %q: want %q", string(b.o.Recompute), string(RecomputeMarked))
	}
	return nil
}

// differentiable reports whether gradients of tensors of a type exist.
func differentiable(d graph.DType) bool {
	return d == graph.F16 || d == graph.BF16 || d == graph.F32 || d == graph.F64
}

// run makes the graph.
func (b *backward) run() *Info {
	info := &Info{}
	b.guard(func() {
		info.Graph = b.begin(b.o.Name)
		p := b.newPull()
		for _, t := range b.o.Detached {
			b.detached[t] = true
		}
		for _, t := range b.o.Required {
			if b.detached[t] {
				b.block(Obstacle{Tensor: b.e.Tensors[t].Name, Why: "its gradient is required, but it is detached: leave it out of one of the two"})
			}
			p.active[t] = true
		}
		for _, t := range b.o.Provided {
			dt := b.local("grad/"+b.e.Tensors[t].Name, b.e.Tensors[t].Type)
			info.Inputs = append(info.Inputs, Link{FwdGrad, t, dt})
			p.grads[t] = dt
		}
		p.reverse(b.forward)
		b.outputs(p, info)
		if len(b.obstacles) > 0 {
			return
		}
		var roots []graph.TensorID
		for _, l := range info.Outputs {
			roots = append(roots, l.Tensor)
		}
		b.sweep(info.Graph, roots)
		held := b.held(info.Graph)
		info.Held = append(held, b.heldCopies(held, b.recompute(info.Graph))...)
		b.inputs(info)
	})
	return info
}

// outputs takes the gradients that are required, and blocks those that do not exist.
func (b *backward) outputs(p *pull, info *Info) {
	for _, t := range b.o.Required {
		d, ok := p.grads[t]
		if !ok {
			why := "it has no influence on what gradients are provided of, so its gradient would be zero whatever it is: leave it out of what is required"
			if via := p.zeroed[t]; via != "" {
				why = "all that it does to what gradients are provided of goes through " + via + ", whose gradient is zero: leave it out of what is required"
			}
			b.block(Obstacle{Tensor: b.e.Tensors[t].Name, Why: why})
			continue
		}
		if n := b.writes[t]; n != nil {
			b.block(Obstacle{Tensor: b.e.Tensors[t].Name, Why: fmt.Sprintf(
				"the forward graph writes it (node %q): its gradient is that of neither value", n.Name)})
		}
		info.Outputs = append(info.Outputs, Link{FwdGrad, t, d})
	}
}

// inputs lists what the graph reads, and refuses what the forward graph has overwritten.
func (b *backward) inputs(info *Info) {
	provided := map[graph.TensorID]bool{}
	for _, l := range info.Inputs {
		provided[l.Tensor] = true
	}
	reads := slices.Clone(b.outsideOf(info.Graph).reads)
	slices.Sort(reads)
	for _, t := range reads {
		if provided[t] {
			continue
		}
		if n := b.writes[t]; n != nil {
			b.block(Obstacle{Tensor: b.e.Tensors[t].Name, Why: fmt.Sprintf(
				"gradients need the value that it had before the forward graph wrote it (node %q): write it after the backward graph", n.Name)})
		}
		info.Inputs = append(info.Inputs, Link{Fwd, t, t})
	}
}
