package kernel

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// vectorCast converts the first of up to [blockLen] elements by vectors, if
// there are any for the types, and returns how many. The loops are called by
// their names, so that what is converted may lie on the stack.
func vectorCast[T number](dst []byte, to graph.DType, src []T) int {
	n := len(src) &^ (quantGroup - 1)
	if path == pathGo || n == 0 {
		return 0
	}
	groups := n / quantGroup
	switch x := any(src).(type) {
	case []float32:
		switch {
		case to == graph.I32 && path == pathAVX512:
			floatToIntAVX512(&view[int32](dst)[:n][0], &x[0], groups)
		case to == graph.I32:
			floatToIntAVX2(&view[int32](dst)[:n][0], &x[0], groups)
		case to == graph.Bool && path == pathAVX512:
			floatToBoolAVX512(&dst[:n][0], &x[0], groups)
		case to == graph.Bool:
			floatToBoolAVX2(&dst[:n][0], &x[0], groups)
		case to == graph.I64 && path == pathAVX512:
			floatToLongAVX512(&view[int64](dst)[:n][0], &x[0], groups)
		case (to == graph.I8 || to == graph.U8) && path == pathAVX512:
			floatToByteAVX512(&dst[:n][0], &x[0], groups)
		default:
			return 0
		}
	case []int32:
		switch {
		case to == graph.F32 && path == pathAVX512:
			intToFloatAVX512(&f32s(dst)[:n][0], &x[0], groups)
		case to == graph.F32:
			intToFloatAVX2(&f32s(dst)[:n][0], &x[0], groups)
		default:
			return 0
		}
	case []int64:
		if to != graph.F32 || path != pathAVX512 {
			return 0
		}
		longToFloatAVX512(&f32s(dst)[:n][0], &x[0], groups)
	default:
		return 0
	}
	return n
}

// vectorDecodeBfloat and vectorEncodeBfloat convert the first elements by
// vectors, if there are any, and return how many.
func vectorDecodeBfloat(dst []float32, src []num.BFloat16) int {
	if path == pathGo {
		return 0
	}
	n := len(src) &^ (quantGroup - 1)
	dst, from := dst[:n], view[uint16](rawBytes(src))
	for i := 0; i < n; i += stretch {
		if groups := min(stretch, n-i) / quantGroup; path == pathAVX512 {
			widenBfloatAVX512(&dst[i], &from[i], groups)
		} else {
			widenBfloatAVX2(&dst[i], &from[i], groups)
		}
	}
	return n
}

func vectorEncodeBfloat(dst []num.BFloat16, src []float32) int {
	if path == pathGo {
		return 0
	}
	n := len(src) &^ (quantGroup - 1)
	to := view[uint16](rawBytes(dst))[:n]
	for i := 0; i < n; i += stretch {
		if groups := min(stretch, n-i) / quantGroup; path == pathAVX512 {
			narrowBfloatAVX512(&to[i], &src[i], groups)
		} else {
			narrowBfloatAVX2(&to[i], &src[i], groups)
		}
	}
	return n
}

// vectorWhere chooses the first elements of dst by vectors, if there are any for
// E, and returns how many.
func vectorWhere[E unsigned](dst, x, y []E, which []uint8) int {
	if path == pathGo || elementSize[E]() != 4 {
		return 0
	}
	d, u, v := view[uint32](rawBytes(dst)), view[uint32](rawBytes(x)), view[uint32](rawBytes(y))
	n := len(d) &^ (quantGroup - 1)
	u, v, which = u[:n], v[:n], which[:n]
	for i := 0; i < n; i += stretch {
		loopChoose(&d[i], &u[i], &v[i], &which[i], min(stretch, n-i)/quantGroup)
	}
	return n
}
