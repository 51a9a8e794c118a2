package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeGates writes products of few rows of H by panels of R in which the rows of
// several gates take turns, so that all of it is read in one go.
func writeGates(a *asm) {
	var all []variant
	cases := [][]int{{4, 3, 2, 1}, {4, 3, 2, 1}, {4, 3, 2, 1}, {2, 1}, {2, 1}, {2, 1}}
	if !a.wide() {
		cases = [][]int{{2, 1}, {1}, {1}}
	}
	for i, counts := range cases {
		for _, n := range counts {
			all = append(all, variant{tile: size(i+1, n, 32), asked: []asked{a.value("rows", i+1), a.value("gates", n)},
				is:    map[string]string{"rows": fmt.Sprint(i + 1), "gates": fmt.Sprint(n)},
				write: func(args reg.Register) { a.gatesOf(args, i+1, n) }})
		}
	}
	a.tiled("gates", "gatesArgs", all)
}

func (a *asm) gatesOf(args reg.Register, rows, gates int) {
	first, left, to, hRow, rStep := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(a.field(args, "r"), first)
	a.MOVQ(a.field(args, "panels"), left)
	a.XORQ(to, to)
	a.MOVQ(a.field(args, "hRow"), hRow)
	a.MOVQ(a.field(args, "rStep"), rStep)
	perPanel := panelBytes / a.bytes()
	vectors := gates * perPanel
	acc := make([][]reg.VecVirtual, rows)
	for i := range acc {
		acc[i] = a.vecs(vectors)
	}
	h, r, k := a.GP64(), a.GP64(), a.GP64()
	bases := []reg.Register{h} // of rows 0 and 3
	if rows > 3 {
		bases = append(bases, a.GP64())
	}
	ofH := func(i int) operand.Mem {
		if i%3 == 0 {
			return at(bases[i/3], 0)
		}
		return indexed(bases[i/3], hRow, uint8(i%3), 0)
	}
	step := func() {
		x := make([]reg.VecVirtual, rows)
		for i := range x {
			x[i] = a.vec()
			if rows <= 3 {
				a.VBROADCASTSS(ofH(i), x[i])
			}
		}
		if rows == 1 {
			for j, v := range acc[0] {
				a.VFMADD231PS(at(r, j*a.bytes()), x[0], v)
			}
		} else if rows <= 3 {
			for j := range vectors {
				y := a.vec()
				a.VMOVUPS(at(r, j*a.bytes()), y)
				for i := range x {
					a.VFMADD231PS(x[i], y, acc[i][j])
				}
			}
		} else {
			y := a.vecs(vectors)
			for j, v := range y {
				a.VMOVUPS(at(r, j*a.bytes()), v)
			}
			for i := range x {
				a.VBROADCASTSS(ofH(i), x[i])
				for j, v := range y {
					a.VFMADD231PS(x[i], v, acc[i][j])
				}
			}
		}
		a.ADDQ(rStep, r)
	}
	if rows == 1 {
		// Another core may have written parts of H: have them come at once.
		ask := a.newLabel("ask")
		a.MOVQ(a.field(args, "h"), h)
		a.MOVQ(a.field(args, "k"), k)
		a.Label(ask)
		a.PREFETCHT0(at(h, 0))
		a.ADDQ(operand.U8(64), h)
		a.SUBQ(operand.U8(16), k)
		a.JG(operand.LabelRef(ask))
	}
	panel, loop := a.newLabel("panel"), a.newLabel("loop")
	a.Label(panel)
	a.MOVQ(a.field(args, "h"), h)
	if rows > 3 {
		a.LEAQ(indexed(hRow, hRow, 2, 0), bases[1])
		a.ADDQ(h, bases[1])
	}
	a.MOVQ(first, r)
	a.MOVQ(a.field(args, "k"), k)
	for i := range acc {
		for _, v := range acc[i] {
			a.zero(v)
		}
	}
	// One row of R at a time: the processor's own fetching ahead wants short steps.
	a.Label(loop)
	step()
	for _, p := range bases {
		a.ADDQ(operand.U8(4), p)
	}
	a.DECQ(k)
	a.JNZ(operand.LabelRef(loop))
	for g := range gates {
		sums, from := a.GP64(), a.GP64()
		a.MOVQ(at(args, a.offset("to")+8*g), sums)
		a.ADDQ(to, sums)
		a.MOVQ(at(args, a.offset("from")+8*g), from)
		a.ADDQ(to, from)
		for i := range rows {
			for j := range perPanel {
				v := acc[i][g*perPanel+j]
				a.VADDPS(at(from, j*a.bytes()), v, v)
				a.VMOVUPS(v, at(sums, j*a.bytes()))
			}
			if i < rows-1 {
				a.ADDQ(at(args, a.offset("toRow")+8*g), sums)
				a.ADDQ(at(args, a.offset("fromRow")+8*g), from)
			}
		}
	}
	a.ADDQ(a.field(args, "rNext"), first)
	a.ADDQ(a.field(args, "next"), to)
	a.DECQ(left)
	a.JNZ(operand.LabelRef(panel))
	a.ret()
}
