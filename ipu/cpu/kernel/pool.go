package kernel

import (
	"fmt"
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// poolAxis is the geometry of a pooling window along one spatial axis.
type poolAxis struct {
	in, out          int
	kernel           int
	stride, dilation int
	pad, padEnd      int
}

// taps returns the window elements [lo, hi) of output o that lie inside the
// input.
func (a *poolAxis) taps(o int) (lo, hi int) {
	return windowRange(a.in, a.kernel, a.dilation, a.pad-o*a.stride)
}

// inside returns the outputs [lo, hi) whose window element k lies inside the
// input.
func (a *poolAxis) inside(k int) (lo, hi int) {
	return windowRange(a.in, a.out, a.stride, a.pad-k*a.dilation)
}

// reached returns the window elements [lo, hi) outside of which no output has one
// inside the input: windows may be far longer than the input with its padding is
// wide.
func (a *poolAxis) reached() (lo, hi int) {
	first, _ := a.taps(a.out - 1)
	_, last := a.taps(0)
	return max(0, min(first, last)), max(first, last)
}

// padded returns how many window elements of output o lie inside the input
// and its padding.
func (a *poolAxis) padded(o int) int {
	lo, hi := windowRange(a.in+a.pad+a.padEnd, a.kernel, a.dilation, -o*a.stride)
	return hi - lo
}

// poolShape is the geometry of a pooling operator over any number of spatial
// axes. The last one is a row of the input.
type poolShape struct {
	planes int // images by channels
	axes   []poolAxis
	rows   int  // rows of the output in one plane
	plane  int  // elements of the input in one plane
	window int  // elements of the window
	global bool // the only window is the whole plane

	vectors bool       // windows are folded by vectors
	strip   int        // elements of scratch memory that a part needs for it
	many    *planePool // folds many rows of windows in a call; may be nil
}

// poolFold is how a window becomes one element.
type poolFold uint8

const (
	maxWindow poolFold = iota
	addWindow
)

// identity is what changes nothing.
func (f poolFold) identity() float32 {
	if f == addWindow {
		return 0
	}
	return float32(math.Inf(-1))
}

// useVectors makes float32 windows be folded by vectors if the machine can.
// The counts of windows' columns are for means.
func (s *poolShape) useVectors(fold poolFold, counts []float32, countPad bool) {
	a := &s.axes[len(s.axes)-1]
	const lanes = 16
	if a.out > 0 && a.kernel > longestRow/a.out {
		return
	}
	if s.many = newPlanePool(s, fold, counts, countPad); s.many != nil {
		if s.strip = s.many.scratch(); s.strip < longestStrip {
			s.vectors = true
			return
		}
		s.many = nil
	}
	s.strip = max(a.pad+a.in, (a.out+lanes-1)/lanes*lanes*a.stride+a.kernel*a.dilation) + 2*lanes
	// Where steps or windows are far longer than rows, strips are mostly padding.
	s.vectors = path != pathGo && s.strip < longestStrip
}

// longestRow is how many elements of windows a row of the output has at most for
// vectorised loops, which nothing can end before.
const longestRow = 1 << 28

// longestStrip bounds the scratch memory of a part, in elements.
const longestStrip = 1 << 20

// parts is into how many parts the rows of the output are cut, at most, and
// what one of them costs.
func (s *poolShape) parts() (most, cost int) {
	a := &s.axes[len(s.axes)-1]
	cost = s.window*a.out + 1
	switch {
	case s.many != nil:
		cost = (s.window*a.in/a.kernel+a.kernel*a.out)/4 + 12
	case s.vectors:
		cost = (s.window*a.in/a.kernel+a.kernel*a.out)*2/5 + 160
	}
	return mostParts(s.planes*s.rows, cost), cost
}

// Scratch implements [Kernel].
func (s *poolShape) Scratch() int {
	if !s.vectors {
		return 0
	}
	most, _ := s.parts()
	return most * s.strip * 4
}

// stripOf returns the scratch memory of a part, set to what changes nothing.
func (s *poolShape) stripOf(scratch []float32, part int, fold poolFold) []float32 {
	if !s.vectors {
		return nil
	}
	strip := scratch[part*s.strip:][:s.strip]
	fillWith(strip, fold.identity())
	return strip
}

func newPoolShape(x, y, kernel, strides, dilations, begin, end []int64) poolShape {
	s := poolShape{planes: int(x[0] * x[1]), rows: 1, plane: 1, window: 1, global: true}
	for i := range kernel {
		s.axes = append(s.axes, poolAxis{
			in: int(x[2+i]), out: int(y[2+i]), kernel: int(kernel[i]), stride: int(strides[i]),
			dilation: int(dilations[i]), pad: int(begin[i]), padEnd: int(end[i]),
		})
		if i < len(kernel)-1 {
			s.rows *= int(y[2+i])
		}
		s.plane *= int(x[2+i])
		s.window *= int(kernel[i])
		if y[2+i] != 1 || kernel[i] != x[2+i] || begin[i] != 0 || dilations[i] != 1 {
			s.global = false
		}
	}
	return s
}

// windowRows walks the input rows under the window of one output row: those
// that lie inside the input on every axis but the last.
type windowRows struct {
	shape  *poolShape
	lo, hi [maxAxes]int // window elements inside the input
	at     [maxAxes]int // the window element of the current row
	base   [maxAxes]int // input index of window element 0
	count  int          // rows
	padded int          // rows inside the input and its padding
}

// start puts w on the first input row for an output row of a plane.
func (w *windowRows) start(s *poolShape, row int) {
	w.shape, w.count, w.padded = s, 1, 1
	for i := len(s.axes) - 2; i >= 0; i-- {
		a := &s.axes[i]
		o := row % a.out
		row /= a.out
		w.lo[i], w.hi[i] = a.taps(o)
		w.at[i] = w.lo[i]
		w.base[i] = o*a.stride - a.pad
		w.count *= w.hi[i] - w.lo[i]
		w.padded *= a.padded(o)
	}
}

// offset returns where the current input row begins in its plane.
func (w *windowRows) offset() int {
	n := 0
	last := len(w.shape.axes) - 1
	for i := range last {
		a := &w.shape.axes[i]
		n = n*a.in + w.base[i] + w.at[i]*a.dilation
	}
	return n * w.shape.axes[last].in
}

// columnMajor returns the current input row's part of an index that counts
// the first spatial axis fastest, and what one step along the row adds.
func (w *windowRows) columnMajor() (index, step int) {
	step = 1
	for i := range len(w.shape.axes) - 1 {
		a := &w.shape.axes[i]
		index += step * (w.base[i] + w.at[i]*a.dilation)
		step *= a.in
	}
	return index, step
}

// next moves to the following input row.
func (w *windowRows) next() {
	for i := len(w.shape.axes) - 2; i >= 0; i-- {
		w.at[i]++
		if w.at[i] < w.hi[i] {
			return
		}
		w.at[i] = w.lo[i]
	}
}

// shortRow is the length of an output row below which a row is computed
// window by window instead of window element by window element.
const shortRow = 4

func bindMaxPool(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.MaxPool)
	results, err := o.Infer(in)
	if err != nil {
		return nil, err
	}
	// Either result may be left out.
	s := newPoolShape(in[0].Shape, results[0].Shape, o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd)
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
type maxPool[T number] struct {
	poolShape
	columnMajor bool
	lowest      T // of a window that lies in the padding
	task        maxPoolTask[T]
}

func newMaxPool[T number](s poolShape, columnMajor bool, lowest T) *maxPool[T] {
	return &maxPool[T]{poolShape: s, columnMajor: columnMajor, lowest: lowest}
}

// Run implements [Kernel].
func (k *maxPool[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = maxPoolTask[T]{maxPool: k, x: view[T](in[0]), y: view[T](memory(out, 0)), index: view[int64](memory(out, 1)), scratch: f32s(scratch)}
	if len(t.y)+len(t.index) > 0 {
		_, cost := k.poolShape.parts()
		t.parts, t.watch = cutSlots(p, k.planes*k.rows, cost), newWatch(p, cost)
		p.Run(t, t.parts)
	}
	*t = maxPoolTask[T]{}
	return nil
}

type maxPoolTask[T number] struct {
	*maxPool[T]
	x, y    []T
	index   []int64
	scratch []float32
	parts   int
	watch   watch
}

// Do implements [Task].
func (t *maxPoolTask[T]) Do(part int) {
	strip := t.stripOf(t.scratch, part, maxWindow)
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
func (t *maxPoolTask[T]) pool(strip []float32, from, to int) {
	var w windowRows
	last := &t.axes[len(t.axes)-1]
	if t.many != nil && t.index == nil {
		foldPlanes(t.many, t.y, t.x, strip, from, to, t.slowly)
		return
	}
	for r := from; r < to; r++ {
		w.start(&t.poolShape, r%t.rows)
		plane := r / t.rows * t.plane
		x := t.x[plane:][:t.plane]
		if t.y == nil {
			t.onlyIndex(&w, r%t.rows, x, t.index[r*last.out:][:last.out], plane)
			continue
		}
		y := t.y[r*last.out:][:last.out]
		switch {
		case t.index == nil && t.many == nil && foldWindows(&t.poolShape, maxWindow, y, x, strip, &w):
		case t.index != nil:
			t.withIndex(&w, x, y, t.index[r*last.out:], plane, 0)
		case last.out < shortRow:
			t.byWindow(&w, x, y)
		default:
			t.byElement(&w, x, y)
		}
	}
}

// slowly computes rows of the output window by window.
func (t *maxPoolTask[T]) slowly(from, to int) {
	var w windowRows
	last := &t.axes[len(t.axes)-1]
	for r := from; r < to; r++ {
		w.start(&t.poolShape, r%t.rows)
		t.byWindow(&w, t.x[r/t.rows*t.plane:][:t.plane], t.y[r*last.out:][:last.out])
	}
}

// byElement goes over the output row once for each element of the window.
func (t *maxPoolTask[T]) byElement(w *windowRows, x, y []T) {
	a, pace := &t.axes[len(t.axes)-1], pace{pool: t.watch.pool}
	for i := range y {
		y[i] = t.lowest
	}
	for range w.count {
		row := x[w.offset():][:a.in]
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
					out[i] = max(out[i], v)
				}
				continue
			}
			for i, at := 0, 0; i < len(out); i, at = i+1, at+a.stride {
				out[i] = max(out[i], src[at])
			}
		}
		w.next()
	}
}

// byWindow goes over the window once for each element of the output row.
func (t *maxPoolTask[T]) byWindow(w *windowRows, x, y []T) {
	a, pace := &t.axes[len(t.axes)-1], pace{pool: t.watch.pool}
	for i := range y {
		y[i] = t.lowest
	}
	for range w.count {
		row := x[w.offset():][:a.in]
		for o := range y {
			lo, hi := a.taps(o)
			if pace.ended(hi - lo) {
				return
			}
			m := y[o]
			for at := o*a.stride - a.pad + lo*a.dilation; lo < hi; lo, at = lo+1, at+a.dilation {
				m = max(m, row[at])
			}
			y[o] = m
		}
		w.next()
	}
}

// onlyIndex is withIndex for an output row of which nobody wants the maxima.
func (t *maxPoolTask[T]) onlyIndex(w *windowRows, row int, x []T, index []int64, base int) {
	var y [1]T
	for o := range index {
		w.start(&t.poolShape, row)
		t.withIndex(w, x, y[:], index[o:], base, o)
	}
}

// withIndex is byWindow that keeps where each maximum lies, the first of
// equal ones. x begins at element base of the operand, y and index at element
// first of the output row. The index of a window that lies in the padding is 0.
func (t *maxPoolTask[T]) withIndex(w *windowRows, x, y []T, index []int64, base, first int) {
	a, pace := &t.axes[len(t.axes)-1], pace{pool: t.watch.pool}
	index = index[:len(y)]
	for i := range y {
		y[i] = t.lowest
		index[i] = -1
	}
	for range w.count {
		start, step := w.offset(), 1
		row := x[start:][:a.in]
		if t.columnMajor {
			start, step = w.columnMajor()
		}
		for o := range y {
			lo, hi := a.taps(first + o)
			if pace.ended(hi - lo) {
				return
			}
			for at := (first+o)*a.stride - a.pad + lo*a.dilation; lo < hi; lo, at = lo+1, at+a.dilation {
				v, m := row[at], y[o]
				if index[o] < 0 || v > m || v != v && m == m {
					y[o] = v
					index[o] = int64(base + start + at*step)
				}
			}
		}
		w.next()
	}
	for i := range index {
		index[i] = max(index[i], 0)
	}
}
