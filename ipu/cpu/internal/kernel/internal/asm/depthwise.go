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
	asm                   *asm
	args                  reg.Register
	size, stride, vectors int

	x, w      reg.Register
	even, odd vec // which elements of two vectors
	// Of the rows of the output that are being computed, in turn: the sums of
	// four products each that are complete, and of the products after them.
	sum, few [][]vec
}

func (d *depthwise) write() {
	y, row, height, rows := d.asm.GP64(), d.asm.GP64(), d.asm.GP64(), d.asm.GP64()
	xRow, yRow, before, zeros, line := d.asm.GP64(), d.asm.GP64(), d.asm.GP64(), d.asm.GP64(), d.asm.GP64()
	d.x, d.w = d.asm.GP64(), d.asm.GP64()
	for _, l := range []struct {
		offset int
		r      reg.Register
	}{
		{d.asm.offset("w"), d.w}, {d.asm.offset("y"), y}, {d.asm.offset("row"), row}, {d.asm.offset("height"), height}, {d.asm.offset("rows"), rows},
		{d.asm.offset("xRow"), xRow}, {d.asm.offset("yRow"), yRow}, {d.asm.offset("row"), line}, {d.asm.offset("zeros"), zeros},
	} {
		d.asm.MOVQ(at(d.args, l.offset), l.r)
	}
	ahead := d.asm.GP64()
	d.asm.MOVQ(xRow, ahead)
	d.asm.SHLQ(operand.U8(3), ahead)
	d.asm.IMULQ(xRow, line)
	d.asm.ADDQ(d.asm.field(d.args, "x"), line)
	d.asm.ADDQ(d.asm.field(d.args, "offset"), line)
	d.asm.ADDQ(d.asm.field(d.args, "offset"), zeros)

	if d.asm.wide() && d.stride == 2 {
		d.even, d.odd = d.asm.load(d.asm.ramp(0)), d.asm.load(d.asm.ramp(1))
	}
	turn := (d.size-1)/d.stride + 1
	for range turn {
		d.sum, d.few = append(d.sum, d.asm.vecs(d.vectors)), append(d.few, d.asm.vecs(d.vectors))
	}
	for q := range turn {
		for i := range d.vectors {
			d.asm.zero(d.sum[q][i])
			d.asm.zero(d.few[q][i])
		}
	}
	// So many rows of the output would begin above it.
	d.asm.MOVQ(operand.U32(turn-1), before)

	loop, done := d.asm.newLabel("loop"), d.asm.newLabel("done")
	d.asm.Label(loop)
	for phase := range turn * d.stride {
		q, rest := phase/d.stride, phase%d.stride
		// Rows above the input are large when taken for unsigned.
		d.asm.MOVQ(line, d.x)
		d.asm.CMPQ(row, height)
		d.asm.CMOVQCC(zeros, d.x)
		// Eight rows on, for strips read too little of a row for the processor
		// to see where they go.
		for i := range d.vectors * d.stride * d.asm.bytes() / 64 {
			d.asm.PREFETCHT0(indexed(line, ahead, 1, 64*i))
		}
		d.inputRow(func(kx int, x []vec) {
			for ky := rest; ky < d.size; ky += d.stride {
				d.addTo((q-ky/d.stride+turn)%turn, ky*d.size+kx, x)
			}
		})
		d.asm.INCQ(row)
		d.asm.ADDQ(xRow, line)
		if rest == 0 {
			early := d.asm.newLabel("early")
			d.asm.SUBQ(operand.U8(1), before)
			d.asm.JGE(operand.LabelRef(early))
			d.store(y, d.sum[(q+1)%turn])
			d.asm.ADDQ(yRow, y)
			d.asm.DECQ(rows)
			d.asm.JZ(operand.LabelRef(done))
			d.asm.Label(early)
		}
	}
	d.asm.JMP(operand.LabelRef(loop))
	d.asm.Label(done)
	d.asm.ret()
}

// addTo adds a weight times x to row q of the output. Products are rounded,
// four of them added up, then those sums.
func (d *depthwise) addTo(q, weight int, x []vec) {
	w := d.asm.vec()
	d.asm.VBROADCASTSS(at(d.w, 4*weight), w)
	sum, few := d.sum[q], d.few[q]
	last := weight == d.size*d.size-1 // the only one beyond whole fours
	for i := range x {
		if weight%4 == 0 && !last {
			d.asm.VMULPS(w, x[i], few[i])
			continue
		}
		p := d.asm.vec()
		d.asm.VMULPS(w, x[i], p)
		switch {
		case last:
			d.asm.VADDPS(p, sum[i], sum[i])
		case weight == 3:
			d.asm.VADDPS(p, few[i], sum[i])
		default:
			d.asm.VADDPS(p, few[i], few[i])
			if weight%4 == 3 {
				d.asm.VADDPS(few[i], sum[i], sum[i])
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
				x[i] = d.loadMasked(at(d.x, 4*kx+i*d.asm.bytes()), kx*d.vectors+i)
			}
			use(kx, x)
		}
		return
	}
	for kx := 0; kx < d.size; kx += 2 {
		even, odd := make([]vec, d.vectors), make([]vec, d.vectors)
		for i := range even {
			mask := (kx/2*d.vectors + i) * 2
			lo := d.loadMasked(at(d.x, 4*kx+2*i*d.asm.bytes()), mask)
			hi := d.loadMasked(at(d.x, 4*kx+(2*i+1)*d.asm.bytes()), mask+1)
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
	v := d.asm.vec()
	if d.asm.wide() {
		k := d.asm.K()
		d.asm.KMOVW(at(d.args, d.asm.offset("masks")+2*mask), k)
		d.asm.VMOVUPS_Z(m, k, v)
	} else {
		d.asm.VMOVUPS(at(d.args, d.asm.offset("lanes")+32*mask), v)
		d.asm.VMASKMOVPS(m, v, v)
	}
	return v
}

// part returns the elements of two vectors that have even, and odd, numbers.
func (d *depthwise) part(lo, hi vec) (even, odd vec) {
	if d.asm.wide() {
		even = d.asm.fresh(lo)
		d.asm.VPERMT2PS(hi, d.even, even)
		d.asm.VPERMT2PS(hi, d.odd, lo)
		return even, lo
	}
	even, odd = d.asm.vec(), d.asm.vec()
	d.asm.VSHUFPS(operand.U8(0x88), hi, lo, even)
	d.asm.VPERMPD(operand.U8(0xd8), even, even)
	d.asm.VSHUFPS(operand.U8(0xdd), hi, lo, odd)
	d.asm.VPERMPD(operand.U8(0xd8), odd, odd)
	return even, odd
}

// store writes a row of the output; only its last vector may not be whole.
func (d *depthwise) store(y reg.Register, sum []vec) {
	for i, v := range sum {
		x := d.asm.vec()
		d.asm.VBROADCASTSS(d.asm.field(d.args, "bias"), x)
		d.asm.VADDPS(x, v, v)
		// Not a number stays what it is.
		d.asm.VBROADCASTSS(d.asm.field(d.args, "low"), x)
		d.asm.VMAXPS(v, x, v)
		d.asm.VBROADCASTSS(d.asm.field(d.args, "high"), x)
		d.asm.VMINPS(v, x, v)
		m := at(y, i*d.asm.bytes())
		switch {
		case i < len(sum)-1:
			d.asm.VMOVUPS(v, m)
		case d.asm.wide():
			k := d.asm.K()
			d.asm.KMOVW(d.asm.field(d.args, "store"), k)
			d.asm.VMOVUPS(v, k, m)
		default:
			d.asm.VMASKMOVPS(v, d.asm.load(d.asm.field(d.args, "last")), m)
		}
	}
}
