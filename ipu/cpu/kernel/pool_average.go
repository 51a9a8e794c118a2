package kernel

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

func bindAveragePool(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.AveragePool)
	s := newPoolShape(in[0].Shape, out[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
	switch in[0].DType {
	case graph.F32:
		if s.global && path != pathGo {
			// In blocks of channels it is one too.
			var axes []int64
			for axis := 2; axis < in[0].Rank(); axis++ {
				axes = append(axes, int64(axis))
			}
			return newReduce[float32, float64](&graph.Reduce{Fn: graph.ReduceMean, Axes: axes, KeepDims: true}, in[0], out[0])
		}
		k := newAveragePool[float32](s, o.CountIncludePad)
		k.useVectors(addWindow, k.counts, k.countPad)
		return k, nil
	case graph.F64:
		return newAveragePool[float64](s, o.CountIncludePad), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

func newAveragePool[T float](s poolShape, countPad bool) *averagePool[T] {
	k := &averagePool[T]{poolShape: s, countPad: countPad}
	a := &k.axes[len(k.axes)-1]
	k.counts = make([]T, 0, a.out)
	for o := range a.out {
		lo, hi := a.taps(o)
		n := hi - lo
		if countPad {
			n = a.padded(o)
		}
		k.counts = append(k.counts, T(n))
	}
	return k
}

// averagePool computes the mean of every window.
type averagePool[T float] struct {
	poolShape
	countPad bool // the padding counts as zeros
	counts   []T  // of the window's columns that count, for every output of a row
	task     averagePoolTask[T]
}

// Run implements [Kernel].
func (k *averagePool[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = averagePoolTask[T]{averagePool: k, x: view[T](in[0]), y: view[T](out[0]), scratch: f32s(scratch)}
	if len(t.y) > 0 {
		_, cost := k.poolShape.parts()
		t.parts, t.watch = cutSlots(p, k.planes*k.rows, cost), newWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = averagePoolTask[T]{}
	return nil
}

type averagePoolTask[T float] struct {
	*averagePool[T]
	x, y    []T
	scratch []float32
	parts   int
	watch   watch
}

// Do implements [Task].
func (t *averagePoolTask[T]) Do(part int) {
	strip := t.stripOf(t.scratch, part, addWindow)
	from, end := span(t.planes*t.rows, t.parts, part, 1)
	for from < end {
		to := t.watch.next(from, end)
		if to == from {
			return
		}
		t.pool(strip, from, to)
		from = to
	}
}

// pool computes the rows [from, to) of the output.
func (t *averagePoolTask[T]) pool(strip []float32, from, to int) {
	var w windowRows
	a, pace := &t.axes[len(t.axes)-1], pace{pool: t.watch.pool}
	if t.many != nil {
		foldPlanes(t.many, t.y, t.x, strip, from, to, nil)
		return
	}
	for r := from; r < to; r++ {
		w.start(&t.poolShape, r%t.rows)
		rows := w.count
		if t.countPad {
			rows = w.padded
		}
		x, y := t.x[r/t.rows*t.plane:][:t.plane], t.y[r*a.out:][:a.out]
		if foldWindows(&t.poolShape, addWindow, y, x, strip, &w) {
			divideWindows(y, t.counts, rows)
			continue
		}
		clear(y)
		for range w.count {
			row := x[w.offset():][:a.in]
			if a.out < shortRow {
				addWindows(y, row, a, &pace)
			} else {
				addElements(y, row, a, &pace)
			}
			w.next()
		}
		for o := range y {
			y[o] /= T(rows) * t.counts[o]
		}
	}
}

// addElements adds an input row to an output row, once for each element of
// the window.
func addElements[T float](y, row []T, a *poolAxis, pace *pace) {
	for k, end := a.reached(); k < end; k++ {
		lo, hi := a.inside(k)
		if lo >= hi {
			continue
		}
		if pace.ended(hi - lo) {
			return
		}
		out, src := y[lo:hi], row[lo*a.stride-a.pad+k*a.dilation:]
		if a.stride == 1 {
			src = src[:len(out)]
			for i, v := range src {
				out[i] += v
			}
			continue
		}
		for i, at := 0, 0; i < len(out); i, at = i+1, at+a.stride {
			out[i] += src[at]
		}
	}
}

// addWindows adds an input row to an output row window by window.
func addWindows[T float](y, row []T, a *poolAxis, pace *pace) {
	for o := range y {
		lo, hi := a.taps(o)
		if pace.ended(hi - lo) {
			return
		}
		at := o*a.stride - a.pad + lo*a.dilation
		if a.dilation == 1 {
			if lo < hi {
				y[o] += sum(row[at:][:hi-lo])
			}
			continue
		}
		s := T(0)
		for ; lo < hi; lo, at = lo+1, at+a.dilation {
			s += row[at]
		}
		y[o] += s
	}
}
