package autodiff

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Recompute says what of the forward graph a backward graph computes again, as PopART's recomputation
// types do.
type Recompute string

// The recomputations.
const (
	// RecomputeNone keeps all that is read.
	RecomputeNone Recompute = ""
	// RecomputeNorms computes normalisations, and the elementwise operators after them, again.
	RecomputeNorms Recompute = "norms"
	// RecomputeStandard keeps about as many checkpoints as the root of the number of nodes, at places where few bytes
	// are in use, and computes what is between two of them again when the way back comes there.
	RecomputeStandard Recompute = "standard"
	// RecomputeAll keeps nothing but what the forward graph is given. Each node is computed again once, and the
	// first gradients need all of them: the memory is free between the graphs, but what is needed
	// at most is as much as with RecomputeNone.
	RecomputeAll Recompute = "all"
	// RecomputeMarked keeps Options.Checkpoints.
	RecomputeMarked Recompute = "marked"
)

var recomputations = []string{`"" (none)`, string(RecomputeNorms), string(RecomputeStandard), string(RecomputeAll), string(RecomputeMarked)}

func (r Recompute) valid() bool {
	switch r {
	case RecomputeNone, RecomputeNorms, RecomputeStandard, RecomputeAll, RecomputeMarked:
		return true
	}
	return false
}

// recompute puts copies of forward nodes into a backward graph, each before the first node that reads what it
// gives. It returns the tensors of the copies.
func (b *backward) recompute(g graph.GraphID) map[graph.TensorID]graph.TensorID {
	if b.o.Recompute == RecomputeNone {
		return nil
	}
	maker := map[graph.TensorID]int{} // the forward node that gives a local tensor
	for i := range b.forward {
		for _, t := range b.forward[i].Outputs {
			if t != graph.None && !b.e.Tensors[t].Persistent {
				maker[t] = i
			}
		}
	}
	again := b.again(maker)
	nodes := b.e.Graphs[g].Nodes
	b.e.Graphs[g].Nodes = nil
	b.cur = g
	names := map[graph.TensorID]graph.TensorID{}
	done := map[int]bool{}
	for _, n := range nodes {
		for _, i := range b.missing(&n, maker, done, again) {
			b.clone(b.forward[i:i+1], names)
			for _, t := range b.forward[i].Outputs { // of several results some may be kept
				if t != graph.None && !again(t) {
					delete(names, t)
				}
			}
		}
		b.rename(&n, names)
		b.node(n)
	}
	return names
}

// missing lists the forward nodes, in their order, that have to be computed again for a node, and marks them as done.
func (b *backward) missing(n *graph.Node, maker map[graph.TensorID]int, done map[int]bool, again func(graph.TensorID) bool) []int {
	var list []int
	need := func(t graph.TensorID) {
		if i, ok := maker[t]; ok && !done[i] && again(t) {
			done[i] = true
			list = append(list, i)
		}
	}
	b.reads(n, need)
	for k := 0; k < len(list); k++ {
		b.reads(&b.forward[list[k]], need)
	}
	slices.Sort(list)
	return list
}

// rename lets a node of the backward graph, and the graphs that it runs, read tensors under their new names.
func (b *emitter) rename(n *graph.Node, names map[graph.TensorID]graph.TensorID) {
	n.Inputs = renamed(n.Inputs, names)
	for _, g := range graph.Subgraphs(n.Op) {
		f := &b.e.Graphs[g]
		for i := range f.Nodes {
			b.visit(1 + len(f.Nodes[i].Inputs))
			b.rename(&f.Nodes[i], names)
		}
		f.Results = renamed(f.Results, names)
		delete(b.summaries, g)
	}
}

// again returns what tells which tensors of the forward graph are computed again.
func (b *backward) again(maker map[graph.TensorID]int) func(graph.TensorID) bool {
	pure := func(t graph.TensorID) bool { // nodes that write persistent tensors, or read those that are written, run once
		ok := true
		n := &b.forward[maker[t]]
		for _, o := range n.Outputs {
			ok = ok && (o == graph.None || !b.e.Tensors[o].Persistent)
		}
		for _, s := range graph.Subgraphs(n.Op) {
			ok = ok && len(b.outside(s).writes) == 0
		}
		b.reads(n, func(r graph.TensorID) { ok = ok && b.writes[r] == nil })
		return ok
	}
	keep := map[graph.TensorID]bool{}
	for _, t := range b.o.Provided {
		keep[t] = true
	}
	switch b.o.Recompute {
	case RecomputeNorms:
		norm := b.norms()
		return func(t graph.TensorID) bool { return norm[t] && pure(t) }
	case RecomputeStandard:
		for t := range b.checkpoints() {
			keep[t] = true
		}
	case RecomputeMarked:
		for _, t := range b.o.Checkpoints {
			keep[t] = true
		}
	}
	return func(t graph.TensorID) bool { return !keep[t] && pure(t) }
}

// norms are the results of normalisations and of elementwise operators right after them.
func (b *backward) norms() map[graph.TensorID]bool {
	is := map[graph.TensorID]bool{}
	for i := range b.forward {
		n := &b.forward[i]
		again := false
		switch n.Op.(type) {
		case *graph.BatchNorm, *graph.GroupNorm, *graph.LayerNorm, *graph.RMSNorm, *graph.LRN:
			again = true
		case *graph.Unary, *graph.Clip:
			again = is[n.Inputs[0]]
		}
		for _, t := range n.Outputs {
			if t != graph.None && again {
				is[t] = true
			}
		}
	}
	return is
}

// checkpoints are the tensors that cross some places of the forward graph: the places lie about √n nodes apart, each where
// the fewest bytes cross near there.
func (b *backward) checkpoints() map[graph.TensorID]bool {
	n := len(b.forward)
	last := map[graph.TensorID]int{} // the last node that reads a tensor
	made := map[graph.TensorID]int{}
	for i := range b.forward {
		b.reads(&b.forward[i], func(t graph.TensorID) { last[t] = i })
		for _, t := range b.forward[i].Outputs {
			if t != graph.None {
				made[t] = i
			}
		}
	}
	// crossing[i]: bytes that are made by node i or before it and read after it.
	crossing := make([]int64, n+1)
	for t, i := range made {
		if j, ok := last[t]; ok && j > i {
			crossing[i] += b.typ(t).Bytes()
			crossing[j] -= b.typ(t).Bytes()
		}
	}
	for i := 1; i <= n; i++ {
		crossing[i] += crossing[i-1]
	}
	apart := max(int(math.Sqrt(float64(n))), 1)
	var places []int
	for at := apart; at+apart/2 < n; at += apart {
		best := at
		for i := at - apart/4; i <= at+apart/4 && i < n; i++ {
			if crossing[i] < crossing[best] {
				best = i
			}
		}
		places = append(places, best)
	}
	keep := map[graph.TensorID]bool{}
	for t, i := range made {
		at, _ := slices.BinarySearch(places, i) // the first place at or after the node that makes it
		if j, ok := last[t]; ok && at < len(places) && places[at] < j {
			keep[t] = true
		}
	}
	return keep
}
