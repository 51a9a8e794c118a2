package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// writeElementwise writes the loops of simple functions of elements.
func writeElementwise(a *asm) {
	two := []string{"x", "y"}
	for _, l := range []loop{
		{name: "add", slices: two, body: func(a *asm, x, _ []vec) vec { return a.add(x[0], x[1]) }},
		{name: "subtract", slices: two, body: func(a *asm, x, _ []vec) vec { return a.sub(x[0], x[1]) }},
		{name: "multiply", slices: two, body: func(a *asm, x, _ []vec) vec { return a.mul(x[0], x[1]) }},
		{name: "divide", slices: two, body: func(a *asm, x, _ []vec) vec { return a.div(x[0], x[1]) }},
		{name: "maximum", slices: two, body: func(a *asm, x, _ []vec) vec { return a.maximum(x[0], x[1]) }},
		{name: "minimum", slices: two, body: func(a *asm, x, _ []vec) vec { return a.minimum(x[0], x[1]) }},
		{name: "clip", slices: []string{"x", "lo", "hi"}, body: func(a *asm, x, _ []vec) vec {
			return a.minimum(a.maximum(x[0], x[1]), x[2])
		}},
		{name: "relu", slices: []string{"x"}, body: func(a *asm, x, _ []vec) vec {
			zero := a.vec()
			a.zero(zero)
			return a.keep(notLessEqual, x[0], zero)
		}},
		// (x-mean)·factor + shift
		{name: "normalise", slices: []string{"x"}, scalars: []string{"mean", "factor", "shift"}, body: func(a *asm, x, s []vec) vec {
			return a.fma(a.sub(x[0], s[0]), s[1], s[2])
		}},
		// Of a vector and one number.
		{name: "addOne", slices: []string{"x"}, scalars: []string{"y"}, body: func(a *asm, x, s []vec) vec { return a.add(x[0], s[0]) }},
		{name: "maximumOne", slices: []string{"x"}, scalars: []string{"y"}, body: func(a *asm, x, s []vec) vec { return a.maximum(x[0], s[0]) }},
		{name: "minimumOne", slices: []string{"x"}, scalars: []string{"y"}, body: func(a *asm, x, s []vec) vec { return a.minimum(x[0], s[0]) }},
		{name: "preluOne", slices: []string{"x"}, scalars: []string{"y"}, body: func(a *asm, x, s []vec) vec {
			zero := a.vec()
			a.zero(zero)
			return a.choose(less, x[0], zero, a.mul(x[0], s[0]), x[0])
		}},
		// Limits that are numbers, the upper one not -0; a NaN stays one, and of two
		// zeros x is kept. Adding zero, which is +0 for a lower limit of +0
		// and else -0, makes -0 into +0 for that.
		{name: "clipOne", slices: []string{"x"}, scalars: []string{"lo", "hi", "zero"}, body: func(a *asm, x, s []vec) vec {
			return a.add(a.lower(s[1], a.upper(s[0], x[0])), s[2])
		}},
		{name: "divideOne", slices: []string{"x"}, scalars: []string{"y", "reciprocal"}, body: func(a *asm, x, s []vec) vec { return a.divideOne(x[0], s[0], s[1]) }},
	} {
		l.write(a)
	}
	a.halves()
}

// divideLimit is the exponent up to which the magnitudes of numbers and of what
// they are divided by may go so that no step of a division by means of
// the reciprocal leaves the normal numbers.
const divideLimit = 60

// divideOne returns x/y, rounded like a division, by the reciprocal of y: what is
// left of x after it times the quotient so far improves that, twice. Vectors
// with numbers for which that may be wrong are divided.
func (a *asm) divideOne(x, y, reciprocal vec) vec {
	const low, high = (127 - divideLimit) << 23, (127 + divideLimit) << 23
	q := a.mul(x, reciprocal)
	for range 2 {
		left := a.fresh(x)
		a.VFNMADD231PS(q, y, left)
		a.VFMADD231PS(reciprocal, left, q)
	}
	done := a.newLabel("divided")
	size := a.magnitude(x, false)
	if a.wide() {
		k := a.K()
		a.VPSUBD(a.register(a.bits(low)), size, size)
		a.VPCMPUD(operand.U8(6), a.register(a.bits(high-low)), size, k)
		a.VPTESTMD(x, x, k, k)
		a.KORTESTW(k, k)
	} else {
		under, over, zero := a.vec(), a.load(a.bits(high)), a.vec()
		a.VMOVUPS(a.bits(low), under)
		a.VPCMPGTD(size, under, under)
		a.VPCMPGTD(over, size, over)
		a.VPOR(under, over, over)
		a.VXORPS(zero, zero, zero)
		a.VPCMPEQD(zero, x, zero)
		a.VPANDN(over, zero, zero)
		a.VPTEST(zero, zero)
	}
	a.JZ(operand.LabelRef(done))
	a.VDIVPS(y, x, q)
	a.Label(done)
	return q
}

// maximum is Go's max: NaN if either is, and +0 above -0.
func (a *asm) maximum(x, y vec) vec {
	return a.orNaN(x, y, a.and(a.upper(x, y), a.upper(y, x)))
}

// minimum is Go's min.
func (a *asm) minimum(x, y vec) vec {
	return a.orNaN(x, y, a.or(a.lower(x, y), a.lower(y, x)))
}

// orNaN returns NaN where x or y is, r elsewhere.
func (a *asm) orNaN(x, y, r vec) vec { return a.choose(unordered, x, y, a.add(x, y), r) }

// halves writes the conversions between half and single precision, of whole
// vectors.
func (a *asm) halves() {
	for _, widen := range []bool{true, false} {
		name, signature := "widen", "func(dst *float32, x *uint16, vectors int)"
		if !widen {
			name, signature = "narrow", "func(dst *uint16, x *float32, vectors int)"
		}
		a.Function(name + a.name)
		a.Attributes(attr.NOSPLIT)
		a.SignatureExpr(signature)
		dst, x, n := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("vectors"), a.GP64())
		run := a.newLabel("loop")
		a.Label(run)
		v := a.vec()
		if widen {
			a.VCVTPH2PS(at(x, 0), v)
			a.VMOVUPS(v, at(dst, 0))
			a.ADDQ(operand.U8(a.bytes()/2), x)
			a.ADDQ(operand.U8(a.bytes()), dst)
		} else {
			a.VMOVUPS(at(x, 0), v)
			a.VCVTPS2PH(operand.U8(0), v, at(dst, 0))
			a.ADDQ(operand.U8(a.bytes()), x)
			a.ADDQ(operand.U8(a.bytes()/2), dst)
		}
		a.DECQ(n)
		a.JNZ(operand.LabelRef(run))
		a.ret()
	}
}
