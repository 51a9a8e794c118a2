package conv

import (
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

const (
	// weightPixels is about how many pixels of the result, of several images or of a part of one, are multiplied at a time: what
	// there is of them of two blocks of output channels stays in the second-level cache while all channels of the operand pass by.
	weightPixels = 1536
	// weightMost is the most of them, where a single row has more.
	weightMost = 1 << 16
	// weightBlocks is the most blocks of output channels that share what is copied of the operand.
	weightBlocks = 2
	// weightUnits is how many units of work there are at least, where images can be divided for it. It is no matter of threads:
	// sums of parts of the images are added at the end, so it decides the bits of the result.
	weightUnits = 8
	// weightMaps is the fewest output channels of a group for which vectors of them pay.
	weightMaps = 4
)

// vectorConvWeights computes the gradient of a convolution's weights with SIMD instructions: for a number of pixels of the
// result, the gradients of a block of output channels, a vector or two of them for every pixel, are multiplied with what
// those pixels' windows have of one channel of the operand, padded and copied; rows of a tile are neighbouring elements of
// a window ([convArgs]). Sums over more pixels are added in memory. Windows of one element take channels for
// rows, by the loops of matrix products.
type vectorConvWeights struct {
	ConvShape
	path    tensor.VectorPath
	lanes   int
	width   int // output channels of a block
	points  bool
	add     func(dst, a, b []float32)
	slots   int
	offsets []int32 // of a block's pixels in what is copied, in bytes
	masks   []byte  // of a line that is copied
	tiles   []weightTile

	images, depth, rows int // of the result, in a block: either whole images, or rows of one plane of one
	pixels              int // of a block
	columns             int // of a line that is copied
	linePitch, rowPitch int // of lines of one phase, and of rows of all
	inDepth, inRows     int
	imagePitch          int
	band                int // elements of what is copied
	blocks              int // of pixels
	mapBlocks           int // of output channels, of a group
	parts               int // of the images, whose sums are added at the end
	task                convWeightsRun
}

// weightTile is some rows of a tile: neighbouring elements of a window's row from offset first on, in the elements of
// what is copied, and from row split on others from second on.
type weightTile struct{ first, second, split, rows int }

// newVectorConvWeights returns a kernel that computes s with SIMD instructions, nil if there are none or if it would not pay.
func newVectorConvWeights(s ConvShape) tensor.Kernel {
	if tensor.Path == tensor.PathGo || s.Maps < weightMaps || s.Batch == 0 || s.Channels == 0 || s.Group == 0 ||
		Product3(s.In) == 0 || Product3(s.Out) == 0 || Product3(s.Kernel) == 0 {
		return nil
	}
	for range 2 { // as in vectorConv.plan
		if s.In[2] == 1 && s.Out[2] == 1 && s.Kernel[2] == 1 {
			for _, axis := range []*[3]int{&s.In, &s.Out, &s.Kernel, &s.Stride, &s.Dilation, &s.Pad} {
				*axis = [3]int{axis[2], axis[0], axis[1]}
			}
		}
	}
	k := &vectorConvWeights{ConvShape: s, path: tensor.Path, lanes: tensor.Path.Lanes(), add: vec.VectorBinary[float32](graph.Add)}
	ones := [3]int{1, 1, 1}
	k.points = s.Kernel == ones && s.Stride == ones && s.Pad == [3]int{} && s.In == s.Out
	k.layOut()
	if 4*k.band > math.MaxInt32 || k.pixels > weightMost {
		return nil
	}
	k.slots = max(1, min(tensor.MaxParts, runtime.GOMAXPROCS(0), tensor.MostScratch/max(1, k.slotBytes())))
	return k
}

// layOut divides the work and places what is copied of the operand.
func (k *vectorConvWeights) layOut() {
	plane := Product3(k.Out)
	k.images, k.depth, k.rows = max(1, min(k.Batch, weightPixels/plane)), k.Out[0], k.Out[1]
	if plane > weightPixels {
		k.depth, k.rows = 1, max(1, min(k.Out[1], weightPixels/k.Out[2]))
	}
	k.pixels = k.images * k.depth * k.rows * k.Out[2]
	k.blocks = (k.Batch + k.images - 1) / k.images * (k.Out[0] / k.depth) * ((k.Out[1] + k.rows - 1) / k.rows)
	k.width = 2 * k.lanes
	if k.points {
		k.width = gemm.Panel
	} else if k.Maps <= k.lanes {
		k.width = k.lanes
	}
	k.mapBlocks = (k.Maps + k.width - 1) / k.width
	k.parts = 1
	if units := k.Group * k.mapBlocks * k.Channels; units < weightUnits {
		k.parts = min(k.blocks, (weightUnits+units-1)/units)
	}
	if k.points {
		return
	}
	k.columns = (k.Out[2]-1)*k.Stride[2] + (k.Kernel[2]-1)*k.Dilation[2] + 1
	d := k.Dilation[2]
	k.linePitch = tensor.RoundUp((k.columns+d-1)/d, k.lanes)
	k.rowPitch = d * k.linePitch
	k.inDepth = (k.depth-1)*k.Stride[0] + (k.Kernel[0]-1)*k.Dilation[0] + 1
	k.inRows = (k.rows-1)*k.Stride[1] + (k.Kernel[1]-1)*k.Dilation[1] + 1
	k.imagePitch = k.inDepth * k.inRows * k.rowPitch
	k.band = k.images * k.imagePitch
	k.offsets = make([]int32, 0, k.pixels)
	for n := range k.images {
		for z := range k.depth {
			for y := range k.rows {
				row := n*k.imagePitch + (z*k.Stride[0]*k.inRows+y*k.Stride[1])*k.rowPitch
				for x := range k.Out[2] {
					at := x * k.Stride[2]
					k.offsets = append(k.offsets, int32(4*(row+at%d*k.linePitch+at/d)))
				}
			}
		}
	}
	vectors := k.linePitch / k.lanes
	k.masks = make([]byte, vectors*max(2, 4*k.lanes))
	for v := range vectors {
		bits := laneBits(k.Pad[2]-v*k.lanes, k.In[2]+k.Pad[2]-v*k.lanes, k.lanes)
		if k.path == tensor.PathAVX512 {
			tensor.View[uint16](k.masks)[v] = uint16(bits)
		} else {
			gemm.SetLanes(tensor.View[int32](k.masks)[v*k.lanes:][:k.lanes], bits)
		}
	}
	tall, _, _ := ConvLimits(k.path)
	lines := k.Kernel[0] * k.Kernel[1]
	line := func(i int) int {
		return (i/k.Kernel[1]*k.Dilation[0]*k.inRows + i%k.Kernel[1]*k.Dilation[1]) * k.rowPitch
	}
	for i := 0; i < lines; i++ {
		if 2*k.Kernel[2] <= tall && i+1 < lines {
			k.tiles = append(k.tiles, weightTile{line(i), line(i + 1), k.Kernel[2], 2 * k.Kernel[2]})
			i++
			continue
		}
		for x := 0; x < k.Kernel[2]; x += tall {
			k.tiles = append(k.tiles, weightTile{line(i) + x, 0, 0, min(tall, k.Kernel[2]-x)})
		}
	}
}

// packPixels is how many pixels go through a panel at a time on their way to narrower blocks.
const packPixels = 64

// The memory of a slot, in bytes: gradients of blocks of output channels, what is copied of the operand, as many ones, a
// tile, and a panel.
func (k *vectorConvWeights) panelBytes() int { return 4 * weightBlocks * k.pixels * k.width }
func (k *vectorConvWeights) bandBytes() int  { return tensor.RoundUp(4*max(k.band, 1), 64) }
func (k *vectorConvWeights) slotBytes() int {
	return k.panelBytes() + 2*k.bandBytes() + tileBytes + 4*packPixels*gemm.Panel
}

// sumRows is how many sums there are for an output channel of a block: one for each of its weights, and the channel's own.
func (k *vectorConvWeights) sumRows() int { return k.Channels*Product3(k.Kernel) + 1 }

// sums is how many numbers the sums of a part take up.
func (k *vectorConvWeights) sums() int { return k.Group * k.mapBlocks * k.sumRows() * k.width }

// Scratch implements [Kernel].
func (k *vectorConvWeights) Scratch() int {
	return tensor.RoundUp(4*k.parts*k.sums(), 64) + k.slots*k.slotBytes()
}

// convWeightsRun is one run. The units of work are parts of the images, some blocks of output channels of a group and some
// channels of the operand.
type convWeightsRun struct {
	*vectorConvWeights
	x, dy, dw, db []float32
	all           []float32 // sums
	slotMemory    []byte
	mapsEach      int // blocks of output channels of a unit
	mapUnits      int
	channelsEach  int
	channelUnits  int
	adding        bool // sums of parts
	rowParts      int
	next          tensor.Tickets
}

// Run implements [Kernel].
func (k *vectorConvWeights) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &k.task
	t.vectorConvWeights = k
	t.x, t.dy = tensor.F32s(in[0]), tensor.F32s(in[1])
	t.dw, t.db = tensor.F32s(out[0]), tensor.F32s(tensor.Memory(out, 1))
	n := tensor.RoundUp(4*k.parts*k.sums(), 64)
	t.all, t.slotMemory, t.adding = tensor.F32s(scratch[:n]), scratch[n:], false
	vectors := float64(k.Group*k.mapBlocks*k.Channels*Product3(k.Kernel)) * float64(k.width/k.lanes)
	workers := min(tensor.WorkersFor(p, vectors*float64(k.Batch*Product3(k.Out))/2), k.slots)
	units := t.divide(workers)
	t.next.Reset(p, units)
	p.Run(t, min(units, workers))
	t.adding, t.rowParts = true, tensor.Cut(p, k.Group*k.Maps, k.parts*k.sumRows())
	p.Run(t, t.rowParts)
	t.x, t.dy, t.dw, t.db, t.all, t.slotMemory = nil, nil, nil, nil, nil, nil
	return nil
}

// divide chooses the units and returns how many there are.
func (t *convWeightsRun) divide(workers int) int {
	t.mapsEach, t.channelsEach = min(weightBlocks, t.mapBlocks), t.Channels
	count := func() int {
		t.mapUnits = (t.mapBlocks + t.mapsEach - 1) / t.mapsEach
		t.channelUnits = (t.Channels + t.channelsEach - 1) / t.channelsEach
		return t.parts * t.Group * t.mapUnits * t.channelUnits
	}
	n := count()
	if want := 2 * workers; workers > 1 && n < want {
		if t.mapsEach = 1; count() < want {
			t.channelsEach = max(1, (t.Channels*count()+want-1)/want)
		}
		n = count()
	}
	return n
}

// Do implements [Task].
func (t *convWeightsRun) Do(part int) {
	if t.adding {
		from, to := tensor.Span(t.Group*t.Maps, t.rowParts, part, 1)
		for m := from; m < to; m++ {
			t.finish(m)
		}
		return
	}
	memory := t.slotMemory[part*t.slotBytes():][:t.slotBytes()]
	u := weightUnit{convWeightsRun: t}
	cut := func(bytes int) []float32 {
		s := tensor.F32s(memory[:bytes])
		memory = memory[bytes:]
		return s
	}
	u.panels, u.band, u.ones, u.tile, u.narrow = cut(t.panelBytes()), cut(t.bandBytes()), cut(t.bandBytes()), cut(tileBytes), cut(4*packPixels*gemm.Panel)
	for i := range u.ones {
		u.ones[i] = 1
	}
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		u.compute(unit)
	}
}

// weightUnit is a unit of work, with a slot's memory.
type weightUnit struct {
	*convWeightsRun
	group              int
	first, last        int // blocks of output channels
	from, to           int // channels
	part               int
	began              bool // sums hold something
	image, images      int  // of a block of pixels
	z, y, rows         int
	pixels             int
	panels, band       []float32
	ones, tile, narrow []float32
	args               convArgs
	copyArgs           gemm.CopyArgs
}

func (u *weightUnit) compute(unit int) {
	u.from = unit % u.channelUnits * u.channelsEach
	u.to = min(u.from+u.channelsEach, u.Channels)
	unit /= u.channelUnits
	u.first = unit % u.mapUnits * u.mapsEach
	u.last = min(u.first+u.mapsEach, u.mapBlocks)
	unit /= u.mapUnits
	u.group, u.part = unit%u.Group, unit/u.Group
	u.began = false
	bands := (u.Out[1] + u.vectorConvWeights.rows - 1) / u.vectorConvWeights.rows
	depths := u.Out[0] / u.depth
	for i, end := tensor.Span(u.blocks, u.parts, u.part, 1); i < end; i++ {
		if u.next.Pool.Ended() {
			return
		}
		u.y = i % bands * u.vectorConvWeights.rows
		u.z = i / bands % depths * u.depth
		u.image = i / (bands * depths) * u.vectorConvWeights.images
		u.rows = min(u.vectorConvWeights.rows, u.Out[1]-u.y)
		u.images = min(u.vectorConvWeights.images, u.Batch-u.image)
		u.pixels = u.images * u.depth * u.rows * u.Out[2]
		for b := u.first; b < u.last; b++ {
			u.pack(b)
		}
		if u.points {
			u.multiplyPoints()
		} else {
			u.multiply()
		}
		u.began = true
	}
}

// panel returns the gradients of a block of output channels.
func (u *weightUnit) panel(block int) []float32 {
	size := u.vectorConvWeights.pixels * u.width
	return u.panels[(block-u.first)*size:][:size]
}

// sumsOf returns the sums of a block of output channels, of the part at hand, from a row on.
func (u *weightUnit) sumsOf(block, row int) []float32 {
	return u.all[(((u.part*u.Group+u.group)*u.mapBlocks+block)*u.sumRows()+row)*u.width:]
}

// pack writes the gradients of a block of output channels pixel by pixel.
func (u *weightUnit) pack(block int) {
	plane := Product3(u.Out)
	m := block * u.width
	maps := min(u.width, u.Maps-m)
	size := u.depth * u.rows * u.Out[2]
	dst := u.panel(block)
	for n := range u.images {
		at := ((u.image+n)*u.Group+u.group)*u.Maps + m
		src := gemm.Matrix[float32]{Data: u.dy[at*plane+(u.z*u.Out[1]+u.y)*u.Out[2]:], Row: 1, Col: plane}
		to := dst[n*size*u.width:][:size*u.width]
		if u.width == gemm.Panel {
			gemm.PackF32(u.path, to, src, size, maps)
			continue
		}
		for first := 0; first < size; first += packPixels {
			count := min(packPixels, size-first)
			gemm.PackF32(u.path, u.narrow, src.At(first, 0), count, maps)
			for i := range count {
				copy(to[(first+i)*u.width:][:u.width], u.narrow[i*gemm.Panel:])
			}
		}
	}
}

// multiplyPoints adds to the sums where windows have one element.
func (u *weightUnit) multiplyPoints() {
	plane := Product3(u.Out)
	size := u.depth * u.rows * u.Out[2]
	for b := u.first; b < u.last; b++ {
		for n := range u.images {
			x := u.x[(((u.image+n)*u.Group+u.group)*u.Channels+u.from)*plane+(u.z*u.Out[1]+u.y)*u.Out[2]:]
			dy := u.panel(b)[n*size*u.width:][:size*u.width]
			u.multiplyTo(u.sumsOf(b, u.from), u.to-u.from, gemm.Matrix[float32]{Data: x, Row: plane, Col: 1}, dy, u.began || n > 0)
			if u.from == 0 && u.db != nil {
				u.multiplyTo(u.sumsOf(b, u.sumRows()-1), 1, gemm.Matrix[float32]{Data: u.ones}, dy, u.began || n > 0)
			}
		}
	}
}

// multiplyTo sets rows of sums to the product of x with the gradients of a block of output channels, or adds it to them.
func (u *weightUnit) multiplyTo(sums []float32, rows int, x gemm.Matrix[float32], dy []float32, add bool) {
	d := gemm.NoAddend
	if add {
		d = gemm.Addend{Data: sums, Row: u.width}
	}
	gemm.MultiplyF32(u.path, sums, u.width, rows, u.width, x, dy, u.width, len(dy)/u.width, 1, d, nil)
}

// multiply adds to the sums channel by channel.
func (u *weightUnit) multiply() {
	window := Product3(u.Kernel)
	for c := u.from; c < u.to; c++ {
		u.copyBand(c)
		for b := u.first; b < u.last; b++ {
			u.args = convArgs{w: &u.panel(b)[0], offsets: &u.offsets[0], k: u.pixels, tile: &u.tile[0], vectors: u.width / u.lanes}
			row := c * window
			for _, t := range u.tiles {
				u.args.x, u.args.x2, u.args.split, u.args.rows = &u.band[t.first], &u.band[t.second], t.split, t.rows
				u.tileTo(u.sumsOf(b, row))
				row += t.rows
			}
			if c == 0 && u.db != nil {
				u.args.x, u.args.split, u.args.rows = &u.ones[0], 0, 1
				u.tileTo(u.sumsOf(b, u.sumRows()-1))
			}
		}
	}
}

// tileTo computes a tile and adds it to sums.
func (u *weightUnit) tileTo(sums []float32) {
	sums = sums[:u.args.rows*u.width]
	if !u.began {
		u.args.tile = &sums[0]
	} else {
		u.args.tile = &u.tile[0]
	}
	if u.path == tensor.PathAVX512 {
		convMapsAVX512(&u.args)
	} else {
		convMapsAVX2(&u.args)
	}
	if u.began {
		u.add(sums, sums, u.tile[:len(sums)])
	}
}

// copyBand copies what the windows of the block's pixels have of a channel.
func (u *weightUnit) copyBand(c int) {
	plane, d := Product3(u.In), u.Dilation[2]
	x := u.x[((u.image*u.Group+u.group)*u.Channels+c)*plane:]
	top := u.y*u.Stride[1] - u.Pad[1]
	rows := (u.rows-1)*u.Stride[1] + (u.Kernel[1]-1)*u.Dilation[1] + 1
	lo, hi := tensor.WindowRange(u.In[1], rows, 1, -top)
	for z := range u.inDepth {
		iz := u.z*u.Stride[0] - u.Pad[0] + z
		from, to := lo, hi
		if iz < 0 || iz >= u.In[0] || lo >= hi {
			from, to = rows, rows
		}
		band := u.band[z*u.inRows*u.rowPitch:]
		for n := range u.images {
			clear(band[n*u.imagePitch:][:from*u.rowPitch])
			clear(band[n*u.imagePitch:][to*u.rowPitch : rows*u.rowPitch])
		}
		if from == to {
			continue
		}
		row := (iz*u.In[1] + top + from) * u.In[2]
		if d > 1 {
			u.copyPhases(band, x, row, from, to)
			continue
		}
		u.copyArgs = gemm.CopyArgs{
			Src: &x[0], Shift: 4 * (row - u.Pad[2]), Dst: &band[from*u.rowPitch], Planes: u.images,
			SrcPlane: 4 * u.Group * u.Channels * plane, DstPlane: 4 * u.imagePitch,
			Rows: to - from, SrcRow: 4 * u.In[2], DstRow: 4 * u.rowPitch, Vectors: u.linePitch / u.lanes, Masks: &u.masks[0],
		}
		gemm.CopyPlanes(u.path, &u.copyArgs, 1)
	}
}

// copyPhases copies the rows [from, to), of which the first begins with element row of the image, for dilations above one:
// elements that are as far apart become neighbours.
func (u *weightUnit) copyPhases(band, x []float32, row, from, to int) {
	d := u.Dilation[2]
	for n := range u.images {
		src := x[n*u.Group*u.Channels*Product3(u.In):]
		for r := from; r < to; r++ {
			for phase := range d {
				line := band[n*u.imagePitch+r*u.rowPitch+phase*u.linePitch:][:u.linePitch]
				lo, hi := tensor.WindowRange(u.In[2], len(line), d, u.Pad[2]-phase)
				clear(line[:lo])
				clear(line[max(lo, hi):])
				at := row + (r-from)*u.In[2] - u.Pad[2] + phase
				for i := lo; i < hi; i++ {
					line[i] = src[at+i*d]
				}
			}
		}
	}
}

// finish adds the parts' sums of an output channel of all groups and writes them as its weights.
func (t *convWeightsRun) finish(m int) {
	g, block, column := m/t.Maps, m%t.Maps/t.width, m%t.Maps%t.width
	rows := t.sumRows() - 1
	dw := t.dw[m*rows:][:rows]
	each := t.sums()
	at := (g*t.mapBlocks+block)*t.sumRows()*t.width + column
	for i := range dw {
		sum := t.all[at]
		for p := 1; p < t.parts; p++ {
			sum += t.all[at+p*each]
		}
		dw[i] = sum
		at += t.width
	}
	if t.db != nil {
		sum := t.all[at]
		for p := 1; p < t.parts; p++ {
			sum += t.all[at+p*each]
		}
		t.db[m] = sum
	}
}
