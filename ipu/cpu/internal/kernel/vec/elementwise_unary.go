package vec

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindUnary(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Unary)
	var fn compute
	tmp, cost := 0, 1
	switch t := in[0].DType; t {
	case graph.Bool:
		if o.Fn == graph.Not {
			fn = unaryOf(not)
		}
	case graph.I8:
		fn = signedUnary[int8](o.Fn)
	case graph.I16:
		fn = signedUnary[int16](o.Fn)
	case graph.I32:
		fn = signedUnary[int32](o.Fn)
	case graph.I64:
		fn = signedUnary[int64](o.Fn)
	case graph.U8:
		fn = unsignedUnary[uint8](o.Fn)
	case graph.U16:
		fn = unsignedUnary[uint16](o.Fn)
	case graph.U32:
		fn = unsignedUnary[uint32](o.Fn)
	case graph.U64:
		fn = unsignedUnary[uint64](o.Fn)
	case graph.F64:
		fn = unaryOf(unaryF64(o))
		cost = unaryCost(o.Fn)
	case graph.F32:
		fn = unaryOf(UnaryF32(o))
		cost = unaryCost(o.Fn)
		if vectorUnary(o) != nil {
			cost = 1 + cost/5
		}
	case graph.F16, graph.BF16:
		if f := UnaryF32(o); f != nil {
			tmp = BlockLen * 4
			fn = func(dst, a, _, _, tmp []byte) {
				x := widenBlock(t, tmp, 0, a)
				f(x, x)
				EncodeHalf(t, dst, x)
			}
		}
		cost = 4 + unaryCost(o.Fn)
	}
	if fn == nil {
		return nil, tensor.NoKernel(o.Fn, in[0].DType)
	}
	return newElementwise(out[0], in, cost, tmp, fn)
}

// unaryOf makes a compute of a loop over elements; nil of nil.
func unaryOf[T any](fn func(dst, x []T)) compute {
	if fn == nil {
		return nil
	}
	return func(dst, a, _, _, _ []byte) { fn(tensor.View[T](dst), tensor.View[T](a)) }
}

// unaryCost is about how many simple operations a function of floats takes.
func unaryCost(fn graph.UnaryFn) int {
	switch fn {
	case graph.Abs, graph.Neg, graph.Sign, graph.Floor, graph.Ceil, graph.Round, graph.Relu, graph.LeakyRelu, graph.HardSigmoid,
		graph.ThresholdedRelu, graph.HardSwish:
		return 1
	case graph.Reciprocal, graph.Sqrt, graph.Softsign:
		return 3
	case graph.Exp, graph.Log, graph.Erf, graph.Tanh, graph.Sigmoid, graph.Softplus, graph.Elu,
		graph.Selu, graph.Celu, graph.Swish, graph.Mish, graph.Gelu, graph.GeluTanh:
		return 5
	default:
		return 30
	}
}

func signedUnary[T tensor.Signed](fn graph.UnaryFn) compute {
	switch fn {
	case graph.Abs:
		return unaryOf(absInt[T])
	case graph.Neg:
		return unaryOf(negate[T])
	case graph.Sign:
		return unaryOf(sign[T])
	case graph.Relu:
		return unaryOf(relu[T])
	}
	return nil
}

func unsignedUnary[T tensor.Unsigned](fn graph.UnaryFn) compute {
	switch fn {
	case graph.Abs:
		return unaryOf(func(dst, x []T) { copy(dst, x) })
	case graph.Sign:
		return unaryOf(sign[T])
	}
	return nil
}

func not(dst, x []uint8) {
	for i, v := range x {
		dst[i] = FromBool(v == 0)
	}
}

// FromBool returns 1 for true.
func FromBool(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

func absInt[T tensor.Signed](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = max(v, -v)
	}
}

func absFloat[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.Abs(float64(v)))
	}
}

func negate[T tensor.Signed | tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = -v
	}
}

// sign gives -1, 0 or 1, and NaN for NaN.
func sign[T tensor.Number](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		switch {
		case v > 0:
			v = 1
		case v < 0:
			v = 0
			v--
		}
		dst[i] = v
	}
}

func relu[T tensor.Number](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = max(v, 0)
	}
}

func reciprocal[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = 1 / v
	}
}

func floor[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.Floor(float64(v)))
	}
}

func ceil[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.Ceil(float64(v)))
	}
}

func round[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.RoundToEven(float64(v)))
	}
}

func sqrt[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = T(math.Sqrt(float64(v)))
	}
}

func hardSigmoid[T tensor.Float](dst, x []T, alpha, beta T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = max(0, min(1, T(alpha*v)+beta))
	}
}

func softsign[T tensor.Float](dst, x []T) {
	dst = dst[:len(x)]
	for i, v := range x {
		dst[i] = v / (1 + T(math.Abs(float64(v))))
	}
}

func leakyReluF32(dst, x []float32, alpha float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		b := math.Float32bits(v)
		mask := uint32(int32(b) >> 31)
		dst[i] = math.Float32frombits(math.Float32bits(alpha*v)&mask | b&^mask)
	}
}

// each applies a function of the math package to every element.
func each[T tensor.Float](fn func(float64) float64) func(dst, x []T) {
	return func(dst, x []T) {
		dst = dst[:len(x)]
		for i, v := range x {
			dst[i] = T(fn(float64(v)))
		}
	}
}

// scalar64 lists functions that have no loop of their own, for F32 only those
// that are missing in unaryF32.
var scalar64 = map[graph.UnaryFn]func(float64) float64{
	graph.Exp: math.Exp, graph.Log: math.Log, graph.Erf: math.Erf,
	graph.Sin: math.Sin, graph.Cos: math.Cos, graph.Tan: math.Tan,
	graph.Asin: math.Asin, graph.Acos: math.Acos, graph.Atan: math.Atan,
	graph.Sinh: math.Sinh, graph.Cosh: math.Cosh, graph.Tanh: math.Tanh,
	graph.Asinh: math.Asinh, graph.Acosh: math.Acosh, graph.Atanh: math.Atanh,
	graph.Sigmoid: Sigmoid64, graph.Softplus: Softplus64,
}

// unaryFloat returns the loops that are the same for both float types.
func unaryFloat[T tensor.Float](o *graph.Unary) func(dst, x []T) {
	switch o.Fn {
	case graph.Abs:
		return absFloat[T]
	case graph.Neg:
		return negate[T]
	case graph.Sign:
		return sign[T]
	case graph.Relu:
		return relu[T]
	case graph.Reciprocal:
		return reciprocal[T]
	case graph.Floor:
		return floor[T]
	case graph.Ceil:
		return ceil[T]
	case graph.Round:
		return round[T]
	case graph.Sqrt:
		return sqrt[T]
	case graph.Softsign:
		return softsign[T]
	case graph.HardSigmoid:
		alpha, beta := T(o.Alpha), T(o.Beta)
		return func(dst, x []T) { hardSigmoid(dst, x, alpha, beta) }
	}
	if fn := scalar64[o.Fn]; fn != nil {
		return each[T](fn)
	}
	return activationFloat[T](o)
}

// FloatUnary returns the loop of a function, vectorised where there is such a loop. dst may be x.
func FloatUnary[T tensor.Float](o *graph.Unary) func(dst, x []T) {
	if f, ok := any(UnaryF32(o)).(func(dst, x []T)); ok {
		return f
	}
	return unaryFloat[T](o)
}

// UnaryF32 returns the loop for a function of float32, vectorised where there is one.
func UnaryF32(o *graph.Unary) func(dst, x []float32) {
	if f := vectorUnary(o); f != nil {
		return f
	}
	switch o.Fn {
	case graph.Exp:
		return ExpF32
	case graph.Log:
		return logF32
	case graph.Erf:
		return erfF32
	case graph.Tanh:
		return TanhF32
	case graph.Sigmoid:
		return sigmoidF32
	case graph.Softplus:
		return softplusF32
	case graph.LeakyRelu:
		alpha := float32(o.Alpha)
		return func(dst, x []float32) { leakyReluF32(dst, x, alpha) }
	}
	if fn := activationF32(o); fn != nil {
		return fn
	}
	return unaryFloat[float32](o)
}

func unaryF64(o *graph.Unary) func(dst, x []float64) {
	switch o.Fn {
	case graph.LeakyRelu:
		return each[float64](func(x float64) float64 {
			if x < 0 {
				return o.Alpha * x
			}
			return x
		})
	case graph.Elu:
		return each[float64](func(x float64) float64 {
			if x < 0 {
				return o.Alpha * math.Expm1(x)
			}
			return x
		})
	}
	return unaryFloat[float64](o)
}
