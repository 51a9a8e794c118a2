package main

import (
	"github.com/mmcloughlin/avo/operand"
)

// writeBlockMoves writes the loops that convert NCHW to NCHWc
// and back, a vector of pixels at a time.
func writeBlockMoves(a *asm) {
	for _, half := range []bool{false, true} {
		suffix := ""
		if half {
			suffix = "Half"
		}
		a.planesToBlocks("planesToBlocks"+suffix, half)
		a.blocksToPlanes("blocksToPlanes"+suffix, half)
	}
}

// planarBytes is what a vector of elements takes in a plane.
func (a *asm) planarBytes(half bool) int {
	if half {
		return a.bytes() / 2
	}
	return a.bytes()
}

// planesToBlocks repeats the last channel where a block has fewer.
func (a *asm) planesToBlocks(name string, half bool) {
	args := a.function(name, "blockMoveArgs")
	planar, pitch, blocked, chunks, channels := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "planar"), planar)
	a.MOVQ(a.field(args, "blocked"), blocked)
	a.MOVQ(a.field(args, "chunks"), chunks)
	a.MOVQ(a.field(args, "channels"), channels)
	loop := a.newLabel("loop")
	a.Label(loop)
	from, none := a.GP64(), a.GP64()
	a.MOVQ(planar, from)
	a.MOVQ(a.field(args, "pitch"), pitch)
	a.XORQ(none, none)
	in := make([]vec, a.lanes)
	for i := range in {
		in[i] = a.vec()
		if half {
			a.VCVTPH2PS(at(from, 0), in[i])
		} else {
			a.VMOVUPS(at(from, 0), in[i])
		}
		if i < len(in)-1 {
			a.CMPQ(channels, operand.U8(i+1))
			a.CMOVQLE(none, pitch)
			a.ADDQ(pitch, from)
		}
	}
	for i, x := range a.transposed(in) {
		a.VMOVUPS(x, at(blocked, i*a.bytes()))
	}
	a.ADDQ(operand.U8(a.planarBytes(half)), planar)
	a.ADDQ(operand.U32(a.lanes*a.bytes()), blocked)
	a.DECQ(chunks)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

func (a *asm) blocksToPlanes(name string, half bool) {
	args := a.function(name, "blockMoveArgs")
	planar, pitch, blocked, chunks, channels := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "planar"), planar)
	a.MOVQ(a.field(args, "pitch"), pitch)
	a.MOVQ(a.field(args, "blocked"), blocked)
	a.MOVQ(a.field(args, "chunks"), chunks)
	a.MOVQ(a.field(args, "channels"), channels)
	loop, done := a.newLabel("loop"), a.newLabel("done")
	a.Label(loop)
	to := a.GP64()
	a.MOVQ(planar, to)
	in := make([]vec, a.lanes)
	for i := range in {
		in[i] = a.load(at(blocked, i*a.bytes()))
	}
	for i, x := range a.transposed(in) {
		if half {
			a.VCVTPS2PH(operand.U8(0), x, at(to, 0))
		} else {
			a.VMOVUPS(x, at(to, 0))
		}
		if i < len(in)-1 {
			a.CMPQ(channels, operand.U8(i+1))
			a.JLE(operand.LabelRef(done))
			a.ADDQ(pitch, to)
		}
	}
	a.Label(done)
	a.ADDQ(operand.U8(a.planarBytes(half)), planar)
	a.ADDQ(operand.U32(a.lanes*a.bytes()), blocked)
	a.DECQ(chunks)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}
