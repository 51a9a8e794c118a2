package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// peakFMAs is how many multiply-adds one round has.
const peakFMAs = 14

// writePeak writes a loop of multiply-adds that do not depend on each other:
// what the machine can do at most.
func writePeak(a *asm) {
	a.Function("peak" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(n int)")
	n := a.Load(a.Param("n"), a.GP64())
	acc := a.vecs(peakFMAs)
	for _, v := range acc {
		a.zero(v)
	}
	x := a.vec()
	a.zero(x)
	a.Label("loop")
	for _, v := range acc {
		a.VFMADD231PS(x, x, v)
	}
	a.DECQ(n)
	a.JNZ(operand.LabelRef("loop"))
	a.ret()
}
