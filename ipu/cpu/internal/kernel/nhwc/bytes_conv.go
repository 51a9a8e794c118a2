package nhwc

import (
	"encoding/binary"
	"math"
	"runtime"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// bytesEnd is the epilogue of a tile: how sums become bytes of the result.
type bytesEnd struct {
	high  float32 // of a result before its zero point is added
	zero  uint32  // twice, of 16 bits
	least uint32  // four times
}

// bytesConvArgs are the arguments of the loop over tiles of a dense
// convolution: so many rows, each a pixel of the result, by so many vectors of
// output channels. The bytes under a window are runs, of one length, at
// distances from where the window of a pixel begins.
type bytesConvArgs struct {
	x            *byte
	pixels       *int32 // where windows begin, from x on
	tiles        int
	runs         *int32
	runCount     int
	run          int // bytes
	weights      *byte
	first        *int32
	scale, shift *float32
	out          *byte
	outRow       int // bytes from pixel to pixel
	rows         int
	vectors      int
	mask         uint64 // of the bytes of a row that are stored
	end          bytesEnd
	outAt        int // bytes from out on, advances
}

// bytesEndOf returns the epilogue: how sums become bytes of the result.
func bytesEndOf(e *quant.Int8End) bytesEnd { return newBytesEnd(e.To, e.Zero, e.Minimum, e.Maximum) }

// newBytesEnd returns how numbers become bytes of type to when they are kept
// within two others, added to a zero point and, if they are signed, flipped.
func newBytesEnd(to graph.DType, zero int32, low, high float32) bytesEnd {
	if to == graph.I8 {
		zero += 128
	}
	least := int32(math.RoundToEven(float64(low))) + zero
	return bytesEnd{high, uint32(zero) * 0x00010001, uint32(byte(least)) * 0x01010101}
}

// nhwcShape is the geometry of a convolution on NHWC.
type nhwcShape struct {
	quant.Int8End
	conv.ConvShape
	xPixel, yPixel int // bytes of a pixel
	copied         bool
	lines, line    int // of the image that windows are read from, bytes of a line
	packed         bool
	slots          int
	wFlip          byte

	// Of the run in progress.
	x, y, w []byte
	image   []byte
	copying int // parts in which lines are copied; 0: results are computed
	next    tensor.Tickets
}

// nhwcSlack is how much vectors may read beyond an image.
const nhwcSlack = 128

func (p *nhwcShape) init(o *Conv, in, out []graph.TensorType) {
	// [N,spatial…,C] has the shape of [N,C,spatial…] in NCHW.
	planes := func(t graph.TensorType, channels int64) []int64 {
		n := t.Rank() - 1
		return append([]int64{t.Shape[0], channels}, t.Shape[1:n]...)
	}
	x, y := planes(in[0], o.Channels), planes(out[0], in[1].Shape[0])
	s := conv.NewConvShape(o.Conv(), x, in[1].Shape, y)
	types := append([]graph.TensorType{}, in...)
	types[0].DType = byteType(o.Signed)
	p.Int8End, p.ConvShape = quant.NewInt8End(types, o.To, o.Bounded, o.Low, o.High, s.Group*s.Maps, s.Channels*conv.Product3(s.Kernel)), s
	p.xPixel, p.yPixel, p.slots = int(pixelBytes(x[1])), int(pixelBytes(y[1])), min(tensor.MaxParts, runtime.GOMAXPROCS(0))
	_, p.wFlip = p.Flips()
	reach := func(axis int) int { return (s.Out[axis]-1)*s.Stride[axis] + (s.Kernel[axis]-1)*s.Dilation[axis] + 1 }
	p.lines, p.line = s.In[1], s.In[2]*p.xPixel
	if s.Pad != [3]int{} || reach(1) > s.In[1] || reach(2) > s.In[2] {
		p.copied = true
		p.surround()
	}
}

// surround makes lines those of the image with what lies around it.
func (p *nhwcShape) surround() {
	p.lines = (p.Out[1]-1)*p.Stride[1] + (p.Kernel[1]-1)*p.Dilation[1] + 1
	p.line = ((p.Out[2]-1)*p.Stride[2] + (p.Kernel[2]-1)*p.Dilation[2] + 1) * p.xPixel
}

func (p *nhwcShape) copyBytes() int {
	if !p.copied {
		return 0
	}
	return tensor.RoundUp(p.lines*p.line+nhwcSlack, 64)
}

// workers returns how many workers share an image, of so many products.
func (p *nhwcShape) workers(pool tensor.Pool, products float64) int {
	return min(p.slots, tensor.WorkersFor(pool, quant.Int8ByVNNI.Cost(products)))
}

// copyLines copies one of the parts of the lines of the image.
func (p *nhwcShape) copyLines(unit int) {
	lo, hi := tensor.Span(p.lines, p.copying, unit, 1)
	for line := lo; line < hi; line++ {
		p.copyLine(p.image[line*p.line:][:p.line], line)
	}
}

// copyLine copies a line with what lies around the image.
func (p *nhwcShape) copyLine(to []byte, line int) {
	outside := [1]byte{byte(p.AZero)}
	left, wide, y := p.Pad[2]*p.xPixel, p.In[2]*p.xPixel, line-p.Pad[1]
	if y < 0 || y >= p.In[1] || left >= len(to) {
		vec.Fill[uint8](to, outside[:])
		return
	}
	vec.Fill[uint8](to[:left], outside[:])
	n := copy(to[left:], p.x[y*wide:][:wide])
	vec.Fill[uint8](to[left+n:], outside[:])
}

// start makes one image ready to be read.
func (p *nhwcShape) start(pool tensor.Pool, t tensor.Task, x, y, space []byte, workers int) {
	p.x, p.y, p.image = x, y, x
	if !p.copied {
		return
	}
	p.image = space
	p.copying = min(p.lines, 4*workers)
	if workers == 1 {
		p.copying = 1
	}
	p.next.Reset(pool, p.copying)
	pool.Run(t, min(p.copying, workers))
	p.copying = 0
}

// nhwcConv is the kernel of a [Conv] that is not depthwise.
type nhwcConv struct {
	nhwcShape
	rows   int // of a tile
	pixels []int32
	runs   []int32
	run    int
	steps  int
	tiles  []nhwcTile
	vecs   int // vectors of output channels, of all groups

	// Of the run in progress.
	first        []int32
	scale, shift []float32
	cuts, cols   int // of pixels, tiles of a unit
}

// nhwcTile is some output channels of a group.
type nhwcTile struct {
	group, vec, vectors int // vectors before it
	column              int
	at                  int // its weights
	mask                uint64
}

func bindConv(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
	o := op.(*Conv)
	if o.Group > 1 && in[1].Shape[1] == 1 {
		return newDepthwise(o, in, out), nil
	}
	c := new(nhwcConv)
	c.init(o, in, out)
	quads := int(pixelBytes(int64(c.Channels)))
	kh, kw := c.Kernel[1], c.Kernel[2]
	c.steps = kh * kw * quads / quant.Int8Step
	c.run = quads
	c.runs = make([]int32, 0, kh*kw)
	for ky := range kh {
		for kx := range kw {
			if at := ky*c.Dilation[1]*c.line + kx*c.Dilation[2]*c.xPixel; kx == 0 || c.Dilation[2] > 1 || c.Group > 1 {
				c.runs = append(c.runs, int32(at))
			}
		}
	}
	if c.Dilation[2] == 1 && c.Group == 1 {
		c.run *= kw
	}
	c.pixels = make([]int32, c.Out[1]*c.Out[2])
	for i := range c.pixels {
		c.pixels[i] = int32(i/c.Out[2]*c.Stride[1]*c.line + i%c.Out[2]*c.Stride[2]*c.xPixel)
	}
	c.rows = bytesRows(len(c.pixels))
	c.divideColumns()
	return c, nil
}

// bytesMostRows and bytesMostVectors are the size of the greatest tile.
const (
	bytesMostRows    = 6
	bytesMostVectors = 4
)

// bytesRows returns how many pixels tiles have of which so many do not leave
// much of the last one empty.
func bytesRows(pixels int) int {
	best, least := 1, math.Inf(1)
	for r := 4; r <= bytesMostRows; r++ {
		if cost := float64((pixels+r-1)/r) * (float64(r) + 0.4); cost <= least {
			best, least = r, cost
		}
	}
	return max(1, min(best, pixels))
}

// divideColumns divides output channels into tiles as even as can be.
func (c *nhwcConv) divideColumns() {
	all := (c.Maps + 15) / 16
	n := (all + bytesMostVectors - 1) / bytesMostVectors
	at := 4 * 16 * all * c.Group
	for g := range c.Group {
		end := c.Maps
		if g == c.Group-1 {
			end = c.yPixel - g*c.Maps // with what fills the last pixel
		}
		for i := range n {
			lo, hi := all*i/n, all*(i+1)/n
			t := nhwcTile{group: g, vec: g*all + lo, vectors: hi - lo, column: g*c.Maps + 16*lo, at: at, mask: math.MaxUint64}
			if w := min(end, 16*hi) - 16*lo; w < 64 {
				t.mask = 1<<w - 1
			}
			at += c.steps * t.vectors * 64
			c.tiles = append(c.tiles, t)
		}
	}
	c.vecs = all * c.Group
}

// weightBytes returns the bytes of packed weights: their sums, then the tiles.
func (c *nhwcConv) weightBytes() int { return 4*16*c.vecs + 64*c.vecs*c.steps }

// Scratch implements [Kernel].
func (c *nhwcConv) Scratch() int {
	n := 3*4*16*c.vecs + c.copyBytes()
	if !c.packed {
		n += c.weightBytes()
	}
	return n
}

// Packed implements [Packer].
func (c *nhwcConv) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return c.weightBytes()
}

// Packing implements [Packer].
func (c *nhwcConv) Packing(int) tensor.Packing {
	return tensor.PackingOf("tiles of bytes", c.Group, c.Maps, c.Channels, c.Kernel[1], c.Kernel[2], int(c.wFlip))
}

// UsePacked implements [Packer].
func (c *nhwcConv) UsePacked(int) { c.packed = true }

// Pack implements [Packer].
func (c *nhwcConv) Pack(_ int, dst, src []byte) {
	clear(dst)
	sums := tensor.View[int32](dst[:4*16*c.vecs])
	window := c.Kernel[1] * c.Kernel[2]
	quads := int(pixelBytes(int64(c.Channels))) / quant.Int8Step
	for _, t := range c.tiles {
		to := dst[t.at:][:c.steps*t.vectors*64]
		for quad := range quads {
			lanes := min(quant.Int8Step, c.Channels-quad*quant.Int8Step)
			for j := range min(16*t.vectors, (t.group+1)*c.Maps-t.column) {
				w := src[((t.column+j)*c.Channels+quad*quant.Int8Step)*window:][:lanes*window]
				place := (quad*t.vectors*16 + j) * quant.Int8Step
				sums[16*t.vec+j] += packQuads(to[place:], quads*t.vectors*64, w, window, c.wFlip)
			}
		}
	}
}

// packQuads writes the bytes of up to four channels at each element of a window
// side by side, flipped, so many bytes from element to element, and returns
// their sum.
func packQuads(dst []byte, apart int, w []byte, window int, flip byte) (sum int32) {
	if len(w) == quant.Int8Step*window {
		w0, w1, w2, w3 := w[:window], w[window:][:window], w[2*window:][:window], w[3*window:][:window]
		for k, v := range w0 {
			a, b, c, d := v^flip, w1[k]^flip, w2[k]^flip, w3[k]^flip
			binary.LittleEndian.PutUint32(dst[k*apart:], uint32(a)|uint32(b)<<8|uint32(c)<<16|uint32(d)<<24)
			sum += int32(int8(a)) + int32(int8(b)) + int32(int8(c)) + int32(int8(d))
		}
		return sum
	}
	for i, v := range w {
		v ^= flip
		dst[i%window*apart+i/window] = v
		sum += int32(int8(v))
	}
	return sum
}

// Run implements [Kernel].
func (c *nhwcConv) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	take := func(n int) []byte {
		b := scratch[:n:n]
		scratch = scratch[n:]
		return b
	}
	c.Numbers(in)
	n := 16 * c.vecs
	c.first, c.scale, c.shift = tensor.View[int32](take(4*n)), tensor.F32s(take(4*n)), tensor.F32s(take(4*n))
	space := take(c.copyBytes())
	c.w = in[1]
	if !c.packed {
		c.w = take(c.weightBytes())
		c.Pack(1, c.w, in[1])
	}
	c.spread(in)
	products := float64(len(c.pixels)) * float64(n) * float64(c.steps*quant.Int8Step+32)
	workers := c.workers(p, products)
	xBytes, yBytes := len(in[0])/c.Batch, len(out[0])/c.Batch
	for i := range c.Batch {
		c.start(p, c, in[0][i*xBytes:][:xBytes], out[0][i*yBytes:][:yBytes], space, workers)
		units := c.divide(workers)
		c.next.Reset(p, units)
		p.Run(c, min(units, workers))
	}
	c.x, c.y, c.w, c.image, c.first, c.scale, c.shift = nil, nil, nil, nil, nil, nil, nil
	return nil
}

// spread reads what the operands say about columns.
func (c *nhwcConv) spread(in [][]byte) {
	sums, bias := tensor.View[int32](c.w[:4*16*c.vecs]), tensor.View[int32](tensor.Memory(in, 4))
	scale, shift := tensor.F32s(tensor.Memory(in, 5)), tensor.F32s(tensor.Memory(in, 6))
	of := func(s []float32, g int) []float32 {
		if len(s) > 1 {
			return s[g*c.Maps:][:c.Maps]
		}
		return s
	}
	n := len(c.first) / c.Group
	for g := range c.Group {
		quant.SpreadColumns(c.scale[g*n:][:n], of(scale, g), c.Maps)
		quant.SpreadColumns(c.shift[g*n:][:n], of(shift, g), c.Maps)
		first, s := c.first[g*n:][:n], sums[g*n:][:n]
		for j := range first {
			first[j] = -c.AZero * s[j]
		}
		if bias != nil {
			for j, b := range bias[g*c.Maps:][:c.Maps] {
				first[j] += b
			}
		}
	}
}

// divide cuts the result into units, of pixels where they are more than
// weights and else of output channels, and returns their number.
func (c *nhwcConv) divide(workers int) int {
	c.cuts, c.cols = 1, len(c.tiles)
	if workers == 1 {
		return 1
	}
	want := 4 * workers
	if c.weightBytes() > len(c.x)+len(c.y) || len(c.pixels) < want*c.rows {
		c.cols = max(1, len(c.tiles)/want)
	}
	units := (len(c.tiles) + c.cols - 1) / c.cols
	if units < want {
		c.cuts = max(1, min((want+units-1)/units, len(c.pixels)/c.rows))
	}
	return units * c.cuts
}

// Do implements [Task].
func (c *nhwcConv) Do(part int) {
	for {
		unit, ok := c.next.Draw(part)
		if !ok {
			return
		}
		if c.copying > 0 {
			c.copyLines(unit)
			continue
		}
		lo, hi := tensor.Span(len(c.pixels), c.cuts, unit%c.cuts, c.rows)
		first := unit / c.cuts * c.cols
		for i := first; i < min(first+c.cols, len(c.tiles)); i++ {
			c.tile(&c.tiles[i], lo, hi)
		}
	}
}

// tile computes some output channels of the pixels [lo, hi).
func (c *nhwcConv) tile(t *nhwcTile, lo, hi int) {
	if lo == hi {
		return
	}
	rows := min(c.rows, hi-lo)
	args := bytesConvArgs{
		x: &c.image[t.group*c.Channels], pixels: &c.pixels[lo], tiles: (hi - lo) / rows, runs: &c.runs[0], runCount: len(c.runs), run: c.run,
		weights: &c.w[t.at], first: &c.first[16*t.vec], scale: &c.scale[16*t.vec], shift: &c.shift[16*t.vec],
		out: &c.y[lo*c.yPixel+t.column], outRow: c.yPixel, rows: rows, vectors: t.vectors, mask: t.mask, end: bytesEndOf(&c.Int8End),
	}
	bytesConv(&args)
	if (hi-lo)%rows != 0 {
		// The last tile computes some pixels again.
		args.pixels, args.tiles, args.outAt = &c.pixels[hi-rows], 1, 0
		args.out = &c.y[(hi-rows)*c.yPixel+t.column]
		bytesConv(&args)
	}
}
