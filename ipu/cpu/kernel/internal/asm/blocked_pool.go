package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// Offsets of bilinearArgs in package kernel, which a test compares.
const (
	bilinearY           = 0
	bilinearNear        = 8
	bilinearFar         = 16
	bilinearLeft        = 24
	bilinearRight       = 32
	bilinearLeftWeight  = 40
	bilinearRightWeight = 48
	bilinearPixels      = 56
	bilinearNearWeight  = 64
	bilinearFarWeight   = 68
)

// writeBlockedPool writes the loops over pixels in blocks of channels: of
// pooling, which folds stretches of pixels, and of bilinear interpolation.
func writeBlockedPool(a *asm) {
	fold{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return a.add(acc, x) }}.pixels(a)
	fold{name: "most", nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.most(acc, x) }}.pixels(a)
	a.bilinear()
}

// pixels writes a function that folds taps pixels, stride bytes apart, into
// each of dst; from one of those to the next x goes step bytes on.
func (f fold) pixels(a *asm) {
	a.Function(f.name + "Pixels" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x *float32, pixels, taps, stride, step int)")
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	left, taps := a.Load(a.Param("pixels"), a.GP64()), a.Load(a.Param("taps"), a.GP64())
	stride, step := a.Load(a.Param("stride"), a.GP64()), a.Load(a.Param("step"), a.GP64())
	var quiet vec
	if f.nan {
		quiet = a.load(a.bits(quietNaN))
	}
	run, tap, ready := a.newLabel("run"), a.newLabel("tap"), a.newLabel("ready")
	a.Label(run)
	p, n := a.GP64(), a.GP64()
	a.MOVQ(x, p)
	a.MOVQ(taps, n)
	acc := a.load(at(p, 0))
	var nan vec
	note := func(x vec) {
		if f.nan {
			a.VMOVAPS(a.choose(unordered, x, x, quiet, nan), nan)
		}
	}
	if f.nan {
		nan = a.vec()
		a.zero(nan)
		note(acc)
	}
	a.DECQ(n)
	a.JZ(operand.LabelRef(ready))
	a.Label(tap)
	a.ADDQ(stride, p)
	v := a.load(at(p, 0))
	a.VMOVAPS(f.step(a, acc, v, nil), acc)
	note(v)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(tap))
	a.Label(ready)
	if f.nan {
		a.VORPS(nan, acc, acc)
	}
	a.VMOVUPS(acc, at(dst, 0))
	a.ADDQ(operand.U8(a.bytes()), dst)
	a.ADDQ(step, x)
	a.DECQ(left)
	a.JNZ(operand.LabelRef(run))
	a.ret()
}

// bilinear writes the loop of a row of pixels, each the sum of four, in the
// order of rows, times the product of two weights.
func (a *asm) bilinear() {
	args := a.function("bilinearPixels")
	y, near, far, left := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	right, leftWeight, rightWeight, count := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(at(args, bilinearY), y)
	a.MOVQ(at(args, bilinearNear), near)
	a.MOVQ(at(args, bilinearFar), far)
	a.MOVQ(at(args, bilinearLeft), left)
	a.MOVQ(at(args, bilinearRight), right)
	a.MOVQ(at(args, bilinearLeftWeight), leftWeight)
	a.MOVQ(at(args, bilinearRightWeight), rightWeight)
	a.MOVQ(at(args, bilinearPixels), count)
	u, v := a.vec(), a.vec()
	a.VBROADCASTSS(at(args, bilinearNearWeight), u)
	a.VBROADCASTSS(at(args, bilinearFarWeight), v)
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
