package vec

import (
	"bytes"
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindBinary(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Binary)
	if o.Fn == graph.Pow {
		return bindPow(in, out)
	}
	var fn compute
	tmp, cost := 0, 1
	switch t := in[0].DType; t {
	case graph.Bool:
		fn = binaryOf(logical(o.Fn))
	case graph.I8:
		fn = integerBinary[int8](o.Fn)
	case graph.U8:
		fn = integerBinary[uint8](o.Fn)
	case graph.I16:
		fn = integerBinary[int16](o.Fn)
	case graph.U16:
		fn = integerBinary[uint16](o.Fn)
	case graph.I32:
		fn = integerBinary[int32](o.Fn)
	case graph.U32:
		fn = integerBinary[uint32](o.Fn)
	case graph.I64:
		fn = integerBinary[int64](o.Fn)
	case graph.U64:
		fn = integerBinary[uint64](o.Fn)
	case graph.F32:
		fn = floatBinary[float32](o.Fn)
	case graph.F64:
		fn = floatBinary[float64](o.Fn)
	case graph.F16, graph.BF16:
		if !o.Fn.Compares() {
			return bindPointwise(&graph.Pointwise{Fns: []string{string(o.Fn)}, Args: []int64{0, 1}, Alpha: []float64{0}, Beta: []float64{0}}, t, in, out)
		}
		tmp, cost = 2*BlockLen*4, 8
		fn = halfComparison(t, o.Fn)
	}
	if fn == nil {
		return nil, tensor.NoKernel(o.Fn, in[0].DType)
	}
	k, err := newElementwise(out[0], in, cost, tmp, fn)
	if err == nil && in[0].DType == graph.F32 {
		k.useOne(o.Fn)
	}
	return k, err
}

// useOne makes rows that meet one number of the other operand be computed with
// that, if there is a loop for it.
func (k *elementwise) useOne(fn graph.BinaryFn) {
	ones := func(i int) bool {
		return k.operands[i].mode == single || k.operands[i].mode == spread && k.loop.Stride(i) == 0 && k.loop.Inner >= longOnes
	}
	rows := func(i int) bool {
		return k.operands[i].mode == whole || k.operands[i].mode == spread && k.loop.Stride(i) == 1
	}
	switch {
	case rows(0) && ones(1):
		k.one = 1
	case rows(1) && ones(0) && (fn == graph.Add || fn == graph.Mul || fn == graph.Max || fn == graph.Min):
	default:
		return
	}
	k.withOne = vectorWithOne(fn)
}

// longOnes is how many elements a row has at least that is computed with one
// number.
const longOnes = 64

// binaryOf makes a compute of a loop over elements; nil of nil.
func binaryOf[T, R any](fn func(dst []R, a, b []T)) compute {
	if fn == nil {
		return nil
	}
	return func(dst, a, b, _, _ []byte) { fn(tensor.View[R](dst), tensor.View[T](a), tensor.View[T](b)) }
}

func integerBinary[T tensor.Integer](fn graph.BinaryFn) compute {
	if fn == graph.Div {
		return binaryOf(divideInt[T])
	}
	if f := Arithmetic[T](fn); f != nil {
		return binaryOf(f)
	}
	return binaryOf(fastComparison[T](fn))
}

func floatBinary[T tensor.Float](fn graph.BinaryFn) compute {
	if f := FloatBinary[T](fn); f != nil {
		return binaryOf(f)
	}
	return binaryOf(fastComparison[T](fn))
}

// FloatBinary returns the loop of a function of two floats that gives one, vectorised where there is such a loop; nil for
// comparisons. dst may be an operand.
func FloatBinary[T tensor.Float](fn graph.BinaryFn) func(dst, a, b []T) {
	if f := VectorBinary[T](fn); f != nil {
		return f
	}
	if fn == graph.Div {
		return divide[T]
	}
	return Arithmetic[T](fn)
}

// halfComparison compares half-precision operands as float32.
func halfComparison(t graph.DType, fn graph.BinaryFn) compute {
	compare := fastComparison[float32](fn)
	return func(dst, a, b, _, tmp []byte) {
		compare(dst, widenBlock(t, tmp, 0, a), widenBlock(t, tmp, 1, b))
	}
}

// Arithmetic returns the loop of a function that all numbers share.
func Arithmetic[T tensor.Number](fn graph.BinaryFn) func(dst, a, b []T) {
	switch fn {
	case graph.Add:
		return Add[T]
	case graph.Sub:
		return subtract[T]
	case graph.Mul:
		return Multiply[T]
	case graph.Max:
		return Maximum[T]
	case graph.Min:
		return Minimum[T]
	case graph.PRelu:
		return prelu[T]
	}
	return nil
}

// fastComparison is comparison, with SIMD instructions if there are any for T.
func fastComparison[T tensor.Number](fn graph.BinaryFn) func(dst []uint8, a, b []T) {
	if f := vectorComparison[T](fn); f != nil {
		return f
	}
	return comparison[T](fn)
}

// comparison returns the loop of a function whose result is Bool.
func comparison[T tensor.Number](fn graph.BinaryFn) func(dst []uint8, a, b []T) {
	switch fn {
	case graph.Equal:
		return equal[T]
	case graph.Less:
		return less[T]
	case graph.LessEqual:
		return lessEqual[T]
	case graph.Greater:
		return func(dst []uint8, a, b []T) { less(dst, b, a) }
	case graph.GreaterEqual:
		return func(dst []uint8, a, b []T) { lessEqual(dst, b, a) }
	}
	return nil
}

// logical returns the loop of a function of Bool. Any byte but 0 is true.
func logical(fn graph.BinaryFn) func(dst, a, b []uint8) {
	switch fn {
	case graph.And:
		return func(dst, a, b []uint8) {
			for i := range dst {
				dst[i] = FromBool(a[i] != 0) & FromBool(b[i] != 0)
			}
		}
	case graph.Or:
		return func(dst, a, b []uint8) {
			for i := range dst {
				dst[i] = FromBool(a[i]|b[i] != 0)
			}
		}
	case graph.Xor:
		return func(dst, a, b []uint8) {
			for i := range dst {
				dst[i] = FromBool(a[i] != 0) ^ FromBool(b[i] != 0)
			}
		}
	case graph.Equal:
		return func(dst, a, b []uint8) {
			for i := range dst {
				dst[i] = FromBool((a[i] != 0) == (b[i] != 0))
			}
		}
	}
	return nil
}

// Add sets dst to a + b.
func Add[T tensor.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func subtract[T tensor.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// Multiply sets dst to a · b.
func Multiply[T tensor.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func divide[T tensor.Float](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func divideInt[T tensor.Integer](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		if b[i] == 0 {
			dst[i] = 0
		} else {
			dst[i] = a[i] / b[i]
		}
	}
}

// Maximum sets dst to the larger of a and b, NaN if one is.
func Maximum[T tensor.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = max(a[i], b[i])
	}
}

// Minimum sets dst to the smaller of a and b, NaN if one is.
func Minimum[T tensor.Number](dst, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = min(a[i], b[i])
	}
}

func equal[T tensor.Number](dst []uint8, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = FromBool(a[i] == b[i])
	}
}

func less[T tensor.Number](dst []uint8, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = FromBool(a[i] < b[i])
	}
}

func lessEqual[T tensor.Number](dst []uint8, a, b []T) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = FromBool(a[i] <= b[i])
	}
}

// bindPow binds Pow. Integers to integer powers are computed exactly, modulo
// the size of the base; everything else in float64 and cast to the base's
// type like Cast does, or with SIMD instructions.
func bindPow(in, out []graph.TensorType) (tensor.Kernel, error) {
	base, exponent := in[0].DType, in[1].DType
	for _, t := range []graph.DType{base, exponent} {
		if !t.IsInteger() && !t.IsFloat() {
			return nil, tensor.NoKernel(graph.Pow, t)
		}
	}
	wide := graph.F64
	if base.IsInteger() && exponent.IsInteger() {
		wide = graph.I64
	}
	var times func(dst, a, b []float32)
	if base == graph.F32 {
		if times = VectorBinary[float32](graph.Mul); times == nil {
			times = Multiply[float32]
		}
	}
	cost := 30
	powers := vectorPow()
	switch {
	case base == graph.F32 && exponent == graph.F32 && powers != nil:
		cost = 6
	case base.IsFloat() && base.Size() == 2 && exponent == base && powers != nil:
		return newElementwise(out[0], in, cost/2, 2*BlockLen*4, func(dst, a, b, _, tmp []byte) {
			x := widenBlock(base, tmp, 0, a)
			powers(x, x, widenBlock(base, tmp, 1, b))
			EncodeHalf(base, dst, x)
		})
	default:
		powers = nil
	}
	fn := func(dst, a, b, _, tmp []byte) {
		// Operands of one element, too, come as blocks of equal ones.
		if size := exponent.Size(); times != nil && len(b) > 0 && bytes.Equal(b[size:], b[:len(b)-size]) &&
			powByProducts(tensor.F32s(dst), tensor.F32s(a), tensor.F32s(tmp), b[:size], exponent, times) {
			return
		}
		if powers != nil {
			powers(tensor.F32s(dst), tensor.F32s(a), tensor.F32s(b))
			return
		}
		n := len(a) / base.Size()
		x, y := tmp[:n*8], tmp[BlockLen*8:][:n*8]
		CastBlock(x, wide, a, base)
		CastBlock(y, wide, b, exponent)
		if wide == graph.F64 {
			pow(tensor.F64s(x), tensor.F64s(y))
		} else {
			powInt(tensor.View[int64](x), tensor.View[int64](y), base.IsSigned(), exponent.IsSigned())
		}
		CastBlock(dst, base, x, wide)
	}
	return newElementwise(out[0], in, cost, 2*BlockLen*8, fn)
}

// powByProducts raises x to the power of y, one number of type t, if that is 2,
// 3 or, with SIMD instructions, ½; it reports whether it did it. tmp is as long as x, dst may be x.
func powByProducts(dst, x, tmp []float32, y []byte, t graph.DType, times func(dst, a, b []float32)) bool {
	var e [1]float64
	CastBlock(tensor.RawBytes(e[:]), graph.F64, y, t)
	switch e[0] {
	case 2:
		times(dst, x, x)
	case 3:
		tmp = tmp[:len(x)]
		times(tmp, x, x)
		times(dst, tmp, x)
	case 0.5:
		return vectorRoot(dst, x)
	default:
		return false
	}
	return true
}

// pow raises x to the power of y, in place.
func pow(x, y []float64) {
	y = y[:len(x)]
	for i, v := range x {
		switch y[i] {
		case 2:
			x[i] = v * v
		case 3:
			x[i] = v * v * v
		default:
			x[i] = math.Pow(v, y[i])
		}
	}
}

// powInt raises x to the power of y modulo 2^64, in place. The low bits do
// not depend on the higher ones, so it serves the narrow types as well. A
// negative power is truncated toward zero; of 0 it is 0, like a division by
// zero.
func powInt(x, y []int64, signedBase, signedExponent bool) {
	y = y[:len(x)]
	for i, v := range x {
		n := uint64(y[i])
		if y[i] < 0 && signedExponent {
			switch {
			case v == 1:
			case v == -1 && signedBase:
				n &= 1
			default:
				v, n = 0, 1
			}
		}
		r := int64(1)
		for ; n != 0; n >>= 1 {
			if n&1 != 0 {
				r *= v
			}
			v *= v
		}
		x[i] = r
	}
}
