package reduce

import (
	"math"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// The loops of Reduce come in two forms: one folds a row into a single
// accumulator ("across"), the other folds each element of a row into the
// accumulator beside it. Sums keep several partial ones, so that additions
// need not wait for each other.

// asBytes is the memory of accumulators.
func asBytes[A int64 | uint64 | float64](acc []A) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(acc))), len(acc)*8)
}

func sumAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	var a, b, c, d A
	for ; len(x) >= 4; x = x[4:] {
		a += A(x[0])
		b += A(x[1])
		c += A(x[2])
		d += A(x[3])
	}
	for _, v := range x {
		a += A(v)
	}
	return acc + (a + b) + (c + d)
}

func sumBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] += A(v)
	}
}

func absAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	var a, b A
	for ; len(x) >= 2; x = x[2:] {
		a += max(A(x[0]), -A(x[0]))
		b += max(A(x[1]), -A(x[1]))
	}
	for _, v := range x {
		a += max(A(v), -A(v))
	}
	return acc + a + b
}

func absBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] += max(A(v), -A(v))
	}
}

func squareAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	var a, b, c, d A
	for ; len(x) >= 4; x = x[4:] {
		p, q, r, s := A(x[0]), A(x[1]), A(x[2]), A(x[3])
		a += A(p * p)
		b += A(q * q)
		c += A(r * r)
		d += A(s * s)
	}
	for _, v := range x {
		a += A(A(v) * A(v))
	}
	return acc + (a + b) + (c + d)
}

func squareBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] += A(A(v) * A(v))
	}
}

func productAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	for _, v := range x {
		acc *= A(v)
	}
	return acc
}

func productBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] *= A(v)
	}
}

func maxAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	if len(x) == 0 {
		return acc
	}
	a, b := x[0], x[len(x)-1]
	for ; len(x) >= 2; x = x[2:] {
		a, b = max(a, x[0]), max(b, x[1])
	}
	return max(acc, A(max(a, b)))
}

func maxBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] = max(acc[i], A(v))
	}
}

func minAcross[T tensor.Number, A tensor.Number](acc A, x []T, _ A) A {
	if len(x) == 0 {
		return acc
	}
	a, b := x[0], x[len(x)-1]
	for ; len(x) >= 2; x = x[2:] {
		a, b = min(a, x[0]), min(b, x[1])
	}
	return min(acc, A(min(a, b)))
}

func minBeside[T tensor.Number, A tensor.Number](acc []A, x []T, _ []A) {
	acc = acc[:len(x)]
	for i, v := range x {
		acc[i] = min(acc[i], A(v))
	}
}

// expAcross and expBeside suit results narrower than float64.
func expAcross[T tensor.Number, A tensor.Number](acc A, x []T, shift A) A {
	for _, v := range x {
		p, s := vec.ExpSplit(vec.Limit(float64(v) - float64(shift)))
		acc += A(s + float64(s*p))
	}
	return acc
}

func expBeside[T tensor.Number, A tensor.Number](acc []A, x []T, shift []A) {
	acc, shift = acc[:len(x)], shift[:len(x)]
	for i, v := range x {
		p, s := vec.ExpSplit(vec.Limit(float64(v) - float64(shift[i])))
		acc[i] += A(s + float64(s*p))
	}
}

func expAcross64[T tensor.Number, A tensor.Number](acc A, x []T, shift A) A {
	for _, v := range x {
		acc += A(math.Exp(float64(v) - float64(shift)))
	}
	return acc
}

func expBeside64[T tensor.Number, A tensor.Number](acc []A, x []T, shift []A) {
	acc, shift = acc[:len(x)], shift[:len(x)]
	for i, v := range x {
		acc[i] += A(math.Exp(float64(v) - float64(shift[i])))
	}
}

func meanAll[A tensor.Number](acc, _ []A, count int) {
	for i, v := range acc {
		acc[i] = v / A(count)
	}
}

func rootAll[A tensor.Number](acc, _ []A, _ int) {
	for i, v := range acc {
		acc[i] = A(math.Sqrt(float64(v)))
	}
}

func logAll[A tensor.Number](acc, _ []A, _ int) {
	for i, v := range acc {
		acc[i] = A(math.Log(float64(v)))
	}
}

// logShiftedAll ends log_sum_exp: shift is the maximum, which every exponent
// was lowered by. Where that is infinite it is the result.
func logShiftedAll[A tensor.Number](acc, shift []A, _ int) {
	for i, v := range acc {
		if s := float64(shift[i]); math.IsInf(s, 0) {
			acc[i] = shift[i]
		} else {
			acc[i] = A(s + math.Log(float64(v)))
		}
	}
}

// Sum adds up x in four independent sums.
func Sum[T tensor.Float](x []T) T {
	var s0, s1, s2, s3 T
	for len(x) >= 4 {
		s0 += x[0]
		s1 += x[1]
		s2 += x[2]
		s3 += x[3]
		x = x[4:]
	}
	for _, v := range x {
		s0 += v
	}
	return (s0 + s1) + (s2 + s3)
}
