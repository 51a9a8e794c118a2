package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeAttention writes the softmax of scores that lie by columns: those of one
// vector of columns, which have nothing to add across lanes.
func writeAttention(a *asm) {
	a.Function("softmaxColumns" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(x *float32, n int, floor, ceiling float32)")
	x, end := a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("n"), a.GP64())
	s := a.broadcast([]string{"floor", "ceiling"})
	a.SHLQ(operand.U8(7), end)
	a.ADDQ(x, end)
	// along goes over all rows of a panel: many at a time, then one.
	along := func(many int, body func(way int, m operand.Mem)) {
		row := a.GP64()
		a.MOVQ(x, row)
		for _, step := range []int{many, 1} {
			loop, done := a.newLabel("loop"), a.newLabel("done")
			last := a.GP64()
			a.LEAQ(at(end, -(step-1)*panelBytes), last)
			a.CMPQ(row, last)
			a.JGE(operand.LabelRef(done))
			a.Label(loop)
			a.sideBySide(step, func(i int) { body(i, at(row, i*panelBytes)) })
			a.ADDQ(operand.I32(step*panelBytes), row)
			a.CMPQ(row, last)
			a.JL(operand.LabelRef(loop))
			a.Label(done)
		}
	}
	const many = 4
	most := make([]vec, many)
	for i := range most {
		most[i] = a.fresh(s[0])
	}
	along(many, func(way int, m operand.Mem) { a.VMAXPS(m, most[way], most[way]) })
	for i := 1; i < many; i++ {
		a.VMAXPS(most[i], most[0], most[0])
	}
	ways := 1
	if a.wide() {
		ways = 2
	}
	total := make([]reg.VecVirtual, ways)
	for i := range total {
		total[i] = a.vec()
		a.VXORPS(total[i], total[i], total[i])
	}
	a.hold(4, ways, func(a *asm) { a.exp(a.vec()) })
	along(ways, func(way int, m operand.Mem) {
		e := a.exp(a.sub(a.load(m), most[0]))
		a.VMOVUPS(e, m)
		a.VADDPS(e, total[way], total[way])
	})
	a.release()
	if ways == 2 {
		a.VADDPS(total[1], total[0], total[0])
	}
	// NaN stays what it is.
	factor := a.lower(s[1], a.div(a.register(a.constant(1)), total[0]))
	along(many, func(_ int, m operand.Mem) { a.VMOVUPS(a.mul(factor, m), m) })
	a.ret()
}
