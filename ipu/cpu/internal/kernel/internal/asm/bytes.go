package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	bytesMostRows    = 6 // pixels of a tile
	bytesMostVectors = 4 // of output channels
)

// writeBytes writes what computes on bytes of which the channels of a pixel
// lie side by side.
func writeBytes(a *asm) {
	if !a.wide() {
		a.bytesTranspose()
		return
	}
	a.bytesConv()
	a.bytesDepth()
	a.bytesPair("bytesAdd", a.VADDPS)
	a.bytesPair("bytesMul", a.VMULPS)
	a.bytesMap()
	a.bytesMost()
}

// bytesFinish is what makes bytes of sums.
type bytesFinish struct {
	asm               *asm
	high, zero, least vec
}

func (a *asm) bytesFinish(args reg.Register) bytesFinish {
	f := bytesFinish{a, a.vec(), a.vec(), a.vec()}
	a.VBROADCASTSS(a.field(args, "end.high"), f.high)
	a.VPBROADCASTD(a.field(args, "end.zero"), f.zero)
	a.VPBROADCASTD(a.field(args, "end.least"), f.least)
	return f
}

// round makes numbers integers. NaN becomes the least one.
func (f *bytesFinish) round(v vec) { f.asm.VCVTPS2DQ(f.asm.lower(f.high, v), v) }

// pack makes up to four vectors of rounded numbers bytes: the first four of
// each lane are those of the first vector.
func (f *bytesFinish) pack(v []vec) vec {
	of := func(i int) vec { return v[min(i, len(v)-1)] }
	f.asm.VPACKSSDW(of(1), of(0), v[0])
	f.asm.VPADDSW(f.zero, v[0], v[0])
	other := v[0]
	if len(v) > 2 {
		f.asm.VPACKSSDW(of(3), v[2], v[2])
		f.asm.VPADDSW(f.zero, v[2], v[2])
		other = v[2]
	}
	f.asm.VPACKUSWB(other, v[0], v[0])
	f.asm.VPMAXUB(f.least, v[0], v[0])
	return v[0]
}

// quadOrder is the key of the permutation that undoes the order of packed vectors.
type quadOrder struct{}

// bytesConv writes the loop over tiles of a dense convolution: so many pixels
// by so many vectors of output channels.
func (a *asm) bytesConv() {
	var all []variant
	for v := bytesMostVectors; v >= 1; v-- {
		for r := bytesMostRows; r >= 1; r-- {
			all = append(all, variant{tile: size(r, 16*v), asked: []asked{a.value("vectors", v), a.value("rows", r)},
				is: map[string]string{"rows": fmt.Sprint(r), "16 * vectors": fmt.Sprint(16 * v)},
				write: func(args reg.Register) {
					a.bytesTiles(args, r, v)
					a.ret()
				}})
		}
	}
	a.tiled("bytesConv", "bytesConvArgs", all)
}

func (a *asm) bytesTiles(args reg.Register, r, v int) {
	pixels := a.GP64()
	a.MOVQ(a.field(args, "pixels"), pixels)
	mask := a.K()
	a.KMOVQ(a.field(args, "mask"), mask)
	order := a.load(a.stored(quadOrder{}, func(i int) uint32 { return uint32(i%4*4 + i/4) }))
	tile := a.newLabel("tile")
	a.Label(tile)
	p := make([]reg.Register, r)
	for i := range p {
		p[i] = a.GP64()
		a.MOVLQSX(at(pixels, 4*i), p[i])
		a.ADDQ(a.field(args, "x"), p[i])
	}
	a.ADDQ(operand.U8(4*r), pixels)
	w, runs, left := a.GP64(), a.GP64(), a.GP64()
	first := a.GP64()
	a.MOVQ(a.field(args, "first"), first)
	acc := make([][]vec, r)
	for i := range acc {
		acc[i] = a.vecs(v)
		for j := range acc[i] {
			if i == 0 {
				a.VMOVUPS(at(first, 64*j), acc[0][j])
			} else {
				a.VMOVAPS(acc[0][j], acc[i][j])
			}
		}
	}
	a.MOVQ(a.field(args, "weights"), w)
	a.MOVQ(a.field(args, "runs"), runs)
	a.MOVQ(a.field(args, "runCount"), left)
	run := a.newLabel("run")
	a.Label(run)
	i, end := a.GP64(), a.GP64()
	a.MOVLQSX(at(runs, 0), i)
	a.ADDQ(operand.U8(4), runs)
	a.MOVQ(a.field(args, "run"), end)
	a.ADDQ(i, end)
	step := a.newLabel("step")
	a.Label(step)
	y := make([]vec, v)
	for j := range y {
		y[j] = a.load(at(w, 64*j))
	}
	for k := range acc {
		x := a.vec()
		a.VPBROADCASTD(indexed(p[k], i, 1, 0), x)
		for j := range y {
			a.VPDPBUSD(y[j], x, acc[k][j])
		}
	}
	a.ADDQ(operand.U32(64*v), w)
	a.ADDQ(operand.U8(4), i)
	a.CMPQ(i, end)
	a.JNE(operand.LabelRef(step))
	a.DECQ(left)
	a.JNZ(operand.LabelRef(run))

	f := a.bytesFinish(args)
	scale, shift, out := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "scale"), scale)
	a.MOVQ(a.field(args, "shift"), shift)
	a.MOVQ(a.field(args, "out"), out)
	a.ADDQ(a.field(args, "outAt"), out)
	for k := range acc {
		for j, s := range acc[k] {
			a.VCVTDQ2PS(s, s)
			a.VMULPS(at(scale, 64*j), s, s)
			a.VADDPS(at(shift, 64*j), s, s)
			f.round(s)
		}
		b := f.pack(acc[k])
		a.VPERMD(b, order, b)
		a.VMOVDQU8(b, mask, at(out, 0))
		a.ADDQ(a.field(args, "outRow"), out)
	}
	a.SUBQ(a.field(args, "out"), out)
	a.MOVQ(out, a.field(args, "outAt"))
	a.DECQ(a.field(args, "tiles"))
	a.JNZ(operand.LabelRef(tile))
}

// bytesDepth writes the loop over a row, or two, of a convolution of single
// channels: 64 bytes at a time, of which four in a column become a lane.
func (a *asm) bytesDepth() {
	var all []variant
	for _, groups := range []int{1, 2} {
		for _, outs := range []int{1, 2} {
			// Lines of the result, of the window, bytes.
			all = append(all, variant{tile: size(outs, 4*groups, 64), asked: []asked{a.value("groups", groups), a.value("outs", outs)},
				is: map[string]string{"4 * groups": fmt.Sprint(4 * groups), "outs": fmt.Sprint(outs)},
				write: func(args reg.Register) {
					a.bytesDepthRow(args, groups, outs)
					a.ret()
				}})
		}
	}
	a.tiled("bytesDepth", "bytesDepthArgs", all)
}

func (a *asm) bytesDepthRow(args reg.Register, groups, outs int) {
	rows := make([]reg.Register, 4*groups)
	table := a.GP64()
	a.MOVQ(a.field(args, "rows"), table)
	for i := range rows {
		rows[i] = a.GP64()
		a.MOVLQSX(at(table, 4*i), rows[i])
		a.ADDQ(a.field(args, "x"), rows[i])
	}
	f := a.bytesFinish(args)
	mask := a.K()
	params, w := a.GP64(), a.GP64()
	chunk, inner, wrap := a.newLabel("chunk"), a.newLabel("taps"), a.newLabel("wrap")
	const vectors = 4
	a.Label(wrap)
	a.MOVQ(a.field(args, "params"), params)
	a.MOVQ(a.field(args, "weights"), w)
	left := a.GP64()
	a.MOVQ(a.field(args, "period"), left)
	a.MOVQ(left, a.field(args, "left"))
	a.Label(chunk)
	acc := make([][]vec, outs)
	for o := range acc {
		acc[o] = a.vecs(vectors)
		for k, s := range acc[o] {
			a.VMOVUPS(at(params, 64*k), s)
		}
	}
	i, taps := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "in"), i)
	a.MOVQ(a.field(args, "taps"), taps)
	a.Label(inner)
	for g := range groups {
		var r [4]vec
		for q := range r {
			r[q] = a.load(indexed(rows[4*g+q], i, 1, 0))
		}
		low, high, low2, high2 := a.vec(), a.vec(), a.vec(), a.vec()
		a.VPUNPCKLBW(r[1], r[0], low)
		a.VPUNPCKHBW(r[1], r[0], high)
		a.VPUNPCKLBW(r[3], r[2], low2)
		a.VPUNPCKHBW(r[3], r[2], high2)
		v := a.vecs(vectors)
		a.VPUNPCKLWD(low2, low, v[0])
		a.VPUNPCKHWD(low2, low, v[1])
		a.VPUNPCKLWD(high2, high, v[2])
		a.VPUNPCKHWD(high2, high, v[3])
		for o := range acc {
			for k := range v {
				a.VPDPBUSD(at(w, 64*((g*outs+o)*vectors+k)), v[k], acc[o][k])
			}
		}
	}
	a.ADDQ(a.field(args, "tap"), i)
	a.ADDQ(operand.U32(64*vectors*groups*outs), w)
	a.DECQ(taps)
	a.JNZ(operand.LabelRef(inner))
	inside, last := a.newLabel("inside"), a.newLabel("last")
	a.KXNORQ(mask, mask, mask)
	a.CMPQ(a.field(args, "left"), operand.U8(1))
	a.JNE(operand.LabelRef(inside))
	a.KMOVQ(a.field(args, "wrap"), mask)
	a.Label(inside)
	a.CMPQ(a.field(args, "chunks"), operand.U8(1))
	a.JNE(operand.LabelRef(last))
	a.KMOVQ(a.field(args, "mask"), mask)
	a.Label(last)
	to, out := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "to"), to)
	for o := range acc {
		for k, s := range acc[o] {
			a.VCVTDQ2PS(s, s)
			a.VMULPS(at(params, 64*(vectors+k)), s, s)
			a.VADDPS(at(params, 64*(2*vectors+k)), s, s)
			f.round(s)
		}
		b := f.pack(acc[o])
		a.MOVQ(at(args, a.offset("out")+8*o), out)
		a.VMOVDQU8(b, mask, indexed(out, to, 1, 0))
	}
	a.ADDQ(operand.U32(3*64*vectors), params)
	a.ADDQ(operand.U8(64), a.field(args, "in"))
	a.ADDQ(operand.U8(64), a.field(args, "to"))
	done := a.newLabel("done")
	a.DECQ(a.field(args, "chunks"))
	a.JZ(operand.LabelRef(done))
	a.DECQ(a.field(args, "left"))
	a.JNZ(operand.LabelRef(chunk))
	skip := a.GP64()
	a.MOVQ(a.field(args, "inSkip"), skip)
	a.ADDQ(skip, a.field(args, "in"))
	a.MOVQ(a.field(args, "outSkip"), skip)
	a.ADDQ(skip, a.field(args, "to"))
	a.JMP(operand.LabelRef(wrap))
	a.Label(done)
}

// bytesPair writes the loop that adds or multiplies bytes of two scales and
// divides by the step of the result, row by row.
func (a *asm) bytesPair(name string, combine func(...operand.Op)) {
	args := a.function(name, "bytesAddArgs")
	f := a.bytesFinish(args)
	mask := a.K()
	order := a.load(a.stored(quadOrder{}, func(i int) uint32 { return uint32(i%4*4 + i/4) }))
	var zero, scale [2]vec
	var x [2]reg.Register
	step, by := a.vec(), a.vec()
	a.VBROADCASTSS(a.field(args, "step"), step)
	a.VBROADCASTSS(a.field(args, "by"), by)
	for i := range x {
		zero[i], scale[i], x[i] = a.vec(), a.vec(), a.GP64()
		a.VPBROADCASTD(at(args, a.offset("zero")+4*i), zero[i])
		a.VBROADCASTSS(at(args, a.offset("scale")+4*i), scale[i])
		a.MOVQ(at(args, a.offset("a")+8*i), x[i])
	}
	out, chunks, rows := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "out"), out)
	a.MOVQ(a.field(args, "rows"), rows)
	row, loop, last := a.newLabel("row"), a.newLabel("loop"), a.newLabel("last")
	a.Label(row)
	a.KXNORQ(mask, mask, mask)
	a.MOVQ(a.field(args, "chunks"), chunks)
	a.Label(loop)
	a.CMPQ(chunks, operand.U8(1))
	a.JNE(operand.LabelRef(last))
	a.KMOVQ(a.field(args, "mask"), mask)
	a.Label(last)
	v := make([]vec, 4)
	for k := range v {
		var s [2]vec
		for i := range s {
			s[i] = a.vec()
			a.VPMOVZXBD(at(x[i], 16*k), s[i])
			a.VPSUBD(zero[i], s[i], s[i])
			a.VCVTDQ2PS(s[i], s[i])
			a.VMULPS(scale[i], s[i], s[i])
		}
		combine(s[1], s[0], s[0])
		// The quotient times the step is so near the number that adding what
		// is left, divided, gives the quotient rounded once.
		v[k] = a.mul(s[0], by)
		a.fnmaOf(s[0], v[k], step)
		a.fmaOf(v[k], s[0], by)
		f.round(v[k])
	}
	b := f.pack(v)
	a.VPERMD(b, order, b)
	a.VMOVDQU8(b, mask, at(out, 0))
	for _, p := range []reg.Register{x[0], x[1], out} {
		a.ADDQ(operand.U8(64), p)
	}
	a.DECQ(chunks)
	a.JNZ(operand.LabelRef(loop))
	a.ADDQ(a.field(args, "skipA"), x[0])
	a.ADDQ(a.field(args, "skipB"), x[1])
	a.ADDQ(a.field(args, "skip"), out)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ret()
}

// bytesMap writes the loop that looks bytes up in a table of 256, row by row.
func (a *asm) bytesMap() {
	args := a.function("bytesMap", "bytesMapArgs")
	ptr := func(offset int) reg.Register {
		p := a.GP64()
		a.MOVQ(at(args, offset), p)
		return p
	}
	x, out, table, rows := ptr(a.offset("x")), ptr(a.offset("out")), ptr(a.offset("table")), ptr(a.offset("rows"))
	var quarter [4]vec
	for i := range quarter {
		quarter[i] = a.load(at(table, 64*i))
	}
	mask, upper := a.K(), a.K()
	row, loop, last := a.newLabel("row"), a.newLabel("loop"), a.newLabel("last")
	a.Label(row)
	a.KXNORQ(mask, mask, mask)
	chunks := ptr(a.offset("chunks"))
	a.Label(loop)
	a.CMPQ(chunks, operand.U8(1))
	a.JNE(operand.LabelRef(last))
	a.KMOVQ(a.field(args, "mask"), mask)
	a.Label(last)
	low, high := a.vec(), a.vec()
	a.VMOVDQU8_Z(at(x, 0), mask, low)
	a.VPMOVB2M(low, upper)
	a.VMOVAPS(low, high)
	a.VPERMI2B(quarter[1], quarter[0], low)
	a.VPERMI2B(quarter[3], quarter[2], high)
	a.VPBLENDMB(high, low, upper, low)
	a.VMOVDQU8(low, mask, at(out, 0))
	a.ADDQ(operand.U8(64), x)
	a.ADDQ(operand.U8(64), out)
	a.DECQ(chunks)
	a.JNZ(operand.LabelRef(loop))
	a.ADDQ(a.field(args, "skip"), x)
	a.ADDQ(a.field(args, "to"), out)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ret()
}

// bytesMost writes the loop that takes the greatest of the pixels of a window.
func (a *asm) bytesMost() {
	args := a.function("bytesMost", "bytesMostArgs")
	ptr := func(offset int) reg.Register {
		p := a.GP64()
		a.MOVQ(at(args, offset), p)
		return p
	}
	out, x, chunks, line, tap := ptr(a.offset("out")), ptr(a.offset("x")), ptr(a.offset("chunks")), ptr(a.offset("line")), ptr(a.offset("tap"))
	mask := a.K()
	a.KXNORQ(mask, mask, mask)
	loop, last := a.newLabel("loop"), a.newLabel("last")
	a.Label(loop)
	a.CMPQ(chunks, operand.U8(1))
	a.JNE(operand.LabelRef(last))
	a.KMOVQ(a.field(args, "mask"), mask)
	a.Label(last)
	most, lines, at0 := a.vec(), ptr(a.offset("lines")), a.GP64()
	a.zero(most)
	a.MOVQ(x, at0)
	row, column := a.newLabel("line"), a.newLabel("tap")
	a.Label(row)
	p, taps := a.GP64(), ptr(a.offset("taps"))
	a.MOVQ(at0, p)
	a.Label(column)
	v := a.vec()
	a.VMOVDQU8_Z(at(p, 0), mask, v)
	a.VPMAXUB(v, most, most)
	a.ADDQ(tap, p)
	a.DECQ(taps)
	a.JNZ(operand.LabelRef(column))
	a.ADDQ(line, at0)
	a.DECQ(lines)
	a.JNZ(operand.LabelRef(row))
	a.VMOVDQU8(most, mask, at(out, 0))
	a.ADDQ(operand.U8(64), x)
	a.ADDQ(operand.U8(64), out)
	a.DECQ(chunks)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

// bytesTranspose writes the transposition of eight rows, for so many groups of
// 16 columns, with bits flipped.
func (a *asm) bytesTranspose() {
	a.Function("bytesTranspose" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst *uint8, to int, src *uint8, from int, groups int, flip uint32)")
	dst, to := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("to"), a.GP64())
	src, from := a.Load(a.Param("src"), a.GP64()), a.Load(a.Param("from"), a.GP64())
	n := a.Load(a.Param("groups"), a.GP64())
	flip := a.XMM()
	a.VMOVD(a.Load(a.Param("flip"), a.GP32()), flip)
	a.VPBROADCASTD(flip, flip)
	loop := a.newLabel("loop")
	a.Label(loop)
	var rows [8]reg.VecVirtual
	p := a.GP64()
	a.MOVQ(src, p)
	for i := range rows {
		rows[i] = a.XMM()
		if i > 0 {
			a.ADDQ(from, p)
		}
		a.VPXOR(at(p, 0), flip, rows[i])
	}
	// zip makes x and y the lower and the upper half of both, by turns.
	zip := func(low, high func(...operand.Op), x, y *reg.VecVirtual) {
		l, h := a.XMM(), a.XMM()
		low(*y, *x, l)
		high(*y, *x, h)
		*x, *y = l, h
	}
	bytes := func(i, j int) { zip(a.VPUNPCKLBW, a.VPUNPCKHBW, &rows[i], &rows[j]) }
	words := func(i, j int) { zip(a.VPUNPCKLWD, a.VPUNPCKHWD, &rows[i], &rows[j]) }
	pairs := func(i, j int) { zip(a.VPUNPCKLDQ, a.VPUNPCKHDQ, &rows[i], &rows[j]) }
	for i := 0; i < 8; i += 2 {
		bytes(i, i+1)
	}
	for _, i := range []int{0, 1, 4, 5} {
		words(i, i+2)
	}
	for i := range 4 {
		pairs(i, i+4)
	}
	a.MOVQ(dst, p)
	for i, r := range []int{0, 4, 2, 6, 1, 5, 3, 7} {
		if i > 0 {
			a.ADDQ(to, p)
		}
		a.VMOVQ(rows[r], at(p, 0))
		a.ADDQ(to, p)
		a.VMOVHPS(rows[r], at(p, 0))
	}
	a.ADDQ(operand.U8(16), src)
	a.LEAQ(indexed(p, to, 1, 0), dst)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}
