package vec

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// activationF32 returns the loops of the activations that need an exponential,
// for float32; like those of the elementary functions they compute in float64.
// What x is multiplied with is rounded before, so that it may become zero.
func activationF32(o *graph.Unary) func(dst, x []float32) {
	switch o.Fn {
	case graph.Elu:
		return func(dst, x []float32) { scaledEluF32(dst, x, o.Alpha, 1, 1) }
	case graph.Selu:
		return func(dst, x []float32) { scaledEluF32(dst, x, o.Alpha, 1, o.Beta) }
	case graph.Celu:
		if o.Alpha != 0 {
			return func(dst, x []float32) { scaledEluF32(dst, x, o.Alpha, 1/o.Alpha, 1) }
		}
	case graph.Swish:
		return func(dst, x []float32) { swishF32(dst, x, o.Alpha) }
	case graph.Mish:
		return mishF32
	case graph.Gelu:
		return geluF32
	case graph.GeluTanh:
		return geluTanhF32
	}
	return nil
}

// scaledEluF32 computes b·x, or b·a·(exp(r·x)-1) for negative x.
func scaledEluF32(dst, x []float32, a, r, b float64) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(r * y))
		if y < 0 {
			y = a * (s*p + (s - 1))
		}
		dst[i] = float32(b * y)
	}
}

// swishF32 computes x·sigmoid(a·x).
func swishF32(dst, x []float32, a float64) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(-a * y))
		dst[i] = float32(y) * float32(1/(1+s+s*p))
	}
}

// mishF32 computes x·tanh(log(1+e)) with e = exp(x), which is x·q/(q+2) with
// q = e·(e+2).
func mishF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(y))
		e := s + s*p
		q := e * (e + 2)
		dst[i] = float32(y) * float32(q/(q+2))
	}
}

func geluF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		dst[i] = float32(y * 0.5 * (1 + erfOf(y*(1/math.Sqrt2))))
	}
}

// erfOf computes erf of one number as [erfF32] does, with an error of less than
// 2e-8 and none far from 0, where gelu multiplies it with much.
func erfOf(x float64) float64 {
	y := math.Abs(x)
	if y >= erfTop {
		return math.Copysign(1, x)
	}
	cell := int(y * (erfCells / erfTop))
	t := &erfTable[cell&(erfCells-1)]
	d := y - (float64(cell)+0.5)*(erfTop/float64(erfCells))
	e := d * d
	return math.Copysign(y*(t[0]+d*t[1]+e*(t[2]+d*t[3])+e*e*(t[4]+d*t[5]+e*(t[6]+d*t[7]))), x)
}

// geluSlope is √(2/π), the slope of the tanh that stands for an erf.
const geluSlope = 0.7978845608028653558798921198687637369517172623298693

// geluTanhF32 uses ½·(1+tanh z) = sigmoid(2z).
func geluTanhF32(dst, x []float32) {
	dst = dst[:len(x)]
	for i, v := range x {
		y := float64(v)
		p, s := ExpSplit(Limit(-2 * geluSlope * (y + 0.044715*y*y*y)))
		dst[i] = float32(y) * float32(1/(1+s+s*p))
	}
}

// activationFloat returns the loops of the other activations, and those of
// float64.
func activationFloat[T tensor.Float](o *graph.Unary) func(dst, x []T) {
	a, b := o.Alpha, o.Beta
	switch o.Fn {
	case graph.ThresholdedRelu:
		limit := T(a)
		return func(dst, x []T) {
			dst = dst[:len(x)]
			for i, v := range x {
				if !(v > limit) && v == v {
					v = 0
				}
				dst[i] = v
			}
		}
	case graph.HardSwish:
		return func(dst, x []T) {
			dst = dst[:len(x)]
			for i, v := range x {
				dst[i] = v * max(0, min(1, v/6+0.5))
			}
		}
	case graph.Selu:
		return each[T](func(x float64) float64 {
			if x < 0 {
				return b * (a * math.Expm1(x))
			}
			return b * x
		})
	case graph.Celu:
		return each[T](func(x float64) float64 {
			if x < 0 {
				return a * math.Expm1(x/a)
			}
			return x
		})
	case graph.Swish:
		return each[T](func(x float64) float64 { return x * Sigmoid64(a*x) })
	case graph.Mish:
		return each[T](func(x float64) float64 { return x * math.Tanh(Softplus64(x)) })
	case graph.Gelu:
		return each[T](func(x float64) float64 { return x * 0.5 * (1 + math.Erf(x/math.Sqrt2)) })
	case graph.GeluTanh:
		return each[T](func(x float64) float64 { return x * Sigmoid64(2*geluSlope*(x+0.044715*x*x*x)) })
	}
	return nil
}

// prelu computes x, or slope·x for negative x.
func prelu[T tensor.Number](dst, x, slope []T) {
	x, slope = x[:len(dst)], slope[:len(dst)]
	for i, v := range x {
		if v < 0 {
			v *= slope[i]
		}
		dst[i] = v
	}
}
