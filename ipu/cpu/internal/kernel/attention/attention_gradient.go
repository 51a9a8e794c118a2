package attention

import (
	"fmt"
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindAttentionGradient(op graph.Op, in, _ []graph.TensorType) (tensor.Kernel, error) {
	o := graph.Attention(*op.(*graph.AttentionGradient))
	switch in[0].DType {
	case graph.F32:
		return newAttentionGradient[float32](&o, in), nil
	case graph.F64:
		return newAttentionGradient[float64](&o, in), nil
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// gradientDY is the operand of an AttentionGradient that Attention has not.
const gradientDY = 5

// attentionGradient computes the gradients of Q, K and V in blocks of a few rows of Q, whose probabilities P are computed
// again, by rows. The units of work are the heads of K and V: all that adds up to their gradients is in one, in the order of heads and rows.
type attentionGradient[T tensor.Float] struct {
	attention[T]
	group int // heads of Q that share one of K and V
	task  attentionGradientTask[T]
}

func newAttentionGradient[T tensor.Float](o *graph.Attention, in []graph.TensorType) *attentionGradient[T] {
	k := &attentionGradient[T]{attention: *newAttention[T](o, in[:3+min(2, len(in)-3)], in[gradientDY:]), group: int(o.Heads / o.KVHeads)}
	k.byRows, k.mode = true, ""
	k.plan()
	k.slots = min(tensor.MaxParts, runtime.GOMAXPROCS(0))
	return k
}

// slotOf returns the elements of scratch memory for one part: probabilities, their gradients, capped scores, and a panel
// of K or V.
func (k *attentionGradient[T]) slotOf() int {
	n := 2*k.block*k.cols + max(k.k.size, k.v.size)*gemm.Panel
	if k.softcap > 0 {
		n += k.block * k.cols
	}
	return (n + 15) &^ 15
}

// Scratch implements [tensor.Kernel].
func (k *attentionGradient[T]) Scratch() int { return k.slots * k.slotOf() * tensor.ElementSize[T]() }

// attentionGradientTask is one run of an attentionGradient.
type attentionGradientTask[T tensor.Float] struct {
	attentionRun[T]
	group      int
	dy         []T
	dq, dk, dv []T
	size       int // of a slot
	next       tensor.Tickets
}

// Run implements [tensor.Kernel].
func (k *attentionGradient[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	at := func(list [][]byte, i int) []T { return tensor.View[T](tensor.Memory(list, i)) }
	t.attentionRun = attentionRun[T]{attention: &k.attention, qData: at(in, 0), kData: at(in, 1), vData: at(in, 2),
		lengths: tensor.View[int64](tensor.Memory(in, 4)), scratch: tensor.View[T](scratch)}
	t.group, t.size, t.dy, t.dq, t.dk, t.dv = k.group, k.slotOf(), at(in, gradientDY), at(out, 0), at(out, 1), at(out, 2)
	if k.isBool {
		t.boolBias = tensor.Memory(in, 3)
	} else {
		t.biasData = at(in, 3)
	}
	var err error
	if err = t.checkLengths(); err == nil {
		units := k.heads / k.group
		workers := tensor.WorkersFor(p, float64(k.heads)*float64(k.rows*k.cols)*float64(3*k.q.size+2*k.v.size+32)/32)
		t.next.Reset(p, units)
		p.Run(t, max(1, min(units, k.slots, workers)))
	}
	t.attentionRun, t.dy, t.dq, t.dk, t.dv = attentionRun[T]{}, nil, nil, nil, nil
	return err
}

// Do implements [tensor.Task].
func (t *attentionGradientTask[T]) Do(part int) {
	slot := t.scratch[part*t.size:][:t.size]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		first := unit * t.group
		t.clear(t.dk, &t.k, first, t.cols)
		t.clear(t.dv, &t.v, first, t.cols)
		for h := first; h < first+t.group; h++ {
			for lo := 0; lo < t.rows && !t.next.Pool.Ended(); lo += t.block {
				t.computeGradient(h, lo, min(lo+t.block, t.rows), slot)
			}
		}
	}
}

// clear sets the first rows of a head to zero.
func (t *attentionGradientTask[T]) clear(x []T, l *heads, head, rows int) {
	if x == nil {
		return
	}
	for i := range rows {
		clear(x[l.at(head, i):][:l.size])
	}
}

// computeGradient computes what the rows [lo, hi) of one head give. With P the probabilities, dP = dY·Vᵀ, dS = P∘(dP -
// rowsum(P∘dP)), what they add up to is dV = Pᵀ·dY, dQ = scale·dS·K and dK = scale·dSᵀ·Q.
func (t *attentionGradientTask[T]) computeGradient(h, lo, hi int, slot []T) {
	rows, cols := hi-lo, t.seen(h, hi-1)
	if t.dq != nil {
		for i := lo; i < hi; i++ {
			clear(t.dq[t.q.at(h, i):][:t.q.size])
		}
	}
	if cols == 0 {
		return
	}
	area := t.block * t.cols
	p, d, panel := slot[:rows*cols], slot[area:][:rows*cols], slot[2*area:]
	var capped []T
	if t.softcap > 0 {
		capped, panel = panel[:rows*cols], panel[area:]
	}
	t.products(h, lo, rows, cols, p, panel)
	for i := range rows {
		s := p[i*cols:][:cols]
		if capped != nil {
			softcap(s, t.softcap)
			copy(capped[i*cols:], s)
		}
		t.hideAndNormalise(h, lo+i, s)
	}
	dy := t.dy[t.y.at(h, lo):]
	if t.dv != nil && t.v.size > 0 {
		gemm.MultiplyBlock(t.dv[t.v.at(h, 0):], t.v.down, cols, t.v.size, gemm.Matrix[T]{Data: p, Row: 1, Col: cols}, dy, t.y.down, rows, 1)
	}
	if t.dq == nil && t.dk == nil || t.q.size == 0 {
		return
	}
	clear(d)
	if t.v.size > 0 {
		v, y := t.vData[t.v.at(h, 0):], gemm.Matrix[T]{Data: dy, Row: t.y.down, Col: 1}
		for j := 0; j < cols; j += gemm.Panel {
			n := min(gemm.Panel, cols-j)
			gemm.PackBlock(panel, gemm.Matrix[T]{Data: v[j*t.v.down:], Row: 1, Col: t.v.down}, t.v.size, n)
			gemm.MultiplyBlock(d[j:], cols, rows, n, y, panel, gemm.Panel, t.v.size, 1)
		}
	}
	for i := range rows {
		var c []T
		if capped != nil {
			c = capped[i*cols:][:cols]
		}
		backSoftmax(d[i*cols:][:cols], p[i*cols:][:cols], c, t.softcap)
	}
	if t.dq != nil {
		gemm.MultiplyBlock(t.dq[t.q.at(h, lo):], t.q.down, rows, t.q.size, gemm.Matrix[T]{Data: d, Row: cols, Col: 1}, t.kData[t.k.at(h, 0):], t.k.down, cols, t.scale)
	}
	if t.dk != nil {
		gemm.MultiplyBlock(t.dk[t.k.at(h, 0):], t.k.down, cols, t.k.size, gemm.Matrix[T]{Data: d, Row: 1, Col: cols}, t.qData[t.q.at(h, lo):], t.q.down, rows, t.scale)
	}
}

// backSoftmax makes the gradients d of the probabilities p of a row those of its scores, before they were capped if c has
// the capped ones.
func backSoftmax[T tensor.Float](d, p, c []T, limit T) {
	vec.Multiply(d, d, p)
	total, ok := vec.VectorSum(d)
	if !ok {
		for _, v := range d {
			total += float64(v)
		}
	}
	sum := T(total)
	p = p[:len(d)]
	for j, v := range p {
		d[j] -= T(sum * v)
	}
	r := 1 / limit
	for j, v := range c {
		v *= r
		d[j] *= 1 - T(v*v)
	}
}

// attentionGradientTableBytes: where every head begins in Q, K, V, the bias and the gradient of the result.
func attentionGradientTableBytes(op graph.Op, in, _ []graph.TensorType) int64 {
	return budget.Mul(5*8, max(1, tensor.Dimension(in[0], 0)), max(1, op.(*graph.AttentionGradient).Heads))
}
