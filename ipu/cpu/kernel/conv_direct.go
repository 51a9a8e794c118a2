package kernel

// directConv computes a convolution with few output channels per group
// (depthwise above all) row by row from the input as it lies in memory.
type directConv[T float] struct {
	convShape
	task directConvTask[T]
}

func newDirectConv[T float](s convShape) *directConv[T] { return &directConv[T]{convShape: s} }

// Scratch implements [Kernel].
func (c *directConv[T]) Scratch() int { return 0 }

// directConvTask is one run. The units of work are rows of the output.
type directConvTask[T float] struct {
	*directConv[T]
	x, w, b, y  []T
	rows, parts int
	pool        Pool
}

// Run implements [Kernel].
func (c *directConv[T]) Run(p Pool, in, out [][]byte, _ []byte) error {
	t := &c.task
	*t = directConvTask[T]{directConv: c, x: view[T](in[0]), w: view[T](in[1]), b: view[T](memory(in, 2)), y: view[T](out[0]), pool: p}
	if len(t.y) > 0 {
		t.rows = c.batch * c.group * c.maps * c.out[0] * c.out[1]
		t.parts = cut(p, t.rows, c.out[2]*c.channels*product3(c.kernel)/2+1)
		p.Run(t, t.parts)
	}
	*t = directConvTask[T]{}
	return nil
}

// Do implements [Task].
func (t *directConvTask[T]) Do(part int) {
	pace := pace{pool: t.pool}
	for row, end := span(t.rows, t.parts, part, 1); row < end; row++ {
		t.row(row, &pace)
	}
}

// row computes one row of the output.
func (t *directConvTask[T]) row(row int, pace *pace) {
	y := t.y[row*t.out[2]:][:t.out[2]]
	oy := row % t.out[1]
	row /= t.out[1]
	oz := row % t.out[0]
	row /= t.out[0]
	m := row % (t.group * t.maps) // output channel
	first := row / t.maps * t.channels
	if t.b == nil {
		clear(y)
	} else {
		for i := range y {
			y[i] = t.b[m]
		}
	}
	kz0, kz1 := t.taps(0, oz)
	ky0, ky1 := t.taps(1, oy)
	lineW := t.kernel[2]
	for c := range t.channels {
		for kz := kz0; kz < kz1; kz++ {
			iz := oz*t.stride[0] - t.pad[0] + kz*t.dilation[0]
			for ky := ky0; ky < ky1; ky++ {
				iy := oy*t.stride[1] - t.pad[1] + ky*t.dilation[1]
				x := t.x[(((first+c)*t.in[0]+iz)*t.in[1]+iy)*t.in[2]:][:t.in[2]]
				w := t.w[(((m*t.channels+c)*t.kernel[0]+kz)*t.kernel[1]+ky)*lineW:][:lineW]
				if lineW == 3 {
					t.line3(y, x, w)
					continue
				}
				for kx := range w {
					if pace.ended(len(y)) {
						return
					}
					t.tap(y, x, w, kx, 0, t.out[2])
				}
			}
		}
	}
}

// taps returns the kernel elements [lo, hi) along an axis that lie inside the
// input for output o.
func (s *convShape) taps(axis, o int) (lo, hi int) {
	return windowRange(s.in[axis], s.kernel[axis], s.dilation[axis], s.pad[axis]-o*s.stride[axis])
}

// tap adds kernel element kx of a line to the outputs in [from, to) for which
// it lies inside the input.
func (t *directConvTask[T]) tap(y, x, w []T, kx, from, to int) {
	lo, hi := t.inside(2, kx)
	lo, hi = max(lo, from), min(hi, to)
	if lo >= hi {
		return
	}
	y = y[lo:hi]
	x = x[lo*t.stride[2]-t.pad[2]+kx*t.dilation[2]:]
	v := w[kx]
	if t.stride[2] == 1 {
		x = x[:len(y)]
		for i, u := range x {
			y[i] += T(v * u)
		}
		return
	}
	for i, at := 0, 0; i < len(y); i, at = i+1, at+t.stride[2] {
		y[i] += T(v * x[at])
	}
}

// line3 adds a kernel line of three elements: all at once where the three lie
// inside the input, one by one at the borders.
func (t *directConvTask[T]) line3(y, x, w []T) {
	lo, hi := t.inside(2, 0)
	lo2, hi2 := t.inside(2, 2)
	lo, hi = max(lo, lo2), min(hi, hi2)
	// With strong dilation the window may never lie inside as a whole.
	if lo < hi {
		base, d, s := lo*t.stride[2]-t.pad[2], t.dilation[2], t.stride[2]
		w0, w1, w2 := w[0], w[1], w[2]
		y := y[lo:hi]
		if s == 1 {
			x0, x1, x2 := x[base:][:len(y)], x[base+d:][:len(y)], x[base+2*d:][:len(y)]
			for i, v := range y {
				y[i] = v + (T(w0*x0[i]) + T(w1*x1[i]) + T(w2*x2[i]))
			}
		} else {
			x0, x1, x2 := x[base:], x[base+d:], x[base+2*d:]
			for i, at := 0, 0; i < len(y); i, at = i+1, at+s {
				y[i] += T(w0*x0[at]) + T(w1*x1[at]) + T(w2*x2[at])
			}
		}
	} else {
		lo, hi = len(y), len(y)
	}
	for kx := range 3 {
		t.tap(y, x, w, kx, 0, lo)
		t.tap(y, x, w, kx, hi, len(y))
	}
}
