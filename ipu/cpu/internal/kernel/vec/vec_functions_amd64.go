package vec

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// unaryLoops are the loops of functions without parameters, with vectors of 512
// and of 256 bits. docs/kernels.md has their errors.
var unaryLoops = map[graph.UnaryFn][2]unaryLoop{
	graph.Relu:       {reluAVX512, reluAVX2},
	graph.Exp:        {expAVX512, expAVX2},
	graph.Log:        {logAVX512, logAVX2},
	graph.Sigmoid:    {sigmoidAVX512, sigmoidAVX2},
	graph.Tanh:       {tanhAVX512, tanhAVX2},
	graph.Erf:        {erfAVX512, erfAVX2},
	graph.Softplus:   {softplusAVX512, softplusAVX2},
	graph.Mish:       {mishAVX512, mishAVX2},
	graph.Gelu:       {geluAVX512, geluAVX2},
	graph.GeluTanh:   {geluTanhAVX512, geluTanhAVX2},
	graph.Abs:        {absAVX512, absAVX2},
	graph.Neg:        {negateAVX512, negateAVX2},
	graph.Sign:       {signAVX512, signAVX2},
	graph.Round:      {roundAVX512, roundAVX2},
	graph.Floor:      {floorAVX512, floorAVX2},
	graph.Ceil:       {ceilAVX512, ceilAVX2},
	graph.Sqrt:       {sqrtAVX512, sqrtAVX2},
	graph.Reciprocal: {reciprocalAVX512, reciprocalAVX2},
	graph.Softsign:   {softsignAVX512, softsignAVX2},
	graph.Atan:       {atanAVX512, atanAVX2},
	graph.Asin:       {asinAVX512, asinAVX2},
	graph.Acos:       {acosAVX512, acosAVX2},
	graph.Sinh:       {sinhAVX512, sinhAVX2},
	graph.Cosh:       {coshAVX512, coshAVX2},
	graph.HardSwish:  {hardSwishAVX512, hardSwishAVX2},
}

// vectorUnary returns the loop of a function with SIMD instructions, nil if there is none.
func vectorUnary(o *graph.Unary) func(dst, x []float32) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	if l, ok := unaryLoops[o.Fn]; ok {
		return Pick(l[0], l[1]).over()
	}
	alpha, beta := float32(o.Alpha), float32(o.Beta)
	switch o.Fn {
	case graph.Sin:
		return turns(Pick[unaryLoop](sinAVX512, sinAVX2), math.Sin)
	case graph.Cos:
		return turns(Pick[unaryLoop](cosAVX512, cosAVX2), math.Cos)
	case graph.LeakyRelu:
		return Pick[scaledLoop](leakyReluAVX512, leakyReluAVX2).with(alpha)
	case graph.ThresholdedRelu:
		return Pick[scaledLoop](thresholdedReluAVX512, thresholdedReluAVX2).with(alpha)
	case graph.Swish:
		return Pick[scaledLoop](swishAVX512, swishAVX2).with(alpha)
	case graph.HardSigmoid:
		f := Pick(hardSigmoidAVX512, hardSigmoidAVX2)
		return unaryLoop(func(dst, x *float32, n int) { f(dst, x, n, alpha, beta) }).over()
	case graph.Elu:
		return vectorElu(alpha, 1, 1)
	case graph.Selu:
		return vectorElu(alpha, 1, beta)
	case graph.Celu:
		if alpha > 0 {
			return vectorElu(alpha, 1/alpha, 1)
		}
	}
	return nil
}

// turnTop is the greatest angle of which the loops know what is left after whole
// turns.
const turnTop = 1 << 20

// turns returns f as a function of slices that leaves greater angles than the
// loop can to exact.
func turns(f unaryLoop, exact func(float64) float64) func(dst, x []float32) {
	return func(dst, x []float32) {
		dst = dst[:len(x)]
		for i := 0; i < len(x); i += BlockLen {
			x, dst := x[i:min(i+BlockLen, len(x))], dst[i:]
			high, low := LoopMost(&x[0], len(x)), loopLeast(&x[0], len(x))
			if high <= turnTop && low >= -turnTop {
				f(&dst[0], &x[0], len(x))
				continue
			}
			// dst may be x.
			for j := range x {
				if v := x[j]; v <= turnTop && v >= -turnTop {
					f(&dst[j], &x[j], 1)
				} else {
					dst[j] = float32(exact(float64(v)))
				}
			}
		}
	}
}

// vectorRoot sets dst to the square roots of x, of -0 to +0 and of -Inf to +Inf,
// with SIMD instructions, if there are any; it reports whether it did it.
func vectorRoot(dst, x []float32) bool {
	if tensor.Path == tensor.PathGo {
		return false
	}
	dst = dst[:len(x)]
	for i := 0; i < len(x); i += Stretch {
		loopRoot(&dst[i], &x[i], min(Stretch, len(x)-i))
	}
	return true
}

// scaledLoop is a loop in assembly with a parameter.
type scaledLoop func(dst, x *float32, n int, alpha float32)

// with returns f with its parameter as a function of slices.
func (f scaledLoop) with(alpha float32) func(dst, x []float32) {
	return unaryLoop(func(dst, x *float32, n int) { f(dst, x, n, alpha) }).over()
}

// vectorElu returns the loop of all·x, for negative x all·scale·(exp(rate·x)-1).
func vectorElu(scale, rate, all float32) func(dst, x []float32) {
	f := Pick(eluAVX512, eluAVX2)
	return unaryLoop(func(dst, x *float32, n int) { f(dst, x, n, scale, rate, all) }).over()
}

// vectorPow returns the loop of powers with SIMD instructions, nil if there is none.
func vectorPow() func(dst, x, y []float32) {
	if tensor.Path == tensor.PathGo {
		return nil
	}
	return Pick[binaryLoop](powAVX512, powAVX2).over()
}
