package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writePool writes the loops of pooling, which folds windows row by row: first
// the rows of the input under the window into one, then stretches of that.
func writePool(a *asm) {
	for _, f := range []fold{
		{name: "sum", step: func(a *asm, acc, x vec, _ []vec) vec { return a.add(acc, x) }},
		{name: "most", nan: true, step: func(a *asm, acc, x vec, _ []vec) vec { return a.most(acc, x) }},
	} {
		// dst folded with rows, stride bytes apart.
		f.windows(a, f.name+"Rows", 1, true)
		// Stretches of taps elements, stride bytes apart, that begin at every
		// or at every second element of x.
		f.windows(a, f.name+"Slide", 1, false)
		f.windows(a, f.name+"Slide2", 2, false)
	}
	// A sum of nothing but -0 is 0 here, as where sums begin with 0.
	loop{name: "divideScaled", slices: []string{"x", "y"}, scalars: []string{"factor"}, body: func(a *asm, x, s []vec) vec {
		none := a.vec()
		a.zero(none)
		return a.div(a.add(x[0], none), a.mul(x[1], s[0]))
	}}.write(a)
	// The corners of bilinear interpolation times their weights, none of the
	// operations fused.
	corners := []string{"left", "right", "nearLeft", "nearRight", "farLeft", "farRight"}
	loop{name: "interpolate", slices: corners, scalars: []string{"near", "far"}, body: func(a *asm, x, s []vec) vec {
		sum := a.mul(a.mul(x[0], s[0]), x[2])
		sum = a.add(sum, a.mul(a.mul(x[1], s[0]), x[3]))
		sum = a.add(sum, a.mul(a.mul(x[0], s[1]), x[4]))
		return a.add(sum, a.mul(a.mul(x[1], s[1]), x[5]))
	}}.write(a)
}

// windows writes a function that folds elements of x stride bytes apart,
// together with those in dst if onto is set; else it reads whole vectors.
func (f fold) windows(a *asm, name string, every int, onto bool) {
	a.Function(name + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x *float32, n, taps, stride int)")
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	n, taps, stride := a.Load(a.Param("n"), a.GP64()), a.Load(a.Param("taps"), a.GP64()), a.Load(a.Param("stride"), a.GP64())
	var index, quiet vec
	if every == 2 && a.wide() {
		index = a.load(a.ramp(0))
	}
	if f.nan {
		quiet = a.load(a.bits(quietNaN))
	}
	read := func(p, mask reg.Register) vec {
		switch {
		case every == 1:
			return f.read(a, at(p, 0), mask)
		case a.wide():
			v := a.load(at(p, 0))
			to := a.fresh(index)
			a.VPERMI2PS(at(p, a.bytes()), v, to)
			return to
		}
		v := a.load(at(p, 0))
		a.VSHUFPS(operand.U8(0x88), at(p, a.bytes()), v, v)
		a.VPERMPD(operand.U8(0xd8), v, v)
		return v
	}
	// column folds a vector of elements.
	column := func(mask reg.Register) vec {
		p, left := a.GP64(), a.GP64()
		a.MOVQ(x, p)
		a.MOVQ(taps, left)
		var acc, nan vec
		if onto {
			acc = f.read(a, at(dst, 0), mask)
		} else {
			acc = read(p, nil)
			a.ADDQ(stride, p)
			a.DECQ(left)
		}
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
		loop, ready := a.newLabel("tap"), a.newLabel("ready")
		a.TESTQ(left, left)
		a.JZ(operand.LabelRef(ready))
		a.Label(loop)
		v := read(p, mask)
		a.VMOVAPS(f.step(a, acc, v, nil), acc)
		note(v)
		a.ADDQ(stride, p)
		a.DECQ(left)
		a.JNZ(operand.LabelRef(loop))
		a.Label(ready)
		if f.nan {
			a.VORPS(nan, acc, acc)
		}
		return acc
	}
	run, part, end := a.newLabel("run"), a.newLabel("part"), a.newLabel("end")
	a.SUBQ(operand.U8(a.lanes), n)
	a.JL(operand.LabelRef(part))
	a.Label(run)
	a.VMOVUPS(column(nil), at(dst, 0))
	a.ADDQ(operand.U8(a.bytes()), dst)
	a.ADDQ(operand.I32(every*a.bytes()), x)
	a.SUBQ(operand.U8(a.lanes), n)
	a.JGE(operand.LabelRef(run))
	a.Label(part)
	a.ADDQ(operand.U8(a.lanes), n)
	a.JZ(operand.LabelRef(end))
	mask := a.firstLanes(n)
	var acc vec
	if onto {
		acc = column(mask)
	} else {
		acc = column(nil)
	}
	if a.wide() {
		a.VMOVUPS(acc, mask, at(dst, 0))
	} else {
		a.VMASKMOVPS(acc, mask.(vec), at(dst, 0))
	}
	a.Label(end)
	a.ret()
}
