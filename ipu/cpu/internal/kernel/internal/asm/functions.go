package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// The functions of float32 below are evaluated in float32. They return NaN for
// NaN, keep the sign of zero where the function does, and reach the limits of
// the function at ±Inf. docs/kernels.md has their errors.

const (
	signBit = 1 << 31

	// expLow and expHigh are beyond where exp underflows to 0 and overflows
	// to +Inf.
	expLow  = -104
	expHigh = 89

	// nearerZero lets VRANGEPS choose the operand that is nearer to zero.
	nearerZero = 6

	// shifter, added to a number of less than 2^22, rounds it to an integer,
	// which stands in the low bits of the sum, 127 above itself: what a float's
	// exponent is biased by.
	shifter = 3<<22 + 127
)

// Polynomials, from the constant term, that are as near as can be to their
// function in the relative error of the result.
var (
	// expSeries is (exp(r)-1-r)/r² for |r| ≤ ln2/2.
	expSeries = []float32{0.4999999403953552, 0.1666651964187622, 0.04166839271783829, 0.008368751034140587, 0.0013814475387334824}
	// logSeries is (log(1+f)-f+f²/2)/f³ for -1/4 ≤ f ≤ 1/2.
	logSeries = []float32{
		0.33333340287208557, -0.2500016391277313, 0.19999602437019348, -0.16655290126800537, 0.14276278018951416,
		-0.1272793412208557, 0.11700468510389328, -0.09115000069141388, 0.037661850452423096,
	}
	// erfSeries is log(erfc(x))/x for 0 ≤ x ≤ erfTop.
	erfSeries = []float32{
		-1.128379225730896, -0.6366193890571594, -0.10277782380580902, 0.019153021275997162, 0.00016048402176238596,
		-0.0016671225894242525, 0.0006328925956040621, -0.00011765786621253937, 9.258226782549173e-06,
	}
	// sineSeries is (sin(r)/r-1)/r² and cosineSeries (cos(r)-1+r²/2)/r⁴ by r²,
	// for |r| ≤ π/4.
	sineSeries   = []float32{-1.6666654611e-1, 8.3321608736e-3, -1.9515295891e-4}
	cosineSeries = []float32{4.166664568298827e-2, -1.388731625493765e-3, 2.443315711809948e-5}
	// atanhSeries is (atanh(t)/t-1)/t² by t², for t ≤ 1/3.
	atanhSeries = []float32{0.3333320617675781, 0.20010851323604584, 0.1399955153465271, 0.14012306928634644}
)

// Of the functions f(x) below, (f(x)/x-1)/x² by x².
var (
	// atanSeries is for |x| ≤ 1.
	atanSeries = []float32{
		-0.33333298563957214, 0.1999852955341339, -0.14264042675495148, 0.10951543599367142, -0.08403550088405609,
		0.057998981326818466, -0.031259261071681976, 0.010978777892887592, -0.0018121555913239717,
	}
	// asinSeries is for |x| ≤ ½.
	asinSeries = []float32{0.16666752099990845, 0.074953094124794, 0.04546915367245674, 0.02418474294245243, 0.04215838760137558}
	// sinhSeries is for |x| ≤ 1.
	sinhSeries = []float32{0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7822131869470468e-06}
)

// erfTop is where erf is so near to 1 that its float32 is.
const erfTop = 4

// atLeast and atMost limit x; NaN stays NaN.
func (a *asm) atLeast(x vec, limit float32) vec { return a.upper(a.register(a.constant(limit)), x) }
func (a *asm) atMost(x vec, limit float32) vec  { return a.lower(a.register(a.constant(limit)), x) }

// reduce splits y = n·ln2 + r with an integer n and |r| ≤ ln2/2. It returns r,
// n + shifter and n.
func (a *asm) reduce(y vec) (r, n, whole vec) {
	n = a.fma(a.load(a.constant(math.Log2E)), y, a.constant(shifter))
	whole = a.sub(n, a.constant(shifter))
	r = a.fresh(y)
	high := float32(math.Ln2)
	a.fnmaOf(r, whole, a.constant(high))
	a.fnmaOf(r, whole, a.constant(float32(math.Ln2-float64(high))))
	return r, n, whole
}

// power returns 2^n for what reduce returns, if that is a normal number.
func (a *asm) power(n vec) vec {
	v := a.vec()
	a.VPSLLD(operand.U8(23), n, v)
	return v
}

// chain returns the polynomial of x with coefficients c in the fewest
// operations. Each waits for the one before; loops fill the time with other
// vectors.
func (a *asm) chain(x vec, c []float32) vec {
	p := a.load(a.constant(c[len(c)-1]))
	for i := len(c) - 2; i >= 0; i-- {
		p = a.fma(p, x, a.constant(c[i]))
	}
	return p
}

// exp returns exp(x).
func (a *asm) exp(x vec) vec {
	y := x
	if !a.wide() {
		y = a.atMost(a.atLeast(x, expLow), expHigh)
	}
	r, n, whole := a.reduce(y)
	if a.wide() {
		// Far beyond where exp is 0 or +Inf, r is not what it should be, and
		// NaN for infinities. Any number that is not too large will do: its
		// scaling by whole decides.
		a.VRANGEPS(operand.U8(nearerZero), a.register(a.constant(1)), r, r)
	}
	e := a.fma(a.chain(r, expSeries), r, a.constant(1))
	e = a.fma(e, r, a.constant(1))
	if a.wide() {
		a.VSCALEFPS(whole, e, e)
		return e
	}
	// Processors take long for results below the normal numbers; of masked
	// elements there may be many.
	enough := a.vec()
	a.VCMPPS(operand.U8(notLess), a.constant(expLow), x, enough)
	e = a.and(e, enough)
	// In two steps, for 2^n may be below or above all normal numbers.
	half, rest := a.vec(), a.vec()
	a.VPSUBD(a.bits(math.Float32bits(shifter)), n, rest)
	a.VPSRAD(operand.U8(1), rest, half)
	a.VPSUBD(half, rest, rest)
	for _, p := range []vec{half, rest} {
		a.VPADDD(a.bits(127), p, p)
		a.VPSLLD(operand.U8(23), p, p)
		e = a.mul(e, p)
	}
	return e
}

// expm1 returns exp(y)-1 for y between -80 and 0, and without losing small
// results.
func (a *asm) expm1(y vec) vec {
	r, n, _ := a.reduce(y)
	p := a.chain(r, expSeries)
	p = a.fma(p, a.mul(r, r), r)
	s := a.power(n)
	return a.fma(p, s, a.sub(s, a.constant(1)))
}

// magnitude returns |x|, or -|x|.
func (a *asm) magnitude(x vec, negative bool) vec {
	if negative {
		return a.or(x, a.bits(signBit))
	}
	return a.and(x, a.bits(signBit-1))
}

// signed returns |x| with the sign of y.
func (a *asm) signed(x, y vec) vec {
	if a.wide() {
		v := a.load(a.bits(signBit))
		a.VPTERNLOGD(operand.U8(0xca), x, y, v)
		return v
	}
	return a.or(a.and(x, a.bits(signBit-1)), a.and(y, a.bits(signBit)))
}

// negative returns yes in the lanes in which x has its sign bit set, and no in
// the others.
func (a *asm) negative(x, yes, no vec) vec {
	v := a.vec()
	if a.wide() {
		k := a.K()
		a.VPMOVD2M(x, k)
		a.VBLENDMPS(yes, no, k, v)
		return v
	}
	a.VBLENDVPS(x, yes, no, v)
	return v
}

// sigmoid returns 1/(1+exp(-x)), which for negative x is z/(1+z), z = exp(x).
func (a *asm) sigmoid(x vec) vec {
	z := a.exp(a.magnitude(x, true))
	one := a.load(a.constant(1))
	return a.div(a.negative(x, z, one), a.add(z, one))
}

// tanh returns m/(m+2), m = exp(-2|x|)-1, with the sign of x.
func (a *asm) tanh(x vec) vec {
	y := a.magnitude(x, true)
	m := a.expm1(a.atLeast(a.add(y, y), -20))
	return a.signed(a.div(m, a.add(m, a.constant(2))), x)
}

// erfcLog returns log(erfc(y)) for y ≥ 0; beyond erfTop it only falls.
func (a *asm) erfcLog(y vec) vec { return a.mul(a.chain(a.atMost(y, erfTop), erfSeries), y) }

func (a *asm) erf(x vec) vec {
	y := a.atMost(a.magnitude(x, false), erfTop)
	return a.signed(a.expm1(a.mul(a.chain(y, erfSeries), y)), x)
}

// log splits x = m·2^k with m from 3/4 to 3/2.
func (a *asm) log(x vec) vec {
	var f, k, ok vec
	if a.wide() {
		// 0 gives k = -Inf, +Inf k = +Inf and below 0 m = NaN, so that the sum
		// below is what the logarithm should be.
		f, k = a.vec(), a.vec()
		a.VGETMANTPS(operand.U8(0xf), x, f)
		a.VGETEXPPS(x, k)
		halved := a.K()
		one := a.register(a.constant(1))
		a.VCMPPS(operand.U8(less), one, f, halved)
		a.VADDPS(one, k, halved, k)
	} else {
		// Numbers below the normal ones are scaled by 2^23 first.
		small := a.load(a.constant(0x1p-126))
		scale := a.load(a.constant(0x1p23))
		ok = a.choose(less, x, small, a.mul(x, scale), x)
		const low = 0x3f400000 // bits of 3/4
		n := a.vec()
		a.VPSUBD(a.bits(low), ok, n)
		f = a.vec()
		a.VPAND(a.bits(1<<23-1), n, f)
		a.VPADDD(a.bits(low), f, f)
		k = a.vec()
		a.VPSRAD(operand.U8(23), n, k)
		a.VCVTDQ2PS(k, k)
		less23 := a.sub(k, a.constant(23))
		k = a.choose(less, x, small, less23, k)
	}
	f = a.sub(f, a.constant(1))
	square := a.mul(f, f)
	p := a.chain(f, logSeries)
	p = a.mul(p, f)
	p = a.sub(p, a.constant(0.5))
	high := math.Float32frombits(math.Float32bits(math.Ln2) - 1)
	p = a.mul(p, square)
	a.fmaOf(p, k, a.constant(float32(math.Ln2-float64(high))))
	p = a.add(p, f)
	a.fmaOf(p, k, a.constant(high))
	if a.wide() {
		return p
	}
	// Zero, negative numbers, +Inf and NaN.
	zero := a.vec()
	a.zero(zero)
	top := a.load(a.constant(float32(math.Inf(1))))
	p = a.choose(equal, x, top, x, p)
	p = a.choose(notLess, x, zero, p, a.load(a.bits(quietNaN)))
	p = a.choose(equal, x, zero, a.load(a.constant(float32(math.Inf(-1)))), p)
	return a.choose(unordered, x, x, x, p)
}

// quietNaN is the bits of a NaN.
const quietNaN = 0x7fc00000

// softplus returns log(1+exp(x)) = max(x,0) + 2·atanh(t), t = z/(2+z) with
// z = exp(-|x|).
func (a *asm) softplus(x vec) vec {
	z := a.exp(a.magnitude(x, true))
	t := a.div(z, a.add(z, a.constant(2)))
	u := a.mul(t, t)
	t = a.add(t, t)
	p := a.fma(a.mul(a.chain(u, atanhSeries), u), t, t)
	zero := a.vec()
	a.zero(zero)
	return a.add(p, a.upper(zero, x))
}

// elu returns b·x, for negative x b·s·(exp(r·x)-1).
func (a *asm) elu(x, s, r, b vec) vec {
	zero := a.vec()
	a.zero(zero)
	y := a.atLeast(a.lower(zero, a.mul(x, r)), -20)
	return a.mul(a.choose(less, x, zero, a.mul(a.expm1(y), s), x), b)
}

// mish returns x·q/(q+2), q = e·(e+2), e = exp(x).
func (a *asm) mish(x vec) vec {
	e := a.exp(a.atMost(x, 20))
	q := a.mul(e, a.add(e, a.constant(2)))
	return a.mul(a.div(q, a.add(q, a.constant(2))), x)
}

// gelu returns x·erfc(-x/√2)/2.
func (a *asm) gelu(x vec) vec {
	h := a.exp(a.erfcLog(a.mul(a.magnitude(x, false), a.constant(math.Sqrt2/2))))
	h = a.mul(h, a.constant(0.5))
	return a.mul(a.negative(x, h, a.sub(a.load(a.constant(1)), h)), x)
}

// geluTanh returns x·sigmoid(2·√(2/π)·(x+0.044715·x³)).
func (a *asm) geluTanh(x vec) vec {
	const slope = 0.7978845608028653558798921198687637369517172623298693
	u := a.mul(x, x)
	u = a.fma(u, a.load(a.constant(2*slope*0.044715)), a.constant(2*slope))
	return a.mul(a.sigmoid(a.mul(u, x)), x)
}

// root returns x to the power of ½: unlike a square root it is +0 of -0 and +Inf
// of -Inf.
func (a *asm) root(x vec) vec {
	zero, v := a.vec(), a.vec()
	a.zero(zero)
	a.VSQRTPS(a.add(x, zero), v)
	infinity := float32(math.Inf(1))
	return a.choose(equal, x, a.register(a.constant(-infinity)), a.load(a.constant(infinity)), v)
}

// rounded returns x rounded: with mode 0 to nearest even, 1 down, 2 up.
func (a *asm) rounded(x vec, mode int) vec {
	v := a.vec()
	if a.wide() {
		a.VRNDSCALEPS(operand.U8(8+mode), x, v)
	} else {
		a.VROUNDPS(operand.U8(8+mode), x, v)
	}
	return v
}

// sign returns 1 or -1, and x itself if that is neither positive nor negative.
func (a *asm) sign(x vec) vec {
	zero := a.vec()
	a.zero(zero)
	v := a.choose(less, x, zero, a.load(a.constant(-1)), x)
	return a.choose(greater, x, zero, a.load(a.constant(1)), v)
}

// fraction returns x limited to 0 to 1.
func (a *asm) fraction(x vec) vec {
	zero := a.vec()
	a.zero(zero)
	return a.keep(notLessEqual, a.atMost(x, 1), zero)
}

// one is a loop's body that applies f to the first operand.
func one(f func(a *asm, x vec) vec) func(a *asm, x, s []vec) vec {
	return func(a *asm, x, _ []vec) vec { return f(a, x[0]) }
}

// writeFunctions writes the loops of functions of one element.
func writeFunctions(a *asm) {
	unary := []string{"x"}
	for _, l := range []loop{
		{name: "exp", slices: unary, body: one((*asm).exp)},
		{name: "log", slices: unary, body: one((*asm).log)},
		{name: "sigmoid", slices: unary, body: one((*asm).sigmoid)},
		{name: "tanh", slices: unary, body: one((*asm).tanh)},
		{name: "erf", slices: unary, body: one((*asm).erf)},
		{name: "softplus", slices: unary, body: one((*asm).softplus)},
		{name: "mish", slices: unary, body: one((*asm).mish)},
		{name: "gelu", slices: unary, body: one((*asm).gelu)},
		{name: "geluTanh", slices: unary, body: one((*asm).geluTanh)},
		{name: "sin", slices: unary, body: one(func(a *asm, x vec) vec { return a.sine(x, false) })},
		{name: "cos", slices: unary, body: one(func(a *asm, x vec) vec { return a.sine(x, true) })},
		{name: "atan", slices: unary, keeps: 4, body: one((*asm).atan)},
		{name: "asin", slices: unary, keeps: 4, body: one((*asm).asin)},
		{name: "acos", slices: unary, keeps: 4, body: one((*asm).acos)},
		{name: "sinh", slices: unary, keeps: 4, body: one((*asm).sinh)},
		{name: "cosh", slices: unary, keeps: 4, body: one((*asm).cosh)},
		{name: "root", slices: unary, body: one((*asm).root)},
		{name: "abs", slices: unary, body: one(func(a *asm, x vec) vec { return a.magnitude(x, false) })},
		{name: "negate", slices: unary, body: one(func(a *asm, x vec) vec { return a.xor(x, a.bits(signBit)) })},
		{name: "sign", slices: unary, body: one((*asm).sign)},
		{name: "round", slices: unary, body: one(func(a *asm, x vec) vec { return a.rounded(x, 0) })},
		{name: "floor", slices: unary, body: one(func(a *asm, x vec) vec { return a.rounded(x, 1) })},
		{name: "ceil", slices: unary, body: one(func(a *asm, x vec) vec { return a.rounded(x, 2) })},
		{name: "sqrt", slices: unary, body: one(func(a *asm, x vec) vec { v := a.vec(); a.VSQRTPS(x, v); return v })},
		{name: "reciprocal", slices: unary, body: one(func(a *asm, x vec) vec { return a.div(a.load(a.constant(1)), x) })},
		{name: "softsign", slices: unary, body: one(func(a *asm, x vec) vec {
			return a.div(x, a.add(a.magnitude(x, false), a.constant(1)))
		})},
		{name: "hardSwish", slices: unary, body: one(func(a *asm, x vec) vec {
			return a.mul(a.fraction(a.fma(a.load(a.constant(1./6)), x, a.constant(0.5))), x)
		})},
		{name: "hardSigmoid", slices: unary, scalars: []string{"alpha", "beta"}, body: func(a *asm, x, s []vec) vec {
			return a.fraction(a.add(a.mul(x[0], s[0]), s[1]))
		}},
		{name: "leakyRelu", slices: unary, scalars: []string{"alpha"}, body: func(a *asm, x, s []vec) vec {
			return a.negative(x[0], a.mul(x[0], s[0]), x[0])
		}},
		{name: "thresholdedRelu", slices: unary, scalars: []string{"alpha"}, body: func(a *asm, x, s []vec) vec {
			return a.keep(notLessEqual, x[0], s[0])
		}},
		{name: "swish", slices: unary, scalars: []string{"alpha"}, body: func(a *asm, x, s []vec) vec {
			return a.mul(a.sigmoid(a.mul(x[0], s[0])), x[0])
		}},
		{name: "elu", slices: unary, scalars: []string{"scale", "rate", "all"}, body: func(a *asm, x, s []vec) vec {
			return a.elu(x[0], s[0], s[1], s[2])
		}},
		{name: "pow", slices: []string{"x", "y"}, keeps: 12, body: func(a *asm, x, _ []vec) vec { return a.pow(x[0], x[1]) }},
		{name: "prelu", slices: []string{"x", "slope"}, body: func(a *asm, x, _ []vec) vec {
			zero := a.vec()
			a.zero(zero)
			return a.choose(less, x[0], zero, a.mul(x[0], x[1]), x[0])
		}},
	} {
		if a.wide() && l.keeps == 0 {
			l.ways = 2
		}
		l.write(a)
	}
}
