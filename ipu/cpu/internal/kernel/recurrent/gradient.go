package recurrent

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func bindGradient(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType {
	case graph.F32:
		return newGradient[float32](op.(*graph.RecurrentGradient), in)
	case graph.F64:
		return newGradient[float64](op.(*graph.RecurrentGradient), in)
	}
	return nil, fmt.Errorf("no kernel for %v", in[0])
}

// The operands of a RecurrentGradient after initial_c.
const (
	gradientY = iota + recurrentP
	gradientDY
	gradientDH
	gradientDC
)

// The results of a RecurrentGradient.
const (
	gradientX = iota
	gradientW
	gradientR
	gradientB
	gradientH0
	gradientC0
)

// gradientCells are the kinds of cells by their names.
var gradientCells = map[string]cellKind{"lstm": lstmCell, "gru": gruCell, "linear gru": gruLinearCell, "rnn": rnnCell}

// gradient computes the gradients of a recurrent operator, one direction after the other. Since Y is known, what the gates
// add up is one product over all steps; then every batch entry goes through its gates and cells, and back through
// time; what is left are products over all steps again.
//
// Rows of all that has one for each step and batch entry lie in the order of X.
type gradient[T tensor.Float] struct {
	extent
	rows   int // steps·batch
	groups []gateGroup[T]

	// Offsets in scratch memory.
	beforeAt, cellAt, resetAt, sumAt int // H before each step, C after it, r∘H, a linear GRU's H·Rᵀ of the last gate
	carryAt, cellCarryAt, backAt     int // of each batch entry
	zeroAt, innerAt, scratch         int

	sigmoid, tanh activation[T]

	task gradientTask[T]
}

// gateGroup is gates that lie side by side: all of a cell or, of a GRU, the last one and the others.
type gateGroup[T tensor.Float] struct {
	first, count      int
	gatesAt, packedAt int // offsets in scratch memory, of the gates and of R in panels
	biasAt            int
	ofX, ofH          tensor.Kernel // X·Wᵀ + B, and what H·Rᵀ is added to
	toX, toXMore      tensor.Kernel // dX, and what is added to it
	toW, toR          tensor.Kernel
}

func newGradient[T tensor.Float](o *graph.RecurrentGradient, in []graph.TensorType) (tensor.Kernel, error) {
	k := &gradient[T]{}
	var err error
	if k.sigmoid, err = newActivation[T]("Sigmoid", 0, 0); err != nil {
		return nil, err
	}
	if k.tanh, err = newActivation[T]("Tanh", 0, 0); err != nil {
		return nil, err
	}
	k.kind = gradientCells[o.Cell]
	x := in[recurrentX].Shape
	k.steps, k.batch, k.input, k.hidden = int(x[0]), int(x[1]), int(x[2]), int(o.Hidden)
	if k.batchFirst = o.BatchFirst; k.batchFirst {
		k.steps, k.batch = k.batch, k.steps
	}
	k.dirs, k.reverse = int(in[recurrentW].Shape[0]), o.Direction == "reverse"
	k.gates, k.rows = cellKinds[k.kind].gates, k.steps*k.batch
	counts := []int{k.gates}
	if k.gates == 3 {
		counts = []int{2, 1}
	}
	first, inner := 0, 0
	for _, count := range counts {
		g := gateGroup[T]{first: first, count: count}
		n, err := g.bindProducts(k, in[0].DType, count)
		if err != nil {
			return nil, err
		}
		inner = max(inner, n)
		g.gatesAt, g.packedAt = k.take(k.rows*count*k.hidden), k.take(gemm.PackedLen(count*k.hidden, k.hidden))
		g.biasAt = k.take(count * k.hidden)
		k.groups = append(k.groups, g)
		first += count
	}
	k.beforeAt = k.take(k.rows * k.hidden)
	switch k.kind {
	case lstmCell:
		k.cellAt = k.take(k.rows * k.hidden)
		k.cellCarryAt, k.zeroAt = k.take(k.batch*k.hidden), k.take(k.hidden)
	case gruCell:
		k.resetAt = k.take(k.rows * k.hidden)
		k.backAt = k.take(k.batch * k.hidden)
	case gruLinearCell:
		k.sumAt = k.take(k.rows * k.hidden)
	}
	k.carryAt = k.take(k.batch * k.hidden)
	k.innerAt = k.scratch
	k.scratch += inner
	return k, nil
}

// take adds n elements to the scratch memory and returns where they are.
func (k *gradient[T]) take(n int) int {
	at := k.scratch
	k.scratch += (n*tensor.ElementSize[T]() + 63) &^ 63
	return at
}

// bindProducts binds the products of a group and returns the scratch memory that they need.
func (g *gateGroup[T]) bindProducts(k *gradient[T], d graph.DType, count int) (scratch int, err error) {
	of := func(rows, cols int) graph.TensorType {
		return graph.TensorType{DType: d, Shape: []int64{int64(rows), int64(cols)}}
	}
	width := count * k.hidden
	bias := graph.TensorType{DType: d, Shape: []int64{int64(width)}}
	bind := func(to *tensor.Kernel, o graph.Gemm, in ...graph.TensorType) {
		o.Alpha, o.Beta = 1, 1
		out, e := o.Infer(in)
		if e == nil {
			*to, e = gemm.Kernels["Gemm"](&o, in, out)
		}
		if e != nil {
			err = e
			return
		}
		scratch = max(scratch, (*to).Scratch())
	}
	x, h, gates := of(k.rows, k.input), of(k.rows, k.hidden), of(k.rows, width)
	w, r := of(width, k.input), of(width, k.hidden)
	from := gates
	if k.kind == gruLinearCell && g.first > 0 {
		from = bias
	}
	bind(&g.ofX, graph.Gemm{TransB: true}, x, w, bias)
	bind(&g.ofH, graph.Gemm{TransB: true}, h, r, from)
	bind(&g.toX, graph.Gemm{}, gates, w)
	bind(&g.toXMore, graph.Gemm{}, gates, w, x)
	bind(&g.toW, graph.Gemm{TransA: true}, gates, x)
	bind(&g.toR, graph.Gemm{TransA: true}, gates, h)
	return scratch, err
}

// Scratch implements [tensor.Kernel].
func (k *gradient[T]) Scratch() int { return k.scratch }

// Run implements [tensor.Kernel].
func (k *gradient[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.gradient, t.pool = k, p
	at := func(i int) []T { return tensor.View[T](tensor.Memory(in, i)) }
	t.b, t.h0, t.c0, t.y, t.dy, t.dh, t.dc = at(recurrentB), at(recurrentH), at(recurrentC), at(gradientY), at(gradientDY), at(gradientDH), at(gradientDC)
	t.lens = tensor.View[int32](tensor.Memory(in, recurrentLens))
	for i, n := range t.lens {
		if n < 0 || int(n) > t.steps {
			*t = gradientTask[T]{}
			return fmt.Errorf("sequence_lens[%d] is %d, want 0 to %d, the time steps of X", i, n, k.steps)
		}
	}
	part := func(at, n int) []T { return tensor.View[T](scratch[at:][:n*tensor.ElementSize[T]()]) }
	t.before, t.carry = part(k.beforeAt, k.rows*k.hidden), part(k.carryAt, k.batch*k.hidden)
	switch k.kind {
	case lstmCell:
		t.cell, t.cellCarry, t.zero = part(k.cellAt, k.rows*k.hidden), part(k.cellCarryAt, k.batch*k.hidden), part(k.zeroAt, k.hidden)
		clear(t.zero)
	case gruCell:
		t.reset, t.back = part(k.resetAt, k.rows*k.hidden), part(k.backAt, k.batch*k.hidden)
	case gruLinearCell:
		t.sum = part(k.sumAt, k.rows*k.hidden)
	}
	for i := range k.groups {
		g := &k.groups[i]
		t.gates[i] = part(g.gatesAt, k.rows*g.count*k.hidden)
		t.packed[i] = part(g.packedAt, gemm.PackedLen(g.count*k.hidden, k.hidden))
		t.bias[i] = part(g.biasAt, g.count*k.hidden)
	}
	t.in, t.out, t.inner = in, out, scratch[k.innerAt:]
	var err error
	for t.d = 0; t.d < k.dirs && err == nil; t.d++ {
		err = t.direction()
	}
	*t = gradientTask[T]{}
	return err
}
