package kernel

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
)

// method is a way to go over B.
type method uint8

const (
	byPanels method = iota // copy B block by block into a panel, or find it packed
	byRows                 // B's rows lie contiguously and A is narrow: use them in place
	byDots                 // B's columns lie contiguously and A is narrow: inner products
)

// plainOperand is an operand of a product as it lies in memory: one or more
// matrices of the same shape and strides.
type plainOperand struct {
	index    int   // of the operand, -1 if left out
	row, col int   // strides
	offsets  []int // of each product's matrix
}

// bounds are what the elements of a result are kept within, if on is set, as
// [graph.Clip] does.
type bounds[T number] struct {
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
type product[T number] struct {
	m, n, k     int
	a, b, c     plainOperand
	alpha, beta T
	bounds      bounds[T]
	method      method
	packed      bool // B comes in panels
	slots       int  // parts that have a block of scratch memory

	task productTask[T]
}

// newProduct chooses how to compute a batch of products whose operands and
// strides are given.
func newProduct[T number](t product[T]) Kernel {
	if len(t.a.offsets) > 1 && oneMatrix(t.b.offsets) && t.c.index < 0 && follow(t.a, t.m, t.k) {
		t.m *= len(t.a.offsets)
		t.a.offsets, t.b.offsets = t.a.offsets[:1], t.b.offsets[:1]
	}
	if t.n == 1 && t.m != 1 {
		// A column is computed as a row: Yᵀ = Bᵀ·Aᵀ.
		t.m, t.n = t.n, t.m
		t.a, t.b = t.b, t.a
		t.a.row, t.a.col = t.a.col, t.a.row
		t.b.row, t.b.col = t.b.col, t.b.row
		t.c.row, t.c.col = t.c.col, t.c.row
	}
	switch {
	case t.m <= narrow && t.b.col == 1:
		t.method = byRows
	case t.m <= narrow && t.b.row == 1 && (t.a.col == 1 || t.k == 1):
		t.method = byDots
	}
	if k := vectorized(&t); k != nil {
		return k
	}
	t.slots = min(maxParts, 4*runtime.GOMAXPROCS(0))
	return &t
}

// oneMatrix reports whether all products use the same matrix.
func oneMatrix(offsets []int) bool {
	for _, o := range offsets {
		if o != offsets[0] {
			return false
		}
	}
	return len(offsets) > 0
}

// follow reports whether the m×k matrices of a lie row-major one after the
// other, so that they can be taken for one of more rows.
func follow(a plainOperand, m, k int) bool {
	if a.col != 1 || a.row != k {
		return false
	}
	for i, o := range a.offsets {
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
	return t.matrices() * packedLen(t.k, t.n) * elementSize[T]()
}

// matrices returns how many different matrices operand B has.
func (t *product[T]) matrices() int {
	n := 0
	for _, o := range t.b.offsets {
		n = max(n, o/(t.k*t.n)+1)
	}
	return n
}

// Pack implements [Packer].
func (t *product[T]) Pack(_ int, dst, src []byte) {
	d, s := view[T](dst), view[T](src)
	size, packed := t.k*t.n, packedLen(t.k, t.n)
	for i := range t.matrices() {
		packPanels(d[i*packed:][:packed], matrix[T]{s[i*size:], t.b.row, t.b.col}, t.k, t.n)
	}
}

// UsePacked implements [Packer].
func (t *product[T]) UsePacked(int) { t.packed = true }

// Run implements [Kernel].
func (t *product[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	w := &t.task
	*w = productTask[T]{product: t, pool: p, y: view[T](out[0]), a: view[T](in[t.a.index]), b: view[T](in[t.b.index]), scratch: view[T](scratch)}
	if t.c.index >= 0 {
		w.c = view[T](in[t.c.index])
	}
	if len(w.y) == 0 {
		return nil
	}
	w.width = panel
	switch t.method {
	case byRows:
		w.width = 512
	case byDots:
		w.width = 64
	}
	w.colBlocks = (t.n + w.width - 1) / w.width
	blocks := w.colBlocks * len(t.a.offsets)
	w.height = t.m
	workers := workersFor(p, float64(len(w.y))*float64(t.k))
	if want := 2 * workers; workers > 1 && blocks < want {
		// Too few columns for all workers: divide the rows too.
		w.height = max(16, (t.m*blocks/want+1)&^1)
	}
	// So that a run can be cancelled after a while.
	w.height = min(w.height, max(256, 16*long/(w.width*max(1, t.k))))
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
type productTask[T number] struct {
	*product[T]
	y, a, b, c           []T
	scratch              []T
	width, height        int
	colBlocks, rowBlocks int
	blocks, parts        int
	pool                 Pool
}

// Do implements [Task].
func (w *productTask[T]) Do(part int) {
	var buf []T
	if w.method == byPanels && !w.packed {
		size := blockBytes / elementSize[T]()
		buf = w.scratch[part*size:][:size]
	}
	for i, end := span(w.blocks, w.parts, part, 1); i < end; i++ {
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
	a := matrix[T]{w.a[w.product.a.offsets[i]:], w.product.a.row, w.product.a.col}.at(r, 0)
	w.start(y, w.c, r, j, rows, cols)
	if w.k > 0 {
		w.multiply(y, a, i, j, rows, cols, buf)
	}
	w.bounds.apply(y, w.n, rows, cols)
}

// multiply adds the product of rows of A with the columns from j on of the
// matrix i of B.
func (w *productTask[T]) multiply(y []T, a matrix[T], i, j, rows, cols int, buf []T) {
	if w.packed {
		b := w.b[w.product.b.offsets[i]/(w.k*w.n)*packedLen(w.k, w.n)+j*w.k:][:w.k*panel]
		for p := 0; p < w.k && !w.pool.Ended(); p += block[T]() {
			multiplyBlock(y, w.n, rows, cols, a.at(0, p), b[p*panel:], panel, min(block[T](), w.k-p), w.alpha)
		}
		return
	}
	b := matrix[T]{w.b[w.product.b.offsets[i]:], w.product.b.row, w.product.b.col}.at(0, j)
	switch w.method {
	case byRows:
		multiplyBlock(y, w.n, rows, cols, a, b.data, b.row, w.k, w.alpha)
	case byDots:
		for row := range rows {
			multiplyDot(y[row*w.n:][:cols], a.data[row*a.row:][:w.k], b.data, b.col, w.alpha)
		}
	default:
		for p := 0; p < w.k && !w.pool.Ended(); p += block[T]() {
			k := min(block[T](), w.k-p)
			packBlock(buf, b.at(p, 0), k, cols)
			multiplyBlock(y, w.n, rows, cols, a.at(0, p), buf, panel, k, w.alpha)
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
		src := c[(r+row)*t.c.row+j*t.c.col:]
		if t.c.col == 0 {
			v := t.beta * src[0]
			for i := range y {
				y[i] = v
			}
			continue
		}
		for i, at := 0, 0; i < len(y); i, at = i+1, at+t.c.col {
			y[i] = t.beta * src[at]
		}
	}
}

func bindMatMul(_ graph.Op, in, out []graph.TensorType) (Kernel, error) {
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

func bindMatMulOf[T number](in []graph.TensorType) Kernel {
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
		a:     plainOperand{0, k, 1, matrixOffsets(batch, la, m*k)},
		b:     plainOperand{1, n, 1, matrixOffsets(batch, lb, k*n)},
		c:     plainOperand{index: -1},
		alpha: 1,
	})
}

// matrixOffsets returns where the matrices of size elements begin that an
// operand with the leading axes lead contributes to every index of batch.
func matrixOffsets(batch, lead []int64, size int) []int {
	offsets := []int{0}
	for axis, step := range broadcastStrides(batch, lead) {
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

func bindGemm(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
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

func bindGemmF32(o *graph.Gemm, in, out []graph.TensorType) Kernel {
	limits := bounds[float32]{o.Bounded, float32(o.Low), float32(o.High)}
	// The loops of vectors don't tell zeros apart at the upper limit.
	apart := limits.on && limits.high == 0 && math.Signbit(o.High)
	if apart {
		limits.on = false
	}
	k := bindGemmOf(o, in, out, float32(o.Alpha), float32(o.Beta), limits)
	if apart {
		return newBoundedKernel(k, limits.low, limits.high)
	}
	return k
}

func bindGemmOf[T number](o *graph.Gemm, in, out []graph.TensorType, alpha, beta T, limits bounds[T]) Kernel {
	m, n := int(out[0].Shape[0]), int(out[0].Shape[1])
	k := int(in[0].Shape[1])
	a := plainOperand{0, k, 1, []int{0}}
	if o.TransA {
		k = int(in[0].Shape[0])
		a.row, a.col = 1, m
	}
	b := plainOperand{1, n, 1, []int{0}}
	if o.TransB {
		b.row, b.col = 1, k
	}
	c := plainOperand{index: -1}
	if t := operand(in, 2); t.DType != graph.Invalid && beta != 0 {
		s := broadcastStrides(out[0].Shape, t.Shape)
		c = plainOperand{index: 2, row: s[0], col: s[1]}
	}
	return newProduct(product[T]{m: m, n: n, k: k, a: a, b: b, c: c, alpha: alpha, beta: beta, bounds: limits})
}

// matMulTableBytes: where the matrices of every index of the batch begin, found axis
// by axis, and a row that adds up bytes.
func matMulTableBytes(_ graph.Op, in, out []graph.TensorType) int64 {
	batch := int64(1)
	for _, t := range in[:2] {
		lead := t.Shape[:max(0, t.Rank()-2)]
		batch = max(batch, atLeastOne(lead))
	}
	lead := out[0].Shape[:max(0, out[0].Rank()-2)]
	batch = max(batch, atLeastOne(lead))
	return budget.Add(budget.Mul(2*3*8, batch), budget.Mul(2, budget.Add(dimension(in[0], in[0].Rank()-1), 64)))
}
