package pass

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// removeIdentities lets the readers of a node that changes nothing read the
// node's operand.
//
// The operand must hold, wherever the result is read, the value that it held
// when the node ran. That is so for a constant, for a tensor that a node before
// this one in the same graph or the graph's caller wrote, for a tensor that no
// program fills in more than one step, and for a persistent tensor that is not
// written by nodes and not filled by programs that compute.
func removeIdentities(e *graph.Executable, c *passContext) {
	w := findWrites(e)
	alias := make([]graph.TensorID, len(e.Tensors))
	for i := range alias {
		alias[i] = graph.TensorID(i)
	}
	to := func(id graph.TensorID) graph.TensorID { return alias[id] }
	for g := range e.Graphs {
		for i := range e.Graphs[g].Nodes {
			n := &e.Graphs[g].Nodes[i]
			n.Inputs = remap(n.Inputs, to)
			if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || !isIdentity(e, n) {
				continue
			}
			x, y := n.Inputs[0], n.Outputs[0]
			if !e.Tensors[y].Persistent && w.steady(e, x, graph.GraphID(g)) {
				alias[y] = x
				c.did("operators that change nothing")
			}
		}
	}
	// Graphs are not in the order of their calls: readers of a result may
	// come before its node.
	for g := range e.Graphs {
		gr := &e.Graphs[g]
		gr.Results = remap(gr.Results, to)
		for i := range gr.Nodes {
			gr.Nodes[i].Inputs = remap(gr.Nodes[i].Inputs, to)
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

// isIdentity reports whether a node's result is its only operand, bit for bit.
func isIdentity(e *graph.Executable, n *graph.Node) bool {
	if len(n.Inputs) == 0 || n.Inputs[0] == graph.None {
		return false
	}
	in := e.Tensors[n.Inputs[0]].Type
	if !in.Equal(e.Tensors[n.Outputs[0]].Type) {
		return false
	}
	switch op := n.Op.(type) {
	case *graph.Reshape, *graph.Expand, *graph.Cast:
		return true // the types say it all
	case *graph.Transpose:
		return slices.IsSorted(op.Perm)
	case *graph.Concat:
		return len(n.Inputs) == 1
	case *graph.Slice:
		for i, d := range in.Shape {
			if d > 1 && op.Step[i] != 1 {
				return false
			}
		}
		return true
	case *graph.Pad:
		isZero := func(p int64) bool { return p == 0 }
		return all(op.Before, isZero) && all(op.After, isZero)
	}
	return false
}

func all(v []int64, ok func(int64) bool) bool {
	return !slices.ContainsFunc(v, func(x int64) bool { return !ok(x) })
}
