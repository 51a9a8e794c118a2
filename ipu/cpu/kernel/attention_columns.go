package kernel

import "math"

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
	s := slot[:cols*panel]
	lanes := t.columns(h, lo, rows, s, slot[t.cols*panel:])
	t.hide(h, lo, rows, s)
	softmaxColumns(s, lanes, t.hidden)
	if t.noNaN {
		dropNaN(s, rows)
	}
	v := t.vData[t.v.at(h, 0):]
	if vectorMultiply(y, t.y.down, rows, t.v.size, matrix[T]{s, 1, panel}, v, t.v.down, cols, 1, nil, 0, false) {
		return
	}
	for i := range rows {
		clear(y[i*t.y.down:][:t.y.size])
	}
	multiplyBlock(y, t.y.down, rows, t.v.size, matrix[T]{s, 1, panel}, v, t.v.down, cols, 1)
}

// columns sets s, panel elements for each row of K, to the scaled products of
// rows of Q and the bias. It returns how many elements of a row are set, those
// for rows that there are not included.
func (t *attentionRun[T]) columns(h, lo, rows int, s, buf []T) (lanes int) {
	q, buf := buf[:t.q.size*panel], buf[t.q.size*panel:]
	packBlock(q, matrix[T]{t.qData[t.q.at(h, lo):], t.q.across, t.q.down}, t.q.size, rows)
	k := matrix[T]{t.kData[t.k.at(h, 0):], t.k.down, t.k.across}
	lanes = vectorLanes[T](rows)
	step := len(s) / panel
	if t.bias.down != 0 {
		step = biasRows
	}
	for j := 0; j < len(s)/panel; j += step {
		s := s[j*panel:]
		n := min(step, len(s)/panel)
		s = s[:n*panel]
		b, column := t.from(h, lo, rows, j, n, buf)
		down := panel
		if column {
			down = t.bias.across
		}
		if t.q.size > 0 && vectorMultiply(s, panel, n, lanes, k.at(j, 0), q, panel, t.q.size, t.scale, b, down, column) {
			continue
		}
		for i := range n {
			to := s[i*panel:][:lanes]
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
			multiplyBlock(s, panel, n, lanes, k.at(j, 0), q, panel, t.q.size, t.scale)
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
	packBlock(buf, matrix[T]{b, t.bias.across, t.bias.down}, n, rows)
	return buf, false
}

// hide sets scores that rows do not look at to -Inf.
func (t *attentionRun[T]) hide(h, lo, rows int, s []T) {
	if !t.causal {
		return
	}
	// Row lo looks at no column from here on, each after it at one more.
	from := lo + t.offset(h) + 1
	for j := max(0, from); j < len(s)/panel; j++ {
		hidden := s[j*panel:][:min(j-from+1, rows)]
		for i := range hidden {
			hidden[i] = T(math.Inf(-1))
		}
	}
}

// softmaxColumns computes the softmax of each of the first lanes columns of s,
// whose rows are panel elements apart. With hidden, one of nothing but -Inf
// gives 0, else NaN.
func softmaxColumns[T float](s []T, lanes int, hidden bool) {
	floor, ceiling := math.Inf(-1), math.Inf(1)
	if hidden {
		ceiling = math.MaxFloat32
		if elementSize[T]() == 8 {
			ceiling = math.MaxFloat64
		}
		floor = -ceiling
	}
	if vectorSoftmaxColumns(s, lanes, floor, ceiling) {
		return
	}
	var most, total [panel]T
	for i := range lanes {
		most[i] = T(floor)
	}
	for j := 0; j < len(s); j += panel {
		for i, v := range s[j:][:lanes] {
			most[i] = max(most[i], v)
		}
	}
	for j := 0; j < len(s); j += panel {
		row := s[j:][:lanes]
		for i := range row {
			row[i] -= most[i]
		}
		exponentials(row, row)
		for i, v := range row {
			total[i] += v
		}
	}
	for i, v := range total[:lanes] {
		total[i] = min(1/v, T(ceiling))
	}
	for j := 0; j < len(s); j += panel {
		for i := range s[j:][:lanes] {
			s[j+i] *= total[i]
		}
	}
}

// dropNaN sets those of the first rows columns of s to 0 that softmaxColumns
// made NaN: all of their elements are.
func dropNaN[T float](s []T, rows int) {
	for i, v := range s[:rows] {
		if v == v {
			continue
		}
		for j := i; j < len(s); j += panel {
			s[j] = 0
		}
	}
}
