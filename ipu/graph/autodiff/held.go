package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// held lists the local tensors of the forward graph that backward graphs read with some recomputation. The passes join
// nodes whose results inside nobody else reads, and what is joined rounds otherwise: they are to find the same readers
// whatever is computed again. g is the backward graph before anything is.
func (b *backward) held(g graph.GraphID) []graph.TensorID {
	may := b.checkpoints()
	norm := b.norms()
	for i := range b.forward {
		n := &b.forward[i]
		if slices.ContainsFunc(n.Outputs, func(t graph.TensorID) bool { return norm[t] }) {
			b.reads(n, func(t graph.TensorID) { may[t] = true })
		}
	}
	for _, t := range b.outsideOf(g).reads {
		may[t] = true
	}
	var held []graph.TensorID
	for i := range b.forward {
		for _, t := range b.forward[i].Outputs {
			if t != graph.None && may[t] && !b.e.Tensors[t].Persistent {
				held = append(held, t)
			}
		}
	}
	return held
}

// heldCopies lists the copies of tensors that are held, and of those whose readers are not all copied: what is joined of a
// copy is to be what is joined of the forward graph.
func (b *backward) heldCopies(held []graph.TensorID, names map[graph.TensorID]graph.TensorID) []graph.TensorID {
	if len(names) == 0 {
		return nil
	}
	is := map[graph.TensorID]bool{}
	for _, t := range held {
		is[t] = true
	}
	readers, copied := map[graph.TensorID]int{}, map[graph.TensorID]int{}
	for i := range b.forward {
		n := &b.forward[i]
		again := slices.ContainsFunc(n.Outputs, func(t graph.TensorID) bool { _, ok := names[t]; return ok })
		b.reads(n, func(t graph.TensorID) {
			readers[t]++
			if again {
				copied[t]++
			}
		})
	}
	var copies []graph.TensorID
	for t, c := range names {
		if is[t] || readers[t] > 1 && copied[t] < readers[t] {
			copies = append(copies, c)
		}
	}
	slices.Sort(copies)
	return copies
}
