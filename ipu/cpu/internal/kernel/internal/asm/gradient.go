package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeGradient writes the loops that go back through pooling and normalisation.
func writeGradient(a *asm) {
	two := []string{"x", "y"}
	for _, l := range []loop{
		{name: "dotRow", slices: two, sum: true, noStore: true, body: func(a *asm, x, _ []vec) vec { return a.mul(x[0], x[1]) }},
		{name: "dotCentred", slices: two, scalars: []string{"mean"}, sum: true, noStore: true, body: func(a *asm, x, s []vec) vec {
			return a.mul(a.sub(x[0], s[0]), x[1])
		}},
		{name: "dotScaled", slices: []string{"x", "y", "scale"}, scalars: []string{"mean"}, sum: true, noStore: true, body: func(a *asm, x, s []vec) vec {
			return a.mul(a.sub(x[0], s[0]), a.mul(x[1], x[2]))
		}},
		// Of a row with a scale for each element; what the scales' and addends' gradients get is added to these.
		{name: "backScaled", slices: []string{"x", "dy", "scale", "dscale", "dbias"}, scalars: []string{"mean", "factor", "first", "second"},
			outs: []string{"dst", "dscale", "dbias"}, bodies: func(a *asm, x, s []vec) []vec {
				hat := a.mul(a.sub(x[0], s[0]), s[1])
				dscale := a.add(x[3], a.mul(x[1], hat))
				dbias := a.add(x[4], x[1])
				d := a.sub(a.sub(a.mul(x[1], x[2]), s[2]), a.mul(hat, s[3]))
				return []vec{a.mul(d, s[1]), dscale, dbias}
			}},
		// Of a channel.
		{name: "backChannel", slices: []string{"x", "dy"}, scalars: []string{"mean", "scale", "slope", "shift"}, body: func(a *asm, x, s []vec) vec {
			return a.add(a.add(a.mul(x[1], s[1]), a.mul(a.sub(x[0], s[0]), s[2])), s[3])
		}},
		{name: "backSoftmax", slices: []string{"y", "dy"}, scalars: []string{"total"}, body: func(a *asm, x, s []vec) vec {
			return a.mul(x[0], a.sub(x[1], s[0]))
		}},
		{name: "backLogSoftmax", slices: []string{"y", "dy"}, scalars: []string{"total"}, body: func(a *asm, x, s []vec) vec {
			return a.sub(x[1], a.mul(a.exp(x[0]), s[0]))
		}},
	} {
		l.write(a)
	}
	a.backMaxPool()
}

// backMaxPool writes the function that goes back through rows of maxima of 2 by 2 elements that do not overlap: n of them in
// each of so many rows. width is how many bytes a row of x has. Elements at the right and below that are in no window are left as they are.
func (a *asm) backMaxPool() {
	a.Function("backMaxPool2" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x, dy *float32, n, rows, width int)")
	load := func(name string) reg.GPVirtual { return a.Load(a.Param(name), a.GP64()).(reg.GPVirtual) }
	dst, x, dy, n, rows, width := load("dst"), load("x"), load("dy"), load("n"), load("rows"), load("width")
	var order vec // of dy's pairs
	if a.wide() {
		order = a.load(a.stored("pairs", func(i int) uint32 { return []uint32{0, 0, 4, 0, 1, 0, 5, 0, 2, 0, 6, 0, 3, 0, 7, 0}[i] }))
	}
	// The masks of what is left of a row after whole vectors: of dy, and of the two vectors of x.
	rest := a.GP64()
	a.MOVQ(n, rest)
	a.ANDQ(operand.U8(a.lanes-1), rest)
	masked := func(count reg.GPVirtual) reg.Register {
		c := a.GP64()
		a.MOVQ(count, c)
		return a.firstLanes(c)
	}
	low, high, whole := a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(indexed(rest, rest, 1, 0), low)
	a.MOVQ(low, high)
	a.MOVQ(operand.I32(a.lanes), whole)
	a.CMPQ(low, whole)
	a.CMOVQGT(whole, low)
	a.SUBQ(low, high)
	masks := [3]reg.Register{masked(rest), masked(low), masked(high)}
	read := func(m operand.Mem, mask reg.Register) vec {
		switch v := a.vec(); {
		case mask == nil:
			return a.load(m)
		case a.wide():
			a.VMOVUPS_Z(m, mask, v)
			return v
		default:
			a.VMASKMOVPS(m, mask.(vec), v)
			return v
		}
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
	shuffled := func(x, y vec, how int) vec {
		v := a.vec()
		a.VSHUFPS(operand.U8(how), y, x, v)
		return v
	}
	// The elements of each half of a vector's lanes are in the order that VSHUFPS makes.
	vectors := func(from, d, to reg.Register, mask [3]reg.Register) {
		var c [4]vec // the elements of the windows, row by row
		lower, to2 := a.GP64(), a.GP64()
		a.LEAQ(indexed(from, width, 1, 0), lower)
		for i, p := range []reg.Register{from, lower} {
			u, v := read(at(p, 0), mask[1]), read(at(p, a.bytes()), mask[2])
			c[2*i], c[2*i+1] = shuffled(u, v, 0x88), shuffled(u, v, 0xdd)
		}
		g := read(at(d, 0), mask[0])
		if a.wide() {
			a.VPERMQ(g, order, g)
		} else {
			a.VPERMPD(operand.U8(0xd8), g, g)
		}
		parts := a.toMaximum(c, g)
		a.LEAQ(indexed(to, width, 1, 0), to2)
		for i, p := range []reg.Register{to, to2} {
			u, v := a.vec(), a.vec()
			a.VUNPCKLPS(parts[2*i+1], parts[2*i], u)
			a.VUNPCKHPS(parts[2*i+1], parts[2*i], v)
			write(u, at(p, 0), mask[1])
			write(v, at(p, a.bytes()), mask[2])
		}
	}
	row, loop, tail, next := a.newLabel("row"), a.newLabel("loop"), a.newLabel("tail"), a.newLabel("next")
	a.Label(row)
	from, to, left := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(x, from)
	a.MOVQ(dst, to)
	a.MOVQ(n, left)
	a.SUBQ(operand.U8(a.lanes), left)
	a.JL(operand.LabelRef(tail))
	a.Label(loop)
	vectors(from, dy, to, [3]reg.Register{})
	a.ADDQ(operand.I32(2*a.bytes()), from)
	a.ADDQ(operand.I32(2*a.bytes()), to)
	a.ADDQ(operand.U8(a.bytes()), dy)
	a.SUBQ(operand.U8(a.lanes), left)
	a.JGE(operand.LabelRef(loop))
	a.Label(tail)
	a.TESTQ(rest, rest)
	a.JZ(operand.LabelRef(next))
	vectors(from, dy, to, masks)
	a.LEAQ(indexed(dy, rest, 4, 0), dy)
	a.Label(next)
	a.LEAQ(indexed(x, width, 2, 0), x)
	a.LEAQ(indexed(dst, width, 2, 0), dst)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ret()
}

// toMaximum returns g in the first of four vectors in whose lane the greatest stands, and zero in the others. The first NaN is
// the greatest.
func (a *asm) toMaximum(c [4]vec, g vec) [4]vec {
	best := a.fresh(c[0])
	var parts [4]vec
	if a.wide() {
		taken := []reg.Register{nil, a.K(), a.K(), a.K()}
		for i := 1; i < 4; i++ {
			number := a.K()
			a.VCMPPS(operand.U8(notLessEqual), best, c[i], taken[i])
			a.VCMPPS(operand.U8(ordered), best, best, number)
			a.KANDW(taken[i], number, taken[i])
			a.VMOVAPS(c[i], taken[i], best)
		}
		later := a.K()
		a.KMOVW(taken[3], later)
		for i := 3; i >= 0; i-- {
			parts[i] = a.vec()
			switch i {
			case 3:
				a.VMOVAPS_Z(g, taken[3], parts[i])
			case 0:
				a.KNOTW(later, later)
				a.VMOVAPS_Z(g, later, parts[i])
			default:
				own := a.K()
				a.KANDNW(taken[i], later, own)
				a.KORW(taken[i], later, later)
				a.VMOVAPS_Z(g, own, parts[i])
			}
		}
		return parts
	}
	// taken[i] says in which lanes element i is greater than all before it.
	var taken [4]vec
	for i := 1; i < 4; i++ {
		number := a.vec()
		taken[i] = a.vec()
		a.VCMPPS(operand.U8(notLessEqual), best, c[i], taken[i])
		a.VCMPPS(operand.U8(ordered), best, best, number)
		a.VANDPS(number, taken[i], taken[i])
		a.VBLENDVPS(taken[i], c[i], best, best)
	}
	rest := a.fresh(g) // what none of the later ones has got
	for i := 3; i > 0; i-- {
		parts[i] = a.and(rest, taken[i])
		a.VANDNPS(rest, taken[i], rest)
	}
	parts[0] = rest
	return parts
}
