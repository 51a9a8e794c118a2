package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// writeBlockedPool writes the loops of pooling over pixels in NCHWc:
// they fold stretches of pixels.
func writeBlockedPool(a *asm) {
	fold{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return a.add(acc, x) }}.pixels(a)
	fold{name: "most", nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.most(acc, x) }}.pixels(a)
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
