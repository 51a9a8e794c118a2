package pass

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// hoistToLoad moves what depends on weights alone to the end of the load
// program: its results become persistent tensors, which are right again
// whenever the load program has run after a change of weights. What depends on
// constants alone is computed now.
func hoistToLoad(e *graph.Executable, c *passContext) {
	if c.Load == nil {
		return
	}
	foldConstants(e, c)
	load := -1
	for i := range e.Programs {
		if e.Programs[i].Index == *c.Load {
			load = i
		}
	}
	if load < 0 {
		return
	}
	r := newRewriter(e, c)
	skip := make([]bool, len(e.Graphs)) // graphs that the load program runs itself
	graph.Walk(e.Programs[load].Steps, func(s *graph.Step) {
		if s.Kind == graph.Call {
			skip[s.Graph] = true
		}
	})
	var moved []graph.Node
	shared := sharedHoists{at: map[string]int{}, alias: map[graph.TensorID]graph.TensorID{}}
	for g := range e.Graphs {
		if r.inner[g] || skip[g] {
			continue
		}
		moved = shared.add(e, moved, r.hoist(graph.GraphID(g)))
	}
	if len(moved) == 0 {
		return
	}
	shared.replace(e)
	e.Graphs = append(e.Graphs, graph.Graph{Name: "prepare weights", Nodes: moved})
	e.Programs[load].Steps = append(e.Programs[load].Steps, graph.Step{Kind: graph.Call, Graph: graph.GraphID(len(e.Graphs) - 1)})
	removeDead(e)
}

// sharedHoists lets graphs of several programs share what both would have the load program
// compute from a weight: its memory is needed once.
type sharedHoists struct {
	at    map[string]int // place among the nodes of earlier graphs, by what a node computes
	alias map[graph.TensorID]graph.TensorID
}

// add returns moved with the nodes of one more graph that none of it computes already.
func (s *sharedHoists) add(e *graph.Executable, moved, more []graph.Node) []graph.Node {
	earlier := len(moved)
	for _, n := range more {
		n.Inputs = remap(n.Inputs, s.to)
		key := fmt.Sprint(graph.OpString(n.Op), n.Inputs, len(n.Outputs))
		at, ok := s.at[key]
		if !ok {
			s.at[key] = len(moved)
		}
		if !ok || at >= earlier {
			moved = append(moved, n)
			continue
		}
		for k, t := range n.Outputs {
			switch first := moved[at].Outputs; {
			case t == graph.None:
			case first[k] == graph.None:
				first[k] = t
			default:
				s.alias[t] = first[k]
				e.Tensors[first[k]].Persistent = e.Tensors[first[k]].Persistent || e.Tensors[t].Persistent
			}
		}
	}
	return moved
}

func (s *sharedHoists) to(t graph.TensorID) graph.TensorID {
	if first, ok := s.alias[t]; ok {
		return first
	}
	return t
}

// replace lets readers of what is computed no more read what is in its place.
func (s *sharedHoists) replace(e *graph.Executable) {
	if len(s.alias) > 0 {
		everyReference(e, s.to)
	}
}

// hoist takes the nodes out of graph g that depend on weights alone and pay to
// be computed beforehand. What others read of them becomes persistent.
func (r *rewriter) hoist(g graph.GraphID) (moved []graph.Node) {
	r.g = g
	nodes := r.Graphs[g].Nodes
	moves := make([]bool, len(nodes))
	here := make([]bool, len(r.Tensors)) // written by a node that may move
	for i := range nodes {
		moves[i] = r.moves(&nodes[i], here)
		for _, t := range nodes[i].Outputs {
			if t != graph.None && moves[i] {
				here[t] = true
			}
		}
	}
	// What only shows a weight in another shape, or repeats its elements, is
	// not worth memory unless something that moves reads it.
	wanted := make([]bool, len(r.Tensors))
	for i := len(nodes) - 1; i >= 0; i-- {
		if !moves[i] {
			continue
		}
		if moves[i] = r.pays(&nodes[i]); !moves[i] {
			for _, t := range nodes[i].Outputs {
				moves[i] = moves[i] || t != graph.None && wanted[t]
			}
		}
		if moves[i] {
			for _, t := range nodes[i].Inputs {
				if t != graph.None {
					wanted[t] = true
				}
			}
		}
	}
	var kept []graph.Node
	for i := range nodes {
		if moves[i] {
			moved = append(moved, nodes[i])
		} else {
			kept = append(kept, nodes[i])
		}
	}
	if len(moved) == 0 {
		return nil
	}
	local := make([]int, len(r.Tensors)) // reads by nodes that move
	for i := range moved {
		for _, t := range moved[i].Inputs {
			if t != graph.None {
				local[t]++
			}
		}
	}
	for i := range moved {
		for _, t := range moved[i].Outputs {
			if t != graph.None && r.reads[t] > local[t] {
				r.Tensors[t].Persistent = true
			}
		}
		r.did("operators on weights")
	}
	r.Graphs[g].Nodes = kept
	return moved
}

// moves reports whether a node may be computed by the load program, together
// with the nodes that write the tensors here.
func (r *rewriter) moves(n *graph.Node, here []bool) bool {
	if len(n.Outputs) == 0 || graph.HasEffect(n.Op) {
		return false
	}
	for _, t := range n.Inputs {
		if t != graph.None && !here[t] && !r.Tensors[t].Const && !r.weight[t] {
			return false
		}
	}
	for _, t := range n.Outputs {
		if t != graph.None && !r.settled(t) {
			return false
		}
	}
	return true
}

// pays reports whether a node does more than to show its operand in another
// shape or to repeat its elements.
func (r *rewriter) pays(n *graph.Node) bool {
	if _, ok := n.Op.(*graph.Reshape); ok {
		return false
	}
	const (
		most = 8       // times the operands' memory
		free = 1 << 16 // bytes
	)
	var in, out int64
	for _, t := range n.Inputs {
		if t != graph.None {
			in += r.Tensors[t].Type.Bytes()
		}
	}
	for _, t := range n.Outputs {
		if t != graph.None {
			out += r.Tensors[t].Type.Bytes()
		}
	}
	return out <= most*in+free
}

// foldConstants computes what depends on constants alone.
func foldConstants(e *graph.Executable, c *passContext) {
	if c.Evaluate == nil {
		return
	}
	found := false
	budget := int64(256 << 20) // bytes that all results may take beyond what their operands do
	for g := range e.Graphs {
		nodes := e.Graphs[g].Nodes
		kept := make([]graph.Node, 0, len(nodes))
		for i := range nodes {
			if c.ended() {
				return
			}
			if foldNode(e, c, &nodes[i], &budget) {
				found = true
				c.did("operators on constants")
			} else {
				kept = append(kept, nodes[i])
			}
		}
		e.Graphs[g].Nodes = kept
	}
	if found {
		removeDead(e)
	}
}

// cheap reports whether an operator takes time in proportion to its operands
// and results.
func cheap(op graph.Op) bool {
	switch op.(type) {
	case *graph.Unary, *graph.Binary, *graph.Clip, *graph.Where, *graph.Cast, *graph.Reshape, *graph.Transpose, *graph.Slice, *graph.Concat, *graph.Expand, *graph.Pad, *graph.Gather, *graph.Reduce, *graph.Dequantize, *graph.Quantize:
		return true
	}
	return false
}

// foldNode makes the results of a node constants if its operands are.
func foldNode(e *graph.Executable, c *passContext, n *graph.Node, budget *int64) bool {
	if !cheap(n.Op) || len(n.Outputs) == 0 || len(n.Inputs) == 0 {
		return false
	}
	types, data := make([]graph.TensorType, len(n.Inputs)), make([][]byte, len(n.Inputs))
	var in, out int64
	for i, t := range n.Inputs {
		if t == graph.None {
			continue
		}
		if !e.Tensors[t].Const {
			return false
		}
		types[i], data[i] = e.Tensors[t].Type, e.Tensors[t].Data
		in += int64(len(data[i]))
	}
	for _, t := range n.Outputs {
		if t == graph.None {
			continue
		}
		if e.Tensors[t].Persistent {
			return false
		}
		out += e.Tensors[t].Type.Bytes()
	}
	if out > in && out-in > *budget {
		return false
	}
	*budget -= max(0, out-in)
	_, results, err := c.Evaluate(n.Op, types, data)
	if err != nil {
		return false
	}
	for i, t := range n.Outputs {
		if t != graph.None {
			e.Tensors[t].Const, e.Tensors[t].Data = true, results[i]
		}
	}
	return true
}
