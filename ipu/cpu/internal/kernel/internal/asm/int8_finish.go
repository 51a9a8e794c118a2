package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// int8Finish writes the loops that make results of a tile's sums: if there is
// an outer product, outer·line are added, then they are scaled and shifted.
// Parameters belong to rows or to columns. Of the columns only those to keep
// are stored, close together.
func (a *asm) int8Finish(name string, kind int8Kind, byRows bool) {
	args := a.function(name, "int8FinishArgs")
	ptr := func(offset int) reg.Register {
		p := a.GP64()
		a.MOVQ(at(args, offset), p)
		return p
	}
	f := int8Ending{int8End: int8End{asm: a, kind: kind}, byRows: byRows, tile: ptr(a.offset("tile")), rows: ptr(a.offset("rows")),
		out: ptr(a.offset("out")), outRow: ptr(a.offset("outRow")), scale: ptr(a.offset("scale")), shift: ptr(a.offset("shift")),
		outer: ptr(a.offset("outer")), line: ptr(a.offset("line"))}
	f.limits(args, a.offset("low"), a.offset("high"), a.offset("zero"))
	if !a.wide() {
		f.loop(false)
		return
	}
	f.second = ptr(a.offset("second"))
	a.ADDQ(f.out, f.second)
	for i := range f.store {
		f.store[i] = a.K()
		a.KMOVW(at(args, a.offset("store")+2*i), f.store[i])
	}
	if byRows {
		some := a.newLabel("some")
		a.CMPL(a.field(args, "keep"), operand.Imm(0xffffffff))
		a.JNE(operand.LabelRef(some))
		f.loop(false)
		a.Label(some)
		for i := range f.keep {
			f.keep[i] = a.K()
			a.KMOVW(at(args, a.offset("keep")+2*i), f.keep[i])
		}
	}
	f.loop(byRows)
}

// int8Ending makes results of a tile.
type int8Ending struct {
	int8End
	byRows                                                     bool
	tile, rows, out, second, outRow, scale, shift, outer, line reg.Register
	keep, store                                                [2]reg.Register
}

// loop writes the loop over rows and ends the function.
func (f *int8Ending) loop(compress bool) {
	a, vectors := f.asm, int8TileRow/f.asm.bytes()
	loop := a.newLabel("loop")
	a.Label(loop)
	acc := make([]vec, vectors)
	for i := range acc {
		acc[i] = a.load(at(f.tile, i*a.bytes()))
	}
	plain := a.newLabel("plain")
	a.TESTQ(f.outer, f.outer)
	a.JEQ(operand.LabelRef(plain))
	factor := a.vec()
	a.VPBROADCASTD(at(f.outer, 0), factor)
	a.ADDQ(operand.U8(4), f.outer)
	for i := range acc {
		p := a.vec()
		a.VPMULLD(at(f.line, i*a.bytes()), factor, p)
		a.VPADDD(p, acc[i], acc[i])
	}
	a.Label(plain)
	if f.kind != int8ToInts {
		var s, t operand.Op
		if f.byRows {
			x, y := a.vec(), a.vec()
			a.VBROADCASTSS(at(f.scale, 0), x)
			a.VBROADCASTSS(at(f.shift, 0), y)
			s, t = x, y
		}
		for i := range acc {
			if !f.byRows {
				s, t = at(f.scale, i*a.bytes()), at(f.shift, i*a.bytes())
			}
			acc[i] = f.value(acc[i], s, t)
		}
	}
	for i, v := range acc {
		to := at(f.out, i*a.lanes*f.size())
		if !a.wide() {
			f.storeAll(v, to)
			continue
		}
		if i == 1 {
			to = at(f.second, 0)
		}
		if compress {
			w := a.vec()
			a.VPCOMPRESSD(v, f.keep[i], w)
			v = w
		}
		f.storeMasked(v, f.store[i], to)
	}
	if f.byRows && f.kind != int8ToInts {
		a.ADDQ(operand.U8(4), f.scale)
		a.ADDQ(operand.U8(4), f.shift)
	}
	a.ADDQ(operand.U32(int8TileRow), f.tile)
	a.ADDQ(f.outRow, f.out)
	if a.wide() {
		a.ADDQ(f.outRow, f.second)
	}
	a.DECQ(f.rows)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

// int8End makes results of sums.
type int8End struct {
	asm             *asm
	kind            int8Kind
	low, high, zero vec
	lowest          vec
}

func (e *int8End) size() int {
	if e.kind == int8ToBytes {
		return 1
	}
	return 4
}

// limits loads what all results share.
func (e *int8End) limits(args reg.Register, low, high, zero int) {
	if e.kind == int8ToInts {
		return
	}
	e.low, e.high = e.asm.vec(), e.asm.vec()
	e.asm.VBROADCASTSS(at(args, low), e.low)
	e.asm.VBROADCASTSS(at(args, high), e.high)
	if e.kind == int8ToBytes {
		e.zero = e.asm.vec()
		e.asm.VPBROADCASTD(at(args, zero), e.zero)
		if !e.asm.wide() {
			e.lowest = e.asm.load(e.asm.bits(lowBytes))
		}
	}
}

// value scales and shifts sums, with two roundings, limits them and, if bytes
// are wanted, rounds them. NaN stays as it is where the result is a float, and
// is the least number otherwise.
func (e *int8End) value(sum vec, scale, shift operand.Op) vec {
	e.asm.VCVTDQ2PS(sum, sum)
	v := e.asm.add(e.asm.mul(sum, scale), shift)
	if e.kind == int8ToFloats {
		return e.asm.lower(e.high, e.asm.upper(e.low, v))
	}
	v = e.asm.lower(e.asm.upper(v, e.low), e.high)
	e.asm.VCVTPS2DQ(v, v)
	e.asm.VPADDD(e.zero, v, v)
	return v
}

func (e *int8End) storeAll(v vec, to operand.Mem) {
	switch {
	case e.kind != int8ToBytes:
		e.asm.VMOVUPS(v, to)
	case e.asm.wide():
		e.asm.VPMOVDB(v, to)
	default:
		e.asm.storeBytes(v, e.lowest, to)
	}
}

func (e *int8End) storeMasked(v vec, mask reg.Register, to operand.Mem) {
	if e.kind == int8ToBytes {
		e.asm.VPMOVDB(v, mask, to)
	} else {
		e.asm.VMOVUPS(v, mask, to)
	}
}

// int8PlaneVectors is how many vectors a block of a plane has.
const int8PlaneVectors = 4

// int8Plane writes the convolution that gives one output channel, in blocks
// of four vectors.
func (a *asm) int8Plane(name string, kind int8Kind) {
	args := a.function(name, "int8PlaneArgs")
	ptr := func(offset int) reg.Register {
		p := a.GP64()
		a.MOVQ(at(args, offset), p)
		return p
	}
	x, all, weights, blocks, out := ptr(a.offset("x")), ptr(a.offset("offsets")), ptr(a.offset("w")), ptr(a.offset("blocks")), ptr(a.offset("out"))
	e := int8End{asm: a, kind: kind}
	block := a.newLabel("block")
	a.Label(block)
	acc := make([]vec, int8PlaneVectors)
	for i := range acc {
		acc[i] = a.vec()
		a.VPBROADCASTD(a.field(args, "first"), acc[i])
	}
	offsets, w, steps := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(all, offsets)
	a.MOVQ(weights, w)
	a.MOVQ(a.field(args, "steps"), steps)
	loop := a.newLabel("loop")
	a.Label(loop)
	p := a.GP64()
	a.MOVQ(at(offsets, 0), p)
	a.ADDQ(x, p)
	if a.wide() {
		y := a.vec()
		a.VPBROADCASTD(at(w, 0), y)
		for i := range acc {
			a.VPDPBUSD(y, a.load(at(p, i*a.bytes())), acc[i])
		}
	} else {
		for odd := range 2 {
			y := a.vec()
			a.VPBROADCASTD(at(w, 4*odd), y)
			for i := range acc {
				v := a.int8Half(at(p, i*a.bytes()), odd == 1, false)
				a.VPMADDWD(v, y, v)
				a.VPADDD(v, acc[i], acc[i])
			}
		}
	}
	a.ADDQ(operand.U8(8), offsets)
	a.ADDQ(operand.U8(a.int8StepBytes()), w)
	a.DECQ(steps)
	a.JNZ(operand.LabelRef(loop))
	var scale, shift operand.Op
	if kind != int8ToInts {
		s, t := a.vec(), a.vec()
		a.VBROADCASTSS(a.field(args, "scale"), s)
		a.VBROADCASTSS(a.field(args, "shift"), t)
		scale, shift = s, t
		e.limits(args, a.offset("low"), a.offset("high"), a.offset("zero"))
	}
	for i, v := range acc {
		if kind != int8ToInts {
			v = e.value(v, scale, shift)
		}
		e.storeAll(v, at(out, i*a.lanes*e.size()))
	}
	a.ADDQ(operand.U32(int8PlaneVectors*a.bytes()), x)
	a.ADDQ(operand.U32(int8PlaneVectors*a.lanes*e.size()), out)
	a.DECQ(blocks)
	a.JNZ(operand.LabelRef(block))
	a.ret()
}
