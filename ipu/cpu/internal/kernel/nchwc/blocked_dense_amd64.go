package nchwc

import (
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// blockedDense computes a convolution on NCHWc by register tiles, see
// [blockedArgs]. Where windows leave the image a band of it is copied and
// padded; else it is read where it lies.
type blockedDense struct {
	conv.ConvShape
	path      tensor.VectorPath
	lanes     int
	half      bool
	low, high float32

	x, y      blockMove // between the operand's, or the result's, NCHW and NCHWc
	decode    bool      // x is planes of F16, and stays planes
	direct    bool      // no band is copied
	part      int       // elements of a line of channels: a block's, or one
	lines     int       // of channels in a group of x
	depth     int       // products of a sum
	tall      int       // pixels of a tile
	blocks    int       // of output channels: those of a tile
	rows      int       // of the most that a unit computes
	width     int       // of a row, as much
	rowPitch  int       // elements from row to row of what is read
	linePitch int       // and from channels to channels
	xPlane    int       // and of x
	offsets   []int32
	weights   bool // come packed
	slots     int

	// Where in scratch memory things lie.
	xAt, yAt, rAt, biasAt, weightsAt, wideAt, partsAt int

	widen vec.WidenTask
	task  blockedDenseTask
}

// newBlockedDense returns a kernel for o with SIMD instructions, nil if there is none.
func newBlockedDense(o *Conv, types []graph.TensorType, out graph.TensorType) tensor.Kernel {
	if tensor.Path == tensor.PathGo || int(o.Lanes) != tensor.Path.Lanes() || len(types[0].Shape) > 4 {
		return nil
	}
	s := conv.NewConvShape(&o.Conv, types[0].Shape, types[1].Shape, out.Shape)
	lanes := tensor.Path.Lanes()
	if s.Channels == 1 && s.Maps == 1 {
		return nil // other sums
	}
	if s.Group > 1 && (s.Channels%lanes != 0 || s.Maps%lanes != 0) || conv.Product3(s.Out)*s.Batch*s.Maps == 0 || conv.Product3(s.In)*s.Channels*conv.Product3(s.Kernel) == 0 {
		return nil
	}
	d := &blockedDense{ConvShape: s, path: tensor.Path, lanes: lanes, half: o.Half}
	d.low, d.high = s.Bounds()
	d.x.half, d.y.half = types[0].DType == graph.F16, o.Half
	d.x.to = true
	d.x.blockShape, d.y.blockShape = newBlockShape(types[0].Shape, lanes), newBlockShape(out.Shape, lanes)
	inBlocks := o.In || s.Channels*s.Group >= lanes
	if s.Group > 1 && !inBlocks {
		return nil
	}
	d.part, d.lines = 1, s.Channels
	if inBlocks {
		d.part, d.lines = lanes, (s.Channels+lanes-1)/lanes
	}
	d.xPlane = s.In[1] * s.In[2] * d.part
	if o.XPlane > 0 {
		d.xPlane = int(o.XPlane) * d.part
	}
	if !d.plan() {
		return nil
	}
	d.place(o, inBlocks)
	return d
}

// plan chooses what a unit is and where its elements lie.
func (d *blockedDense) plan() bool {
	s := &d.ConvShape
	d.tall, _, _ = conv.ConvLimits(d.path)
	d.depth = s.Channels * conv.Product3(s.Kernel)
	d.blocks = (s.Maps + 2*d.lanes - 1) / (2 * d.lanes)
	inside := true
	for i := 1; i < 3; i++ {
		inside = inside && s.Pad[i] == 0 && (s.Out[i]-1)*s.Stride[i]+(s.Kernel[i]-1)*s.Dilation[i] < s.In[i]
	}
	d.direct = inside
	if inside && s.Kernel == [3]int{1, 1, 1} && s.Stride == [3]int{1, 1, 1} && s.In == s.Out {
		n := s.In[1] * s.In[2]
		s.In, s.Out = [3]int{1, 1, n}, [3]int{1, 1, n}
	}
	d.rows, d.width = s.Out[1], s.Out[2]
	for n := 2; d.rows > 1 && d.bandBytes(d.rows, d.width) > blockedBandBytes; n++ {
		d.rows = d.rowUnits((s.Out[1] + n - 1) / n)
		if d.rows == d.leastRows() {
			break
		}
	}
	for n := 2; d.bandBytes(d.rows, d.width) > 2*blockedBandBytes && d.width > 4*d.tall; n++ {
		d.width = tensor.RoundUp((s.Out[2]+n-1)/n, d.tall)
	}
	if d.direct {
		d.rowPitch, d.linePitch = s.In[2]*d.part, d.xPlane
	} else {
		d.rowPitch = d.columnsIn(d.width) * d.part
		d.linePitch = d.rowsIn(d.rows) * d.rowPitch
	}
	if 4*d.lines*d.linePitch > math.MaxInt32 {
		return false
	}
	d.offsets = make([]int32, 0, d.depth)
	for c := range s.Channels {
		for ky := range s.Kernel[1] {
			for kx := range s.Kernel[2] {
				at := c/d.part*d.linePitch + c%d.part + ky*s.Dilation[1]*d.rowPitch + kx*s.Dilation[2]*d.part
				d.offsets = append(d.offsets, int32(4*at))
			}
		}
	}
	return true
}

// leastRows is the number of rows that are computed together: two where both
// fit into a tile.
func (d *blockedDense) leastRows() int {
	if 2*d.Out[2] <= d.tall && d.Out[1] > 1 {
		return 2
	}
	return 1
}

func (d *blockedDense) rowUnits(rows int) int { return tensor.RoundUp(max(1, rows), d.leastRows()) }

// rowsIn and columnsIn return what of the image is read for so many rows, or
// columns, of the result.
func (d *blockedDense) rowsIn(rows int) int {
	return (rows-1)*d.Stride[1] + (d.Kernel[1]-1)*d.Dilation[1] + 1
}

func (d *blockedDense) columnsIn(columns int) int {
	return (columns-1)*d.Stride[2] + (d.Kernel[2]-1)*d.Dilation[2] + 1
}

func (d *blockedDense) bandBytes(rows, columns int) int {
	return 4 * d.lines * d.part * d.rowsIn(rows) * d.columnsIn(columns)
}

// sumBytes is the memory that a part needs for a tile.
const sumBytes = 14 * 32 * 4

func (d *blockedDense) partBytes() int {
	if d.direct {
		return tensor.RoundUp(sumBytes, 64)
	}
	// An odd number of cache lines.
	return tensor.RoundUp(sumBytes, 64) + (tensor.RoundUp(4*d.lines*d.linePitch, 64) | 64)
}

// place lays out scratch memory.
func (d *blockedDense) place(o *Conv, inBlocks bool) {
	n := 0
	take := func(bytes int) int {
		at := n
		n += tensor.RoundUp(bytes, 64)
		return at
	}
	d.xAt, d.yAt, d.rAt = -1, -1, -1
	switch {
	case !o.In && inBlocks:
		d.xAt = take(4 * d.x.images * d.x.blocks * d.x.pixels * d.lanes)
	case !o.In && d.x.half:
		d.xAt, d.decode = take(4*d.x.images*d.x.channels*d.x.pixels), true
	}
	if !o.Out {
		bytes := 4 * d.y.images * d.y.blocks * d.y.pixels * d.lanes
		d.yAt, d.rAt = take(bytes), take(bytes)
	}
	d.biasAt = take(4 * (d.Group*d.packedMaps() + 2*d.lanes))
	d.weightsAt = take(d.Packed(1))
	d.wideAt = n
	if d.half {
		d.wideAt = take(4 * d.Group * d.Maps * d.depth)
	}
	d.partsAt = n
	d.slots = max(1, min(tensor.MaxParts, runtime.GOMAXPROCS(0), tensor.MostScratch/d.partBytes()))
}

// Scratch implements [Kernel].
func (d *blockedDense) Scratch() int { return d.partsAt + d.slots*d.partBytes() }

// packedMaps is the number of output channels of a group with those that fill
// up the last vector.
func (d *blockedDense) packedMaps() int { return tensor.RoundUp(d.Maps, d.lanes) }

// Packed implements [Packer].
func (d *blockedDense) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return 4 * d.Group * d.packedMaps() * d.depth
}

// Windows implements [windower]: what is converted first is whole.
func (d *blockedDense) Windows() bool { return d.xAt < 0 }

// InPlace implements [InPlacer].
func (d *blockedDense) InPlace(i int) bool { return i == 3 }

// Packing implements [Packer]: the layout that convolutions of planes want.
func (d *blockedDense) Packing(int) tensor.Packing {
	p := conv.MapsPacking(d.lanes, d.Group, d.Maps, d.depth)
	if d.half {
		p = vec.HalfPacking(graph.F16, p)
	}
	return p
}

// UsePacked implements [Packer].
func (d *blockedDense) UsePacked(int) { d.weights = true }

// Pack implements [Packer]: the weights of a block follow each other by
// product, those of its output channels together.
func (d *blockedDense) Pack(_ int, dst, src []byte) {
	var wide []float32
	if d.half {
		wide = make([]float32, len(src)/2)
	}
	d.pack(dst, src, wide)
}

// pack is Pack with memory for weights of half precision as f32.
func (d *blockedDense) pack(dst, src []byte, wide []float32) {
	from, to := wide, tensor.F32s(dst)
	if d.half {
		vec.DecodeHalf(graph.F16, wide, src)
	} else {
		from = tensor.F32s(src)
	}
	for g := range d.Group {
		for lo := 0; lo < d.Maps; lo += 2 * d.lanes {
			n := min(2*d.lanes, d.Maps-lo)
			gemm.PackWeights(to[(g*d.packedMaps()+lo)*d.depth:], tensor.RoundUp(n, d.lanes), from[(g*d.Maps+lo)*d.depth:], n, d.depth)
		}
	}
}

// blockedDenseTask is one run. The units of work are bands of the result, some
// blocks of output channels of one image and group; parts take the next one
// until none is left.
type blockedDenseTask struct {
	*blockedDense
	x, w, b, y, r []float32
	scratch       []byte
	rows, width   int // of a unit
	bands, strips int // of a plane
	height        int // blocks of output channels of a unit
	heights       int
	units         int
	workers       int
	next          tensor.Tickets
}

// Run implements [Kernel].
func (d *blockedDense) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &d.task
	t.blockedDense = d
	x, y, r := in[0], out[0], tensor.Memory(in, 3)
	if d.xAt >= 0 {
		x = scratch[d.xAt:]
		if d.decode {
			x = x[:2*len(in[0])]
			d.widen.Run(p, vec.WidenTask{Dtype: graph.F16, Wide: tensor.F32s(x), Half: in[0]})
		} else {
			x = x[:4*d.x.images*d.x.blocks*d.x.pixels*d.lanes]
			d.x.run(p, in[0], x)
		}
	}
	if d.yAt >= 0 {
		y = scratch[d.yAt:][:4*d.y.images*d.y.blocks*d.y.pixels*d.lanes]
		if r != nil {
			r = scratch[d.rAt:][:len(y)]
			d.y.to = true
			d.y.run(p, in[3], r)
		}
	}
	t.x, t.y, t.r = tensor.F32s(x), tensor.F32s(y), tensor.F32s(r)
	t.b = tensor.F32s(scratch[d.biasAt:])[:d.Group*d.packedMaps()+2*d.lanes]
	clear(t.b)
	if b := tensor.Memory(in, 2); b != nil && d.half {
		vec.DecodeHalf(graph.F16, t.b[:len(b)/2], b)
	} else if b != nil {
		copy(t.b, tensor.F32s(b))
	}
	t.w = tensor.F32s(in[1])
	if !d.weights {
		w := scratch[d.weightsAt:][:d.Packed(1)]
		d.pack(w, in[1], tensor.F32s(scratch[d.wideAt:d.partsAt]))
		t.w = tensor.F32s(w)
	}
	t.scratch = scratch[d.partsAt:]
	workers := tensor.WorkersFor(p, t.cost())
	t.divide(workers)
	t.next.Reset(p, t.units)
	t.workers = min(t.units, d.slots, workers)
	p.Run(t, t.workers)
	if d.yAt >= 0 {
		d.y.to = false
		d.y.run(p, out[0], y)
	}
	t.x, t.w, t.b, t.y, t.r, t.scratch = nil, nil, nil, nil, nil, nil
	return nil
}

// cost estimates the work in the units of a [Pool].
func (t *blockedDenseTask) cost() float64 {
	return float64(len(t.y)) / float64(2*t.lanes) * float64(t.depth+8)
}

// divide cuts the result into units, a few for every worker: rows where the
// weights are few enough to be read again for each, else output channels.
func (t *blockedDenseTask) divide(workers int) {
	t.rows, t.width, t.height = t.blockedDense.rows, t.blockedDense.width, t.blocks
	groups := t.Batch * t.Group
	count := func() int {
		t.bands, t.strips = (t.Out[1]+t.rows-1)/t.rows, (t.Out[2]+t.width-1)/t.width
		return groups * t.bands * t.strips
	}
	n := count()
	want := 4 * workers
	if workers > 1 && n < want {
		if 4*t.Maps*t.depth <= blockedWeightBytes {
			t.rows = t.fairRows(workers, groups*t.strips)
			if n = count(); n < want && t.Out[1] == 1 {
				t.width = min(t.width, tensor.RoundUp(max(2*t.tall, t.Out[2]*groups/want), t.tall))
				n = count()
			}
		}
		if n < want {
			t.height = max(1, t.blocks*n/want)
		}
	}
	t.heights = (t.blocks + t.height - 1) / t.height
	t.units = n * t.heights
}

// fairRows returns how many rows a unit should have for every worker to get
// as many, where there are so many columns of units. Rows that windows share
// are read for every unit anew, so there are not too few.
func (t *blockedDenseTask) fairRows(workers, columns int) int {
	least := min(t.Out[1], max(t.leastRows(), 2*(t.Kernel[1]-1)*t.Dilation[1]))
	best, longest := t.rows, math.MaxInt
	for rows := t.rows; rows >= least; rows -= t.leastRows() {
		units := columns * ((t.Out[1] + rows - 1) / rows)
		if work := (units + workers - 1) / workers * rows; work <= longest {
			best, longest = rows, work
		}
	}
	return best
}

// Do implements [Task].
func (t *blockedDenseTask) Do(part int) {
	u := blockedUnit{blockedDenseTask: t, band: -1}
	scratch := t.scratch[part*t.partBytes():][:t.partBytes()]
	u.args = blockedArgs{
		step: 4 * t.part * t.Stride[2], offsets: &t.offsets[0], k: t.depth, sums: &tensor.F32s(scratch)[0],
		block: 4 * t.Out[1] * t.Out[2] * t.lanes, low: t.low, high: t.high,
	}
	if t.half {
		u.args.half = 1
	}
	if t.Bounded {
		u.args.bounded = 1
	}
	u.copied = tensor.F32s(scratch[tensor.RoundUp(sumBytes, 64):])
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		first := unit % t.heights * t.height
		u.read(unit / t.heights)
		for i := first; i < min(first+t.height, t.blocks); i++ {
			u.compute(i)
		}
	}
}
