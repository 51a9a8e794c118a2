package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
)

// logTerms and powerTerms are how many terms the series of a logarithm and of a
// power of 2 in float64 have.
const (
	logTerms   = 8
	powerTerms = 10
)

// powerOf returns 2 to the power of y times the logarithm to base 2 of x, in
// float64. x is a number of float32 that is not below zero; logarithms beyond
// those of all float32, and of 0 and infinity, give results beyond them too.
func (a *asm) powerOf(x, y vec) vec {
	pd := func(whole, spread func(...operand.Op), m operand.Op, u vec) vec {
		v := a.vec()
		if a.wide() {
			spread(m, u, v)
		} else {
			whole(m, u, v)
		}
		return v
	}
	add := func(u vec, c float64) vec { return pd(a.VADDPD, a.VADDPD_BCST, a.double(c), u) }
	sub := func(u vec, c float64) vec { return pd(a.VSUBPD, a.VSUBPD_BCST, a.double(c), u) }
	and := func(u vec, bits uint64) vec {
		return pd(a.VANDPD, a.VANDPD_BCST, a.double(math.Float64frombits(bits)), u)
	}
	or := func(u vec, bits uint64) vec {
		return pd(a.VORPD, a.VORPD_BCST, a.double(math.Float64frombits(bits)), u)
	}
	whole := func(c float64) vec {
		v := a.vec()
		a.VBROADCASTSD(a.double(c), v)
		return v
	}
	polynomial := func(u vec, c []float64) vec {
		p := whole(c[len(c)-1])
		for i := len(c) - 2; i >= 0; i-- {
			if a.wide() {
				a.VFMADD213PD_BCST(a.double(c[i]), u, p)
			} else {
				a.VFMADD213PD(a.double(c[i]), u, p)
			}
		}
		return p
	}
	// x = m·2^e with m from √½ to √2.
	e := a.vec()
	a.VPSRLQ(operand.U8(52), x, e)
	e = sub(or(e, math.Float64bits(0x1p52)), 0x1p52+1023)
	m := or(and(x, 1<<52-1), math.Float64bits(1))
	large := a.vec()
	if a.wide() {
		k := a.K()
		a.VCMPPD_BCST(operand.U8(greater), a.double(math.Sqrt2), m, k)
		a.VMULPD_BCST(a.double(0.5), m, k, m)
		a.VADDPD_BCST(a.double(1), e, k, e)
	} else {
		a.VCMPPD(operand.U8(greater), a.double(math.Sqrt2), m, large)
		half := a.vec()
		a.VMULPD(a.double(0.5), m, half)
		a.VBLENDVPD(large, half, m, m)
		e2 := a.vec()
		a.VANDPD(a.double(1), large, e2)
		a.VADDPD(e2, e, e)
	}
	t := a.vec()
	a.VDIVPD(add(m, 1), sub(m, 1), t)
	square := a.vec()
	a.VMULPD(t, t, square)
	var series []float64 // of the logarithm to base 2 divided by t
	for i := range logTerms {
		series = append(series, 2*math.Log2E/float64(2*i+1))
	}
	p := polynomial(square, series)
	a.VFMADD213PD(e, t, p)
	// Of 0 and infinity.
	bound := func(c, log float64) {
		if a.wide() {
			k := a.K()
			a.VCMPPD_BCST(operand.U8(equal), a.double(c), x, k)
			a.VBROADCASTSD(a.double(log), k, p)
			return
		}
		k := a.vec()
		a.VCMPPD(operand.U8(equal), a.double(c), x, k)
		a.VBLENDVPD(k, a.double(log), p, p)
	}
	bound(0, math.Inf(-1))
	bound(math.Inf(1), math.Inf(1))
	z := a.vec()
	a.VMULPD(p, y, z)
	const most = 200
	low, high := whole(-most), whole(most)
	a.VMAXPD(z, low, z)
	a.VMINPD(z, high, z)
	n := add(z, 0x1.8p52+1023)
	r := a.vec()
	a.VSUBPD(sub(n, 0x1.8p52+1023), z, r)
	var terms []float64 // of 2^r
	for i, c := 0, 1.0; i < powerTerms; i++ {
		terms = append(terms, c)
		c *= math.Ln2 / float64(i+1)
	}
	p = polynomial(r, terms)
	a.VPSLLQ(operand.U8(52), n, n)
	a.VMULPD(n, p, p)
	return p
}

// double returns a vector in memory of a float64, of which an instruction may
// read one lane for all.
func (a *asm) double(v float64) operand.Mem {
	b := math.Float64bits(v)
	return a.stored(b, func(i int) uint32 { return uint32(b >> (32 * (i % 2))) })
}

// pow returns x to the power of y as C and Go have it.
func (a *asm) pow(x, y vec) vec {
	size := a.magnitude(x, false)
	var halves []vec
	for half := range 2 {
		wide := func(u vec) vec {
			v := a.vec()
			switch {
			case half == 0:
				a.VCVTPS2PD(a.narrowHalf(u), v)
			case a.wide():
				part := a.YMM()
				a.VEXTRACTF64X4(operand.U8(1), u, part)
				a.VCVTPS2PD(part, v)
			default:
				part := a.XMM()
				a.VEXTRACTF128(operand.U8(1), u, part)
				a.VCVTPS2PD(part, v)
			}
			return v
		}
		r := a.powerOf(wide(size), wide(y))
		v := a.vec()
		if a.wide() {
			a.VCVTPD2PS(r, v.AsY())
		} else {
			a.VCVTPD2PSY(r, v.AsX())
		}
		halves = append(halves, v)
	}
	v := a.vec()
	if a.wide() {
		a.VINSERTF64X4(operand.U8(1), halves[1].AsY(), halves[0], v)
	} else {
		a.VINSERTF128(operand.U8(1), halves[1].AsX(), halves[0], v)
	}
	zero := a.vec()
	a.zero(zero)
	// Odd powers keep the sign; those of numbers below zero that are not
	// integers there are not.
	integer, half := a.rounded(y, 0), a.mul(y, a.constant(0.5))
	sign := a.and(x, a.bits(signBit))
	odd := a.choose(equal, half, a.rounded(half, 0), zero, sign)
	v = a.xor(v, a.choose(equal, integer, y, odd, zero))
	none := a.choose(equal, integer, y, zero, a.load(a.bits(quietNaN)))
	none = a.choose(equal, size, a.load(a.constant(float32(math.Inf(1)))), zero, none)
	v = a.or(v, a.choose(less, x, zero, none, zero))
	// Of 1 in size, whose logarithm times infinity would be NaN, and to
	// the power of 0.
	one := a.load(a.constant(1))
	endless := a.choose(equal, a.magnitude(y, false), a.load(a.constant(float32(math.Inf(1)))), one, v)
	v = a.choose(equal, size, one, endless, v)
	v = a.choose(unordered, x, x, x, v)
	v = a.choose(equal, x, one, one, v)
	return a.choose(equal, y, zero, one, v)
}
