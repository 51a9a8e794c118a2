package gemm

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// method is a way to go over B.
type method uint8

const (
	byPanels method = iota // copy B block by block into a panel, or find it packed
	byRows                 // B's rows lie contiguously and A is narrow: use them in place
	byDots                 // B's columns lie contiguously and A is narrow: inner products
)

// PlainOperand is an operand of a product as it lies in memory: one or more
// matrices of the same shape and strides.
type PlainOperand struct {
	index    int   // of the operand, -1 if left out
	Row, Col int   // strides
	Offsets  []int // of each product's matrix
}

// bounds are what the elements of a result are kept within, if on is set, as
// [graph.Clip] does.
type bounds[T tensor.Number] struct {
	on        bool
	low, high T
}

// apply limits rows×cols elements of y.
func (b *bounds[T]) apply(y []T, ldy, rows, cols int) {
	if !b.on {
		return
	}
	for row := range rows {
		y := y[row*ldy:][:cols]
		for i, v := range y {
			y[i] = min(max(v, b.low), b.high)
		}
	}
}

// product computes Y = alpha·A·B + beta·C for a batch of matrices, within bounds.
type product[T tensor.Number] struct {
	m, n, k     int
	a, b, c     PlainOperand
	alpha, beta T
	bounds      bounds[T]
	method      method
	packed      bool // B comes in panels
	slots       int  // parts that have a block of scratch memory

	task productTask[T]
}

// newProduct chooses how to compute a batch of products whose operands and
// strides are given.
func newProduct[T tensor.Number](t product[T]) tensor.Kernel {
	if len(t.a.Offsets) > 1 && OneMatrix(t.b.Offsets) && t.c.index < 0 && Follow(t.a, t.m, t.k) {
		t.m *= len(t.a.Offsets)
		t.a.Offsets, t.b.Offsets = t.a.Offsets[:1], t.b.Offsets[:1]
	}
	if t.n == 1 && t.m != 1 {
		// A column is computed as a row: Yᵀ = Bᵀ·Aᵀ.
		t.m, t.n = t.n, t.m
		t.a, t.b = t.b, t.a
		t.a.Row, t.a.Col = t.a.Col, t.a.Row
		t.b.Row, t.b.Col = t.b.Col, t.b.Row
		t.c.Row, t.c.Col = t.c.Col, t.c.Row
	}
	switch {
	case t.m <= Narrow && t.b.Col == 1:
		t.method = byRows
	case t.m <= Narrow && t.b.Row == 1 && (t.a.Col == 1 || t.k == 1):
		t.method = byDots
	}
	if k := vectorized(&t); k != nil {
		return k
	}
	t.slots = min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0))
	return &t
}

// OneMatrix reports whether all products use the same matrix.
func OneMatrix(offsets []int) bool {
	for _, o := range offsets {
		if o != offsets[0] {
			return false
		}
	}
	return len(offsets) > 0
}

// Follow reports whether the m×k matrices of a lie row-major one after the
// other, so that they can be taken for one of more rows.
func Follow(a PlainOperand, m, k int) bool {
	if a.Col != 1 || a.Row != k {
		return false
	}
	for i, o := range a.Offsets {
		if o != i*m*k {
			return false
		}
	}
	return true
}

// Scratch implements [Kernel].
func (t *product[T]) Scratch() int {
	if t.method != byPanels || t.packed {
		return 0
	}
	return t.slots * blockBytes
}

// Packed implements [Packer].
func (t *product[T]) Packed(i int) int {
	if t.method != byPanels || i != t.b.index || t.k == 0 || t.n == 0 {
		return 0
	}
	return t.matrices() * PackedLen(t.k, t.n) * tensor.ElementSize[T]()
}

// matrices returns how many different matrices operand B has.
func (t *product[T]) matrices() int {
	n := 0
	for _, o := range t.b.Offsets {
		n = max(n, o/(t.k*t.n)+1)
	}
	return n
}

// Pack implements [Packer].
func (t *product[T]) Pack(_ int, dst, src []byte) {
	d, s := tensor.View[T](dst), tensor.View[T](src)
	size, packed := t.k*t.n, PackedLen(t.k, t.n)
	for i := range t.matrices() {
		PackPanels(d[i*packed:][:packed], Matrix[T]{s[i*size:], t.b.Row, t.b.Col}, t.k, t.n)
	}
}

// Packing implements [Packer].
func (t *product[T]) Packing(int) tensor.Packing {
	return tensor.PackingOf("panels", tensor.ElementSize[T](), t.matrices(), t.k, t.n, t.b.Row, t.b.Col)
}

// UsePacked implements [Packer].
func (t *product[T]) UsePacked(int) { t.packed = true }

// Run implements [Kernel].
func (t *product[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	w := &t.task
	*w = productTask[T]{product: t, pool: p, y: tensor.View[T](out[0]), a: tensor.View[T](in[t.a.index]), b: tensor.View[T](in[t.b.index]), scratch: tensor.View[T](scratch)}
	if t.c.index >= 0 {
		w.c = tensor.View[T](in[t.c.index])
	}
	if len(w.y) == 0 {
		return nil
	}
	w.width = Panel
	switch t.method {
	case byRows:
		w.width = 512
	case byDots:
		w.width = 64
	}
	w.colBlocks = (t.n + w.width - 1) / w.width
	blocks := w.colBlocks * len(t.a.Offsets)
	w.height = t.m
	workers := tensor.WorkersFor(p, float64(len(w.y))*float64(t.k))
	if want := 2 * workers; workers > 1 && blocks < want {
		// Too few columns for all workers: divide the rows too.
		w.height = max(16, (t.m*blocks/want+1)&^1)
	}
	// So that a run can be cancelled after a while.
	w.height = min(w.height, max(256, 16*tensor.Long/(w.width*max(1, t.k))))
	w.rowBlocks = (t.m + w.height - 1) / w.height
	w.blocks = blocks * w.rowBlocks
	w.parts = min(w.blocks, 4*workers, t.slots)
	if workers == 1 {
		w.parts = 1
	}
	p.Run(w, w.parts)
	*w = productTask[T]{}
	return nil
}

// productTask is one run of a product. The result is cut into blocks of
// height×width elements.
type productTask[T tensor.Number] struct {
	*product[T]
	y, a, b, c           []T
	scratch              []T
	width, height        int
	colBlocks, rowBlocks int
	blocks, parts        int
	pool                 tensor.Pool
}

// Do implements [Task].
func (w *productTask[T]) Do(part int) {
	var buf []T
	if w.method == byPanels && !w.packed {
		size := blockBytes / tensor.ElementSize[T]()
		buf = w.scratch[part*size:][:size]
	}
	for i, end := tensor.Span(w.blocks, w.parts, part, 1); i < end; i++ {
		if w.pool.Ended() {
			return
		}
		w.compute(i, buf)
	}
}

// compute computes one block of the result.
func (w *productTask[T]) compute(i int, buf []T) {
	j := i % w.colBlocks * w.width
	i /= w.colBlocks
	r := i % w.rowBlocks * w.height
	i /= w.rowBlocks
	rows, cols := min(w.height, w.m-r), min(w.width, w.n-j)
	y := w.y[(i*w.m+r)*w.n+j:]
	a := Matrix[T]{w.a[w.product.a.Offsets[i]:], w.product.a.Row, w.product.a.Col}.At(r, 0)
	w.start(y, w.c, r, j, rows, cols)
	if w.k > 0 {
		w.multiply(y, a, i, j, rows, cols, buf)
	}
	w.bounds.apply(y, w.n, rows, cols)
}

// multiply adds the product of rows of A with the columns from j on of the
// matrix i of B.
func (w *productTask[T]) multiply(y []T, a Matrix[T], i, j, rows, cols int, buf []T) {
	if w.packed {
		b := w.b[w.product.b.Offsets[i]/(w.k*w.n)*PackedLen(w.k, w.n)+j*w.k:][:w.k*Panel]
		for p := 0; p < w.k && !w.pool.Ended(); p += Block[T]() {
			MultiplyBlock(y, w.n, rows, cols, a.At(0, p), b[p*Panel:], Panel, min(Block[T](), w.k-p), w.alpha)
		}
		return
	}
	b := Matrix[T]{w.b[w.product.b.Offsets[i]:], w.product.b.Row, w.product.b.Col}.At(0, j)
	switch w.method {
	case byRows:
		MultiplyBlock(y, w.n, rows, cols, a, b.Data, b.Row, w.k, w.alpha)
	case byDots:
		for row := range rows {
			MultiplyDot(y[row*w.n:][:cols], a.Data[row*a.Row:][:w.k], b.Data, b.Col, w.alpha)
		}
	default:
		for p := 0; p < w.k && !w.pool.Ended(); p += Block[T]() {
			k := min(Block[T](), w.k-p)
			PackBlock(buf, b.At(p, 0), k, cols)
			MultiplyBlock(y, w.n, rows, cols, a.At(0, p), buf, Panel, k, w.alpha)
		}
	}
}

// start sets a block of the result to beta·C, or zero.
func (t *product[T]) start(y, c []T, r, j, rows, cols int) {
	for row := range rows {
		y := y[row*t.n:][:cols]
		if c == nil {
			clear(y)
			continue
		}
		src := c[(r+row)*t.c.Row+j*t.c.Col:]
		if t.c.Col == 0 {
			v := t.beta * src[0]
			for i := range y {
				y[i] = v
			}
			continue
		}
		for i, at := 0, 0; i < len(y); i, at = i+1, at+t.c.Col {
			y[i] = t.beta * src[at]
		}
	}
}

func bindMatMul(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	switch in[0].DType {
	case graph.F32:
		return bindMatMulOf[float32](in), nil
	case graph.F64:
		return bindMatMulOf[float64](in), nil
	case graph.I32, graph.U32:
		return bindMatMulOf[uint32](in), nil
	case graph.I64, graph.U64:
		return bindMatMulOf[uint64](in), nil
	}
	return nil, fmt.Errorf("no kernel for %v by %v", in[0], in[1])
}

func bindMatMulOf[T tensor.Number](in []graph.TensorType) tensor.Kernel {
	as, bs := in[0].Shape, in[1].Shape
	if len(as) == 1 {
		as = []int64{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int64{bs[0], 1}
	}
	la, lb := as[:len(as)-2], bs[:len(bs)-2]
	m, k, n := int(as[len(as)-2]), int(as[len(as)-1]), int(bs[len(bs)-1])
	batch := make([]int64, max(len(la), len(lb)))
	for i := range batch {
		batch[i] = 1
	}
	for _, lead := range [][]int64{la, lb} {
		for i, d := range lead {
			if d != 1 {
				batch[len(batch)-len(lead)+i] = d
			}
		}
	}
	return newProduct(product[T]{
		m: m, n: n, k: k,
		a:     PlainOperand{0, k, 1, MatrixOffsets(batch, la, m*k)},
		b:     PlainOperand{1, n, 1, MatrixOffsets(batch, lb, k*n)},
		c:     PlainOperand{index: -1},
		alpha: 1,
	})
}

// MatrixOffsets returns where the matrices of size elements begin that an
// operand with the leading axes lead contributes to every index of batch.
func MatrixOffsets(batch, lead []int64, size int) []int {
	offsets := []int{0}
	for axis, step := range tensor.BroadcastStrides(batch, lead) {
		next := make([]int, 0, len(offsets)*int(batch[axis]))
		for _, o := range offsets {
			for i := range int(batch[axis]) {
				next = append(next, o+i*step*size)
			}
		}
		offsets = next
	}
	return offsets
}

func bindGemm(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Gemm)
	switch in[0].DType {
	case graph.F32:
		return bindGemmF32(o, in, out), nil
	case graph.F64:
		return bindGemmOf(o, in, out, o.Alpha, o.Beta, bounds[float64]{}), nil
	case graph.I32, graph.U32, graph.I64, graph.U64:
		if o.Alpha != math.Trunc(o.Alpha) || o.Beta != math.Trunc(o.Beta) {
			return nil, fmt.Errorf("alpha %g and beta %g, want whole numbers for %v", o.Alpha, o.Beta, in[0].DType)
		}
		if in[0].DType.Size() == 4 {
			return bindGemmOf(o, in, out, uint32(int64(o.Alpha)), uint32(int64(o.Beta)), bounds[uint32]{}), nil
		}
		return bindGemmOf(o, in, out, uint64(int64(o.Alpha)), uint64(int64(o.Beta)), bounds[uint64]{}), nil
	}
	return nil, fmt.Errorf("no kernel for %v by %v", in[0], in[1])
}

func bindGemmF32(o *graph.Gemm, in, out []graph.TensorType) tensor.Kernel {
	limits := bounds[float32]{o.Bounded, float32(o.Low), float32(o.High)}
	// The loops of vectors don't tell zeros apart at the upper limit.
	apart := limits.on && limits.high == 0 && math.Signbit(o.High)
	if apart {
		limits.on = false
	}
	k := bindGemmOf(o, in, out, float32(o.Alpha), float32(o.Beta), limits)
	if apart {
		return tensor.NewBoundedKernel(k, limits.low, limits.high)
	}
	return k
}

func bindGemmOf[T tensor.Number](o *graph.Gemm, in, out []graph.TensorType, alpha, beta T, limits bounds[T]) tensor.Kernel {
	m, n := int(out[0].Shape[0]), int(out[0].Shape[1])
	k := int(in[0].Shape[1])
	a := PlainOperand{0, k, 1, []int{0}}
	if o.TransA {
		k = int(in[0].Shape[0])
		a.Row, a.Col = 1, m
	}
	b := PlainOperand{1, n, 1, []int{0}}
	if o.TransB {
		b.Row, b.Col = 1, k
	}
	c := PlainOperand{index: -1}
	if t := tensor.Operand(in, 2); t.DType != graph.Invalid && beta != 0 {
		s := tensor.BroadcastStrides(out[0].Shape, t.Shape)
		c = PlainOperand{index: 2, Row: s[0], Col: s[1]}
	}
	return newProduct(product[T]{m: m, n: n, k: k, a: a, b: b, c: c, alpha: alpha, beta: beta, bounds: limits})
}

// MatMulTableBytes returns the bytes of the tables of a product: where the matrices
// of every index of the batch begin, found axis by axis, and a row that adds up bytes.
func MatMulTableBytes(_ graph.Op, in, out []graph.TensorType) int64 {
	batch := int64(1)
	for _, t := range in[:2] {
		lead := t.Shape[:max(0, t.Rank()-2)]
		batch = max(batch, tensor.AtLeastOne(lead))
	}
	lead := out[0].Shape[:max(0, out[0].Rank()-2)]
	batch = max(batch, tensor.AtLeastOne(lead))
	return budget.Add(budget.Mul(2*3*8, batch), budget.Mul(2, budget.Add(tensor.Dimension(in[0], in[0].Rank()-1), 64)))
}
