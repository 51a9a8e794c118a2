package attention

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// vectorLanes returns how many columns of a panel the loops for T compute
// where so many are wanted.
func vectorLanes[T tensor.Number](wanted int) int {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return wanted
	}
	return tensor.RoundUp(wanted, tensor.Path.Lanes())
}

// vectorMultiply sets rows×cols elements of y to alpha·A·B with SIMD instructions, if there
// are any for T, added to d, whose rows are down elements apart, if that is not
// nil: one element for all of a row if column is set. It reports whether it did
// it.
func vectorMultiply[T tensor.Number](y []T, ldy, rows, cols int, a gemm.Matrix[T], b []T, ldb, k int, alpha T, d []T, down int, column bool) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	f := tensor.AsFloat32[T]
	from := gemm.NoAddend
	if d != nil {
		from = gemm.Addend{Data: f(d), Row: down, Column: column}
	}
	gemm.MultiplyF32(tensor.Path, f(y), ldy, rows, cols, gemm.Matrix[float32]{Data: f(a.Data), Row: a.Row, Col: a.Col}, f(b), ldb, k, float32(alpha), from, nil)
	return true
}

// vectorSoftmaxColumns is [softmaxColumns] with SIMD instructions, if there are any for T:
// what a maximum is at least, and the reciprocal of a sum at most, is given. It
// reports whether it did it.
func vectorSoftmaxColumns[T tensor.Float](s []T, lanes int, floor, ceiling float64) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	x := tensor.AsFloat32(s)
	_ = x[len(x)/gemm.Panel*gemm.Panel-1]
	for j := 0; j < lanes; j += tensor.Path.Lanes() {
		loopSoftmaxColumns(&x[j], len(x)/gemm.Panel, float32(floor), float32(ceiling))
	}
	return true
}

func loopSoftmaxColumns(x *float32, n int, floor, ceiling float32) {
	if tensor.Path == tensor.PathAVX512 {
		softmaxColumnsAVX512(x, n, floor, ceiling)
	} else {
		softmaxColumnsAVX2(x, n, floor, ceiling)
	}
}
