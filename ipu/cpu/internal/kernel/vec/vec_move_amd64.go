package vec

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// VectorRuns is [copyRuns] with SIMD instructions, if there are any and the runs are long
// enough; it reports whether it did it.
func VectorRuns(dst, src []byte, rows, run, to, from int) bool {
	if tensor.Path == tensor.PathGo || run < 4 {
		return false
	}
	_, _ = dst[(rows-1)*to+run-1], src[(rows-1)*from+run-1]
	some := max(1, 4*Stretch/run)
	for r := 0; r < rows; r += some {
		loopCopyRuns(&dst[r*to], &src[r*from], min(some, rows-r), run, to, from)
	}
	return true
}

// VectorDeal2 deals n elements of each of so many rows of src, from elements
// apart, to each of two rows of a and b in turn with SIMD instructions, if there are any for E
// and enough elements; the next rows are to elements later. It reports whether
// it did it.
func VectorDeal2[E tensor.Unsigned](a, b, src []E, n, rows, to, from int) bool {
	if tensor.Path == tensor.PathGo || tensor.ElementSize[E]() != 4 || n < tensor.Path.Lanes() || n*rows > Stretch {
		return false
	}
	u, v, x := tensor.View[uint32](tensor.RawBytes(a)), tensor.View[uint32](tensor.RawBytes(b)), tensor.View[uint32](tensor.RawBytes(src))
	_, _, _ = u[(rows-1)*to+n-1], v[(rows-1)*to+n-1], x[(rows-1)*from+2*n-1]
	loopDeal2(&u[0], &v[0], &x[0], n, rows, 4*to, 4*from)
	return true
}

// VectorTile sets dst[r·to + c] to src[c·from + r] with SIMD instructions, if there are any
// for E, for the first rows and columns, and returns how many of both.
func VectorTile[E tensor.Unsigned](dst, src []E, rows, cols, to, from int) (doneRows, doneCols int) {
	const side = 8
	rows, cols = rows&^(side-1), cols&^(side-1)
	if tensor.Path == tensor.PathGo || tensor.ElementSize[E]() != 4 || rows == 0 || cols == 0 {
		return 0, 0
	}
	d, s := tensor.View[uint32](tensor.RawBytes(dst)), tensor.View[uint32](tensor.RawBytes(src))
	_, _ = d[(rows-1)*to+cols-1], s[(cols-1)*from+rows-1]
	if tensor.Path == tensor.PathAVX512 {
		transposeTilesAVX512(&d[0], &s[0], rows, cols, 4*to, 4*from)
	} else {
		transposeTilesAVX2(&d[0], &s[0], rows, cols, 4*to, 4*from)
	}
	return rows, cols
}

// VectorDeal deals the first elements of src to a, b and c in turn with SIMD instructions,
// if there are any for E, and returns how many each got.
func VectorDeal[E tensor.Unsigned](a, b, c, src []E) int {
	const each = 16
	groups := len(a) / each
	if tensor.Path != tensor.PathAVX512 || tensor.ElementSize[E]() != 4 || groups == 0 {
		return 0
	}
	n := groups * each
	s := tensor.View[uint32](tensor.RawBytes(src))[:3*n]
	for i := 0; i < n; i += Stretch {
		u, v, w := tensor.View[uint32](tensor.RawBytes(a))[:n], tensor.View[uint32](tensor.RawBytes(b))[:n], tensor.View[uint32](tensor.RawBytes(c))[:n]
		deal3AVX512(&u[i], &v[i], &w[i], &s[3*i], min(Stretch, n-i)/each)
	}
	return n
}
