package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

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
