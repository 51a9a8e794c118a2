package kernel

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/graph"
)

// convShape is the geometry of a convolution. Fewer than three spatial axes
// are taken for three whose first ones have one element.
type convShape struct {
	batch, group     int
	channels, maps   int // of one group: input channels, output channels
	in, out, kernel  [3]int
	stride, dilation [3]int
	pad              [3]int // before the input
	bounded          bool   // the result is kept within low and high
	low, high        float32
}

// bounds returns what the result is kept within.
func (s *convShape) bounds() (low, high float32) {
	if !s.bounded {
		return float32(math.Inf(-1)), float32(math.Inf(1))
	}
	return s.low, s.high
}

func newConvShape(o *graph.Conv, x, w, y []int64) convShape {
	s := convShape{
		batch: int(x[0]), group: int(o.Group), channels: int(w[1]), maps: int(w[0] / o.Group),
		in: [3]int{1, 1, 1}, out: [3]int{1, 1, 1}, kernel: [3]int{1, 1, 1},
		stride: [3]int{1, 1, 1}, dilation: [3]int{1, 1, 1},
		bounded: o.Bounded, low: float32(o.Low), high: float32(o.High),
	}
	skip := 5 - len(x)
	for i := range len(x) - 2 {
		s.in[skip+i], s.out[skip+i], s.kernel[skip+i] = int(x[2+i]), int(y[2+i]), int(w[2+i])
		s.stride[skip+i], s.dilation[skip+i], s.pad[skip+i] = int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i])
	}
	return s
}

func product3(d [3]int) int { return d[0] * d[1] * d[2] }

// inside returns the outputs [lo, hi) along an axis for which kernel element
// k lies inside the input, not in the padding.
func (s *convShape) inside(axis, k int) (lo, hi int) {
	return windowRange(s.in[axis], s.out[axis], s.stride[axis], s.pad[axis]-k*s.dilation[axis])
}

// fewMaps is the most output channels of a group for which gathering windows
// into a matrix costs more than it saves.
const fewMaps = 2

func bindConv(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
	o := op.(*graph.Conv)
	s := newConvShape(o, in[0].Shape, in[1].Shape, out[0].Shape)
	switch in[0].DType {
	case graph.F32:
		return newConv[float32](s), nil
	case graph.F64:
		return newConv[float64](s), nil
	}
	return nil, fmt.Errorf("no kernel for %v with weights %v", in[0], in[1])
}

func newConv[T float](s convShape) Kernel {
	if k := newDepthwise[T](s); k != nil {
		return k
	}
	if k := newVectorConv[T](s); k != nil {
		return k
	}
	var k Kernel
	if s.maps <= fewMaps {
		k = newDirectConv[T](s)
	} else {
		k = newGemmConv[T](s)
	}
	if s.bounded {
		k = newBoundedKernel(k, s.low, s.high)
	}
	return k
}

// gemmConv computes a convolution as W·X, where column j of X holds the window
// of output position j. X is never whole: a panel of it is gathered, for a
// block of channels, into memory that stays in the first-level cache while
// all rows of W pass over it.
type gemmConv[T float] struct {
	convShape
	window int // elements of one channel's window
	block  int // channels gathered at a time
	slots  int // parts that have a panel of scratch memory
	task   gemmConvTask[T]
}

func newGemmConv[T float](s convShape) *gemmConv[T] {
	k := &gemmConv[T]{convShape: s, window: product3(s.kernel)}
	k.block = max(1, min(block[T]()/max(1, k.window), s.channels))
	most := max(1, mostScratch/max(1, k.panelElements()*elementSize[T]()))
	k.slots = min(maxParts, 4*runtime.GOMAXPROCS(0), most)
	return k
}

// panelElements returns the elements of one gathered panel.
func (c *gemmConv[T]) panelElements() int { return c.block * c.window * panel }

// Scratch implements [Kernel].
func (c *gemmConv[T]) Scratch() int { return c.slots * c.panelElements() * elementSize[T]() }

// gemmConvTask is one run. The units of work are panels of output positions
// of one image and group, and blocks of output channels where there are few
// panels; parts take the next unit until none is left.
type gemmConvTask[T float] struct {
	*gemmConv[T]
	x, w, b, y       []T
	scratch          []T
	panels, height   int
	mapBlocks, units int
	next             tickets
}

// Run implements [Kernel].
func (c *gemmConv[T]) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &c.task
	t.gemmConv = c
	t.x, t.w, t.y = view[T](in[0]), view[T](in[1]), view[T](out[0])
	t.b = view[T](memory(in, 2))
	t.scratch = view[T](scratch)
	t.panels = (product3(c.out) + panel - 1) / panel
	groups := t.panels * c.batch * c.group
	t.height = c.maps
	workers := workersFor(p, float64(len(t.y))*float64(c.channels*c.window))
	if want := 2 * workers; workers > 1 && groups < want && groups > 0 {
		t.height = max(16, (c.maps*groups/want+1)&^1)
	}
	t.mapBlocks = (c.maps + t.height - 1) / t.height
	t.units = groups * t.mapBlocks
	t.next.reset(p, t.units)
	if len(t.y) > 0 {
		p.Run(t, min(t.units, workers, c.slots))
	}
	t.x, t.w, t.b, t.y, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// Do implements [Task].
func (t *gemmConvTask[T]) Do(part int) {
	buf := t.scratch[part*t.panelElements():][:t.panelElements()]
	for {
		unit, ok := t.next.draw(part)
		if !ok {
			return
		}
		t.compute(unit, buf)
	}
}

// compute computes one unit: the output channels [first, last) of a group at
// the positions of a panel.
func (t *gemmConvTask[T]) compute(unit int, buf []T) {
	first := unit % t.mapBlocks * t.height
	unit /= t.mapBlocks
	pos := unit % t.panels * panel
	unit /= t.panels
	g, n := unit%t.group, unit/t.group
	last := min(first+t.height, t.maps)
	plane, positions := product3(t.in), product3(t.out)
	cols := min(panel, positions-pos)

	y := t.y[((n*t.group+g)*t.maps+first)*positions+pos:]
	for m := first; m < last; m++ {
		row := y[(m-first)*positions:][:cols]
		if t.b == nil {
			clear(row)
			continue
		}
		v := t.b[g*t.maps+m]
		for i := range row {
			row[i] = v
		}
	}
	depth := t.channels * t.window
	w := matrix[T]{t.w[(g*t.maps+first)*depth:], depth, 1}
	for c := 0; c < t.channels; c += t.block {
		channels := min(t.block, t.channels-c)
		gatherWindows(&t.convShape, buf, t.x[((n*t.group+g)*t.channels+c)*plane:], channels, pos, cols)
		multiplyBlock(y, positions, last-first, cols, w.at(0, c*t.window), buf, panel, channels*t.window, 1)
	}
}

// gatherWindows writes the windows of the output positions [pos, pos+cols), for the
// given number of channels from the start of x, as columns of a panel.
func gatherWindows[T float](s *convShape, dst, x []T, channels, pos, cols int) {
	plane, window := product3(s.in), product3(s.kernel)
	// The positions fall into stretches of one output row each.
	for lane := 0; lane < cols; {
		at := pos + lane
		ox := at % s.out[2]
		oy := at / s.out[2] % s.out[1]
		oz := at / (s.out[2] * s.out[1])
		n := min(cols-lane, s.out[2]-ox)
		k := 0
		for kz := range s.kernel[0] {
			iz := oz*s.stride[0] - s.pad[0] + kz*s.dilation[0]
			for ky := range s.kernel[1] {
				iy := oy*s.stride[1] - s.pad[1] + ky*s.dilation[1]
				empty := iz < 0 || iz >= s.in[0] || iy < 0 || iy >= s.in[1]
				for kx := range s.kernel[2] {
					lo, hi := s.inside(2, kx)
					lo, hi = max(lo-ox, 0), min(hi-ox, n)
					lo = min(lo, n)
					if empty || hi <= lo {
						lo, hi = n, n
					}
					src := 0
					if lo < hi {
						src = (iz*s.in[1]+iy)*s.in[2] + (ox+lo)*s.stride[2] - s.pad[2] + kx*s.dilation[2]
					}
					for c := range channels {
						row := dst[(c*window+k)*panel+lane:][:n]
						gatherRow(row, x[min(c*plane+src, len(x)):], lo, hi, s.stride[2])
					}
					k++
				}
			}
		}
		lane += n
	}
}

// gatherRow sets row[lo:hi] to every stride-th element of x and the rest to
// zero.
func gatherRow[T float](row, x []T, lo, hi, stride int) {
	clear(row[:lo])
	clear(row[hi:])
	row = row[lo:hi]
	if stride == 1 {
		copy(row, x)
		return
	}
	for i, at := 0, 0; i < len(row); i, at = i+1, at+stride {
		row[i] = x[at]
	}
}
