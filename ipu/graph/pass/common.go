package pass

import (
	"fmt"
	"hash/maphash"

	"github.com/popefgen/popefgen/ipu/graph"
)

// shareCommon lets nodes of a graph that compute the same from the same share
// their results, and equal constants their data.
func shareCommon(e *graph.Executable, c *passContext) {
	alias := make([]graph.TensorID, len(e.Tensors))
	for i := range alias {
		alias[i] = graph.TensorID(i)
	}
	to := func(id graph.TensorID) graph.TensorID { return alias[id] }
	shareConstants(e, c, alias)
	r := newRewriter(e, c)
	for g := range e.Graphs {
		r.g = graph.GraphID(g)
		first := map[string]*graph.Node{}
		for i := range e.Graphs[g].Nodes {
			n := &e.Graphs[g].Nodes[i]
			n.Inputs = remap(n.Inputs, to)
			if !r.shareable(n) {
				continue
			}
			key := fmt.Sprint(graph.OpString(n.Op), n.Inputs, len(n.Outputs))
			f := first[key]
			if f == nil {
				first[key] = n
				continue
			}
			for k, t := range n.Outputs {
				if t == graph.None {
					continue
				}
				if f.Outputs[k] == graph.None {
					// Nobody wanted this result of the first so far: it takes over the
					// name that the second gave it.
					f.Outputs[k], n.Outputs[k] = t, graph.None
					continue
				}
				alias[t] = f.Outputs[k]
			}
			c.did("equal expressions")
		}
	}
	for g := range e.Graphs {
		e.Graphs[g].Results = remap(e.Graphs[g].Results, to)
		for i := range e.Graphs[g].Nodes {
			e.Graphs[g].Nodes[i].Inputs = remap(e.Graphs[g].Nodes[i].Inputs, to)
		}
	}
	forSteps(e, func(_ int, s *graph.Step) {
		if s.Kind == graph.CopyOut {
			s.Tensor = alias[s.Tensor]
		}
	})
	if len(c.report.Rewrites) > 0 {
		removeDead(e)
	}
}

// shareable reports whether a node gives the same results whenever its graph
// computes it from the same operands.
func (r *rewriter) shareable(n *graph.Node) bool {
	if graph.HasEffect(n.Op) || len(n.Outputs) == 0 {
		return false
	}
	for _, t := range n.Outputs {
		if t != graph.None && r.Tensors[t].Persistent {
			return false
		}
	}
	for _, t := range n.Inputs {
		if t != graph.None && !r.stable(t) {
			return false
		}
	}
	return true
}

// shareConstants lets equal constants of any size be one.
func shareConstants(e *graph.Executable, c *passContext, alias []graph.TensorID) {
	seed := maphash.MakeSeed()
	type key struct {
		typ  string
		hash uint64
	}
	first := map[key]graph.TensorID{}
	for i := range e.Tensors {
		t := &e.Tensors[i]
		if !t.Const {
			continue
		}
		k := key{t.Type.String(), maphash.Bytes(seed, t.Data)}
		f, ok := first[k]
		if !ok {
			first[k] = graph.TensorID(i)
		} else if string(e.Tensors[f].Data) == string(t.Data) {
			alias[i] = f
			c.did("equal constants")
		}
	}
}
