package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeDepthwise writes convolutions of one plane with one square window, for
// a strip of the output that is a few vectors wide. They go down the rows of
// the input, each of which is read once and added to all rows of the output
// that it belongs to; those are kept in registers.
func writeDepthwise(a *asm) {
	for _, stride := range []int{1, 2} {
		for _, size := range []int{3, 5} {
			name := fmt.Sprintf("depthwise%d", size)
			if stride == 2 {
				name += "Even"
			}
			var all []variant
			for vectors := a.depthwiseVectors(size, stride); vectors >= 1; vectors-- {
				all = append(all, variant{tile: fmt.Sprint(vectors * a.lanes), asked: []asked{a.value("vectors", vectors)}, is: a.columns(vectors),
					write: func(args reg.Register) {
						(&depthwise{asm: a, args: args, size: size, stride: stride, vectors: vectors}).write()
					}})
			}
			a.tiled(name, "depthwiseArgs", all)
		}
	}
}

// depthwiseVectors is the most vectors of a strip for which registers suffice.
func (a *asm) depthwiseVectors(size, stride int) int {
	switch {
	case a.wide() && size == 3 && stride == 1:
		return 4
	case a.wide() || size == 3 && stride == 1:
		return 2
	}
	return 1
}

type depthwise struct {
	*asm
	args                  reg.Register
	size, stride, vectors int

	x, w      reg.Register
	even, odd vec // which elements of two vectors
	// Of the rows of the output that are being computed, in turn: the sums of
	// four products each that are complete, and of the products after them.
	sum, few [][]vec
}

func (d *depthwise) write() {
	y, row, height, rows := d.GP64(), d.GP64(), d.GP64(), d.GP64()
	xRow, yRow, before, zeros, line := d.GP64(), d.GP64(), d.GP64(), d.GP64(), d.GP64()
	d.x, d.w = d.GP64(), d.GP64()
	for _, l := range []struct {
		offset int
		r      reg.Register
	}{
		{d.offset("w"), d.w}, {d.offset("y"), y}, {d.offset("row"), row}, {d.offset("height"), height}, {d.offset("rows"), rows},
		{d.offset("xRow"), xRow}, {d.offset("yRow"), yRow}, {d.offset("row"), line}, {d.offset("zeros"), zeros},
	} {
		d.MOVQ(at(d.args, l.offset), l.r)
	}
	ahead := d.GP64()
	d.MOVQ(xRow, ahead)
	d.SHLQ(operand.U8(3), ahead)
	d.IMULQ(xRow, line)
	d.ADDQ(d.field(d.args, "x"), line)
	d.ADDQ(d.field(d.args, "offset"), line)
	d.ADDQ(d.field(d.args, "offset"), zeros)

	if d.wide() && d.stride == 2 {
		d.even, d.odd = d.load(d.ramp(0)), d.load(d.ramp(1))
	}
	turn := (d.size-1)/d.stride + 1
	for range turn {
		d.sum, d.few = append(d.sum, d.vecs(d.vectors)), append(d.few, d.vecs(d.vectors))
	}
	for q := range turn {
		for i := range d.vectors {
			d.zero(d.sum[q][i])
			d.zero(d.few[q][i])
		}
	}
	// So many rows of the output would begin above it.
	d.MOVQ(operand.U32(turn-1), before)

	loop, done := d.newLabel("loop"), d.newLabel("done")
	d.Label(loop)
	for phase := range turn * d.stride {
		q, rest := phase/d.stride, phase%d.stride
		// Rows above the input are large when taken for unsigned.
		d.MOVQ(line, d.x)
		d.CMPQ(row, height)
		d.CMOVQCC(zeros, d.x)
		// Eight rows on, for strips read too little of a row for the processor
		// to see where they go.
		for i := range d.vectors * d.stride * d.bytes() / 64 {
			d.PREFETCHT0(indexed(line, ahead, 1, 64*i))
		}
		d.inputRow(func(kx int, x []vec) {
			for ky := rest; ky < d.size; ky += d.stride {
				d.addTo((q-ky/d.stride+turn)%turn, ky*d.size+kx, x)
			}
		})
		d.INCQ(row)
		d.ADDQ(xRow, line)
		if rest == 0 {
			early := d.newLabel("early")
			d.SUBQ(operand.U8(1), before)
			d.JGE(operand.LabelRef(early))
			d.store(y, d.sum[(q+1)%turn])
			d.ADDQ(yRow, y)
			d.DECQ(rows)
			d.JZ(operand.LabelRef(done))
			d.Label(early)
		}
	}
	d.JMP(operand.LabelRef(loop))
	d.Label(done)
	d.ret()
}

// addTo adds a weight times x to row q of the output. Products are rounded,
// four of them added up, then those sums.
func (d *depthwise) addTo(q, weight int, x []vec) {
	w := d.vec()
	d.VBROADCASTSS(at(d.w, 4*weight), w)
	sum, few := d.sum[q], d.few[q]
	last := weight == d.size*d.size-1 // the only one beyond whole fours
	for i := range x {
		if weight%4 == 0 && !last {
			d.VMULPS(w, x[i], few[i])
			continue
		}
		p := d.vec()
		d.VMULPS(w, x[i], p)
		switch {
		case last:
			d.VADDPS(p, sum[i], sum[i])
		case weight == 3:
			d.VADDPS(p, few[i], sum[i])
		default:
			d.VADDPS(p, few[i], few[i])
			if weight%4 == 3 {
				d.VADDPS(few[i], sum[i], sum[i])
			}
		}
	}
}

// inputRow calls use with the elements of a row that every column of the
// window meets.
func (d *depthwise) inputRow(use func(kx int, x []vec)) {
	if d.stride == 1 {
		for kx := range d.size {
			x := make([]vec, d.vectors)
			for i := range x {
				x[i] = d.loadMasked(at(d.x, 4*kx+i*d.bytes()), kx*d.vectors+i)
			}
			use(kx, x)
		}
		return
	}
	for kx := 0; kx < d.size; kx += 2 {
		even, odd := make([]vec, d.vectors), make([]vec, d.vectors)
		for i := range even {
			mask := (kx/2*d.vectors + i) * 2
			lo := d.loadMasked(at(d.x, 4*kx+2*i*d.bytes()), mask)
			hi := d.loadMasked(at(d.x, 4*kx+(2*i+1)*d.bytes()), mask+1)
			even[i], odd[i] = d.part(lo, hi)
		}
		use(kx, even)
		if kx+1 < d.size {
			use(kx+1, odd)
		}
	}
}

// loadMasked returns a vector of x whose elements outside the input are zero.
func (d *depthwise) loadMasked(m operand.Mem, mask int) vec {
	v := d.vec()
	if d.wide() {
		k := d.K()
		d.KMOVW(at(d.args, d.offset("masks")+2*mask), k)
		d.VMOVUPS_Z(m, k, v)
	} else {
		d.VMOVUPS(at(d.args, d.offset("lanes")+32*mask), v)
		d.VMASKMOVPS(m, v, v)
	}
	return v
}

// part returns the elements of two vectors that have even, and odd, numbers.
func (d *depthwise) part(lo, hi vec) (even, odd vec) {
	if d.wide() {
		even = d.fresh(lo)
		d.VPERMT2PS(hi, d.even, even)
		d.VPERMT2PS(hi, d.odd, lo)
		return even, lo
	}
	even, odd = d.vec(), d.vec()
	d.VSHUFPS(operand.U8(0x88), hi, lo, even)
	d.VPERMPD(operand.U8(0xd8), even, even)
	d.VSHUFPS(operand.U8(0xdd), hi, lo, odd)
	d.VPERMPD(operand.U8(0xd8), odd, odd)
	return even, odd
}

// store writes a row of the output; only its last vector may not be whole.
func (d *depthwise) store(y reg.Register, sum []vec) {
	for i, v := range sum {
		x := d.vec()
		d.VBROADCASTSS(d.field(d.args, "bias"), x)
		d.VADDPS(x, v, v)
		// Not a number stays what it is.
		d.VBROADCASTSS(d.field(d.args, "low"), x)
		d.VMAXPS(v, x, v)
		d.VBROADCASTSS(d.field(d.args, "high"), x)
		d.VMINPS(v, x, v)
		m := at(y, i*d.bytes())
		switch {
		case i < len(sum)-1:
			d.VMOVUPS(v, m)
		case d.wide():
			k := d.K()
			d.KMOVW(d.field(d.args, "store"), k)
			d.VMOVUPS(v, k, m)
		default:
			d.VMASKMOVPS(v, d.load(d.field(d.args, "last")), m)
		}
	}
}
