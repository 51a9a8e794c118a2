package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// int8TileRow is how far rows of sums are apart.
const int8TileRow = 128

// int8Kind is what sums become.
type int8Kind string

const (
	int8ToInts   int8Kind = "Ints"
	int8ToFloats int8Kind = "Floats"
	int8ToBytes  int8Kind = "Bytes"
)

// writeInt8 writes products of bytes with sums of 32 bits. A step is four
// products: four bytes in a row of a, and four in each lane of a vector of b.
// Where there is no instruction for that, a comes as numbers of 16 bits, first
// those with even places in a step.
func writeInt8(a *asm) {
	a.int8Sums("int8Product", false)
	a.int8Sums("int8Conv", true)
	for _, kind := range []int8Kind{int8ToInts, int8ToFloats, int8ToBytes} {
		a.int8Finish("int8Columns"+string(kind), kind, false)
		a.int8Finish("int8Rows"+string(kind), kind, true)
		a.int8Plane("int8Plane"+string(kind), kind)
	}
	if !a.wide() {
		a.int8Interleave()
		a.int8Widen()
		a.int8Even()
	}
}

// most returns how many rows of sums fit in the registers.
func (a *asm) int8Most() int {
	if a.wide() {
		return 12
	}
	return 6
}

// int8Sums writes products of rows by one or two vectors, by tiles of as many
// rows as have sums in registers: those that come after the rows that are done.
// The last rows that do not fit in one tile, but in two, are divided evenly. In
// a convolution the vectors are unsigned and lie at listed offsets; in a product
// of matrices they are signed and follow each other.
func (a *asm) int8Sums(name string, conv bool) {
	most, vectors := a.int8Most(), []int{2}
	if a.wide() {
		vectors = []int{2, 1}
	}
	args := a.function(name, "int8Args")
	rows, r := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "rows"), rows)
	a.SUBQ(a.field(args, "done"), rows)
	take := a.newLabel("take")
	a.MOVQ(operand.U32(most), r)
	a.CMPQ(rows, operand.U8(2*most))
	a.JGE(operand.LabelRef(take))
	a.MOVQ(rows, r)
	a.CMPQ(rows, operand.U8(most))
	a.JLE(operand.LabelRef(take))
	a.INCQ(r)
	a.SHRQ(operand.U8(1), r)
	a.Label(take)
	var all []variant
	for _, v := range vectors {
		for n := most; n >= 1; n-- {
			t := variant{tile: size(n, v*a.lanes), is: map[string]string{"rows": fmt.Sprint(n), "16 * vectors": fmt.Sprint(v * a.lanes)},
				write: func(args reg.Register) { a.int8Tile(args, n, v, conv) }}
			if len(vectors) > 1 {
				t.asked = append(t.asked, a.value("vectors", v))
			}
			t.asked = append(t.asked, asked{fmt.Sprint("r", n), func(_ reg.Register, next operand.LabelRef) {
				a.CMPQ(r, operand.U8(n))
				a.JNE(next)
			}})
			all = append(all, t)
		}
	}
	a.dispatch(name, args, all, 0)
	a.RET()
	a.writeTiles(name, "int8Args", all)
}

// int8Tile writes the function of n rows and v vectors. That of the most rows
// goes on as long as it is the right one.
func (a *asm) int8Tile(args reg.Register, n, v int, conv bool) {
	t := int8Loop{asm: a, args: args, conv: conv}
	for _, f := range []struct {
		name string
		to   *reg.Register
	}{{"a", &t.pa}, {"aRow", &t.row}, {"b", &t.b}, {"tile", &t.tile}, {"first", &t.first}} {
		*f.to = a.GP64()
		a.MOVQ(a.field(args, f.name), *f.to)
	}
	if n == a.int8Most() {
		t.rows = a.GP64()
		a.MOVQ(a.field(args, "rows"), t.rows)
	}
	t.row3 = a.GP64()
	a.LEAQ(indexed(t.row, t.row, 2, 0), t.row3)
	done, from, most := a.GP64(), a.GP64(), a.int8Most()
	a.MOVQ(a.field(args, "done"), done)
	if n == most {
		a.SUBQ(done, t.rows)
	}
	a.MOVQ(done, from)
	a.IMULQ(t.row, from)
	a.ADDQ(from, t.pa)
	if conv {
		a.LEAQ(indexed(t.first, done, 4, 0), t.first)
	}
	a.SHLQ(operand.U8(7), done)
	a.ADDQ(done, t.tile)
	again := a.newLabel("rows")
	if n == most {
		a.Label(again)
	}
	t.tileOf(n, v)
	a.ADDQ(operand.U8(n), a.field(args, "done"))
	if n == most {
		a.SUBQ(operand.U8(n), t.rows)
		a.CMPQ(t.rows, operand.U8(2*most))
		a.JGE(operand.LabelRef(again))
	}
	a.ret()
}

// int8Loop is a loop over rows.
type int8Loop struct {
	*asm
	args, pa, row, row3, rows, b, tile, first reg.Register
	conv                                      bool
}

// tileOf writes the sums of r rows and v vectors.
func (t *int8Loop) tileOf(r, v int) {
	a := t.asm
	rows := []reg.Register{a.GP64()}
	a.MOVQ(t.pa, rows[0])
	for len(rows)*5 < r {
		p := a.GP64()
		a.LEAQ(indexed(rows[len(rows)-1], t.row, 4, 0), p)
		a.ADDQ(t.row, p)
		rows = append(rows, p)
	}
	element := func(i, disp int) operand.Mem {
		p := rows[i/5]
		switch i % 5 {
		case 0:
			return at(p, disp)
		case 3:
			return indexed(p, t.row3, 1, disp)
		}
		return indexed(p, t.row, uint8(i%5), disp)
	}
	acc := make([][]vec, r)
	for i := range acc {
		acc[i] = a.vecs(v)
		for j, x := range acc[i] {
			if t.conv {
				a.VPBROADCASTD(at(t.first, 4*i), x)
			} else {
				a.VMOVUPS(at(t.first, j*a.bytes()), x)
			}
		}
	}
	steps, b, offsets := a.GP64(), t.b, a.GP64()
	a.MOVQ(t.field(t.args, "steps"), steps)
	if t.conv {
		a.MOVQ(t.field(t.args, "offsets"), offsets)
	} else {
		b = a.GP64()
		a.MOVQ(t.b, b)
	}
	loop := a.newLabel("loop")
	a.Label(loop)
	from := func(i int) operand.Mem { return at(b, i*a.bytes()) }
	if t.conv {
		offset := a.GP64()
		a.MOVQ(at(offsets, 0), offset)
		a.ADDQ(operand.U8(8), offsets)
		from = func(i int) operand.Mem { return indexed(b, offset, 1, i*a.bytes()) }
	}
	if a.wide() {
		x := make([]vec, v)
		for i := range x {
			x[i] = a.load(from(i))
		}
		for i := range r {
			y := a.vec()
			a.VPBROADCASTD(element(i, 0), y)
			for j := range x {
				if t.conv {
					a.VPDPBUSD(y, x[j], acc[i][j])
				} else {
					a.VPDPBUSD(x[j], y, acc[i][j])
				}
			}
		}
	} else {
		for odd := range 2 {
			x := make([]vec, v)
			for i := range x {
				x[i] = a.int8Half(from(i), odd == 1, !t.conv)
			}
			for i := range r {
				y, p := a.vec(), a.vec()
				a.VPBROADCASTD(element(i, 4*odd), y)
				for j := range x {
					a.VPMADDWD(x[j], y, p)
					a.VPADDD(p, acc[i][j], acc[i][j])
				}
			}
		}
	}
	for _, p := range rows {
		a.ADDQ(operand.U8(a.int8StepBytes()), p)
	}
	if !t.conv {
		a.ADDQ(operand.U8(128), b)
	}
	a.DECQ(steps)
	a.JNZ(operand.LabelRef(loop))
	for i := range r {
		for j := range v {
			a.VMOVUPS(acc[i][j], at(t.tile, i*int8TileRow+j*a.bytes()))
		}
	}
	if r == a.int8Most() { // more may follow
		a.ADDQ(operand.U32(r*int8TileRow), t.tile)
		if t.conv {
			a.ADDQ(operand.U8(4*r), t.first)
		}
		skip := a.GP64()
		a.IMUL3Q(operand.U32(r), t.row, skip)
		a.ADDQ(skip, t.pa)
	}
}

// int8StepBytes returns the bytes of a step of a.
func (a *asm) int8StepBytes() int {
	if a.wide() {
		return 4
	}
	return 8
}

// int8Half returns the bytes at odd or even places as numbers of 16 bits.
func (a *asm) int8Half(m operand.Mem, odd, signed bool) vec {
	v := a.vec()
	switch {
	case signed && odd:
		a.VMOVUPS(m, v)
		a.VPSRAW(operand.U8(8), v, v)
	case signed:
		a.VMOVUPS(m, v)
		a.VPSLLW(operand.U8(8), v, v)
		a.VPSRAW(operand.U8(8), v, v)
	case odd:
		a.VMOVUPS(m, v)
		a.VPSRLW(operand.U8(8), v, v)
	default:
		a.VMOVUPS(m, v)
		a.VPAND(a.bits(0x00ff00ff), v, v)
	}
	return v
}

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
	a, vectors := f.asm, int8TileRow/f.bytes()
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
	*asm
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
	e.low, e.high = e.vec(), e.vec()
	e.VBROADCASTSS(at(args, low), e.low)
	e.VBROADCASTSS(at(args, high), e.high)
	if e.kind == int8ToBytes {
		e.zero = e.vec()
		e.VPBROADCASTD(at(args, zero), e.zero)
		if !e.wide() {
			e.lowest = e.load(e.bits(lowBytes))
		}
	}
}

// value scales and shifts sums, with two roundings, limits them and, if bytes
// are wanted, rounds them. NaN stays as it is where the result is a float, and
// is the least number otherwise.
func (e *int8End) value(sum vec, scale, shift operand.Op) vec {
	e.VCVTDQ2PS(sum, sum)
	v := e.add(e.mul(sum, scale), shift)
	if e.kind == int8ToFloats {
		return e.lower(e.high, e.upper(e.low, v))
	}
	v = e.lower(e.upper(v, e.low), e.high)
	e.VCVTPS2DQ(v, v)
	e.VPADDD(e.zero, v, v)
	return v
}

func (e *int8End) storeAll(v vec, to operand.Mem) {
	switch {
	case e.kind != int8ToBytes:
		e.VMOVUPS(v, to)
	case e.wide():
		e.VPMOVDB(v, to)
	default:
		e.storeBytes(v, e.lowest, to)
	}
}

func (e *int8End) storeMasked(v vec, mask reg.Register, to operand.Mem) {
	if e.kind == int8ToBytes {
		e.VPMOVDB(v, mask, to)
	} else {
		e.VMOVUPS(v, mask, to)
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

// int8Interleave writes the loop that puts the bytes of four rows, 16 of each
// at a time, one beside the other, with bits flipped.
func (a *asm) int8Interleave() {
	a.Function("int8Interleave" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, s0, s1, s2, s3 *uint8, groups int, flip uint32)")
	dst := a.Load(a.Param("dst"), a.GP64())
	src := make([]reg.Register, 4)
	for i := range src {
		src[i] = a.Load(a.Param(fmt.Sprint("s", i)), a.GP64())
	}
	n := a.Load(a.Param("groups"), a.GP64())
	flip := a.XMM()
	a.VMOVD(a.Load(a.Param("flip"), a.GP32()), flip)
	a.VPBROADCASTD(flip, flip)
	i := a.GP64()
	a.XORQ(i, i)
	loop := a.newLabel("loop")
	a.Label(loop)
	var rows, pairs [4]reg.VecVirtual
	for k := range rows {
		rows[k], pairs[k] = a.XMM(), a.XMM()
		a.VMOVDQU(indexed(src[k], i, 1, 0), rows[k])
		a.VPXOR(flip, rows[k], rows[k])
	}
	for k := range 2 {
		a.VPUNPCKLBW(rows[2*k+1], rows[2*k], pairs[2*k])
		a.VPUNPCKHBW(rows[2*k+1], rows[2*k], pairs[2*k+1])
	}
	for k := range 2 {
		low, high := a.XMM(), a.XMM()
		a.VPUNPCKLWD(pairs[2+k], pairs[k], low)
		a.VPUNPCKHWD(pairs[2+k], pairs[k], high)
		a.VMOVDQU(low, at(dst, 32*k))
		a.VMOVDQU(high, at(dst, 32*k+16))
	}
	a.ADDQ(operand.U8(16), i)
	a.ADDQ(operand.U8(64), dst)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

// int8Widen writes the loop that makes bytes, 16 at a time, numbers of 16
// bits, in every four those with even places first.
func (a *asm) int8Widen() {
	a.Function("int8Widen" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst *uint16, src *uint8, groups int, flip uint32)")
	dst := a.Load(a.Param("dst"), a.GP64())
	src := a.Load(a.Param("src"), a.GP64())
	n := a.Load(a.Param("groups"), a.GP64())
	flip := a.XMM()
	a.VMOVD(a.Load(a.Param("flip"), a.GP32()), flip)
	a.VPBROADCASTD(flip, flip)
	loop := a.newLabel("loop")
	a.Label(loop)
	x, v := a.XMM(), a.YMM()
	a.VPXOR(at(src, 0), flip, x)
	a.VPMOVZXBW(x, v)
	a.VPSHUFLW(operand.U8(0xd8), v, v)
	a.VPSHUFHW(operand.U8(0xd8), v, v)
	a.VMOVDQU(v, at(dst, 0))
	a.ADDQ(operand.U8(16), src)
	a.ADDQ(operand.U8(32), dst)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

// int8Even writes the loop that copies the bytes at even places, 16 of 32 at a
// time.
func (a *asm) int8Even() {
	a.Function("int8Even" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, src *uint8, groups int)")
	dst := a.Load(a.Param("dst"), a.GP64())
	src := a.Load(a.Param("src"), a.GP64())
	n := a.Load(a.Param("groups"), a.GP64())
	even := a.load(a.bits(0x00ff00ff)).AsX()
	loop := a.newLabel("loop")
	a.Label(loop)
	x, y := a.XMM(), a.XMM()
	a.VPAND(at(src, 0), even, x)
	a.VPAND(at(src, 16), even, y)
	a.VPACKUSWB(y, x, x)
	a.VMOVDQU(x, at(dst, 0))
	a.ADDQ(operand.U8(32), src)
	a.ADDQ(operand.U8(16), dst)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}
