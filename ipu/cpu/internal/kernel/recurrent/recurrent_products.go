package recurrent

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// inputRows is how many rows of X are multiplied with all panels of W before
// the next ones are: they stay in a cache that is close.
const inputRows = 96

// inputGrains is from how much work on, in grains, the product of the inputs is
// shared: short recurrences that follow it leave the other workers nothing to
// do, so they have to be woken for it.
const inputGrains = 8

// inputs computes X·Wᵀ + B for the chunk.
func (t *recurrentTask[T]) inputs(p tensor.Pool) {
	t.phase = inputPhase
	t.stretches, t.rows = 1, t.count*t.batch
	if t.batchFirst {
		// The rows of X for the chunk lie together only within a batch entry.
		t.stretches, t.rows = t.batch, t.count
	}
	t.blocks, t.cols = (t.rows+inputRows-1)/inputRows, t.gates*t.padded/gemm.Panel
	n := t.dirs * t.stretches * t.blocks * t.cols
	cost := min(t.rows, inputRows)*gemm.Panel*t.input/16 + 1
	t.parts = 1
	if n*cost >= inputGrains*tensor.Grain {
		t.parts = tensor.Cut(p, n, cost)
	}
	p.Run(t, t.parts)
}

// unitInputs computes n panels of every gate's inputs, from panel j on, for a
// batch entry and all steps of the chunk.
func (t *recurrentTask[T]) unitInputs(d, b, j, n int) {
	at, step := t.chunkStart(d), t.batch
	x, y := at*t.batch+b, b
	if t.batchFirst {
		step, x, y = 1, b*t.steps+at, b*t.count
	}
	panels, gates := t.padded/gemm.Panel, t.gates
	if n == panels {
		n, gates = n*gates, 1 // those of all gates follow each other
	}
	for row := 0; row < t.count; row += inputRows {
		rows := min(inputRows, t.count-row)
		for gate := range gates {
			t.inputProduct(d, x+row*step, y+row*step, rows, step, gate*panels+j, n)
		}
	}
}

// inputBlock computes some panels of the gates' inputs for up to inputRows rows
// of a stretch of the chunk.
func (t *recurrentTask[T]) inputBlock(d, stretch, row, col, n int) {
	at := t.chunkStart(d)
	if t.batchFirst {
		at += stretch * t.steps
	} else {
		at *= t.batch
	}
	t.inputProduct(d, at+row, stretch*t.rows+row, min(inputRows, t.rows-row), 1, col, n)
}

// inputProduct computes n panels of the gates' inputs from rows of X and to
// those of a direction, both step rows apart.
func (t *recurrentTask[T]) inputProduct(d, from, to, rows, step, col, n int) {
	width := t.gates * t.padded
	w := t.w[(d*width+col*gemm.Panel)*t.input:][:t.input*n*gemm.Panel]
	bias := t.bias[d*width+col*gemm.Panel:][:n*gemm.Panel]
	y := t.bufs[(d*t.chunk*t.batch+to)*width+col*gemm.Panel:]
	x := gemm.Matrix[T]{Data: t.x[from*t.input:], Row: step * t.input, Col: 1}
	width *= step
	if vectorProducts(y, width, rows, n, x, w, t.input, bias) {
		return
	}
	for i := range rows {
		copy(y[i*width:][:n*gemm.Panel], bias)
	}
	for j := range n {
		for p := 0; p < t.input; p += gemm.Block[T]() {
			gemm.MultiplyBlock(y[j*gemm.Panel:], width, rows, gemm.Panel, x.At(0, p), w[(j*t.input+p)*gemm.Panel:], gemm.Panel, min(gemm.Block[T](), t.input-p), 1)
		}
	}
}

// groupProduct is H·Rᵀ of some rows of H for some panels of a group of gates.
type groupProduct struct {
	rows, panels int
	first, gates int  // of the group
	r            int  // where in R the group's panels begin
	h            int  // where in the states H begins
	y, yRow      int  // where the sums of the group's first gate begin, and the next row's from there
	sum          int  // where those that gruLinearCell keeps in sum do
	bias         int  // where what is added to these does
	back         bool // the last panel comes first: see [multiplyFew]
}

// gateProducts adds H·Rᵀ to the sums of a group of gates, for the hidden units
// [lo, hi), H being state buffer from.
func (t *recurrentTask[T]) gateProducts(d, group, b0, b1, s, lo, hi, from int) {
	first, gates := t.kind.group(group)
	at, row := t.gateIndex(d, b0, s)
	g := groupProduct{
		rows: b1 - b0, panels: (hi - lo + gemm.Panel - 1) / gemm.Panel, first: first, gates: gates,
		r: ((d*t.gates+first)*t.padded + lo*gates) * t.hidden, h: ((from*t.dirs+d)*t.batch + b0) * t.hidden,
		y: at + first*t.padded + lo, yRow: row,
		sum: (d*(t.batch+1)+b0)*t.padded + lo, bias: (d*(t.batch+1)+t.batch)*t.padded + lo, back: s%2 == 1,
	}
	if t.lens == nil {
		t.groupProduct(&g)
		return
	}
	g.rows = 1
	for b := b0; b < b1; b++ {
		if t.active(d, b, s) {
			t.groupProduct(&g)
		}
		g.h += t.hidden
		g.y += g.yRow
		g.sum += t.padded
	}
}

// sumsOf returns where the sums of a gate of the group go, how far apart its rows
// are, and what they are added to.
func (t *recurrentTask[T]) sumsOf(g *groupProduct, gate int) (to []T, toRow int, from []T, fromRow int) {
	if t.kind == gruLinearCell && gate == t.gates-1 {
		return t.sum[g.sum:], t.padded, t.sum[g.bias:], 0
	}
	y := t.bufs[g.y+gate*t.padded:]
	return y, g.yRow, y, g.yRow
}

func (t *recurrentTask[T]) groupProduct(g *groupProduct) {
	if t.vectorGates(g) {
		return
	}
	h, r := gemm.Matrix[T]{Data: t.state[g.h:], Row: t.hidden, Col: 1}, t.r[g.r:]
	for i := range g.gates {
		to, row, from, fromRow := t.sumsOf(g, i)
		if fromRow == 0 {
			for j := range g.rows {
				copy(to[j*row:][:g.panels*gemm.Panel], from)
			}
		}
		for j := range g.panels {
			gemm.MultiplyBlock(to[j*gemm.Panel:], row, g.rows, gemm.Panel, h, r[(j*t.hidden*g.gates+i)*gemm.Panel:], g.gates*gemm.Panel, t.hidden, 1)
		}
	}
}

// addProducts adds the products of the elements of a and b to y.
func addProducts[T tensor.Float](y, a, b []T) {
	a, b = a[:len(y)], b[:len(y)]
	for i, v := range a {
		y[i] += T(v * b[i])
	}
}
