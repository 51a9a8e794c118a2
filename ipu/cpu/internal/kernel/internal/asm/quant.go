package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeQuant writes the conversions between float32 and bytes, of groups of 16
// elements.
func writeQuant(a *asm) {
	a.quantise("quantise", false)
	a.quantise("quantiseBy", true)
	a.dequantise("dequantiseSigned", true)
	a.dequantise("dequantiseUnsigned", false)
}

// groups writes a loop over groups of 16 elements, in which body handles those
// at index i, as many as a vector of float32 has.
func (a *asm) groups(n reg.Register, body func(i reg.Register)) {
	i := a.GP64()
	a.XORQ(i, i)
	a.SHLQ(operand.U8(4), n)
	run := a.newLabel("run")
	a.Label(run)
	body(i)
	a.ADDQ(operand.U8(a.lanes), i)
	a.CMPQ(i, n)
	a.JL(operand.LabelRef(run))
	a.ret()
}

// quantise rounds x/scale, limited to low and high, to nearest even, adds zero
// and stores the lowest bytes. NaN counts as low. With by, what is nearest to
// 1/scale, it does so without a division: the product is so near the quotient
// that adding what is left, times by, gives the quotient rounded once. An
// infinite x leaves something infinite, or NaN where low is the answer.
func (a *asm) quantise(name string, multiplied bool) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	params, names := "scale, low, high, zero float32", []string{"scale", "low", "high", "zero"}
	if multiplied {
		params, names = "scale, low, high, zero, by float32", append(names, "by")
	}
	a.SignatureExpr("func(dst *uint8, x *float32, groups int, " + params + ")")
	dst, x, n := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	s := a.broadcast(names)
	zero := a.vec()
	a.VCVTPS2DQ(s[3], zero)
	var lowest vec
	if !a.wide() {
		lowest = a.load(a.bits(lowBytes))
	}
	a.groups(n, func(i reg.Register) {
		v := a.load(indexed(x, i, 4, 0))
		if multiplied {
			q := a.lower(a.mul(v, s[4]), s[2])
			v = a.fmaOf(q, a.fnmaOf(v, q, s[0]), s[4])
		} else {
			v = a.div(v, s[0])
		}
		v = a.lower(a.upper(v, s[1]), s[2])
		a.VCVTPS2DQ(v, v)
		a.VPADDD(zero, v, v)
		if a.wide() {
			a.VPMOVDB(v, indexed(dst, i, 1, 0))
			return
		}
		a.storeBytes(v, lowest, indexed(dst, i, 1, 0))
	})
}

// lowBytes is where four lanes have their lowest bytes.
const lowBytes = 0x0c080400

// storeBytes stores the lowest bytes of v's eight lanes; lowest is lowBytes.
func (a *asm) storeBytes(v, lowest vec, to operand.Mem) {
	w, upper := a.vec(), a.XMM()
	a.VPSHUFB(lowest, v, w)
	a.VEXTRACTI128(operand.U8(1), w, upper)
	a.VPUNPCKLDQ(upper, w.AsX(), upper)
	a.VMOVQ(upper, to)
}

// dequantise computes (x-zero)·scale.
func (a *asm) dequantise(name string, signed bool) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst *float32, x *uint8, groups int, scale, zero float32)")
	dst, x, n := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	s := a.broadcast([]string{"scale", "zero"})
	a.groups(n, func(i reg.Register) {
		v := a.vec()
		if signed {
			a.VPMOVSXBD(indexed(x, i, 1, 0), v)
		} else {
			a.VPMOVZXBD(indexed(x, i, 1, 0), v)
		}
		a.VCVTDQ2PS(v, v)
		a.VMOVUPS(a.mul(a.sub(v, s[1]), s[0]), indexed(dst, i, 4, 0))
	})
}
