package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeGemv writes the inner loops of products of few rows by several panels.
// Those of one to three rows go as fast as the second matrix is read; more of
// them have enough sums that do not wait for each other.
func writeGemv(a *asm) {
	cases := [][]int{{8, 4, 2}, {4, 2}, {4, 2}, {2}, {2}, {2}}
	if !a.wide() {
		cases = [][]int{{2, 1}, {1}, {1}}
	}
	var all []variant
	for i, panels := range cases {
		for _, p := range panels {
			all = append(all, variant{tile: size(i+1, 32*p), asked: []asked{a.value("rows", i+1), a.value("panels", p)},
				is:    map[string]string{"rows": fmt.Sprint(i + 1), "32 * panels": fmt.Sprint(32 * p)},
				write: func(args reg.Register) { a.gemv(args, i+1, p) }})
		}
	}
	a.tiled("gemv", "gemvArgs", all)
	a.dot()
}

// gemvAhead is how far ahead, in rows of a panel, the loop fetches: for
// memory that is farther away than the processor looks ahead by itself.
const gemvAhead = 16

// gemv multiplies r rows of A by some panels of B.
func (a *asm) gemv(args reg.Register, r, panels int) {
	row, b, k := a.GP64(), a.GP64(), a.GP64()
	aRow, aStep, bStep, bPanel := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	for _, l := range []struct {
		offset int
		r      reg.Register
	}{{a.offset("a"), row}, {a.offset("b"), b}, {a.offset("k"), k}, {a.offset("aRow"), aRow}, {a.offset("aStep"), aStep}, {a.offset("bStep"), bStep}, {a.offset("bPanel"), bPanel}} {
		a.MOVQ(at(args, l.offset), l.r)
	}
	perPanel := panelBytes / a.bytes()
	acc := make([][]reg.VecVirtual, r)
	for i := range acc {
		acc[i] = a.vecs(panels * perPanel)
		for _, v := range acc[i] {
			a.zero(v)
		}
	}
	// Pointers to items 0 and 5 and multiples of the distance reach all.
	reach := func(base, step reg.Register, n int) (place func(i, disp int) operand.Mem, bases []reg.Register) {
		bases = []reg.Register{base}
		var step3 reg.Register
		if n > 3 {
			step3 = a.GP64()
			a.LEAQ(indexed(step, step, 2, 0), step3)
		}
		if n > 5 {
			p := a.GP64()
			a.LEAQ(indexed(base, step, 4, 0), p)
			a.ADDQ(step, p)
			bases = append(bases, p)
		}
		return func(i, disp int) operand.Mem {
			base := bases[i/5]
			switch i % 5 {
			case 0:
				return at(base, disp)
			case 3:
				return indexed(base, step3, 1, disp)
			}
			return indexed(base, step, uint8(i%5), disp)
		}, bases
	}
	ofA, rows := reach(row, aRow, r)
	ofB, blocks := reach(b, bPanel, panels)
	step := func(u int, fetch bool) {
		var x []reg.VecVirtual
		load := func(i int) reg.VecVirtual {
			v := a.vec()
			a.VBROADCASTSS(ofA(i, 4*u), v)
			return v
		}
		if r <= 3 {
			for i := range r {
				x = append(x, load(i))
			}
		}
		var y []reg.VecVirtual
		for p := range panels {
			for i := range perPanel {
				v := a.vec()
				at := u*panelBytes + i*a.bytes()
				a.VMOVUPS(ofB(p, at), v)
				if fetch && at%64 == 0 {
					a.PREFETCHT0(ofB(p, at+gemvAhead*panelBytes))
				}
				for j := range x {
					a.VFMADD231PS(x[j], v, acc[j][p*perPanel+i])
				}
				y = append(y, v)
			}
		}
		for j := len(x); j < r; j++ {
			x := load(j)
			for i, v := range y {
				a.VFMADD231PS(x, v, acc[j][i])
			}
		}
	}
	// Where A's elements and B's rows follow each other several at a time.
	atOnce := max(1, min(4, 32/(r*panels*perPanel)))
	single, end := a.newLabel("single"), a.newLabel("end")
	a.CMPQ(aStep, operand.U8(4))
	a.JNE(operand.LabelRef(single))
	a.CMPQ(bStep, operand.U32(panelBytes))
	a.JNE(operand.LabelRef(single))
	several := func(fetch bool) {
		loop, rest := a.newLabel("loop"), a.newLabel("rest")
		a.SUBQ(operand.U8(atOnce), k)
		a.JL(operand.LabelRef(rest))
		a.Label(loop)
		for u := range atOnce {
			step(u, fetch)
		}
		for _, p := range rows {
			a.ADDQ(operand.U8(4*atOnce), p)
		}
		for _, p := range blocks {
			a.ADDQ(operand.U32(atOnce*panelBytes), p)
		}
		a.SUBQ(operand.U8(atOnce), k)
		a.JGE(operand.LabelRef(loop))
		a.Label(rest)
		a.ADDQ(operand.U8(atOnce), k)
		a.JZ(operand.LabelRef(end))
	}
	if r <= 3 {
		near := a.newLabel("near")
		a.CMPB(a.field(args, "far"), operand.U8(0))
		a.JEQ(operand.LabelRef(near))
		several(true)
		a.JMP(operand.LabelRef(single))
		a.Label(near)
	}
	several(false)
	a.Label(single)
	step(0, false)
	for _, p := range rows {
		a.ADDQ(aStep, p)
	}
	for _, p := range blocks {
		a.ADDQ(bStep, p)
	}
	a.DECQ(k)
	a.JNZ(operand.LabelRef(single))
	a.Label(end)

	c, d, cRow, dRow := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "c"), c)
	a.MOVQ(a.field(args, "d"), d)
	a.MOVQ(a.field(args, "cRow"), cRow)
	a.MOVQ(a.field(args, "dRow"), dRow)
	alpha := a.vec()
	a.VBROADCASTSS(a.field(args, "alpha"), alpha)
	column, finish := a.newLabel("column"), a.newLabel("finish")
	a.CMPB(a.field(args, "column"), operand.U8(0))
	a.JNE(operand.LabelRef(column))
	for _, whole := range []bool{false, true} {
		if whole {
			a.JMP(operand.LabelRef(finish))
			a.Label(column)
		}
		for i := range acc {
			var one reg.VecVirtual
			if whole {
				one = a.vec()
				a.VBROADCASTSS(at(d, 0), one)
			}
			for j, v := range acc[i] {
				if whole {
					a.VFMADD213PS(one, alpha, v)
				} else {
					a.VFMADD213PS(at(d, j*a.bytes()), alpha, v)
				}
			}
			if i < r-1 {
				a.ADDQ(dRow, d)
			}
		}
	}
	a.Label(finish)
	a.limit(args, acc)
	for i := range acc {
		for j, v := range acc[i] {
			a.VMOVUPS(v, at(c, j*a.bytes()))
		}
		if i < r-1 {
			a.ADDQ(cRow, c)
		}
	}
	a.ret()
}

// dot writes inner products of one to three rows of A with four rows of B.
func (a *asm) dot() {
	var all []variant
	for r := 3; r >= 1; r-- {
		all = append(all, variant{tile: size(r, 4), asked: []asked{a.value("rows", r)}, is: map[string]string{"rows": fmt.Sprint(r)},
			write: func(args reg.Register) { a.dotRows(args, r) }})
	}
	a.tiled("dot", "dotArgs", all)
}

func (a *asm) dotRows(args reg.Register, r int) {
	x, y, k, xRow, yRow, yRow3 := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "a"), x)
	a.MOVQ(a.field(args, "b"), y)
	a.MOVQ(a.field(args, "k"), k)
	a.MOVQ(a.field(args, "aRow"), xRow)
	a.MOVQ(a.field(args, "bRow"), yRow)
	a.LEAQ(indexed(yRow, yRow, 2, 0), yRow3)
	var acc [3][4]reg.VecVirtual
	for i := range r {
		for j := range 4 {
			acc[i][j] = a.vec()
			a.zero(acc[i][j])
		}
	}
	rowOf := func(base, row, row3 reg.Register, i int) operand.Mem {
		switch i {
		case 0:
			return at(base, 0)
		case 3:
			return indexed(base, row3, 1, 0)
		}
		return indexed(base, row, uint8(i), 0)
	}
	step := func(load func(m operand.Mem, v reg.VecVirtual)) {
		u := a.vecs(r)
		for i := range u {
			load(rowOf(x, xRow, nil, i), u[i])
		}
		for j := range 4 {
			v := a.vec()
			load(rowOf(y, yRow, yRow3, j), v)
			for i := range u {
				a.VFMADD231PS(v, u[i], acc[i][j])
			}
		}
	}
	loop, tail, end := a.newLabel("loop"), a.newLabel("tail"), a.newLabel("end")
	a.SUBQ(operand.U8(a.lanes), k)
	a.JL(operand.LabelRef(tail))
	a.Label(loop)
	step(func(m operand.Mem, v reg.VecVirtual) { a.VMOVUPS(m, v) })
	a.ADDQ(operand.U8(a.bytes()), x)
	a.ADDQ(operand.U8(a.bytes()), y)
	a.SUBQ(operand.U8(a.lanes), k)
	a.JGE(operand.LabelRef(loop))
	a.Label(tail)
	a.CMPQ(k, operand.I8(-a.lanes))
	a.JEQ(operand.LabelRef(end))
	if a.wide() {
		mask := a.K()
		a.KMOVW(a.field(args, "mask"), mask)
		step(func(m operand.Mem, v reg.VecVirtual) { a.VMOVUPS_Z(m, mask, v) })
	} else {
		step(func(m operand.Mem, v reg.VecVirtual) {
			a.VMOVUPS(a.field(args, "lanes"), v)
			a.VMASKMOVPS(m, v, v)
		})
	}
	a.Label(end)
	for i := range r {
		for j := range 4 {
			v := acc[i][j]
			if a.wide() {
				upper := a.YMM()
				a.VEXTRACTF64X4(operand.U8(1), v, upper)
				a.VADDPS(upper, v.AsY(), v.AsY())
			}
		}
		s := acc[i]
		a.VHADDPS(s[1].AsY(), s[0].AsY(), s[0].AsY())
		a.VHADDPS(s[3].AsY(), s[2].AsY(), s[2].AsY())
		a.VHADDPS(s[2].AsY(), s[0].AsY(), s[0].AsY())
		upper := a.XMM()
		a.VEXTRACTF128(operand.U8(1), s[0].AsY(), upper)
		a.VADDPS(upper, s[0].AsX(), s[0].AsX())
		a.VMOVUPS(s[0].AsX(), at(args, a.offset("out")+16*i))
	}
	a.ret()
}
