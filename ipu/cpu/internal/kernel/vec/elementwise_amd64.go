package vec

import (
	"math"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
)

// Stretch is how many elements one call of a loop in assembly is given: the
// garbage collector can't stop it.
const Stretch = 1 << 15

// unaryLoop and binaryLoop are loops in assembly. Each computes whole vectors
// and then what is left with a mask, so that an element's result does not
// depend on where it stands.
type (
	unaryLoop  func(dst, x *float32, n int)
	binaryLoop func(dst, x, y *float32, n int)
)

// over returns f as a function of slices.
func (f unaryLoop) over() func(dst, x []float32) {
	return func(dst, x []float32) {
		dst = dst[:len(x)]
		for i := 0; i < len(x); i += Stretch {
			f(&dst[i], &x[i], min(Stretch, len(x)-i))
		}
	}
}

// over returns f as a function of slices.
func (f binaryLoop) over() func(dst, x, y []float32) {
	return func(dst, x, y []float32) {
		x, y = x[:len(dst)], y[:len(dst)]
		for i := 0; i < len(dst); i += Stretch {
			f(&dst[i], &x[i], &y[i], min(Stretch, len(dst)-i))
		}
	}
}

// Pick returns the loop of the current path, which isn't plain Go, for kernels
// to keep. What is passed to it must not lie on the stack: call loops directly
// where it does (vec_loops_amd64.go).
func Pick[F any](wide, narrow F) F {
	if tensor.Path == tensor.PathAVX512 {
		return wide
	}
	return narrow
}

// VectorBinary returns the loop of a function with SIMD instructions, nil if there is none
// for T.
func VectorBinary[T tensor.Number](fn graph.BinaryFn) func(dst, a, b []T) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	var l binaryLoop
	switch fn {
	case graph.Add:
		l = Pick[binaryLoop](addAVX512, addAVX2)
	case graph.Sub:
		l = Pick[binaryLoop](subtractAVX512, subtractAVX2)
	case graph.Mul:
		l = Pick[binaryLoop](multiplyAVX512, multiplyAVX2)
	case graph.Div:
		l = Pick[binaryLoop](divideAVX512, divideAVX2)
	case graph.Max:
		l = Pick[binaryLoop](maximumAVX512, maximumAVX2)
	case graph.Min:
		l = Pick[binaryLoop](minimumAVX512, minimumAVX2)
	case graph.PRelu:
		l = Pick[binaryLoop](preluAVX512, preluAVX2)
	default:
		return nil
	}
	f, _ := any(l.over()).(func(dst, a, b []T))
	return f
}

// vectorWithOne returns the loop of a function whose second operand is one
// number for all elements with SIMD instructions, nil if there is none.
func vectorWithOne(fn graph.BinaryFn) func(dst, x []float32, y float32) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	var f func(dst, x *float32, n int, y float32)
	switch fn {
	case graph.Add:
		f = Pick(addOneAVX512, addOneAVX2)
	case graph.Sub:
		f = func(dst, x *float32, n int, y float32) { loopAddOne(dst, x, n, -y) }
	case graph.Mul:
		f = Pick(scaleAVX512, scaleAVX2)
	case graph.Div:
		f = divideByOne
	case graph.Max:
		f = Pick(maximumOneAVX512, maximumOneAVX2)
	case graph.Min:
		f = Pick(minimumOneAVX512, minimumOneAVX2)
	case graph.PRelu:
		f = Pick(preluOneAVX512, preluOneAVX2)
	default:
		return nil
	}
	return func(dst, x []float32, y float32) {
		dst = dst[:len(x)]
		for i := 0; i < len(x); i += Stretch {
			f(&dst[i], &x[i], min(Stretch, len(x)-i), y)
		}
	}
}

// divideTop bounds the magnitude of a number that divide may divide by, and that
// of its reciprocal.
const divideTop = 0x1p60

// divideByOne divides n elements by a number: with the reciprocal where the
// loop may, by products with the reciprocal where that is exact, else each
// element by itself.
func divideByOne(dst, x *float32, n int, y float32) {
	size := max(y, -y)
	switch {
	case !(size >= 1/divideTop && size <= divideTop):
		var ys [BlockLen]float32
		FillWith(ys[:min(n, BlockLen)], y)
		to, from := unsafe.Slice(dst, n), unsafe.Slice(x, n)
		for i := 0; i < n; i += BlockLen {
			loopDivide(&to[i], &from[i], &ys[0], min(BlockLen, n-i))
		}
	case math.Float32bits(y)&(1<<23-1) == 0:
		loopScale(dst, x, n, 1/y)
	default:
		loopDivideOne(dst, x, n, y, 1/y)
	}
}

// vectorClip is [clip] with SIMD instructions, if there are any for T; it reports whether
// it did it.
func vectorClip[T tensor.Number](dst, x, lo, hi []T, low, high bool) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	if !low && !high {
		return false
	}
	u := tensor.AsFloat32(x)
	d, l, h := tensor.AsFloat32(dst)[:len(u)], tensor.AsFloat32(lo), tensor.AsFloat32(hi)
	if low {
		l = l[:len(u)]
	}
	if high {
		h = h[:len(u)]
	}
	for i := 0; i < len(u); i += Stretch {
		switch n := min(Stretch, len(u)-i); {
		case low && high:
			loopClip(&d[i], &u[i], &l[i], &h[i], n)
		case low:
			loopMaximum(&d[i], &u[i], &l[i], n)
		default:
			loopMinimum(&d[i], &u[i], &h[i], n)
		}
	}
	return true
}

// vectorClipOne limits x to lo and hi with SIMD instructions, if there are any for these
// limits; it reports whether it did it.
func vectorClipOne(dst, x []float32, lo, hi float32) bool {
	if tensor.Path == tensor.PathGo || lo != lo || hi != hi || hi == 0 && math.Signbit(float64(hi)) {
		return false
	}
	zero := float32(math.Copysign(0, -1))
	if lo == 0 && !math.Signbit(float64(lo)) {
		zero = 0
	}
	for i := 0; i < len(x); i += Stretch {
		loopClipOne(&dst[i], &x[i], min(Stretch, len(x)-i), lo, hi, zero)
	}
	return true
}

// VectorNormalise sets y to (x-mean)·factor + shift with SIMD instructions, if there are
// any for T; it reports whether it did it.
func VectorNormalise[T tensor.Float](y, x []T, mean, factor, shift T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	d, u := tensor.AsFloat32(y)[:len(x)], tensor.AsFloat32(x)
	for i := 0; i < len(u); i += Stretch {
		n := min(Stretch, len(u)-i)
		loopNormalise(&d[i], &u[i], n, float32(mean), float32(factor), float32(shift))
	}
	return true
}

// halfLanes is the most elements that the loops over half precision convert at
// a time.
const halfLanes = 16

// vectorDecode is [num.DecodeFloat16] with SIMD instructions, if there are any; it reports
// whether it did it.
func vectorDecode(dst []float32, src []num.Float16) bool {
	if tensor.Path == tensor.PathGo {
		return false
	}
	dst = dst[:len(src)]
	for len(src) >= halfLanes {
		n := min(Stretch, len(src)&^(halfLanes-1))
		decode(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	if len(src) > 0 {
		var x [halfLanes]num.Float16
		var y [halfLanes]float32
		copy(x[:], src)
		decode(&y[0], &x[0], halfLanes)
		copy(dst, y[:])
	}
	return true
}

// decode converts n elements, a multiple of halfLanes.
func decode(dst *float32, src *num.Float16, n int) {
	if tensor.Path == tensor.PathAVX512 {
		widenAVX512(dst, (*uint16)(src), n/16)
	} else {
		widenAVX2(dst, (*uint16)(src), n/8)
	}
}

// vectorEncode is [num.EncodeFloat16] with SIMD instructions, if there are any; it reports
// whether it did it.
func vectorEncode(dst []num.Float16, src []float32) bool {
	if tensor.Path == tensor.PathGo {
		return false
	}
	dst = dst[:len(src)]
	for len(src) >= halfLanes {
		n := min(Stretch, len(src)&^(halfLanes-1))
		encode(&dst[0], &src[0], n)
		dst, src = dst[n:], src[n:]
	}
	if len(src) > 0 {
		var x [halfLanes]float32
		var y [halfLanes]num.Float16
		copy(x[:], src)
		encode(&y[0], &x[0], halfLanes)
		copy(dst, y[:])
	}
	return true
}

// encode converts n elements, a multiple of halfLanes.
func encode(dst *num.Float16, src *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		narrowAVX512((*uint16)(dst), src, n/16)
	} else {
		narrowAVX2((*uint16)(dst), src, n/8)
	}
}
