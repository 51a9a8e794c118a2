package plan

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
)

// control appends the steps of a node that runs graphs, which are written out
// in its place.
func (f *flow) control(g graph.GraphID, n, region int) error {
	node := &f.c.exe.Graphs[g].Nodes[n]
	b := block{f, g, n, node}
	switch op := node.Op.(type) {
	case *graph.If:
		return b.branch(op, region)
	case *graph.Loop:
		return b.loop(op, region)
	}
	return fmt.Errorf("node %d %q of graph %q: operator %s has no plan", n, node.Name, f.c.exe.Graphs[g].Name, node.Op.Kind())
}

// block is a node that runs graphs, while its steps are appended.
type block struct {
	f    *flow
	g    graph.GraphID
	n    int
	node *graph.Node
}

// step returns a step of the node.
func (b block) step(kind StepKind, region int, in, out []graph.TensorID) Step {
	return Step{Kind: kind, Graph: b.g, Node: b.n, Name: b.node.Name, Op: b.node.Op.Kind(), In: tensors(in...), Out: tensors(out...), Loop: region}
}

// move appends a copy of one tensor to another.
func (b block) move(from, to graph.TensorID, region int) error {
	delete(b.f.seen, to)
	return b.f.add(b.step(Move, region, []graph.TensorID{from}, []graph.TensorID{to}))
}

// moves copies tensors as if all at once: a source that is a target too is
// kept aside first. Where a source only shows a target in another shape,
// [flow.shared] sees to it.
func (b block) moves(from, to []graph.TensorID, region int) error {
	from = slices.Clone(from)
	target := make(map[graph.TensorID]bool, len(to))
	for _, t := range to {
		target[t] = true
	}
	for i, t := range from {
		if to[i] == graph.None || to[i] == t || !target[t] {
			continue
		}
		from[i] = b.f.temporary(t)
		if err := b.move(t, from[i], region); err != nil {
			return err
		}
	}
	for i, t := range from {
		if to[i] == graph.None || to[i] == t {
			continue
		}
		if err := b.move(t, to[i], region); err != nil {
			return err
		}
	}
	return nil
}

// temporary returns a tensor beyond the executable's own, of the type of t.
func (f *flow) temporary(t graph.TensorID) graph.TensorID {
	f.results = append(f.results, t)
	return graph.TensorID(len(f.c.exe.Tensors) + len(f.results) - 1)
}

// join makes all writes of some tensors give one value: which of them is the
// last before a read is known only when the program runs.
func (f *flow) join(all ...graph.TensorID) {
	for _, t := range all {
		if t != graph.None {
			f.joined[t] = true
		}
	}
}

// nodes appends the steps of all nodes of a graph.
func (f *flow) nodes(g graph.GraphID, region int) error {
	for n := range f.c.exe.Graphs[g].Nodes {
		if err := f.addNode(g, n, region); err != nil {
			return err
		}
	}
	return nil
}

// branch appends an If: both graphs, each followed by the copies of its
// results to those of the node.
func (b block) branch(op *graph.If, region int) error {
	f := b.f
	f.join(b.node.Outputs...)
	start := len(f.steps)
	if err := f.add(b.step(IfStart, region, b.node.Inputs, nil)); err != nil {
		return err
	}
	arm := func(g graph.GraphID) error {
		if err := f.nodes(g, start); err != nil {
			return err
		}
		return b.moves(f.c.exe.Graphs[g].Results[:len(b.node.Outputs)], b.node.Outputs, start)
	}
	if err := arm(op.Then); err != nil {
		return err
	}
	middle := b.step(Else, region, nil, nil)
	middle.Match = start
	if err := f.add(middle); err != nil {
		return err
	}
	if err := arm(op.Else); err != nil {
		return err
	}
	f.steps[start].Match = len(f.steps)
	end := b.step(IfEnd, region, nil, nil)
	end.Match = start
	return f.add(end)
}

// loop appends a Loop. What it carries lies in the tensors of the body's
// parameters all the time, and is copied to them after every iteration.
func (b block) loop(op *graph.Loop, region int) error {
	f, body := b.f, &b.f.c.exe.Graphs[op.Body]
	iteration, params := body.Params[0], body.Params[1:]
	init := b.node.Inputs[2:]
	got := body.Results
	cond := graph.None
	if op.While {
		cond, got = got[0], got[1:]
	}
	next, collected := got[:len(params)], got[len(params):]
	out := make([]graph.TensorID, len(got)) // of the node, left-out ones included
	for i := range out {
		out[i] = graph.None
		if i < len(b.node.Outputs) {
			out[i] = b.node.Outputs[i]
		}
	}
	collections := out[len(params):]
	f.join(body.Params...)
	f.join(collections...)

	// Everything that lives as long as the loop is first written before it.
	var begin []graph.TensorID
	for _, t := range collections {
		if t != graph.None {
			begin = append(begin, t)
		}
	}
	if err := f.add(b.step(Begin, region, nil, append(begin, iteration))); err != nil {
		return err
	}
	if err := b.moves(init, params, region); err != nil {
		return err
	}
	start := len(f.steps)
	head := b.step(LoopStart, region, b.node.Inputs[:2], []graph.TensorID{iteration})
	head.Count = op.Count
	if err := f.add(head); err != nil {
		return err
	}
	if err := f.nodes(op.Body, start); err != nil {
		return err
	}
	for i, t := range collections {
		if t == graph.None {
			continue
		}
		if err := f.add(b.step(Collect, start, []graph.TensorID{collected[i], iteration}, []graph.TensorID{t})); err != nil {
			return err
		}
	}
	if cond != graph.None {
		t := f.temporary(cond)
		if err := b.move(cond, t, start); err != nil {
			return err
		}
		cond = t
	}
	if err := b.moves(next, params, start); err != nil {
		return err
	}
	f.steps[start].Match = len(f.steps)
	end := b.step(LoopEnd, region, []graph.TensorID{cond}, []graph.TensorID{iteration})
	end.Match = start
	if op.While || op.Count < 0 {
		end.Work = budget.Add(nodeWork, f.c.work.graph(op.Body))
	}
	if err := f.add(end); err != nil {
		return err
	}
	return b.moves(params, out[:len(params)], region)
}
