package kernel

import "fmt"

// recurrentTask is one run of a recurrent operator. Time steps are counted in
// the order in which a direction takes them; a backward one takes the last
// first.
type recurrentTask[T float] struct {
	*recurrent[T]
	x, w, r, b, p []T
	lens          []int32
	h0, c0        []T
	y, yh, yc     []T

	bufs  []T // [dirs][chunk·batch][gates][hidden], rows in the order of X
	bias  []T // [dirs][gates][hidden], of W and, but for the last gate of gruLinearCell, R together
	state []T // [states][dirs][batch][hidden]

	first, count int // the chunk's time steps
	phase        recurrentPhase
	parts        int
	rows, cols   int // of the blocks into which the current phase is cut
	step, stage  int // for stepPhase
}

// recurrentPhase is what the parts of a recurrentTask do.
type recurrentPhase uint8

const (
	inputPhase recurrentPhase = iota // X·Wᵀ + B for a chunk
	chunkPhase                       // all steps of a chunk for some of the batch
	stepPhase                        // one step for some of the hidden units
)

// bind gives the run its memory and checks the sequences' lengths.
func (t *recurrentTask[T]) bind(in, out [][]byte, scratch []byte) error {
	at := func(i int) []T { return view[T](memory(in, i)) }
	t.x, t.w, t.r, t.b, t.h0, t.c0, t.p = at(recurrentX), at(recurrentW), at(recurrentR), at(recurrentB), at(recurrentH), at(recurrentC), at(recurrentP)
	t.y, t.yh, t.yc = view[T](memory(out, 0)), view[T](memory(out, 1)), view[T](memory(out, 2))
	t.lens = view[int32](memory(in, recurrentLens))
	for i, n := range t.lens {
		if n < 0 || int(n) > t.steps {
			return fmt.Errorf("sequence_lens[%d] is %d, want 0 to %d, the time steps of X", i, n, t.steps)
		}
	}
	t.bufs = view[T](scratch[t.gatesAt:t.biasAt])
	t.bias = view[T](scratch[t.biasAt:t.stateAt])
	t.state = view[T](scratch[t.stateAt:])
	if !t.wPacked {
		t.Pack(recurrentW, scratch[t.wAt:][:t.wBytes], in[recurrentW])
		t.w = view[T](scratch[t.wAt:][:t.wBytes])
	}
	if !t.rPacked {
		t.Pack(recurrentR, scratch[t.rAt:][:t.rBytes], in[recurrentR])
		t.r = view[T](scratch[t.rAt:][:t.rBytes])
	}
	return nil
}

// states returns state buffer i of one batch entry: 0 and 1 hold H in turn. An
// LSTM has C in 2 and h(C) in 3; a GRU has in 2 what its last gate takes from
// H: r∘H, or H·Rᵀ + B for gruLinearCell.
func (t *recurrentTask[T]) states(i, d, b int) []T {
	return t.state[((i*t.dirs+d)*t.batch+b)*t.hidden:][:t.hidden]
}

// start sets the state before the first step, adds up the biases and clears
// what no step writes.
func (t *recurrentTask[T]) start() {
	for d := range t.dirs {
		for b := range t.batch {
			h := t.states(0, d, b)
			clear(h)
			if t.h0 != nil {
				copy(h, t.h0[t.stateIndex(d, b):])
			}
			copy(t.states(1, d, b), h)
			if t.kind != lstmCell {
				continue
			}
			c := t.states(2, d, b)
			clear(c)
			if t.c0 != nil {
				copy(c, t.c0[t.stateIndex(d, b):])
			}
		}
		width := t.gates * t.hidden
		bias := t.bias[d*width:][:width]
		clear(bias)
		if t.b != nil {
			b := t.b[d*2*width:]
			copy(bias, b)
			if t.kind == gruLinearCell {
				width = 2 * t.hidden
			}
			for i := range width {
				bias[i] += b[t.gates*t.hidden+i]
			}
		}
	}
	if t.lens != nil {
		clear(t.y)
	}
}

// finish writes the last states.
func (t *recurrentTask[T]) finish() {
	for d := range t.dirs {
		for b := range t.batch {
			if t.yh != nil {
				copy(t.yh[t.stateIndex(d, b):], t.states(t.steps%2, d, b))
			}
			if t.yc != nil {
				copy(t.yc[t.stateIndex(d, b):], t.states(2, d, b))
			}
		}
	}
}

// time returns the position in the sequence of direction d's step s.
func (t *recurrentTask[T]) time(d, s int) int {
	if t.backwards(d) {
		return t.steps - 1 - s
	}
	return s
}

// chunkStart returns the earliest position of the chunk.
func (t *recurrentTask[T]) chunkStart(d int) int {
	return min(t.time(d, t.first), t.time(d, t.first+t.count-1))
}

// gateRow returns the gates of a batch entry at a step of the chunk.
func (t *recurrentTask[T]) gateRow(d, b, s int) []T {
	at, _ := t.gateIndex(d, b, s)
	return t.bufs[at:][:t.gates*t.hidden]
}

// gateIndex returns where a gateRow begins and how far the next batch entry's
// is from it.
func (t *recurrentTask[T]) gateIndex(d, b, s int) (at, step int) {
	row := t.time(d, s) - t.chunkStart(d)
	width := t.gates * t.hidden
	if t.batchFirst {
		row += b * t.count
		step = t.count * width
	} else {
		row = row*t.batch + b
		step = width
	}
	return (d*t.chunk*t.batch + row) * width, step
}

// inputs computes X·Wᵀ + B for the chunk.
func (t *recurrentTask[T]) inputs(p Pool) {
	t.phase = inputPhase
	t.rows, t.cols = t.count*t.batch, (t.hidden+panel-1)/panel
	n := t.dirs * t.gates * t.cols
	t.parts = cut(p, n, t.rows*panel*t.input/2+1)
	p.Run(t, t.parts)
}

// recur runs the chunk's steps. Batch entries and directions do not depend on
// each other, so they are divided first; only if that leaves workers idle and
// one step is much work, the hidden units of every step are.
func (t *recurrentTask[T]) recur(p Pool) {
	cost := t.gates * (t.hidden*t.hidden/2 + 10*t.hidden)
	units := t.dirs * t.batch
	if units < p.Workers() && units*cost >= 4*grain {
		t.phase = stepPhase
		t.cols = (t.hidden + panel - 1) / panel
		for t.step = t.first; t.step < t.first+t.count; t.step++ {
			for t.stage = range t.stages() {
				t.parts = cut(p, units*t.cols, cost/t.cols)
				p.Run(t, t.parts)
			}
		}
		return
	}
	t.phase = chunkPhase
	// Neighbouring batch entries go together: they share the passes over R.
	t.parts = cut(p, units, cost*t.count)
	p.Run(t, t.parts)
}

// stages is the number of parts of a step of which each needs all hidden units
// of the one before.
func (t *recurrentTask[T]) stages() int {
	if t.kind == gruCell {
		return 2
	}
	return 1
}

// Do implements [Task].
func (t *recurrentTask[T]) Do(part int) {
	switch t.phase {
	case inputPhase:
		for i, end := span(t.dirs*t.gates*t.cols, t.parts, part, 1); i < end; i++ {
			t.inputPanel(i/(t.gates*t.cols), i/t.cols%t.gates, i%t.cols*panel)
		}
	case chunkPhase:
		lo, hi := span(t.dirs*t.batch, t.parts, part, 1)
		for s := t.first; s < t.first+t.count; s++ {
			for i := lo; i < hi; {
				d := i / t.batch
				end := min(hi, (d+1)*t.batch)
				for stage := range t.stages() {
					t.cells(d, i-d*t.batch, end-d*t.batch, s, stage, 0, t.hidden)
				}
				i = end
			}
		}
	case stepPhase:
		for i, end := span(t.dirs*t.batch*t.cols, t.parts, part, 1); i < end; i++ {
			unit, j := i/t.cols, i%t.cols*panel
			d, b := unit/t.batch, unit%t.batch
			t.cells(d, b, b+1, t.step, t.stage, j, min(j+panel, t.hidden))
		}
	}
}

// inputPanel computes a panel of one gate's inputs for all rows of the chunk.
func (t *recurrentTask[T]) inputPanel(d, gate, j int) {
	cols := min(panel, t.hidden-j)
	w := t.w[(d*t.gates+gate)*packedLen(t.input, t.hidden)+j*t.input:][:t.input*panel]
	bias := t.bias[(d*t.gates+gate)*t.hidden+j:][:cols]
	start, width := t.chunkStart(d), t.gates*t.hidden
	gates := t.bufs[d*t.chunk*t.batch*width+gate*t.hidden+j:]
	for row := range t.rows {
		copy(gates[row*width:][:cols], bias)
	}
	// The chunk's rows of X lie together, with the batch first those of
	// every entry.
	stretches, rows, at, step := 1, t.rows, start*t.batch, 0
	if t.batchFirst {
		stretches, rows, at, step = t.batch, t.count, start, t.steps
	}
	for i := range stretches {
		x := matrix[T]{t.x[(at+i*step)*t.input:], t.input, 1}
		y := gates[i*rows*width:]
		for p := 0; p < t.input; p += block[T]() {
			multiplyBlock(y, width, rows, cols, x.at(0, p), w[p*panel:], panel, min(block[T](), t.input-p), 1)
		}
	}
}

// cells computes a stage of step s for the batch entries [b0, b1) and the
// hidden units [lo, hi), lo being the first of a panel.
func (t *recurrentTask[T]) cells(d, b0, b1, s, stage, lo, hi int) {
	from, to := s%2, 1-s%2
	switch {
	case t.kind == gruCell && stage == 0:
		t.gateProducts(d, 0, 2, b0, b1, s, lo, hi, from)
	case t.kind == gruCell:
		t.gateProducts(d, 2, 3, b0, b1, s, lo, hi, 2)
	case t.kind == gruLinearCell:
		t.gateProducts(d, 0, 2, b0, b1, s, lo, hi, from)
		for b := b0; b < b1; b++ {
			sum := t.states(2, d, b)[lo:hi]
			clear(sum)
			if t.b != nil {
				copy(sum, t.b[(d*6+5)*t.hidden+lo:])
			}
		}
		t.products(d, 2, b0, b1, s, lo, hi, from, t.state[((2*t.dirs+d)*t.batch+b0)*t.hidden:], t.hidden)
	default:
		t.gateProducts(d, 0, t.gates, b0, b1, s, lo, hi, from)
	}
	for b := b0; b < b1; b++ {
		h, next := t.states(from, d, b)[lo:hi], t.states(to, d, b)[lo:hi]
		if !t.active(d, b, s) {
			copy(next, h)
			continue
		}
		sums := t.gateRow(d, b, s)
		switch t.kind {
		case rnnCell:
			t.activate(t.acts[d][0], sums[lo:hi])
			copy(next, sums[lo:hi])
		case gruCell:
			if stage == 0 {
				multiplied := t.states(2, d, b)[lo:hi]
				copy(multiplied, h)
				t.reset(d, sums, lo, multiplied)
				continue
			}
			t.update(d, sums, lo, h, next)
		case gruLinearCell:
			sum := t.states(2, d, b)[lo:hi]
			t.reset(d, sums, lo, sum)
			for j, v := range sums[2*t.hidden+lo:][:len(sum)] {
				sums[2*t.hidden+lo+j] = v + sum[j]
			}
			t.update(d, sums, lo, h, next)
		case lstmCell:
			t.lstm(d, sums, lo, hi, t.states(2, d, b)[lo:hi], t.states(3, d, b)[lo:hi], next)
		}
		if t.y != nil {
			copy(t.y[t.outputIndex(d, b, t.time(d, s))+lo:][:hi-lo], next)
		}
	}
}

// gateProducts adds H·Rᵀ to the sums of the gates [g0, g1), H being state
// buffer from.
func (t *recurrentTask[T]) gateProducts(d, g0, g1, b0, b1, s, lo, hi, from int) {
	at, step := t.gateIndex(d, b0, s)
	for gate := g0; gate < g1; gate++ {
		t.products(d, gate, b0, b1, s, lo, hi, from, t.bufs[at+gate*t.hidden:], step)
	}
}

// products adds H·Rᵀ of one gate to y, whose rows, one for each batch entry
// from b0 on, are step apart.
func (t *recurrentTask[T]) products(d, gate, b0, b1, s, lo, hi, from int, y []T, step int) {
	r := t.r[(d*t.gates+gate)*packedLen(t.hidden, t.hidden):]
	for j := lo; j < hi; j += panel {
		cols := min(panel, hi-j)
		panelR := r[j*t.hidden:][:t.hidden*panel]
		if t.lens == nil {
			h := matrix[T]{t.state[((from*t.dirs+d)*t.batch+b0)*t.hidden:], t.hidden, 1}
			multiplyBlock(y[j:], step, b1-b0, cols, h, panelR, panel, t.hidden, 1)
			continue
		}
		for b := b0; b < b1; b++ {
			if t.active(d, b, s) {
				h := matrix[T]{t.states(from, d, b), t.hidden, 1}
				multiplyRow(y[(b-b0)*step+j:][:cols], h, panelR, panel, t.hidden, 1)
			}
		}
	}
}

// active reports whether a batch entry's sequence has the position of step s.
func (t *recurrentTask[T]) active(d, b, s int) bool {
	return t.lens == nil || t.time(d, s) < int(t.lens[b])
}

// reset multiplies x with a GRU's reset gate r = f(Xr + H·Rrᵀ), for the hidden
// units from lo on.
func (t *recurrentTask[T]) reset(d int, sums []T, lo int, x []T) {
	r := sums[t.hidden+lo:][:len(x)]
	t.activate(t.acts[d][0], r)
	for j, v := range r {
		x[j] *= v
	}
}

// update computes a GRU's new H from the sums of its gates z and h:
//
//	z = f(Xz + H·Rzᵀ)     h = g(Xh + …)     H' = (1-z)∘h + z∘H
func (t *recurrentTask[T]) update(d int, sums []T, lo int, h, next []T) {
	z, g := sums[lo:][:len(h)], sums[2*t.hidden+lo:][:len(h)]
	t.activate(t.acts[d][0], z)
	t.activate(t.acts[d][1], g)
	next = next[:len(h)]
	for j, v := range z {
		next[j] = (1-v)*g[j] + v*h[j]
	}
}

// lstm computes the hidden units [lo, hi) of one step of an LSTM from the sums
// for its gates, in ONNX's order i, o, f, c: the new C in place of the old
// one, and the new H.
//
//	i = f(Xi + H·Riᵀ + Pi∘C)     c = g(Xc + H·Rcᵀ)
//	f = f(Xf + H·Rfᵀ + Pf∘C)     C' = f∘C + i∘c
//	o = f(Xo + H·Roᵀ + Po∘C')    H' = o∘h(C')
func (t *recurrentTask[T]) lstm(d int, sums []T, lo, hi int, c, hc, h []T) {
	n := hi - lo
	i, o := sums[lo:][:n], sums[t.hidden+lo:][:n]
	f, g := sums[2*t.hidden+lo:][:n], sums[3*t.hidden+lo:][:n]
	c, hc, h = c[:n], hc[:n], h[:n]
	var po []T
	if t.p != nil {
		p := t.p[d*3*t.hidden:]
		po = p[t.hidden+lo:][:n]
		addProducts(i, p[lo:], c)
		addProducts(f, p[2*t.hidden+lo:], c)
	}
	acts := &t.acts[d]
	t.activate(acts[0], i)
	if t.inputForget {
		for j, v := range i {
			f[j] = 1 - v
		}
	} else {
		t.activate(acts[0], f)
	}
	t.activate(acts[1], g)
	for j := range c {
		c[j] = f[j]*c[j] + i[j]*g[j]
	}
	if po != nil {
		addProducts(o, po, c)
	}
	t.activate(acts[0], o)
	copy(hc, c)
	t.activate(acts[2], hc)
	for j, v := range o {
		h[j] = v * hc[j]
	}
}

// activate applies an activation to x, limited to ±clip.
func (t *recurrentTask[T]) activate(f activation[T], x []T) {
	if t.clip > 0 {
		for i, v := range x {
			x[i] = min(max(v, -t.clip), t.clip)
		}
	}
	f(x)
}

// addProducts adds the products of the elements of a and b to y.
func addProducts[T float](y, a, b []T) {
	a, b = a[:len(y)], b[:len(y)]
	for i, v := range a {
		y[i] += v * b[i]
	}
}
