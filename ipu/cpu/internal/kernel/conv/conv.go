package conv

import (
	"fmt"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// ConvShape is the geometry of a convolution. Fewer than three spatial axes
// are taken for three whose first ones have one element.
type ConvShape struct {
	Batch, Group     int
	Channels, Maps   int // of one group: input channels, output channels
	In, Out, Kernel  [3]int
	Stride, Dilation [3]int
	Pad              [3]int // before the input
	Bounded          bool   // the result is kept within low and high
	low, high        float32
}

// Bounds returns the limits of the result, infinite if it has none.
func (s *ConvShape) Bounds() (low, high float32) {
	if !s.Bounded {
		return float32(math.Inf(-1)), float32(math.Inf(1))
	}
	return s.low, s.high
}

// NewConvShape returns the geometry of a convolution of x and w to y.
func NewConvShape(o *graph.Conv, x, w, y []int64) ConvShape {
	s := ConvShape{
		Batch: int(x[0]), Group: int(o.Group), Channels: int(w[1]), Maps: int(w[0] / o.Group),
		In: [3]int{1, 1, 1}, Out: [3]int{1, 1, 1}, Kernel: [3]int{1, 1, 1},
		Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1},
		Bounded: o.Bounded, low: float32(o.Low), high: float32(o.High),
	}
	skip := 5 - len(x)
	for i := range len(x) - 2 {
		s.In[skip+i], s.Out[skip+i], s.Kernel[skip+i] = int(x[2+i]), int(y[2+i]), int(w[2+i])
		s.Stride[skip+i], s.Dilation[skip+i], s.Pad[skip+i] = int(o.Strides[i]), int(o.Dilations[i]), int(o.PadsBegin[i])
	}
	return s
}

// Product3 returns the product of three sizes.
func Product3(d [3]int) int { return d[0] * d[1] * d[2] }

// Inside returns the outputs [lo, hi) along an axis for which kernel element
// k lies inside the input, not in the padding.
func (s *ConvShape) Inside(axis, k int) (lo, hi int) {
	return tensor.WindowRange(s.In[axis], s.Out[axis], s.Stride[axis], s.Pad[axis]-k*s.Dilation[axis])
}

// FewMaps is the most output channels of a group for which im2col, gathering windows
// into a matrix, costs more than it saves.
const FewMaps = 2

func bindConv(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.Conv)
	s := NewConvShape(o, in[0].Shape, in[1].Shape, out[0].Shape)
	switch in[0].DType {
	case graph.F32:
		return newConv[float32](s), nil
	case graph.F64:
		return newConv[float64](s), nil
	}
	return nil, fmt.Errorf("no kernel for %v with weights %v", in[0], in[1])
}

func newConv[T tensor.Float](s ConvShape) tensor.Kernel {
	if k := newDepthwise[T](s); k != nil {
		return k
	}
	if k := newVectorConv[T](s); k != nil {
		return k
	}
	var k tensor.Kernel
	if s.Maps <= FewMaps {
		k = newDirectConv[T](s)
	} else {
		k = newGemmConv[T](s)
	}
	if s.Bounded {
		k = tensor.NewBoundedKernel(k, s.low, s.high)
	}
	return k
}

// gemmConv is the kernel by im2col and GEMM: a convolution is W·X, where column j of
// X holds the window of output position j. X is never whole: a panel of it is gathered, for a
// block of channels, into memory that stays in the first-level cache while
// all rows of W pass over it.
type gemmConv[T tensor.Float] struct {
	ConvShape
	window int // elements of one channel's window
	block  int // channels gathered at a time
	slots  int // parts that have a panel of scratch memory
	task   gemmConvTask[T]
}

func newGemmConv[T tensor.Float](s ConvShape) *gemmConv[T] {
	k := &gemmConv[T]{ConvShape: s, window: Product3(s.Kernel)}
	k.block = max(1, min(gemm.Block[T]()/max(1, k.window), s.Channels))
	most := max(1, tensor.MostScratch/max(1, k.panelElements()*tensor.ElementSize[T]()))
	k.slots = min(tensor.MaxParts, 4*runtime.GOMAXPROCS(0), most)
	return k
}

// panelElements returns the elements of one gathered panel.
func (c *gemmConv[T]) panelElements() int { return c.block * c.window * gemm.Panel }

// Scratch implements [Kernel].
func (c *gemmConv[T]) Scratch() int { return c.slots * c.panelElements() * tensor.ElementSize[T]() }

// gemmConvTask is one run. The units of work are panels of output positions
// of one image and group, and blocks of output channels where there are few
// panels; parts take the next unit until none is left.
type gemmConvTask[T tensor.Float] struct {
	*gemmConv[T]
	x, w, b, y       []T
	scratch          []T
	panels, height   int
	mapBlocks, units int
	next             tensor.Tickets
}

// Run implements [Kernel].
func (c *gemmConv[T]) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &c.task
	t.gemmConv = c
	t.x, t.w, t.y = tensor.View[T](in[0]), tensor.View[T](in[1]), tensor.View[T](out[0])
	t.b = tensor.View[T](tensor.Memory(in, 2))
	t.scratch = tensor.View[T](scratch)
	t.panels = (Product3(c.Out) + gemm.Panel - 1) / gemm.Panel
	groups := t.panels * c.Batch * c.Group
	t.height = c.Maps
	workers := tensor.WorkersFor(p, float64(len(t.y))*float64(c.Channels*c.window))
	if want := 2 * workers; workers > 1 && groups < want && groups > 0 {
		t.height = max(16, (c.Maps*groups/want+1)&^1)
	}
	t.mapBlocks = (c.Maps + t.height - 1) / t.height
	t.units = groups * t.mapBlocks
	t.next.Reset(p, t.units)
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
		unit, ok := t.next.Draw(part)
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
	pos := unit % t.panels * gemm.Panel
	unit /= t.panels
	g, n := unit%t.Group, unit/t.Group
	last := min(first+t.height, t.Maps)
	plane, positions := Product3(t.In), Product3(t.Out)
	cols := min(gemm.Panel, positions-pos)

	y := t.y[((n*t.Group+g)*t.Maps+first)*positions+pos:]
	for m := first; m < last; m++ {
		row := y[(m-first)*positions:][:cols]
		if t.b == nil {
			clear(row)
			continue
		}
		v := t.b[g*t.Maps+m]
		for i := range row {
			row[i] = v
		}
	}
	depth := t.Channels * t.window
	w := gemm.Matrix[T]{Data: t.w[(g*t.Maps+first)*depth:], Row: depth, Col: 1}
	for c := 0; c < t.Channels; c += t.block {
		channels := min(t.block, t.Channels-c)
		gatherWindows(&t.ConvShape, buf, t.x[((n*t.Group+g)*t.Channels+c)*plane:], channels, pos, cols)
		gemm.MultiplyBlock(y, positions, last-first, cols, w.At(0, c*t.window), buf, gemm.Panel, channels*t.window, 1)
	}
}

// gatherWindows writes the windows of the output positions [pos, pos+cols), for the
// given number of channels from the start of x, as columns of a panel.
func gatherWindows[T tensor.Float](s *ConvShape, dst, x []T, channels, pos, cols int) {
	plane, window := Product3(s.In), Product3(s.Kernel)
	// The positions fall into stretches of one output row each.
	for lane := 0; lane < cols; {
		at := pos + lane
		ox := at % s.Out[2]
		oy := at / s.Out[2] % s.Out[1]
		oz := at / (s.Out[2] * s.Out[1])
		n := min(cols-lane, s.Out[2]-ox)
		k := 0
		for kz := range s.Kernel[0] {
			iz := oz*s.Stride[0] - s.Pad[0] + kz*s.Dilation[0]
			for ky := range s.Kernel[1] {
				iy := oy*s.Stride[1] - s.Pad[1] + ky*s.Dilation[1]
				empty := iz < 0 || iz >= s.In[0] || iy < 0 || iy >= s.In[1]
				for kx := range s.Kernel[2] {
					lo, hi := s.Inside(2, kx)
					lo, hi = max(lo-ox, 0), min(hi-ox, n)
					lo = min(lo, n)
					if empty || hi <= lo {
						lo, hi = n, n
					}
					src := 0
					if lo < hi {
						src = (iz*s.In[1]+iy)*s.In[2] + (ox+lo)*s.Stride[2] - s.Pad[2] + kx*s.Dilation[2]
					}
					for c := range channels {
						row := dst[(c*window+k)*gemm.Panel+lane:][:n]
						gatherRow(row, x[min(c*plane+src, len(x)):], lo, hi, s.Stride[2])
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
func gatherRow[T tensor.Float](row, x []T, lo, hi, stride int) {
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
