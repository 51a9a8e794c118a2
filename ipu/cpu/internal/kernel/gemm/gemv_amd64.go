package gemm

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// gemvArgs are the arguments of the loops that multiply a few rows of A by
// some panels of B, which lie bPanel bytes apart: the same sums as [gemmArgs]
// gives. internal/asm finds its fields by name.
type gemvArgs struct {
	a, b, c, d  *float32
	rows        int
	k           int
	aRow, aStep int
	bStep       int
	cRow, dRow  int
	bPanel      int
	panels      int
	alpha       float32
	column      bool
	far         bool // B lies farther away than the caches
	limits      limits
}

// dotArgs are the arguments of the loops that multiply one to three rows of A
// by four rows of B, element by element, and add up. internal/asm finds
// its fields by name.
type dotArgs struct {
	a, b       *float32
	rows, k    int
	aRow, bRow int    // bytes
	mask       uint32 // a bit for every element of the last vector, if that isn't whole
	lanes      LaneMask
	out        [Narrow][4]float32
}

// FewRows returns the most rows for which the path has loops over several
// panels.
func FewRows(p tensor.VectorPath) int {
	if p == tensor.PathAVX512 {
		return 6
	}
	return Narrow
}

// panelCounts are the numbers of panels that loops take, from the most.
var panelCounts = [...]int{8, 4, 2, 1}

// gemvPanels returns the numbers of panels that the path's loops take for a
// number of rows, from the most.
func gemvPanels(p tensor.VectorPath, rows int) []int {
	switch {
	case p == tensor.PathAVX512 && rows == 1:
		return panelCounts[:3]
	case p == tensor.PathAVX512 && rows <= Narrow:
		return panelCounts[1:3]
	case p == tensor.PathAVX512:
		return panelCounts[2:3]
	case rows == 1:
		return panelCounts[2:]
	}
	return panelCounts[3:]
}

// farBytes is the most bytes of a matrix whose next rows the processor fetches
// in time by itself; to ask for them costs time then.
const farBytes = 8 << 20

// distantBytes is from what distance on so many panels share the sets of the
// first-level cache that eight of them take turns in them.
const distantBytes = 64 << 10

// MultiplyFew is [multiplyF32] for at most [vectorPath.fewRows] rows and any
// number of columns: those of B come in panels whose first rows are bPanel
// elements apart. It goes over them from the last one to the first if back is
// set.
//
// Products of few rows wait for B most of the time. Who goes over the same B
// again and again does so there and back: what a pass has read last is still
// in the cache when the next one begins with it, where B is too large to stay
// there as a whole.
func MultiplyFew(p tensor.VectorPath, y []float32, ldy, rows, cols int, a Matrix[float32], b []float32, ldb, bPanel, k int, alpha float32, d Addend, back bool) {
	if cols == 0 {
		return
	}
	whole := cols / Panel
	args := gemvArgs{
		rows: rows, k: k, aRow: 4 * a.Row, aStep: 4 * a.Col, bStep: 4 * ldb, bPanel: 4 * bPanel, cRow: 4 * ldy, dRow: 4 * d.Row,
		alpha: alpha, column: d.Column, limits: d.limits, far: 4*k*cols > farBytes,
	}
	if whole > 0 {
		// The assembly trusts these.
		_, _ = y[(rows-1)*ldy+whole*Panel-1], a.Data[(rows-1)*a.Row+(k-1)*a.Col]
		_ = b[(whole-1)*bPanel+(k-1)*ldb+Panel-1]
		args.a = &a.Data[0]
		if d.Column {
			_ = d.Data[(rows-1)*d.Row]
		} else {
			_ = d.Data[(rows-1)*d.Row+whole*Panel-1]
		}
	}
	sizes := gemvPanels(p, rows)
	if sizes[0] == 8 && 4*bPanel >= distantBytes {
		sizes = sizes[1:]
	}
	for lo, hi := 0, (cols+Panel-1)/Panel; lo < hi; {
		n := 1
		if whole := min(hi, whole) - lo; hi*Panel <= cols || !back {
			n = fit(sizes, whole)
		}
		at := lo
		if back {
			hi -= n
			at = hi
		} else {
			lo += n
		}
		if (at+n)*Panel > cols || n < sizes[len(sizes)-1] {
			rest := d
			if !d.Column {
				rest.Data = d.Data[at*Panel:]
			}
			MultiplyF32(p, y[at*Panel:], ldy, rows, min(Panel, cols-at*Panel), a, b[at*bPanel:], ldb, k, alpha, rest, nil)
			continue
		}
		args.panels = n
		args.b, args.c, args.d = &b[at*bPanel], &y[at*Panel], &d.Data[0]
		if !d.Column {
			args.d = &d.Data[at*Panel]
		}
		if p == tensor.PathAVX512 {
			gemvAVX512(&args)
		} else {
			gemvAVX2(&args)
		}
	}
}

// fit returns the largest of the sizes that is at most n, or 1.
func fit(sizes []int, n int) int {
	for _, s := range sizes {
		if s <= n {
			return s
		}
	}
	return 1
}

// multiplyDots sets rows×cols elements of y to d + alpha·A·Bᵀ for at most
// three rows of A; the rows of A and of B are k consecutive elements. It takes
// those of B from the last one on if back is set: see [multiplyFew].
func multiplyDots(p tensor.VectorPath, y []float32, ldy, rows, cols int, a []float32, lda int, b []float32, ldb, k int, alpha float32, d Addend, back bool) {
	_, _ = a[(rows-1)*lda+k-1], b[(cols-1)*ldb+k-1]
	args := dotArgs{a: &a[0], rows: rows, k: k, aRow: 4 * lda}
	args.mask = 1<<(k%p.Lanes()) - 1
	if p == tensor.PathAVX2 {
		args.lanes.Set(args.mask)
	}
	fours, ones := cols/4, cols%4
	for i := range fours + ones {
		if back {
			i = fours + ones - 1 - i
		}
		j, n := 4*i, 4
		if i >= fours {
			j, n = 3*fours+i, 1
		}
		args.bRow = 4 * ldb
		if n == 1 {
			args.bRow = 0
		}
		args.b = &b[j*ldb]
		if p == tensor.PathAVX512 {
			dotAVX512(&args)
		} else {
			dotAVX2(&args)
		}
		for i := range rows {
			for c, v := range args.out[i][:n] {
				at := i * d.Row
				if !d.Column {
					at += j + c
				}
				y[i*ldy+j+c] = alpha*v + d.Data[at]
			}
		}
	}
	for i := range rows {
		d.limits.apply(y[i*ldy:][:cols])
	}
}
