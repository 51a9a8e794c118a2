package gemm

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// gemmArgs are the arguments of the inner loops of the matrix product, which
// compute C = D + alpha·A·B for a few rows of A and up to two vectors of
// columns. Every element is the sum of its products in the order of K, rounded
// once per product, then multiplied by alpha and added to D: it does not
// depend on how the matrices are divided, except along K.
//
// internal/asm finds its fields by name. Distances are in bytes.
type gemmArgs struct {
	a, b, c, d  *float32
	rows        int
	k           int // products of a sum
	aRow, aStep int // from one row of A to the next, from one element of a row to the next
	bStep       int // from one row of B to the next
	cRow, dRow  int
	ahead       *float32 // k times 32 bytes from here will be wanted soon
	alpha       float32
	mask        uint32 // a bit for every column
	column      bool   // D is a column: one element for a whole row
	lanes       LaneMask
	limits      limits
}

// limits are what a result is kept within, if on is set, as [graph.Clip] does.
// internal/asm finds its fields by name.
type limits struct {
	low, high float32
	zero      float32 // added in between: makes -0 the lower limit +0
	on        bool
}

// newLimits returns the limits of a bounded result.
func newLimits(low, high float32) limits {
	l := limits{low: low, high: high, on: true}
	if math.Float32bits(low) != 0 {
		l.zero = float32(math.Copysign(0, -1))
	}
	return l
}

// of keeps v within the limits.
func (l *limits) of(v float32) float32 {
	if l.on {
		return min(max(v, l.low), l.high)
	}
	return v
}

// apply keeps y within the limits.
func (l *limits) apply(y []float32) {
	if !l.on {
		return
	}
	for ; len(y) > 0; y = y[min(vec.Stretch, len(y)):] {
		n := min(vec.Stretch, len(y))
		if !math.IsInf(float64(l.low), -1) {
			vec.LoopMaximumOne(&y[0], &y[0], n, l.low)
		}
		if !math.IsInf(float64(l.high), 1) {
			vec.LoopMinimumOne(&y[0], &y[0], n, l.high)
		}
	}
}

// LaneMask is a mask in the form of AVX2, for the columns of two vectors: -1 for
// those that take part.
type LaneMask [16]int32

// Set sets the mask to the lowest 16 bits of bits.
func (m *LaneMask) Set(bits uint32) { SetLanes(m[:], bits) }

// The most rows and columns of a tile.
const (
	rowsAVX512, colsAVX512 = 12, 32
	rowsAVX2, colsAVX2     = 6, 16
)

// gemmTile is the most rows and columns of C that the path's inner loops compute
// at a time.
func gemmTile(p tensor.VectorPath) (rows, cols int) {
	if p == tensor.PathAVX512 {
		return rowsAVX512, colsAVX512
	}
	return rowsAVX2, colsAVX2
}

// runGemm computes a tile. With whole, the rows of B may be read as far as a
// tile is wide.
func runGemm(p tensor.VectorPath, args *gemmArgs, cols int, whole bool) {
	args.mask = 1<<cols - 1
	switch {
	case p == tensor.PathAVX512 && whole:
		gemmAVX512(args)
	case p == tensor.PathAVX512:
		gemmMaskedAVX512(args)
	case cols == colsAVX2:
		gemmAVX2(args)
	default:
		args.lanes.Set(args.mask)
		gemmMaskedAVX2(args)
	}
}

// Addend is the epilogue of a product: the operand that is added to it, of which
// row i begins at i·Row, or all of row i is one element if Column is set, and the
// limits of the sum.
type Addend struct {
	Data   []float32
	Row    int
	Column bool
	limits limits
}

// MultiplyF32 sets rows×cols elements of y to d + alpha·A·B within d's limits, where B has k rows
// that are ldb apart. What is in next, if anything, is fetched meanwhile.
func MultiplyF32(p tensor.VectorPath, y []float32, ldy, rows, cols int, a Matrix[float32], b []float32, ldb, k int, alpha float32, d Addend, next []float32) {
	if rows == 0 || cols == 0 {
		return
	}
	// The assembly trusts these.
	_, _, _ = y[(rows-1)*ldy+cols-1], a.Data[(rows-1)*a.Row+(k-1)*a.Col], b[(k-1)*ldb+cols-1]
	if d.Column {
		_ = d.Data[(rows-1)*d.Row]
	} else {
		_ = d.Data[(rows-1)*d.Row+cols-1]
	}
	args := gemmArgs{
		k: k, aRow: 4 * a.Row, aStep: 4 * a.Col, bStep: 4 * ldb, cRow: 4 * ldy, dRow: 4 * d.Row,
		alpha: alpha, column: d.Column, limits: d.limits,
	}
	most, width := gemmTile(p)
	blocks := (rows + most - 1) / most
	for j := 0; j < cols; j += width {
		n := min(width, cols-j)
		whole := len(b)-j >= (k-1)*ldb+width
		args.b = &b[j]
		for i := range blocks {
			lo, hi := rows*i/blocks, rows*(i+1)/blocks
			args.ahead = args.b
			if len(next) > 0 {
				args.ahead = &next[0]
				next = next[min(8*k, len(next)):]
			}
			args.rows, args.a, args.c = hi-lo, &a.Data[lo*a.Row], &y[lo*ldy+j]
			if d.Column {
				args.d = &d.Data[lo*d.Row]
			} else {
				args.d = &d.Data[lo*d.Row+j]
			}
			runGemm(p, &args, n, whole)
		}
	}
}

// vectorBlock is [multiplyBlock] with SIMD instructions where there are any for T, and
// reports whether it did it.
func vectorBlock[T tensor.Number](y []T, ldy, rows, cols int, a Matrix[T], b []T, ldb, k int, alpha T) bool {
	if tensor.Path == tensor.PathGo || !tensor.IsFloat32[T]() {
		return false
	}
	if k == 0 {
		return true
	}
	f := tensor.AsFloat32[T]
	MultiplyF32(tensor.Path, f(y), ldy, rows, cols, Matrix[float32]{f(a.Data), a.Row, a.Col}, f(b), ldb, k, float32(alpha), Addend{Data: f(y), Row: ldy}, nil)
	return true
}
