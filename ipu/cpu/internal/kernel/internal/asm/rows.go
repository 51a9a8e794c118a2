package main

import (
	"strings"

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
		if a.wide() && strings.HasPrefix(l.name, "exp") {
			l.ways = 2
		}
		l.write(a)
	}
	// The greater of best and x, and d instead of at where that is x. The first
	// NaN is the greatest.
	loop{name: "greater", slices: []string{"best", "at", "x"}, scalars: []string{"d"}, outs: []string{"best", "at"},
		bodies: func(a *asm, x, s []vec) []vec {
			best, at := x[0], x[1]
			v := a.choose(notLessEqual, x[2], best, x[2], best)
			to := a.choose(notLessEqual, x[2], best, s[0], at)
			return []vec{a.choose(unordered, best, best, best, v), a.choose(unordered, best, best, at, to)}
		}}.write(a)
	a.softmaxRows("softmaxRows", false)
	a.softmaxRows("logSoftmaxRows", true)
	a.normRows("layerNormRows", true)
	a.normRows("rmsNormRows", false)
}

// rowGroup is rows of n elements each, one after the other, of which a function
// in assembly computes as many at once as it has ways: what one waits for, the
// other does not.
type rowGroup struct {
	asm                 *asm
	ways                int
	n, rows             reg.Register
	length, whole, rest reg.Register // of a row, in bytes; its whole vectors; elements after them
	mask                reg.Register // of those
	operands            []rowOperand
	none                vec // what elements after a row's last are taken for; zero if nil
}

// rowOperand is the memory of a group's rows.
type rowOperand struct{ rows []reg.Register }

// rowGroup begins a group. The function has parameters n and rows, and pointers
// to the operands.
func (a *asm) rowGroup(ways int, operands ...string) *rowGroup {
	g := &rowGroup{asm: a, ways: ways}
	for _, name := range operands {
		o := rowOperand{rows: []reg.Register{a.Load(a.Param(name), a.GP64())}}
		for range ways - 1 {
			o.rows = append(o.rows, a.GP64())
		}
		g.operands = append(g.operands, o)
	}
	n, rows := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("rows"), a.GP64())
	whole, rest, length, left := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(indexed(n, n, 1, 0), length)
	a.ADDQ(length, length)
	a.MOVQ(n, rest)
	a.ANDQ(operand.U8(a.lanes-1), rest)
	a.MOVQ(n, whole)
	a.SUBQ(rest, whole)
	a.SHLQ(operand.U8(2), whole)
	a.MOVQ(rest, left)
	g.n, g.rows, g.length, g.whole, g.rest, g.mask = n, rows, length, whole, rest, a.firstLanes(left)
	return g
}

// each emits body for all groups. Where a single row is left, both ways compute
// that.
func (g *rowGroup) each(body func()) {
	group := g.asm.newLabel("group")
	g.asm.Label(group)
	if g.ways == 2 {
		ahead := g.asm.GP64()
		g.asm.XORQ(ahead, ahead)
		g.asm.CMPQ(g.rows, operand.U8(1))
		g.asm.CMOVQGT(g.length, ahead)
		for _, o := range g.operands {
			g.asm.LEAQ(indexed(o.rows[0], ahead, 1, 0), o.rows[1])
		}
	}
	body()
	for _, o := range g.operands {
		g.asm.LEAQ(indexed(o.rows[0], g.length, uint8(g.ways), 0), o.rows[0])
	}
	g.asm.SUBQ(operand.U8(g.ways), g.rows)
	g.asm.JG(operand.LabelRef(group))
}

// along emits body for the vectors of the rows: many of each row side by side
// where there are so many, then one at a time, then what is left with a mask.
// The body gets which of many the vector is and its place.
func (g *rowGroup) along(many int, body func(way, number int, i, mask reg.Register)) {
	i := g.asm.GP64()
	g.asm.XORQ(i, i)
	steps := []int{many, 1}
	if many == 1 {
		steps = steps[:1]
	}
	for _, step := range steps {
		loop, end := g.asm.newLabel("loop"), g.asm.newLabel("end")
		last := g.whole
		if step > 1 {
			last = g.asm.GP64()
			g.asm.LEAQ(at(g.whole, -(step-1)*g.asm.bytes()), last)
		}
		g.asm.CMPQ(i, last)
		g.asm.JGE(operand.LabelRef(end))
		g.asm.Label(loop)
		g.asm.sideBySide(step*g.ways, func(k int) { body(k%g.ways, k/g.ways, i, nil) })
		g.asm.ADDQ(operand.I32(step*g.asm.bytes()), i)
		g.asm.CMPQ(i, last)
		g.asm.JL(operand.LabelRef(loop))
		g.asm.Label(end)
	}
	done := g.asm.newLabel("done")
	g.asm.TESTQ(g.rest, g.rest)
	g.asm.JZ(operand.LabelRef(done))
	g.asm.sideBySide(g.ways, func(way int) { body(way, 0, i, g.mask) })
	g.asm.Label(done)
}

// perWay returns what f makes for each way, side by side.
func (g *rowGroup) perWay(f func(way int) vec) []vec {
	v := make([]vec, g.ways)
	g.asm.sideBySide(g.ways, func(way int) { v[way] = f(way) })
	return v
}

// read returns the vector at m, of which there are only the elements of the
// mask if there is one.
func (g *rowGroup) read(m operand.Mem, mask reg.Register) vec {
	v := g.asm.vec()
	switch {
	case mask == nil:
		g.asm.VMOVUPS(m, v)
	case g.asm.wide() && g.none == nil:
		g.asm.VMOVUPS_Z(m, mask, v)
	case g.asm.wide():
		g.asm.VMOVAPS(g.none, v)
		g.asm.VMOVUPS(m, mask, v)
	default:
		g.asm.VMASKMOVPS(m, mask.(vec), v)
		if g.none != nil {
			g.asm.VBLENDVPS(mask.(vec), v, g.none, v)
		}
	}
	return v
}

// write is the reverse of read.
func (g *rowGroup) write(v vec, m operand.Mem, mask reg.Register) {
	switch {
	case mask == nil:
		g.asm.VMOVUPS(v, m)
	case g.asm.wide():
		g.asm.VMOVUPS(v, mask, m)
	default:
		g.asm.VMASKMOVPS(v, mask.(vec), m)
	}
}

// sum adds v to a total, only the elements of the mask if there is one.
func (g *rowGroup) sum(v, total vec, mask reg.Register) {
	switch {
	case mask == nil:
		g.asm.VADDPS(v, total, total)
	case g.asm.wide():
		g.asm.VADDPS(v, total, mask, total)
	default:
		g.asm.VADDPS(g.asm.and(v, mask.(vec)), total, total)
	}
}

// nothing returns n vectors of zeros. They are written whole, for avo takes the
// rest of a vector for needed before.
func (g *rowGroup) nothing(n int) []vec {
	v := g.asm.vecs(n)
	for _, v := range v {
		g.asm.VXORPS(v, v, v)
	}
	return v
}

// joined returns all elements of v joined, in the lowest.
func (g *rowGroup) joined(v vec, join func(x vec, y operand.Op) vec) vec {
	for part := g.asm.bytes() / 2; part >= 4; part /= 2 {
		v = join(v, g.asm.rotated(v, part))
	}
	return v
}

// everywhere returns a vector of v's lowest element.
func (g *rowGroup) everywhere(v vec) vec {
	w := g.asm.vec()
	g.asm.VBROADCASTSS(v.AsX(), w)
	return w
}

// softmaxRows normalises rows, or if log is set gives the logarithms of what
// that makes them.
func (a *asm) softmaxRows(name string, log bool) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x *float32, n, rows int)")
	ways, operands := 1, 5 // the mask takes a register too
	if a.wide() {
		ways, operands = 2, 2
	}
	g := a.rowGroup(ways, "dst", "x")
	dst, x := g.operands[0].rows, g.operands[1].rows
	a.hold(operands, 1, func(a *asm) { a.exp(a.vec()) })
	none := a.load(a.bits(0xff800000)) // -Inf
	one := a.register(a.constant(1))
	g.each(func() {
		// Two maxima of a row do not wait for each other.
		most := a.vecs(2 * ways)
		for _, v := range most {
			a.VMOVAPS(none, v)
		}
		g.none = none
		g.along(4, func(way, number int, i, mask reg.Register) {
			to := most[2*way+number%2]
			a.VMAXPS(g.read(indexed(x[way], i, 1, number*a.bytes()), mask), to, to)
		})
		peak := g.perWay(func(way int) vec {
			return g.everywhere(g.joined(a.upper(most[2*way], most[2*way+1]), a.upper))
		})
		total := g.nothing(ways)
		g.along(1, func(way, _ int, i, mask reg.Register) {
			e := a.exp(a.sub(g.read(indexed(x[way], i, 1, 0), mask), peak[way]))
			if !log {
				g.write(e, indexed(dst[way], i, 1, 0), mask)
			}
			g.sum(e, total[way], mask)
		})
		if log {
			less := g.perWay(func(way int) vec { return a.log(g.everywhere(g.joined(total[way], a.add))) })
			g.none = nil
			g.along(2, func(way, number int, i, mask reg.Register) {
				v := g.read(indexed(x[way], i, 1, number*a.bytes()), mask)
				g.write(a.sub(a.sub(v, peak[way]), less[way]), indexed(dst[way], i, 1, number*a.bytes()), mask)
			})
			return
		}
		factor := g.perWay(func(way int) vec { return a.div(one, g.everywhere(g.joined(total[way], a.add))) })
		g.none = nil
		g.along(2, func(way, number int, i, mask reg.Register) {
			to := indexed(dst[way], i, 1, number*a.bytes())
			g.write(a.mul(g.read(to, mask), factor[way]), to, mask)
		})
	})
	a.release()
	a.ret()
}

// normRows writes the function that normalises rows by the mean of their
// squares, if layer is set after taking off their mean.
func (a *asm) normRows(name string, layer bool) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	parameters := "dst, x, scale, bias"
	if !layer {
		parameters = "dst, x, scale"
	}
	a.SignatureExpr("func(" + parameters + " *float32, n, rows int, epsilon float64)")
	ways := 1
	if a.wide() {
		ways = 2
	}
	g := a.rowGroup(ways, "dst", "x")
	dst, x := g.operands[0].rows, g.operands[1].rows
	scale := a.Load(a.Param("scale"), a.GP64())
	var bias reg.Register
	if layer {
		bias = a.Load(a.Param("bias"), a.GP64())
	}
	count, epsilon, one := a.XMM(), a.XMM(), a.XMM()
	a.VCVTSI2SDQ(g.n, count, count)
	a.Load(a.Param("epsilon"), epsilon)
	a.VMOVSS(a.stored(uint32(0x3f800000), func(int) uint32 { return 0x3f800000 }), one)
	a.VCVTSS2SD(one, one, one)
	// mean returns the mean of so many elements whose sums are given.
	mean := func(sums []vec) reg.VecVirtual {
		v := g.joined(a.add(a.add(sums[0], sums[1]), a.add(sums[2], sums[3])), a.add)
		w := a.XMM()
		a.VCVTSS2SD(v.AsX(), v.AsX(), w)
		a.VDIVSD(count, w, w)
		return w
	}
	sums := func() [][]vec {
		s := make([][]vec, ways)
		for way := range s {
			s[way] = g.nothing(foldWays)
		}
		return s
	}
	// place is the sum of a way to which the vector is added.
	place := func(sums [][]vec, way, number int, mask reg.Register) vec {
		if mask != nil {
			return sums[way][1]
		}
		return sums[way][number]
	}
	g.each(func() {
		var means []vec
		if layer {
			s := sums()
			g.along(foldWays, func(way, number int, i, mask reg.Register) {
				to := place(s, way, number, mask)
				a.VADDPS(g.read(indexed(x[way], i, 1, number*a.bytes()), mask), to, to)
			})
			means = g.perWay(func(way int) vec {
				m := mean(s[way])
				a.VCVTSD2SS(m, m, m)
				v := a.vec()
				a.VBROADCASTSS(m, v)
				return v
			})
		}
		s := sums()
		g.along(foldWays, func(way, number int, i, mask reg.Register) {
			d := g.read(indexed(x[way], i, 1, number*a.bytes()), mask)
			if layer {
				d = a.sub(d, means[way])
			}
			to := place(s, way, number, mask)
			switch {
			case mask == nil || !layer:
				a.VFMADD231PS(d, d, to)
			case a.wide():
				a.VFMADD231PS(d, d, mask, to)
			default:
				d = a.and(d, mask.(vec))
				a.VFMADD231PS(d, d, to)
			}
		})
		factors := g.perWay(func(way int) vec {
			m := mean(s[way])
			a.VADDSD(epsilon, m, m)
			a.VSQRTSD(m, m, m)
			a.VDIVSD(m, one, m)
			a.VCVTSD2SS(m, m, m)
			v := a.vec()
			a.VBROADCASTSS(m, v)
			return v
		})
		g.along(2, func(way, number int, i, mask reg.Register) {
			d := g.read(indexed(x[way], i, 1, number*a.bytes()), mask)
			if layer {
				d = a.sub(d, means[way])
			}
			d = a.mul(d, factors[way])
			f := g.read(indexed(scale, i, 1, number*a.bytes()), mask)
			if layer {
				d = a.fma(d, f, g.read(indexed(bias, i, 1, number*a.bytes()), mask))
			} else {
				d = a.mul(d, f)
			}
			g.write(d, indexed(dst[way], i, 1, number*a.bytes()), mask)
		})
	})
	a.ret()
}
