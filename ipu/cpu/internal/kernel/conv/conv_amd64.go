package conv

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// vectorConv computes a convolution of float32 with SIMD instructions, see [convArgs]. A
// band of the image, padded, is copied to memory that stays in the cache while
// all output channels pass over it.
type vectorConv struct {
	ConvShape
	path   tensor.VectorPath
	form   convForm
	band   convBand
	window int // elements of one channel's window
	depth  int // products of a sum
	blocks int // of output channels: those of a tile

	lanes            int
	tall, short, few int // see convLimits

	offsets, panelOffsets []int32 // see convArgs; of a band, and of a panel
	zeros                 []float32
	packed                bool // weights come packed
	slots                 int  // parts that have scratch memory
	task                  vectorConvTask
}

// tileBytes is the memory that a part needs for a tile.
const tileBytes = 16 * 32 * 4

// maskBytes is the memory that a part needs for the masks of a row of a band.
func (c *vectorConv) maskBytes() int {
	vector := 2
	if c.path == tensor.PathAVX2 {
		vector = 4 * c.lanes
	}
	return tensor.RoundUp((c.band.width+c.band.reach+c.lanes)/c.lanes*min(c.Stride[2], 2)*vector, 64)
}

// panelBytes is the memory that a part needs for a panel of pixels.
func (c *vectorConv) panelBytes() int { return 4 * gemm.Panel * len(c.panelOffsets) }

// partBytes is the scratch memory of a part.
func (c *vectorConv) partBytes() int {
	return tensor.RoundUp(4*c.band.total, 64) + tileBytes + c.panelBytes() + c.maskBytes()
}

// Scratch implements [Kernel].
func (c *vectorConv) Scratch() int {
	n := c.slots * c.partBytes()
	if !c.packed {
		n += c.weightBytes()
	}
	return n
}

// packedMaps is the number of output channels of a group with those that fill
// up the last vector.
func (c *vectorConv) packedMaps() int {
	if c.form == convByMaps {
		return tensor.RoundUp(c.Maps, c.lanes)
	}
	return c.Maps
}

// weightBytes is the memory for packed weights, 0 if they are used as they
// are.
func (c *vectorConv) weightBytes() int {
	if c.form == convByPlane {
		return 0
	}
	return 4 * c.Group * c.packedMaps() * c.depth
}

// block returns the output channels [lo, hi) of a block, and where its weights
// begin.
func (c *vectorConv) block(i int) (lo, hi, weights int) {
	if c.form == convByMaps {
		lo = i * 2 * c.lanes
		return lo, min(lo+2*c.lanes, c.Maps), lo * c.depth
	}
	lo, hi = c.Maps*i/c.blocks, c.Maps*(i+1)/c.blocks
	return lo, hi, lo * c.depth
}

// Packed implements [Packer].
func (c *vectorConv) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return c.weightBytes()
}

// Packing implements [Packer].
func (c *vectorConv) Packing(int) tensor.Packing {
	if c.form == convByMaps {
		return MapsPacking(c.lanes, c.Group, c.Maps, c.depth)
	}
	return tensor.PackingOf("rows of output channels", c.Group, c.Maps, c.depth, c.blocks)
}

// MapsPacking describes weights of float32 of which those of two vectors of output
// channels follow each other by product, those of the channels together: what convolutions
// of planes and those in blocks read.
func MapsPacking(lanes, groups, maps, depth int) tensor.Packing {
	return tensor.PackingOf("vectors of output channels", lanes, groups, maps, depth)
}

// UsePacked implements [Packer].
func (c *vectorConv) UsePacked(int) { c.packed = true }

// Pack implements [Packer]: the weights of a block follow each other by
// product, those of its output channels together.
func (c *vectorConv) Pack(_ int, dst, src []byte) {
	d, s := tensor.F32s(dst), tensor.F32s(src)
	for g := range c.Group {
		for i := range c.blocks {
			lo, hi, at := c.block(i)
			width := hi - lo
			if c.form == convByMaps {
				width = tensor.RoundUp(width, c.lanes)
			}
			gemm.PackWeights(d[g*c.packedMaps()*c.depth+at:], width, s[(g*c.Maps+lo)*c.depth:], hi-lo, c.depth)
		}
	}
}

// vectorConvTask is one run. The units of work are bands of the output of some
// blocks of output channels of one image and group; parts take the next one
// until none is left.
type vectorConvTask struct {
	*vectorConv
	x, w, b, y    []float32
	scratch       []byte
	rows, width   int // of a unit
	bands, strips int // of a plane
	height        int // blocks of a unit
	heights       int
	units         int
	next          tensor.Tickets
}

// Run implements [Kernel].
func (c *vectorConv) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	t := &c.task
	t.vectorConv = c
	t.x, t.w, t.b, t.y = tensor.F32s(in[0]), tensor.F32s(in[1]), tensor.F32s(tensor.Memory(in, 2)), tensor.F32s(out[0])
	if !c.packed && c.form != convByPlane {
		n := c.weightBytes()
		c.Pack(1, scratch[:n], in[1])
		t.w, scratch = tensor.F32s(scratch[:n]), scratch[n:]
	}
	t.scratch = scratch
	if len(t.y) > 0 && len(t.x) > 0 && c.depth > 0 {
		workers := tensor.WorkersFor(p, t.cost())
		t.divide(workers)
		t.next.Reset(p, t.units)
		p.Run(t, min(t.units, c.slots, workers))
	} else {
		t.fill()
	}
	t.x, t.w, t.b, t.y, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// cost estimates the work in the units of a [Pool].
func (t *vectorConvTask) cost() float64 {
	return float64(len(t.y))/float64(2*t.lanes)*(float64(t.depth)+4) + float64(len(t.x))/float64(t.lanes)*4
}

// fill sets the result where there is nothing to sum.
func (t *vectorConvTask) fill() {
	plane := Product3(t.Out)
	for m := range len(t.y) / max(1, plane) {
		v := float32(0)
		if t.b != nil {
			v = t.b[m%(t.Group*t.Maps)]
		}
		for i := range plane {
			t.y[m*plane+i] = v
		}
	}
}

// divide cuts the result into units, a few for every worker.
func (t *vectorConvTask) divide(workers int) {
	t.rows, t.width, t.height = t.band.rows, t.band.width, t.blocks
	groups := t.Batch * t.Group * t.Out[0]
	count := func() int {
		t.bands, t.strips = (t.Out[1]+t.rows-1)/t.rows, (t.Out[2]+t.width-1)/t.width
		return groups * t.bands * t.strips
	}
	n := count()
	if want := 4 * workers; workers > 1 && n < want {
		t.rows = min(t.rows, tensor.RoundUp(max(1, t.Out[1]*groups*t.strips/want), t.leastRows()))
		n = count()
		if unit := t.columnUnit(); n < want && t.band.direct {
			t.width = min(t.width, max(2*unit, tensor.RoundUp(t.Out[2]*groups/want, unit)))
			n = count()
		}
		if n < want {
			t.height = max(1, t.blocks*n/want)
		}
	}
	t.heights = (t.blocks + t.height - 1) / t.height
	t.units = n * t.heights
}

// Do implements [Task].
func (t *vectorConvTask) Do(part int) {
	u := convUnit{vectorConvTask: t}
	scratch := t.scratch[part*t.partBytes():][:t.partBytes()]
	at := tensor.RoundUp(4*t.band.total, 64)
	u.x, scratch = tensor.F32s(scratch[:at]), scratch[at:]
	u.tile, scratch = tensor.F32s(scratch[:tileBytes]), scratch[tileBytes:]
	u.panel, u.masks = tensor.F32s(scratch[:t.panelBytes()]), scratch[t.panelBytes():]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		u.first = unit % t.heights * t.height
		u.last = min(u.first+t.height, t.blocks)
		unit /= t.heights
		u.ox = unit % t.strips * t.width
		unit /= t.strips
		u.oy = unit % t.bands * t.rows
		unit /= t.bands
		u.oz = unit % t.Out[0]
		u.image = unit / t.Out[0]
		u.cols, u.rows = min(t.width, t.Out[2]-u.ox), min(t.rows, t.Out[1]-u.oy)
		u.compute()
	}
}

// convUnit is a unit of work, with a part's memory.
type convUnit struct {
	*vectorConvTask
	image       int // and group
	oz, oy, ox  int // the first pixel
	rows, cols  int // pixels
	first, last int // blocks of output channels

	x     []float32 // the band
	tile  []float32
	panel []float32
	masks []byte
}

func (u *convUnit) compute() {
	if u.band.direct {
		plane := u.In[2]
		u.x = u.vectorConvTask.x[u.image*u.Channels*plane+u.ox : (u.image+1)*u.Channels*plane]
	} else {
		u.copyBand()
	}
	positions := Product3(u.Out)
	y := u.y[u.image*u.Maps*positions:][:u.Maps*positions]
	at := (u.oz*u.Out[1]+u.oy)*u.Out[2] + u.ox
	g := u.image % u.Group
	bias := u.zeros
	if u.b != nil {
		bias = u.b[g*u.Maps:][:u.Maps]
	}
	w := u.w[g*u.packedMaps()*u.depth:]
	low, high := u.Bounds()
	for i := u.first; i < u.last; i++ {
		lo, hi, weights := u.block(i)
		args := convArgs{
			w: &w[weights], offsets: &u.offsets[0], k: u.depth, tile: &u.tile[0],
			yRow: 4 * positions, bias: &bias[lo], low: low, high: high,
		}
		if u.form == convByMaps {
			u.byMaps(&args, hi-lo, y[lo*positions:hi*positions], at)
		} else {
			u.byPixels(&args, hi-lo, y[lo*positions:hi*positions], at)
		}
	}
}

// byMaps computes a block of output channels, at most two vectors of them.
func (u *convUnit) byMaps(args *convArgs, maps int, y []float32, at int) {
	args.vectors = 2
	if maps <= u.lanes {
		args.vectors = 1
	}
	store := *args
	store.rows = maps
	rows, cols := u.rows, u.cols
	if u.band.flat {
		rows, cols = 1, rows*cols
	}
	pixels := 0
	run := func(n int) {
		args.rows = n
		if n != pixels {
			pixels = n
			store.setMask(u.path, n)
		}
		runConvMaps(u.path, args, &store)
	}
	pitch := u.band.step * u.band.rowPitch
	for row := 0; row < rows; row++ {
		x, y := u.x[row*pitch:], y[at+row*u.Out[2]:]
		if u.pairs() && row+1 < rows {
			args.x, args.x2, args.split, args.y, store.y = &x[0], &x[pitch], cols, &y[0], &y[0]
			run(2 * cols)
			row++
			continue
		}
		args.split = 0
		tiles := (cols + u.tall - 1) / u.tall
		for i := range tiles {
			lo, hi := cols*i/tiles, cols*(i+1)/tiles
			args.x, args.y, store.y = &x[lo], &y[lo], &y[lo]
			run(hi - lo)
		}
	}
}

// byPixels computes a block of at most short output channels.
func (u *convUnit) byPixels(args *convArgs, maps int, y []float32, at int) {
	args.rows = maps
	rows, cols := u.rows, u.cols
	if u.band.flat {
		rows, cols = 1, rows*cols
	}
	pitch := u.band.step * u.band.rowPitch
	pixels := 0
	for row := range rows {
		x, y := u.x[row*pitch:], y[at+row*u.Out[2]:]
		for col := 0; col < cols; {
			n := cols - col
			switch {
			case n > 2*u.lanes && maps <= u.few:
				args.vectors = 4
			case n > u.lanes:
				args.vectors = 2
			default:
				args.vectors = 1
			}
			n = min(n, args.vectors*u.lanes)
			args.x, args.y = &x[col], &y[col]
			if n != pixels {
				pixels = n
				args.setMask(u.path, n)
			}
			if u.band.direct && u.ox+col+args.vectors*u.lanes > u.In[2] {
				// Nothing may be read beyond the image.
				n = min(n, gemm.Panel)
				gemm.PackF32(u.path, u.panel, gemm.Matrix[float32]{Data: x[col:], Row: u.In[2], Col: 1}, u.Channels, n)
				args.x, args.offsets = &u.panel[0], &u.panelOffsets[0]
				args.vectors = (n + u.lanes - 1) / u.lanes
				pixels = n
				args.setMask(u.path, n)
				runConvRows(u.path, args, u.form == convByPlane)
				args.offsets = &u.offsets[0]
			} else {
				runConvRows(u.path, args, u.form == convByPlane)
			}
			col += n
		}
	}
}

// copyBand copies the part of the image that the unit needs.
func (u *convUnit) copyBand() {
	b, s := &u.band, u.Stride[2]
	x := u.vectorConvTask.x
	plane := Product3(u.In)
	x = x[u.image*u.Channels*plane:][:u.Channels*plane]
	left := u.ox*s - u.Pad[2] // column of the band's first element
	vectors := (u.cols + b.reach + u.lanes - 1) / u.lanes
	if s <= 2 {
		u.setMasks(left, vectors*s)
	}
	// The rows [lo, hi) lie inside the image.
	rows := u.rowsIn(u.rows)
	top, step := u.oy*u.Stride[1]-u.Pad[1], 1
	if u.Kernel[1] == 1 {
		step = u.Stride[1]
	}
	lo, hi := tensor.WindowRange(u.In[1], rows, step, -top)
	for kz := range u.Kernel[0] {
		iz := u.oz*u.Stride[0] - u.Pad[0] + kz*u.Dilation[0]
		band := u.x[kz*b.inRows*b.rowPitch:]
		from, to := lo, hi
		if iz < 0 || iz >= u.In[0] {
			from, to = rows, rows
		}
		for c := range u.Channels {
			clear(band[c*b.planePitch:][:from*b.rowPitch])
			clear(band[c*b.planePitch:][to*b.rowPitch : rows*b.rowPitch])
		}
		if from == to {
			continue
		}
		row := (iz*u.In[1]+top+from*step)*u.In[2] + left
		if s > 2 {
			u.copyPhases(band, x, row, from, to, step, left)
			continue
		}
		args := gemm.CopyArgs{
			Src: &x[0], Shift: 4 * row, Dst: &band[from*b.rowPitch], Planes: u.Channels, SrcPlane: 4 * plane, DstPlane: 4 * b.planePitch,
			Rows: to - from, SrcRow: 4 * step * u.In[2], DstRow: 4 * b.rowPitch, Vectors: vectors, Masks: &u.masks[0],
		}
		if len(b.phases) > 1 {
			args.Odd = 4 * b.phasePitch
		}
		gemm.CopyPlanes(u.path, &args, s)
	}
}

// setMasks makes the masks of n vectors of a row whose first element has the
// given column.
func (u *convUnit) setMasks(column, n int) {
	for v := range n {
		bits := laneBits(-column-v*u.lanes, u.In[2]-column-v*u.lanes, u.lanes)
		if u.path == tensor.PathAVX512 {
			tensor.View[uint16](u.masks)[v] = uint16(bits)
		} else {
			gemm.SetLanes(tensor.View[int32](u.masks)[v*u.lanes:][:u.lanes], bits)
		}
	}
}

// copyPhases copies the rows [from, to) of a band, the first of which begins,
// in column left, with element row of the image, for strides above two.
func (u *convUnit) copyPhases(band, x []float32, row, from, to, step, left int) {
	b, s := &u.band, u.Stride[2]
	plane := Product3(u.In)
	for c := range u.Channels {
		for r := from; r < to; r++ {
			src := c*plane + row + (r-from)*step*u.In[2]
			dst := band[c*b.planePitch+r*b.rowPitch:]
			for slot, phase := range b.phases {
				line := dst[slot*b.phasePitch:][:u.cols+b.reach]
				lo, hi := tensor.WindowRange(u.In[2], len(line), s, -left-phase)
				clear(line[:lo])
				clear(line[hi:])
				for i := lo; i < hi; i++ {
					line[i] = x[src+i*s+phase]
				}
			}
		}
	}
}

// laneBits returns a mask of those of n lanes that lie in [lo, hi).
func laneBits(lo, hi, n int) uint32 {
	lo, hi = max(lo, 0), min(hi, n)
	if lo >= hi {
		return 0
	}
	return uint32(1<<hi - 1<<lo)
}
