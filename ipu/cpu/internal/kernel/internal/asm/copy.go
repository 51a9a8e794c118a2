package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeCopy writes the loops that copy rows of planes, whole vectors at a time,
// of which only elements in masks are read; the others become zero.
// convCopyEven separates the elements with even and odd numbers; the latter
// follow after Odd bytes, unless that is 0.
func writeCopy(a *asm) {
	for _, stride := range []int{1, 2} {
		name := "convCopy"
		if stride == 2 {
			name += "Even"
		}
		a.copyRows(a.function(name, "CopyArgs"), stride)
	}
}

func (a *asm) copyRows(args reg.Register, stride int) {
	src, dst, planes, rows := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "Src"), src)
	a.ADDQ(a.field(args, "Shift"), src)
	a.MOVQ(a.field(args, "Dst"), dst)
	a.MOVQ(a.field(args, "Planes"), planes)
	odd, ahead := a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "Odd"), odd)
	a.MOVQ(a.field(args, "SrcPlane"), ahead)
	d := depthwise{asm: a}
	if stride == 2 && a.wide() {
		d.even, d.odd = a.load(a.ramp(0)), a.load(a.ramp(1))
	}
	maskBytes := 2
	if !a.wide() {
		maskBytes = 32
	}
	plane, row, vector := a.newLabel("plane"), a.newLabel("row"), a.newLabel("vector")
	a.Label(plane)
	fromRow, toRow := a.GP64(), a.GP64()
	a.MOVQ(src, fromRow)
	a.MOVQ(dst, toRow)
	a.MOVQ(a.field(args, "Rows"), rows)
	a.Label(row)
	from, to, left, mask := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(fromRow, from)
	a.MOVQ(toRow, to)
	a.MOVQ(a.field(args, "Vectors"), left)
	a.MOVQ(a.field(args, "Masks"), mask)
	a.Label(vector)
	x := make([]vec, stride)
	for i := range x {
		// The same of the next plane, which the processor does not expect.
		a.PREFETCHT0(indexed(from, ahead, 1, i*a.bytes()))
		x[i] = a.vec()
		if a.wide() {
			k := a.K()
			a.KMOVW(at(mask, i*maskBytes), k)
			a.VMOVUPS_Z(at(from, i*a.bytes()), k, x[i])
		} else {
			a.VMOVUPS(at(mask, i*maskBytes), x[i])
			a.VMASKMOVPS(at(from, i*a.bytes()), x[i], x[i])
		}
	}
	if stride == 2 {
		skip := a.newLabel("skip")
		x[0], x[1] = d.part(x[0], x[1])
		a.TESTQ(odd, odd)
		a.JEQ(operand.LabelRef(skip))
		a.VMOVUPS(x[1], indexed(to, odd, 1, 0))
		a.Label(skip)
	}
	a.VMOVUPS(x[0], at(to, 0))
	a.ADDQ(operand.U32(stride*a.bytes()), from)
	a.ADDQ(operand.U32(a.bytes()), to)
	a.ADDQ(operand.U32(stride*maskBytes), mask)
	a.DECQ(left)
	a.JNZ(operand.LabelRef(vector))
	a.ADDQ(a.field(args, "SrcRow"), fromRow)
	a.ADDQ(a.field(args, "DstRow"), toRow)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ADDQ(a.field(args, "SrcPlane"), src)
	a.ADDQ(a.field(args, "DstPlane"), dst)
	a.DECQ(planes)
	a.JNZ(operand.LabelRef(plane))
	a.ret()
}
