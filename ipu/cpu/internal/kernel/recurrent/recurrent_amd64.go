package recurrent

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// vectorUnit is unit with SIMD instructions, for cells with the usual activations, if there
// are any for T; it reports whether it did it.
func (t *recurrentTask[T]) vectorUnit(d, b, stage, lo int, sums, h, next []T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	n := len(h)
	next = next[:n]
	first := func(x []T) *float32 { return &tensor.AsFloat32(x[:n])[0] }
	gate := func(i int) *float32 { return first(sums[i*t.padded+lo:]) }
	switch t.kind {
	case rnnCell:
		vec.LoopTanh(first(next), gate(0), n)
	case gruCell:
		if stage == 0 {
			loopGated(first(t.states(2, d, b)[lo:]), gate(1), first(h), n)
		} else {
			loopGruCell(first(next), gate(0), gate(2), first(h), n)
		}
	case gruLinearCell:
		loopGruLinearCell(first(next), gate(0), gate(1), gate(2), first(t.lastSum(d, b)[lo:]), first(h), n)
	case lstmCell:
		loopLstmCell(first(next), first(t.states(2, d, b)[lo:]), gate(0), gate(1), gate(2), gate(3), n)
	}
	return true
}

// vectorProducts sets rows of some panels of y to c + A·B with SIMD instructions, if there
// are any for T; B has k rows. It reports whether it did it.
func vectorProducts[T tensor.Float](y []T, step, rows, panels int, a gemm.Matrix[T], b []T, k int, c []T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() || k == 0 {
		return false
	}
	f := tensor.AsFloat32[T]
	x := gemm.Matrix[float32]{Data: f(a.Data), Row: a.Row, Col: a.Col}
	if rows <= gemm.FewRows(tensor.Path) {
		gemm.MultiplyFew(tensor.Path, f(y), step, rows, panels*gemm.Panel, x, f(b), gemm.Panel, k*gemm.Panel, k, 1, gemm.Addend{Data: f(c)}, false)
		return true
	}
	for j := range panels {
		y, d := f(y)[j*gemm.Panel:], gemm.Addend{Data: f(c)[j*gemm.Panel:]}
		for p := 0; p < k; p += gemm.DepthBlock {
			gemm.MultiplyF32(tensor.Path, y, step, rows, gemm.Panel, x.At(0, p), f(b)[(j*k+p)*gemm.Panel:], gemm.Panel, min(gemm.DepthBlock, k-p), 1, d, nil)
			d = gemm.Addend{Data: y, Row: step}
		}
	}
	return true
}

// gatesArgs are the arguments of the loops that multiply a few rows of H by
// panels of R, in which the rows of several gates take turns. internal/asm finds
// its fields by name.
type gatesArgs struct {
	h, r           *float32
	rows, gates    int
	k, panels      int
	hRow, rStep    int // bytes from one row to the next
	rNext, next    int // bytes from one panel, and its sums, to the next
	to, from       [4]*float32
	toRow, fromRow [4]int // bytes
}

// gatesAtOnce returns for how many gates at a time, out of some, the path has
// loops over so many rows.
func gatesAtOnce(p tensor.VectorPath, rows, gates int) int {
	switch {
	case p == tensor.PathAVX512 && rows <= gemm.Narrow:
		return gates
	case p == tensor.PathAVX512 || rows == 1:
		return min(gates, 2)
	}
	return 1
}

// vectorGates computes a product with SIMD instructions, if there are any for T, and reports
// whether it did it.
func (t *recurrentTask[T]) vectorGates(g *groupProduct) bool {
	switch {
	case tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]():
		return false
	case g.rows > gemm.FewRows(tensor.Path):
		t.manyGates(g)
		return true
	}
	f := tensor.AsFloat32[T]
	h, r := f(t.state[g.h:]), f(t.r[g.r:])
	size := t.hidden * g.gates * gemm.Panel // of a panel
	// The assembly trusts these.
	_, _ = h[(g.rows-1)*t.hidden+t.hidden-1], r[g.panels*size-1]
	args := gatesArgs{h: &h[0], rows: g.rows, k: t.hidden, panels: g.panels, hRow: 4 * t.hidden, rStep: 4 * g.gates * gemm.Panel, rNext: 4 * size, next: 4 * gemm.Panel}
	begin := 0
	if g.back {
		begin, args.rNext, args.next = g.panels-1, -args.rNext, -args.next
	}
	for first := 0; first < g.gates; first += args.gates {
		args.gates = gatesAtOnce(tensor.Path, g.rows, g.gates-first)
		args.r = &r[begin*size+first*gemm.Panel]
		for i := range args.gates {
			to, row, from, fromRow := t.sumsOf(g, first+i)
			_, _ = to[(g.rows-1)*row+g.panels*gemm.Panel-1], from[(g.rows-1)*fromRow+g.panels*gemm.Panel-1]
			args.to[i], args.from[i] = &f(to)[begin*gemm.Panel], &f(from)[begin*gemm.Panel]
			args.toRow[i], args.fromRow[i] = 4*row, 4*fromRow
		}
		if tensor.Path == tensor.PathAVX512 {
			gatesAVX512(&args)
		} else {
			gatesAVX2(&args)
		}
	}
	return true
}

// manyGates is [recurrentTask.vectorGates] for more rows than there are loops
// for.
func (t *recurrentTask[T]) manyGates(g *groupProduct) {
	f := tensor.AsFloat32[T]
	h, step := gemm.Matrix[float32]{Data: f(t.state[g.h:]), Row: t.hidden, Col: 1}, g.gates*gemm.Panel
	for i := range g.gates {
		to, row, from, fromRow := t.sumsOf(g, i)
		for j := range g.panels {
			r, y, d := f(t.r[g.r+(j*t.hidden*g.gates+i)*gemm.Panel:]), f(to[j*gemm.Panel:]), gemm.Addend{Data: f(from[j*gemm.Panel:]), Row: fromRow}
			for p := 0; p < t.hidden; p += gemm.DepthBlock {
				gemm.MultiplyF32(tensor.Path, y, row, g.rows, gemm.Panel, h.At(0, p), r[p*step:], step, min(gemm.DepthBlock, t.hidden-p), 1, d, nil)
				d = gemm.Addend{Data: y, Row: row}
			}
		}
	}
}

func loopGated(dst, r, x *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		gatedAVX512(dst, r, x, n)
	} else {
		gatedAVX2(dst, r, x, n)
	}
}

func loopGruCell(dst, z, u, h *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		gruCellAVX512(dst, z, u, h, n)
	} else {
		gruCellAVX2(dst, z, u, h, n)
	}
}

func loopGruLinearCell(dst, z, r, u, p, h *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		gruLinearCellAVX512(dst, z, r, u, p, h, n)
	} else {
		gruLinearCellAVX2(dst, z, r, u, p, h, n)
	}
}

func loopLstmCell(h, c, i, o, f, u *float32, n int) {
	if tensor.Path == tensor.PathAVX512 {
		lstmCellAVX512(h, c, i, o, f, u, n)
	} else {
		lstmCellAVX2(h, c, i, o, f, u, n)
	}
}
