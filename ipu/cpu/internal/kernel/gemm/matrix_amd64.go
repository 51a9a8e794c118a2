package gemm

import (
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// The sizes of the blocks of a product (cache blocking): rowBlock rows of A, DepthBlock
// elements of each, stay in the second-level cache while they pass over all
// panels. The block of a panel needs no more than that cache either; shorter
// ones cost more, for passing over the result more often.
const (
	DepthBlock = 1024
	rowBlock   = 144
)

// padding is how far apart, in elements, rows are beyond their length where
// they are copied so that they don't share the cache's sets.
const padding = 16

// The most rows of A for which reading an unpacked B in place is quicker than copying it into
// panels: tiles of AVX-512 are two cache lines wide, which is enough wherever the next row of B lies; those of
// AVX2 are one, and rows of B that are a multiple of a page apart, or a transposed A, leave them too few sets of the cache.
const (
	packedRows  = 256
	packedFew   = 24
	nearBytes   = 256 << 10 // of B, which many rows of A find in the second-level cache
	pageNumbers = 1024
)

// readsInPlace reports whether B's rows are read where they lie, although they are not packed.
func (v *vectorProduct) readsInPlace() bool {
	most := packedRows
	if v.path == tensor.PathAVX2 && (v.b.Row%pageNumbers == 0 || v.a.Col != 1) {
		most = packedFew
	}
	near := v.path == tensor.PathAVX512 && 4*v.k*v.n <= nearBytes
	return v.b.Col == 1 && (v.m <= most || near)
}

// tiny is the most multiply-adds of a product that take less time one by one
// than it takes to prepare the loops for vectors.
const tiny = 64

// NoAddend adds nothing.
var NoAddend = Addend{Data: make([]float32, 1), Column: true}

// vectorProduct is a product of float32 with SIMD instructions.
type vectorProduct struct {
	product[float32]
	path  tensor.VectorPath
	depth int  // of a block
	copyA bool // A's rows share the cache's sets, or its columns lie contiguously
	copyB bool // B is copied into panels
	odd   bool // the last run was the first, third, fifth …
	slots int  // parts that have scratch memory
	// What a result is kept within.
	limits limits
	task   vectorProductTask
}

// vectorized returns a kernel that computes t with SIMD instructions, nil if there are
// none for T.
func vectorized[T tensor.Number](t *product[T]) tensor.Kernel {
	f, ok := any(t).(*product[float32])
	if !ok || tensor.Path == tensor.PathGo {
		return nil
	}
	v := &vectorProduct{product: *f, path: tensor.Path, slots: min(tensor.MaxParts, runtime.GOMAXPROCS(0))}
	if v.bounds.on {
		v.limits = newLimits(v.bounds.low, v.bounds.high)
	}
	blocks := max(1, (v.k+DepthBlock-1)/DepthBlock)
	if v.m <= FewRows(v.path) {
		blocks = 1 // as the loops for few rows add up
	}
	v.depth = ((v.k+blocks-1)/blocks + 7) &^ 7
	if v.method == byPanels {
		v.copyA = v.m > FewRows(v.path) && (v.a.Col == 1 && v.a.Row%1024 == 0 || v.transposed()) && v.copies(v.n)
		v.copyB = !v.readsInPlace()
	}
	return v
}

// transposed reports whether the columns of A lie contiguously, as those of a gradient that is multiplied with what it is the gradient
// of: the loops take four elements of a row at a time only where they follow each other.
func (v *vectorProduct) transposed() bool { return v.a.Row == 1 && v.a.Col != 1 }

// copies reports whether so many columns make it worth it to copy rows of A.
func (v *vectorProduct) copies(width int) bool {
	if v.transposed() {
		return width >= transposedColumns
	}
	return width >= copiedColumns
}

// few reports whether the loops for few rows compute the product.
func (v *vectorProduct) few() bool {
	return v.method != byPanels || v.packed && v.m <= FewRows(v.path)
}

// packedBytes is the most bytes of a matrix that few rows are multiplied with
// in place. A larger one lies farther away than the second-level cache; reading
// it in place, some columns of every row at a time, visits more pages than the
// processor keeps the addresses of, and fills but a part of the cache's sets.
const packedBytes = 1 << 20

// Packed implements [Packer].
func (v *vectorProduct) Packed(i int) int {
	if v.method == byRows && i == v.product.b.index && 4*v.k*v.n > packedBytes {
		return 4 * v.matrices() * PackedLen(v.k, v.n)
	}
	return v.product.Packed(i)
}

// Takes implements [tensor.Taker]: few rows are multiplied with the rows of B in place, or
// with panels that products of more rows want.
func (v *vectorProduct) Takes(i int) tensor.Packing {
	if v.method != byRows || i != v.product.b.index || v.m*v.n*v.k <= tiny {
		return ""
	}
	return v.Packing(i)
}

// Take implements [tensor.Taker].
func (v *vectorProduct) Take(i int) { v.UsePacked(i) }

// sizeA returns the bytes that a part needs for rows of A.
func (v *vectorProduct) sizeA() int {
	if !v.copyA {
		return 0
	}
	return min(rowBlock, v.m) * (v.depth + padding) * 4
}

// sizeB returns the bytes that a part needs for a panel of B.
func (v *vectorProduct) sizeB() int {
	if v.packed || !v.copyB {
		return 0
	}
	return v.depth * Panel * 4
}

// partElements returns the size of a part's scratch memory.
func (v *vectorProduct) partElements() int { return (v.sizeA() + v.sizeB()) / 4 }

// Scratch implements [Kernel].
func (v *vectorProduct) Scratch() int { return 4 * v.slots * v.partElements() }

// vectorProductTask is one run. The units of work are blocks of the result;
// parts take the next unit until none is left.
type vectorProductTask struct {
	*vectorProduct
	y, a, b, c           []float32
	scratch              []float32
	height, width        int
	rowBlocks, colBlocks int
	back                 bool // begins with the last columns
	units                int
	next                 tensor.Tickets
}

// Run implements [Kernel].
func (v *vectorProduct) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &v.task
	t.vectorProduct = v
	t.y, t.a, t.b, t.scratch = tensor.F32s(out[0]), tensor.F32s(in[v.product.a.index]), tensor.F32s(in[v.product.b.index]), tensor.F32s(scratch)
	if v.product.c.index >= 0 {
		t.c = tensor.F32s(in[v.product.c.index])
	}
	if len(t.y) > 0 {
		v.odd = !v.odd
		cost := t.cost()
		workers := tensor.WorkersFor(p, cost)
		t.divide(workers, cost)
		if parts := min(t.units, v.slots, workers); parts > 1 {
			t.next.Reset(p, t.units)
			p.Run(t, parts)
		} else {
			scratch := t.scratch[:t.partElements()]
			for unit := range t.units {
				if p.Ended() {
					break
				}
				t.compute(unit, scratch)
			}
		}
	}
	t.y, t.a, t.b, t.c, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// cost estimates the work, in the units of a [Pool]: a vector of products
// takes half of one, or two where B is read for a single row of A; a vector of
// the result some to begin and to store.
func (t *vectorProductTask) cost() float64 {
	vectors := float64(len(t.product.a.Offsets)) * float64(t.n+15) / 16
	per := 0.5
	if t.path == tensor.PathAVX2 {
		per = 1
	}
	return vectors * (float64(max(t.m, 4))*float64(t.k)*per + 4*float64(t.m))
}

// unitCost is about how much work a unit is at most, some 200 µs, unless several
// workers want less: nobody is to wait long for the last one.
const unitCost = 800 << 10

// unitMost is how many products a unit has at most where it can be divided, some
// 15 ms of them.
const unitMost = 1 << 29

// How many columns make it worth it to copy rows of A, and where its columns lie contiguously.
const (
	copiedColumns     = 16 * Panel
	transposedColumns = 2 * Panel
)

// divide cuts the result into units: for one worker as large as the caches
// want them, for several a few for each.
func (t *vectorProductTask) divide(workers int, cost float64) {
	const rowUnit = rowsAVX512
	batch := len(t.product.a.Offsets)
	t.height, t.width = min(t.m, rowBlock), t.n
	if blocks := (t.m + rowBlock - 1) / rowBlock; blocks > 1 {
		t.height = tensor.RoundUp((t.m+blocks-1)/blocks, rowUnit)
	}
	if workers > 1 {
		want := max(3*workers, min(int(cost/unitCost), 16*workers))
		units := batch * ((t.m + t.height - 1) / t.height)
		if units < want {
			// Columns first: panels of B that are packed on the way are then
			// packed once.
			cols := (want + units - 1) / units
			t.width = max(2*Panel, tensor.RoundUp((t.n+cols-1)/cols, Panel))
			if t.few() {
				// The loops for few rows go over several panels at a time.
				t.width = min(max(t.width, 8*Panel), max(2*Panel, tensor.RoundUp((t.n+workers-1)/workers, 2*Panel)))
			}
			units *= (t.n + t.width - 1) / t.width
		}
		if units < want {
			rows := (want + units - 1) / units
			t.height = max(4*rowUnit, tensor.RoundUp((t.height+rows-1)/rows, rowUnit))
			// Each as high as the others: the last one decides when all are done.
			blocks := (t.m + t.height - 1) / t.height
			t.height = (t.m + blocks - 1) / blocks
		}
	}
	// So that a run can be cancelled after a while.
	if most := unitMost / (max(1, t.height) * max(1, t.k)); t.width > most {
		t.width = min(t.width, max(8*Panel, most/Panel*Panel))
	}
	t.rowBlocks, t.colBlocks = (t.m+t.height-1)/t.height, (t.n+t.width-1)/t.width
	t.units = batch * t.rowBlocks * t.colBlocks
	// More rows have enough to do while B comes.
	t.back = t.odd && (t.few() || t.m <= rowUnit)
}

// Do implements [Task].
func (t *vectorProductTask) Do(part int) {
	size := t.partElements()
	scratch := t.scratch[part*size:][:size]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		t.compute(unit, scratch)
	}
}

// mirrored returns the unit that takes another one's place in a run that goes
// backwards: of the same half of all, which is a worker's own.
func (t *vectorProductTask) mirrored(unit int) int {
	half := t.units / 2
	switch {
	case unit < half:
		return half - 1 - unit
	case unit >= t.units-half:
		return 2*t.units - half - 1 - unit
	}
	return unit
}

// compute computes one block of the result.
func (t *vectorProductTask) compute(unit int, scratch []float32) {
	if t.back {
		unit = t.mirrored(unit)
	}
	j := unit % t.colBlocks * t.width
	unit /= t.colBlocks
	r := unit % t.rowBlocks * t.height
	i := unit / t.rowBlocks
	rows, cols := min(t.height, t.m-r), min(t.width, t.n-j)
	y := t.y[(i*t.m+r)*t.n+j:]
	d := t.addend(y, r, j, rows, cols)
	if t.k == 0 {
		t.start(y, t.c, r, j, rows, cols)
		t.bounds.apply(y, t.n, rows, cols)
		return
	}
	d.limits = t.limits
	a := Matrix[float32]{t.a[t.product.a.Offsets[i]:], t.product.a.Row, t.product.a.Col}.At(r, 0)
	b := Matrix[float32]{t.b[t.product.b.Offsets[i]:], t.product.b.Row, t.product.b.Col}
	switch {
	case t.m*t.n*t.k <= tiny && t.method != byPanels:
		multiplyTiny(y, t.n, rows, cols, a, b, t.k, t.alpha, d)
		return
	case t.method == byDots:
		b = b.At(0, j)
		multiplyDots(t.path, y, t.n, rows, cols, a.Data, a.Row, b.Data, b.Col, t.k, t.alpha, d, t.back)
		return
	case t.packed:
		b.Data = t.b[t.product.b.Offsets[i]/(t.k*t.n)*PackedLen(t.k, t.n):]
		if t.few() {
			MultiplyFew(t.path, y, t.n, rows, cols, a, b.Data[j*t.k:], Panel, t.k*Panel, t.k, t.alpha, d, t.back)
			return
		}
	case t.few():
		b = b.At(0, j)
		MultiplyFew(t.path, y, t.n, rows, cols, a, b.Data, b.Row, Panel, t.k, t.alpha, d, t.back)
		return
	}
	bufA, bufB := scratch[:t.sizeA()/4], scratch[t.sizeA()/4:]
	for p := 0; p < t.k; p += t.depth {
		k := min(t.depth, t.k-p)
		d.limits = limits{}
		if p+k == t.k {
			d.limits = t.limits
		}
		u := a.At(0, p)
		if t.copyA && t.copies(t.width) {
			u = copyRows(bufA, t.depth+padding, u, rows, k)
		}
		for i := range (cols + Panel - 1) / Panel {
			c := t.column(i, cols)
			n := min(Panel, cols-c)
			from := d
			if !d.Column {
				from.Data = d.Data[c:]
			}
			switch {
			case t.packed:
				MultiplyF32(t.path, y[c:], t.n, rows, n, u, b.Data[(j+c)*t.k+p*Panel:], Panel, k, t.alpha, from, t.following(b.Data, j, cols, i, p))
			case t.copyB:
				PackF32(t.path, bufB, b.At(p, j+c), k, n)
				MultiplyF32(t.path, y[c:], t.n, rows, n, u, bufB, Panel, k, t.alpha, from, nil)
			default:
				MultiplyF32(t.path, y[c:], t.n, rows, n, u, b.At(p, j+c).Data, b.Row, k, t.alpha, from, nil)
			}
		}
		d = Addend{Data: y, Row: t.n}
	}
}

// transposedAtOnce is how many columns of A become parts of rows before the next ones: what is read of them stays in the first-level cache.
const transposedAtOnce = 32

// copyRows copies rows of k elements each to dst, where they are ld apart. Either the elements of a row follow each other, or those of a column.
func copyRows(dst []float32, ld int, a Matrix[float32], rows, k int) Matrix[float32] {
	y := Matrix[float32]{dst, ld, 1}
	if a.Col == 1 {
		for row := range rows {
			copy(dst[row*ld:][:k], a.Data[row*a.Row:])
		}
		return y
	}
	for p := 0; p < k; p += transposedAtOnce {
		n := min(transposedAtOnce, k-p)
		to, from := dst[p:], a.Data[p*a.Col:]
		whole, cols := vec.VectorTile(tensor.View[uint32](tensor.RawBytes(to)), tensor.View[uint32](tensor.RawBytes(from)), rows, n, ld, a.Col)
		for row := range rows {
			c := 0
			if row < whole {
				c = cols
			}
			for ; c < n; c++ {
				to[row*ld+c] = from[c*a.Col+row]
			}
		}
	}
	return y
}

// turnBytes is how much memory of panels lies between two turns of a run that
// goes backwards: processors fetch ahead what follows, not what comes before.
const turnBytes = 128 << 10

// column returns where the panel begins that is the i-th to be multiplied, of
// those of cols columns: one after the other or, if the run goes backwards, some
// at a time from the end. That is for the weights that the last run has left
// in the cache: see [multiplyFew].
func (t *vectorProductTask) column(i, cols int) int {
	if !t.back {
		return i * Panel
	}
	panels := (cols + Panel - 1) / Panel
	some := max(1, turnBytes/(4*Panel*t.k))
	left := panels - 1 - i
	from := left / some * some
	to := min(from+some, panels)
	return (from + to - 1 - left) * Panel
}

// following returns the block of a panel that comes after the i-th one at depth
// p of cols columns from j on: of the next panel, or of the first one at the
// next depth. After the last one it is that of the next columns, if there are
// any.
func (t *vectorProductTask) following(b []float32, j, cols, i, p int) []float32 {
	i++
	if next := p + t.depth; i*Panel >= cols && next < t.k {
		i, p = 0, next
	}
	c := cols
	if i*Panel < cols {
		c = t.column(i, cols)
	}
	b = b[min((j+c)*t.k+p*Panel, len(b)):]
	return b[:min(t.depth*Panel, len(b))]
}

// multiplyTiny sets rows×cols elements of y to d + alpha·A·B one by one.
func multiplyTiny(y []float32, ldy, rows, cols int, a, b Matrix[float32], k int, alpha float32, d Addend) {
	for r := range rows {
		for c := range cols {
			sum := float32(0)
			for p, at, bt := 0, r*a.Row, c*b.Col; p < k; p, at, bt = p+1, at+a.Col, bt+b.Row {
				sum += a.Data[at] * b.Data[bt]
			}
			at := r * d.Row
			if !d.Column {
				at += c
			}
			y[r*ldy+c] = d.limits.of(alpha*sum + d.Data[at])
		}
	}
}

// addend returns what a block of the result is added to, which is y itself,
// set to beta·C, if C can't be read as it is.
func (t *vectorProductTask) addend(y []float32, r, j, rows, cols int) Addend {
	c := t.product.c
	switch {
	case t.c == nil:
		return NoAddend
	case t.beta == 1:
		return Addend{Data: t.c[r*c.Row+j*c.Col:], Row: c.Row, Column: c.Col == 0}
	}
	t.start(y, t.c, r, j, rows, cols)
	return Addend{Data: y, Row: t.n}
}
