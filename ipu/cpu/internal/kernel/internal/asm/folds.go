package main

import (
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fold describes a function that folds elements into one, or rows of elements
// into one row.
type fold struct {
	name    string
	scalars []string
	double  bool    // elements are widened to float64 first
	start   float64 // what nothing is folded into
	// step returns an accumulator and a vector of elements folded into one. It
	// must not change them.
	step func(a *asm, acc, x vec, s []vec) vec
	// join returns two accumulators folded into one; step does if it is nil.
	join func(a *asm, x, y vec) vec
	// nan is set if step overlooks NaN, which the result is to be then.
	nan bool
}

// foldWays is how many accumulators do not wait for each other.
const foldWays = 4

func writeFolds(a *asm) {
	mean := []string{"mean"}
	plus := func(a *asm, x, y vec) vec { return a.add(x, y) }
	plusDouble := func(a *asm, x, y vec) vec { v := a.vec(); a.VADDPD(y, x, v); return v }
	for _, f := range []fold{
		{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return plus(a, acc, x) }},
		{name: "squares", scalars: mean, join: plus, step: func(a *asm, acc, x vec, s []vec) vec {
			d := a.sub(x, s[0])
			v := a.fresh(acc)
			a.VFMADD231PS(d, d, v)
			return v
		}},
		{name: "most", start: math.Inf(-1), nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.most(acc, x) }},
		{name: "least", start: math.Inf(1), nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.least(acc, x) }},
		{name: "longSquares", double: true, join: plusDouble, step: longSquare},
	} {
		f.write(a, false)
	}
	fold{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return plus(a, acc, x) }}.write(a, true)
	a.sumShort()
	for _, f := range []fold{
		{name: "longSum", double: true, step: func(a *asm, acc, x vec, _ []vec) vec { return plusDouble(a, acc, x) }},
		{name: "longSquares", double: true, step: longSquare, join: plusDouble},
	} {
		f.writeRows(a)
		if f.name == "longSquares" {
			f.write(a, true)
		}
	}
}

// sumShort adds each row of at most a vector of elements, stride bytes apart, to
// its own number in memory. The rows are a multiple of 4.
func (a *asm) sumShort() {
	a.Function("sumShort" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(acc *float64, x *float32, n, rows, stride int)")
	acc, x := a.Load(a.Param("acc"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	n, rows, stride := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("rows"), a.GP64()), a.Load(a.Param("stride"), a.GP64())
	three := a.GP64()
	a.LEAQ(indexed(stride, stride, 2, 0), three)
	mask := a.firstLanes(n)
	f := fold{}
	loop := a.newLabel("loop")
	a.Label(loop)
	// In the order of the function for longer rows: halves of a row, of that and
	// so on.
	var v []reg.VecVirtual
	for _, m := range []operand.Mem{at(x, 0), indexed(x, stride, 1, 0), indexed(x, stride, 2, 0), indexed(x, three, 1, 0)} {
		u := f.read(a, m, mask)
		if a.wide() {
			upper := a.YMM()
			a.VEXTRACTF64X4(operand.U8(1), u, upper)
			a.VADDPS(upper, u.AsY(), upper)
			u = upper
		}
		quarter := a.XMM()
		a.VEXTRACTF128(operand.U8(1), u.AsY(), quarter)
		a.VADDPS(quarter, u.AsX(), quarter)
		v = append(v, quarter)
	}
	// Of two rows in turn, then of four.
	for i := 0; i < 4; i += 2 {
		low, high := a.XMM(), a.XMM()
		a.VUNPCKLPS(v[i+1], v[i], low)
		a.VUNPCKHPS(v[i+1], v[i], high)
		a.VADDPS(high, low, v[i])
	}
	upper, lower, sums := a.XMM(), a.XMM(), a.YMM()
	a.VSHUFPS(operand.U8(0x44), v[2], v[0], lower)
	a.VSHUFPS(operand.U8(0xee), v[2], v[0], upper)
	a.VADDPS(upper, lower, upper)
	a.VCVTPS2PD(upper, sums)
	a.VADDPD(at(acc, 0), sums, sums)
	a.VMOVUPD(sums, at(acc, 0))
	a.ADDQ(operand.U8(32), acc)
	a.LEAQ(indexed(x, stride, 4, 0), x)
	a.SUBQ(operand.U8(4), rows)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

func longSquare(a *asm, acc, x vec, _ []vec) vec {
	v := a.fresh(acc)
	a.VFMADD231PD(x, x, v)
	return v
}

// most and least return the larger and the smaller of x and y; +0 is larger
// than -0. Of NaN the result is not said.
func (a *asm) most(x, y vec) vec {
	if a.wide() {
		v := a.vec()
		a.VRANGEPS(operand.U8(5), x, y, v)
		return v
	}
	return a.and(a.upper(x, y), a.upper(y, x))
}

func (a *asm) least(x, y vec) vec {
	if a.wide() {
		v := a.vec()
		a.VRANGEPS(operand.U8(4), x, y, v)
		return v
	}
	return a.or(a.lower(x, y), a.lower(y, x))
}

// narrowHalf returns the half of v that floats take which a vector of float64
// is widened from.
func (a *asm) narrowHalf(v vec) reg.VecVirtual {
	if a.wide() {
		return v.AsY().(reg.VecVirtual)
	}
	return v.AsX().(reg.VecVirtual)
}

// read returns a vector of elements at m, only those of the mask if there is
// one.
func (f *fold) read(a *asm, m operand.Mem, mask reg.Register) vec {
	v := a.vec()
	to := v
	if f.double {
		to = a.narrowHalf(v)
	}
	switch {
	case f.double && mask == nil:
		a.VCVTPS2PD(m, v)
		return v
	case mask == nil:
		a.VMOVUPS(m, v)
		return v
	case a.wide():
		a.VMOVUPS_Z(m, mask, to)
	case f.double:
		a.VMASKMOVPS(m, mask.(vec).AsX(), to)
	default:
		a.VMASKMOVPS(m, mask.(vec), to)
	}
	if f.double {
		a.VCVTPS2PD(to, v)
	}
	return v
}

// masked returns yes in the lanes of the mask, and no in the others.
func (f *fold) masked(a *asm, mask reg.Register, yes, no vec) vec {
	v := a.vec()
	switch {
	case a.wide() && f.double:
		a.VBLENDMPD(yes, no, mask, v)
	case a.wide():
		a.VBLENDMPS(yes, no, mask, v)
	case f.double:
		long := a.vec()
		a.VPMOVSXDQ(mask.(vec).AsX(), long)
		a.VBLENDVPD(long, yes, no, v)
	default:
		a.VBLENDVPS(mask.(vec), yes, no, v)
	}
	return v
}

// lanes returns how many elements a vector takes.
func (f *fold) lanes(a *asm) int {
	if f.double {
		return a.lanes / 2
	}
	return a.lanes
}

// write writes the function of a row, or if all is set that of rows, stride
// bytes apart, each of which is folded into its own accumulator in memory.
func (f fold) write(a *asm, all bool) {
	if f.join == nil {
		f.join = func(a *asm, x, y vec) vec { return f.step(a, x, y, nil) }
	}
	signature := "func(x *float32, n int"
	for _, s := range f.scalars {
		signature += ", " + s + " float32"
	}
	result := ") float32"
	if f.double {
		result = ") float64"
	}
	name := f.name
	if all {
		name, signature, result = f.name+"Each", "func(acc *float64, x *float32, n, rows, stride int", ")"
	}
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr(signature + result)
	x, n := a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("n"), a.GP64())
	var totals, rows, stride, first, count reg.Register
	row := a.newLabel("row")
	if all {
		totals, rows, stride = a.Load(a.Param("acc"), a.GP64()), a.Load(a.Param("rows"), a.GP64()), a.Load(a.Param("stride"), a.GP64())
		first, count = x, n
		x, n = a.GP64(), a.GP64()
		a.Label(row)
		a.MOVQ(first, x)
		a.MOVQ(count, n)
	}
	s := a.broadcast(f.scalars)
	acc := a.vecs(foldWays)
	for i := range acc {
		if all {
			a.VXORPS(acc[i], acc[i], acc[i]) // written whole: avo takes the rest for needed before
		} else if f.start == 0 {
			a.zero(acc[i])
		} else {
			a.VMOVUPS(a.constant(float32(f.start)), acc[i])
		}
	}
	var nan vec
	if f.nan {
		nan = a.vec()
		a.zero(nan)
	}
	note := func(x, y vec) {
		if f.nan {
			a.VMOVAPS(a.choose(unordered, x, y, a.load(a.bits(quietNaN)), nan), nan)
		}
	}
	lanes := f.lanes(a)
	bytes := 4 * lanes
	many, single, tail, done := a.newLabel("many"), a.newLabel("single"), a.newLabel("tail"), a.newLabel("done")
	a.SUBQ(operand.U8(foldWays*lanes), n)
	a.JL(operand.LabelRef(single))
	a.Label(many)
	var u []vec
	for i := range acc {
		u = append(u, f.read(a, at(x, i*bytes), nil))
		a.VMOVAPS(f.step(a, acc[i], u[i], s), acc[i])
		if i%2 == 1 {
			note(u[i-1], u[i])
		}
	}
	a.ADDQ(operand.I32(foldWays*bytes), x)
	a.SUBQ(operand.U8(foldWays*lanes), n)
	a.JGE(operand.LabelRef(many))

	a.Label(single)
	a.ADDQ(operand.U8((foldWays-1)*lanes), n)
	a.JL(operand.LabelRef(tail))
	next := a.newLabel("next")
	a.Label(next)
	v := f.read(a, at(x, 0), nil)
	a.VMOVAPS(f.step(a, acc[0], v, s), acc[0])
	note(v, v)
	a.ADDQ(operand.U8(bytes), x)
	a.SUBQ(operand.U8(lanes), n)
	a.JGE(operand.LabelRef(next))

	a.Label(tail)
	a.ADDQ(operand.U8(lanes), n)
	a.JZ(operand.LabelRef(done))
	mask := a.firstLanes(n)
	v = f.read(a, at(x, 0), mask)
	a.VMOVAPS(f.masked(a, mask, f.step(a, acc[1], v, s), acc[1]), acc[1])
	note(v, v)
	a.Label(done)
	r := f.join(a, f.join(a, acc[0], acc[1]), f.join(a, acc[2], acc[3]))
	for part := a.bytes() / 2; part >= 4; part /= 2 {
		if f.double && part == 4 {
			break
		}
		r = f.join(a, r, a.rotated(r, part))
		if f.nan {
			nan = a.or(nan, a.rotated(nan, part))
		}
	}
	if f.nan {
		r = a.or(r, nan)
	}
	if all {
		if !f.double {
			a.VCVTSS2SD(r.AsX(), r.AsX(), r.AsX())
		}
		a.VADDSD(at(totals, 0), r.AsX(), r.AsX())
		a.VMOVSD(r.AsX(), at(totals, 0))
		a.ADDQ(operand.U8(8), totals)
		a.ADDQ(stride, first)
		a.DECQ(rows)
		a.JNZ(operand.LabelRef(row))
	} else {
		a.Store(r.AsX(), a.ReturnIndex(0))
	}
	a.ret()
}

// broadcast returns vectors of the function's parameters of the given names.
func (a *asm) broadcast(names []string) []vec {
	var s []vec
	for _, name := range names {
		m, err := a.Param(name).Resolve()
		if err != nil {
			panic(err)
		}
		v := a.vec()
		a.VBROADCASTSS(m.Addr, v)
		s = append(s, v)
	}
	return s
}

// rotated returns v moved down by so many bytes, a power of two, in its lower
// lanes.
func (a *asm) rotated(v vec, bytes int) vec {
	w := a.vec()
	switch bytes {
	case 32:
		a.VEXTRACTF64X4(operand.U8(1), v, w.AsY())
	case 16:
		if a.wide() { // which may mean the upper registers
			a.VEXTRACTF32X4(operand.U8(1), v.AsY(), w.AsX())
			break
		}
		a.VEXTRACTF128(operand.U8(1), v.AsY(), w.AsX())
	case 8:
		a.VPERMILPS(operand.U8(0x4e), v.AsX(), w.AsX())
	case 4:
		a.VPERMILPS(operand.U8(0xb1), v.AsX(), w.AsX())
	}
	return w
}

// writeRows writes the function of several rows, stride bytes apart, which
// folds each element of them into the accumulator of its column.
func (f fold) writeRows(a *asm) {
	a.Function(f.name + "Rows" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(acc *float64, x *float32, n, rows, stride int)")
	acc, x := a.Load(a.Param("acc"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	n, rows, stride := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("rows"), a.GP64()), a.Load(a.Param("stride"), a.GP64())
	lanes := f.lanes(a)
	down := func(columns int, mask reg.Register) {
		p, left := a.GP64(), a.GP64()
		a.MOVQ(x, p)
		a.MOVQ(rows, left)
		sums := make([]vec, columns)
		for i := range sums {
			sums[i] = a.vec()
			switch {
			case mask == nil:
				a.VMOVUPS(at(acc, i*a.bytes()), sums[i])
			case a.wide():
				a.VMOVUPD_Z(at(acc, 0), mask, sums[i])
			default:
				a.VMASKMOVPD(at(acc, 0), mask.(vec), sums[i])
			}
		}
		loop := a.newLabel("loop")
		var half reg.Register = mask
		if mask != nil && !a.wide() {
			short := a.vec()
			// The low words of the mask's lanes.
			a.VEXTRACTF128(operand.U8(1), mask.(vec), short.AsX())
			a.VSHUFPS(operand.U8(0x88), short.AsX(), mask.(vec).AsX(), short.AsX())
			half = short
		}
		a.Label(loop)
		for i := range sums {
			v := f.read(a, at(p, 4*lanes*i), half)
			a.VMOVAPS(f.step(a, sums[i], v, nil), sums[i])
		}
		a.ADDQ(stride, p)
		a.DECQ(left)
		a.JNZ(operand.LabelRef(loop))
		for i := range sums {
			switch {
			case mask == nil:
				a.VMOVUPS(sums[i], at(acc, i*a.bytes()))
			case a.wide():
				a.VMOVUPD(sums[i], mask, at(acc, 0))
			default:
				a.VMASKMOVPD(sums[i], mask.(vec), at(acc, 0))
			}
		}
		if mask == nil {
			a.ADDQ(operand.I32(columns*a.bytes()), acc)
			a.ADDQ(operand.I32(columns*4*lanes), x)
		}
	}
	many, single, tail, done := a.newLabel("many"), a.newLabel("single"), a.newLabel("tail"), a.newLabel("done")
	a.SUBQ(operand.U8(foldWays*lanes), n)
	a.JL(operand.LabelRef(single))
	a.Label(many)
	down(foldWays, nil)
	a.SUBQ(operand.U8(foldWays*lanes), n)
	a.JGE(operand.LabelRef(many))
	a.Label(single)
	a.ADDQ(operand.U8((foldWays-1)*lanes), n)
	a.JL(operand.LabelRef(tail))
	next := a.newLabel("next")
	a.Label(next)
	down(1, nil)
	a.SUBQ(operand.U8(lanes), n)
	a.JGE(operand.LabelRef(next))
	a.Label(tail)
	a.ADDQ(operand.U8(lanes), n)
	a.JZ(operand.LabelRef(done))
	mask := a.firstLanes(n)
	if !a.wide() {
		long := a.vec()
		a.VPMOVSXDQ(mask.(vec).AsX(), long)
		mask = long
	}
	down(1, mask)
	a.Label(done)
	a.ret()
}
