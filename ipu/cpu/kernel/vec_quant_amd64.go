package kernel

// quantGroup is how many elements the loops between floats and bytes convert
// at a time.
const quantGroup = 16

// vectorQuantise is [quantizeAll] by vectors, if there are any for D; it
// reports whether it did it.
func vectorQuantise[D int8 | uint8 | int16 | uint16](dst []D, x []float32, scale, low, high, zero float32) bool {
	if path == pathGo || elementSize[D]() != 1 {
		return false
	}
	to := rawBytes(dst)
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
	case ok && path == pathAVX512:
		quantiseByAVX512(dst, x, groups, scale, low, high, zero, by)
	case ok:
		quantiseByAVX2(dst, x, groups, scale, low, high, zero, by)
	case path == pathAVX512:
		quantiseAVX512(dst, x, groups, scale, low, high, zero)
	default:
		quantiseAVX2(dst, x, groups, scale, low, high, zero)
	}
}

// vectorDequantise sets dst to (x-zero)·scale, where x are bytes, by vectors if
// there are any; it reports whether it did it.
func vectorDequantise(dst []float32, x []uint8, signed bool, scale, zero float32) bool {
	if path == pathGo {
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

// vectorWiden converts bytes to float32 by vectors, if there are any and T is a
// byte; it reports whether it did it.
func vectorWiden[T number](dst []float32, x []T) bool {
	switch any(T(0)).(type) {
	case uint8:
		return vectorDequantise(dst, rawBytes(x), false, 1, 0)
	case int8:
		return vectorDequantise(dst, rawBytes(x), true, 1, 0)
	}
	return false
}

func dequantiseGroups(dst *float32, x *uint8, groups int, signed bool, scale, zero float32) {
	switch {
	case path == pathAVX512 && signed:
		dequantiseSignedAVX512(dst, x, groups, scale, zero)
	case path == pathAVX512:
		dequantiseUnsignedAVX512(dst, x, groups, scale, zero)
	case signed:
		dequantiseSignedAVX2(dst, x, groups, scale, zero)
	default:
		dequantiseUnsignedAVX2(dst, x, groups, scale, zero)
	}
}
