package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// convBlock is how many products are summed before the sum is added to those
// of the products before them.
const convBlock = 128

// writeConv writes the inner loops of convolutions: tiles of the result, of a
// number of rows by some vectors of columns, that stay in registers. Their
// products' operands are one element for every row, the same for all columns,
// and vectors of columns, the same for all rows. For convMaps the rows are
// pixels and the columns output channels; for convPixels it is the other way
// round.
func writeConv(a *asm) {
	rows, few := 6, 0
	if a.wide() {
		rows, few = 14, 6
	}
	a.tiled("convMaps", "convArgs", a.pixelTiles(rows, func(args reg.Register, r, split, v int) { a.convTile(args, r, split, v, true) }))

	var all []variant
	for _, v := range []int{4, 2, 1} {
		most := rows
		if v == 4 {
			most = few
		}
		if a.wide() && v < 4 {
			most = 12
		}
		for r := most; r >= 1; r-- {
			all = append(all, variant{tile: size(r, v*a.lanes), asked: []asked{a.value("vectors", v), a.value("rows", r)}, is: a.numbers(r, v),
				write: func(args reg.Register) { a.convTile(args, r, 0, v, false) }})
		}
	}
	a.tiled("convPixels", "convArgs", all)
	a.convStore()
	a.convPlane()
}

// pixelTiles returns the tiles of at most so many pixels, in one row or half of
// them in each of two, by one or two vectors of output channels.
func (a *asm) pixelTiles(most int, write func(args reg.Register, r, split, v int)) []variant {
	var all []variant
	for _, v := range []int{2, 1} {
		vectors := a.value("vectors", v)
		for r := most; r >= 1; r-- {
			all = append(all, variant{tile: size(r, v*a.lanes), asked: []asked{vectors, a.value("split", 0), a.value("rows", r)}, is: a.numbers(r, v),
				write: func(args reg.Register) { write(args, r, 0, v) }})
		}
		for r := most / 2; r >= 1; r-- {
			all = append(all, variant{tile: size(2, r, v*a.lanes), asked: []asked{vectors, a.value("rows", 2*r)}, is: a.numbers(2*r, v),
				write: func(args reg.Register) { write(args, 2*r, r, v) }})
		}
	}
	return all
}

// numbers are what a plain loop calls rows and columns, of a tile of so many rows
// of vectors.
func (a *asm) numbers(rows, vectors int) map[string]string {
	is := a.columns(vectors)
	is["rows"] = fmt.Sprint(rows)
	return is
}

// columns is the same of tiles for any number of rows.
func (a *asm) columns(vectors int) map[string]string {
	return map[string]string{"lanes * vectors": fmt.Sprint(vectors * a.lanes), "lanes*vectors": fmt.Sprint(vectors * a.lanes)}
}

// convTile writes the code for one size of tile. The first split rows, if it
// isn't 0, begin at x and the others at x2. Of convPixels the elements for the
// rows are weights, which lie close together, and the vectors are in the image.
func (a *asm) convTile(args reg.Register, r, split, v int, maps bool) {
	x, x2, w, offsets, left, tile := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "x"), x)
	if split > 0 {
		a.MOVQ(a.field(args, "x2"), x2)
	}
	a.MOVQ(a.field(args, "w"), w)
	a.MOVQ(a.field(args, "offsets"), offsets)
	a.MOVQ(a.field(args, "k"), left)
	a.MOVQ(a.field(args, "tile"), tile)
	a.convPrefetch(args, r, v, maps)
	later := a.GP64()
	a.XORQ(later, later)

	acc := make([][]vec, r)
	for i := range acc {
		acc[i] = a.vecs(v)
	}
	each := func(do func(x vec, m operand.Mem)) {
		for i, row := range acc {
			for j, x := range row {
				do(x, at(tile, (i*v+j)*a.bytes()))
			}
		}
	}
	block, loop, sum, more := a.newLabel("block"), a.newLabel("loop"), a.newLabel("sum"), a.newLabel("more")
	a.Label(block)
	each(func(x vec, _ operand.Mem) { a.zero(x) })
	n := a.GP64()
	a.MOVQ(operand.U32(convBlock), n)
	a.CMPQ(left, n)
	a.CMOVQLT(left, n)
	a.SUBQ(n, left)
	a.Label(loop)
	off := a.GP64()
	a.MOVLQSX(at(offsets, 0), off)
	a.ADDQ(operand.U8(4), offsets)
	columns := a.vecs(v)
	for j := range columns {
		if maps {
			a.VMOVUPS(at(w, j*a.bytes()), columns[j])
		} else {
			a.VMOVUPS(indexed(x, off, 1, j*a.bytes()), columns[j])
		}
	}
	for i := range acc {
		var m operand.Mem
		switch {
		case !maps:
			m = at(w, 4*i)
		case split > 0 && i >= split:
			m = indexed(x2, off, 1, 4*(i-split))
		default:
			m = indexed(x, off, 1, 4*i)
		}
		if v == 1 && a.wide() {
			a.VFMADD231PS_BCST(m, columns[0], acc[i][0])
			continue
		}
		element := a.vec()
		a.VBROADCASTSS(m, element)
		for j := range columns {
			a.VFMADD231PS(element, columns[j], acc[i][j])
		}
	}
	if maps {
		a.ADDQ(operand.U32(v*a.bytes()), w)
	} else {
		a.ADDQ(operand.U8(4*r), w)
	}
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))

	a.TESTQ(later, later)
	a.JEQ(operand.LabelRef(sum))
	each(func(x vec, m operand.Mem) { a.VADDPS(m, x, x) })
	a.Label(sum)
	if !maps {
		a.TESTQ(left, left)
		a.JEQ(operand.LabelRef(more))
	}
	each(func(x vec, m operand.Mem) { a.VMOVUPS(x, m) })
	a.INCQ(later)
	if maps {
		a.TESTQ(left, left)
		a.JNE(operand.LabelRef(block))
		a.ret()
		return
	}
	a.JMP(operand.LabelRef(block))
	a.Label(more)
	a.convRowsOut(args, acc)
	a.ret()
}

// convPrefetch fetches what is written at the end. Of convMaps, whose result is
// stored by another function, there is a row for every column.
func (a *asm) convPrefetch(args reg.Register, r, v int, maps bool) {
	rows, lines := r, (v*a.bytes()+63)/64
	if maps {
		rows, lines = v*a.lanes, 1
	}
	y, yRow := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "y"), y)
	a.MOVQ(a.field(args, "yRow"), yRow)
	for i := range rows {
		for j := range lines {
			a.PREFETCHT0(at(y, 64*j))
		}
		if i < rows-1 {
			a.ADDQ(yRow, y)
		}
	}
}

// convRowsOut writes rows of pixels of one output channel each.
func (a *asm) convRowsOut(args reg.Register, acc [][]vec) {
	y, yRow, bias := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "y"), y)
	a.MOVQ(a.field(args, "yRow"), yRow)
	a.MOVQ(a.field(args, "bias"), bias)
	low, high := a.bounds(args)
	masks := make([]reg.Register, len(acc[0]))
	mask := func(j int) reg.Register {
		if !a.wide() || masks[j] == nil {
			// Registers for AVX2 are few: load it anew.
			masks[j] = a.vectorMask(args, j)
		}
		return masks[j]
	}
	for i, row := range acc {
		b := a.vec()
		a.VBROADCASTSS(at(bias, 4*i), b)
		for j, x := range row {
			a.VADDPS(b, x, x)
			a.clamp(x, low, high)
			a.storeMasked(x, mask(j), at(y, j*a.bytes()))
		}
		if i < len(acc)-1 {
			a.ADDQ(yRow, y)
		}
	}
}

// bounds returns the bounds of the result.
func (a *asm) bounds(args reg.Register) (low, high vec) {
	low, high = a.vec(), a.vec()
	a.VBROADCASTSS(a.field(args, "low"), low)
	a.VBROADCASTSS(a.field(args, "high"), high)
	return low, high
}

// clamp keeps x within bounds. Not a number stays what it is: of two operands,
// these instructions return the last one then.
func (a *asm) clamp(x, low, high vec) {
	a.VMAXPS(x, low, x)
	a.VMINPS(x, high, x)
}

// vectorMask returns the mask of a vector of the result.
func (a *asm) vectorMask(args reg.Register, j int) reg.Register {
	if a.wide() {
		k := a.K()
		a.KMOVW(at(args, a.offset("mask")+2*j), k)
		return k
	}
	return a.load(at(args, a.offset("lanes")+32*j))
}

func (a *asm) storeMasked(x vec, mask reg.Register, m operand.Mem) {
	if a.wide() {
		a.VMOVUPS(x, mask, m)
	} else {
		a.VMASKMOVPS(x, mask, m)
	}
}

// convStore writes a tile of convMaps, whose rows are pixels, as rows of the
// output channels' planes. There convRows is the number of channels.
func (a *asm) convStore() {
	args := a.function("convStore", "convArgs")
	tile, y, yRow, bias, rows, pitch := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "tile"), tile)
	a.MOVQ(a.field(args, "y"), y)
	a.MOVQ(a.field(args, "yRow"), yRow)
	a.MOVQ(a.field(args, "bias"), bias)
	a.MOVQ(a.field(args, "rows"), rows)
	a.MOVQ(a.field(args, "vectors"), pitch)
	shift := 6
	if !a.wide() {
		shift = 5
	}
	a.SHLQ(operand.U8(shift), pitch)
	low, high := a.bounds(args)
	mask := a.vectorMask(args, 0)
	loop, done := a.newLabel("loop"), a.newLabel("done")
	a.Label(loop)
	in := make([]vec, a.lanes)
	from := a.GP64()
	a.MOVQ(tile, from)
	for i := range in {
		in[i] = a.load(at(from, 0))
		if i < len(in)-1 {
			a.ADDQ(pitch, from)
		}
	}
	for i, x := range a.transposed(in) {
		if a.wide() {
			a.VADDPS_BCST(at(bias, 4*i), x, x)
		} else {
			b := a.vec()
			a.VBROADCASTSS(at(bias, 4*i), b)
			a.VADDPS(b, x, x)
		}
		a.clamp(x, low, high)
		a.storeMasked(x, mask, at(y, 0))
		a.DECQ(rows)
		a.JEQ(operand.LabelRef(done))
		a.ADDQ(yRow, y)
	}
	a.ADDQ(operand.U8(a.bytes()), tile)
	a.ADDQ(operand.U8(a.bytes()), bias)
	a.JMP(operand.LabelRef(loop))
	a.Label(done)
	a.ret()
}

// transposed returns the columns of a square of vectors.
func (a *asm) transposed(in []vec) []vec {
	n := len(in)
	// Of every four rows, one vector for each column of every 128 bits.
	quads := make([][]vec, n/4)
	for g := range quads {
		var lo, hi [2]vec
		for i := range 2 {
			x, y := in[4*g+2*i], in[4*g+2*i+1]
			lo[i], hi[i] = a.vec(), a.vec()
			a.VUNPCKLPS(y, x, lo[i])
			a.VUNPCKHPS(y, x, hi[i])
		}
		for _, p := range [][2]vec{lo, hi} {
			even, odd := a.vec(), a.vec()
			a.VUNPCKLPD(p[1], p[0], even)
			a.VUNPCKHPD(p[1], p[0], odd)
			quads[g] = append(quads[g], even, odd)
		}
	}
	out := make([]vec, n)
	for j := range 4 {
		if !a.wide() {
			out[j], out[4+j] = a.vec(), a.vec()
			a.VPERM2F128(operand.U8(0x20), quads[1][j], quads[0][j], out[j])
			a.VPERM2F128(operand.U8(0x31), quads[1][j], quads[0][j], out[4+j])
			continue
		}
		// Transpose four by four parts of 128 bits.
		pick := func(which uint8, x, y vec) vec {
			v := a.vec()
			a.VSHUFF32X4(operand.U8(which), y, x, v)
			return v
		}
		even0, odd0 := pick(0x88, quads[0][j], quads[1][j]), pick(0xdd, quads[0][j], quads[1][j])
		even1, odd1 := pick(0x88, quads[2][j], quads[3][j]), pick(0xdd, quads[2][j], quads[3][j])
		out[j], out[8+j] = pick(0x88, even0, even1), pick(0xdd, even0, even1)
		out[4+j], out[12+j] = pick(0x88, odd0, odd1), pick(0xdd, odd0, odd1)
	}
	return out
}

// convPlane writes the loop for windows over one plane: products are rounded,
// four of them added up, then those sums.
func (a *asm) convPlane() {
	var all []variant
	for _, v := range []int{4, 2, 1} {
		if v == 4 && !a.wide() {
			continue
		}
		all = append(all, variant{tile: fmt.Sprint(v * a.lanes), asked: []asked{a.value("vectors", v)}, is: a.columns(v),
			write: func(args reg.Register) { a.convPlaneTile(args, v) }})
	}
	a.tiled("convPlane", "convArgs", all)
}

func (a *asm) convPlaneTile(args reg.Register, v int) {
	x, w, offsets, left := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "x"), x)
	a.MOVQ(a.field(args, "w"), w)
	a.MOVQ(a.field(args, "offsets"), offsets)
	a.MOVQ(a.field(args, "k"), left)
	sum := a.vecs(v)
	for _, s := range sum {
		a.zero(s)
	}
	few := a.vecs(v)
	// products multiplies n weights; from the second on they are added.
	products := func(n int) {
		for i := range n {
			off, weight := a.GP64(), a.vec()
			a.MOVLQSX(at(offsets, 4*i), off)
			a.VBROADCASTSS(at(w, 4*i), weight)
			for j := range few {
				m := indexed(x, off, 1, j*a.bytes())
				if i == 0 {
					a.VMULPS(m, weight, few[j])
					continue
				}
				p := a.vec()
				a.VMULPS(m, weight, p)
				a.VADDPS(p, few[j], few[j])
			}
		}
		for j := range few {
			a.VADDPS(few[j], sum[j], sum[j])
		}
		a.ADDQ(operand.U8(4*n), offsets)
		a.ADDQ(operand.U8(4*n), w)
	}
	loop, pair, one, out := a.newLabel("loop"), a.newLabel("pair"), a.newLabel("one"), a.newLabel("out")
	a.SUBQ(operand.U8(4), left)
	a.JL(operand.LabelRef(pair))
	a.Label(loop)
	products(4)
	a.SUBQ(operand.U8(4), left)
	a.JGE(operand.LabelRef(loop))
	a.Label(pair)
	a.TESTQ(operand.U32(2), left)
	a.JEQ(operand.LabelRef(one))
	products(2)
	a.Label(one)
	a.TESTQ(operand.U32(1), left)
	a.JEQ(operand.LabelRef(out))
	products(1)
	a.Label(out)
	a.convRowsOut(args, [][]vec{sum})
	a.ret()
}
