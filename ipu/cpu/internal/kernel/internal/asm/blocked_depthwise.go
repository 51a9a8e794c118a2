package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeBlockedDepthwise writes convolutions of single channels, a vector of
// which stands in every pixel, with square windows: rows of the result, pixel
// by pixel. Products are rounded, four of them added up, then those sums.
func writeBlockedDepthwise(a *asm) {
	for _, size := range []int{3, 5} {
		for stride := 1; stride <= 2; stride++ {
			name := fmt.Sprintf("blockedDepthwise%d", size)
			if stride == 2 {
				name += "Even"
			}
			d := blockedDepthwise{asm: a, size: size, stride: stride}
			d.args = a.function(name, "blockedDepthwiseArgs")
			d.write()
		}
	}
}

type blockedDepthwise struct {
	asm          *asm
	args         reg.Register
	size, stride int

	weights []vec // if registers suffice
	w       reg.Register
	rows    []reg.Register // of the input, under the window's lines
	zeros   reg.Register   // a row of them
	column  reg.Register   // of the input, under the window's first
	y       reg.Register
}

func (d *blockedDepthwise) write() {
	taps := d.size * d.size
	d.w, d.y, d.zeros, d.column = d.asm.GP64(), d.asm.GP64(), d.asm.GP64(), d.asm.GP64()
	d.asm.MOVQ(d.asm.field(d.args, "w"), d.w)
	d.asm.MOVQ(d.asm.field(d.args, "y"), d.y)
	d.asm.MOVQ(d.asm.field(d.args, "zeros"), d.zeros)
	inRegisters := taps <= 9 || d.asm.wide()
	if inRegisters {
		for i := range taps {
			d.weights = append(d.weights, d.asm.load(at(d.w, i*d.asm.bytes())))
		}
	}
	together := 1
	if d.asm.wide() {
		together = 2
		if taps <= 9 {
			together = 4
		}
	}
	d.rows = make([]reg.Register, d.size)
	for i := range d.rows {
		d.rows[i] = d.asm.GP64()
	}
	line := d.asm.newLabel("line")
	d.asm.Label(line)
	row, next := d.asm.GP64(), d.asm.GP64()
	d.asm.MOVQ(d.asm.field(d.args, "row"), row)
	d.asm.MOVQ(row, next)
	d.asm.IMULQ(d.asm.field(d.args, "xRow"), next)
	d.asm.ADDQ(d.asm.field(d.args, "x"), next)
	for i, p := range d.rows {
		// Rows above the input are large when taken for unsigned.
		d.asm.MOVQ(next, p)
		d.asm.CMPQ(row, d.asm.field(d.args, "height"))
		d.asm.CMOVQCC(d.zeros, p)
		if i < len(d.rows)-1 {
			d.asm.INCQ(row)
			d.asm.ADDQ(d.asm.field(d.args, "xRow"), next)
		}
	}
	d.asm.ADDQ(operand.U8(d.stride), d.asm.field(d.args, "row"))
	d.asm.MOVQ(d.asm.field(d.args, "column"), d.column)
	d.border(d.asm.offset("before"))

	// Where the whole window lies inside.
	left := d.asm.GP64()
	d.asm.MOVQ(d.asm.field(d.args, "inside"), left)
	run, rest, single, done := d.asm.newLabel("run"), d.asm.newLabel("rest"), d.asm.newLabel("single"), d.asm.newLabel("done")
	shift := operand.U8(6)
	if !d.asm.wide() {
		shift = 5
	}
	d.asm.SHLQ(shift, d.column) // bytes from here on
	inside := d.product(func(px, ky, kx int) operand.Mem {
		return indexed(d.rows[ky], d.column, 1, (px*d.stride+kx)*d.asm.bytes())
	})
	if together > 1 {
		d.asm.SUBQ(operand.U8(together), left)
		d.asm.JL(operand.LabelRef(rest))
		d.asm.Label(run)
		d.pixels(together, inside)
		d.asm.ADDQ(operand.U32(together*d.stride*d.asm.bytes()), d.column)
		d.asm.SUBQ(operand.U8(together), left)
		d.asm.JGE(operand.LabelRef(run))
		d.asm.Label(rest)
		d.asm.ADDQ(operand.U8(together), left)
	} else {
		d.asm.TESTQ(left, left)
	}
	d.asm.JZ(operand.LabelRef(done))
	d.asm.Label(single)
	d.pixels(1, inside)
	d.asm.ADDQ(operand.U32(d.stride*d.asm.bytes()), d.column)
	d.asm.DECQ(left)
	d.asm.JNZ(operand.LabelRef(single))
	d.asm.Label(done)
	d.asm.SARQ(shift, d.column)
	d.border(d.asm.offset("after"))
	d.asm.DECQ(d.asm.field(d.args, "rows"))
	d.asm.JNZ(operand.LabelRef(line))
	d.asm.ret()
}

// border computes as many pixels as a field says, of whose windows columns may
// lie outside.
func (d *blockedDepthwise) border(count int) {
	left := d.asm.GP64()
	d.asm.MOVQ(at(d.args, count), left)
	loop, done := d.asm.newLabel("border"), d.asm.newLabel("inside")
	d.asm.TESTQ(left, left)
	d.asm.JZ(operand.LabelRef(done))
	d.asm.Label(loop)
	if d.asm.wide() {
		d.masked()
	} else {
		d.reached()
	}
	d.asm.ADDQ(operand.U8(d.stride), d.column)
	d.asm.DECQ(left)
	d.asm.JNZ(operand.LabelRef(loop))
	d.asm.Label(done)
}

// masked computes a pixel and reads columns outside as zeros.
func (d *blockedDepthwise) masked() {
	first := d.asm.GP64()
	d.asm.MOVQ(d.column, first)
	d.asm.SHLQ(operand.U8(6), first)
	columns := make([]reg.Register, d.size)
	for kx := range columns {
		column, k := d.asm.GP64(), d.asm.K()
		d.asm.LEAQ(at(d.column, kx), column)
		// All ones if it is below when taken for unsigned.
		d.asm.CMPQ(column, d.asm.field(d.args, "width"))
		d.asm.SBBL(column.(reg.GP).As32(), column.(reg.GP).As32())
		d.asm.KMOVW(column.(reg.GP).As32(), k)
		columns[kx] = k
	}
	d.pixels(1, func(_, tap int, to vec) {
		ky, kx := tap/d.size, tap%d.size
		d.asm.VMOVUPS_Z(indexed(d.rows[ky], first, 1, kx*d.asm.bytes()), columns[kx], to)
		d.asm.VMULPS(d.weights[tap], to, to)
	})
}

// reached computes a pixel and reads the row of zeros where columns are outside.
func (d *blockedDepthwise) reached() {
	d.pixels(1, d.product(func(_, ky, kx int) operand.Mem {
		column, p := d.asm.GP64(), d.asm.GP64()
		d.asm.LEAQ(at(d.column, kx), column)
		d.asm.MOVQ(column, p)
		d.asm.SHLQ(operand.U8(5), p)
		d.asm.ADDQ(d.rows[ky], p)
		d.asm.CMPQ(column, d.asm.field(d.args, "width"))
		d.asm.CMOVQCC(d.zeros, p)
		return at(p, 0)
	}))
}

// product returns what multiplies weights by what stands where place tells.
func (d *blockedDepthwise) product(place func(px, ky, kx int) operand.Mem) func(px, tap int, to vec) {
	return func(px, tap int, to vec) {
		m := place(px, tap/d.size, tap%d.size)
		if d.weights != nil {
			d.asm.VMULPS(m, d.weights[tap], to)
			return
		}
		d.asm.VMOVUPS(m, to)
		d.asm.VMULPS(at(d.w, tap*d.asm.bytes()), to, to)
	}
}

// pixels computes n neighbours from the products of all weights.
func (d *blockedDepthwise) pixels(n int, product func(px, tap int, to vec)) {
	sum, few := d.asm.vecs(n), d.asm.vecs(n)
	taps := d.size * d.size
	for tap := range taps {
		for px := range n {
			p := d.asm.vec()
			switch {
			case tap == taps-1: // the only one beyond whole fours
				product(px, tap, p)
				d.asm.VADDPS(p, sum[px], sum[px])
			case tap%4 == 0:
				product(px, tap, few[px])
			case tap == 3:
				product(px, tap, p)
				d.asm.VADDPS(p, few[px], sum[px])
			default:
				product(px, tap, p)
				d.asm.VADDPS(p, few[px], few[px])
				if tap%4 == 3 {
					d.asm.VADDPS(few[px], sum[px], sum[px])
				}
			}
		}
	}
	bias := d.asm.GP64()
	d.asm.MOVQ(d.asm.field(d.args, "bias"), bias)
	for _, x := range sum {
		d.asm.VADDPS(at(bias, 0), x, x)
	}
	d.asm.finish(d.args, d.asm.offset("half"), d.asm.offset("r"), d.asm.offset("y"), d.asm.offset("bounded"), sum, func(i int) operand.Mem {
		return at(d.y, i*d.asm.bytes())
	})
	d.asm.ADDQ(operand.U32(n*d.asm.bytes()), d.y)
}

// finish rounds vectors of a result to half precision, adds what stands in r,
// rounds again, keeps them within bounds and stores them. Fields of args that
// are zero say what is left out; r is how far the addends lie from y, and the
// bounds, of which the second counts if bounded is 1, follow the field of that.
func (a *asm) finish(args reg.Register, half, r, first, bounded int, x []vec, place func(i int) operand.Mem) {
	where := func(field int, do func()) {
		not := a.newLabel("not")
		a.CMPQ(at(args, field), operand.U8(0))
		a.JEQ(operand.LabelRef(not))
		do()
		a.Label(not)
	}
	round := func() {
		where(half, func() {
			for _, x := range x {
				a.roundHalf(x)
			}
		})
	}
	round()
	where(r, func() {
		addend := a.GP64()
		a.MOVQ(at(args, r), addend)
		a.SUBQ(at(args, first), addend)
		for i, x := range x {
			m := place(i)
			m.Index, m.Scale = addend, 1
			a.VADDPS(m, x, x)
		}
		round()
	})
	where(bounded, func() {
		low, high := a.vec(), a.vec()
		a.VBROADCASTSS(at(args, bounded+8), low)
		for _, x := range x {
			a.VMAXPS(x, low, x)
		}
		below := a.newLabel("below")
		a.CMPQ(at(args, bounded), operand.U8(1))
		a.JNE(operand.LabelRef(below))
		a.VBROADCASTSS(at(args, bounded+12), high)
		for _, x := range x {
			a.VMINPS(x, high, x)
		}
		a.Label(below)
	})
	for i, x := range x {
		a.VMOVUPS(x, place(i))
	}
}
