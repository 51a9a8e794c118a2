package quant

import (
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// int8MatMul multiplies matrices of bytes. b comes in panels of int8Width
// columns, in which four rows stand side by side, after the sums of its
// columns.
type int8MatMul struct {
	Int8End
	way            int8Way
	m, n, k, steps int
	a, b           []int // where the matrices of each product begin
	aCount, bCount int   // different matrices
	aFlip, bFlip   byte
	copyA          bool
	pitch          int // bytes from row to row of a
	packed         bool
	slots          int
	ones           []byte // a row of a
	absent         []byte // a row of b that becomes zeros

	task int8MatMulTask
}

func bindIntegerMatMul(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.IntegerMatMul)
	as, bs := in[0].Shape, in[1].Shape
	if len(as) == 1 {
		as = []int64{1, as[0]}
	}
	if len(bs) == 1 {
		bs = []int64{bs[0], 1}
	}
	la, lb := as[:len(as)-2], bs[:len(bs)-2]
	m, k, n := int(as[len(as)-2]), int(as[len(as)-1]), int(bs[len(bs)-1])
	batch, err := graph.Broadcast(la, lb)
	if err != nil {
		return nil, err
	}
	t := &int8MatMul{
		Int8End: NewInt8End(in, o.To, o.Bounded, o.Low, o.High, n, k), way: Int8WayOf(tensor.Path), m: m, n: n, k: k, steps: (k + Int8Step - 1) / Int8Step,
		a: gemm.MatrixOffsets(batch, la, m*k), b: gemm.MatrixOffsets(batch, lb, k*n), slots: min(tensor.MaxParts, runtime.GOMAXPROCS(0)),
	}
	if len(t.a) > 1 && gemm.OneMatrix(t.b) && gemm.Follow(gemm.PlainOperand{Row: k, Col: 1, Offsets: t.a}, m, k) {
		t.m *= len(t.a)
		t.a, t.b = t.a[:1], t.b[:1]
	}
	t.aCount, t.bCount = tensor.Elements(la), tensor.Elements(lb)
	if len(t.a) == 1 {
		t.aCount = 1
	}
	t.aFlip, t.bFlip = t.Flips()
	t.pitch = t.steps * t.way.stepBytes()
	t.copyA = t.aFlip != 0 || k%Int8Step != 0 || t.way == int8ByAVX2 || t.pitch%2048 == 0 && t.m > 4
	if t.copyA && t.pitch%1024 == 0 {
		t.pitch += 64 // rows do not share the cache's sets
	}
	t.ones = make([]byte, t.steps*t.way.stepBytes())
	for i := range k {
		placeByte(t.way, t.ones, i, uint8(1))
	}
	t.absent = make([]byte, int8Width)
	for i := range t.absent {
		t.absent[i] = t.bFlip
	}
	return t, nil
}

// matrixBytes returns the bytes of a packed matrix.
func (t *int8MatMul) matrixBytes() int { return t.padded() * (4 + Int8Step*t.steps) }

// partBytes returns the scratch memory of a part: the sums of a tile and its
// results, where they are not stored at once.
func (t *int8MatMul) partBytes() int { return 2 * 4 * int8Height * int8Width }

func (t *int8MatMul) copyBytes() int {
	if !t.copyA {
		return 0
	}
	return t.aCount * t.m * t.pitch
}

func (t *int8MatMul) packBytes() int {
	if t.packed {
		return 0
	}
	return t.bCount * t.matrixBytes()
}

// Scratch implements [Kernel].
func (t *int8MatMul) Scratch() int {
	return t.parameterBytes() + 4*t.bCount*t.padded() + tensor.RoundUp(4*t.aCount*t.m, 64) + tensor.RoundUp(t.copyBytes(), 64) + t.packBytes() + t.slots*t.partBytes()
}

// Packed implements [Packer].
func (t *int8MatMul) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return t.bCount * t.matrixBytes()
}

// Pack implements [Packer].
func (t *int8MatMul) Pack(_ int, dst, src []byte) {
	for i := range t.bCount * t.padded() / int8Width {
		t.packPanel(dst, src, i)
	}
}

// Packing implements [Packer].
func (t *int8MatMul) Packing(int) tensor.Packing {
	return tensor.PackingOf("panels of bytes", int(t.way), t.bCount, t.k, t.n, int(t.bFlip))
}

// UsePacked implements [Packer].
func (t *int8MatMul) UsePacked(int) { t.packed = true }

// packPanel packs one of the panels of all matrices.
func (t *int8MatMul) packPanel(dst, src []byte, i int) {
	panels := t.padded() / int8Width
	matrix, j := i/panels, i%panels*int8Width
	dst, src = dst[matrix*t.matrixBytes():][:t.matrixBytes()], src[matrix*t.k*t.n:][:t.k*t.n]
	cols := min(int8Width, t.n-j)
	to := dst[4*t.padded()+j*Int8Step*t.steps:][:int8Width*Int8Step*t.steps]
	for s := range t.steps {
		lanes := to[s*Int8Step*int8Width:][:Int8Step*int8Width]
		var rows [Int8Step][]byte
		for q := range rows {
			rows[q] = t.absent
			if k := s*Int8Step + q; k < t.k {
				rows[q] = src[k*t.n+j:]
			}
		}
		clear(lanes[Int8Step*cols:])
		Interleave(t.way, lanes, rows, cols, t.bFlip)
	}
	sums := tensor.View[int32](dst[4*j : 4*(j+int8Width)])
	if t.steps == 0 {
		clear(sums)
		return
	}
	int8Products(t.way, &int8Args{a: &t.ones[0], rows: 1, b: &to[0], steps: t.steps, tile: &sums[0], vectors: 2, first: &int8Zeros[0]})
}

// int8MatMulTask is one run. First rows of a are copied and panels of b packed
// where that is wanted, then blocks of the result are computed.
type int8MatMulTask struct {
	*int8MatMul
	y, x, w                          []byte // x and w as they came
	a, b                             []byte // as the loops want them
	aPitch                           int
	first                            []int32 // of each matrix of b
	outer                            []int32 // of each row of a, if b has zero points
	tiles                            []byte
	preparing                        bool
	parts                            int
	height, width                    int
	rowBlocks, colBlocks, perProduct int
	next                             tensor.Tickets
}

// Run implements [Kernel].
func (t *int8MatMul) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	r := &t.task
	take := func(n int) []byte {
		b := scratch[:n:n]
		scratch = scratch[n:]
		return b
	}
	t.prepare(in, take(t.parameterBytes()))
	r.int8MatMul, r.y, r.x, r.w = t, out[0], in[0], in[1]
	r.first = tensor.View[int32](take(4 * t.bCount * t.padded()))
	r.outer = tensor.View[int32](take(tensor.RoundUp(4*t.aCount*t.m, 64)))
	r.a, r.b, r.aPitch = take(tensor.RoundUp(t.copyBytes(), 64)), take(t.packBytes()), t.pitch
	r.tiles = scratch
	workers := min(t.slots, tensor.WorkersFor(p, t.cost()))
	if t.copyA || t.crosses || !t.packed {
		r.preparing, r.parts = true, workers
		p.Run(r, workers)
		r.preparing = false
	}
	if !t.copyA {
		r.a, r.aPitch = in[0], t.k
	}
	if t.packed {
		r.b = in[1]
	}
	for i := range t.bCount {
		sums := tensor.View[int32](r.b[i*t.matrixBytes():][:4*t.padded()])
		t.begin(r.first[i*t.padded():][:t.padded()], tensor.View[int32](tensor.Memory(in, 4)), sums)
	}
	r.divide(workers)
	units := r.perProduct * len(t.a)
	r.next.Reset(p, units)
	p.Run(r, min(units, workers))
	t.done()
	r.y, r.x, r.w, r.a, r.b, r.first, r.outer, r.tiles = nil, nil, nil, nil, nil, nil, nil, nil
	return nil
}

// cost estimates the work, in the units of a [Pool].
func (t *int8MatMul) cost() float64 {
	return t.way.Cost(float64(len(t.a)) * float64(max(t.m, 4)) * float64(t.padded()) * float64(t.k+32))
}

// Cost estimates what so many products cost.
func (w int8Way) Cost(products float64) float64 {
	switch w {
	case Int8ByVNNI:
		return products / 64
	case int8ByAVX2:
		return products / 16
	}
	return 2 * products
}

// divide cuts the result into units.
func (r *int8MatMulTask) divide(workers int) {
	const rows = 4 * int8Height // that a panel of b stays for
	panels := r.padded() / int8Width
	r.height, r.width = min(r.m, rows), r.padded()
	r.rowBlocks = (r.m + r.height - 1) / r.height
	if want, units := 3*workers, len(r.int8MatMul.a)*r.rowBlocks; workers > 1 && units < want {
		cols := min(panels, (want+units-1)/units)
		r.width = (panels + cols - 1) / cols * int8Width
		r.colBlocks = (r.padded() + r.width - 1) / r.width
		if units *= r.colBlocks; units < want {
			r.height = max(12, tensor.RoundUp((r.height*units+want-1)/want, 12))
			r.rowBlocks = (r.m + r.height - 1) / r.height
		}
	}
	r.colBlocks = (r.padded() + r.width - 1) / r.width
	r.perProduct = r.rowBlocks * r.colBlocks
}

// Do implements [Task].
func (r *int8MatMulTask) Do(part int) {
	if r.preparing {
		r.prepareRows(part)
		return
	}
	tiles := r.tiles[part*r.partBytes():][:r.partBytes()]
	for {
		unit, ok := r.next.Draw(part)
		if !ok {
			return
		}
		r.compute(unit, tiles)
	}
}

// prepareRows does one part of what comes before the products.
func (r *int8MatMulTask) prepareRows(part int) {
	lo, hi := tensor.Span(r.aCount*r.m, r.parts, part, 16)
	for i := lo; i < hi && (r.copyA || r.crosses); i++ {
		row := r.x[i*r.k:][:r.k]
		if r.copyA {
			copyRow(r.way, r.a[i*r.pitch:][:r.steps*r.way.stepBytes()], row, r.aFlip)
		}
		if !r.crosses {
			continue
		}
		sum := sumUnsigned(row)
		if r.aFlip != 0 {
			// What bytes above and below 128 gain and lose by the flip.
			sum = 128 * int32(r.k)
			for _, v := range row {
				sum += int32(int8(v))
			}
		}
		r.outer[i] = -sum
	}
	if !r.packed {
		lo, hi := tensor.Span(r.bCount*r.padded()/int8Width, r.parts, part, 1)
		for i := lo; i < hi; i++ {
			r.packPanel(r.b, r.w, i)
		}
	}
}

// compute computes one block of the result.
func (r *int8MatMulTask) compute(unit int, scratch []byte) {
	j := unit % r.colBlocks * r.width
	unit /= r.colBlocks
	row := unit % r.rowBlocks * r.height
	i := unit / r.rowBlocks
	end, matrix := min(row+r.height, r.m), r.int8MatMul.b[i]/max(1, r.k*r.n)
	firstRow := 0
	if r.aCount > 1 {
		firstRow = r.int8MatMul.a[i] / max(1, r.m*r.k) * r.m
	}
	b := r.b[matrix*r.matrixBytes():][:r.matrixBytes()][4*r.padded():]
	first := r.first[matrix*r.padded():][:r.padded()]
	half := len(scratch) / 2
	tile, staged := tensor.View[int32](scratch[:half]), scratch[half:]
	for last := min(j+r.width, r.n); j < last; j += int8Width {
		cols := min(int8Width, r.n-j)
		f := r.finish(j)
		f.tile, f.line = &tile[0], &r.parameter.bZero[j]
		f.keep = int8Masks(cols)
		f.store = f.keep
		for at := row; at < end; at += int8Height {
			rows := min(int8Height, end-at)
			if r.steps == 0 {
				for i := range rows {
					copy(tile[i*int8Width:][:int8Width], first[j:])
				}
			} else {
				int8Products(r.way, &int8Args{
					a: &r.a[(firstRow+at)*r.aPitch], aRow: r.aPitch, rows: rows, b: &b[j*Int8Step*r.steps], steps: r.steps,
					tile: &tile[0], vectors: 2, first: &first[j],
				})
			}
			f.rows = rows
			if r.crosses {
				f.outer = &r.outer[firstRow+at]
			}
			y := r.y[((i*r.m+at)*r.n+j)*r.size:]
			if r.way == int8ByAVX2 && cols < int8Width {
				f.out, f.outRow = &staged[0], int8Width*r.size
				int8Finish(r.way, r.kind, false, &f)
				for q := range rows {
					copy(y[q*r.n*r.size:][:cols*r.size], staged[q*f.outRow:])
				}
				continue
			}
			f.out, f.outRow = &y[0], r.n*r.size
			int8Finish(r.way, r.kind, false, &f)
		}
	}
}
