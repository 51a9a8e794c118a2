package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelBytes is a row of a panel.
const panelBytes = 128

// bMode is how a product reads its second matrix.
type bMode int

const (
	fullRows   bMode = iota // rows at a fixed distance, all columns there
	maskedRows              // the same, but only the columns of the mask
)

// writeGemm writes the inner loops of the matrix product: C = D + alpha·A·B
// for a few rows of A and one or two vectors of columns. The product stays in
// registers for all of K, so that every element is summed in the order of K,
// whatever the tile.
func writeGemm(a *asm) {
	a.gemm("gemm", fullRows)
	a.gemm("gemmMasked", maskedRows)
	if !a.wide() {
		a.transpose()
	}
}

func (a *asm) gemm(name string, mode bMode) {
	most := 6
	if a.wide() {
		most = 12
	}
	var all []variant
	for v := 2; v >= 1; v-- {
		for r := most; r >= 1; r-- {
			t := variant{tile: size(r, v*a.lanes), is: map[string]string{"rows": fmt.Sprint(r), "columns": fmt.Sprint(v * a.lanes)},
				write: func(args reg.Register) { (&tile{asm: a, args: args, r: r, v: v, mode: mode}).write() }}
			if a.wide() && v == 2 {
				t.asked = append(t.asked, asked{"second", func(args reg.Register, next operand.LabelRef) {
					a.TESTL(operand.U32(0xffff0000), a.field(args, "mask"))
					a.JEQ(next)
				}})
			}
			t.asked = append(t.asked, a.value("rows", r))
			all = append(all, t)
		}
		if !a.wide() {
			break // two vectors always
		}
	}
	a.tiled(name, "gemmArgs", all)
}

// tile is one block of C in registers.
type tile struct {
	asm  *asm
	args reg.Register
	r, v int
	mode bMode

	acc   [][]reg.VecVirtual
	mask  []reg.Register
	rows  []reg.Register // pointers to every fifth row of A
	row   reg.Register   // bytes from row to row
	row3  reg.Register
	aStep reg.Register
	b     reg.Register
	bStep reg.Register
}

func (t *tile) write() {
	t.load()
	t.prefetchC()
	for range t.r {
		acc := t.asm.vecs(t.v)
		for _, x := range acc {
			t.asm.zero(x)
		}
		t.acc = append(t.acc, acc)
	}
	t.rowLoop()
	t.store()
	t.asm.ret()
}

func (t *tile) load() {
	row0 := t.asm.GP64()
	t.asm.MOVQ(t.asm.field(t.args, "a"), row0)
	t.rows = []reg.Register{row0}
	t.row, t.row3, t.aStep, t.b = t.asm.GP64(), t.asm.GP64(), t.asm.GP64(), t.asm.GP64()
	t.asm.MOVQ(t.asm.field(t.args, "aRow"), t.row)
	t.asm.LEAQ(indexed(t.row, t.row, 2, 0), t.row3)
	for len(t.rows)*5 < t.r {
		p := t.asm.GP64()
		t.asm.LEAQ(indexed(t.rows[len(t.rows)-1], t.row, 4, 0), p)
		t.asm.ADDQ(t.row, p)
		t.rows = append(t.rows, p)
	}
	t.asm.MOVQ(t.asm.field(t.args, "aStep"), t.aStep)
	t.asm.MOVQ(t.asm.field(t.args, "b"), t.b)
	if t.asm.wide() {
		for i := range t.v {
			k := t.asm.K()
			t.asm.KMOVW(at(t.args, t.asm.offset("mask")+2*i), k)
			t.mask = append(t.mask, k)
		}
	}
}

// prefetchC fetches what is written at the end.
func (t *tile) prefetchC() {
	c, row := t.asm.GP64(), t.asm.GP64()
	t.asm.MOVQ(t.asm.field(t.args, "c"), c)
	t.asm.MOVQ(t.asm.field(t.args, "cRow"), row)
	for r := range t.r {
		t.asm.PREFETCHT0(at(c, 0))
		if t.v > 1 && t.asm.wide() {
			t.asm.PREFETCHT0(at(c, 64))
		}
		t.next(r, c, row)
	}
}

// a returns where row r of A has the current element.
func (t *tile) a(r int) operand.Mem {
	p := t.rows[r/5]
	switch r % 5 {
	case 0:
		return at(p, 0)
	case 3:
		return indexed(p, t.row3, 1, 0)
	}
	return indexed(p, t.row, uint8(r%5), 0)
}

// unroll is how many elements of a row of A, if they lie one after the other,
// the loop takes at a time: what it does besides the multiplications competes
// with them for the processor's ports.
const unroll = 4

// loadB reads row u of B from the current one on.
func (t *tile) loadB(u int, step3 reg.Register) []reg.VecVirtual {
	b := t.asm.vecs(t.v)
	for i := range b {
		var m operand.Mem
		switch u {
		case 0:
			m = at(t.b, i*t.asm.bytes())
		case 3:
			m = indexed(t.b, step3, 1, i*t.asm.bytes())
		default:
			m = indexed(t.b, t.bStep, uint8(u), i*t.asm.bytes())
		}
		switch {
		case t.mode == fullRows:
			t.asm.VMOVUPS(m, b[i])
		case t.asm.wide():
			t.asm.VMOVUPS_Z(m, t.mask[i], b[i])
		default:
			t.asm.VMOVUPS(at(t.args, t.asm.offset("lanes")+i*t.asm.bytes()), b[i])
			t.asm.VMASKMOVPS(m, b[i], b[i])
		}
	}
	return b
}

// step multiplies a column of A, the one u elements after the current one, by
// one row of B, vectors b. A's element is the last operand always: of two NaNs
// the operands' order decides which one is kept, and tiles of all kinds are to
// give the same.
func (t *tile) step(u int, b []reg.VecVirtual) {
	for r := range t.r {
		m := t.a(r)
		m.Disp = 4 * u
		if t.v == 1 && t.asm.wide() {
			t.asm.VFMADD231PS_BCST(m, b[0], t.acc[r][0])
			continue
		}
		x := t.asm.vec()
		t.asm.VBROADCASTSS(m, x)
		for i := range b {
			t.asm.VFMADD231PS(x, b[i], t.acc[r][i])
		}
	}
}

// rowLoop adds up the products. Meanwhile it fetches a line for every other
// row of B: to ask for more at a time delays what the loop waits for.
func (t *tile) rowLoop() {
	k, ahead := t.asm.GP64(), t.asm.GP64()
	t.bStep = t.asm.GP64()
	t.asm.MOVQ(t.asm.field(t.args, "bStep"), t.bStep)
	t.asm.MOVQ(t.asm.field(t.args, "k"), k)
	t.asm.MOVQ(t.asm.field(t.args, "ahead"), ahead)
	single, end := t.asm.newLabel("one"), t.asm.newLabel("end")
	if t.mode == fullRows {
		loop, rest := t.asm.newLabel("loop"), t.asm.newLabel("rest")
		t.asm.CMPQ(t.aStep, operand.U8(4))
		t.asm.JNE(operand.LabelRef(single))
		t.asm.SUBQ(operand.U8(unroll), k)
		t.asm.JL(operand.LabelRef(rest))
		step3 := t.asm.GP64()
		t.asm.LEAQ(indexed(t.bStep, t.bStep, 2, 0), step3)
		t.asm.Label(loop)
		for u := range unroll {
			if u%2 == 0 {
				t.asm.PREFETCHT1(at(ahead, u/2*64))
			}
			t.step(u, t.loadB(u, step3))
		}
		t.asm.LEAQ(indexed(t.b, t.bStep, unroll, 0), t.b)
		t.asm.ADDQ(operand.U32(unroll/2*64), ahead)
		for _, p := range t.rows {
			t.asm.ADDQ(operand.U8(4*unroll), p)
		}
		t.asm.SUBQ(operand.U8(unroll), k)
		t.asm.JGE(operand.LabelRef(loop))
		t.asm.Label(rest)
		t.asm.ADDQ(operand.U8(unroll), k)
		t.asm.JZ(operand.LabelRef(end))
	}
	t.asm.Label(single)
	t.asm.PREFETCHT1(at(ahead, 0))
	t.asm.ADDQ(operand.U8(32), ahead)
	t.step(0, t.loadB(0, nil))
	t.asm.ADDQ(t.bStep, t.b)
	for _, p := range t.rows {
		t.asm.ADDQ(t.aStep, p)
	}
	t.asm.DECQ(k)
	t.asm.JNZ(operand.LabelRef(single))
	t.asm.Label(end)
}

// store writes C = D + alpha·sums.
func (t *tile) store() {
	c, d, cRow, dRow := t.asm.GP64(), t.asm.GP64(), t.asm.GP64(), t.asm.GP64()
	t.asm.MOVQ(t.asm.field(t.args, "c"), c)
	t.asm.MOVQ(t.asm.field(t.args, "d"), d)
	t.asm.MOVQ(t.asm.field(t.args, "cRow"), cRow)
	t.asm.MOVQ(t.asm.field(t.args, "dRow"), dRow)
	alpha := t.asm.vec()
	t.asm.VBROADCASTSS(t.asm.field(t.args, "alpha"), alpha)
	var lanes []reg.VecVirtual
	if !t.asm.wide() && t.mode != fullRows {
		lanes = t.asm.vecs(t.v)
		for i := range lanes {
			t.asm.VMOVUPS(at(t.args, t.asm.offset("lanes")+i*t.asm.bytes()), lanes[i])
		}
	}
	write := func(r, i int) {
		m := at(c, i*t.asm.bytes())
		switch {
		case t.asm.wide():
			t.asm.VMOVUPS(t.acc[r][i], t.mask[i], m)
		case lanes != nil:
			t.asm.VMASKMOVPS(t.acc[r][i], lanes[i], m)
		default:
			t.asm.VMOVUPS(t.acc[r][i], m)
		}
	}
	column, finish := t.asm.newLabel("column"), t.asm.newLabel("finish")
	t.asm.CMPB(t.asm.field(t.args, "column"), operand.U8(0))
	t.asm.JNE(operand.LabelRef(column))
	for r := range t.r {
		for i := range t.v {
			m := at(d, i*t.asm.bytes())
			switch {
			case t.asm.wide():
				x := t.asm.vec()
				t.asm.VMOVUPS_Z(m, t.mask[i], x)
				t.asm.VFMADD213PS(x, alpha, t.acc[r][i])
			case lanes != nil:
				x := t.asm.vec()
				t.asm.VMASKMOVPS(m, lanes[i], x)
				t.asm.VFMADD213PS(x, alpha, t.acc[r][i])
			default:
				t.asm.VFMADD213PS(m, alpha, t.acc[r][i])
			}
		}
		t.next(r, d, dRow)
	}
	t.asm.JMP(operand.LabelRef(finish))
	t.asm.Label(column)
	for r := range t.r {
		x := t.asm.vec()
		t.asm.VBROADCASTSS(at(d, 0), x)
		for i := range t.v {
			t.asm.VFMADD213PS(x, alpha, t.acc[r][i])
		}
		t.next(r, d, dRow)
	}
	t.asm.Label(finish)
	t.asm.limit(t.args, t.acc)
	// The limits have taken the masks' registers.
	for i := range lanes {
		t.asm.VMOVUPS(at(t.args, t.asm.offset("lanes")+i*t.asm.bytes()), lanes[i])
	}
	for r := range t.r {
		for i := range t.v {
			write(r, i)
		}
		t.next(r, c, cRow)
	}
}

// limit keeps vectors within limits, if there are any. NaN stays what it is: of
// two operands that can't be compared the last one is taken, which is first
// here. So is -0 where the lower limit is +0; the zero that is added makes it +0.
func (a *asm) limit(args reg.Register, all [][]reg.VecVirtual) {
	not := a.newLabel("unlimited")
	a.CMPB(a.field(args, "limits.on"), operand.U8(0))
	a.JEQ(operand.LabelRef(not))
	low, high, zero := a.vec(), a.vec(), a.vec()
	a.VBROADCASTSS(a.field(args, "limits.low"), low)
	a.VBROADCASTSS(a.field(args, "limits.high"), high)
	a.VBROADCASTSS(a.field(args, "limits.zero"), zero)
	for _, row := range all {
		for _, x := range row {
			a.VMAXPS(x, low, x)
			a.VADDPS(zero, x, x)
			a.VMINPS(x, high, x)
		}
	}
	a.Label(not)
}

// next moves a pointer to the next row, unless r is the last one.
func (t *tile) next(r int, p, row reg.Register) {
	if r < t.r-1 {
		t.asm.ADDQ(row, p)
	}
}

// transpose writes blocks of eight rows and as many columns to a panel,
// transposed.
func (a *asm) transpose() {
	a.Function("transposeAVX2")
	a.SignatureExpr("func(dst, src *float32, step, blocks int)")
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
