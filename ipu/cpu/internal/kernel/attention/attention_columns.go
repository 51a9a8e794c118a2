package attention

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// biasRows is how many rows of scores begin with a bias at a time, so that what
// is copied of it for them stays in the first-level cache: whole tiles of the
// inner loops.
const biasRows = 60

// computeByColumns computes the rows [lo, hi) of one head from scores by
// columns.
func (t *attentionRun[T]) computeByColumns(h, lo, hi int, slot []T) {
	cols, rows := t.seen(h, hi-1), hi-lo
	y := t.yData[t.y.at(h, lo):]
	if cols == 0 || t.v.size == 0 {
		for i := range rows {
			clear(y[i*t.y.down:][:t.y.size])
		}
		return
	}
	s := slot[:cols*gemm.Panel]
	lanes := t.columns(h, lo, rows, s, slot[t.cols*gemm.Panel:])
	t.hide(h, lo, rows, s)
	softmaxColumns(s, lanes, t.hidden)
	if t.noNaN {
		dropNaN(s, rows)
	}
	v := t.vData[t.v.at(h, 0):]
	if vectorMultiply(y, t.y.down, rows, t.v.size, gemm.Matrix[T]{Data: s, Row: 1, Col: gemm.Panel}, v, t.v.down, cols, 1, nil, 0, false) {
		return
	}
	for i := range rows {
		clear(y[i*t.y.down:][:t.y.size])
	}
	gemm.MultiplyBlock(y, t.y.down, rows, t.v.size, gemm.Matrix[T]{Data: s, Row: 1, Col: gemm.Panel}, v, t.v.down, cols, 1)
}

// columns sets s, panel elements for each row of K, to the scaled products of
// rows of Q and the bias. It returns how many elements of a row are set, those
// for rows that there are not included.
func (t *attentionRun[T]) columns(h, lo, rows int, s, buf []T) (lanes int) {
	q, buf := buf[:t.q.size*gemm.Panel], buf[t.q.size*gemm.Panel:]
	gemm.PackBlock(q, gemm.Matrix[T]{Data: t.qData[t.q.at(h, lo):], Row: t.q.across, Col: t.q.down}, t.q.size, rows)
	k := gemm.Matrix[T]{Data: t.kData[t.k.at(h, 0):], Row: t.k.down, Col: t.k.across}
	lanes = vectorLanes[T](rows)
	step := len(s) / gemm.Panel
	if t.bias.down != 0 {
		step = biasRows
	}
	for j := 0; j < len(s)/gemm.Panel; j += step {
		s := s[j*gemm.Panel:]
		n := min(step, len(s)/gemm.Panel)
		s = s[:n*gemm.Panel]
		b, column := t.from(h, lo, rows, j, n, buf)
		down := gemm.Panel
		if column {
			down = t.bias.across
		}
		if t.q.size > 0 && vectorMultiply(s, gemm.Panel, n, lanes, k.At(j, 0), q, gemm.Panel, t.q.size, t.scale, b, down, column) {
			continue
		}
		for i := range n {
			to := s[i*gemm.Panel:][:lanes]
			switch {
			case b == nil:
				clear(to)
			case column:
				for c := range to {
					to[c] = b[i*down]
				}
			default:
				copy(to, b[i*down:])
			}
		}
		if t.q.size > 0 {
			gemm.MultiplyBlock(s, gemm.Panel, n, lanes, k.At(j, 0), q, gemm.Panel, t.q.size, t.scale)
		}
	}
	return lanes
}

// from returns the bias of n columns from j on: nil if there is none, one
// element for each if all rows have the same, else a copy in buf, panel
// elements each.
func (t *attentionRun[T]) from(h, lo, rows, j, n int, buf []T) (b []T, column bool) {
	if !t.hasBias {
		return nil, false
	}
	b = t.biasData[t.bias.at(h, lo)+j*t.bias.across:]
	if t.bias.down == 0 {
		return b, true
	}
	gemm.PackBlock(buf, gemm.Matrix[T]{Data: b, Row: t.bias.across, Col: t.bias.down}, n, rows)
	return buf, false
}

// hide sets scores that rows do not look at to -Inf.
func (t *attentionRun[T]) hide(h, lo, rows int, s []T) {
	if !t.causal {
		return
	}
	// Row lo looks at no column from here on, each after it at one more.
	from := lo + t.offset(h) + 1
	for j := max(0, from); j < len(s)/gemm.Panel; j++ {
		hidden := s[j*gemm.Panel:][:min(j-from+1, rows)]
		for i := range hidden {
			hidden[i] = T(math.Inf(-1))
		}
	}
}

// softmaxColumns computes the softmax of each of the first lanes columns of s,
// whose rows are panel elements apart. With hidden, one of nothing but -Inf
// gives 0, else NaN.
func softmaxColumns[T tensor.Float](s []T, lanes int, hidden bool) {
	floor, ceiling := math.Inf(-1), math.Inf(1)
	if hidden {
		ceiling = math.MaxFloat32
		if tensor.ElementSize[T]() == 8 {
			ceiling = math.MaxFloat64
		}
		floor = -ceiling
	}
	if vectorSoftmaxColumns(s, lanes, floor, ceiling) {
		return
	}
	var most, total [gemm.Panel]T
	for i := range lanes {
		most[i] = T(floor)
	}
	for j := 0; j < len(s); j += gemm.Panel {
		for i, v := range s[j:][:lanes] {
			most[i] = max(most[i], v)
		}
	}
	for j := 0; j < len(s); j += gemm.Panel {
		row := s[j:][:lanes]
		for i := range row {
			row[i] -= most[i]
		}
		reduce.Exponentials(row, row)
		for i, v := range row {
			total[i] += v
		}
	}
	for i, v := range total[:lanes] {
		total[i] = min(1/v, T(ceiling))
	}
	for j := 0; j < len(s); j += gemm.Panel {
		for i := range s[j:][:lanes] {
			s[j+i] *= total[i]
		}
	}
}

// dropNaN sets those of the first rows columns of s to 0 that softmaxColumns
// made NaN: all of their elements are.
func dropNaN[T tensor.Float](s []T, rows int) {
	for i, v := range s[:rows] {
		if v == v {
			continue
		}
		for j := i; j < len(s); j += gemm.Panel {
			s[j] = 0
		}
	}
}
