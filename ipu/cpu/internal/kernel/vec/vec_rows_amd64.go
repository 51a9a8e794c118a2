package vec

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// SumStretch is how many elements are added up in float32, in lanes that get a
// sixty-fourth of them or a bit more, before the sum goes to a float64.
const SumStretch = 1 << 12

// VectorSum is [longSum] with SIMD instructions, if there are any for T; ok tells.
func VectorSum[T tensor.Float](x []T) (total float64, ok bool) {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return 0, false
	}
	u := tensor.AsFloat32(x)
	for i := 0; i < len(u); i += SumStretch {
		n := min(SumStretch, len(u)-i)
		total += float64(LoopSum(&u[i], n))
	}
	return total, true
}

// VectorSquares is [longSquares] with SIMD instructions, if there are any for T; ok tells.
func VectorSquares[T tensor.Float](x []T, mean T) (total float64, ok bool) {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return 0, false
	}
	u := tensor.AsFloat32(x)
	for i := 0; i < len(u); i += SumStretch {
		n := min(SumStretch, len(u)-i)
		total += float64(loopSquares(&u[i], n, float32(mean)))
	}
	return total, true
}

// VectorScale sets y to (x-mean)·factor·scale + bias with SIMD instructions, if there are
// any for T; without a bias that is nil. It reports whether it did it.
func VectorScale[T tensor.Float](y, x, scale, bias []T, mean, factor T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	d, u, s, b := tensor.AsFloat32(y)[:len(x)], tensor.AsFloat32(x), tensor.AsFloat32(scale)[:len(x)], tensor.AsFloat32(bias)
	m, f := float32(mean), float32(factor)
	for i := 0; i < len(u); i += Stretch {
		n := min(Stretch, len(u)-i)
		switch {
		case bias == nil:
			loopNormaliseScale(&d[i], &u[i], &s[i], n, m, f)
		default:
			loopNormaliseScaleBias(&d[i], &u[i], &s[i], &b[:len(u)][i], n, m, f)
		}
	}
	return true
}

// VectorLayerNorm normalises rows of len(scale) elements, as many as x has, with
// SIMD instructions, if there are any for T and the rows are short enough to be added up
// in float32; it reports whether it did it.
func VectorLayerNorm[T tensor.Float](y, x, scale, bias []T, epsilon float64) bool {
	n := len(scale)
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || n > SumStretch {
		return false
	}
	d, u, s, b := tensor.AsFloat32(y)[:len(x)], tensor.AsFloat32(x), tensor.AsFloat32(scale), tensor.AsFloat32(bias)[:n]
	for i := 0; i < len(u); i += Stretch / n * n {
		loopLayerNormRows(&d[i], &u[i], &s[0], &b[0], n, min(Stretch, len(u)-i)/n, epsilon)
	}
	return true
}

// VectorRMSNorm is vectorLayerNorm without a mean and a bias.
func VectorRMSNorm[T tensor.Float](y, x, scale []T, epsilon float64) bool {
	n := len(scale)
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || n > SumStretch {
		return false
	}
	d, u, s := tensor.AsFloat32(y)[:len(x)], tensor.AsFloat32(x), tensor.AsFloat32(scale)
	for i := 0; i < len(u); i += Stretch / n * n {
		loopRmsNormRows(&d[i], &u[i], &s[0], n, min(Stretch, len(u)-i)/n, epsilon)
	}
	return true
}

// VectorSoftmax is the row of a softmax or its logarithm with SIMD instructions, if there
// are any for T; it reports whether it did it.
func VectorSoftmax[T tensor.Float](x, y []T, log bool) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	u, v := tensor.AsFloat32(x), tensor.AsFloat32(y)[:len(x)]
	peak := float32(math.Inf(-1))
	for i := 0; i < len(u); i += Stretch {
		peak = max(peak, LoopMost(&u[i], min(Stretch, len(u)-i)))
	}
	total := 0.0
	for i := 0; i < len(u); i += SumStretch {
		n := min(SumStretch, len(u)-i)
		if log {
			total += float64(loopExpShiftSum(&u[i], n, peak))
		} else {
			total += float64(loopExpShift(&v[i], &u[i], n, peak))
		}
	}
	if log {
		total = math.Log(total)
	} else {
		total = 1 / total
	}
	for i := 0; i < len(u); i += Stretch {
		n := min(Stretch, len(u)-i)
		if log {
			loopLower(&v[i], &u[i], n, peak, float32(total))
		} else {
			loopScale(&v[i], &v[i], n, float32(total))
		}
	}
	return true
}

// VectorRows is rows of n elements of a softmax or its logarithm with SIMD instructions, if there are any for
// T and the rows are short enough to be added up in float32; it reports whether
// it did it. buf is scratch memory for short rows.
func VectorRows[T tensor.Float](x, y []T, n int, log bool, buf []T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || n > SumStretch {
		return false
	}
	u, v := tensor.AsFloat32(x), tensor.AsFloat32(y)[:len(x)]
	if n > ShortRows {
		for i := 0; i < len(u); i += Stretch / n * n {
			if rows := min(Stretch, len(u)-i) / n; log {
				loopLogSoftmaxRows(&v[i], &u[i], n, rows)
			} else {
				loopSoftmaxRows(&v[i], &u[i], n, rows)
			}
		}
		return true
	}
	columns := tensor.AsFloat32(buf)[3*SoftmaxStrip:]
	for i := 0; i < len(u); i += SoftmaxStrip * n {
		rows := min(SoftmaxStrip, (len(u)-i)/n)
		for j := range n {
			c := columns[j*SoftmaxStrip:][:rows]
			for r, at := 0, i+j; r < len(c); r, at = r+1, at+n {
				c[r] = u[at]
			}
		}
		VectorStrip(columns, columns, n, SoftmaxStrip, rows, log, tensor.AsFloat32(buf)[:3*SoftmaxStrip])
		for j := range n {
			c := columns[j*SoftmaxStrip:][:rows]
			for r, at := 0, i+j; r < len(c); r, at = r+1, at+n {
				v[at] = c[r]
			}
		}
	}
	return true
}

// columnLoops are what a softmax across rows needs, by the loops of a path.
type columnLoops struct {
	maximum, add, subtract, multiply, expDifference binaryLoop
	log, reciprocal                                 unaryLoop
}

var wideColumns = columnLoops{maximumAVX512, addAVX512, subtractAVX512, multiplyAVX512, expDifferenceAVX512, logAVX512, reciprocalAVX512}

var narrowColumns = columnLoops{maximumAVX2, addAVX2, subtractAVX2, multiplyAVX2, expDifferenceAVX2, logAVX2, reciprocalAVX2}

// VectorStrip is the strip of a softmax with SIMD instructions, if there are any for T: it
// normalises lanes, of which every one has count elements that are inner
// apart. It reports whether it did it.
func VectorStrip[T tensor.Float](x, y []T, count, inner, lanes int, log bool, buf []T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	l := &narrowColumns
	if tensor.Path == tensor.PathAVX512 {
		l = &wideColumns
	}
	u, v := tensor.AsFloat32(x), tensor.AsFloat32(y)
	_, _ = u[(count-1)*inner+lanes-1], v[(count-1)*inner+lanes-1]
	b := tensor.AsFloat32(buf)[:3*SoftmaxStrip]
	most, total, e := &b[0], &b[SoftmaxStrip], &b[2*SoftmaxStrip]
	copy(b[:lanes], u)
	clear(b[SoftmaxStrip:][:lanes])
	for i := 1; i < count; i++ {
		l.maximum(most, most, &u[i*inner], lanes)
	}
	for i := range count {
		to := e
		if !log {
			to = &v[i*inner]
		}
		l.expDifference(to, &u[i*inner], most, lanes)
		l.add(total, total, to, lanes)
	}
	if log {
		l.log(total, total, lanes)
	} else {
		l.reciprocal(total, total, lanes)
	}
	for i := range count {
		at := &v[i*inner]
		if log {
			l.subtract(at, &u[i*inner], most, lanes)
			l.subtract(at, at, total, lanes)
		} else {
			l.multiply(at, at, total, lanes)
		}
	}
	return true
}

// VectorGreatest is [firstGreatest] with SIMD instructions, if there are any for T: it looks
// for the block that has the greatest element first. ok tells.
func VectorGreatest[T tensor.Number](x []T) (at int, ok bool) {
	const block = 512
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return 0, false
	}
	u := tensor.AsFloat32(x)
	best, from := u[0], 0
	for i := 0; i < len(u) && best == best; i += block {
		if m := LoopMost(&u[i], min(block, len(u)-i)); m > best || m != m {
			best, from = m, i
		}
	}
	for i, v := range u[from:min(from+block, len(u))] {
		if v == best || v != v {
			return from + i, true
		}
	}
	return from, true
}

// GreatestBeside sets out to the places of the greatest elements of lanes that
// lie side by side with SIMD instructions, if there are any for T; each has dim elements,
// inner apart. It reports whether it did it.
func GreatestBeside[T tensor.Number](out []int64, x []T, dim, inner int) bool {
	const block = 256
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	u := tensor.AsFloat32(x)
	var best, at [block]float32 // places by their bits
	for lo := 0; lo < len(out); lo += block {
		n := min(block, len(out)-lo)
		copy(best[:n], u[lo:])
		clear(at[:n])
		for d := 1; d < dim; d++ {
			row, place := u[d*inner+lo:][:n], math.Float32frombits(uint32(d))
			loopGreater(&best[0], &at[0], &row[0], n, place)
		}
		for i, v := range at[:n] {
			out[lo+i] = int64(math.Float32bits(v))
		}
	}
	return true
}

// shortSum is the most elements of a row that Reduce adds up in float32, in 64 or
// 32 sums.
const shortSum = 1 << 10

// VectorAcross returns the fold of a row of float32 into one accumulator with
// SIMD instructions, nil if there is none. It computes in float64 where it can't be
// exact.
func VectorAcross(fn graph.ReduceFn) func(acc float64, x []float32, shift float64) float64 {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	switch fn {
	case graph.ReduceSum, graph.ReduceMean, graph.ReduceLogSum:
		return func(acc float64, x []float32, _ float64) float64 {
			for i := 0; i < len(x); i += shortSum {
				acc += float64(LoopSum(&x[i], min(shortSum, len(x)-i)))
			}
			return acc
		}
	case graph.ReduceL2, graph.ReduceSumSquare:
		return func(acc float64, x []float32, _ float64) float64 {
			for i := 0; i < len(x); i += Stretch {
				acc += loopLongSquares(&x[i], min(Stretch, len(x)-i))
			}
			return acc
		}
	case graph.ReduceMax:
		return func(acc float64, x []float32, _ float64) float64 {
			for i := 0; i < len(x); i += Stretch {
				acc = max(acc, float64(LoopMost(&x[i], min(Stretch, len(x)-i))))
			}
			return acc
		}
	case graph.ReduceMin:
		return func(acc float64, x []float32, _ float64) float64 {
			for i := 0; i < len(x); i += Stretch {
				acc = min(acc, float64(loopLeast(&x[i], min(Stretch, len(x)-i))))
			}
			return acc
		}
	}
	return nil
}

// VectorNCHWcMeans returns the loop that sums rows of one vector each, in the
// order in which that of a row adds up its elements, nil if there is none: means of
// planes in NCHWc have the bits of those in NCHW.
func VectorNCHWcMeans(fn graph.ReduceFn, columns int) func(acc []float64, x []float32, rows, step int) {
	if tensor.Path == tensor.PathGo || columns != tensor.Path.Lanes() || fn != graph.ReduceSum && fn != graph.ReduceMean {
		return nil
	}
	return func(acc []float64, x []float32, rows, step int) {
		const widest = 16
		var buf [foldWays * widest * widest]float32
		all := len(acc) * len(acc) // elements of as many rows as a vector has lanes
		for i := 0; i < rows; i += shortSum {
			u := x[i*step:][:min(shortSum, rows-i)*len(acc)]
			clear(buf[:foldWays*all])
			for ; len(u) >= foldWays*all; u = u[foldWays*all:] {
				loopAdd(&buf[0], &buf[0], &u[0], foldWays*all)
			}
			for ; len(u) >= all; u = u[all:] {
				loopAdd(&buf[0], &buf[0], &u[0], all)
			}
			if len(u) > 0 {
				loopAdd(&buf[all], &buf[all], &u[0], len(u))
			}
			loopAdd(&buf[0], &buf[0], &buf[all], all)
			loopAdd(&buf[2*all], &buf[2*all], &buf[3*all], all)
			loopAdd(&buf[0], &buf[0], &buf[2*all], all)
			for n := all / 2; n >= len(acc); n /= 2 {
				loopAdd(&buf[0], &buf[0], &buf[n], n)
			}
			for j := range acc {
				acc[j] += float64(buf[j])
			}
		}
	}
}

// foldWays is how many vectors of sums the folds of rows have.
const foldWays = 4

// VectorEach returns the fold of rows of count elements, step elements apart,
// each into an accumulator of its own with SIMD instructions, nil if there is none.
func VectorEach(fn graph.ReduceFn, count int) func(acc []float64, x []float32, count, step int) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	short := false
	switch fn {
	case graph.ReduceSum, graph.ReduceMean, graph.ReduceLogSum:
		if count > shortSum {
			return nil
		}
		short = true
	case graph.ReduceL2, graph.ReduceSumSquare:
	default:
		return nil
	}
	return func(acc []float64, x []float32, count, step int) {
		_ = x[(len(acc)-1)*step+count-1]
		some := max(1, Stretch/count)
		i := 0
		if n := len(acc) &^ 3; short && count <= tensor.Path.Lanes() && n > 0 {
			for ; i < n; i += some &^ 3 {
				if rows := min(some&^3, n-i); count <= tensor.PathAVX2.Lanes() {
					sumShortAVX2(&acc[i], &x[i*step], count, rows, 4*step)
				} else {
					loopSumShort(&acc[i], &x[i*step], count, rows, 4*step)
				}
			}
			i = n
		}
		for ; i < len(acc); i += some {
			if rows := min(some, len(acc)-i); short {
				loopSumEach(&acc[i], &x[i*step], count, rows, 4*step)
			} else {
				loopLongSquaresEach(&acc[i], &x[i*step], count, rows, 4*step)
			}
		}
	}
}

// downward returns the fold of rows by a function that chooses one of two
// numbers. Meanwhile the accumulators are float32, in half of their memory.
func downward(l binaryLoop) func(acc []float64, x []float32, rows, step int) {
	return func(acc []float64, x []float32, rows, step int) {
		to := tensor.F32s(tensor.RawBytes(acc))[:len(acc)]
		for i, v := range acc {
			to[i] = float32(v)
		}
		_ = x[(rows-1)*step+len(acc)-1]
		for i := range rows {
			l(&to[0], &to[0], &x[i*step], len(to))
		}
		for i := len(acc) - 1; i >= 0; i-- {
			acc[i] = float64(to[i])
		}
	}
}

// VectorDown returns the fold of rows of float32, step elements apart, into
// accumulators for their columns with SIMD instructions, nil if there is none.
func VectorDown(fn graph.ReduceFn) func(acc []float64, x []float32, rows, step int) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	squares := false
	switch fn {
	case graph.ReduceSum, graph.ReduceMean, graph.ReduceLogSum:
	case graph.ReduceL2, graph.ReduceSumSquare:
		squares = true
	case graph.ReduceMax:
		return downward(Pick[binaryLoop](maximumAVX512, maximumAVX2))
	case graph.ReduceMin:
		return downward(Pick[binaryLoop](minimumAVX512, minimumAVX2))
	default:
		return nil
	}
	return func(acc []float64, x []float32, rows, step int) {
		_ = x[(rows-1)*step+len(acc)-1]
		some := Stretch / len(acc)
		for i := 0; i < rows; i += some {
			if n := min(some, rows-i); squares {
				loopLongSquaresRows(&acc[0], &x[i*step], len(acc), n, 4*step)
			} else {
				loopLongSumRows(&acc[0], &x[i*step], len(acc), n, 4*step)
			}
		}
	}
}
