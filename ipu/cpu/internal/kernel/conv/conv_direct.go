package conv

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// directConv computes a convolution with few output channels per group
// (depthwise above all) row by row from the input as it lies in memory.
type directConv[T tensor.Float] struct {
	ConvShape
	task directConvTask[T]
}

func newDirectConv[T tensor.Float](s ConvShape) *directConv[T] { return &directConv[T]{ConvShape: s} }

// Scratch implements [Kernel].
func (c *directConv[T]) Scratch() int { return 0 }

// directConvTask is one run. The units of work are rows of the output.
type directConvTask[T tensor.Float] struct {
	*directConv[T]
	x, w, b, y  []T
	rows, parts int
	pool        tensor.Pool
}

// Run implements [Kernel].
func (c *directConv[T]) Run(p tensor.Pool, in, out [][]byte, _ []byte) error {
	t := &c.task
	*t = directConvTask[T]{directConv: c, x: tensor.View[T](in[0]), w: tensor.View[T](in[1]), b: tensor.View[T](tensor.Memory(in, 2)), y: tensor.View[T](out[0]), pool: p}
	if len(t.y) > 0 {
		t.rows = c.Batch * c.Group * c.Maps * c.Out[0] * c.Out[1]
		t.parts = tensor.Cut(p, t.rows, c.Out[2]*c.Channels*Product3(c.Kernel)/2+1)
		p.Run(t, t.parts)
	}
	*t = directConvTask[T]{}
	return nil
}

// Do implements [Task].
func (t *directConvTask[T]) Do(part int) {
	pace := tensor.Pace{Pool: t.pool}
	for row, end := tensor.Span(t.rows, t.parts, part, 1); row < end; row++ {
		t.row(row, &pace)
	}
}

// row computes one row of the output.
func (t *directConvTask[T]) row(row int, pace *tensor.Pace) {
	y := t.y[row*t.Out[2]:][:t.Out[2]]
	oy := row % t.Out[1]
	row /= t.Out[1]
	oz := row % t.Out[0]
	row /= t.Out[0]
	m := row % (t.Group * t.Maps) // output channel
	first := row / t.Maps * t.Channels
	if t.b == nil {
		clear(y)
	} else {
		for i := range y {
			y[i] = t.b[m]
		}
	}
	kz0, kz1 := t.taps(0, oz)
	ky0, ky1 := t.taps(1, oy)
	lineW := t.Kernel[2]
	for c := range t.Channels {
		for kz := kz0; kz < kz1; kz++ {
			iz := oz*t.Stride[0] - t.Pad[0] + kz*t.Dilation[0]
			for ky := ky0; ky < ky1; ky++ {
				iy := oy*t.Stride[1] - t.Pad[1] + ky*t.Dilation[1]
				x := t.x[(((first+c)*t.In[0]+iz)*t.In[1]+iy)*t.In[2]:][:t.In[2]]
				w := t.w[(((m*t.Channels+c)*t.Kernel[0]+kz)*t.Kernel[1]+ky)*lineW:][:lineW]
				if lineW == 3 {
					t.line3(y, x, w)
					continue
				}
				for kx := range w {
					if pace.Ended(len(y)) {
						return
					}
					t.tap(y, x, w, kx, 0, t.Out[2])
				}
			}
		}
	}
}

// taps returns the kernel elements [lo, hi) along an axis that lie inside the
// input for output o.
func (s *ConvShape) taps(axis, o int) (lo, hi int) {
	return tensor.WindowRange(s.In[axis], s.Kernel[axis], s.Dilation[axis], s.Pad[axis]-o*s.Stride[axis])
}

// tap adds kernel element kx of a line to the outputs in [from, to) for which
// it lies inside the input.
func (t *directConvTask[T]) tap(y, x, w []T, kx, from, to int) {
	lo, hi := t.Inside(2, kx)
	lo, hi = max(lo, from), min(hi, to)
	if lo >= hi {
		return
	}
	y = y[lo:hi]
	x = x[lo*t.Stride[2]-t.Pad[2]+kx*t.Dilation[2]:]
	v := w[kx]
	if t.Stride[2] == 1 {
		x = x[:len(y)]
		for i, u := range x {
			y[i] += T(v * u)
		}
		return
	}
	for i, at := 0, 0; i < len(y); i, at = i+1, at+t.Stride[2] {
		y[i] += T(v * x[at])
	}
}

// line3 adds a kernel line of three elements: all at once where the three lie
// inside the input, one by one at the borders.
func (t *directConvTask[T]) line3(y, x, w []T) {
	lo, hi := t.Inside(2, 0)
	lo2, hi2 := t.Inside(2, 2)
	lo, hi = max(lo, lo2), min(hi, hi2)
	// With strong dilation the window may never lie inside as a whole.
	if lo < hi {
		base, d, s := lo*t.Stride[2]-t.Pad[2], t.Dilation[2], t.Stride[2]
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
