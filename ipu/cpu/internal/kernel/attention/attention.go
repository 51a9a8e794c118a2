package attention

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/reduce"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindAttention(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Attention)
	switch in[0].DType {
	case graph.F32:
		return newAttention[float32](o, in, out), nil
	case graph.F64:
		return newAttention[float64](o, in, out), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// heads is where the elements of the heads of an operand of attention lie.
type heads struct {
	first        []int // elements of the heads, in the order of batch and head
	down, across int   // strides
	size         int   // elements of a row
}

// newHeads returns the layout of [batch, heads, sequence, size] or [batch,
// sequence, heads·size]; each of n heads counts for group heads.
func newHeads(shape []int64, n, group int) heads {
	h := heads{across: 1}
	var batch, head int
	if len(shape) == 4 {
		sequence, size := int(shape[2]), int(shape[3])
		h.size, h.down, head, batch = size, size, sequence*size, n*sequence*size
	} else {
		sequence, width := int(shape[1]), int(shape[2])
		h.size, h.down, head, batch = width/n, width, width/n, sequence*width
	}
	h.first = make([]int, 0, int(shape[0])*n*group)
	for b := range int(shape[0]) {
		for i := range n * group {
			h.first = append(h.first, b*batch+i/group*head)
		}
	}
	return h
}

// at returns where a row of a head begins.
func (h *heads) at(head, row int) int { return h.first[head] + row*h.down }

// attention computes softmax(scale·Q·Kᵀ + bias)·V in blocks of a few rows of
// Q, whose scores stay in the cache.
//
// Scores lie by columns: those of up to panel rows of Q side by side, for one
// row of K after the other. Then K is read in place, whatever its strides, a
// bias that is the same for all rows is one number for each row of scores, and
// the softmax of a row is one of many lanes, which has nothing to add across
// lanes. Where scores are wanted themselves, capped or hidden by bools, and for
// a single row or a few, they lie by rows.
type attention[T tensor.Float] struct {
	heads, perBatch int // all, those of an entry of the batch
	rows, cols      int // of the scores: the sequences of Q and of K
	q, k, v, y      heads
	scale           T
	softcap         T
	causal          bool
	past            int
	bias            heads
	hasBias         bool
	isBool          bool                // the bias is
	noNaN           bool                // probabilities that are NaN count as 0
	hidden          bool                // rows that see nothing have probabilities of 0, not NaN
	mode            graph.ScoresMode    // "" if nobody wants the scores
	add             func(dst, a, b []T) // with SIMD instructions, nil if there is none

	byRows bool // the scores lie by rows
	block  int  // rows of Q taken together
	slots  int  // parts that have scratch memory
	packed bool // K is, where scores lie by rows
	task   attentionTask[T]
}

// attentionBlockBytes is about the memory for the scores of one block.
const attentionBlockBytes = 128 << 10

func newAttention[T tensor.Float](o *graph.Attention, in, out []graph.TensorType) *attention[T] {
	n, kv := int(o.Heads), int(o.KVHeads)
	batch := int(in[0].Shape[0])
	k := &attention[T]{
		heads: batch * n, perBatch: n, hidden: true,
		q: newHeads(in[0].Shape, n, 1), k: newHeads(in[1].Shape, kv, n/kv), v: newHeads(in[2].Shape, kv, n/kv),
		scale: T(o.Scale), softcap: T(o.Softcap), causal: o.Causal, past: int(o.Past),
	}
	k.rows, k.cols = sequence(in[0].Shape), sequence(in[1].Shape)
	y := []int64{int64(batch), o.Heads, int64(k.rows), int64(k.v.size)}
	if len(in[0].Shape) == 3 {
		y = []int64{int64(batch), int64(k.rows), o.Heads * int64(k.v.size)}
	}
	k.y = newHeads(y, n, 1)
	if b := tensor.Operand(in, 3); b.DType != graph.Invalid {
		k.hasBias, k.isBool = true, b.DType == graph.Bool
		s := tensor.BroadcastStrides([]int64{int64(batch), o.Heads, int64(k.rows), int64(k.cols)}, b.Shape)
		k.bias.down, k.bias.across = s[2], s[3]
		k.bias.first = make([]int, 0, k.heads)
		for i := range k.heads {
			k.bias.first = append(k.bias.first, i/n*s[0]+i%n*s[1])
		}
	}
	if tensor.Operand(out, 1).DType != graph.Invalid {
		k.mode = o.Scores
	}
	k.byRows = k.mode != "" || tensor.Operand(out, 0).DType == graph.Invalid || k.softcap > 0 || k.isBool || k.rows <= gemm.Narrow
	return k.plan()
}

func bindViewedAttention(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.ViewedAttention)
	switch in[0].DType {
	case graph.F32:
		return newViewedAttention[float32](o), nil
	case graph.F64:
		return newViewedAttention[float64](o), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

func newViewedAttention[T tensor.Float](o *graph.ViewedAttention) *attention[T] {
	n := tensor.Elements(o.Heads)
	k := &attention[T]{
		heads: n, perBatch: n, rows: int(o.Rows), cols: int(o.Cols),
		q: viewedHeads(o.Heads, o.Q, o.Size), k: viewedHeads(o.Heads, o.K, o.Size),
		v: viewedHeads(o.Heads, o.V, o.Width), y: viewedHeads(o.Heads, o.Y, o.Width),
		scale: T(o.Scale), causal: o.Causal, noNaN: o.NoNaN, past: int(o.Past), hasBias: len(o.Bias) > 0,
	}
	if k.hasBias {
		k.bias = viewedHeads(o.Heads, o.Bias, o.Cols)
	}
	return k.plan()
}

// viewedHeads returns the layout that an attribute of [graph.ViewedAttention]
// describes.
func viewedHeads(grid, at []int64, size int64) heads {
	h := heads{first: []int{int(at[0])}, down: int(at[len(at)-2]), across: int(at[len(at)-1]), size: int(size)}
	for i, n := range grid {
		next := make([]int, 0, len(h.first)*int(n))
		for _, first := range h.first {
			for j := range int(n) {
				next = append(next, first+j*int(at[1+i]))
			}
		}
		h.first = next
	}
	return h
}

// plan decides how to divide the work.
func (k *attention[T]) plan() *attention[T] {
	k.add = vec.VectorBinary[T](graph.Add)
	k.block = gemm.Panel
	if k.byRows {
		k.block = max(1, min(k.rows, max(8, min(64, attentionBlockBytes/max(1, k.cols*tensor.ElementSize[T]())))))
		k.packed = k.block > gemm.Narrow
	}
	k.slots = min(tensor.MaxParts, runtime.GOMAXPROCS(0))
	return k
}

// sequence returns the length of the sequences of an operand of attention.
func sequence(shape []int64) int { return int(shape[len(shape)-2]) }

// slot returns the elements of scratch memory for one part: the scores of one
// block and, where they lie by rows, a panel of K, else one of Q and as much of
// the bias as goes into [biasRows] rows of scores.
func (k *attention[T]) slot() int {
	n := k.block * k.cols
	switch {
	case !k.byRows:
		n += k.q.size * gemm.Panel
		if k.bias.down != 0 {
			n += biasRows * gemm.Panel
		}
	case k.packed:
		n += k.k.size * gemm.Panel
	}
	return (n + 15) &^ 15
}

// Scratch implements [Kernel].
func (k *attention[T]) Scratch() int { return k.slots * k.slot() * tensor.ElementSize[T]() }

// Run implements [Kernel].
func (k *attention[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.attentionRun = attentionRun[T]{attention: k, qData: tensor.View[T](in[0]), kData: tensor.View[T](in[1]), vData: tensor.View[T](in[2]),
		yData: tensor.View[T](tensor.Memory(out, 0)), scores: tensor.View[T](tensor.Memory(out, 1)), lengths: tensor.View[int64](tensor.Memory(in, 4)), scratch: tensor.View[T](scratch)}
	t.hasY = tensor.Memory(out, 0) != nil
	if k.isBool {
		t.boolBias = tensor.Memory(in, 3)
	} else {
		t.biasData = tensor.View[T](tensor.Memory(in, 3))
	}
	if err := t.checkLengths(); err != nil {
		t.attentionRun = attentionRun[T]{}
		return err
	}
	t.blocks = (k.rows + k.block - 1) / k.block
	units := k.heads * t.blocks
	// Two elements' products take as long as half of an operation with SIMD instructions;
	// an exponential as long as one.
	workers := tensor.WorkersFor(p, float64(units)*float64(min(k.rows, k.block)*k.cols)*float64(k.q.size+k.v.size+32)/32)
	if parts := min(units, k.slots, workers); parts > 1 {
		t.next.Reset(p, units)
		p.Run(t, parts)
	} else {
		for unit := range units {
			if p.Ended() {
				break
			}
			t.compute(unit, t.scratch[:k.slot()])
		}
	}
	t.attentionRun = attentionRun[T]{}
	return nil
}

// checkLengths refuses lengths beyond K's sequences.
func (t *attentionRun[T]) checkLengths() error {
	for b, n := range t.lengths {
		if n < 0 || n > int64(t.cols) {
			return fmt.Errorf("lengths[%d] is %d, want 0 to %d, the elements of K's sequences", b, n, t.cols)
		}
	}
	return nil
}

// attentionTask is one run of an attention. The units of work are blocks of
// rows; parts take the next unit until none is left.
type attentionTask[T tensor.Float] struct {
	attentionRun[T]
	next tensor.Tickets
}

// attentionRun is what a run works on.
type attentionRun[T tensor.Float] struct {
	*attention[T]
	qData, kData, vData []T
	biasData            []T
	boolBias            []byte
	hasY                bool
	lengths             []int64
	yData, scores       []T
	scratch             []T
	blocks              int // of a head
}

// Do implements [Task].
func (t *attentionTask[T]) Do(part int) {
	slot := t.scratch[part*t.slot():][:t.slot()]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		t.compute(unit, slot)
	}
}

// compute computes one block of rows.
func (t *attentionRun[T]) compute(unit int, slot []T) {
	h, lo := unit/t.blocks, unit%t.blocks*t.block
	hi := min(lo+t.block, t.rows)
	if t.byRows {
		t.computeByRows(h, lo, hi, slot)
	} else {
		t.computeByColumns(h, lo, hi, slot)
	}
}

// computeByRows computes the rows [lo, hi) of one head from scores by rows.
func (t *attentionRun[T]) computeByRows(h, lo, hi int, slot []T) {
	cols := t.cols
	if t.mode == "" {
		cols = t.seen(h, hi-1) // the rows before see less
	}
	rows := hi - lo
	s := slot[:rows*cols]
	t.products(h, lo, rows, cols, s, slot[t.block*t.cols:])
	for i := range rows {
		t.probabilities(h, lo+i, s[i*cols:][:cols])
	}
	if !t.hasY {
		return
	}
	y := t.yData[t.y.at(h, lo):]
	for i := range rows {
		clear(y[i*t.y.down:][:t.y.size])
	}
	if cols > 0 && t.v.size > 0 {
		gemm.MultiplyBlock(y, t.y.down, rows, t.v.size, gemm.Matrix[T]{Data: s, Row: cols, Col: 1}, t.vData[t.v.at(h, 0):], t.v.down, cols, 1)
	}
}

// seen returns how many elements of K's sequence row i may look at.
func (t *attentionRun[T]) seen(h, i int) int {
	n := t.cols
	if t.lengths != nil {
		n = int(t.lengths[h/t.perBatch])
	}
	if t.causal {
		n = max(0, min(n, i+t.offset(h)+1))
	}
	return n
}

// offset returns how far a row of a causal attention looks beyond the column
// of its own number.
func (t *attentionRun[T]) offset(h int) int {
	if t.lengths != nil {
		return int(t.lengths[h/t.perBatch]) - t.rows
	}
	return t.past
}

// products sets s to the scaled products of rows of Q and the first cols rows
// of K.
func (t *attentionRun[T]) products(h, lo, rows, cols int, s, buf []T) {
	clear(s)
	if t.q.size == 0 || cols == 0 {
		return
	}
	q := gemm.Matrix[T]{Data: t.qData[t.q.at(h, lo):], Row: t.q.down, Col: 1}
	k := t.kData[t.k.at(h, 0):]
	if !t.packed {
		for i := range rows {
			gemm.MultiplyDot(s[i*cols:][:cols], q.Data[i*q.Row:][:t.q.size], k, t.k.down, t.scale)
		}
		return
	}
	buf = buf[:t.q.size*gemm.Panel]
	for j := 0; j < cols; j += gemm.Panel {
		n := min(gemm.Panel, cols-j)
		gemm.PackBlock(buf, gemm.Matrix[T]{Data: k[j*t.k.down:], Row: 1, Col: t.k.down}, t.q.size, n)
		gemm.MultiplyBlock(s[j:], cols, rows, n, q, buf, gemm.Panel, t.q.size, t.scale)
	}
}

// probabilities turns the products of one row into probabilities, and writes
// what is wanted on the way.
func (t *attentionRun[T]) probabilities(h, i int, s []T) {
	t.keep(graph.ScoresRaw, h, i, s)
	if t.softcap > 0 {
		softcap(s, t.softcap)
	}
	t.keep(graph.ScoresCapped, h, i, s)
	t.hideAndNormalise(h, i, s)
	t.keep(graph.ScoresProbabilities, h, i, s)
}

// hideAndNormalise adds the bias to the scores of one row, hides what it does not look at, and turns them into probabilities.
func (t *attentionRun[T]) hideAndNormalise(h, i int, s []T) {
	n := min(t.seen(h, i), len(s))
	look := n > 0
	if t.hasBias {
		look = t.addBias(h, i, s[:n])
	}
	for j := n; j < len(s); j++ {
		s[j] = T(math.Inf(-1))
	}
	t.keep(graph.ScoresBiased, h, i, s)
	if look {
		normalise(s[:n])
		clear(s[n:])
	} else {
		clear(s)
	}
}

// keep writes row i of the scores if they are wanted as they are now.
func (t *attentionRun[T]) keep(now graph.ScoresMode, h, i int, s []T) {
	if t.mode == now {
		copy(t.scores[(h*t.rows+i)*t.cols:], s)
	}
}

// addBias adds the bias of row i to s and reports whether it leaves anything
// to look at.
func (t *attentionRun[T]) addBias(h, i int, s []T) bool {
	at, step := t.bias.at(h, i), t.bias.across
	look := false
	if t.boolBias != nil {
		for j := range s {
			if t.boolBias[at+j*step] != 0 {
				look = true
			} else {
				s[j] = T(math.Inf(-1))
			}
		}
		return look
	}
	least := T(math.Inf(-1))
	if step == 1 && t.add != nil {
		row := t.biasData[at:][:len(s)]
		t.add(s, s, row)
		return slices.ContainsFunc(row, func(v T) bool { return v != least })
	}
	for j := range s {
		v := t.biasData[at+j*step]
		s[j] += v
		look = look || v != least
	}
	return look
}

// softcap limits x softly to ±limit.
func softcap[T tensor.Float](x []T, limit T) {
	r := 1 / limit
	for i := range x {
		x[i] *= r
	}
	switch x := any(x).(type) {
	case []float32:
		vec.TanhF32(x, x)
	case []float64:
		for i, v := range x {
			x[i] = math.Tanh(v)
		}
	}
	for i := range x {
		x[i] *= limit
	}
}

// normalise computes the softmax of x, which is not empty, in place.
func normalise[T tensor.Float](x []T) {
	if vec.VectorSoftmax(x, x, false) {
		return
	}
	most := x[0]
	for _, v := range x {
		most = max(most, v)
	}
	for i := range x {
		x[i] -= most
	}
	reduce.Exponentials(x, x)
	r := T(1 / reduce.LongSum(x))
	for i := range x {
		x[i] *= r
	}
}

// attentionTableBytes: where every head begins in Q, K, V, the bias and the result.
func attentionTableBytes(op graph.Op, in, _ []graph.TensorType) int64 {
	return budget.Mul(5*8, max(1, tensor.Dimension(in[0], 0)), max(1, op.(*graph.Attention).Heads))
}

// viewedAttentionTableBytes: the same, axis by axis.
func viewedAttentionTableBytes(op graph.Op, _, _ []graph.TensorType) int64 {
	return budget.Mul(2*5*8, tensor.AtLeastOne(op.(*graph.ViewedAttention).Heads))
}
