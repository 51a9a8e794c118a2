package nchwc

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// blockedDepthwiseArgs are the arguments of the loops that slide one square
// window for each channel over a plane in blocks. What lies outside the input
// counts as zero. The order of summation is that of convPlane, see [convArgs].
// internal/asm finds its fields by name. Distances are in bytes.
type blockedDepthwiseArgs struct {
	x       *float32 // the plane's first element
	zeros   *float32 // a row
	w       *float32 // a vector for every element of the window
	bias    *float32
	y       *float32
	r       *float32 // is added, if there is one
	row     int      // of the input under the window's first line; may be outside
	height  int
	width   int
	xRow    int
	rows    int // of the result, at least 1
	column  int // of the input under the window's first column; may be outside
	before  int // pixels of a row whose windows reach beyond its beginning,
	inside  int // lie inside,
	after   int // reach beyond its end
	half    int // not 0: results are rounded to half precision
	bounded int // not 0: results are kept within bounds; only the lower one if it is not 1
	low     float32
	high    float32
}

// slide calls the loop of the path for a size of the window, 3 or 5, and
// a stride, 1 or 2.
func (a *blockedDepthwiseArgs) slide(size, stride int) {
	wide, three, dense := tensor.Path == tensor.PathAVX512, size == 3, stride == 1
	switch {
	case wide && three && dense:
		blockedDepthwise3AVX512(a)
	case wide && three:
		blockedDepthwise3EvenAVX512(a)
	case wide && dense:
		blockedDepthwise5AVX512(a)
	case wide:
		blockedDepthwise5EvenAVX512(a)
	case three && dense:
		blockedDepthwise3AVX2(a)
	case three:
		blockedDepthwise3EvenAVX2(a)
	case dense:
		blockedDepthwise5AVX2(a)
	default:
		blockedDepthwise5EvenAVX2(a)
	}
}

// blockedDepthwise is a convolution of one channel a group with square windows
// of three or five elements, in blocks.
type blockedDepthwise struct {
	conv.ConvShape
	lanes, blocks int
	taps          int
	xPlane        int // elements from block to block
	yPlane        int
	half          bool
	args          blockedDepthwiseArgs // what all planes share
	zeros         []float32
	weights       bool // come packed
	task          blockedDepthwiseTask
}

// newBlockedDepthwise returns a kernel for o with SIMD instructions, nil if there is none.
func newBlockedDepthwise(o *Conv, types []graph.TensorType, out graph.TensorType) tensor.Kernel {
	if tensor.Path == tensor.PathGo || int(o.Lanes) != tensor.Path.Lanes() || !o.In || !o.Out || len(types[0].Shape) != 4 {
		return nil
	}
	s := conv.NewConvShape(&o.Conv, types[0].Shape, types[1].Shape, out.Shape)
	size, stride := s.Kernel[2], s.Stride[2]
	switch {
	case s.Channels != 1 || s.Maps != 1 || s.Dilation[1] != 1 || s.Dilation[2] != 1:
		return nil
	case size != s.Kernel[1] || size != 3 && size != 5 || stride != s.Stride[1] || stride > 2:
		return nil
	case s.In[1]*s.In[2]*s.Out[1]*s.Out[2]*s.Batch*s.Group == 0:
		return nil
	}
	d := &blockedDepthwise{ConvShape: s, lanes: int(o.Lanes), taps: size * size, half: o.Half}
	d.blocks = (s.Group + d.lanes - 1) / d.lanes
	d.xPlane, d.yPlane = s.In[1]*s.In[2]*d.lanes, s.Out[1]*s.Out[2]*d.lanes
	if o.XPlane > 0 {
		d.xPlane = int(o.XPlane) * d.lanes
	}
	if o.YPlane > 0 {
		d.yPlane = int(o.YPlane) * d.lanes
	}
	d.zeros = tensor.Zeros(s.In[2] * d.lanes)
	lo, hi := d.Inside(2, 0)
	lo2, hi2 := d.Inside(2, size-1)
	lo, hi = max(lo, lo2), min(hi, hi2)
	if lo >= hi {
		lo, hi = s.Out[2], s.Out[2]
	}
	low, high := s.Bounds()
	d.args = blockedDepthwiseArgs{
		zeros: &d.zeros[0], height: s.In[1], width: s.In[2], xRow: 4 * s.In[2] * d.lanes, column: -s.Pad[2],
		before: lo, inside: hi - lo, after: s.Out[2] - hi, low: low, high: high,
	}
	if d.half {
		d.args.half = 1
	}
	switch {
	case s.Bounded && math.IsInf(float64(high), 1):
		d.args.bounded = 2
	case s.Bounded:
		d.args.bounded = 1
	}
	return d
}

// Packed implements [Packer].
func (d *blockedDepthwise) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return 4 * d.blocks * d.lanes * d.taps
}

// Windows implements [windower].
func (d *blockedDepthwise) Windows() bool { return true }

// InPlace implements [InPlacer].
func (d *blockedDepthwise) InPlace(i int) bool { return i == 3 }

// Packing implements [Packer].
func (d *blockedDepthwise) Packing(int) tensor.Packing {
	p := tensor.PackingOf("taps of blocks", d.lanes, d.Group, d.taps)
	if d.half {
		p = vec.HalfPacking(graph.F16, p)
	}
	return p
}

// UsePacked implements [Packer].
func (d *blockedDepthwise) UsePacked(int) { d.weights = true }

// Pack implements [Packer]: weights of the channels of a block stand together.
func (d *blockedDepthwise) Pack(_ int, dst, src []byte) {
	var wide []float32
	if d.half {
		wide = make([]float32, len(src)/2)
	}
	d.pack(dst, src, wide)
}

// pack is Pack with memory for weights of half precision as f32.
func (d *blockedDepthwise) pack(dst, src []byte, wide []float32) {
	from, to := wide, tensor.F32s(dst)
	if d.half {
		vec.DecodeHalf(graph.F16, wide, src)
	} else {
		from = tensor.F32s(src)
	}
	clear(to)
	for c := range d.Group {
		for tap, v := range from[c*d.taps:][:d.taps] {
			to[(c/d.lanes*d.taps+tap)*d.lanes+c%d.lanes] = v
		}
	}
}

// Scratch implements [Kernel]: the bias, and weights that do not come packed,
// those of half precision as f32 too.
func (d *blockedDepthwise) Scratch() int {
	n := 4 * d.blocks * d.lanes
	if !d.weights {
		n += d.Packed(1)
		if d.half {
			n += 4 * d.Group * d.taps
		}
	}
	return n
}

// blockedDepthwiseTask is one run. The units of work are parts of planes.
type blockedDepthwiseTask struct {
	*blockedDepthwise
	x, w, b, y, r []float32
	cuts          int // parts of a plane
	units, parts  int
}

// Run implements [Kernel].
func (d *blockedDepthwise) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &d.task
	n := d.blocks * d.lanes
	*t = blockedDepthwiseTask{
		blockedDepthwise: d, x: tensor.F32s(in[0]), w: tensor.F32s(in[1]), y: tensor.F32s(out[0]), r: tensor.F32s(tensor.Memory(in, 3)),
		b: tensor.F32s(scratch)[:n],
	}
	clear(t.b)
	if b := tensor.Memory(in, 2); b != nil && d.half {
		vec.DecodeHalf(graph.F16, t.b[:d.Group], b)
	} else if b != nil {
		copy(t.b, tensor.F32s(b))
	}
	if !d.weights {
		w := scratch[4*n:][:d.Packed(1)]
		d.pack(w, in[1], tensor.F32s(scratch[4*n+len(w):]))
		t.w = tensor.F32s(w)
	}
	planes := d.Batch * d.blocks
	cost := d.Out[1] * d.Out[2] * d.taps * 3 / 2
	t.cuts = 1
	if workers := tensor.WorkersFor(p, float64(planes)*float64(cost)); workers > 1 {
		t.cuts = min(d.Out[1], (4*workers+planes-1)/planes)
	}
	t.units = planes * t.cuts
	t.parts = tensor.Cut(p, t.units, cost/t.cuts)
	p.Run(t, t.parts)
	*t = blockedDepthwiseTask{}
	return nil
}

// Do implements [Task].
func (t *blockedDepthwiseTask) Do(part int) {
	args := t.args
	for unit, end := tensor.Span(t.units, t.parts, part, 1); unit < end; unit++ {
		plane := unit / t.cuts
		lo, hi := tensor.Span(t.Out[1], t.cuts, unit%t.cuts, 1)
		if lo == hi {
			continue
		}
		x := t.x[plane*t.xPlane:][:t.In[1]*t.In[2]*t.lanes]
		at := plane*t.yPlane + lo*t.Out[2]*t.lanes
		y := t.y[at : plane*t.yPlane+hi*t.Out[2]*t.lanes]
		block := plane % t.blocks
		args.x, args.y, args.w, args.bias = &x[0], &y[0], &t.w[block*t.taps*t.lanes], &t.b[block*t.lanes]
		if t.r != nil {
			args.r = &t.r[at:][:len(y)][0]
		}
		args.row, args.rows = lo*t.Stride[1]-t.Pad[1], hi-lo
		args.slide(t.Kernel[2], t.Stride[2])
	}
}
