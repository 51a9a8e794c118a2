package window

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindAveragePool(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.AveragePool)
	s := NewPoolShape(in[0].Shape, out[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
	switch in[0].DType {
	case graph.F32:
		if s.Global && tensor.Path != tensor.PathGo {
			// In NCHWc it is one too.
			var axes []int64
			for axis := 2; axis < in[0].Rank(); axis++ {
				axes = append(axes, int64(axis))
			}
			return reduce.NewReduce[float32, float64](&graph.Reduce{Fn: graph.ReduceMean, Axes: axes, KeepDims: true}, in[0], out[0])
		}
		k := newAveragePool[float32](s, o.CountIncludePad)
		k.useVectors(AddWindow, k.counts, k.countPad)
		return k, nil
	case graph.F64:
		return newAveragePool[float64](s, o.CountIncludePad), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

func newAveragePool[T tensor.Float](s PoolShape, countPad bool) *averagePool[T] {
	k := &averagePool[T]{PoolShape: s, countPad: countPad}
	a := &k.Axes[len(k.Axes)-1]
	k.counts = make([]T, 0, a.Out)
	for o := range a.Out {
		lo, hi := a.Taps(o)
		n := hi - lo
		if countPad {
			n = a.Padded(o)
		}
		k.counts = append(k.counts, T(n))
	}
	return k
}

// averagePool computes the mean of every window.
type averagePool[T tensor.Float] struct {
	PoolShape
	countPad bool // the padding counts as zeros
	counts   []T  // of the window's columns that count, for every output of a row
	task     averagePoolTask[T]
}

// Run implements [Kernel].
func (k *averagePool[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = averagePoolTask[T]{averagePool: k, x: tensor.View[T](in[0]), y: tensor.View[T](out[0]), scratch: tensor.F32s(scratch)}
	if len(t.y) > 0 {
		_, cost := k.PoolShape.parts()
		t.parts, t.watch = tensor.CutSlots(p, k.Planes*k.Rows, cost), tensor.NewWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = averagePoolTask[T]{}
	return nil
}

type averagePoolTask[T tensor.Float] struct {
	*averagePool[T]
	x, y    []T
	scratch []float32
	parts   int
	watch   tensor.Watch
}

// Do implements [Task].
func (t *averagePoolTask[T]) Do(part int) {
	strip := t.stripOf(t.scratch, part, AddWindow)
	from, end := tensor.Span(t.Planes*t.Rows, t.parts, part, 1)
	for from < end {
		to := t.watch.Next(from, end)
		if to == from {
			return
		}
		t.pool(strip, from, to)
		from = to
	}
}

// pool computes the rows [from, to) of the output.
func (t *averagePoolTask[T]) pool(strip []float32, from, to int) {
	var w WindowRows
	a, pace := &t.Axes[len(t.Axes)-1], tensor.Pace{Pool: t.watch.Pool}
	if t.many != nil {
		foldPlanes(t.many, t.y, t.x, strip, from, to, nil)
		return
	}
	for r := from; r < to; r++ {
		w.Start(&t.PoolShape, r%t.Rows)
		rows := w.Count
		if t.countPad {
			rows = w.Padded
		}
		x, y := t.x[r/t.Rows*t.Plane:][:t.Plane], t.y[r*a.Out:][:a.Out]
		if foldWindows(&t.PoolShape, AddWindow, y, x, strip, &w) {
			DivideWindows(y, t.counts, rows)
			continue
		}
		clear(y)
		for range w.Count {
			row := x[w.Offset():][:a.In]
			if a.Out < shortRow {
				addWindows(y, row, a, &pace)
			} else {
				addElements(y, row, a, &pace)
			}
			w.Next()
		}
		for o := range y {
			y[o] /= T(rows) * t.counts[o]
		}
	}
}

// addElements adds an input row to an output row, once for each element of
// the window.
func addElements[T tensor.Float](y, row []T, a *PoolAxis, pace *tensor.Pace) {
	for k, end := a.reached(); k < end; k++ {
		lo, hi := a.inside(k)
		if lo >= hi {
			continue
		}
		if pace.Ended(hi - lo) {
			return
		}
		out, src := y[lo:hi], row[lo*a.Stride-a.Pad+k*a.Dilation:]
		if a.Stride == 1 {
			src = src[:len(out)]
			for i, v := range src {
				out[i] += v
			}
			continue
		}
		for i, at := 0, 0; i < len(out); i, at = i+1, at+a.Stride {
			out[i] += src[at]
		}
	}
}

// addWindows adds an input row to an output row window by window.
func addWindows[T tensor.Float](y, row []T, a *PoolAxis, pace *tensor.Pace) {
	for o := range y {
		lo, hi := a.Taps(o)
		if pace.Ended(hi - lo) {
			return
		}
		at := o*a.Stride - a.Pad + lo*a.Dilation
		if a.Dilation == 1 {
			if lo < hi {
				y[o] += reduce.Sum(row[at:][:hi-lo])
			}
			continue
		}
		s := T(0)
		for ; lo < hi; lo, at = lo+1, at+a.Dilation {
			s += row[at]
		}
		y[o] += s
	}
}
