package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeRows writes the loops of what normalises rows.
func writeRows(a *asm) {
	x := []string{"x"}
	for _, l := range []loop{
		// exp(x-shift), and the sum of these
		{name: "expShift", slices: x, scalars: []string{"shift"}, sum: true, body: func(a *asm, x, s []vec) vec { return a.exp(a.sub(x[0], s[0])) }},
		{name: "expShiftSum", slices: x, scalars: []string{"shift"}, sum: true, noStore: true, body: func(a *asm, x, s []vec) vec {
			return a.exp(a.sub(x[0], s[0]))
		}},
		{name: "expDifference", slices: []string{"x", "y"}, body: func(a *asm, x, _ []vec) vec { return a.exp(a.sub(x[0], x[1])) }},
		{name: "scale", slices: x, scalars: []string{"factor"}, body: func(a *asm, x, s []vec) vec { return a.mul(x[0], s[0]) }},
		// (x-shift) - more
		{name: "lower", slices: x, scalars: []string{"shift", "more"}, body: func(a *asm, x, s []vec) vec { return a.sub(a.sub(x[0], s[0]), s[1]) }},
		// (x-mean)·factor·scale, with or without a bias
		{name: "normaliseScale", slices: []string{"x", "scale"}, scalars: []string{"mean", "factor"}, body: func(a *asm, x, s []vec) vec {
			return a.mul(a.mul(a.sub(x[0], s[0]), s[1]), x[1])
		}},
		{name: "normaliseScaleBias", slices: []string{"x", "scale", "bias"}, scalars: []string{"mean", "factor"}, body: func(a *asm, x, s []vec) vec {
			return a.fma(a.mul(a.sub(x[0], s[0]), s[1]), x[1], x[2])
		}},
	} {
		l.write(a)
	}
	a.softmaxRows()
}

// softmaxRows normalises rows of n elements each.
func (a *asm) softmaxRows() {
	a.Function("softmaxRows" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x *float32, n, rows int)")
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	n, rows := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("rows"), a.GP64())
	whole, rest, bytes := a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(indexed(n, n, 1, 0), bytes)
	a.ADDQ(bytes, bytes)
	a.MOVQ(n, rest)
	a.ANDQ(operand.U8(a.lanes-1), rest)
	a.MOVQ(n, whole)
	a.SUBQ(rest, whole)
	a.SHLQ(operand.U8(2), whole)
	mask := a.firstLanes(rest)
	operands := 2
	if !a.wide() {
		operands = 5 // the mask takes a register too
	}
	a.hold(operands, 1, func(a *asm) { a.exp(a.vec()) })
	none := a.load(a.bits(0xff800000)) // -Inf
	row := a.newLabel("row")
	a.Label(row)
	// each goes over the row; body gets the vector's place and a mask at the
	// end.
	each := func(body func(from, to operand.Mem, mask reg.Register)) {
		loop, tail, done := a.newLabel("loop"), a.newLabel("tail"), a.newLabel("done")
		i := a.GP64()
		a.XORQ(i, i)
		a.TESTQ(whole, whole)
		a.JZ(operand.LabelRef(tail))
		a.Label(loop)
		body(indexed(x, i, 1, 0), indexed(dst, i, 1, 0), nil)
		a.ADDQ(operand.U8(a.bytes()), i)
		a.CMPQ(i, whole)
		a.JL(operand.LabelRef(loop))
		a.Label(tail)
		a.CMPQ(i, bytes)
		a.JEQ(operand.LabelRef(done))
		body(indexed(x, i, 1, 0), indexed(dst, i, 1, 0), mask)
		a.Label(done)
	}
	read := func(m operand.Mem, mask reg.Register, other vec) vec {
		v := a.vec()
		switch {
		case mask == nil:
			a.VMOVUPS(m, v)
		case a.wide():
			a.VMOVAPS(other, v)
			a.VMOVUPS(m, mask, v)
		default:
			a.VMASKMOVPS(m, mask.(vec), v)
			a.VBLENDVPS(mask.(vec), v, other, v)
		}
		return v
	}
	write := func(v vec, m operand.Mem, mask reg.Register) {
		switch {
		case mask == nil:
			a.VMOVUPS(v, m)
		case a.wide():
			a.VMOVUPS(v, mask, m)
		default:
			a.VMASKMOVPS(v, mask.(vec), m)
		}
	}
	across := func(v vec, join func(x, y vec) vec) vec {
		for part := a.bytes() / 2; part >= 4; part /= 2 {
			v = join(v, a.rotated(v, part))
		}
		w := a.vec()
		a.VBROADCASTSS(v.AsX(), w)
		return w
	}
	// The maximum of pairs of vectors first, which do not wait for each other.
	most, other := a.fresh(none), a.fresh(none)
	pairs, odd := a.newLabel("pairs"), a.newLabel("odd")
	p, left := a.GP64(), a.GP64()
	a.MOVQ(x, p)
	a.MOVQ(whole, left)
	a.SUBQ(operand.I32(4*a.bytes()), left)
	a.JL(operand.LabelRef(odd))
	a.Label(pairs)
	for i, to := range []vec{most, other} {
		v := a.load(at(p, 2*i*a.bytes()))
		a.VMAXPS(at(p, (2*i+1)*a.bytes()), v, v)
		a.VMAXPS(v, to, to)
	}
	a.ADDQ(operand.I32(4*a.bytes()), p)
	a.SUBQ(operand.I32(4*a.bytes()), left)
	a.JGE(operand.LabelRef(pairs))
	a.Label(odd)
	a.VMAXPS(other, most, most)
	singles, ended := a.newLabel("singles"), a.newLabel("ended")
	a.ADDQ(operand.I32(3*a.bytes()), left)
	a.JL(operand.LabelRef(ended))
	a.Label(singles)
	a.VMAXPS(at(p, 0), most, most)
	a.ADDQ(operand.I32(a.bytes()), p)
	a.SUBQ(operand.I32(a.bytes()), left)
	a.JGE(operand.LabelRef(singles))
	a.Label(ended)
	known := a.newLabel("known")
	a.TESTQ(rest, rest)
	a.JZ(operand.LabelRef(known))
	a.VMAXPS(read(at(p, 0), mask, none), most, most)
	a.Label(known)
	peak := across(most, func(x, y vec) vec { return a.upper(x, y) })
	total := a.vec()
	a.zero(total)
	each(func(from, to operand.Mem, mask reg.Register) {
		e := a.exp(a.sub(read(from, mask, none), peak))
		write(e, to, mask)
		if mask == nil {
			a.VADDPS(e, total, total)
		} else if a.wide() {
			a.VADDPS(e, total, mask, total)
		} else {
			a.VADDPS(a.and(e, mask.(vec)), total, total)
		}
	})
	factor := a.div(a.load(a.constant(1)), across(total, func(x, y vec) vec { return a.add(x, y) }))
	each(func(_, to operand.Mem, mask reg.Register) {
		write(a.mul(read(to, mask, none), factor), to, mask)
	})
	a.ADDQ(bytes, x)
	a.ADDQ(bytes, dst)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.release()
	a.ret()
}
