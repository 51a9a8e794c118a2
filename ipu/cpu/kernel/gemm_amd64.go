package kernel

import "math"

// gemmArgs are the arguments of the inner loops of the matrix product, which
// compute C = D + alpha·A·B for a few rows of A and up to two vectors of
// columns. Every element is the sum of its products in the order of K, rounded
// once per product, then multiplied by alpha and added to D: it does not
// depend on how the matrices are divided, except along K.
//
// internal/asm knows the fields' offsets. Distances are in bytes.
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
	lanes       laneMask
	limits      limits
}

// limits are what a result is kept within, if on is set, as [graph.Clip] does.
// internal/asm knows the fields' offsets.
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
	for ; len(y) > 0; y = y[min(stretch, len(y)):] {
		n := min(stretch, len(y))
		if !math.IsInf(float64(l.low), -1) {
			loopMaximumOne(&y[0], &y[0], n, l.low)
		}
		if !math.IsInf(float64(l.high), 1) {
			loopMinimumOne(&y[0], &y[0], n, l.high)
		}
	}
}

// laneMask is a mask as AVX2 wants it, of its two vectors' columns: -1 for
// those that take part.
type laneMask [16]int32

func (m *laneMask) set(bits uint32) { setLanes(m[:], bits) }

// The most rows and columns of a tile.
const (
	rowsAVX512, colsAVX512 = 12, 32
	rowsAVX2, colsAVX2     = 6, 16
)

// gemmTile is the most rows and columns of C that the path's inner loops compute
// at a time.
func gemmTile(p vectorPath) (rows, cols int) {
	if p == pathAVX512 {
		return rowsAVX512, colsAVX512
	}
	return rowsAVX2, colsAVX2
}

// runGemm computes a tile. With whole, the rows of B may be read as far as a
// tile is wide.
func runGemm(p vectorPath, args *gemmArgs, cols int, whole bool) {
	args.mask = 1<<cols - 1
	switch {
	case p == pathAVX512 && whole:
		gemmAVX512(args)
	case p == pathAVX512:
		gemmMaskedAVX512(args)
	case cols == colsAVX2:
		gemmAVX2(args)
	default:
		args.lanes.set(args.mask)
		gemmMaskedAVX2(args)
	}
}

// addend is what a product is added to: row i of the result begins at i·row,
// and all of it is one element if column is set. The sum is kept within limits.
type addend struct {
	data   []float32
	row    int
	column bool
	limits limits
}

// multiplyF32 sets rows×cols elements of y to d + alpha·A·B within d's limits, where B has k rows
// that are ldb apart. What is in next, if anything, is fetched meanwhile.
func multiplyF32(p vectorPath, y []float32, ldy, rows, cols int, a matrix[float32], b []float32, ldb, k int, alpha float32, d addend, next []float32) {
	if rows == 0 || cols == 0 {
		return
	}
	// The assembly trusts these.
	_, _, _ = y[(rows-1)*ldy+cols-1], a.data[(rows-1)*a.row+(k-1)*a.col], b[(k-1)*ldb+cols-1]
	if d.column {
		_ = d.data[(rows-1)*d.row]
	} else {
		_ = d.data[(rows-1)*d.row+cols-1]
	}
	args := gemmArgs{
		k: k, aRow: 4 * a.row, aStep: 4 * a.col, bStep: 4 * ldb, cRow: 4 * ldy, dRow: 4 * d.row,
		alpha: alpha, column: d.column, limits: d.limits,
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
			args.rows, args.a, args.c = hi-lo, &a.data[lo*a.row], &y[lo*ldy+j]
			if d.column {
				args.d = &d.data[lo*d.row]
			} else {
				args.d = &d.data[lo*d.row+j]
			}
			runGemm(p, &args, n, whole)
		}
	}
}

// vectorBlock is [multiplyBlock] by vectors where there are any for T, and
// reports whether it did it.
func vectorBlock[T number](y []T, ldy, rows, cols int, a matrix[T], b []T, ldb, k int, alpha T) bool {
	if path == pathGo || !isFloat32[T]() {
		return false
	}
	if k == 0 {
		return true
	}
	f := asFloat32[T]
	multiplyF32(path, f(y), ldy, rows, cols, matrix[float32]{f(a.data), a.row, a.col}, f(b), ldb, k, float32(alpha), addend{data: f(y), row: ldy}, nil)
	return true
}
