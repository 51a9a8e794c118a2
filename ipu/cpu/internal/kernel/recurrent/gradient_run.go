package recurrent

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// gradientTask is one run of a gradient.
type gradientTask[T tensor.Float] struct {
	*gradient[T]
	pool             tensor.Pool
	in, out          [][]byte
	b, h0, c0        []T
	y, dy, dh, dc    []T
	lens             []int32
	before, cell     []T // [rows][hidden]
	zero             []T
	reset, sum       []T
	carry, cellCarry []T // [batch][hidden]: gradients of H and C of the step before
	back             []T
	gates            [2][]T // [rows][count·hidden] of each group: sums, then gates, then the gradients of the sums
	packed, bias     [2][]T
	inner            []byte
	d                int // direction
	phase            gradientPhase
	parts            int
	operands         [3][]byte // of a product
	results          [1][]byte
}

// gradientPhase is what the parts of a gradientTask do.
type gradientPhase uint8

const (
	beforePhase gradientPhase = iota // lay out H before every step
	resetPhase                       // r∘H of gruCell
	timePhase                        // there and back through time
	biasPhase                        // sums over the rows
)

// product runs one of the products, to which c is added if it was bound so.
func (t *gradientTask[T]) product(k tensor.Kernel, y, a, b, c []byte) error {
	t.operands, t.results[0] = [3][]byte{a, b, c}, y
	return k.Run(t.pool, t.operands[:], t.results[:], t.inner)
}

// weights returns the rows of a group of W or R, or of their gradients, for the direction.
func (t *gradientTask[T]) weights(g *gateGroup[T], w []byte, cols int) []byte {
	size := t.hidden * cols * tensor.ElementSize[T]()
	return w[(t.d*t.gradient.gates+g.first)*size:][:g.count*size]
}

// direction computes the gradients of one direction.
func (t *gradientTask[T]) direction() error {
	t.share(beforePhase, t.batch, t.steps*t.hidden/4+1)
	for i := range t.groups {
		if err := t.sums(i); err != nil {
			return err
		}
	}
	for i := range t.groups {
		g := &t.groups[i]
		width := g.count * t.hidden
		r := gemm.Matrix[T]{Data: tensor.View[T](t.weights(g, t.in[recurrentR], t.hidden)), Row: t.hidden, Col: 1}
		gemm.PackPanels(t.packed[i], r, width, t.hidden)
	}
	t.phase = timePhase
	t.parts = min(t.batch, tensor.WorkersFor(t.pool, float64(t.rows)*float64(t.gradient.gates)*float64(t.hidden*t.hidden/16+4*t.hidden)))
	t.pool.Run(t, t.parts)
	return t.products()
}

// sums computes what a group of gates adds up in all steps.
func (t *gradientTask[T]) sums(i int) error {
	if t.kind == rnnCell {
		return nil // Y says it all
	}
	g := &t.groups[i]
	bias, half := t.bias[i], t.gradient.gates*t.hidden
	linear := t.kind == gruLinearCell && i > 0
	clear(bias)
	var ofH []T
	if t.b != nil {
		b := t.b[t.d*2*half+g.first*t.hidden:]
		copy(bias, b)
		if ofH = b[half:][:len(bias)]; !linear {
			vec.Add(bias, bias, ofH)
		}
	}
	gates := tensor.RawBytes(t.gates[i])
	if err := t.product(g.ofX, gates, t.in[recurrentX], t.weights(g, t.in[recurrentW], t.input), tensor.RawBytes(bias)); err != nil {
		return err
	}
	h, from, to := tensor.RawBytes(t.before), gates, gates
	switch {
	case linear:
		clear(bias)
		copy(bias, ofH)
		from, to = tensor.RawBytes(bias), tensor.RawBytes(t.sum)
	case t.kind == gruCell && i > 0:
		t.share(resetPhase, t.batch, t.steps*t.hidden+1)
		h = tensor.RawBytes(t.reset)
	}
	return t.product(g.ofH, to, h, t.weights(g, t.in[recurrentR], t.hidden), from)
}

// products computes the gradients of X, W, R and B from those of the gates' sums.
func (t *gradientTask[T]) products() error {
	for i := range t.groups {
		g := &t.groups[i]
		gates := tensor.RawBytes(t.gates[i])
		ofH, h := gates, tensor.RawBytes(t.before)
		switch {
		case t.kind == gruLinearCell && i > 0:
			ofH = tensor.RawBytes(t.sum)
		case t.kind == gruCell && i > 0:
			h = tensor.RawBytes(t.reset)
		}
		if dx := tensor.Memory(t.out, gradientX); dx != nil {
			k, before := g.toX, []byte(nil)
			if i+t.d > 0 {
				k, before = g.toXMore, dx
			}
			if err := t.product(k, dx, gates, t.weights(g, t.in[recurrentW], t.input), before); err != nil {
				return err
			}
		}
		if dw := tensor.Memory(t.out, gradientW); dw != nil {
			if err := t.product(g.toW, t.weights(g, dw, t.input), gates, t.in[recurrentX], nil); err != nil {
				return err
			}
		}
		if dr := tensor.Memory(t.out, gradientR); dr != nil {
			if err := t.product(g.toR, t.weights(g, dr, t.hidden), ofH, h, nil); err != nil {
				return err
			}
		}
	}
	if tensor.Memory(t.out, gradientB) != nil {
		t.share(biasPhase, t.gradient.gates*t.hidden, t.rows/4+1)
	}
	return nil
}

// share runs a phase of so many items.
func (t *gradientTask[T]) share(phase gradientPhase, items, cost int) {
	t.phase, t.parts = phase, tensor.Cut(t.pool, items, cost)
	t.pool.Run(t, t.parts)
}

// Do implements [tensor.Task].
func (t *gradientTask[T]) Do(part int) {
	switch t.phase {
	case biasPhase:
		lo, hi := tensor.Span(t.gradient.gates*t.hidden, t.parts, part, gemm.Panel)
		t.biases(lo, hi)
	default:
		lo, hi := tensor.Span(t.batch, t.parts, part, 1)
		switch t.phase {
		case beforePhase:
			for b := lo; b < hi && !t.pool.Ended(); b++ {
				t.layOut(b)
			}
		case resetPhase:
			for b := lo; b < hi && !t.pool.Ended(); b++ {
				t.resets(b)
			}
		default:
			t.through(lo, hi)
		}
	}
}

// row returns the row of step s of a batch entry.
func (t *gradientTask[T]) row(b, s int) int {
	if t.batchFirst {
		return b*t.steps + t.time(t.d, s)
	}
	return t.time(t.d, s)*t.batch + b
}

// at returns a row of hidden units of x.
func (t *gradientTask[T]) at(x []T, row int) []T { return x[row*t.hidden:][:t.hidden] }

// gate returns a gate of a group in a row.
func (t *gradientTask[T]) gate(group, row, gate int) []T {
	return t.gates[group][(row*t.groups[group].count+gate)*t.hidden:][:t.hidden]
}

// active reports whether a batch entry's sequence has the position of step s.
func (t *gradientTask[T]) active(b, s int) bool {
	return t.lens == nil || t.time(t.d, s) < int(t.lens[b])
}

// layOut copies H before every step of a batch entry.
func (t *gradientTask[T]) layOut(b int) {
	for s := range t.steps {
		to := t.at(t.before, t.row(b, s))
		switch {
		case s > 0 && t.active(b, s-1):
			copy(to, t.y[t.outputIndex(t.d, b, t.time(t.d, s-1)):])
		case s > 0:
			copy(to, t.at(t.before, t.row(b, s-1)))
		case t.h0 != nil:
			copy(to, t.h0[t.stateIndex(t.d, b):])
		default:
			clear(to)
		}
	}
}

// resets computes r∘H before every step of a batch entry.
func (t *gradientTask[T]) resets(b int) {
	for s := range t.steps {
		row := t.row(b, s)
		to := t.at(t.reset, row)
		if !t.active(b, s) {
			clear(to)
			continue
		}
		copy(to, t.gate(0, row, 1))
		t.sigmoid(to)
		vec.Multiply(to, to, t.at(t.before, row))
	}
}

// through goes through time and back, for the batch entries [lo, hi).
func (t *gradientTask[T]) through(lo, hi int) {
	if lo == hi {
		return
	}
	for s := 0; s < t.steps && t.kind != rnnCell; s++ {
		if t.pool.Ended() {
			return
		}
		for b := lo; b < hi; b++ {
			t.forward(b, s)
		}
	}
	for b := lo; b < hi; b++ {
		t.start(t.at(t.carry, b), t.dh, b)
		if t.kind == lstmCell {
			t.start(t.at(t.cellCarry, b), t.dc, b)
		}
	}
	for s := t.steps - 1; s >= 0 && !t.pool.Ended(); s-- {
		for b := lo; b < hi; b++ {
			t.backward(b, s)
		}
		if t.kind == gruCell {
			clear(t.back[lo*t.hidden : hi*t.hidden])
			t.carryBack(1, t.back, lo, hi, s)
			for b := lo; b < hi; b++ {
				if row := t.row(b, s); t.active(b, s) {
					backReset(t.gate(0, row, 1), t.at(t.carry, b), t.at(t.before, row), t.at(t.back, b))
				}
			}
			t.carryBack(0, t.carry, lo, hi, s)
			continue
		}
		for i := range t.groups {
			t.carryBack(i, t.carry, lo, hi, s)
		}
	}
	for b := lo; b < hi; b++ {
		if d := tensor.View[T](tensor.Memory(t.out, gradientH0)); d != nil {
			copy(d[t.stateIndex(t.d, b):], t.at(t.carry, b))
		}
		if d := tensor.View[T](tensor.Memory(t.out, gradientC0)); d != nil {
			copy(d[t.stateIndex(t.d, b):], t.at(t.cellCarry, b))
		}
	}
}

// start sets a gradient of the last state.
func (t *gradientTask[T]) start(to, d []T, b int) {
	clear(to)
	if d != nil {
		copy(to, d[t.stateIndex(t.d, b):])
	}
}

// cellBefore returns C before step s.
func (t *gradientTask[T]) cellBefore(b, s int) []T {
	switch {
	case s > 0:
		return t.at(t.cell, t.row(b, s-1))
	case t.c0 != nil:
		return t.c0[t.stateIndex(t.d, b):][:t.hidden]
	}
	return t.zero
}

// forward makes gates of the sums of step s, and C.
func (t *gradientTask[T]) forward(b, s int) {
	row := t.row(b, s)
	active := t.active(b, s)
	if t.kind != lstmCell {
		if active {
			z := t.gates[0][row*2*t.hidden:][:2*t.hidden]
			t.sigmoid(z)
			g := t.gate(1, row, 0)
			if t.kind == gruLinearCell {
				addProducts(g, z[t.hidden:], t.at(t.sum, row))
			}
			t.tanh(g)
		}
		return
	}
	c, before := t.at(t.cell, row), t.cellBefore(b, s)
	if !active {
		copy(c, before)
		return
	}
	t.sigmoid(t.gates[0][row*4*t.hidden:][:3*t.hidden])
	g := t.gate(0, row, 3)
	t.tanh(g)
	vec.Multiply(c, t.gate(0, row, 0), g)
	addProducts(c, t.gate(0, row, 2), before)
}

// backward makes gradients of the gates of step s, and leaves in carry what comes to H before it
// other than through the gates.
func (t *gradientTask[T]) backward(b, s int) {
	row, dh := t.row(b, s), t.at(t.carry, b)
	if !t.active(b, s) {
		for i := range t.groups {
			width := t.groups[i].count * t.hidden
			clear(t.gates[i][row*width:][:width])
		}
		if t.kind == gruLinearCell {
			clear(t.at(t.sum, row))
		}
		return
	}
	at := t.outputIndex(t.d, b, t.time(t.d, s))
	if t.dy != nil {
		vec.Add(dh, dh, t.dy[at:][:t.hidden])
	}
	switch t.kind {
	case rnnCell:
		backTanh(t.gate(0, row, 0), t.y[at:][:t.hidden], dh)
		clear(dh)
	case lstmCell:
		backLstm(t.gate(0, row, 0), t.gate(0, row, 1), t.gate(0, row, 2), t.gate(0, row, 3), t.at(t.cellCarry, b), t.cellBefore(b, s), t.at(t.cell, row), dh)
		clear(dh)
	default:
		backGru(t.gate(0, row, 0), t.gate(1, row, 0), dh, t.at(t.before, row))
		if t.kind == gruLinearCell {
			backLinear(t.gate(0, row, 1), t.at(t.sum, row), t.gate(1, row, 0))
		}
	}
}

// carryBack adds the product of a group's gradients in step s and R to a row of each of the batch entries [lo, hi).
func (t *gradientTask[T]) carryBack(group int, to []T, lo, hi, s int) {
	width := t.groups[group].count * t.hidden
	from, row := t.gates[group], t.row(lo, s)
	if t.kind == gruLinearCell && group > 0 {
		from = t.sum
	}
	stride := width
	if t.batchFirst {
		stride *= t.steps
	}
	a := gemm.Matrix[T]{Data: from[row*width:], Row: stride, Col: 1}
	depth := 4 * gemm.Block[T]()
	for j := 0; j < t.hidden; j += gemm.Panel {
		panel := t.packed[group][j*width:]
		for p := 0; p < width; p += depth {
			gemm.MultiplyBlock(to[lo*t.hidden+j:], t.hidden, hi-lo, min(gemm.Panel, t.hidden-j), a.At(0, p), panel[p*gemm.Panel:], gemm.Panel, min(depth, width-p), 1)
		}
	}
}

// biases adds up the gradients of the gates' sums over all rows, for some of the gates' units.
func (t *gradientTask[T]) biases(lo, hi int) {
	half := t.gradient.gates * t.hidden
	db := tensor.View[T](t.out[gradientB])[t.d*2*half:][:2*half]
	clear(db[lo:hi])
	clear(db[half+lo : half+hi])
	for i := range t.groups {
		g := &t.groups[i]
		at, width := g.first*t.hidden, g.count*t.hidden
		from, to := max(lo, at), min(hi, at+width)
		if from >= to {
			continue
		}
		linear := t.kind == gruLinearCell && i > 0
		for row := range t.rows {
			vec.Add(db[from:to], db[from:to], t.gates[i][row*width+from-at:][:to-from])
			if linear {
				vec.Add(db[half+from:half+to], db[half+from:half+to], t.sum[row*width+from-at:][:to-from])
			}
		}
		if !linear {
			copy(db[half+from:half+to], db[from:to])
		}
	}
}
