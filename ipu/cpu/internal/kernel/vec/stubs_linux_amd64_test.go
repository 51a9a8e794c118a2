package vec

import (
	"math"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
)

// TestStubs runs every loop by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Loops(stubs)
	s.Each(func(set kerneltest.Set) {
		stubsGroups(s, set)
		stubsHalf(s, set)
		stubsMoves(s, set)
		stubsFolds(s, set)
		stubsRows(s, set)
	})
	s.Finish()
}

func one(wide, narrow any, low, high float64, want func(x float64) float64) kerneltest.Stub {
	return kerneltest.Stub{Wide: wide, Narrow: narrow, Low: low, High: high, Want: func(x []float64) float64 { return want(x[0]) }}
}

func two(wide, narrow any, low, high float64, want func(x, y float64) float64) kerneltest.Stub {
	return kerneltest.Stub{Wide: wide, Narrow: narrow, Low: low, High: high, Want: func(x []float64) float64 { return want(x[0], x[1]) }}
}

func withScalar(wide, narrow any, scalar float32, want func(x, y float64) float64) kerneltest.Stub {
	return kerneltest.Stub{Wide: wide, Narrow: narrow, Low: -3, High: 3, Scalars: []float32{scalar}, Want: func(x []float64) float64 { return want(x[0], float64(scalar)) }}
}

func plus(x, y float64) float64 { return x + y }

func plainSigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func plainSoftplus(x float64) float64 { return math.Log1p(math.Exp(x)) }

// kept is x, or other below a limit.
func kept(x, limit, other float64) float64 {
	if x < limit {
		return other
	}
	return x
}

// stubs are the loops over elements by operation.
var stubs = map[string]kerneltest.Stub{
	"add":        two(addAVX512, addAVX2, -9, 9, plus),
	"subtract":   two(subtractAVX512, subtractAVX2, -9, 9, func(x, y float64) float64 { return x - y }),
	"multiply":   two(multiplyAVX512, multiplyAVX2, -9, 9, func(x, y float64) float64 { return x * y }),
	"divide":     two(divideAVX512, divideAVX2, 1, 9, func(x, y float64) float64 { return x / y }),
	"maximum":    two(maximumAVX512, maximumAVX2, -9, 9, math.Max),
	"minimum":    two(minimumAVX512, minimumAVX2, -9, 9, math.Min),
	"pow":        two(powAVX512, powAVX2, 0.1, 3, math.Pow),
	"prelu":      two(preluAVX512, preluAVX2, -3, 3, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"relu":       one(reluAVX512, reluAVX2, -3, 3, func(x float64) float64 { return max(x, 0) }),
	"addOne":     withScalar(addOneAVX512, addOneAVX2, 1.5, plus),
	"maximumOne": withScalar(maximumOneAVX512, maximumOneAVX2, 1.5, math.Max),
	"minimumOne": withScalar(minimumOneAVX512, minimumOneAVX2, 1.5, math.Min),
	"preluOne":   withScalar(preluOneAVX512, preluOneAVX2, 0.25, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"scale":      withScalar(scaleAVX512, scaleAVX2, 1.5, func(x, y float64) float64 { return x * y }),
	"leakyRelu":  withScalar(leakyReluAVX512, leakyReluAVX2, 0.25, func(x, y float64) float64 { return kept(x, 0, x*y) }),
	"thresholdedRelu": withScalar(thresholdedReluAVX512, thresholdedReluAVX2, 0.5, func(x, y float64) float64 {
		return kept(x, y, 0)
	}),
	"swish":       withScalar(swishAVX512, swishAVX2, 1.5, func(x, y float64) float64 { return x * plainSigmoid(x*y) }),
	"exp":         one(expAVX512, expAVX2, -9, 9, math.Exp),
	"log":         one(logAVX512, logAVX2, 0.1, 9, math.Log),
	"sigmoid":     one(sigmoidAVX512, sigmoidAVX2, -9, 9, plainSigmoid),
	"tanh":        one(tanhAVX512, tanhAVX2, -9, 9, math.Tanh),
	"erf":         one(erfAVX512, erfAVX2, -4, 4, math.Erf),
	"softplus":    one(softplusAVX512, softplusAVX2, -9, 9, plainSoftplus),
	"mish":        one(mishAVX512, mishAVX2, -9, 9, func(x float64) float64 { return x * math.Tanh(plainSoftplus(x)) }),
	"gelu":        one(geluAVX512, geluAVX2, -4, 4, func(x float64) float64 { return x * (1 + math.Erf(x/math.Sqrt2)) / 2 }),
	"geluTanh":    one(geluTanhAVX512, geluTanhAVX2, -4, 4, func(x float64) float64 { return x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) / 2 }),
	"sin":         one(sinAVX512, sinAVX2, -9, 9, math.Sin),
	"cos":         one(cosAVX512, cosAVX2, -9, 9, math.Cos),
	"atan":        one(atanAVX512, atanAVX2, -9, 9, math.Atan),
	"asin":        one(asinAVX512, asinAVX2, -1, 1, math.Asin),
	"acos":        one(acosAVX512, acosAVX2, -1, 1, math.Acos),
	"sinh":        one(sinhAVX512, sinhAVX2, -3, 3, math.Sinh),
	"cosh":        one(coshAVX512, coshAVX2, -3, 3, math.Cosh),
	"root":        one(rootAVX512, rootAVX2, 0, 9, math.Sqrt),
	"abs":         one(absAVX512, absAVX2, -9, 9, math.Abs),
	"negate":      one(negateAVX512, negateAVX2, -9, 9, func(x float64) float64 { return -x }),
	"sign":        one(signAVX512, signAVX2, -9, 9, func(x float64) float64 { return math.Copysign(1, x) }),
	"round":       one(roundAVX512, roundAVX2, -9, 9, math.RoundToEven),
	"floor":       one(floorAVX512, floorAVX2, -9, 9, math.Floor),
	"ceil":        one(ceilAVX512, ceilAVX2, -9, 9, math.Ceil),
	"sqrt":        one(sqrtAVX512, sqrtAVX2, 0, 9, math.Sqrt),
	"reciprocal":  one(reciprocalAVX512, reciprocalAVX2, 1, 9, func(x float64) float64 { return 1 / x }),
	"softsign":    one(softsignAVX512, softsignAVX2, -9, 9, func(x float64) float64 { return x / (1 + math.Abs(x)) }),
	"hardSwish":   one(hardSwishAVX512, hardSwishAVX2, -9, 9, func(x float64) float64 { return x * min(max(x/6+0.5, 0), 1) }),
	"hardSigmoid": {Wide: hardSigmoidAVX512, Narrow: hardSigmoidAVX2, Low: -9, High: 9, Scalars: []float32{0.25, 0.5}, Want: func(x []float64) float64 { return min(max(x[0]*0.25+0.5, 0), 1) }},
	"divideOne":   {Wide: divideOneAVX512, Narrow: divideOneAVX2, Low: -9, High: 9, Scalars: []float32{4, 0.25}, Want: func(x []float64) float64 { return x[0] / 4 }},
	"lower":       {Wide: lowerAVX512, Narrow: lowerAVX2, Low: -9, High: 9, Scalars: []float32{0.5, 0.25}, Want: func(x []float64) float64 { return x[0] - 0.75 }},
	"elu":         {Wide: eluAVX512, Narrow: eluAVX2, Low: -3, High: 3, Scalars: []float32{0.5, 2, 4}, Want: func(x []float64) float64 { return 4 * kept(x[0], 0, 0.5*math.Expm1(2*x[0])) }},
	"normalise":   {Wide: normaliseAVX512, Narrow: normaliseAVX2, Low: -9, High: 9, Scalars: []float32{0.5, 2, 4}, Want: func(x []float64) float64 { return (x[0]-0.5)*2 + 4 }},
	"clipOne":     {Wide: clipOneAVX512, Narrow: clipOneAVX2, Low: -9, High: 9, Scalars: []float32{-1, 2, 0}, Want: func(x []float64) float64 { return min(max(x[0], -1), 2) }},

	"expDifference": two(expDifferenceAVX512, expDifferenceAVX2, -3, 3, func(x, y float64) float64 { return math.Exp(x - y) }),
	"clip":          {Wide: clipAVX512, Narrow: clipAVX2, Low: -3, High: 3, Want: func(x []float64) float64 { return min(max(x[0], x[1]), x[2]) }},
	"normaliseScale": {Wide: normaliseScaleAVX512, Narrow: normaliseScaleAVX2, Low: -3, High: 3, Scalars: []float32{0.5, 2}, Want: func(x []float64) float64 {
		return (x[0] - 0.5) * 2 * x[1]
	}},
	"normaliseScaleBias": {Wide: normaliseScaleBiasAVX512, Narrow: normaliseScaleBiasAVX2, Low: -3, High: 3, Scalars: []float32{0.5, 2}, Want: func(x []float64) float64 {
		return (x[0]-0.5)*2*x[1] + x[2]
	}},
	"expShift": {Wide: expShiftAVX512, Narrow: expShiftAVX2, Low: -3, High: 3, Scalars: []float32{0.5}, Want: func(x []float64) float64 { return math.Exp(x[0] - 0.5) }, Join: plus},

	"sum":         {Wide: sumAVX512, Narrow: sumAVX2, Low: 0, High: 9, Want: func(x []float64) float64 { return x[0] }, Join: plus},
	"squares":     {Wide: squaresAVX512, Narrow: squaresAVX2, Low: -9, High: 9, Scalars: []float32{0.5}, Want: func(x []float64) float64 { return (x[0] - 0.5) * (x[0] - 0.5) }, Join: plus},
	"longSquares": {Wide: longSquaresAVX512, Narrow: longSquaresAVX2, Low: -9, High: 9, Want: func(x []float64) float64 { return x[0] * x[0] }, Join: plus},
	"most":        {Wide: mostAVX512, Narrow: mostAVX2, Low: -9, High: 9, Want: func(x []float64) float64 { return x[0] }, Join: math.Max},
	"least":       {Wide: leastAVX512, Narrow: leastAVX2, Low: -9, High: 9, Want: func(x []float64) float64 { return x[0] }, Join: math.Min},
	"expShiftSum": {Wide: expShiftSumAVX512, Narrow: expShiftSumAVX2, Low: -3, High: 3, Scalars: []float32{0.5}, Want: func(x []float64) float64 { return math.Exp(x[0] - 0.5) }, Join: plus},
}
