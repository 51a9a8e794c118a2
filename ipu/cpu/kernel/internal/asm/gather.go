package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Offsets of gatherArgs in package kernel.
const (
	gatherSrc    = 0
	gatherDst    = 8
	gatherGroups = 16
	gatherStep   = 24
	gatherTaps   = 32
	gatherNTaps  = 40
	gatherMask   = 48
	gatherLanes  = 52
)

// panelBytes is a row of a panel.
const panelBytes = 128

// writeGather writes the loops that collect rows of a matrix, or windows of
// an image, into a panel.
func writeGather(a *asm) {
	a.gather("gather", 1)
	a.gather("gatherEven", 2)
	if !a.wide() {
		a.transpose()
	}
}

// gather copies, for every group and tap, two vectors of elements that lie
// stride apart to the next row of a panel.
func (a *asm) gather(name string, stride int) {
	args := a.function(name)
	src, dst, groups := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(at(args, gatherSrc), src)
	a.MOVQ(at(args, gatherDst), dst)
	a.MOVQ(at(args, gatherGroups), groups)
	var masks []reg.Register
	var lanes []reg.VecVirtual
	var even reg.VecVirtual
	for i := range 2 {
		if a.wide() {
			k := a.K()
			a.KMOVW(at(args, gatherMask+2*i), k)
			masks = append(masks, k)
		} else {
			v := a.vec()
			a.VMOVUPS(at(args, gatherLanes+32*i), v)
			lanes = append(lanes, v)
		}
	}
	var bits reg.Register
	if a.wide() && stride == 2 {
		// The numbers of every other element of two vectors.
		even = a.vec()
		x := a.GP64()
		a.MOVQ(operand.U64(0x0e0c0a0806040200), x)
		lo, hi := a.XMM(), a.XMM()
		a.VMOVQ(x, lo)
		a.MOVQ(operand.U64(0x1e1c1a1816141210), x)
		a.VMOVQ(x, hi)
		a.VPUNPCKLQDQ(hi, lo, lo)
		a.VPMOVZXBD(lo, even)
		bits = a.GP64()
		a.MOVQ(operand.U64(0x5555555555555555), bits)
	}

	group, loop := a.newLabel("group"), a.newLabel("tap")
	tap, left := a.GP64(), a.GP64()
	a.Label(group)
	a.MOVQ(at(args, gatherTaps), tap)
	a.MOVQ(at(args, gatherNTaps), left)
	a.Label(loop)
	from := a.GP64()
	a.MOVQ(at(tap, tapOffset), from)
	for i := range 2 {
		x := a.vec()
		m := indexed(src, from, 1, i*stride*a.bytes())
		switch {
		case a.wide() && stride == 1:
			k := a.K()
			a.KMOVW(at(tap, tapMask+2*i), k)
			a.VMOVUPS_Z(m, k, x)
		case a.wide():
			// Of the elements that are read only those may be outside of the
			// memory that are not wanted.
			spread := a.GP64()
			a.MOVWQZX(at(tap, tapMask+2*i), spread)
			a.PDEPQ(bits, spread, spread)
			k0, k1 := a.K(), a.K()
			a.KMOVW(spread.As32(), k0)
			a.SHRQ(operand.U8(16), spread)
			a.KMOVW(spread.As32(), k1)
			y := a.vec()
			a.VMOVUPS_Z(m, k0, x)
			a.VMOVUPS_Z(m.Offset(a.bytes()), k1, y)
			// x = elements of x and y that even says.
			r := a.vec()
			a.VMOVAPS(even, r)
			a.VPERMI2PS(y, x, r)
			x = r
		case stride == 1:
			a.VMOVUPS(at(tap, tapLanes+32*i), x)
			a.VMASKMOVPS(m, x, x)
		default:
			lo, hi := a.vec(), a.vec()
			a.VPMOVZXDQ(at(tap, tapLanes+32*i), lo)
			a.VPMOVZXDQ(at(tap, tapLanes+32*i+16), hi)
			a.VMASKMOVPS(m, lo, lo)
			a.VMASKMOVPS(m.Offset(a.bytes()), hi, hi)
			a.VSHUFPS(operand.U8(0x88), hi, lo, x)
			a.VPERMPD(operand.U8(0xd8), x, x)
		}
		if a.wide() {
			a.VMOVUPS(x, masks[i], at(dst, i*a.bytes()))
		} else {
			a.VMASKMOVPS(x, lanes[i], at(dst, i*a.bytes()))
		}
	}
	a.ADDQ(operand.U8(tapSize), tap)
	a.SUBQ(operand.I8(-panelBytes), dst)
	a.DECQ(left)
	a.JNZ(operand.LabelRef(loop))
	a.ADDQ(at(args, gatherStep), src)
	a.DECQ(groups)
	a.JNZ(operand.LabelRef(group))
	a.ret()
}

// transpose writes blocks of eight rows and as many columns to a panel,
// transposed.
func (a *asm) transpose() {
	a.Function("transposeAVX2")
	a.SignatureExpr("func(dst, src *uint8, step, blocks int)")
	dst := a.Load(a.Param("dst"), a.GP64())
	src := a.Load(a.Param("src"), a.GP64())
	step := a.Load(a.Param("step"), a.GP64())
	blocks := a.Load(a.Param("blocks"), a.GP64())
	row3, half := a.GP64(), a.GP64()
	a.LEAQ(indexed(step, step, 2, 0), row3)
	loop := a.newLabel("loop")
	a.Label(loop)
	a.LEAQ(indexed(src, step, 4, 0), half)
	var rows []reg.VecVirtual
	for _, base := range []reg.Register{src, half} {
		for _, m := range []operand.Mem{at(base, 0), indexed(base, step, 1, 0), indexed(base, step, 2, 0), indexed(base, row3, 1, 0)} {
			v := a.YMM()
			a.VMOVUPS(m, v)
			rows = append(rows, v)
		}
	}
	// Pairs of rows interleaved, then pairs of pairs, then halves exchanged.
	var pairs [8]reg.VecVirtual
	for i := 0; i < 8; i += 2 {
		pairs[i], pairs[i+1] = a.YMM(), a.YMM()
		a.VUNPCKLPS(rows[i+1], rows[i], pairs[i])
		a.VUNPCKHPS(rows[i+1], rows[i], pairs[i+1])
	}
	var quads [8]reg.VecVirtual
	for i := 0; i < 8; i += 4 {
		for j := range 2 {
			lo, hi := a.YMM(), a.YMM()
			a.VSHUFPS(operand.U8(0x44), pairs[i+2+j], pairs[i+j], lo)
			a.VSHUFPS(operand.U8(0xee), pairs[i+2+j], pairs[i+j], hi)
			quads[i+2*j], quads[i+2*j+1] = lo, hi
		}
	}
	for i := range 8 {
		v := a.YMM()
		sel := operand.U8(0x20)
		if i >= 4 {
			sel = 0x31
		}
		a.VPERM2F128(sel, quads[4+i%4], quads[i%4], v)
		a.VMOVUPS(v, at(dst, i*panelBytes))
	}
	a.ADDQ(operand.U8(32), src)
	a.ADDQ(operand.U32(8*panelBytes), dst)
	a.DECQ(blocks)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}
