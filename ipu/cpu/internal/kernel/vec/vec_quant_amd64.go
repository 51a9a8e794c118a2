package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// quantGroup is how many elements the loops between floats and bytes convert
// at a time.
const quantGroup = 16

// VectorQuantise is [quantizeAll] with SIMD instructions, if there are any for D; it
// reports whether it did it.
func VectorQuantise[D int8 | uint8 | int16 | uint16](dst []D, x []float32, scale, low, high, zero float32) bool {
	if tensor.Path == tensor.PathGo || tensor.ElementSize[D]() != 1 {
		return false
	}
	to := tensor.RawBytes(dst)
	x = x[:len(to)]
	if n := len(x) / quantGroup; n > 0 {
		quantiseGroups(&to[0], &x[0], n, scale, low-zero, high-zero, zero)
	}
	if at := len(x) &^ (quantGroup - 1); at < len(x) {
		var u [quantGroup]float32
		var v [quantGroup]uint8
		copy(u[:], x[at:])
		quantiseGroups(&v[0], &u[0], 1, scale, low-zero, high-zero, zero)
		copy(to[at:], v[:])
	}
	return true
}

func quantiseGroups(dst *uint8, x *float32, groups int, scale, low, high, zero float32) {
	by, ok := quantReciprocal(scale)
	switch {
	case ok && tensor.Path == tensor.PathAVX512:
		quantiseByAVX512(dst, x, groups, scale, low, high, zero, by)
	case ok:
		quantiseByAVX2(dst, x, groups, scale, low, high, zero, by)
	case tensor.Path == tensor.PathAVX512:
		quantiseAVX512(dst, x, groups, scale, low, high, zero)
	default:
		quantiseAVX2(dst, x, groups, scale, low, high, zero)
	}
}

// VectorDequantise sets dst to (x-zero)·scale, where x are bytes, with SIMD instructions if
// there are any; it reports whether it did it.
func VectorDequantise(dst []float32, x []uint8, signed bool, scale, zero float32) bool {
	if tensor.Path == tensor.PathGo {
		return false
	}
	dst = dst[:len(x)]
	if n := len(x) / quantGroup; n > 0 {
		dequantiseGroups(&dst[0], &x[0], n, signed, scale, zero)
	}
	if at := len(x) &^ (quantGroup - 1); at < len(x) {
		var u [quantGroup]uint8
		var v [quantGroup]float32
		copy(u[:], x[at:])
		dequantiseGroups(&v[0], &u[0], 1, signed, scale, zero)
		copy(dst[at:], v[:])
	}
	return true
}

// vectorWiden converts bytes to float32 with SIMD instructions, if there are any and T is a
// byte; it reports whether it did it.
func vectorWiden[T tensor.Number](dst []float32, x []T) bool {
	switch any(T(0)).(type) {
	case uint8:
		return VectorDequantise(dst, tensor.RawBytes(x), false, 1, 0)
	case int8:
		return VectorDequantise(dst, tensor.RawBytes(x), true, 1, 0)
	}
	return false
}

func dequantiseGroups(dst *float32, x *uint8, groups int, signed bool, scale, zero float32) {
	switch {
	case tensor.Path == tensor.PathAVX512 && signed:
		dequantiseSignedAVX512(dst, x, groups, scale, zero)
	case tensor.Path == tensor.PathAVX512:
		dequantiseUnsignedAVX512(dst, x, groups, scale, zero)
	case signed:
		dequantiseSignedAVX2(dst, x, groups, scale, zero)
	default:
		dequantiseUnsignedAVX2(dst, x, groups, scale, zero)
	}
}
