package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// quarter is π/2, in two numbers.
const (
	quarterHigh = float32(math.Pi / 2)
	quarterLow  = float32(math.Pi/2 - float64(quarterHigh))
)

// sine returns the sine of x, turned by quarter turns, for |x| up to a million.
// What is left of x after whole quarter turns is exact but for the last of three
// subtractions.
func (a *asm) sine(x vec, turned bool) vec {
	const magic = 3 << 22
	y := a.magnitude(x, false)
	n := a.fma(a.load(a.constant(2/math.Pi)), y, a.constant(magic))
	whole := a.sub(n, a.constant(magic))
	r := a.fresh(y)
	high := float32(math.Pi / 2)
	middle := float32(math.Pi/2 - float64(high))
	// The last part is below what a float64 of π/2 has.
	const beyond = 6.123233995736766e-17
	low := float32(math.Pi/2 - float64(high) - float64(middle) + beyond)
	for _, part := range []float32{high, middle, low} {
		a.fnmaOf(r, whole, a.constant(part))
	}
	square := a.mul(r, r)
	sine := a.fma(a.chain(square, sineSeries), a.mul(square, r), r)
	cosine := a.fma(a.chain(square, cosineSeries), square, a.constant(-0.5))
	cosine = a.fma(cosine, square, a.constant(1))
	if turned {
		a.VPADDD(a.register(a.bits(1)), n, n)
	}
	odd, sign := a.vec(), a.vec()
	a.VPSLLD(operand.U8(31), n, odd)
	a.VPSLLD(operand.U8(30), n, sign)
	v := a.negative(odd, cosine, sine)
	if !turned {
		sign = a.xor(sign, x)
	}
	return a.xor(v, a.and(sign, a.bits(signBit)))
}

// odd returns x + x·q·p(q), q = x², for a polynomial p.
func (a *asm) odd(x vec, c []float32) vec {
	square := a.mul(x, x)
	return a.fma(a.mul(a.chain(square, c), square), x, x)
}

// atan returns for |x| above 1 a quarter turn less the arc tangent of 1/|x|.
func (a *asm) atan(x vec) vec {
	y := a.magnitude(x, false)
	one, zero := a.load(a.constant(1)), a.vec()
	a.zero(zero)
	t := a.div(a.choose(greater, y, one, a.load(a.constant(-1)), y), a.choose(greater, y, one, y, one))
	r := a.odd(t, atanSeries)
	r = a.add(r, a.choose(greater, y, one, a.load(a.constant(quarterLow)), zero))
	return a.signed(a.add(r, a.choose(greater, y, one, a.load(a.constant(quarterHigh)), zero)), x)
}

// arc returns for |x| up to ½ the arc sine of |x|, else the root of (1-|x|)/2 and
// what is to be added to that for its arc sine.
func (a *asm) arc(x vec) (y, root, rest vec) {
	y = a.magnitude(x, false)
	half := a.load(a.constant(0.5))
	left := a.fma(a.fresh(half), a.xor(y, a.bits(signBit)), half)
	q := a.choose(greater, y, half, left, a.mul(y, y))
	root = a.vec()
	a.VSQRTPS(left, root)
	root = a.choose(greater, y, half, root, y)
	return y, root, a.mul(a.mul(a.chain(q, asinSeries), q), root)
}

// asin returns for |x| above ½ a quarter turn less twice the arc sine of the root
// of (1-|x|)/2.
func (a *asm) asin(x vec) vec {
	y, root, rest := a.arc(x)
	twice := a.sub(a.add(rest, rest), a.constant(quarterLow))
	far := a.sub(a.load(a.constant(quarterHigh)), a.add(twice, a.add(root, root)))
	half := a.load(a.constant(0.5))
	return a.signed(a.choose(greater, y, half, far, a.add(root, rest)), x)
}

// acos returns for |x| up to ½ a quarter turn less the arc sine, for larger x
// twice the arc sine of the root of (1-|x|)/2, and for smaller half a turn less
// that.
func (a *asm) acos(x vec) vec {
	y, root, rest := a.arc(x)
	near := a.sub(a.load(a.constant(quarterLow)), a.signed(rest, x))
	near = a.add(a.sub(a.load(a.constant(quarterHigh)), a.signed(root, x)), near)
	above := a.add(root, rest)
	above = a.add(above, above)
	zero := a.vec()
	a.zero(zero)
	below := a.add(a.sub(a.load(a.constant(2*quarterHigh)), above), a.constant(2*quarterLow))
	return a.choose(greater, y, a.load(a.constant(0.5)), a.choose(less, x, zero, below, above), near)
}

// halfExp returns exp(y)/2 for y ≥ 0.
func (a *asm) halfExp(y vec) vec {
	// Where it is infinite.
	const top = 91
	r, n, _ := a.reduce(a.atMost(y, top))
	e := a.fma(a.chain(r, expSeries), r, a.constant(1))
	e = a.fma(e, r, a.constant(1))
	// In two steps, for 2^n may be above all numbers.
	const step = 63
	a.VPSUBD(a.register(a.bits(step+1)), n, n)
	return a.mul(a.mul(e, a.power(n)), a.constant(1<<step))
}

// sinh returns exp(|x|)/2 - exp(-|x|)/2 with the sign of x, or a polynomial.
func (a *asm) sinh(x vec) vec {
	y := a.magnitude(x, false)
	e := a.halfExp(y)
	e = a.sub(e, a.div(a.load(a.constant(0.25)), e))
	return a.signed(a.choose(greater, y, a.load(a.constant(1)), e, a.odd(y, sinhSeries)), x)
}

// cosh returns exp(|x|)/2 + exp(-|x|)/2.
func (a *asm) cosh(x vec) vec {
	e := a.halfExp(a.magnitude(x, false))
	return a.add(e, a.div(a.load(a.constant(0.25)), e))
}
