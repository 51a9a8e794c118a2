package recurrent

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// recurrentTask is one run of a recurrent operator. Time steps are counted in
// the order in which a direction takes them; a backward one takes the last
// first.
type recurrentTask[T tensor.Float] struct {
	*recurrent[T]
	x, w, r, b, p []T
	lens          []int32
	h0, c0        []T
	y, yh, yc     []T

	bufs  []T // [dirs][chunk·batch][gates][padded], rows in the order of X
	bias  []T // [dirs][gates][padded], of W and, but for the last gate of gruLinearCell, R together
	state []T // [states][dirs][batch][hidden]
	sum   []T // of gruLinearCell: [dirs][batch+1][padded], the last gate's H·Rᵀ + B and B

	first, count int // the chunk's time steps
	phase        recurrentPhase
	parts        int
	stretches    int // of the chunk's rows of X
	rows, blocks int // of a stretch
	cols         int // panels of all gates or, for rounds, of one
	look         int // steps after which to look whether the run has ended
	pool         tensor.Pool
	apart        bool // in chunkPhase, every direction's X·Wᵀ + B comes before its steps
}

// recurrentPhase is what the parts of a recurrentTask do.
type recurrentPhase uint8

const (
	inputPhase recurrentPhase = iota // X·Wᵀ + B for a chunk
	chunkPhase                       // all steps of a chunk for some of the batch
)

// bind gives the run its memory and checks the sequences' lengths.
func (t *recurrentTask[T]) bind(in, out [][]byte, scratch []byte) error {
	at := func(i int) []T { return tensor.View[T](tensor.Memory(in, i)) }
	t.x, t.w, t.r, t.b, t.h0, t.c0, t.p = at(recurrentX), at(recurrentW), at(recurrentR), at(recurrentB), at(recurrentH), at(recurrentC), at(recurrentP)
	t.y, t.yh, t.yc = tensor.View[T](tensor.Memory(out, 0)), tensor.View[T](tensor.Memory(out, 1)), tensor.View[T](tensor.Memory(out, 2))
	t.lens = tensor.View[int32](tensor.Memory(in, recurrentLens))
	for i, n := range t.lens {
		if n < 0 || int(n) > t.steps {
			return fmt.Errorf("sequence_lens[%d] is %d, want 0 to %d, the time steps of X", i, n, t.steps)
		}
	}
	t.bufs = tensor.View[T](scratch[t.gatesAt:t.biasAt])
	t.bias = tensor.View[T](scratch[t.biasAt:t.stateAt])
	t.state = tensor.View[T](scratch[t.stateAt:])
	t.sum = t.state[cellKinds[t.kind].states*t.dirs*t.batch*t.hidden:][:t.sums()]
	if !t.wPacked {
		t.Pack(recurrentW, scratch[t.wAt:][:t.wBytes], in[recurrentW])
		t.w = tensor.View[T](scratch[t.wAt:][:t.wBytes])
	}
	if !t.rPacked {
		t.Pack(recurrentR, scratch[t.rAt:][:t.rBytes], in[recurrentR])
		t.r = tensor.View[T](scratch[t.rAt:][:t.rBytes])
	}
	return nil
}

// states returns state buffer i of one batch entry: 0 and 1 hold H in turn. An
// LSTM has C in 2 and h(C) in 3; gruCell has in 2 what its last gate takes from
// H: r∘H.
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
		t.startBias(d)
	}
	if t.lens != nil {
		clear(t.y)
	}
}

// startBias adds up the biases of a direction.
func (t *recurrentTask[T]) startBias(d int) {
	bias := t.bias[d*t.gates*t.padded:][:t.gates*t.padded]
	clear(bias)
	var last []T
	if t.kind == gruLinearCell {
		last = t.lastSum(d, t.batch)
		clear(last)
	}
	if t.b == nil {
		return
	}
	for gate := range t.gates {
		ofX := t.b[(d*2*t.gates+gate)*t.hidden:][:t.hidden]
		ofH := t.b[(d*2*t.gates+t.gates+gate)*t.hidden:][:t.hidden]
		to := bias[gate*t.padded:]
		copy(to, ofX)
		if last != nil && gate == t.gates-1 {
			copy(last, ofH)
			continue
		}
		for i, v := range ofH {
			to[i] += v
		}
	}
}

// lastSum returns what gruLinearCell keeps for its last gate and a batch entry;
// beyond the last one there is the bias.
func (t *recurrentTask[T]) lastSum(d, b int) []T {
	return t.sum[(d*(t.batch+1)+b)*t.padded:][:t.padded]
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

// chunkStart returns the earliest position of the chunk.
func (t *recurrentTask[T]) chunkStart(d int) int {
	return min(t.time(d, t.first), t.time(d, t.first+t.count-1))
}

// gateRow returns the gates of a batch entry at a step of the chunk.
func (t *recurrentTask[T]) gateRow(d, b, s int) []T {
	at, _ := t.gateIndex(d, b, s)
	return t.bufs[at:][:t.gates*t.padded]
}

// gateIndex returns where a gateRow begins and how far the next batch entry's
// is from it.
func (t *recurrentTask[T]) gateIndex(d, b, s int) (at, step int) {
	row := t.time(d, s) - t.chunkStart(d)
	width := t.gates * t.padded
	if t.batchFirst {
		row += b * t.count
		step = t.count * width
	} else {
		row = row*t.batch + b
		step = width
	}
	return (d*t.chunk*t.batch + row) * width, step
}

// stepGrain returns from how much work on a step is divided between workers:
// each then waits for what the others have computed.
func stepGrain() int { return tensor.Grain * 5 / 16 }

// compute runs the chunk's steps. Batch entries and directions do not depend on
// each other, so they are divided first; only if that leaves workers idle and
// one step is much work, the hidden units of every step are.
func (t *recurrentTask[T]) compute(p tensor.Pool) {
	cost := t.gates*(t.hidden*t.hidden/16+t.hidden) + 1
	units := t.dirs * t.batch
	t.pool, t.look = p, max(1, tensor.Long/cost/max(1, units))
	if units < p.Workers() && units*cost >= stepGrain() && tensor.WorkersFor(p, float64(units*cost*t.count)) > 1 {
		t.cols = t.padded / gemm.Panel
		p.RunRounds(t, 1+t.count*t.stages(), units*t.cols)
		return
	}
	// Directions have inputs of their own.
	if t.apart = t.dirs > 1 && t.batch == 1; t.apart {
		cost += t.gates * t.hidden * t.input / 16
	} else {
		t.inputs(p)
	}
	t.phase = chunkPhase
	// Neighbouring batch entries go together: they share the passes over R.
	t.parts = tensor.Cut(p, units, cost*t.count)
	p.Run(t, t.parts)
}

// stages is the number of parts of a step of which each needs all hidden units
// of the one before: one for every group of gates.
func (t *recurrentTask[T]) stages() int { return len(cellKinds[t.kind].groups) }

// Do implements [Task].
func (t *recurrentTask[T]) Do(part int) {
	switch t.phase {
	case inputPhase:
		for i, end := tensor.Span(t.dirs*t.stretches*t.blocks*t.cols, t.parts, part, 1); i < end; {
			block, col := i/t.cols, i%t.cols
			n := min(t.cols-col, end-i)
			stretch := block / t.blocks
			t.inputBlock(stretch/t.stretches, stretch%t.stretches, block%t.blocks*inputRows, col, n)
			i += n
		}
	case chunkPhase:
		// One direction after the other: each has an R of its own.
		for i, hi := tensor.Span(t.dirs*t.batch, t.parts, part, 1); i < hi; {
			d := i / t.batch
			end := min(hi, (d+1)*t.batch)
			if t.apart {
				t.unitInputs(d, 0, 0, t.padded/gemm.Panel)
			}
			for s := t.first; s < t.first+t.count; s++ {
				if (s-t.first)%t.look == t.look-1 && t.pool.Ended() {
					return
				}
				for stage := range t.stages() {
					t.cells(d, i-d*t.batch, end-d*t.batch, s, stage, 0, t.hidden)
				}
			}
			i = end
		}
	}
}

// DoRound implements [RoundTask], for some of the hidden units' panels of all
// batch entries and directions: first the product of the inputs, then the stages
// of all steps.
func (t *recurrentTask[T]) DoRound(round, lo, hi int) {
	step, stage := t.first+(round-1)/t.stages(), (round-1)%t.stages()
	for lo < hi {
		unit, j := lo/t.cols, lo%t.cols
		n := min(t.cols-j, hi-lo)
		d, b := unit/t.batch, unit%t.batch
		if round == 0 {
			t.unitInputs(d, b, j, n)
		} else {
			from, to := j*gemm.Panel, min((j+n)*gemm.Panel, t.hidden)
			if stage == t.stages()-1 {
				// Others have read these lines: have them here when they are written.
				clear(t.states(1-step%2, d, b)[from:to])
			}
			t.cells(d, b, b+1, step, stage, from, to)
		}
		lo += n
	}
}

// cells computes a stage of step s for the batch entries [b0, b1) and the
// hidden units [lo, hi), lo being the first of a panel.
func (t *recurrentTask[T]) cells(d, b0, b1, s, stage, lo, hi int) {
	from, to := s%2, 1-s%2
	of := from
	if stage > 0 {
		of = 2
	}
	t.gateProducts(d, stage, b0, b1, s, lo, hi, of)
	for b := b0; b < b1; b++ {
		h, next := t.states(from, d, b)[lo:hi], t.states(to, d, b)[lo:hi]
		if !t.active(d, b, s) {
			copy(next, h)
			continue
		}
		t.unit(d, b, stage, lo, hi, t.gateRow(d, b, s), h, next)
		if t.y != nil && stage == t.stages()-1 {
			copy(t.y[t.outputIndex(d, b, t.time(d, s))+lo:][:hi-lo], next)
		}
	}
}

// unit computes the hidden units [lo, hi) of a batch entry from the sums of its
// gates and h, its H before the step, to next.
func (t *recurrentTask[T]) unit(d, b, stage, lo, hi int, sums, h, next []T) {
	if t.usual && t.vectorUnit(d, b, stage, lo, sums, h, next) {
		return
	}
	switch t.kind {
	case rnnCell:
		t.activate(t.acts[d][0], sums[lo:hi])
		copy(next, sums[lo:hi])
	case gruCell:
		if stage == 0 {
			multiplied := t.states(2, d, b)[lo:hi]
			copy(multiplied, h)
			t.reset(d, sums, lo, multiplied)
			return
		}
		t.update(d, sums, lo, h, next)
	case gruLinearCell:
		sum := t.lastSum(d, b)[lo:hi]
		t.reset(d, sums, lo, sum)
		for j, v := range sums[2*t.padded+lo:][:len(sum)] {
			sums[2*t.padded+lo+j] = v + sum[j]
		}
		t.update(d, sums, lo, h, next)
	case lstmCell:
		t.lstm(d, sums, lo, hi, t.states(2, d, b)[lo:hi], t.states(3, d, b)[lo:hi], next)
	}
}

// active reports whether a batch entry's sequence has the position of step s.
func (t *recurrentTask[T]) active(d, b, s int) bool {
	return t.lens == nil || t.time(d, s) < int(t.lens[b])
}

// reset multiplies x with a GRU's reset gate r = f(Xr + H·Rrᵀ), for the hidden
// units from lo on.
func (t *recurrentTask[T]) reset(d int, sums []T, lo int, x []T) {
	r := sums[t.padded+lo:][:len(x)]
	t.activate(t.acts[d][0], r)
	for j, v := range r {
		x[j] *= v
	}
}

// update computes a GRU's new H from the sums of its gates z and h:
//
//	z = f(Xz + H·Rzᵀ)     h = g(Xh + …)     H' = (1-z)∘h + z∘H
func (t *recurrentTask[T]) update(d int, sums []T, lo int, h, next []T) {
	z, g := sums[lo:][:len(h)], sums[2*t.padded+lo:][:len(h)]
	t.activate(t.acts[d][0], z)
	t.activate(t.acts[d][1], g)
	next = next[:len(h)]
	for j, v := range z {
		next[j] = T((1-v)*g[j]) + T(v*h[j])
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
	i, o := sums[lo:][:n], sums[t.padded+lo:][:n]
	f, g := sums[2*t.padded+lo:][:n], sums[3*t.padded+lo:][:n]
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
		c[j] = T(f[j]*c[j]) + T(i[j]*g[j])
	}
	if po != nil {
		addProducts(o, po, c)
	}
	t.activate(acts[0], o)
	copy(hc, c)
	acts[2](hc) // ONNX Runtime does not limit the cell, whatever ONNX says of the input of activations
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
