package gradient

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

const (
	// mostSlots is into how many sums of their own the rows are divided, at most, of which each has rowsPerSlot rows
	// at least.
	mostSlots   = 64
	rowsPerSlot = 16
	// rowsPerSum is how many rows are added up in the type at hand before that goes to the sum of the slot.
	rowsPerSum = 64
)

// rowNorm goes back through a normalisation over the last axes with a scale and an addend for each of their elements:
// with x̂ = (x-mean)·r and g = dy·scale, dx is r·(g - mean g - x̂·mean(g·x̂)), the scale's gradient the sum of dy·x̂ over the rows, and
// the addend's that of dy. Without a mean that has no part.
type rowNorm[T tensor.Float] struct {
	epsilon   float64
	centred   bool
	rows, row int
	slots     int
	task      rowNormTask[T]
}

func newRowNorm[T tensor.Float](o *graph.Gradient, x []int64) *rowNorm[T] {
	k := &rowNorm[T]{epsilon: o.Epsilon, centred: o.Of == "LayerNorm", rows: tensor.Elements(x[:o.Axis]), row: tensor.Elements(x[o.Axis:])}
	k.slots = max(1, min(mostSlots, k.rows/rowsPerSlot))
	return k
}

// perSlot is how many elements of scratch memory a slot has: two sums, what is added to them, and a row of the
// operand's gradient where nobody wants that.
func (k *rowNorm[T]) perSlot() int { return 5 * k.row }

// Scratch implements [tensor.Kernel].
func (k *rowNorm[T]) Scratch() int { return k.slots * k.perSlot() * tensor.ElementSize[T]() }

// InPlace implements [tensor.InPlacer].
func (k *rowNorm[T]) InPlace(i int) bool { return i < 2 }

// Run implements [tensor.Kernel].
func (k *rowNorm[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = rowNormTask[T]{rowNorm: k, dy: tensor.View[T](in[0]), x: tensor.View[T](in[1]), scale: tensor.View[T](in[2]), scratch: tensor.View[T](scratch),
		dx: tensor.View[T](tensor.Memory(out, 0)), dscale: tensor.View[T](tensor.Memory(out, 1)), dbias: tensor.View[T](tensor.Memory(out, 2))}
	if k.row > 0 {
		cost := (k.rows/k.slots + 1) * (2*k.row + 32)
		t.parts, t.watch = tensor.CutSlots(p, k.slots, cost), tensor.NewWatch(p, 2*k.row+32)
		p.Run(t, t.parts)
		t.join(t.dscale, 0)
		t.join(t.dbias, 1)
	}
	*t = rowNormTask[T]{}
	return nil
}

type rowNormTask[T tensor.Float] struct {
	*rowNorm[T]
	dy, x, scale      []T
	dx, dscale, dbias []T
	scratch           []T
	parts             int
	watch             tensor.Watch
}

// join adds up one of the sums of all slots, in their order.
func (t *rowNormTask[T]) join(dst []T, which int) {
	if dst == nil {
		return
	}
	copy(dst, t.scratch[which*t.row:])
	for slot := 1; slot < t.slots; slot++ {
		vec.Add(dst, dst, t.scratch[slot*t.perSlot()+which*t.row:][:t.row])
	}
}

// Do implements [tensor.Task].
func (t *rowNormTask[T]) Do(part int) {
	for slot, last := tensor.Span(t.slots, t.parts, part, 1); slot < last; slot++ {
		own := t.scratch[slot*t.perSlot():][:t.perSlot()]
		sums, more, none := own[:2*t.row], own[2*t.row:4*t.row], own[4*t.row:]
		clear(sums)
		from, end := tensor.Span(t.rows, t.slots, slot, 1)
		for from < end {
			to := t.watch.Next(from, min(end, from+rowsPerSum))
			if to == from {
				return
			}
			clear(more)
			for ; from < to; from++ {
				at := from * t.row
				dx := none
				if t.dx != nil {
					dx = t.dx[at:][:t.row]
				}
				t.back(dx, t.x[at:][:t.row], t.dy[at:][:t.row], more[:t.row], more[t.row:])
			}
			vec.Add(sums, sums, more)
		}
	}
}

// back goes back through a row, and adds to what scale and addend get.
func (t *rowNormTask[T]) back(dx, x, dy, dscale, dbias []T) {
	n, mean := float64(t.row), 0.0
	if t.centred {
		mean = reduce.LongSum(x) / n
	}
	r := 1 / math.Sqrt(reduce.LongSquares(x, T(mean))/n+t.epsilon)
	first := 0.0
	if t.centred {
		first = dotRow(dy, t.scale) / n
	}
	second := r * dotScaled(x, dy, t.scale, T(mean)) / n
	backScaled(dx, x, dy, t.scale, dscale, dbias, T(mean), T(r), T(first), T(second))
}

// groupNorm is rowNorm for groups of channels of a sample, with a scale and an addend for each channel.
type groupNorm[T tensor.Float] struct {
	epsilon         float64
	rows, groups    int // samples by groups
	channels, plane int // channels of a group, elements of a channel
	task            groupNormTask[T]
}

func newGroupNorm[T tensor.Float](o *graph.Gradient, x []int64) *groupNorm[T] {
	return &groupNorm[T]{epsilon: o.Epsilon, rows: int(x[0] * o.Groups), groups: int(o.Groups), channels: int(x[1] / o.Groups), plane: tensor.Elements(x[2:])}
}

// Scratch implements [tensor.Kernel]: two sums for each channel of each sample.
func (k *groupNorm[T]) Scratch() int { return 16 * k.rows * k.channels }

// InPlace implements [tensor.InPlacer].
func (k *groupNorm[T]) InPlace(i int) bool { return i < 2 }

// Run implements [tensor.Kernel].
func (k *groupNorm[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = groupNormTask[T]{groupNorm: k, dy: tensor.View[T](in[0]), x: tensor.View[T](in[1]), scale: tensor.View[T](in[2]), dx: tensor.View[T](tensor.Memory(out, 0)),
		sums: tensor.F64s(scratch)}
	t.parts = tensor.Cut(p, k.rows, 3*k.channels*k.plane+32)
	p.Run(t, t.parts)
	t.join(tensor.View[T](tensor.Memory(out, 1)), 0)
	t.join(tensor.View[T](tensor.Memory(out, 2)), 1)
	*t = groupNormTask[T]{}
	return nil
}

type groupNormTask[T tensor.Float] struct {
	*groupNorm[T]
	dy, x, scale, dx []T
	sums             []float64 // of dy·x̂ and of dy, by sample and channel
	parts            int
}

// join adds up one of the sums over the samples, in their order.
func (t *groupNormTask[T]) join(dst []T, which int) {
	all := len(t.scale)
	for c := range dst {
		sum := 0.0
		for at := c; at < t.rows*t.channels; at += all {
			sum += t.sums[2*at+which]
		}
		dst[c] = T(sum)
	}
}

// Do implements [tensor.Task].
func (t *groupNormTask[T]) Do(part int) {
	size := t.channels * t.plane
	n := float64(size)
	for i, end := tensor.Span(t.rows, t.parts, part, 1); i < end; i++ {
		x, dy := t.x[i*size:][:size], t.dy[i*size:][:size]
		mean := reduce.LongSum(x) / n
		r := 1 / math.Sqrt(reduce.LongSquares(x, T(mean))/n+t.epsilon)
		scale := t.scale[i%t.groups*t.channels:][:t.channels]
		first, second := 0.0, 0.0
		for c, s := range scale {
			own := t.sums[2*(i*t.channels+c):][:2]
			own[0] = r * dotCentred(x[c*t.plane:][:t.plane], dy[c*t.plane:][:t.plane], T(mean))
			own[1] = reduce.LongSum(dy[c*t.plane:][:t.plane])
			first += float64(s) * own[1]
			second += float64(s) * own[0]
		}
		first, second = first/n, second/n
		if t.dx == nil {
			continue
		}
		for c, s := range scale {
			at := i*size + c*t.plane
			backChannel(t.dx[at:][:t.plane], t.x[at:][:t.plane], t.dy[at:][:t.plane], T(mean), T(r*float64(s)), T(-r*r*second), T(-r*first))
		}
	}
}
