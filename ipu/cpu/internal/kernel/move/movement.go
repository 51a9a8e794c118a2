package move

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// moveCost is about how many simple element operations copying bytes that
// follow each other takes.
func moveCost(bytes int) int { return 4 + bytes/8 }

// reshape copies, unless the result shares the operand's memory.
type reshape struct{}

func bindReshape(graph.Op, []graph.TensorType, []graph.TensorType) (tensor.Kernel, error) {
	return reshape{}, nil
}

// Scratch implements Kernel.
func (reshape) Scratch() int { return 0 }

// InPlace implements InPlacer.
func (reshape) InPlace(i int) bool { return i == 0 }

// Run implements Kernel.
func (reshape) Run(_ tensor.Pool, in, out [][]byte, _ []byte) error {
	copy(out[0], in[0])
	return nil
}

// strided is the kernel of every operator whose result's elements lie at
// fixed strides in the operand.
type strided struct {
	loop tensor.Loop
	base int // the operand's element that comes first
	size int // bytes of an element
	n    int
	// gather copies a row whose elements lie apart.
	gather func(dst, src []byte, first, stride int)
	// tile says that the loop is a transposition: along axis tileAxis the
	// operand is contiguous, along the last one it is not.
	tile     func(k *strided, from, base, rows, cols int)
	tileAxis int
	outStep  int // the result's stride along tileAxis
	side     int // rows of a tile
	// pairs deals the pairs of planes to apart in the result and from apart in
	// the operand, if it can; it may be nil.
	pairs  func(k *strided, first, place, planes, to, from int) bool
	length int // columns of a tile

	// The run in progress.
	in, out []byte
	parts   int
}

// tileSide is the side of the squares in which transpositions go, so that
// what is read and written stays in the first-level cache. Those whose rows
// follow each other in the result and are short take as many rows as
// longTile, which is also how many columns one part has at least.
const (
	tileSide = 32
	longTile = 1024
)

// newStrided makes the kernel for a result of the given type whose element at
// coordinates c is the operand's element base + Σ c·steps.
func newStrided(out graph.TensorType, base int, steps []int) (tensor.Kernel, error) {
	l, err := tensor.NewLoop(tensor.Ints(out.Shape), steps)
	if err != nil {
		return nil, err
	}
	k := &strided{loop: l, base: base, size: out.DType.Size(), n: tensor.Elements(out.Shape), tileAxis: -1, side: tileSide, length: tileSide}
	last := len(l.Shape) - 1
	if s := l.Stride(0); s != 0 && s != 1 && k.n > 0 {
		k.outStep = l.Shape[last]
		for axis := last - 1; axis >= 0; axis-- {
			if l.Strides[0][axis] == 1 && l.Shape[axis] > 1 {
				k.tileAxis = axis
				break
			}
			k.outStep *= l.Shape[axis]
		}
		if k.interleaves() {
			k.side = longTile
		}
		if k.tileAxis >= 0 && k.deals() {
			k.length = longTile
			if l.Shape[k.tileAxis] == 2 && l.Inner <= longTile && k.size == 4 {
				k.pairs = dealPairs
			}
		}
	}
	switch k.size {
	case 1:
		k.gather, k.tile = stridedRow[uint8], transposeTile[uint8]
	case 2:
		k.gather, k.tile = stridedRow[uint16], transposeTile[uint16]
	case 4:
		k.gather, k.tile = stridedRow[uint32], transposeTile[uint32]
	case 8:
		k.gather, k.tile = stridedRow[uint64], transposeTile[uint64]
	default:
		return nil, tensor.NoKernel("moving", out.DType)
	}
	return k, nil
}

// Scratch implements Kernel.
func (k *strided) Scratch() int { return 0 }

// Run implements Kernel.
func (k *strided) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	k.in, k.out = in[0], out[0]
	if k.tileAxis >= 0 {
		k.parts = tensor.Cut(p, k.planes()*k.bands()*k.strips(), min(k.side, k.loop.Shape[k.tileAxis])*min(longTile, k.loop.Inner))
	} else {
		k.parts = tensor.Cut(p, k.n, 1)
	}
	p.Run(k, k.parts)
	k.in, k.out = nil, nil
	return nil
}

// Do implements Task.
func (k *strided) Do(part int) {
	if k.tileAxis >= 0 {
		k.transpose(part)
		return
	}
	lo, hi := tensor.Span(k.n, k.parts, part, 64)
	if lo == hi {
		return
	}
	inner, stride := k.loop.Inner, k.loop.Stride(0)
	if stride == 1 && len(k.loop.Shape) == 2 && inner*k.size <= shortRun && k.loop.Strides[0][0] >= inner {
		first, last := (lo+inner-1)/inner, hi/inner // whole rows
		if first < last {
			from := k.loop.Strides[0][0]
			moveShortRuns(k.size, k.out[first*inner*k.size:], k.in[(k.base+first*from)*k.size:], last-first, inner, inner, from)
			k.rows(lo, first*inner)
			k.rows(last*inner, hi)
			return
		}
	}
	k.rows(lo, hi)
}

// rows moves the elements from lo to hi row by row.
func (k *strided) rows(lo, hi int) {
	if lo == hi {
		return
	}
	var c tensor.Cursor
	inner, stride := k.loop.Inner, k.loop.Stride(0)
	k.loop.Seek(&c, lo/inner)
	col := lo % inner
	above := len(k.loop.Shape) - 2 // the axis along which rows move together
	if stride != 1 {
		above = -1
	}
	for at := lo; at < hi; {
		n := min(inner-col, hi-at)
		first := k.base + c.Off[0] + col*stride
		if above >= 0 && col == 0 && hi-at >= 2*inner {
			rows, step := min((hi-at)/inner, k.loop.Shape[above]-c.At[above]), k.loop.Strides[0][above]
			if dst := k.out[at*k.size : (at+rows*inner)*k.size]; step == 0 {
				vec.Repeat(dst, k.in[first*k.size:(first+inner)*k.size])
			} else if run := inner * k.size; step > 0 {
				copyRuns(dst, k.in[first*k.size:], rows, run, run, step*k.size)
			} else {
				for r := range rows {
					copy(dst[r*run:][:run], k.in[(first+r*step)*k.size:])
				}
			}
			at += rows * inner
			c.At[above] += rows - 1
			c.Off[0] += (rows - 1) * step
			k.loop.Next(&c)
			continue
		}
		dst := k.out[at*k.size : (at+n)*k.size]
		switch stride {
		case 1:
			copy(dst, k.in[first*k.size:])
		case 0:
			vec.Repeat(dst, k.in[first*k.size:(first+1)*k.size])
		default:
			k.gather(dst, k.in, first, stride)
		}
		at += n
		col = 0
		k.loop.Next(&c)
	}
}

// stridedRow copies elements that lie stride apart in src, from first on.
func stridedRow[E tensor.Unsigned](dst, src []byte, first, stride int) {
	d, s := tensor.View[E](dst), tensor.View[E](src)
	for i := range d {
		d[i] = s[first]
		first += stride
	}
}

// bands returns how many rows of tiles a plane has.
func (k *strided) bands() int {
	return (k.loop.Shape[k.tileAxis] + k.side - 1) / k.side
}

// strips returns into how many strips of columns a row of tiles can be cut.
func (k *strided) strips() int { return (k.loop.Inner + longTile - 1) / longTile }

// planes returns how many planes, spanned by tileAxis and the last axis, the
// loop has.
func (k *strided) planes() int {
	return k.loop.Rows / k.loop.Shape[k.tileAxis]
}

// transpose computes a part, a range of strips of tiles.
func (k *strided) transpose(part int) {
	strips := k.strips()
	pieces := k.bands() * strips // of a plane
	lo, hi := tensor.Span(k.planes()*pieces, k.parts, part, 1)
	last := len(k.loop.Shape) - 1
	// Where the plane lies, by its place on all axes but the two it spans.
	var at, steps [tensor.MaxAxes]int
	from, to, step, plane := k.base, 0, 1, lo/pieces
	for axis := last; axis >= 0; axis-- {
		d := k.loop.Shape[axis]
		if axis != last && axis != k.tileAxis {
			at[axis], steps[axis] = plane%d, step
			plane /= d
			from += at[axis] * k.loop.Strides[0][axis]
			to += at[axis] * step
		}
		step *= d
	}
	for item, piece := lo, lo%pieces; item < hi; item, piece = item+1, piece+1 {
		for axis := last - 1; piece == pieces; axis-- {
			if axis == k.tileAxis {
				continue
			}
			d, stride := k.loop.Shape[axis], k.loop.Strides[0][axis]
			at[axis]++
			from += stride
			to += steps[axis]
			if at[axis] < d {
				piece = 0
				break
			}
			at[axis] = 0
			from -= d * stride
			to -= d * steps[axis]
		}
		row, strip := piece/strips*k.side, piece%strips
		rows := min(k.side, k.loop.Shape[k.tileAxis]-row)
		if axis := last - 1; k.pairs != nil && axis != k.tileAxis {
			// Planes that differ by their place on one axis.
			n := min(hi-item, k.loop.Shape[axis]-at[axis], longTile*tileSide/k.loop.Inner)
			if stride := k.loop.Strides[0][axis]; k.pairs(k, from, to, n, steps[axis], stride) {
				item, at[axis] = item+n-1, at[axis]+n-1
				from, to = from+(n-1)*stride, to+(n-1)*steps[axis]
				continue
			}
		}
		for col, end := strip*longTile, min((strip+1)*longTile, k.loop.Inner); col < end; col += k.length {
			cols := min(k.length, end-col)
			k.tile(k, from+row+col*k.loop.Stride(0), to+row*k.outStep+col, rows, cols)
		}
	}
}

// transposeTile copies rows by cols elements. They begin at from in the
// operand, where rows are neighbours, and at to in the result, where columns
// are.
func transposeTile[E tensor.Unsigned](k *strided, from, to, rows, cols int) {
	src, dst, stride := tensor.View[E](k.in), tensor.View[E](k.out), k.loop.Stride(0)
	if k.interleaves() {
		dst = dst[to:][:rows*cols]
		switch a, b := src[from:][:rows], src[from+stride:][:rows]; cols {
		case 2:
			interleave2(dst, a, b)
		case 3:
			interleave3(dst, a, b, src[from+2*stride:][:rows])
		case 4:
			interleave4(dst, a, b, src[from+2*stride:][:rows], src[from+3*stride:][:rows])
		}
		return
	}
	if k.deals() && rows == 2 {
		a, b := dst[to:][:cols], dst[to+k.outStep:][:cols]
		if vec.VectorDeal2(a, b, src[from:], cols, 1, 0, 0) {
			return
		}
		for i, src := 0, src[from:][:2*cols]; len(src) >= 2 && i < len(a) && i < len(b); i, src = i+1, src[2:] {
			a[i], b[i] = src[0], src[1]
		}
		return
	}
	if k.deals() {
		a, b, c := dst[to:][:cols], dst[to+k.outStep:][:cols], dst[to+2*k.outStep:][:cols]
		src = src[from:][:3*cols]
		n := vec.VectorDeal(a, b, c, src)
		for a, b, c, src = a[n:], b[n:], c[n:], src[3*n:]; len(src) >= 3 && len(a) > 0 && len(b) > 0 && len(c) > 0; src = src[3:] {
			a[0], b[0], c[0] = src[0], src[1], src[2]
			a, b, c = a[1:], b[1:], c[1:]
		}
		return
	}
	dst, src = dst[to:], src[from:]
	r, c := vec.VectorTile(dst, src, rows, cols, k.outStep, stride)
	transposePlain(dst[min(c, cols-1):], src[min(c, cols-1)*stride:], r, cols-c, k.outStep, stride)
	transposePlain(dst[min(r, rows-1)*k.outStep:], src[min(r, rows-1):], rows-r, cols, k.outStep, stride)
}

// transposePlain sets dst[r·to + c] to src[c·from + r].
func transposePlain[E tensor.Unsigned](dst, src []E, rows, cols, to, from int) {
	r := 0
	for ; r+4 <= rows; r += 4 {
		d0 := dst[(r+0)*to:][:cols]
		d1 := dst[(r+1)*to:][:cols]
		d2 := dst[(r+2)*to:][:cols]
		d3 := dst[(r+3)*to:][:cols]
		at := r
		for c := range d0 {
			s := src[at : at+4 : at+4]
			d0[c], d1[c], d2[c], d3[c] = s[0], s[1], s[2], s[3]
			at += from
		}
	}
	for ; r < rows; r++ {
		d := dst[r*to:][:cols]
		at := r
		for c := range d {
			d[c] = src[at]
			at += from
		}
	}
}

// dealPairs deals the pairs of planes that begin at first in the operand and at
// place in the result.
func dealPairs(k *strided, first, place, planes, to, from int) bool {
	src, dst := tensor.View[uint32](k.in)[first:], tensor.View[uint32](k.out)[place:]
	return from > 0 && vec.VectorDeal2(dst, dst[k.outStep:], src, k.loop.Inner, planes, to, from)
}

// deals reports whether the operand's elements go to two or three rows in turn.
func (k *strided) deals() bool {
	n := k.loop.Shape[k.tileAxis]
	return (n == 2 || n == 3) && k.loop.Stride(0) == n
}

// interleaves reports whether rows of two to four elements follow each other
// in the result.
func (k *strided) interleaves() bool {
	return k.outStep == k.loop.Inner && k.loop.Inner >= 2 && k.loop.Inner <= 4
}

// interleave2 puts the elements of two rows in turn, interleave3 those of
// three, interleave4 those of four.
func interleave2[E tensor.Unsigned](dst, a, b []E) {
	for i := range min(len(a), len(b), len(dst)/2) {
		d := dst[2*i : 2*i+2 : 2*i+2]
		d[0], d[1] = a[i], b[i]
	}
}

func interleave3[E tensor.Unsigned](dst, a, b, c []E) {
	for i := range min(len(a), len(b), len(c), len(dst)/3) {
		d := dst[3*i : 3*i+3 : 3*i+3]
		d[0], d[1], d[2] = a[i], b[i], c[i]
	}
}

func interleave4[E tensor.Unsigned](dst, a, b, c, e []E) {
	for i := range min(len(a), len(b), len(c), len(e), len(dst)/4) {
		d := dst[4*i : 4*i+4 : 4*i+4]
		d[0], d[1], d[2], d[3] = a[i], b[i], c[i], e[i]
	}
}

func bindTranspose(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	own := tensor.Strides(in[0].Shape)
	steps := make([]int, len(own))
	for i, p := range op.(*graph.Transpose).Perm {
		steps[i] = own[p]
	}
	return newStrided(out[0], 0, steps)
}

func bindSlice(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Slice)
	steps := tensor.Strides(in[0].Shape)
	base := 0
	for i := range steps {
		base += int(o.Start[i]) * steps[i]
		// A step that is never taken may be any number: keep it out of products.
		if o.Size[i] > 1 {
			steps[i] *= int(o.Step[i])
		}
	}
	return newStrided(out[0], base, steps)
}

func bindExpand(_ graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	return newStrided(out[0], 0, tensor.BroadcastStrides(out[0].Shape, in[0].Shape))
}
