package gemm

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Panel is the width of a block of B's columns. A packed matrix is a list of
// panels, each [K][panel], so that the inner loops and every row of A pass
// over B with stride one.
const Panel = 32

// blockBytes is the memory of one block of a panel: it has to stay in the
// first-level cache while all rows of A pass over it.
const blockBytes = 32 << 10

// Narrow is the most rows of A for which copying B into panels costs more
// than it saves.
const Narrow = 3

// Block returns the rows of a panel that make one block, of its K rows.
func Block[T tensor.Number]() int {
	var zero T
	return blockBytes / (Panel * int(unsafe.Sizeof(zero)))
}

// Matrix is a strided view of a matrix in memory: element (i, j) is at i·row + j·col.
type Matrix[T tensor.Number] struct {
	Data     []T
	Row, Col int
}

// At returns the matrix without its first i rows and j columns.
func (m Matrix[T]) At(i, j int) Matrix[T] {
	return Matrix[T]{m.Data[min(i*m.Row+j*m.Col, len(m.Data)):], m.Row, m.Col}
}

// PackedLen returns the elements of a packed K×N matrix: of its panels.
func PackedLen(k, n int) int { return (n + Panel - 1) / Panel * Panel * k }

// PackPanels packs a K×N matrix: it writes it as panels; columns beyond N are zero.
func PackPanels[T tensor.Number](dst []T, b Matrix[T], k, n int) {
	for j := 0; j < n; j += Panel {
		PackBlock(dst[j*k:][:k*Panel], b.At(0, j), k, min(Panel, n-j))
	}
}

// PackBlock writes k rows and cols columns of b to dst, panel elements a row.
// Where a whole row is not filled the rest is zero.
func PackBlock[T tensor.Number](dst []T, b Matrix[T], k, cols int) {
	if vectorPack(dst, b, k, cols) {
		return
	}
	if cols < Panel {
		clear(dst[:k*Panel])
	}
	if b.Col == 1 {
		for p := range k {
			copy(dst[p*Panel:][:cols], b.Data[p*b.Row:])
		}
		return
	}
	for first := 0; first < k; first += PackedAtOnce {
		last := min(first+PackedAtOnce, k)
		for j := range cols {
			src := b.Data[j*b.Col:]
			for p, at := first, first*b.Row; p < last; p, at = p+1, at+b.Row {
				dst[p*Panel+j] = src[at]
			}
		}
	}
}

// PackedAtOnce is the number of rows that are packed before the next ones: while a column
// follows the other they stay in the first-level cache.
const PackedAtOnce = 64

// MultiplyBlock adds alpha·A·B to a block of Y, where A is rows×k, B is k×cols
// with rows ldb apart and Y has rows ldy apart. Four rows of B go into two
// rows of Y at a time: that is as much as the compiler keeps in registers, and
// the sums of products are independent of each other. No product is skipped,
// so NaN and infinity reach every element that they ought to.
func MultiplyBlock[T tensor.Number](y []T, ldy, rows, cols int, a Matrix[T], b []T, ldb, k int, alpha T) {
	if vectorBlock(y, ldy, rows, cols, a, b, ldb, k, alpha) {
		return
	}
	i := 0
	for ; i+1 < rows; i += 2 {
		y0 := y[i*ldy:][:cols]
		y1 := y[(i+1)*ldy:][:cols]
		p := 0
		for ; p+3 < k; p += 4 {
			u, v := a.Data[i*a.Row+p*a.Col:], a.Data[(i+1)*a.Row+p*a.Col:]
			u0, u1, u2, u3 := alpha*u[0], alpha*u[a.Col], alpha*u[2*a.Col], alpha*u[3*a.Col]
			v0, v1, v2, v3 := alpha*v[0], alpha*v[a.Col], alpha*v[2*a.Col], alpha*v[3*a.Col]
			y0 := y0[:cols]
			y1 := y1[:len(y0)]
			b0 := b[p*ldb:][:len(y0)]
			b1 := b[(p+1)*ldb:][:len(y0)]
			b2 := b[(p+2)*ldb:][:len(y0)]
			b3 := b[(p+3)*ldb:][:len(y0)]
			for j, s := range y0 {
				t0, t1, t2, t3 := b0[j], b1[j], b2[j], b3[j]
				y0[j] = s + ((T(u0*t0) + T(u1*t1)) + (T(u2*t2) + T(u3*t3)))
				y1[j] = y1[j] + ((T(v0*t0) + T(v1*t1)) + (T(v2*t2) + T(v3*t3)))
			}
		}
		for ; p < k; p++ {
			u0, v0 := alpha*a.Data[i*a.Row+p*a.Col], alpha*a.Data[(i+1)*a.Row+p*a.Col]
			y1 := y1[:len(y0)]
			b0 := b[p*ldb:][:len(y0)]
			for j, t := range b0 {
				y0[j] += T(u0 * t)
				y1[j] += T(v0 * t)
			}
		}
	}
	if i < rows {
		multiplyOne(y[i*ldy:][:cols], a.At(i, 0), b, ldb, k, alpha)
	}
}

func multiplyOne[T tensor.Number](y []T, a Matrix[T], b []T, ldb, k int, alpha T) {
	p := 0
	for ; p+3 < k; p += 4 {
		u := a.Data[p*a.Col:]
		u0, u1, u2, u3 := alpha*u[0], alpha*u[a.Col], alpha*u[2*a.Col], alpha*u[3*a.Col]
		b0 := b[p*ldb:][:len(y)]
		b1 := b[(p+1)*ldb:][:len(y)]
		b2 := b[(p+2)*ldb:][:len(y)]
		b3 := b[(p+3)*ldb:][:len(y)]
		for j, s := range y {
			y[j] = s + ((T(u0*b0[j]) + T(u1*b1[j])) + (T(u2*b2[j]) + T(u3*b3[j])))
		}
	}
	for ; p < k; p++ {
		u0 := alpha * a.Data[p*a.Col]
		b0 := b[p*ldb:][:len(y)]
		for j, t := range b0 {
			y[j] += T(u0 * t)
		}
	}
}

// MultiplyDot adds alpha·Bᵀ·x to y, where column j of B lies contiguously at
// j·ld: inner products of rows in memory, four at a time.
func MultiplyDot[T tensor.Number](y []T, x, b []T, ld int, alpha T) {
	j := 0
	for ; j+3 < len(y); j += 4 {
		b0 := b[j*ld:][:len(x)]
		b1 := b[(j+1)*ld:][:len(x)]
		b2 := b[(j+2)*ld:][:len(x)]
		b3 := b[(j+3)*ld:][:len(x)]
		var s0, s1, s2, s3 T
		p := 0
		for ; p+1 < len(x); p += 2 {
			u, v := x[p], x[p+1]
			s0 += T(u*b0[p]) + T(v*b0[p+1])
			s1 += T(u*b1[p]) + T(v*b1[p+1])
			s2 += T(u*b2[p]) + T(v*b2[p+1])
			s3 += T(u*b3[p]) + T(v*b3[p+1])
		}
		if p < len(x) {
			u := x[p]
			s0 += T(u * b0[p])
			s1 += T(u * b1[p])
			s2 += T(u * b2[p])
			s3 += T(u * b3[p])
		}
		y[j] += T(alpha * s0)
		y[j+1] += T(alpha * s1)
		y[j+2] += T(alpha * s2)
		y[j+3] += T(alpha * s3)
	}
	for ; j < len(y); j++ {
		var s T
		for p, v := range b[j*ld:][:len(x)] {
			s += T(x[p] * v)
		}
		y[j] += T(alpha * s)
	}
}
