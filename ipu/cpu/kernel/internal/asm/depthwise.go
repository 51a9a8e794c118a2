package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of depthwiseArgs in package kernel.
const (
	depthwiseX       = 0
	depthwiseW       = 8
	depthwiseY       = 16
	depthwiseRow     = 24
	depthwiseHeight  = 32
	depthwiseRows    = 40
	depthwiseXRow    = 48
	depthwiseYRow    = 56
	depthwiseOffset  = 64
	depthwiseVectors = 72
	depthwiseBias    = 80
	depthwiseMasks   = 84
	depthwiseStore   = 124
	depthwiseLanes   = 128
	depthwiseLast    = 512
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
			args := a.function(name)
			for _, vectors := range []int{4, 3, 2, 1} {
				if vectors > 2 && (stride == 2 || !a.wide()) {
					continue
				}
				next := a.newLabel("next")
				if vectors > 1 {
					a.CMPQ(at(args, depthwiseVectors), operand.U8(vectors))
					a.JNE(operand.LabelRef(next))
				}
				d := depthwise{asm: a, args: args, size: size, stride: stride, vectors: vectors}
				d.write()
				if vectors > 1 {
					a.Label(next)
				}
			}
		}
	}
}

type depthwise struct {
	*asm
	args                  reg.Register
	size, stride, vectors int

	x, w      reg.Register
	even, odd vec     // which elements of two vectors
	weights   []vec   // if they all fit
	acc       [][]vec // of the rows of the output that are being computed, in turn
}

func (d *depthwise) write() {
	y, row, height, rows := d.GP64(), d.GP64(), d.GP64(), d.GP64()
	xRow, yRow, before := d.GP64(), d.GP64(), d.GP64()
	d.x, d.w = d.GP64(), d.GP64()
	for _, l := range []struct {
		offset int
		r      reg.Register
	}{
		{depthwiseW, d.w}, {depthwiseY, y}, {depthwiseRow, row}, {depthwiseHeight, height}, {depthwiseRows, rows},
		{depthwiseXRow, xRow}, {depthwiseYRow, yRow}, {depthwiseRow, d.x},
	} {
		d.MOVQ(at(d.args, l.offset), l.r)
	}
	d.IMULQ(xRow, d.x)
	d.ADDQ(at(d.args, depthwiseX), d.x)
	d.ADDQ(at(d.args, depthwiseOffset), d.x)

	bias := d.vec()
	d.VBROADCASTSS(at(d.args, depthwiseBias), bias)
	if d.wide() && d.size == 3 {
		for i := range d.size * d.size {
			v := d.vec()
			d.VBROADCASTSS(at(d.w, 4*i), v)
			d.weights = append(d.weights, v)
		}
	}
	if d.wide() && d.stride == 2 {
		d.even, d.odd = d.vec(), d.vec()
		d.VMOVUPS(d.ramp(0), d.even)
		d.VMOVUPS(d.ramp(1), d.odd)
	}
	turn := (d.size-1)/d.stride + 1
	for range turn {
		d.acc = append(d.acc, d.vecs(d.vectors))
	}
	for _, acc := range d.acc {
		for _, v := range acc {
			d.zero(v)
		}
	}
	// So many rows of the output would begin above it.
	d.MOVQ(operand.U32(turn-1), before)

	loop, done := d.newLabel("loop"), d.newLabel("done")
	d.Label(loop)
	for phase := range turn * d.stride {
		q, rest := phase/d.stride, phase%d.stride
		if rest == 0 {
			for _, v := range d.acc[q] {
				d.VMOVAPS(bias, v)
			}
		}
		outside, early := d.newLabel("outside"), d.newLabel("early")
		// Rows above the input are large when taken for unsigned.
		d.CMPQ(row, height)
		d.JCC(operand.LabelRef(outside))
		d.inputRow(func(kx int, x []vec) {
			for ky := rest; ky < d.size; ky += d.stride {
				d.addTo(d.acc[(q-ky/d.stride+turn)%turn], ky*d.size+kx, x)
			}
		})
		d.Label(outside)
		d.INCQ(row)
		d.ADDQ(xRow, d.x)
		if rest == 0 {
			d.SUBQ(operand.U8(1), before)
			d.JGE(operand.LabelRef(early))
			d.store(y, d.acc[(q+1)%turn])
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

// addTo adds a weight times x to acc.
func (d *depthwise) addTo(acc []vec, weight int, x []vec) {
	var w vec
	if d.weights != nil {
		w = d.weights[weight]
	} else {
		w = d.vec()
		d.VBROADCASTSS(at(d.w, 4*weight), w)
	}
	for i := range acc {
		d.VFMADD231PS(w, x[i], acc[i])
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
		d.KMOVW(at(d.args, depthwiseMasks+2*mask), k)
		d.VMOVUPS_Z(m, k, v)
	} else {
		d.VMOVUPS(at(d.args, depthwiseLanes+32*mask), v)
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
func (d *depthwise) store(y reg.Register, acc []vec) {
	for i, v := range acc {
		m := at(y, i*d.bytes())
		switch {
		case i < len(acc)-1:
			d.VMOVUPS(v, m)
		case d.wide():
			k := d.K()
			d.KMOVW(at(d.args, depthwiseStore), k)
			d.VMOVUPS(v, k, m)
		default:
			mask := d.vec()
			d.VMOVUPS(at(d.args, depthwiseLast), mask)
			d.VMASKMOVPS(v, mask, m)
		}
	}
}
