package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeCompare writes the comparisons of groups of 16 elements, which give 0
// and 1 as bytes.
func writeCompare(a *asm) {
	for _, c := range []struct {
		name    string
		float   int // predicate of VCMPPS
		integer int // of VPCMPD
	}{{"equal", equal, 0}, {"less", less, 1}, {"lessEqual", lessEqual, 2}} {
		a.compare(c.name+"Float", "float32", func(x, y vec) reg.Register { return a.compareFloats(c.float, x, y) })
		a.compare(c.name+"Int", "int32", func(x, y vec) reg.Register { return a.compareInts(c.integer, x, y) })
	}
}

// compareFloats and compareInts return a mask of the lanes in which x stands to
// y as the predicate says.
func (a *asm) compareFloats(predicate int, x, y vec) reg.Register {
	if a.wide() {
		k := a.K()
		a.VCMPPS(operand.U8(predicate), y, x, k)
		return k
	}
	v := a.vec()
	a.VCMPPS(operand.U8(predicate), y, x, v)
	return v
}

func (a *asm) compareInts(predicate int, x, y vec) reg.Register {
	if a.wide() {
		k := a.K()
		a.VPCMPD(operand.U8(predicate), y, x, k)
		return k
	}
	v := a.vec()
	switch predicate {
	case 0:
		a.VPCMPEQD(y, x, v)
	case 1:
		a.VPCMPGTD(x, y, v)
	default:
		a.VPCMPGTD(y, x, v)
		a.VPXOR(a.bits(1<<32-1), v, v)
	}
	return v
}

func (a *asm) compare(name, element string, body func(x, y vec) reg.Register) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst *uint8, x, y *" + element + ", groups int)")
	dst, n := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	x, y := a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("y"), a.GP64())
	var ones, lowest vec
	if a.wide() {
		ones = a.load(a.bits(0x01010101))
	} else {
		ones, lowest = a.load(a.bits(1)), a.load(a.bits(lowBytes))
	}
	a.groups(n, func(i reg.Register) {
		mask := body(a.load(indexed(x, i, 4, 0)), a.load(indexed(y, i, 4, 0)))
		if a.wide() {
			v := a.XMM()
			a.VMOVDQU8_Z(ones.AsX(), mask, v)
			a.VMOVDQU(v, indexed(dst, i, 1, 0))
			return
		}
		a.storeBytes(a.and(mask.(vec), ones), lowest, indexed(dst, i, 1, 0))
	})
}
