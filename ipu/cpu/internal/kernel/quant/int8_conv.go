package quant

import (
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// int8Conv is a convolution of bytes. The image is copied such that the four
// bytes of a step stand side by side for every position: four channels or,
// where that gives fewer steps, four elements of a line of the kernel. Lines
// and columns that strides keep apart come in planes of their own, so that
// output positions one after the other read vectors as they lie, and every
// element of the kernel is a fixed distance away. A line of a plane may be
// longer than one of the result: what is computed there is left out.
type int8Conv struct {
	Int8End
	conv.ConvShape
	way          int8Way
	xFlip, wFlip byte
	along        bool // lanes are elements of a line of the kernel
	single       bool // output channels are computed one by one
	planes       int  // of a group, each with all phases
	phases       [2][]int
	line, lines  int // positions of a line, lines of a phase
	steps        int
	offsets      []int // bytes, of every step
	pitch        int   // bytes from row to row of packed weights
	packed       bool
	blocks       []int8Block
	ones         []byte // weights that add up a window
	layBytes     int    // of scratch memory for laying out a plane
	slots        int

	task int8ConvTask
}

// int8Block is the positions of a tile.
type int8Block struct {
	at          int // in the result
	keep, store [2]uint16
	second      int // results of the first vector
	count       int
}

// int8Slack is how much vectors may read beyond the last plane.
const int8Slack = 512

func bindIntegerConv(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*graph.IntegerConv)
	s := conv.NewConvShape(o.Conv(), in[0].Shape, in[1].Shape, out[0].Shape)
	kh, kw := s.Kernel[1], s.Kernel[2]
	c := &int8Conv{
		Int8End: NewInt8End(in, o.To, o.Bounded, o.Low, o.High, s.Group*s.Maps, s.Channels*kh*kw), ConvShape: s, way: Int8WayOf(tensor.Path),
		slots: min(tensor.MaxParts, runtime.GOMAXPROCS(0)),
	}
	c.xFlip, c.wFlip = c.Flips()
	quads := (kw + Int8Step - 1) / Int8Step
	c.planes = (s.Channels + Int8Step - 1) / Int8Step
	if s.Channels*quads < c.planes*kw {
		c.along, c.planes = true, s.Channels*quads
	}
	c.single = c.along && s.Maps <= conv.FewMaps
	c.geometry()
	c.steps = len(c.offsets)
	c.pitch = c.steps * c.way.stepBytes()
	if c.pitch%1024 == 0 {
		c.pitch += 64 // rows do not share the cache's sets
	}
	c.ones = make([]byte, c.steps*c.way.stepBytes())
	c.eachWeight(func(at, _ int) { placeByte(c.way, c.ones, at, int8(1)) })
	c.tile()
	return c, nil
}

// geometry lays out the planes and finds where the steps are.
func (c *int8Conv) geometry() {
	kh, kw := c.Kernel[1], c.Kernel[2]
	reach := func(axis int) int { return c.Out[axis] + (c.Kernel[axis]-1)*c.Dilation[axis]/c.Stride[axis] }
	c.lines, c.line = reach(1), reach(2)
	var place [2][]int // of an element of the kernel: its phase and its distance
	for i, n := range []int{kh, kw} {
		stride, dilation := c.Stride[1+i], c.Dilation[1+i]
		if i == 1 && c.along {
			c.phases[i] = []int{0}
			continue
		}
		number := map[int]int{} // by phase
		place[i] = make([]int, 0, 2*n)
		for k := range n {
			phase := k * dilation % stride
			at, ok := number[phase]
			if !ok {
				at = len(c.phases[i])
				number[phase] = at
				c.phases[i] = append(c.phases[i], phase)
			}
			place[i] = append(place[i], at, k*dilation/stride)
		}
	}
	if c.along {
		c.layBytes = len(c.phases[0])*c.lines*c.line*c.Stride[2] + c.beyond()
		if c.Stride[2] > 1 {
			c.layBytes *= 2
		}
	} else {
		c.layBytes = 2 * Int8Step * c.In[1] * ((c.In[2] + c.Stride[2] - 1) / c.Stride[2])
	}
	c.layBytes = tensor.RoundUp(c.layBytes, 64)
	step := func(plane, ky, kx int) {
		phase := place[0][2*ky] * len(c.phases[1])
		at := place[0][2*ky+1] * c.line
		if !c.along {
			phase += place[1][2*kx]
			at += place[1][2*kx+1]
		}
		c.offsets = append(c.offsets, plane*c.planeBytes()+Int8Step*(phase*c.lines*c.line+at))
	}
	quads := (kw + Int8Step - 1) / Int8Step
	if c.along {
		c.offsets = make([]int, 0, c.Channels*kh*quads)
		for channel := range c.Channels {
			for ky := range kh {
				for q := range quads {
					step(channel*quads+q, ky, 0)
				}
			}
		}
		return
	}
	c.offsets = make([]int, 0, c.planes*kh*kw)
	for plane := range c.planes {
		for ky := range kh {
			for kx := range kw {
				step(plane, ky, kx)
			}
		}
	}
}

// beyond returns how many bytes after the last line windows reach.
func (c *int8Conv) beyond() int {
	return tensor.RoundUp((c.Kernel[2]+Int8Step)*c.Dilation[2], c.Stride[2])
}

// planeBytes returns the bytes of a plane with all its phases.
func (c *int8Conv) planeBytes() int {
	return Int8Step * len(c.phases[0]) * len(c.phases[1]) * c.lines * c.line
}

// groupBytes returns the bytes of the planes of a group.
func (c *int8Conv) groupBytes() int { return c.planes * c.planeBytes() }

// eachWeight calls f for each weight of an output channel with its place in a
// row of steps and its number.
func (c *int8Conv) eachWeight(f func(at, weight int)) {
	kh, kw := c.Kernel[1], c.Kernel[2]
	for i := range c.Channels * kh * kw {
		channel, ky, kx := i/(kh*kw), i/kw%kh, i%kw
		if c.along {
			quads := (kw + Int8Step - 1) / Int8Step
			f(((channel*kh+ky)*quads+kx/Int8Step)*Int8Step+kx%Int8Step, i)
		} else {
			f(((channel/Int8Step*kh+ky)*kw+kx)*Int8Step+channel%Int8Step, i)
		}
	}
}

// tile finds which positions each tile has.
func (c *int8Conv) tile() {
	oh, ow := c.Out[1], c.Out[2]
	span := (oh-1)*c.line + ow
	c.blocks = make([]int8Block, 0, max(0, span)/int8Width+1)
	for p, at := 0, 0; p < span && ow > 0; p += int8Width {
		b := int8Block{at: at}
		for i := range int8Width {
			if q := p + i; q < span && q%c.line < ow {
				b.keep[i/16] |= 1 << (i % 16)
				b.count++
			}
			if i == 15 {
				b.second = b.count
			}
		}
		b.store = [2]uint16{int8Masks(b.second)[0], int8Masks(b.count - b.second)[0]}
		at += b.count
		c.blocks = append(c.blocks, b)
	}
}

// weightBytes returns the bytes of packed weights: their sums, then a row for
// each output channel.
func (c *int8Conv) weightBytes() int { return 4*c.padded() + c.Columns*c.pitch }

// partBytes returns the scratch memory of a part: the sums of a tile, its
// results where they are not stored at once, the sums of windows, what laying
// out a plane needs and, where output channels are computed one by one, the
// planes of a group and the results with what is left out of them.
func (c *int8Conv) partBytes() int {
	n := 2*4*int8Height*int8Width + 4*int8Width + c.layBytes
	if c.single {
		n += c.imageBytes() + c.singleBytes()
	}
	return n
}

func (c *int8Conv) imageBytes() int { return tensor.RoundUp(c.groupBytes()+int8Slack, 64) }

func (c *int8Conv) singleBytes() int {
	return tensor.RoundUp(len(c.blocks)*int8Width, 2*int8PlaneBlock) * c.size
}

// Scratch implements [Kernel].
func (c *int8Conv) Scratch() int {
	n := c.parameterBytes() + 4*c.padded() + c.slots*c.partBytes()
	if !c.packed {
		n += tensor.RoundUp(c.weightBytes(), 64)
	}
	if !c.single {
		n += tensor.RoundUp(c.Group*c.groupBytes()+int8Slack, 64)
	}
	return n
}

// Packed implements [Packer].
func (c *int8Conv) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return c.weightBytes()
}

// Packing implements [Packer].
func (c *int8Conv) Packing(int) tensor.Packing {
	along := 0
	if c.along {
		along = 1
	}
	return tensor.PackingOf("rows of bytes", int(c.way), c.Columns, c.Channels, c.Kernel[1], c.Kernel[2], along, c.pitch, int(c.wFlip))
}

// UsePacked implements [Packer].
func (c *int8Conv) UsePacked(int) { c.packed = true }

// Pack implements [Packer].
func (c *int8Conv) Pack(_ int, dst, src []byte) {
	sums := tensor.View[int32](dst[:4*c.padded()])
	clear(dst)
	size := c.Channels * c.Kernel[1] * c.Kernel[2]
	for m := range c.Columns {
		row, w := dst[4*c.padded()+m*c.pitch:][:c.pitch], src[m*size:][:size]
		c.eachWeight(func(at, i int) {
			v := int8(w[i] ^ c.wFlip)
			sums[m] += int32(v)
			placeByte(c.way, row, at, v)
		})
	}
}

// int8ConvTask is one run, for one image at a time: first the image is laid
// out, then tiles of the result are computed.
type int8ConvTask struct {
	*int8Conv
	x, y, w   []byte
	image     []byte
	first     []int32
	parts     []byte
	laying    int // planes are laid out in so many parts; 0: tiles are computed
	blockRows int // of output channels of a group that a unit has
	tiles     int // that a unit has
	next      tensor.Tickets
}

// Run implements [Kernel].
func (c *int8Conv) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	t := &c.task
	take := func(n int) []byte {
		b := scratch[:n:n]
		scratch = scratch[n:]
		return b
	}
	t.int8Conv = c
	c.prepare(in, take(c.parameterBytes()))
	t.first = tensor.View[int32](take(4 * c.padded()))
	t.w = in[1]
	if !c.packed {
		t.w = take(tensor.RoundUp(c.weightBytes(), 64))[:c.weightBytes()]
		c.Pack(1, t.w, in[1])
	}
	if !c.single {
		t.image = take(tensor.RoundUp(c.Group*c.groupBytes()+int8Slack, 64))
	}
	t.parts = scratch
	c.begin(t.first, tensor.View[int32](tensor.Memory(in, 4)), tensor.View[int32](t.w[:4*c.padded()]))
	for i, v := range c.parameter.bZero {
		c.parameter.bZero[i] = -v
	}
	positions := conv.Product3(c.Out)
	workers := min(c.slots, tensor.WorkersFor(p, c.way.Cost(float64(c.Columns)*float64(positions)*float64(c.steps*Int8Step+32))))
	xBytes, yBytes := len(in[0])/max(1, c.Batch), len(out[0])/c.Batch
	for i := range c.Batch {
		t.x, t.y = in[0][i*xBytes:][:xBytes], out[0][i*yBytes:][:yBytes]
		units := c.Group
		if !c.single {
			// Few parts: a plane may take less time than to ask for the next.
			t.laying = min(c.Group*c.planes, 4*workers)
			t.next.Reset(p, t.laying)
			p.Run(t, min(t.laying, workers))
			t.laying = 0
			units = t.divide(workers)
		}
		t.next.Reset(p, units)
		p.Run(t, min(units, workers))
	}
	c.done()
	t.x, t.y, t.w, t.image, t.first, t.parts = nil, nil, nil, nil, nil, nil
	return nil
}

// int8UnitMost is how many products of bytes a unit has at most where it can be
// divided.
const int8UnitMost = 1 << 31

// divide cuts the result into units and returns their number.
func (t *int8ConvTask) divide(workers int) int {
	const most = 256 << 10 // bytes of weights that are read again for each tile
	t.blockRows, t.tiles = t.Maps, len(t.blocks)
	if t.Maps*t.pitch > most {
		t.blockRows = min(t.Maps, int8Height)
	}
	units := t.Group * ((t.Maps + t.blockRows - 1) / t.blockRows)
	if want := 3 * workers; workers > 1 && units < want {
		cuts := min(len(t.blocks), (want+units-1)/units)
		t.tiles = (len(t.blocks) + cuts - 1) / cuts
		if n := units * ((len(t.blocks) + t.tiles - 1) / t.tiles); n < want {
			t.blockRows = max(12, tensor.RoundUp((t.blockRows*n+want-1)/want, 12))
		}
	}
	// So that a run can be cancelled after a while.
	t.tiles = max(1, min(t.tiles, int8UnitMost/max(1, t.blockRows*int8Width*Int8Step*t.steps)))
	return t.Group * ((t.Maps + t.blockRows - 1) / t.blockRows) * ((len(t.blocks) + t.tiles - 1) / t.tiles)
}

// Do implements [Task].
func (t *int8ConvTask) Do(part int) {
	buf := t.parts[part*t.partBytes():][:t.partBytes()]
	for {
		unit, ok := t.next.Draw(part)
		if !ok {
			return
		}
		switch {
		case t.laying > 0:
			lo, hi := tensor.Span(t.Group*t.planes, t.laying, unit, 1)
			for i := lo; i < hi; i++ {
				t.lay(t.image[i*t.planeBytes():], i/t.planes, i%t.planes, buf)
			}
		case t.single:
			image := buf[len(buf)-t.singleBytes()-t.imageBytes():][:t.imageBytes()]
			for plane := range t.planes {
				t.lay(image[plane*t.planeBytes():], unit, plane, buf)
			}
			t.channels1(unit, image, buf)
		default:
			t.compute(unit, buf)
		}
	}
}

// int8PlaneBlock is how many results the loops for one output channel compute
// at a time by AVX2.
const int8PlaneBlock = 32

// compute computes one unit: some tiles of some output channels of a group.
func (t *int8ConvTask) compute(unit int, buf []byte) {
	rowBlocks := (t.Maps + t.blockRows - 1) / t.blockRows
	row := unit % rowBlocks * t.blockRows
	unit /= rowBlocks
	group := unit % t.Group
	first := unit / t.Group * t.tiles
	image := t.image[group*t.groupBytes():]
	for i := first; i < min(first+t.tiles, len(t.blocks)); i++ {
		t.block(group, row, min(row+t.blockRows, t.Maps), i, image, buf)
	}
}

// block computes output channels of a group at the positions of a tile.
func (t *int8ConvTask) block(group, row, end, i int, image, buf []byte) {
	b := &t.blocks[i]
	const sums = 4 * int8Height * int8Width
	tile, staged, line := tensor.View[int32](buf[:sums]), buf[sums:2*sums], tensor.View[int32](buf[2*sums:2*sums+4*int8Width])
	args := int8Args{b: &image[Int8Step*int8Width*i], offsets: &t.offsets[0], steps: t.steps, vectors: 2}
	if b.keep[1] == 0 {
		args.vectors = 1
	}
	if t.crosses {
		args.a, args.rows, args.tile, args.first = &t.ones[0], 1, &line[0], &int8Zeros[0]
		int8Convolve(t.way, &args)
	}
	args.aRow, args.tile = t.pitch, &tile[0]
	n := conv.Product3(t.Out)
	for ; row < end; row += int8Height {
		m := group*t.Maps + row
		args.a, args.rows, args.first = &t.w[4*t.padded()+m*t.pitch], min(int8Height, end-row), &t.first[m]
		int8Convolve(t.way, &args)
		f := t.finish(m)
		f.tile, f.rows, f.keep, f.store, f.second = &tile[0], args.rows, b.keep, b.store, b.second*t.size
		if t.crosses {
			f.outer, f.line = &t.parameter.bZero[m], &line[0]
		}
		y := t.y[(m*n+b.at)*t.size:]
		if t.way == int8ByAVX2 && b.count < int8Width {
			f.out, f.outRow = &staged[0], int8Width*t.size
			int8Finish(t.way, t.kind, true, &f)
			for r := range args.rows {
				copyKept(y[r*n*t.size:], staged[r*f.outRow:], b.keep, t.size)
			}
			continue
		}
		f.out, f.outRow = &y[0], n*t.size
		int8Finish(t.way, t.kind, true, &f)
	}
}
