package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// boundary is what a graph has to do with tensors outside of it.
type boundary struct {
	reads  []graph.TensorID // tensors that it does not define, constants aside, in the order of their first use
	writes []graph.TensorID // persistent tensors
}

// outside returns the boundary of a graph that will not change.
func (b *emitter) outside(g graph.GraphID) *boundary {
	if s, ok := b.summaries[g]; ok {
		return s
	}
	s := b.outsideOf(g)
	b.summaries[g] = s
	return s
}

// outsideOf returns the boundary of a graph as it is now.
func (b *emitter) outsideOf(g graph.GraphID) *boundary {
	f := &b.e.Graphs[g]
	s := &boundary{}
	own, seen := map[graph.TensorID]bool{}, map[graph.TensorID]bool{}
	for _, t := range f.Params {
		own[t] = true
	}
	need := func(t graph.TensorID) {
		if t != graph.None && !own[t] && !seen[t] && !b.e.Tensors[t].Const {
			seen[t] = true
			s.reads = append(s.reads, t)
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		b.reads(n, need)
		for _, sub := range graph.Subgraphs(n.Op) {
			s.writes = append(s.writes, b.outside(sub).writes...)
		}
		for _, t := range n.Outputs {
			switch {
			case t == graph.None:
			case b.e.Tensors[t].Persistent:
				s.writes = append(s.writes, t)
			default:
				own[t] = true
			}
		}
	}
	for _, t := range f.Results {
		need(t)
	}
	slices.Sort(s.writes)
	s.writes = slices.Compact(s.writes)
	return s
}

// sweep takes out of a graph the nodes that nothing that roots depend on needs.
func (b *emitter) sweep(g graph.GraphID, roots []graph.TensorID) {
	live := map[graph.TensorID]bool{}
	for _, t := range roots {
		live[t] = true
	}
	nodes := b.e.Graphs[g].Nodes
	keep := make([]bool, len(nodes))
	for i, n := range slices.Backward(nodes) {
		for _, t := range n.Outputs {
			keep[i] = keep[i] || t != graph.None && live[t]
		}
		if keep[i] {
			b.reads(&n, func(t graph.TensorID) { live[t] = true })
		}
	}
	var left []graph.Node
	for i, n := range nodes {
		if keep[i] {
			left = append(left, n)
		}
	}
	b.e.Graphs[g].Nodes = left
	delete(b.summaries, g)
}

// clone appends copies of nodes to the current graph. names says which tensor stands for which, and learns the copies of
// their results. What only checks something is left out: the forward graph has done so.
func (b *emitter) clone(nodes []graph.Node, names map[graph.TensorID]graph.TensorID) {
	for i := range nodes {
		n := &nodes[i]
		if graph.HasEffect(n.Op) && len(graph.Subgraphs(n.Op)) == 0 {
			continue
		}
		c := graph.Node{Op: b.cloneOp(n.Op, names), Name: n.Name, Inputs: renamed(n.Inputs, names), Outputs: slices.Clone(n.Outputs)}
		for k, t := range n.Outputs {
			if t == graph.None {
				continue
			}
			if b.e.Tensors[t].Persistent {
				refuse("node %q, which would have to be computed again, writes the persistent tensor %q", n.Name, b.e.Tensors[t].Name)
			}
			c.Outputs[k] = b.copyOf(t, names)
		}
		b.node(c)
	}
}

// copyOf adds a tensor that stands for t.
func (b *emitter) copyOf(t graph.TensorID, names map[graph.TensorID]graph.TensorID) graph.TensorID {
	c := b.local(b.e.Tensors[t].Name, b.e.Tensors[t].Type)
	names[t] = c
	if b.detached[t] {
		b.detached[c] = true
	}
	return c
}

func renamed(ids []graph.TensorID, names map[graph.TensorID]graph.TensorID) []graph.TensorID {
	out := slices.Clone(ids)
	for i, t := range out {
		if c, ok := names[t]; ok {
			out[i] = c
		}
	}
	return out
}

// cloneOp returns op, or where it runs graphs an operator that runs copies of them.
func (b *emitter) cloneOp(op graph.Op, names map[graph.TensorID]graph.TensorID) graph.Op {
	switch o := op.(type) {
	case *graph.If:
		return &graph.If{Then: b.cloneGraph(o.Then, names), Else: b.cloneGraph(o.Else, names)}
	case *graph.Loop:
		c := *o
		c.Body = b.cloneGraph(o.Body, names)
		return &c
	}
	return op
}

// cloneGraph returns a copy of a graph whose tensors are its own.
func (b *emitter) cloneGraph(g graph.GraphID, names map[graph.TensorID]graph.TensorID) graph.GraphID {
	f := b.e.Graphs[g]
	return b.inside(f.Name, func() {
		own := b.cur
		params := make([]graph.TensorID, len(f.Params))
		for i, t := range f.Params {
			params[i] = b.copyOf(t, names)
		}
		b.clone(f.Nodes, names)
		b.e.Graphs[own].Params, b.e.Graphs[own].Results = params, renamed(f.Results, names)
	})
}
