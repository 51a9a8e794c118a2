package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// writeMoves writes the loops of transpositions of elements of 32 bits, and of
// moves of many short runs.
func writeMoves(a *asm) {
	a.transposeTiles()
	a.copyRuns()
	a.deal2()
	if a.wide() {
		a.deal3()
	}
}

// tileRows is the side of the squares that are transposed in registers.
const tileRows = 8

// transposeTiles sets dst[r·to + c] to x[c·from + r] for so many rows r and
// columns c, both multiples of tileRows; to and from are bytes.
func (a *asm) transposeTiles() {
	a.Function("transposeTiles" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, x *uint32, rows, cols, to, from int)")
	dst, x := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("x"), a.GP64())
	rows, cols := a.Load(a.Param("rows"), a.GP64()), a.Load(a.Param("cols"), a.GP64())
	to, from := a.Load(a.Param("to"), a.GP64()), a.Load(a.Param("from"), a.GP64())
	to3, from3 := a.GP64(), a.GP64()
	a.LEAQ(indexed(to, to, 2, 0), to3)
	a.LEAQ(indexed(from, from, 2, 0), from3)
	// line is line i of eight, of which low is the first and high the fifth.
	line := func(low, high, step, step3 reg.Register, i, disp int) operand.Mem {
		base := low
		if i >= 4 {
			base = high
		}
		switch i % 4 {
		case 1:
			return indexed(base, step, 1, disp)
		case 2:
			return indexed(base, step, 2, disp)
		case 3:
			return indexed(base, step3, 1, disp)
		}
		return at(base, disp)
	}
	down, across := a.newLabel("down"), a.newLabel("across")
	a.Label(down)
	p, q, left := a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(x, p)
	a.MOVQ(dst, q)
	a.MOVQ(cols, left)
	a.Label(across)
	p4, q4 := a.GP64(), a.GP64()
	a.LEAQ(indexed(p, from, 4, 0), p4)
	a.LEAQ(indexed(q, to, 4, 0), q4)
	for half := range 2 {
		// Lines c and c+4 share a vector, so that nothing crosses its middle.
		var u []reg.VecVirtual
		for c := range 4 {
			v := a.YMM()
			a.VMOVUPS(line(p, p4, from, from3, c, 16*half), v.AsX())
			w := a.YMM()
			a.VINSERTF128(operand.U8(1), line(p, p4, from, from3, c+4, 16*half), v, w)
			u = append(u, w)
		}
		low01, high01, low23, high23 := a.YMM(), a.YMM(), a.YMM(), a.YMM()
		a.VUNPCKLPS(u[1], u[0], low01)
		a.VUNPCKHPS(u[1], u[0], high01)
		a.VUNPCKLPS(u[3], u[2], low23)
		a.VUNPCKHPS(u[3], u[2], high23)
		for r := range 4 {
			x, y := low01, low23
			if r >= 2 {
				x, y = high01, high23
			}
			v := a.YMM()
			a.VSHUFPS(operand.U8(0x44+0xaa*(r%2)), y, x, v)
			a.VMOVUPS(v, line(q, q4, to, to3, 4*half+r, 0))
		}
	}
	a.LEAQ(indexed(p, from, 8, 0), p)
	a.ADDQ(operand.U8(4*tileRows), q)
	a.SUBQ(operand.U8(tileRows), left)
	a.JNZ(operand.LabelRef(across))
	a.ADDQ(operand.U8(4*tileRows), x)
	a.LEAQ(indexed(dst, to, 8, 0), dst)
	a.SUBQ(operand.U8(tileRows), rows)
	a.JNZ(operand.LabelRef(down))
	a.ret()
}

// dealt is the key of a vector of places among elements that are dealt to
// three.
type dealt struct{ to, step int }

// deal3 deals groups of 48 elements to three in turn.
func (a *asm) deal3() {
	a.Function("deal3" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(d0, d1, d2, x *uint32, groups int)")
	var dst []reg.Register
	for _, name := range []string{"d0", "d1", "d2"} {
		dst = append(dst, a.Load(a.Param(name), a.GP64()))
	}
	x, n := a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("groups"), a.GP64())
	var places [3][2]vec
	for to := range places {
		// Of the first two vectors, then of that and the third.
		places[to][0] = a.load(a.stored(dealt{to, 0}, func(i int) uint32 { return uint32(3*i+to) % 32 }))
		places[to][1] = a.load(a.stored(dealt{to, 1}, func(i int) uint32 {
			if from := 3*i + to; from >= 32 {
				return uint32(16 + from - 32)
			}
			return uint32(i)
		}))
	}
	loop := a.newLabel("loop")
	a.Label(loop)
	var u []vec
	for i := range 3 {
		u = append(u, a.load(at(x, i*a.bytes())))
	}
	for to := range places {
		v := a.fresh(u[0])
		a.VPERMT2PS(u[1], places[to][0], v)
		a.VPERMT2PS(u[2], places[to][1], v)
		a.VMOVUPS(v, at(dst[to], 0))
		a.ADDQ(operand.U8(a.bytes()), dst[to])
	}
	a.ADDQ(operand.I32(3*a.bytes()), x)
	a.DECQ(n)
	a.JNZ(operand.LabelRef(loop))
	a.ret()
}

// copyRuns copies rows runs of at least 4 bytes, which begin to bytes apart in
// dst and from bytes apart in src. The end of a run is copied by a move that
// may overlap the one before.
func (a *asm) copyRuns() {
	a.Function("copyRuns" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(dst, src *uint8, rows, bytes, to, from int)")
	dst, src := a.Load(a.Param("dst"), a.GP64()), a.Load(a.Param("src"), a.GP64())
	rows, n := a.Load(a.Param("rows"), a.GP64()), a.Load(a.Param("bytes"), a.GP64())
	to, from := a.Load(a.Param("to"), a.GP64()), a.Load(a.Param("from"), a.GP64())
	next := func(row string) {
		a.ADDQ(from, src)
		a.ADDQ(to, dst)
		a.DECQ(rows)
		a.JNZ(operand.LabelRef(row))
		a.ret()
	}
	last := a.GP64()
	// ends emits the loop for runs of one move up to two.
	ends := func(size int, move func(from, to operand.Mem)) {
		row, shorter := a.newLabel("row"), a.newLabel("shorter")
		a.CMPQ(n, operand.U8(size))
		a.JL(operand.LabelRef(shorter))
		a.LEAQ(at(n, -size), last)
		a.Label(row)
		move(at(src, 0), at(dst, 0))
		move(indexed(src, last, 1, 0), indexed(dst, last, 1, 0))
		next(row)
		a.Label(shorter)
	}
	vector := func(v reg.Register) func(from, to operand.Mem) {
		return func(from, to operand.Mem) { a.VMOVUPS(from, v); a.VMOVUPS(v, to) }
	}
	few := a.newLabel("few")
	a.CMPQ(n, operand.I32(2*a.bytes()))
	a.JLE(operand.LabelRef(few))
	a.LEAQ(at(n, -a.bytes()), last)
	row, loop, pair, single := a.newLabel("row"), a.newLabel("loop"), a.newLabel("pair"), a.newLabel("single")
	i, pairs := a.GP64(), a.GP64()
	a.LEAQ(at(last, -a.bytes()), pairs)
	a.Label(row)
	a.XORQ(i, i)
	a.Label(loop)
	u, v := a.vec(), a.vec()
	a.VMOVUPS(indexed(src, i, 1, 0), u)
	a.VMOVUPS(indexed(src, i, 1, a.bytes()), v)
	a.VMOVUPS(u, indexed(dst, i, 1, 0))
	a.VMOVUPS(v, indexed(dst, i, 1, a.bytes()))
	a.ADDQ(operand.I32(2*a.bytes()), i)
	a.CMPQ(i, pairs)
	a.JLE(operand.LabelRef(loop))
	a.Label(pair)
	a.CMPQ(i, last)
	a.JGE(operand.LabelRef(single))
	a.VMOVUPS(indexed(src, i, 1, 0), u)
	a.VMOVUPS(u, indexed(dst, i, 1, 0))
	a.Label(single)
	a.VMOVUPS(indexed(src, last, 1, 0), u)
	a.VMOVUPS(u, indexed(dst, last, 1, 0))
	next(row)
	a.Label(few)
	ends(a.bytes(), vector(a.vec()))
	if a.wide() {
		ends(32, vector(a.YMM()))
	}
	ends(16, vector(a.XMM()))
	word := a.GP64()
	ends(8, func(from, to operand.Mem) { a.MOVQ(from, word); a.MOVQ(word, to) })
	ends(4, func(from, to operand.Mem) { a.MOVL(from, word.As32()); a.MOVL(word.As32(), to) })
	a.ret()
}

// deal2 deals n elements of each of so many rows, from bytes apart, to each of
// two rows in turn; the next ones are to bytes later. There are at least a
// vector for each; the last ones may be dealt twice.
func (a *asm) deal2() {
	a.Function("deal2" + a.name)
	a.Attributes(attr.NOSPLIT)
	a.SignatureExpr("func(d0, d1, x *uint32, n, rows, to, from int)")
	d0, d1 := a.Load(a.Param("d0"), a.GP64()), a.Load(a.Param("d1"), a.GP64())
	x, n := a.Load(a.Param("x"), a.GP64()), a.Load(a.Param("n"), a.GP64())
	var even, odd vec
	if a.wide() {
		even, odd = a.load(a.ramp(0)), a.load(a.ramp(1))
	}
	rows := a.Load(a.Param("rows"), a.GP64())
	to, from := a.Load(a.Param("to"), a.GP64()), a.Load(a.Param("from"), a.GP64())
	i := a.GP64()
	a.SUBQ(operand.U8(a.lanes), n)
	row, loop, done := a.newLabel("row"), a.newLabel("loop"), a.newLabel("done")
	a.Label(row)
	a.XORQ(i, i)
	a.Label(loop)
	u, v := a.load(indexed(x, i, 8, 0)), a.load(indexed(x, i, 8, a.bytes()))
	if a.wide() {
		w := a.fresh(u)
		a.VPERMT2PS(v, even, w)
		a.VMOVUPS(w, indexed(d0, i, 4, 0))
		a.VPERMT2PS(v, odd, u)
		a.VMOVUPS(u, indexed(d1, i, 4, 0))
	} else {
		for j, d := range []reg.Register{d0, d1} {
			w := a.vec()
			a.VSHUFPS(operand.U8(0x88+0x55*j), v, u, w)
			a.VPERMPD(operand.U8(0xd8), w, w)
			a.VMOVUPS(w, indexed(d, i, 4, 0))
		}
	}
	a.CMPQ(i, n)
	a.JE(operand.LabelRef(done))
	a.ADDQ(operand.U8(a.lanes), i)
	a.CMPQ(i, n)
	a.CMOVQGT(n, i)
	a.JMP(operand.LabelRef(loop))
	a.Label(done)
	a.ADDQ(from, x)
	a.ADDQ(to, d0)
	a.ADDQ(to, d1)
	a.DECQ(rows)
	a.JNZ(operand.LabelRef(row))
	a.ret()
}
