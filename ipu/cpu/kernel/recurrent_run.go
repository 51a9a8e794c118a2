package kernel

import "fmt"

// lstmTask is one run of an LSTM. Time steps are counted in the order in which
// a direction takes them; a backward one takes the last first.
type lstmTask[T float] struct {
	*lstm[T]
	x, w, r, b, p []T
	lens          []int32
	h0, c0        []T
	y, yh, yc     []T

	gates []T // [dirs][chunk·batch][4][hidden], rows in the order of X
	bias  []T // [dirs][4][hidden], of W and R together
	state []T // [lstmStates][dirs][batch][hidden]

	first, count int // the chunk's time steps
	phase        lstmPhase
	parts        int
	rows, cols   int // of the blocks into which the current phase is cut
	step         int // for stepPhase
}

// lstmPhase is what the parts of an lstmTask do.
type lstmPhase uint8

const (
	inputPhase lstmPhase = iota // X·Wᵀ + B for a chunk
	chunkPhase                  // all steps of a chunk for some of the batch
	stepPhase                   // one step for some of the hidden units
)

// bind gives the run its memory and checks the sequences' lengths.
func (t *lstmTask[T]) bind(in, out [][]byte, scratch []byte) error {
	at := func(i int) []T { return view[T](memory(in, i)) }
	t.x, t.w, t.r, t.b, t.h0, t.c0, t.p = at(lstmX), at(lstmW), at(lstmR), at(lstmB), at(lstmH), at(lstmC), at(lstmP)
	t.y, t.yh, t.yc = view[T](memory(out, 0)), view[T](memory(out, 1)), view[T](memory(out, 2))
	t.lens = view[int32](memory(in, lstmLens))
	for i, n := range t.lens {
		if n < 0 || int(n) > t.steps {
			return fmt.Errorf("sequence_lens[%d] is %d, want 0 to %d, the time steps of X", i, n, t.steps)
		}
	}
	t.gates = view[T](scratch[t.gatesAt:t.biasAt])
	t.bias = view[T](scratch[t.biasAt:t.stateAt])
	t.state = view[T](scratch[t.stateAt:])
	if !t.wPacked {
		t.Pack(lstmW, scratch[t.wAt:][:t.wBytes], in[lstmW])
		t.w = view[T](scratch[t.wAt:][:t.wBytes])
	}
	if !t.rPacked {
		t.Pack(lstmR, scratch[t.rAt:][:t.rBytes], in[lstmR])
		t.r = view[T](scratch[t.rAt:][:t.rBytes])
	}
	return nil
}

// states returns state buffer i of one batch entry: 0 and 1 hold H in turn, 2
// is C and 3 is h(C).
func (t *lstmTask[T]) states(i, d, b int) []T {
	return t.state[((i*t.dirs+d)*t.batch+b)*t.hidden:][:t.hidden]
}

// start sets the state before the first step, adds up the biases and clears
// what no step writes.
func (t *lstmTask[T]) start() {
	for d := range t.dirs {
		for b := range t.batch {
			h, c := t.states(0, d, b), t.states(2, d, b)
			clear(h)
			clear(c)
			if t.h0 != nil {
				copy(h, t.h0[t.stateIndex(d, b):])
			}
			if t.c0 != nil {
				copy(c, t.c0[t.stateIndex(d, b):])
			}
			copy(t.states(1, d, b), h)
		}
		bias := t.bias[d*4*t.hidden:][:4*t.hidden]
		clear(bias)
		if t.b != nil {
			b := t.b[d*8*t.hidden:]
			for i := range bias {
				bias[i] = b[i] + b[4*t.hidden+i]
			}
		}
	}
	if t.lens != nil {
		clear(t.y)
	}
}

// finish writes the last states.
func (t *lstmTask[T]) finish() {
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
func (t *lstmTask[T]) time(d, s int) int {
	if t.backwards(d) {
		return t.steps - 1 - s
	}
	return s
}

// chunkStart returns the earliest position of the chunk.
func (t *lstmTask[T]) chunkStart(d int) int {
	return min(t.time(d, t.first), t.time(d, t.first+t.count-1))
}

// gateRow returns the gates of a batch entry at a step of the chunk.
func (t *lstmTask[T]) gateRow(d, b, s int) []T {
	at, _ := t.gateIndex(d, b, s)
	return t.gates[at:][:4*t.hidden]
}

// gateIndex returns where a gateRow begins and how far the next batch entry's
// is from it.
func (t *lstmTask[T]) gateIndex(d, b, s int) (at, step int) {
	row := t.time(d, s) - t.chunkStart(d)
	width := 4 * t.hidden
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
func (t *lstmTask[T]) inputs(p Pool) {
	t.phase = inputPhase
	t.rows, t.cols = t.count*t.batch, (t.hidden+panel-1)/panel
	n := t.dirs * 4 * t.cols
	t.parts = cut(p, n, t.rows*panel*t.input/2+1)
	p.Run(t, t.parts)
}

// recur runs the chunk's steps. Batch entries and directions do not depend on
// each other, so they are divided first; only if that leaves workers idle and
// one step is much work, the hidden units of every step are.
func (t *lstmTask[T]) recur(p Pool) {
	cost := 2*t.hidden*t.hidden + 40*t.hidden
	units := t.dirs * t.batch
	if units < p.Workers() && units*cost >= 4*grain {
		t.phase = stepPhase
		t.cols = (t.hidden + panel - 1) / panel
		for t.step = t.first; t.step < t.first+t.count; t.step++ {
			t.parts = cut(p, units*t.cols, cost/t.cols)
			p.Run(t, t.parts)
		}
		return
	}
	t.phase = chunkPhase
	// Neighbouring batch entries go together: they share the passes over R.
	t.parts = cut(p, units, cost*t.count)
	p.Run(t, t.parts)
}

// Do implements [Task].
func (t *lstmTask[T]) Do(part int) {
	switch t.phase {
	case inputPhase:
		for i, end := span(t.dirs*4*t.cols, t.parts, part, 1); i < end; i++ {
			t.inputPanel(i/(4*t.cols), i/t.cols%4, i%t.cols*panel)
		}
	case chunkPhase:
		lo, hi := span(t.dirs*t.batch, t.parts, part, 1)
		for s := t.first; s < t.first+t.count; s++ {
			for i := lo; i < hi; {
				d := i / t.batch
				end := min(hi, (d+1)*t.batch)
				t.cells(d, i-d*t.batch, end-d*t.batch, s, 0, t.hidden)
				i = end
			}
		}
	case stepPhase:
		for i, end := span(t.dirs*t.batch*t.cols, t.parts, part, 1); i < end; i++ {
			unit, j := i/t.cols, i%t.cols*panel
			d, b := unit/t.batch, unit%t.batch
			t.cells(d, b, b+1, t.step, j, min(j+panel, t.hidden))
		}
	}
}

// inputPanel computes a panel of one gate's inputs for all rows of the chunk.
func (t *lstmTask[T]) inputPanel(d, gate, j int) {
	cols := min(panel, t.hidden-j)
	w := t.w[(d*4+gate)*packedLen(t.input, t.hidden)+j*t.input:][:t.input*panel]
	bias := t.bias[(d*4+gate)*t.hidden+j:][:cols]
	gates := t.gates[d*t.chunk*t.batch*4*t.hidden+gate*t.hidden+j:]
	start, width := t.chunkStart(d), 4*t.hidden
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

// cells computes step s for the batch entries [b0, b1) and the hidden units
// [lo, hi), lo being the first of a panel.
func (t *lstmTask[T]) cells(d, b0, b1, s, lo, hi int) {
	from, to := s%2, 1-s%2
	r := t.r[d*4*packedLen(t.hidden, t.hidden):]
	for gate := range 4 {
		for j := lo; j < hi; j += panel {
			cols := min(panel, hi-j)
			panelR := r[gate*packedLen(t.hidden, t.hidden)+j*t.hidden:][:t.hidden*panel]
			if t.lens == nil {
				at, step := t.gateIndex(d, b0, s)
				h := matrix[T]{t.state[((from*t.dirs+d)*t.batch+b0)*t.hidden:], t.hidden, 1}
				multiplyBlock(t.gates[at+gate*t.hidden+j:], step, b1-b0, cols, h, panelR, panel, t.hidden, 1)
				continue
			}
			for b := b0; b < b1; b++ {
				if t.active(d, b, s) {
					h := matrix[T]{t.states(from, d, b), t.hidden, 1}
					multiplyRow(t.gateRow(d, b, s)[gate*t.hidden+j:][:cols], h, panelR, panel, t.hidden, 1)
				}
			}
		}
	}
	for b := b0; b < b1; b++ {
		next := t.states(to, d, b)[lo:hi]
		if !t.active(d, b, s) {
			copy(next, t.states(from, d, b)[lo:hi])
			continue
		}
		t.cell(d, t.gateRow(d, b, s), lo, hi, t.states(2, d, b)[lo:hi], t.states(3, d, b)[lo:hi], next)
		if t.y != nil {
			copy(t.y[t.outputIndex(d, b, t.time(d, s))+lo:][:hi-lo], next)
		}
	}
}

// active reports whether a batch entry's sequence has the position of step s.
func (t *lstmTask[T]) active(d, b, s int) bool {
	return t.lens == nil || t.time(d, s) < int(t.lens[b])
}

// cell computes the hidden units [lo, hi) of one step from the sums for its
// gates: the new C in place of the old one, and the new H.
func (t *lstmTask[T]) cell(d int, sums []T, lo, hi int, c, hc, h []T) {
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
func (t *lstmTask[T]) activate(f activation[T], x []T) {
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
