package main

import (
	"fmt"

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

// int8Tile writes the function of n rows and v vectors. It goes on as long as it
// is the right one for the rows that are left, if there may be some.
func (a *asm) int8Tile(args reg.Register, n, v int, conv bool) {
	t := int8Loop{asm: a, args: args, conv: conv}
	for _, f := range []struct {
		name string
		to   *reg.Register
	}{{"a", &t.pa}, {"aRow", &t.row}, {"b", &t.b}, {"tile", &t.tile}, {"first", &t.first}} {
		*f.to = a.GP64()
		a.MOVQ(a.field(args, f.name), *f.to)
	}
	most := a.int8Most()
	several := n > most/2 // may be one of several tiles
	if several {
		t.rows = a.GP64()
		a.MOVQ(a.field(args, "rows"), t.rows)
	}
	t.row3 = a.GP64()
	a.LEAQ(indexed(t.row, t.row, 2, 0), t.row3)
	done, from := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "done"), done)
	if several {
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
	if several {
		a.Label(again)
	}
	t.tileOf(n, v)
	a.ADDQ(operand.U8(n), a.field(args, "done"))
	if several {
		a.SUBQ(operand.U8(n), t.rows)
		a.CMPQ(t.rows, operand.U8(n))
		a.JEQ(operand.LabelRef(again))
	}
	if n == most {
		a.CMPQ(t.rows, operand.U8(2*most))
		a.JGE(operand.LabelRef(again))
	}
	a.ret()
}

// int8Loop is a loop over rows.
type int8Loop struct {
	asm                                       *asm
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
	a.MOVQ(t.asm.field(t.args, "steps"), steps)
	if t.conv {
		a.MOVQ(t.asm.field(t.args, "offsets"), offsets)
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
	if r > a.int8Most()/2 { // more may follow
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
