package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// vectorCast converts the first of up to [blockLen] elements with SIMD instructions, if
// there are any for the types, and returns how many. The loops are called by
// their names, so that what is converted may lie on the stack.
func vectorCast[T tensor.Number](dst []byte, to graph.DType, src []T) int {
	n := len(src) &^ (quantGroup - 1)
	if tensor.Path == tensor.PathGo || n == 0 {
		return 0
	}
	groups := n / quantGroup
	switch x := any(src).(type) {
	case []float32:
		switch {
		case to == graph.I32 && tensor.Path == tensor.PathAVX512:
			floatToIntAVX512(&tensor.View[int32](dst)[:n][0], &x[0], groups)
		case to == graph.I32:
			floatToIntAVX2(&tensor.View[int32](dst)[:n][0], &x[0], groups)
		case to == graph.Bool && tensor.Path == tensor.PathAVX512:
			floatToBoolAVX512(&dst[:n][0], &x[0], groups)
		case to == graph.Bool:
			floatToBoolAVX2(&dst[:n][0], &x[0], groups)
		case to == graph.I64 && tensor.Path == tensor.PathAVX512:
			floatToLongAVX512(&tensor.View[int64](dst)[:n][0], &x[0], groups)
		case (to == graph.I8 || to == graph.U8) && tensor.Path == tensor.PathAVX512:
			floatToByteAVX512(&dst[:n][0], &x[0], groups)
		default:
			return 0
		}
	case []int32:
		switch {
		case to == graph.F32 && tensor.Path == tensor.PathAVX512:
			intToFloatAVX512(&tensor.F32s(dst)[:n][0], &x[0], groups)
		case to == graph.F32:
			intToFloatAVX2(&tensor.F32s(dst)[:n][0], &x[0], groups)
		default:
			return 0
		}
	case []int64:
		if to != graph.F32 || tensor.Path != tensor.PathAVX512 {
			return 0
		}
		longToFloatAVX512(&tensor.F32s(dst)[:n][0], &x[0], groups)
	default:
		return 0
	}
	return n
}

// vectorDecodeBfloat and vectorEncodeBfloat convert the first elements with
// SIMD instructions, if there are any, and return how many.
func vectorDecodeBfloat(dst []float32, src []num.BFloat16) int {
	if tensor.Path == tensor.PathGo {
		return 0
	}
	n := len(src) &^ (quantGroup - 1)
	dst, from := dst[:n], tensor.View[uint16](tensor.RawBytes(src))
	for i := 0; i < n; i += Stretch {
		if groups := min(Stretch, n-i) / quantGroup; tensor.Path == tensor.PathAVX512 {
			widenBfloatAVX512(&dst[i], &from[i], groups)
		} else {
			widenBfloatAVX2(&dst[i], &from[i], groups)
		}
	}
	return n
}

func vectorEncodeBfloat(dst []num.BFloat16, src []float32) int {
	if tensor.Path == tensor.PathGo {
		return 0
	}
	n := len(src) &^ (quantGroup - 1)
	to := tensor.View[uint16](tensor.RawBytes(dst))[:n]
	for i := 0; i < n; i += Stretch {
		if groups := min(Stretch, n-i) / quantGroup; tensor.Path == tensor.PathAVX512 {
			narrowBfloatAVX512(&to[i], &src[i], groups)
		} else {
			narrowBfloatAVX2(&to[i], &src[i], groups)
		}
	}
	return n
}

// vectorWhere chooses the first elements of dst with SIMD instructions, if there are any for
// E, and returns how many.
func vectorWhere[E tensor.Unsigned](dst, x, y []E, which []uint8) int {
	if tensor.Path == tensor.PathGo || tensor.ElementSize[E]() != 4 {
		return 0
	}
	d, u, v := tensor.View[uint32](tensor.RawBytes(dst)), tensor.View[uint32](tensor.RawBytes(x)), tensor.View[uint32](tensor.RawBytes(y))
	n := len(d) &^ (quantGroup - 1)
	u, v, which = u[:n], v[:n], which[:n]
	for i := 0; i < n; i += Stretch {
		loopChoose(&d[i], &u[i], &v[i], &which[i], min(Stretch, n-i)/quantGroup)
	}
	return n
}
