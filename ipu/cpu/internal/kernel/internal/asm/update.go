package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// updateNumberBytes is how far apart the numbers of a step lie.
const updateNumberBytes = 2048

// writeUpdate writes the steps of optimizers that take so many operations that loops for each would wait for the first-level cache.
func writeUpdate(a *asm) {
	a.adam("adam", false)
	a.adam("adamDecoupled", true)
}

// adam writes a step of Adam for n elements; with decoupled weight decay on demand. No operations are fused, so that results have
// the bits of a loop for each.
func (a *asm) adam(name string, decoupled bool) {
	// The order of the numbers, each of which lies updateNumberBytes after the one before, as often as a vector has elements at least.
	const (
		factor = iota
		rate
		decay
		first
		firstRest
		second
		secondRest
		eps
		firstBias
		secondBias
	)
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, newFirst, newSecond, w, grad, m, v, numbers *float32, n int)")
	p := map[string]reg.Register{}
	for _, s := range []string{"dst", "newFirst", "newSecond", "w", "grad", "m", "v", "numbers", "n"} {
		p[s] = a.Load(a.Param(s), a.GP64())
	}
	n, i := p["n"], a.GP64()
	a.XORQ(i, i)
	number := func(which int) operand.Mem { return at(p["numbers"], which*updateNumberBytes) }
	body := func(mask reg.Register) {
		read := func(s string) vec {
			v, m := a.vec(), indexed(p[s], i, 1, 0)
			switch {
			case mask == nil:
				a.VMOVUPS(m, v)
			case a.wide():
				a.VMOVUPS_Z(m, mask, v)
			default:
				a.VMASKMOVPS(m, mask.(vec), v)
			}
			return v
		}
		write := func(v vec, s string) {
			m := indexed(p[s], i, 1, 0)
			switch {
			case mask == nil:
				a.VMOVUPS(v, m)
			case a.wide():
				a.VMOVUPS(v, mask, m)
			default:
				a.VMASKMOVPS(v, mask.(vec), m)
			}
		}
		g := a.mul(read("grad"), number(factor))
		v := a.add(a.mul(read("v"), number(second)), a.mul(a.mul(g, g), number(secondRest)))
		m := a.add(a.mul(read("m"), number(first)), a.mul(g, number(firstRest)))
		write(v, "newSecond")
		write(m, "newFirst")
		root := a.mul(v, number(secondBias))
		a.VSQRTPS(root, root)
		x := a.div(a.mul(m, number(firstBias)), a.add(root, number(eps)))
		w := read("w")
		if decoupled {
			x = a.add(x, a.mul(w, number(decay)))
		}
		write(a.sub(w, a.mul(x, number(rate))), "dst")
	}
	run, part, end := a.newLabel("run"), a.newLabel("part"), a.newLabel("end")
	a.SUBQ(operand.U8(a.lanes), n)
	a.JL(operand.LabelRef(part))
	a.Label(run)
	body(nil)
	a.ADDQ(operand.U8(a.bytes()), i)
	a.SUBQ(operand.U8(a.lanes), n)
	a.JGE(operand.LabelRef(run))
	a.Label(part)
	a.ADDQ(operand.U8(a.lanes), n)
	a.JZ(operand.LabelRef(end))
	body(a.firstLanes(n))
	a.Label(end)
	a.ret()
}
