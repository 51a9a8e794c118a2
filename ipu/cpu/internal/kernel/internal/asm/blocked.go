package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeBlocked writes the inner loops of convolutions whose result is in
// NCHWc: tiles of some pixels by one or two vectors of output
// channels, that stay in registers.
func writeBlocked(a *asm) {
	rows := 6
	if a.wide() {
		rows = 14
	}
	a.tiled("blockedTiles", "blockedArgs", a.pixelTiles(rows, a.blockedTile))
}

// blockedSteps is how many products of every element are computed in one
// round of the inner loop, for little else to be done in between.
const blockedSteps = 4

// pixels returns the places of rows of a tile, steps apart, of which the first
// is at base. three is three steps.
func (a *asm) pixels(base, step, three reg.Register, rows int) []operand.Mem {
	var m []operand.Mem
	for i := 0; i < rows; i += 3 {
		if i > 0 {
			next := a.GP64()
			a.LEAQ(indexed(base, three, 1, 0), next)
			base = next
		}
		m = append(m, at(base, 0), indexed(base, step, 1, 0), indexed(base, step, 2, 0))
	}
	return m[:rows]
}

// blockedTile writes the code for one size of tile. The first split pixels, if
// it isn't 0, begin at x and the others at x2.
func (a *asm) blockedTile(args reg.Register, r, split, v int) {
	x, x2 := a.GP64(), a.GP64()
	step, three := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "x"), x)
	if split > 0 {
		a.MOVQ(a.field(args, "x2"), x2)
	}
	a.MOVQ(a.field(args, "step"), step)
	a.LEAQ(indexed(step, step, 2, 0), three)

	tile := a.newLabel("tile")
	a.Label(tile)
	w, offsets, left, ahead := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "w"), w)
	a.MOVQ(a.field(args, "offsets"), offsets)
	a.MOVQ(a.field(args, "k"), left)
	a.MOVQ(a.field(args, "ahead"), ahead)
	a.ADDQ(a.field(args, "fetched"), ahead)
	acc := make([][]vec, r)
	for i := range acc {
		acc[i] = a.vecs(v)
	}
	sums := a.GP64()
	each := func(do func(x vec, i, j int)) {
		for j := range v {
			for i := range acc {
				do(acc[i][j], i, j)
			}
		}
	}
	sum := func(i, j int) operand.Mem { return at(sums, (i*v+j)*a.bytes()) }
	one := func(at_ int) {
		off := a.GP64()
		a.MOVLQSX(at(offsets, 4*at_), off)
		weights := a.vecs(v)
		for j := range weights {
			a.VMOVUPS(at(w, (at_*v+j)*a.bytes()), weights[j])
		}
		some := func(x reg.Register, acc [][]vec) {
			first := a.GP64()
			a.LEAQ(indexed(x, off, 1, 0), first)
			for i, m := range a.pixels(first, step, three, len(acc)) {
				if v == 1 && a.wide() {
					a.VFMADD231PS_BCST(m, weights[0], acc[i][0])
					continue
				}
				element := a.vec()
				a.VBROADCASTSS(m, element)
				for j := range weights {
					a.VFMADD231PS(element, weights[j], acc[i][j])
				}
			}
		}
		if split == 0 {
			some(x, acc)
		} else {
			some(x, acc[:split])
			some(x2, acc[split:])
		}
	}
	again := a.newLabel("block")
	a.Label(again)
	each(func(x vec, _, _ int) { a.zero(x) })
	n := a.GP64()
	a.MOVQ(operand.U32(convBlock), n)
	a.CMPQ(left, n)
	a.CMOVQLT(left, n)
	a.SUBQ(n, left)
	run, rest, single, ready := a.newLabel("run"), a.newLabel("rest"), a.newLabel("single"), a.newLabel("ready")
	a.SUBQ(operand.U8(blockedSteps), n)
	a.JL(operand.LabelRef(rest))
	a.Label(run)
	// Weights that are wanted soon, and some of those for the next channels.
	if v > 1 { // else other loads take all the time
		for i := range blockedSteps * v * a.bytes() / 64 {
			a.PREFETCHT0(at(w, weightsAhead+64*i))
		}
	}
	a.PREFETCHT1(at(ahead, 0))
	a.PREFETCHT1(at(ahead, 64))
	a.ADDQ(a.field(args, "pace"), ahead)
	for i := range blockedSteps {
		one(i)
	}
	a.ADDQ(operand.U8(4*blockedSteps), offsets)
	a.ADDQ(operand.I32(blockedSteps*v*a.bytes()), w)
	a.SUBQ(operand.U8(blockedSteps), n)
	a.JGE(operand.LabelRef(run))
	a.Label(rest)
	a.ADDQ(operand.U8(blockedSteps), n)
	a.JZ(operand.LabelRef(ready))
	a.Label(single)
	one(0)
	a.ADDQ(operand.U8(4), offsets)
	a.ADDQ(operand.U32(v*a.bytes()), w)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(single))
	a.Label(ready)

	// The sums of the blocks before this one, if there are some.
	later, last := a.newLabel("later"), a.newLabel("last")
	a.MOVQ(a.field(args, "sums"), sums)
	taken := a.GP64()
	a.MOVQ(a.field(args, "k"), taken)
	a.SUBQ(left, taken)
	a.CMPQ(taken, operand.U32(convBlock))
	a.JLE(operand.LabelRef(later))
	each(func(x vec, i, j int) { a.VADDPS(sum(i, j), x, x) })
	a.Label(later)
	a.TESTQ(left, left)
	a.JEQ(operand.LabelRef(last))
	each(func(x vec, i, j int) { a.VMOVUPS(x, sum(i, j)) })
	a.JMP(operand.LabelRef(again))
	a.Label(last)
	a.SUBQ(a.field(args, "ahead"), ahead)
	a.MOVQ(ahead, a.field(args, "fetched"))
	a.blockedOut(args, acc)

	a.ADDQ(a.field(args, "tileX"), x)
	if split > 0 {
		a.ADDQ(a.field(args, "tileX"), x2)
	}
	next := a.GP64()
	a.MOVQ(a.field(args, "tileY"), next)
	a.ADDQ(next, a.field(args, "done"))
	a.DECQ(a.field(args, "tiles"))
	a.JNZ(operand.LabelRef(tile))
	a.ret()
}

// weightsAhead is how far ahead weights are fetched, in bytes.
const weightsAhead = 1024

// blockedOut writes a tile whose rows are pixels: it adds the bias and what
// stands in r, rounds to half precision where that is wanted and keeps the
// result within bounds. What is zero in args is left out.
func (a *asm) blockedOut(args reg.Register, acc [][]vec) {
	v := len(acc[0])
	y, block := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "y"), y)
	a.ADDQ(a.field(args, "done"), y)
	a.MOVQ(a.field(args, "block"), block)
	each := func(do func(x vec, i, j int)) {
		for j := range v {
			for i := range acc {
				do(acc[i][j], i, j)
			}
		}
	}
	bias := a.GP64()
	a.MOVQ(a.field(args, "bias"), bias)
	each(func(x vec, i, j int) { a.VADDPS(at(bias, j*a.bytes()), x, x) })
	where := func(field int, do func()) {
		not := a.newLabel("not")
		a.CMPQ(at(args, field), operand.U8(0))
		a.JEQ(operand.LabelRef(not))
		do()
		a.Label(not)
	}
	round := func() { where(a.offset("half"), func() { each(func(x vec, _, _ int) { a.roundHalf(x) }) }) }
	place := func(base, second reg.Register, i, j int) operand.Mem {
		if j > 0 {
			return indexed(base, second, 1, i*a.bytes())
		}
		return at(base, i*a.bytes())
	}
	round()
	where(a.offset("r"), func() {
		r := a.GP64()
		a.MOVQ(a.field(args, "r"), r)
		a.ADDQ(a.field(args, "done"), r)
		each(func(x vec, i, j int) { a.VADDPS(place(r, block, i, j), x, x) })
		round()
	})
	where(a.offset("bounded"), func() {
		low, high := a.vec(), a.vec()
		a.VBROADCASTSS(a.field(args, "low"), low)
		a.VBROADCASTSS(a.field(args, "high"), high)
		each(func(x vec, _, _ int) { a.clamp(x, low, high) })
	})
	each(func(x vec, i, j int) { a.VMOVUPS(x, place(y, block, i, j)) })
}

// roundHalf rounds x to half precision.
func (a *asm) roundHalf(x vec) {
	const nearest = 0
	if a.wide() {
		h := a.YMM()
		a.VCVTPS2PH(operand.U8(nearest), x, h)
		a.VCVTPH2PS(h, x)
		return
	}
	h := a.XMM()
	a.VCVTPS2PH(operand.U8(nearest), x, h)
	a.VCVTPH2PS(h, x)
}
