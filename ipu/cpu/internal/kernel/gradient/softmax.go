package gradient

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// stripLen is how many neighbouring lanes go back together where the axis is not the last.
const stripLen = 256

// softmax goes back through y, a softmax along an axis or its logarithm: dx is y·(dy - Σ y·dy), or dy - exp(y)·Σ dy.
type softmax[T tensor.Float] struct {
	log                bool
	outer, axis, inner int // elements before, on and after the axis
	strips             int // of the lanes side by side
	task               softmaxTask[T]
}

func newSoftmax[T tensor.Float](o *graph.Gradient, y []int64) *softmax[T] {
	k := &softmax[T]{log: o.Log, outer: tensor.Elements(y[:o.Axis]), axis: int(y[o.Axis]), inner: tensor.Elements(y[o.Axis+1:])}
	k.strips = (k.inner + stripLen - 1) / stripLen
	return k
}

// Scratch implements [tensor.Kernel].
func (k *softmax[T]) Scratch() int { return 0 }

// InPlace implements [tensor.InPlacer].
func (k *softmax[T]) InPlace(i int) bool { return i < 2 }

// Run implements [tensor.Kernel].
func (k *softmax[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &k.task
	*t = softmaxTask[T]{softmax: k, dy: tensor.View[T](in[0]), y: tensor.View[T](in[1]), dx: tensor.View[T](out[0])}
	if len(t.dx) > 0 {
		cost := k.axis * min(k.inner, stripLen)
		t.parts, t.watch = tensor.Cut(p, k.outer*k.strips, cost), tensor.NewWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = softmaxTask[T]{}
	return nil
}

type softmaxTask[T tensor.Float] struct {
	*softmax[T]
	dy, y, dx []T
	parts     int
	watch     tensor.Watch
}

// Do implements [tensor.Task].
func (t *softmaxTask[T]) Do(part int) {
	first, last := tensor.Span(t.outer*t.strips, t.parts, part, 1)
	for first < last {
		end := t.watch.Next(first, last)
		if end == first {
			return
		}
		for ; first < end; first++ {
			if t.inner == 1 {
				at := first * t.axis
				t.row(t.dx[at:][:t.axis], t.y[at:][:t.axis], t.dy[at:][:t.axis])
				continue
			}
			lane := first % t.strips * stripLen
			t.strip(first/t.strips*t.axis*t.inner+lane, min(stripLen, t.inner-lane))
		}
	}
}

// row goes back through elements that lie side by side.
func (t *softmaxTask[T]) row(dx, y, dy []T) {
	if t.log {
		backLogSoftmax(dx, y, dy, T(reduce.LongSum(dy)))
		return
	}
	backSoftmax(dx, y, dy, T(dotRow(y, dy)))
}

// strip goes back through lanes from element at on, each along elements inner apart.
func (t *softmaxTask[T]) strip(at, lanes int) {
	var sums [stripLen]float64
	total := sums[:lanes]
	for i := range t.axis {
		y, dy := t.y[at+i*t.inner:][:lanes], t.dy[at+i*t.inner:][:lanes]
		for j, d := range dy {
			if !t.log {
				d *= y[j]
			}
			total[j] += float64(d)
		}
	}
	for i := range t.axis {
		from := at + i*t.inner
		dx, y, dy := t.dx[from:][:lanes], t.y[from:][:lanes], t.dy[from:][:lanes]
		if t.log {
			var e [stripLen]T
			reduce.Exponentials(e[:lanes], y)
			for j, d := range dy {
				dx[j] = d - T(e[j]*T(total[j]))
			}
			continue
		}
		for j, d := range dy {
			dx[j] = y[j] * (d - T(total[j]))
		}
	}
}
