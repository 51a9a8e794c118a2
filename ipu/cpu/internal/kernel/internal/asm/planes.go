package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writePlanes writes the loops of pooling planes: down folds the rows of the
// input under each row of windows, many of them, and along then folds
// stretches of what that gave.
func writePlanes(a *asm) {
	for _, f := range []fold{
		{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return a.add(acc, x) }},
		{name: "most", nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.most(acc, x) }},
	} {
		f.down(a)
		f.alongPlane(a, f.name+"Along", 1)
		f.alongPlane(a, f.name+"Along2", 2)
	}
}

// down writes a function that folds taps rows of n elements, step bytes apart,
// into one, for as many rows of dst, width bytes apart. For each of these the
// table has where its rows of x begin, in bytes, and how many they are. What
// follows the elements, up to a whole vector, becomes what changes nothing.
// The maximum is not right where there is a NaN; then it returns not 0.
func (f fold) down(a *asm) {
	a.Function(f.name + "Down" + a.name)
	a.Attributes(attr.NOSPLIT)
	signature := "func(dst, x *float32, table *int32, n, rows, step, width int)"
	if f.nan {
		signature += " int"
	}
	a.SignatureExpr(signature)
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	table, n := a.Load(a.Param("table"), a.GP64()), a.Load(a.Param("n"), a.GP64())
	rows := a.Load(a.Param("rows"), a.GP64())
	step, width := a.Load(a.Param("step"), a.GP64()), a.Load(a.Param("width"), a.GP64())
	whole, rest := a.GP64(), a.GP64()
	a.MOVQ(n, whole)
	a.ANDQ(operand.I32(-a.lanes), whole)
	a.MOVQ(n, rest)
	a.SUBQ(whole, rest)
	a.SHLQ(operand.U8(2), whole)
	kept := a.GP64()
	a.MOVQ(rest, kept)
	mask := a.firstLanes(kept)
	none := a.vec()
	if f.nan {
		a.VBROADCASTSS(a.bits(0xff800000).(operand.Mem), none)
	} else {
		a.VXORPS(none, none, none)
	}
	var seen reg.Register
	switch {
	case f.nan && a.wide():
		k := a.K()
		a.KXORW(k, k, k)
		seen = k
	case f.nan:
		v := a.vec()
		a.VXORPS(v, v, v)
		seen = v
	}
	note := func(x, y vec) {
		switch {
		case f.nan && a.wide():
			k := a.K()
			a.VCMPPS(operand.U8(unordered), y, x, k)
			a.KORW(k, seen, seen)
		case f.nan:
			v := a.vec()
			a.VCMPPS(operand.U8(unordered), y, x, v)
			a.VORPS(v, seen, seen)
		}
	}
	read := func(m operand.Mem, part bool) vec {
		v := a.vec()
		switch {
		case !part:
			a.VMOVUPS(m, v)
		case a.wide():
			a.VMOVAPS(none, v)
			a.VMOVUPS(m, mask, v)
		default:
			a.VMASKMOVPS(m, mask.(vec), v)
			if f.nan {
				a.VBLENDVPS(mask.(vec), v, none, v)
			}
		}
		return v
	}
	row, next := a.newLabel("row"), a.newLabel("next")
	i := a.GP64()
	// columns emits code for all vectors of a row.
	columns := func(code func(part bool) vec) {
		loop, part := a.newLabel("column"), a.newLabel("part")
		a.XORQ(i, i)
		a.TESTQ(whole, whole)
		a.JZ(operand.LabelRef(part))
		a.Label(loop)
		a.VMOVUPS(code(false), indexed(dst, i, 1, 0))
		a.ADDQ(operand.U8(a.bytes()), i)
		a.CMPQ(i, whole)
		a.JL(operand.LabelRef(loop))
		a.Label(part)
		a.TESTQ(rest, rest)
		a.JZ(operand.LabelRef(next))
		a.VMOVUPS(code(true), indexed(dst, i, 1, 0))
		a.JMP(operand.LabelRef(next))
	}
	a.Label(row)
	p, taps := a.GP64(), a.GP64()
	a.MOVLQSX(at(table, 0), p)
	a.ADDQ(x, p)
	a.MOVLQSX(at(table, 4), taps)
	nothing, single, two, many := a.newLabel("nothing"), a.newLabel("single"), a.newLabel("two"), a.newLabel("many")
	q := a.GP64()
	a.CMPQ(taps, operand.U8(2))
	a.JE(operand.LabelRef(two))
	a.JL(operand.LabelRef(single))
	a.CMPQ(taps, operand.U8(3))
	a.JG(operand.LabelRef(many))
	r := a.GP64()
	a.LEAQ(indexed(p, step, 1, 0), q)
	a.LEAQ(indexed(p, step, 2, 0), r)
	columns(func(part bool) vec {
		u, v, w := read(indexed(p, i, 1, 0), part), read(indexed(q, i, 1, 0), part), read(indexed(r, i, 1, 0), part)
		note(u, v)
		note(w, w)
		return f.step(a, f.step(a, u, v, nil), w, nil)
	})
	a.Label(two)
	a.LEAQ(indexed(p, step, 1, 0), q)
	columns(func(part bool) vec {
		u, v := read(indexed(p, i, 1, 0), part), read(indexed(q, i, 1, 0), part)
		note(u, v)
		return f.step(a, u, v, nil)
	})
	a.Label(single)
	a.TESTQ(taps, taps)
	a.JZ(operand.LabelRef(nothing))
	columns(func(part bool) vec {
		u := read(indexed(p, i, 1, 0), part)
		note(u, u)
		return u
	})
	a.Label(nothing)
	columns(func(bool) vec { return none })
	a.Label(many)
	left := a.GP64()
	columns(func(part bool) vec {
		loop := a.newLabel("tap")
		a.LEAQ(indexed(p, i, 1, 0), q)
		a.LEAQ(at(taps, -1), left)
		acc := read(at(q, 0), part)
		note(acc, acc)
		a.Label(loop)
		a.ADDQ(step, q)
		v := read(at(q, 0), part)
		note(v, v)
		a.VMOVAPS(f.step(a, acc, v, nil), acc)
		a.DECQ(left)
		a.JNZ(operand.LabelRef(loop))
		return acc
	})
	a.Label(next)
	a.ADDQ(operand.U8(8), table)
	a.ADDQ(width, dst)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	if f.nan {
		found := a.GP64()
		a.XORQ(found, found)
		if a.wide() {
			a.KMOVW(seen, found.As32())
		} else {
			a.VMOVMSKPS(seen.(vec), found.As32())
		}
		a.Store(found, a.ReturnIndex(0))
	}
	a.ret()
}

// alongPlane writes a function that folds stretches of taps elements, dilation
// bytes apart, that begin at every or at every second element of x, into n
// elements of dst, for as many rows, which follow each other in dst and are
// width bytes apart in x. Sums are divided, rounded like a division: the table
// has for each row where its divisors begin, in bytes, a vector of them and one
// of their reciprocals in turn.
func (f fold) alongPlane(a *asm, name string, every int) {
	mean := !f.nan
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	if mean {
		a.SignatureExpr("func(dst, x, divisors *float32, table *int32, n, rows, taps, dilation, width int)")
	} else {
		a.SignatureExpr("func(dst, x *float32, n, rows, taps, dilation, width int)")
	}
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	n, rows := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("rows"), a.GP64())
	taps, dilation := a.Load(a.Param("taps"), a.GP64()), a.Load(a.Param("dilation"), a.GP64())
	var table, divisor reg.Register
	if mean {
		table, divisor = a.Load(a.Param("table"), a.GP64()), a.GP64()
	}
	var index vec
	if every == 2 && a.wide() {
		index = a.load(a.ramp(0))
	}
	kept := a.GP64()
	a.MOVQ(n, kept)
	a.ANDQ(operand.U8(a.lanes-1), kept)
	mask := a.firstLanes(kept)
	whole := a.GP64()
	a.MOVQ(n, whole)
	a.ANDQ(operand.I32(-a.lanes), whole)
	a.SHLQ(operand.U8(2), whole)
	length := n
	a.SHLQ(operand.U8(2), length)
	read := func(base, index2 reg.Register) vec {
		m := func(disp int) operand.Mem { return indexed(base, index2, uint8(every), disp) }
		switch {
		case every == 1:
			return a.load(m(0))
		case a.wide():
			v := a.load(m(0))
			to := a.fresh(index)
			a.VPERMI2PS(m(a.bytes()), v, to)
			return to
		}
		v := a.load(m(0))
		a.VSHUFPS(operand.U8(0x88), m(a.bytes()), v, v)
		a.VPERMPD(operand.U8(0xd8), v, v)
		return v
	}
	// finish divides a sum by what the divisors have at i.
	finish := func(acc vec, i reg.Register) vec {
		if !mean {
			return acc
		}
		r := a.load(indexed(divisor, i, 2, a.bytes()))
		q := a.mul(acc, r)
		// What is left of the sum, times the reciprocal, makes the quotient that
		// of a division.
		left := a.fresh(acc)
		a.VFNMADD231PS(indexed(divisor, i, 2, 0), q, left)
		if a.wide() {
			k := a.K()
			a.VCMPPS(operand.U8(ordered), left, left, k)
			a.VFMADD231PS(r, left, k, q)
			return q
		}
		ok := a.vec()
		a.VCMPPS(operand.U8(ordered), left, left, ok)
		a.VANDPS(ok, left, left)
		a.VFMADD231PS(r, left, q)
		return q
	}
	row, next := a.newLabel("row"), a.newLabel("next")
	two, three := a.newLabel("two"), a.newLabel("three")
	i, p, q := a.GP64(), a.GP64(), a.GP64()
	columns := func(code func() vec) {
		loop, part := a.newLabel("column"), a.newLabel("part")
		a.XORQ(i, i)
		a.TESTQ(whole, whole)
		a.JZ(operand.LabelRef(part))
		a.Label(loop)
		a.VMOVUPS(finish(code(), i), indexed(dst, i, 1, 0))
		a.ADDQ(operand.U8(a.bytes()), i)
		a.CMPQ(i, whole)
		a.JL(operand.LabelRef(loop))
		a.Label(part)
		a.CMPQ(whole, length)
		a.JE(operand.LabelRef(next))
		v := finish(code(), i)
		if a.wide() {
			a.VMOVUPS(v, mask, indexed(dst, i, 1, 0))
		} else {
			a.VMASKMOVPS(v, mask.(vec), indexed(dst, i, 1, 0))
		}
		a.JMP(operand.LabelRef(next))
	}
	a.Label(row)
	if mean {
		a.MOVLQSX(at(table, 0), divisor)
		divisors := a.GP64()
		a.Load(a.Param("divisors"), divisors)
		a.ADDQ(divisors, divisor)
		a.ADDQ(operand.U8(4), table)
	}
	a.LEAQ(indexed(x, dilation, 1, 0), p)
	a.CMPQ(taps, operand.U8(2))
	a.JE(operand.LabelRef(two))
	a.CMPQ(taps, operand.U8(3))
	a.JE(operand.LabelRef(three))
	columns(func() vec {
		loop, ready := a.newLabel("tap"), a.newLabel("ready")
		acc := read(x, i)
		a.MOVQ(x, q)
		a.MOVQ(taps, p)
		a.DECQ(p)
		a.JZ(operand.LabelRef(ready))
		a.Label(loop)
		a.ADDQ(dilation, q)
		a.VMOVAPS(f.step(a, acc, read(q, i), nil), acc)
		a.DECQ(p)
		a.JNZ(operand.LabelRef(loop))
		a.Label(ready)
		return acc
	})
	a.Label(two)
	columns(func() vec { return f.step(a, read(x, i), read(p, i), nil) })
	a.Label(three)
	a.LEAQ(indexed(x, dilation, 2, 0), q)
	columns(func() vec { return f.step(a, f.step(a, read(x, i), read(p, i), nil), read(q, i), nil) })
	a.Label(next)
	a.ADDQ(length, dst)
	width := a.GP64()
	a.Load(a.Param("width"), width)
	a.ADDQ(width, x)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ret()
}
