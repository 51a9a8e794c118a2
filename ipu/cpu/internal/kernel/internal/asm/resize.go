package main

import "github.com/mmcloughlin/avo/operand"

// writeResize writes the loop of a row of pixels, each the sum of four, in the
// order of rows, times the product of two weights.
func writeResize(a *asm) {
	args := a.function("bilinearPixels", "bilinearArgs")
	y, near, far, left := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	right, leftWeight, rightWeight, count := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "y"), y)
	a.MOVQ(a.field(args, "near"), near)
	a.MOVQ(a.field(args, "far"), far)
	a.MOVQ(a.field(args, "left"), left)
	a.MOVQ(a.field(args, "right"), right)
	a.MOVQ(a.field(args, "leftWeight"), leftWeight)
	a.MOVQ(a.field(args, "rightWeight"), rightWeight)
	a.MOVQ(a.field(args, "pixels"), count)
	u, v := a.vec(), a.vec()
	a.VBROADCASTSS(a.field(args, "nearWeight"), u)
	a.VBROADCASTSS(a.field(args, "farWeight"), v)
	loop := a.newLabel("loop")
	a.Label(loop)
	l, r := a.GP64(), a.GP64()
	a.MOVQ(at(left, 0), l)
	a.MOVQ(at(right, 0), r)
	lw, rw := a.vec(), a.vec()
	a.VBROADCASTSS(at(leftWeight, 0), lw)
	a.VBROADCASTSS(at(rightWeight, 0), rw)
	sum := a.mul(a.mul(lw, u), indexed(near, l, 4, 0))
	sum = a.add(sum, a.mul(a.mul(rw, u), indexed(near, r, 4, 0)))
	sum = a.add(sum, a.mul(a.mul(lw, v), indexed(far, l, 4, 0)))
	sum = a.add(sum, a.mul(a.mul(rw, v), indexed(far, r, 4, 0)))
	a.VMOVUPS(sum, at(y, 0))
	a.ADDQ(operand.U8(a.bytes()), y)
	a.ADDQ(operand.U8(8), left)
	a.ADDQ(operand.U8(8), right)
	a.ADDQ(operand.U8(4), leftWeight)
	a.ADDQ(operand.U8(4), rightWeight)
	a.DECQ(count)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}
