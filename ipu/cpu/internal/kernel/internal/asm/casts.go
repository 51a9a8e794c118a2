package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeCasts writes conversions of groups of 16 elements.
func writeCasts(a *asm) {
	a.convert("floatToInt", "int32", "float32", func(to, from func(disp int) operand.Mem) {
		v := a.vec()
		a.VCVTTPS2DQ(from(0), v)
		a.VMOVUPS(v, to(0))
	})
	a.convert("intToFloat", "float32", "int32", func(to, from func(disp int) operand.Mem) {
		v := a.vec()
		a.VCVTDQ2PS(from(0), v)
		a.VMOVUPS(v, to(0))
	})
	a.convert("widenBfloat", "float32", "uint16", func(to, from func(disp int) operand.Mem) {
		v := a.vec()
		a.VPMOVZXWD(from(0), v)
		a.VPSLLD(operand.U8(16), v, v)
		a.VMOVUPS(v, to(0))
	})
	a.narrowBfloat()
	a.toBool()
	a.choose32()
	if a.wide() {
		a.convert("floatToLong", "int64", "float32", func(to, from func(disp int) operand.Mem) {
			for i := range 2 {
				v := a.vec()
				a.VCVTTPS2QQ(from(32*i), v)
				a.VMOVUPS(v, to(64*i))
			}
		})
		a.convert("longToFloat", "float32", "int64", func(to, from func(disp int) operand.Mem) {
			for i := range 2 {
				v := a.YMM()
				a.VCVTQQ2PS(from(64*i), v)
				a.VMOVUPS(v, to(32*i))
			}
		})
		// The lowest bytes of what is truncated to 64 bits.
		a.convert("floatToByte", "uint8", "float32", func(to, from func(disp int) operand.Mem) {
			for i := range 2 {
				v := a.vec()
				a.VCVTTPS2QQ(from(32*i), v)
				a.VPMOVQB(v, to(8*i))
			}
		})
	}
}

// sizes are the bytes of the elements that conversions know.
var sizes = map[string]int{"uint8": 1, "uint16": 2, "int32": 4, "float32": 4, "int64": 8}

// convert writes a conversion. The body converts a vector of float32's worth of
// elements.
func (a *asm) convert(name, to, from string, body func(to, from func(disp int) operand.Mem)) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst *" + to + ", x *" + from + ", groups int)")
	dst, x, n := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	place := func(base, i reg.Register, size int) func(disp int) operand.Mem {
		return func(disp int) operand.Mem { return indexed(base, i, uint8(size), disp) }
	}
	a.groups(n, func(i reg.Register) { body(place(dst, i, sizes[to]), place(x, i, sizes[from])) })
}

// narrowBfloat writes the conversion to bfloat16, rounded to nearest even. NaN
// stays NaN.
func (a *asm) narrowBfloat() {
	a.convert("narrowBfloat", "uint16", "float32", func(to, from func(disp int) operand.Mem) {
		x := a.load(from(0))
		nan, odd, rounded := a.vec(), a.vec(), a.vec()
		a.VPSRLD(operand.U8(16), x, odd)
		if a.wide() {
			a.VPORD(a.load(a.bits(0x40)), odd, nan)
			a.VPANDD(a.load(a.bits(1)), odd, odd)
		} else {
			a.VPOR(a.bits(0x40), odd, nan)
			a.VPAND(a.bits(1), odd, odd)
		}
		a.VPADDD(a.load(a.bits(0x7fff)), odd, odd)
		a.VPADDD(x, odd, odd)
		a.VPSRLD(operand.U8(16), odd, rounded)
		v := a.choose(unordered, x, x, nan, rounded)
		if a.wide() {
			a.VPMOVDW(v, to(0))
			return
		}
		upper := a.XMM()
		a.VEXTRACTI128(operand.U8(1), v, upper)
		a.VPACKUSDW(upper, v.AsX(), upper)
		a.VMOVDQU(upper, to(0))
	})
}

// toBool writes what tells numbers that are not zero.
func (a *asm) toBool() {
	const different = 0x04 // or unordered
	a.convert("floatToBool", "uint8", "float32", func(to, from func(disp int) operand.Mem) {
		x, z := a.load(from(0)), a.vec()
		a.VXORPS(z, z, z)
		mask := a.compareFloats(different, x, z)
		if a.wide() {
			v := a.XMM()
			ones := a.load(a.bits(0x01010101))
			a.VMOVDQU8_Z(ones.AsX(), mask, v)
			a.VMOVDQU(v, to(0))
			return
		}
		a.storeBytes(a.and(mask.(vec), a.bits(1)), a.load(a.bits(lowBytes)), to(0))
	})
}

// choose32 writes the choice between elements of 32 bits: of x where the byte is
// not zero.
func (a *asm) choose32() {
	a.Function("choose" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x, y *uint32, which *uint8, groups int)")
	dst, x, y := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("y"), a.GP64())
	which, n := a.Load(a.Param("which"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	a.groups(n, func(i reg.Register) {
		v := a.load(indexed(y, i, 4, 0))
		if a.wide() {
			b, k := a.XMM(), a.K()
			a.VMOVDQU(indexed(which, i, 1, 0), b)
			a.VPTESTMB(b, b, k)
			a.VMOVDQU32(indexed(x, i, 4, 0), k, v)
		} else {
			b, zero := a.vec(), a.vec()
			a.VPXOR(zero, zero, zero)
			a.VPMOVZXBD(indexed(which, i, 1, 0), b)
			a.VPCMPEQD(zero, b, b)
			a.VBLENDVPS(b, v, a.load(indexed(x, i, 4, 0)), v)
		}
		a.VMOVUPS(v, indexed(dst, i, 4, 0))
	})
}
