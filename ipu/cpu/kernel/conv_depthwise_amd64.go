package kernel

// depthwiseArgs are the arguments of the loops that slide one window over a
// strip of one plane. Input elements outside the masks, and rows outside the
// input, count as zero. The order of summation is that of convPlane, see
// [convArgs]. internal/asm knows the fields' offsets.
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
	convShape
	path   vectorPath
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

// newDepthwise returns a kernel that computes s by vectors, nil if it is of
// another kind or there are none for T.
func newDepthwise[T float](s convShape) Kernel {
	_, ok := any(T(0)).(float32)
	size, stride := s.kernel[2], s.stride[2]
	switch {
	case !ok || path == pathGo || s.channels != 1 || s.maps != 1 || s.dilation[1] != 1 || s.dilation[2] != 1:
		return nil
	case s.kernel[0] != 1 || s.in[0] != 1 || s.out[0] != 1:
		return nil
	case s.out[1] < size:
		return nil // much would be added to rows above and below the output
	case size != s.kernel[1] || size != 3 && size != 5 || stride != s.stride[1] || stride > 2 || s.in[1]*s.in[2] == 0:
		return nil
	}
	d := &depthwise{convShape: s, path: path, zeros: make([]float32, s.in[2]+2*beyond)}
	lanes, most := path.lanes(), depthwiseVectors(path, size, stride)
	d.strips = make([]depthwiseStrip, 0, s.out[2]/(most*lanes)+1)
	for column := 0; column < s.out[2]; {
		vectors := min(most, (s.out[2]-column+lanes-1)/lanes)
		d.strips = append(d.strips, d.strip(column, vectors, lanes))
		column += vectors * lanes
	}
	return d
}

// depthwiseVectors is the most vectors of a strip.
func depthwiseVectors(p vectorPath, size, stride int) int {
	switch {
	case p == pathAVX512 && size == 3 && stride == 1:
		return 4
	case p == pathAVX512 || size == 3 && stride == 1:
		return 2
	}
	return 1
}

// strip makes the arguments for a strip of the given number of vectors.
func (d *depthwise) strip(column, vectors, lanes int) depthwiseStrip {
	size, stride, width := d.kernel[2], d.stride[2], d.in[2]
	first := column*stride - d.pad[2]
	low, high := d.bounds()
	s := depthwiseStrip{column: column, args: depthwiseArgs{
		low: low, high: high,
		zeros: &d.zeros[beyond], height: d.in[1], rows: d.out[1], xRow: 4 * width, yRow: 4 * d.out[2], offset: 4 * first, vectors: vectors,
	}}
	a := &s.args
	n := 0
	// mask adds the mask of the vector that begins at an element of a row.
	mask := func(at int) {
		bits := laneBits(-at, width-at, lanes)
		a.masks[n] = uint16(bits)
		if lanes == 8 {
			setLanes(a.lanes[n][:], bits)
		}
		n++
	}
	for kx := 0; kx < size; kx += stride {
		for v := range vectors * stride {
			mask(first + kx + v*lanes)
		}
	}
	left := d.out[2] - column - (vectors-1)*lanes
	a.store = uint16(laneBits(0, left, lanes))
	setLanes(a.last[:], uint32(a.store))
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
func (d *depthwise) Run(p Pool, in, out [][]byte, _ []byte) error {
	t := &d.task
	*t = depthwiseTask{depthwise: d, x: f32s(in[0]), w: f32s(in[1]), b: f32s(memory(in, 2)), y: f32s(out[0])}
	if len(t.y) > 0 {
		t.planes = d.batch * d.group * d.maps
		units := t.planes * len(d.strips)
		t.parts = cut(p, units, len(t.y)/units*d.kernel[2]*d.kernel[2]/5+8)
		p.Run(t, t.parts)
	}
	*t = depthwiseTask{}
	return nil
}

// Do implements [Task].
func (t *depthwiseTask) Do(part int) {
	lo, hi := span(t.planes*len(t.strips), t.parts, part, 1)
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
	size, area, window := t.in[1]*t.in[2], t.out[1]*t.out[2], t.kernel[1]*t.kernel[2]
	image, m := plane/(t.group*t.maps), plane%(t.group*t.maps)
	x := t.x[(image*t.group+m/t.maps)*size:][:size]
	y := t.y[plane*area:][:area]
	w := t.w[m*window:][:window]
	args.x, args.w, args.y, args.row = &x[0], &w[0], &y[column], -t.pad[1]
	if t.b != nil {
		args.bias = t.b[m]
	}
	runDepthwise(t.path, args, window == 9, t.stride[2] == 1)
}

// runDepthwise computes a strip.
func runDepthwise(p vectorPath, args *depthwiseArgs, three, dense bool) {
	if p == pathAVX512 {
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
