package conv

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// depthwiseArgs are the arguments of the loops that slide one window over a
// strip of one plane. Input elements outside the masks, and rows outside the
// input, count as zero. The order of summation is that of convPlane, see
// [convArgs]. internal/asm finds its fields by name.
type depthwiseArgs struct {
	x, w, y    *float32 // x is the plane's first element, y the strip's
	zeros      *float32 // a row
	row        int      // of the input under the window's first line; may be outside
	height     int      // rows of the input
	rows       int      // of the output, at least 1
	xRow, yRow int      // bytes from row to row
	offset     int      // bytes from a row's first element to the one under the window's first column
	vectors    int      // width of the strip
	bias       float32
	low, high  float32    // bounds of the result
	masks      [20]uint16 // of the vectors that are read, in this order
	store      uint16     // of the last vector of the result
	lanes      [12][8]int32
	last       [8]int32
}

// beyond is more elements than what vectors reach beyond either end of a row.
// They are not read, but to find that out takes the processor long if memory
// that was never used lies there.
const beyond = 256

// depthwise is a convolution of one channel a group with square windows of
// three or five elements.
type depthwise struct {
	ConvShape
	path   tensor.VectorPath
	strips []depthwiseStrip
	zeros  []float32
	task   depthwiseTask
}

// depthwiseStrip is a strip of the output, with the arguments that all planes
// share.
type depthwiseStrip struct {
	column int
	args   depthwiseArgs
}

// newDepthwise returns a kernel that computes s with SIMD instructions, nil if it is of
// another kind or there are none for T.
func newDepthwise[T tensor.Float](s ConvShape) tensor.Kernel {
	_, ok := any(T(0)).(float32)
	size, stride := s.Kernel[2], s.Stride[2]
	switch {
	case !ok || tensor.Path == tensor.PathGo || s.Channels != 1 || s.Maps != 1 || s.Dilation[1] != 1 || s.Dilation[2] != 1:
		return nil
	case s.Kernel[0] != 1 || s.In[0] != 1 || s.Out[0] != 1:
		return nil
	case s.Out[1] < size:
		return nil // much would be added to rows above and below the output
	case size != s.Kernel[1] || size != 3 && size != 5 || stride != s.Stride[1] || stride > 2 || s.In[1]*s.In[2] == 0:
		return nil
	}
	d := &depthwise{ConvShape: s, path: tensor.Path, zeros: tensor.Zeros(s.In[2] + 2*beyond)}
	lanes, most := tensor.Path.Lanes(), depthwiseVectors(tensor.Path, size, stride)
	d.strips = make([]depthwiseStrip, 0, s.Out[2]/(most*lanes)+1)
	for column := 0; column < s.Out[2]; {
		vectors := min(most, (s.Out[2]-column+lanes-1)/lanes)
		d.strips = append(d.strips, d.strip(column, vectors, lanes))
		column += vectors * lanes
	}
	return d
}

// depthwiseVectors is the most vectors of a strip.
func depthwiseVectors(p tensor.VectorPath, size, stride int) int {
	switch {
	case p == tensor.PathAVX512 && size == 3 && stride == 1:
		return 4
	case p == tensor.PathAVX512 || size == 3 && stride == 1:
		return 2
	}
	return 1
}

// strip makes the arguments for a strip of the given number of vectors.
func (d *depthwise) strip(column, vectors, lanes int) depthwiseStrip {
	size, stride, width := d.Kernel[2], d.Stride[2], d.In[2]
	first := column*stride - d.Pad[2]
	low, high := d.Bounds()
	s := depthwiseStrip{column: column, args: depthwiseArgs{
		low: low, high: high,
		zeros: &d.zeros[beyond], height: d.In[1], rows: d.Out[1], xRow: 4 * width, yRow: 4 * d.Out[2], offset: 4 * first, vectors: vectors,
	}}
	a := &s.args
	n := 0
	// mask adds the mask of the vector that begins at an element of a row.
	mask := func(at int) {
		bits := laneBits(-at, width-at, lanes)
		a.masks[n] = uint16(bits)
		if lanes == 8 {
			gemm.SetLanes(a.lanes[n][:], bits)
		}
		n++
	}
	for kx := 0; kx < size; kx += stride {
		for v := range vectors * stride {
			mask(first + kx + v*lanes)
		}
	}
	left := d.Out[2] - column - (vectors-1)*lanes
	a.store = uint16(laneBits(0, left, lanes))
	gemm.SetLanes(a.last[:], uint32(a.store))
	return s
}

// Scratch implements [Kernel].
func (d *depthwise) Scratch() int { return 0 }

// depthwiseTask is one run. The units of work are strips of the output's
// planes.
type depthwiseTask struct {
	*depthwise
	x, w, b, y []float32
	planes     int
	parts      int
}

// Run implements [Kernel].
func (d *depthwise) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &d.task
	*t = depthwiseTask{depthwise: d, x: tensor.F32s(in[0]), w: tensor.F32s(in[1]), b: tensor.F32s(tensor.Memory(in, 2)), y: tensor.F32s(out[0])}
	if len(t.y) > 0 {
		t.planes = d.Batch * d.Group * d.Maps
		units := t.planes * len(d.strips)
		t.parts = tensor.Cut(p, units, len(t.y)/units*d.Kernel[2]*d.Kernel[2]/5+8)
		p.Run(t, t.parts)
	}
	*t = depthwiseTask{}
	return nil
}

// Do implements [Task].
func (t *depthwiseTask) Do(part int) {
	lo, hi := tensor.Span(t.planes*len(t.strips), t.parts, part, 1)
	var args depthwiseArgs
	for i := lo; i < hi; i++ {
		// A plane of a single strip is little work, even compared with a copy
		// of the arguments that it shares with the others.
		s := &t.strips[i%len(t.strips)]
		if i == lo || len(t.strips) > 1 {
			args = s.args
		}
		t.compute(&args, i/len(t.strips), s.column)
	}
}

// compute computes a strip of a plane of the output.
func (t *depthwiseTask) compute(args *depthwiseArgs, plane, column int) {
	size, area, window := t.In[1]*t.In[2], t.Out[1]*t.Out[2], t.Kernel[1]*t.Kernel[2]
	image, m := plane/(t.Group*t.Maps), plane%(t.Group*t.Maps)
	x := t.x[(image*t.Group+m/t.Maps)*size:][:size]
	y := t.y[plane*area:][:area]
	w := t.w[m*window:][:window]
	args.x, args.w, args.y, args.row = &x[0], &w[0], &y[column], -t.Pad[1]
	if t.b != nil {
		args.bias = t.b[m]
	}
	runDepthwise(t.path, args, window == 9, t.Stride[2] == 1)
}

// runDepthwise computes a strip.
func runDepthwise(p tensor.VectorPath, args *depthwiseArgs, three, dense bool) {
	if p == tensor.PathAVX512 {
		switch {
		case three && dense:
			depthwise3AVX512(args)
		case three:
			depthwise3EvenAVX512(args)
		case dense:
			depthwise5AVX512(args)
		default:
			depthwise5EvenAVX512(args)
		}
		return
	}
	switch {
	case three && dense:
		depthwise3AVX2(args)
	case three:
		depthwise3EvenAVX2(args)
	case dense:
		depthwise5AVX2(args)
	default:
		depthwise5EvenAVX2(args)
	}
}
