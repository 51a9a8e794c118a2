package kernel

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var attentionKernels = map[string]binder{
	"Attention":       widened(bindAttention),
	"LinearAttention": widened(bindLinearAttention),
}

func bindAttention(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.Attention)
	switch in[0].DType {
	case graph.F32:
		return newAttention[float32](o, in, out), nil
	case graph.F64:
		return newAttention[float64](o, in, out), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// heads is how the rows of an operand of attention lie in memory.
type heads struct{ batch, head, row, size int }

// newHeads returns the layout of [batch, heads, sequence, size] or [batch,
// sequence, heads·size].
func newHeads(shape []int64, n int) heads {
	if len(shape) == 4 {
		sequence, size := int(shape[2]), int(shape[3])
		return heads{n * sequence * size, sequence * size, size, size}
	}
	sequence, width := int(shape[1]), int(shape[2])
	return heads{sequence * width, width / n, width, width / n}
}

// at returns where a row begins.
func (h heads) at(batch, head, row int) int { return batch*h.batch + head*h.head + row*h.row }

// attention computes softmax(scale·Q·Kᵀ + bias)·V in blocks of a few rows of
// Q, whose scores stay in the cache.
type attention[T float] struct {
	batch, heads, group int // group: heads of Q that share one of K and V
	rows, cols          int // of the scores: the sequences of Q and of K
	q, k, v, y          heads
	scale               T
	softcap             T
	causal              bool
	past                int
	bias                [4]int              // strides
	isBool              bool                // the bias is
	mode                graph.ScoresMode    // "" if nobody wants the scores
	add                 func(dst, a, b []T) // by vectors, nil if there is none

	block  int // rows of Q taken together
	slots  int // parts that have scratch memory
	packed bool
	task   attentionTask[T]
}

// attentionBlockBytes is about the memory for the scores of one block.
const attentionBlockBytes = 128 << 10

func newAttention[T float](o *graph.Attention, in, out []graph.TensorType) *attention[T] {
	n, kv := int(o.Heads), int(o.KVHeads)
	k := &attention[T]{
		batch: int(in[0].Shape[0]), heads: n, group: n / kv,
		q: newHeads(in[0].Shape, n), k: newHeads(in[1].Shape, kv), v: newHeads(in[2].Shape, kv),
		scale: T(o.Scale), softcap: T(o.Softcap), causal: o.Causal, past: int(o.Past),
	}
	k.rows, k.cols = sequence(in[0].Shape), sequence(in[1].Shape)
	k.add = vectorBinary[T](graph.Add)
	k.y = heads{n * k.rows * k.v.size, k.rows * k.v.size, k.v.size, k.v.size}
	if len(in[0].Shape) == 3 {
		k.y = heads{k.rows * n * k.v.size, k.v.size, n * k.v.size, k.v.size}
	}
	if b := operand(in, 3); b.DType != graph.Invalid {
		k.isBool = b.DType == graph.Bool
		copy(k.bias[:], broadcastStrides([]int64{in[0].Shape[0], o.Heads, int64(k.rows), int64(k.cols)}, b.Shape))
	}
	if operand(out, 1).DType != graph.Invalid {
		k.mode = o.Scores
	}
	size := elementSize[T]()
	k.block = max(1, min(k.rows, max(8, min(64, attentionBlockBytes/max(1, k.cols*size)))))
	k.packed = k.block > narrow
	k.slots = min(maxParts, 4*runtime.GOMAXPROCS(0))
	return k
}

// sequence returns the length of the sequences of an operand of attention.
func sequence(shape []int64) int { return int(shape[len(shape)-2]) }

// slot returns the elements of scratch memory for one part: the scores of one
// block, and a panel of K.
func (k *attention[T]) slot() int {
	n := k.block * k.cols
	if k.packed {
		n += k.k.size * panel
	}
	return (n + 15) &^ 15
}

// Scratch implements [Kernel].
func (k *attention[T]) Scratch() int { return k.slots * k.slot() * elementSize[T]() }

// Run implements [Kernel].
func (k *attention[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	*t = attentionTask[T]{attention: k, qData: view[T](in[0]), kData: view[T](in[1]), vData: view[T](in[2]),
		yData: view[T](memory(out, 0)), scores: view[T](memory(out, 1)), lengths: view[int64](memory(in, 4)), scratch: view[T](scratch)}
	t.hasY, t.hasBias = memory(out, 0) != nil, memory(in, 3) != nil
	if k.isBool {
		t.boolBias = memory(in, 3)
	} else {
		t.bias = view[T](memory(in, 3))
	}
	for b, n := range t.lengths {
		if n < 0 || n > int64(k.cols) {
			*t = attentionTask[T]{}
			return fmt.Errorf("lengths[%d] is %d, want 0 to %d, the elements of K's sequences", b, n, k.cols)
		}
	}
	t.blocks = (k.rows + k.block - 1) / k.block
	units := k.batch * k.heads * t.blocks
	t.parts = min(cut(p, units, k.block*k.cols*(k.k.size+k.v.size+16)/2+1), k.slots)
	p.Run(t, t.parts)
	*t = attentionTask[T]{}
	return nil
}

// attentionTask is one run of an attention.
type attentionTask[T float] struct {
	*attention[T]
	qData, kData, vData []T
	bias                []T
	boolBias            []byte
	hasBias, hasY       bool
	lengths             []int64
	yData, scores       []T
	scratch             []T
	blocks, parts       int
}

// Do implements [Task].
func (t *attentionTask[T]) Do(part int) {
	slot := t.scratch[part*t.slot():][:t.slot()]
	for i, end := span(t.batch*t.heads*t.blocks, t.parts, part, 1); i < end; i++ {
		row := i % t.blocks * t.block
		head := i / t.blocks % t.heads
		t.compute(i/t.blocks/t.heads, head, row, min(row+t.block, t.rows), slot)
	}
}

// compute computes the rows [lo, hi) of one head.
func (t *attentionTask[T]) compute(b, h, lo, hi int, slot []T) {
	cols := t.cols
	if t.mode == "" {
		cols = t.seen(b, hi-1) // the rows before see less
	}
	rows := hi - lo
	s := slot[:rows*cols]
	t.products(b, h, lo, rows, cols, s, slot[t.block*t.cols:])
	for i := range rows {
		t.probabilities(b, h, lo+i, s[i*cols:][:cols])
	}
	if !t.hasY {
		return
	}
	y := t.yData[t.y.at(b, h, lo):]
	for i := range rows {
		clear(y[i*t.y.row:][:t.y.size])
	}
	if cols > 0 && t.v.size > 0 {
		multiplyBlock(y, t.y.row, rows, t.v.size, matrix[T]{s, cols, 1}, t.vData[t.v.at(b, h/t.group, 0):], t.v.row, cols, 1)
	}
}

// seen returns how many elements of K's sequence row i may look at.
func (t *attentionTask[T]) seen(b, i int) int {
	n, offset := t.cols, t.past
	if t.lengths != nil {
		n = int(t.lengths[b])
		offset = n - t.rows
	}
	if t.causal {
		n = max(0, min(n, i+offset+1))
	}
	return n
}

// products sets s to the scaled products of rows of Q and the first cols rows
// of K.
func (t *attentionTask[T]) products(b, h, lo, rows, cols int, s, buf []T) {
	clear(s)
	if t.q.size == 0 || cols == 0 {
		return
	}
	q := matrix[T]{t.qData[t.q.at(b, h, lo):], t.q.row, 1}
	k := t.kData[t.k.at(b, h/t.group, 0):]
	if !t.packed {
		for i := range rows {
			multiplyDot(s[i*cols:][:cols], q.data[i*q.row:][:t.q.size], k, t.k.row, t.scale)
		}
		return
	}
	buf = buf[:t.q.size*panel]
	for j := 0; j < cols; j += panel {
		n := min(panel, cols-j)
		packBlock(buf, matrix[T]{k[j*t.k.row:], 1, t.k.row}, t.q.size, n)
		multiplyBlock(s[j:], cols, rows, n, q, buf, panel, t.q.size, t.scale)
	}
}

// probabilities turns the products of one row into probabilities, and writes
// what is wanted on the way.
func (t *attentionTask[T]) probabilities(b, h, i int, s []T) {
	t.keep(graph.ScoresRaw, b, h, i, s)
	if t.softcap > 0 {
		softcap(s, t.softcap)
	}
	t.keep(graph.ScoresCapped, b, h, i, s)
	n := min(t.seen(b, i), len(s))
	look := n > 0
	if t.hasBias {
		look = t.addBias(b, h, i, s[:n])
	}
	for j := n; j < len(s); j++ {
		s[j] = T(math.Inf(-1))
	}
	t.keep(graph.ScoresBiased, b, h, i, s)
	if look {
		normalise(s[:n])
		clear(s[n:])
	} else {
		clear(s)
	}
	t.keep(graph.ScoresProbabilities, b, h, i, s)
}

// keep writes row i of the scores if they are wanted as they are now.
func (t *attentionTask[T]) keep(now graph.ScoresMode, b, h, i int, s []T) {
	if t.mode == now {
		copy(t.scores[((b*t.heads+h)*t.rows+i)*t.cols:], s)
	}
}

// addBias adds the bias of row i to s and reports whether it leaves anything
// to look at.
func (t *attentionTask[T]) addBias(b, h, i int, s []T) bool {
	at, step := b*t.attention.bias[0]+h*t.attention.bias[1]+i*t.attention.bias[2], t.attention.bias[3]
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
		row := t.bias[at:][:len(s)]
		t.add(s, s, row)
		return slices.ContainsFunc(row, func(v T) bool { return v != least })
	}
	for j := range s {
		v := t.bias[at+j*step]
		s[j] += v
		look = look || v != least
	}
	return look
}

// softcap limits x softly to ±limit.
func softcap[T float](x []T, limit T) {
	r := 1 / limit
	for i := range x {
		x[i] *= r
	}
	switch x := any(x).(type) {
	case []float32:
		tanhF32(x, x)
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
func normalise[T float](x []T) {
	if vectorSoftmax(x, x, false) {
		return
	}
	most := x[0]
	for _, v := range x {
		most = max(most, v)
	}
	for i := range x {
		x[i] -= most
	}
	exponentials(x, x)
	r := T(1 / longSum(x))
	for i := range x {
		x[i] *= r
	}
}
