package window

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// PoolAxis is the geometry of a pooling window along one spatial axis.
type PoolAxis struct {
	In, Out          int
	Kernel           int
	Stride, Dilation int
	Pad, PadEnd      int
}

// Taps returns the window elements [lo, hi) of output o that lie inside the
// input.
func (a *PoolAxis) Taps(o int) (lo, hi int) {
	return tensor.WindowRange(a.In, a.Kernel, a.Dilation, a.Pad-o*a.Stride)
}

// inside returns the outputs [lo, hi) whose window element k lies inside the
// input.
func (a *PoolAxis) inside(k int) (lo, hi int) {
	return tensor.WindowRange(a.In, a.Out, a.Stride, a.Pad-k*a.Dilation)
}

// reached returns the window elements [lo, hi) outside of which no output has one
// inside the input: windows may be far longer than the input with its padding is
// wide.
func (a *PoolAxis) reached() (lo, hi int) {
	first, _ := a.Taps(a.Out - 1)
	_, last := a.Taps(0)
	return max(0, min(first, last)), max(first, last)
}

// Padded returns how many window elements of output o lie inside the input
// and its padding.
func (a *PoolAxis) Padded(o int) int {
	lo, hi := tensor.WindowRange(a.In+a.Pad+a.PadEnd, a.Kernel, a.Dilation, -o*a.Stride)
	return hi - lo
}

// PoolShape is the geometry of a pooling operator over any number of spatial
// axes. The last one is a row of the input.
type PoolShape struct {
	Planes int // images by channels
	Axes   []PoolAxis
	Rows   int  // rows of the output in one plane
	Plane  int  // elements of the input in one plane
	Window int  // elements of the window
	Global bool // the only window is the whole plane

	vectors bool       // windows are folded with SIMD instructions
	Strip   int        // elements of scratch memory that a part needs for it
	many    *planePool // folds many rows of windows in a call; may be nil
}

// PoolFold is the operation that makes one element of a window.
type PoolFold uint8

// The operations.
const (
	maxWindow PoolFold = iota // the largest element
	AddWindow                 // the sum
)

// Identity returns the identity element of the operation: 0, or -Inf.
func (f PoolFold) Identity() float32 {
	if f == AddWindow {
		return 0
	}
	return float32(math.Inf(-1))
}

// useVectors makes float32 windows be folded with SIMD instructions if the machine can.
// The counts of windows' columns are for means.
func (s *PoolShape) useVectors(fold PoolFold, counts []float32, countPad bool) {
	a := &s.Axes[len(s.Axes)-1]
	const lanes = 16
	if a.Out > 0 && a.Kernel > LongestRow/a.Out {
		return
	}
	if s.many = newPlanePool(s, fold, counts, countPad); s.many != nil {
		if s.Strip = s.many.scratch(); s.Strip < LongestStrip {
			s.vectors = true
			return
		}
		s.many = nil
	}
	s.Strip = max(a.Pad+a.In, (a.Out+lanes-1)/lanes*lanes*a.Stride+a.Kernel*a.Dilation) + 2*lanes
	// Where steps or windows are far longer than rows, strips are mostly padding.
	s.vectors = tensor.Path != tensor.PathGo && s.Strip < LongestStrip
}

// LongestRow is the most elements of windows that a row of the output has for
// vectorised loops, which can not be ended early.
const LongestRow = 1 << 28

// LongestStrip is the most scratch memory of a part, in elements.
const LongestStrip = 1 << 20

// parts is into how many parts the rows of the output are cut, at most, and
// what one of them costs.
func (s *PoolShape) parts() (most, cost int) {
	a := &s.Axes[len(s.Axes)-1]
	cost = s.Window*a.Out + 1
	switch {
	case s.many != nil:
		cost = (s.Window*a.In/a.Kernel+a.Kernel*a.Out)/4 + 12
	case s.vectors:
		cost = (s.Window*a.In/a.Kernel+a.Kernel*a.Out)*2/5 + 160
	}
	return tensor.MostParts(s.Planes*s.Rows, cost), cost
}

// Scratch implements [Kernel].
func (s *PoolShape) Scratch() int {
	if !s.vectors {
		return 0
	}
	most, _ := s.parts()
	return most * s.Strip * 4
}

// stripOf returns the scratch memory of a part, set to what changes nothing.
func (s *PoolShape) stripOf(scratch []float32, part int, fold PoolFold) []float32 {
	if !s.vectors {
		return nil
	}
	strip := scratch[part*s.Strip:][:s.Strip]
	vec.FillWith(strip, fold.Identity())
	return strip
}

// NewPoolShape returns the geometry of a pooling of x to y, both [N,C,spatial…].
func NewPoolShape(x, y, kernel, strides, dilations, begin, end []int64) PoolShape {
	s := PoolShape{Planes: int(x[0] * x[1]), Rows: 1, Plane: 1, Window: 1, Global: true}
	for i := range kernel {
		s.Axes = append(s.Axes, PoolAxis{
			In: int(x[2+i]), Out: int(y[2+i]), Kernel: int(kernel[i]), Stride: int(strides[i]),
			Dilation: int(dilations[i]), Pad: int(begin[i]), PadEnd: int(end[i]),
		})
		if i < len(kernel)-1 {
			s.Rows *= int(y[2+i])
		}
		s.Plane *= int(x[2+i])
		s.Window *= int(kernel[i])
		if y[2+i] != 1 || kernel[i] != x[2+i] || begin[i] != 0 || dilations[i] != 1 {
			s.Global = false
		}
	}
	return s
}

// WindowRows walks the input rows under the window of one output row: those
// that lie inside the input on every axis but the last.
type WindowRows struct {
	shape  *PoolShape
	Lo, Hi [tensor.MaxAxes]int // window elements inside the input
	at     [tensor.MaxAxes]int // the window element of the current row
	base   [tensor.MaxAxes]int // input index of window element 0
	Count  int                 // rows
	Padded int                 // rows inside the input and its padding
}

// Start puts w on the first input row for an output row of a plane.
func (w *WindowRows) Start(s *PoolShape, row int) {
	w.shape, w.Count, w.Padded = s, 1, 1
	for i := len(s.Axes) - 2; i >= 0; i-- {
		a := &s.Axes[i]
		o := row % a.Out
		row /= a.Out
		w.Lo[i], w.Hi[i] = a.Taps(o)
		w.at[i] = w.Lo[i]
		w.base[i] = o*a.Stride - a.Pad
		w.Count *= w.Hi[i] - w.Lo[i]
		w.Padded *= a.Padded(o)
	}
}

// Offset returns where the current input row begins in its plane.
func (w *WindowRows) Offset() int {
	n := 0
	last := len(w.shape.Axes) - 1
	for i := range last {
		a := &w.shape.Axes[i]
		n = n*a.In + w.base[i] + w.at[i]*a.Dilation
	}
	return n * w.shape.Axes[last].In
}

// columnMajor returns the current input row's part of an index that counts
// the first spatial axis fastest, and what one step along the row adds.
func (w *WindowRows) columnMajor() (index, step int) {
	step = 1
	for i := range len(w.shape.Axes) - 1 {
		a := &w.shape.Axes[i]
		index += step * (w.base[i] + w.at[i]*a.Dilation)
		step *= a.In
	}
	return index, step
}

// Next moves to the following input row.
func (w *WindowRows) Next() {
	for i := len(w.shape.Axes) - 2; i >= 0; i-- {
		w.at[i]++
		if w.at[i] < w.Hi[i] {
			return
		}
		w.at[i] = w.Lo[i]
	}
}

// shortRow is the length of an output row below which a row is computed
// window by window instead of window element by window element.
const shortRow = 4

func bindMaxPool(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.MaxPool)
	results, err := o.Infer(in)
	if err != nil {
		return nil, err
	}
	// Either result may be left out.
	s := NewPoolShape(in[0].Shape, results[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
	switch in[0].DType {
	case graph.F32:
		s.useVectors(maxWindow, nil, false)
		return newMaxPool(s, o.ColumnMajor, float32(math.Inf(-1))), nil
	case graph.F64:
		return newMaxPool(s, o.ColumnMajor, math.Inf(-1)), nil
	case graph.I8, graph.I4, graph.I2:
		return newMaxPool[int8](s, o.ColumnMajor, math.MinInt8), nil
	case graph.U8, graph.U4, graph.U2:
		return newMaxPool[uint8](s, o.ColumnMajor, 0), nil
	case graph.I16:
		return newMaxPool[int16](s, o.ColumnMajor, math.MinInt16), nil
	case graph.U16:
		return newMaxPool[uint16](s, o.ColumnMajor, 0), nil
	case graph.I32:
		return newMaxPool[int32](s, o.ColumnMajor, math.MinInt32), nil
	case graph.U32:
		return newMaxPool[uint32](s, o.ColumnMajor, 0), nil
	case graph.I64:
		return newMaxPool[int64](s, o.ColumnMajor, math.MinInt64), nil
	case graph.U64:
		return newMaxPool[uint64](s, o.ColumnMajor, 0), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// maxPool computes the largest element of every window. A NaN in a window is
// its maximum.
type maxPool[T tensor.Number] struct {
	PoolShape
	columnMajor bool
	lowest      T // of a window that lies in the padding
	task        maxPoolTask[T]
}

func newMaxPool[T tensor.Number](s PoolShape, columnMajor bool, lowest T) *maxPool[T] {
	return &maxPool[T]{PoolShape: s, columnMajor: columnMajor, lowest: lowest}
}

// Run implements [Kernel].
func (k *maxPool[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = maxPoolTask[T]{maxPool: k, x: tensor.View[T](in[0]), y: tensor.View[T](tensor.Memory(out, 0)), index: tensor.View[int64](tensor.Memory(out, 1)), scratch: tensor.F32s(scratch)}
	if len(t.y)+len(t.index) > 0 {
		_, cost := k.PoolShape.parts()
		t.parts, t.watch = tensor.CutSlots(p, k.Planes*k.Rows, cost), tensor.NewWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = maxPoolTask[T]{}
	return nil
}

type maxPoolTask[T tensor.Number] struct {
	*maxPool[T]
	x, y    []T
	index   []int64
	scratch []float32
	parts   int
	watch   tensor.Watch
}

// Do implements [Task].
func (t *maxPoolTask[T]) Do(part int) {
	strip := t.stripOf(t.scratch, part, maxWindow)
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
func (t *maxPoolTask[T]) pool(strip []float32, from, to int) {
	var w WindowRows
	last := &t.Axes[len(t.Axes)-1]
	if t.many != nil && t.index == nil {
		foldPlanes(t.many, t.y, t.x, strip, from, to, t.slowly)
		return
	}
	for r := from; r < to; r++ {
		w.Start(&t.PoolShape, r%t.Rows)
		plane := r / t.Rows * t.Plane
		x := t.x[plane:][:t.Plane]
		if t.y == nil {
			t.onlyIndex(&w, r%t.Rows, x, t.index[r*last.Out:][:last.Out], plane)
			continue
		}
		y := t.y[r*last.Out:][:last.Out]
		switch {
		case t.index == nil && t.many == nil && foldWindows(&t.PoolShape, maxWindow, y, x, strip, &w):
		case t.index != nil:
			t.withIndex(&w, x, y, t.index[r*last.Out:], plane, 0)
		case last.Out < shortRow:
			t.byWindow(&w, x, y)
		default:
			t.byElement(&w, x, y)
		}
	}
}

// slowly computes rows of the output window by window.
func (t *maxPoolTask[T]) slowly(from, to int) {
	var w WindowRows
	last := &t.Axes[len(t.Axes)-1]
	for r := from; r < to; r++ {
		w.Start(&t.PoolShape, r%t.Rows)
		t.byWindow(&w, t.x[r/t.Rows*t.Plane:][:t.Plane], t.y[r*last.Out:][:last.Out])
	}
}

// byElement goes over the output row once for each element of the window.
func (t *maxPoolTask[T]) byElement(w *WindowRows, x, y []T) {
	a, pace := &t.Axes[len(t.Axes)-1], tensor.Pace{Pool: t.watch.Pool}
	for i := range y {
		y[i] = t.lowest
	}
	for range w.Count {
		row := x[w.Offset():][:a.In]
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
					out[i] = max(out[i], v)
				}
				continue
			}
			for i, at := 0, 0; i < len(out); i, at = i+1, at+a.Stride {
				out[i] = max(out[i], src[at])
			}
		}
		w.Next()
	}
}

// byWindow goes over the window once for each element of the output row.
func (t *maxPoolTask[T]) byWindow(w *WindowRows, x, y []T) {
	a, pace := &t.Axes[len(t.Axes)-1], tensor.Pace{Pool: t.watch.Pool}
	for i := range y {
		y[i] = t.lowest
	}
	for range w.Count {
		row := x[w.Offset():][:a.In]
		for o := range y {
			lo, hi := a.Taps(o)
			if pace.Ended(hi - lo) {
				return
			}
			m := y[o]
			for at := o*a.Stride - a.Pad + lo*a.Dilation; lo < hi; lo, at = lo+1, at+a.Dilation {
				m = max(m, row[at])
			}
			y[o] = m
		}
		w.Next()
	}
}

// onlyIndex is withIndex for an output row of which nobody wants the maxima.
func (t *maxPoolTask[T]) onlyIndex(w *WindowRows, row int, x []T, index []int64, base int) {
	var y [1]T
	for o := range index {
		w.Start(&t.PoolShape, row)
		t.withIndex(w, x, y[:], index[o:], base, o)
	}
}

// withIndex is byWindow that keeps where each maximum lies, the first of
// equal ones. x begins at element base of the operand, y and index at element
// first of the output row. The index of a window that lies in the padding is 0.
func (t *maxPoolTask[T]) withIndex(w *WindowRows, x, y []T, index []int64, base, first int) {
	a, pace := &t.Axes[len(t.Axes)-1], tensor.Pace{Pool: t.watch.Pool}
	index = index[:len(y)]
	for i := range y {
		y[i] = t.lowest
		index[i] = -1
	}
	for range w.Count {
		start, step := w.Offset(), 1
		row := x[start:][:a.In]
		if t.columnMajor {
			start, step = w.columnMajor()
		}
		for o := range y {
			lo, hi := a.Taps(first + o)
			if pace.Ended(hi - lo) {
				return
			}
			for at := (first+o)*a.Stride - a.Pad + lo*a.Dilation; lo < hi; lo, at = lo+1, at+a.Dilation {
				v, m := row[at], y[o]
				if index[o] < 0 || v > m || v != v && m == m {
					y[o] = v
					index[o] = int64(base + start + at*step)
				}
			}
		}
		w.Next()
	}
	for i := range index {
		index[i] = max(index[i], 0)
	}
}
