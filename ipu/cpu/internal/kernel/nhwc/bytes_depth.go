package nhwc

import (
	"math"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/quant"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// depthLines is the most lines of a window of a convolution of single
// channels: those of two steps.
const depthLines = 2 * quant.Int8Step

// bytesDepthArgs are the arguments of the loop over one line of the result of
// a convolution of single channels, or two. It computes 64 bytes at a time. What
// is said about them repeats after a period: where a line of the result has a
// byte for each of the image, after as many chunks as hold whole pixels, and
// else after a pixel.
type bytesDepthArgs struct {
	x               *byte
	rows            *int32 // four for each group, from x on
	chunks          int
	period          int
	inSkip, outSkip int // bytes after a period
	taps, tap       int // columns of the window, bytes from one to the next
	params          *float32
	weights         *byte
	out             [2]*byte
	mask            uint64 // of the last chunk
	groups, outs    int
	end             bytesEnd
	//lint:ignore U1000 the assembly counts in it
	left int // chunks of a period
	//lint:ignore U1000 the assembly counts in them
	in, to int    // bytes from the first on, advance
	wrap   uint64 // of the last chunk of a period
}

// nhwcDepthwise is the kernel of a depthwise [Conv].
// Four bytes of a column of the window are multiplied at a time. The lines under
// a window, with what lies around the image, are copied to where a few of them
// take turns.
type nhwcDepthwise struct {
	nhwcShape
	outs, groups int
	rows         []int // lines of a window, or of two
	under        int   // lines from the first of them to the last
	ky           [][2]int
	period       int
	chunks       int // of a line of the result
	mask, wrap   uint64

	// Of the run in progress.
	params []float32
	bands  []byte
	cuts   int
}

const (
	depthChunk   = 64             // bytes
	depthNumbers = 3 * depthChunk // of a chunk: what sums begin with, scales, shifts
	depthTapSize = 4 * depthChunk // bytes of weights
)

func newDepthwise(o *Conv, in, out []graph.TensorType) *nhwcDepthwise {
	c := &nhwcDepthwise{outs: 1}
	c.init(o, in, out)
	c.surround()
	c.copied = false
	kh := c.Kernel[1]
	groups := func(lines int) int { return (lines + quant.Int8Step - 1) / quant.Int8Step }
	c.groups = groups(kh)
	if c.Dilation[1] == 1 && groups(kh+c.Stride[1]) == c.groups && c.Out[1] > 1 {
		c.outs = 2 // of the same lines
	}
	c.rows, c.ky = make([]int, quant.Int8Step*c.groups), make([][2]int, quant.Int8Step*c.groups)
	for i := range c.rows {
		c.ky[i] = [2]int{i, i - c.Stride[1]}
		line := i * c.Dilation[1]
		if i >= kh+(c.outs-1)*c.Stride[1] {
			line = 0 // with weights that are zero
		}
		c.rows[i] = line
		c.under = max(c.under, line+1)
	}
	bytes := c.Out[2] * c.yPixel
	c.mask, c.wrap = math.MaxUint64, math.MaxUint64
	if c.Stride[2] == 1 {
		c.period = c.xPixel / gcd(c.xPixel, depthChunk)
		c.chunks = (bytes + depthChunk - 1) / depthChunk
		c.mask >>= c.chunks*depthChunk - bytes
	} else {
		c.period = (c.xPixel + depthChunk - 1) / depthChunk
		c.chunks = c.period * c.Out[2]
		c.mask >>= c.period*depthChunk - c.xPixel
		c.wrap = c.mask
	}
	return c
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// channel returns the channel of byte i of a period, or -1.
func (c *nhwcDepthwise) channel(i int) int {
	if c.Stride[2] == 1 {
		i %= c.xPixel
	}
	if i >= c.Columns {
		return -1
	}
	return i
}

// depthPlace returns where among the 64 numbers of four vectors byte i of a
// chunk stands.
func depthPlace(i int) int { return i/4%4*16 + i/16*4 + i%4 }

// chunkBytes returns the bytes of the weights of a chunk.
func (c *nhwcDepthwise) chunkBytes() int { return c.Kernel[2] * c.groups * c.outs * depthTapSize }

// weightBytes returns the bytes of packed weights: the sums of channels, then
// the chunks of a period.
func (c *nhwcDepthwise) weightBytes() int {
	return tensor.RoundUp(4*c.xPixel, 64) + c.period*c.chunkBytes()
}

// bandBytes returns the scratch memory of a part.
func (c *nhwcDepthwise) bandBytes() int { return tensor.RoundUp(c.under*c.line+nhwcSlack, 64) }

// Scratch implements [Kernel].
func (c *nhwcDepthwise) Scratch() int {
	n := 4*depthNumbers*c.period + tensor.RoundUp(3*4*c.xPixel, 64) + c.slots*c.bandBytes()
	if !c.packed {
		n += c.weightBytes()
	}
	return n
}

// Packed implements [Packer].
func (c *nhwcDepthwise) Packed(i int) int {
	if i != 1 {
		return 0
	}
	return c.weightBytes()
}

// Packing implements [Packer].
func (c *nhwcDepthwise) Packing(int) tensor.Packing {
	return tensor.PackingOf("chunks of bytes", c.Columns, c.xPixel, c.Kernel[1], c.Kernel[2], c.Stride[1], c.Stride[2], c.groups, c.outs, int(c.wFlip))
}

// UsePacked implements [Packer].
func (c *nhwcDepthwise) UsePacked(int) { c.packed = true }

// Pack implements [Packer].
func (c *nhwcDepthwise) Pack(_ int, dst, src []byte) {
	clear(dst)
	sums, to := tensor.View[int32](dst[:4*c.xPixel]), dst[tensor.RoundUp(4*c.xPixel, 64):]
	kh, kw := c.Kernel[1], c.Kernel[2]
	for m := range c.Columns {
		for _, v := range src[m*kh*kw:][:kh*kw] {
			sums[m] += int32(int8(v ^ c.wFlip))
		}
	}
	for i := range c.period * depthChunk {
		m := c.channel(i)
		if m < 0 {
			continue
		}
		chunk := to[i/depthChunk*c.chunkBytes():][:c.chunkBytes()]
		place := quant.Int8Step * depthPlace(i%depthChunk)
		for kx := range kw {
			for r, lines := range c.ky {
				for o, ky := range lines[:c.outs] {
					if ky < 0 || ky >= kh {
						continue
					}
					tap := (kx*c.groups+r/quant.Int8Step)*c.outs + o
					chunk[tap*depthTapSize+place+r%quant.Int8Step] = src[(m*kh+ky)*kw+kx] ^ c.wFlip
				}
			}
		}
	}
}

// Run implements [Kernel].
func (c *nhwcDepthwise) Run(p tensor.Pool, in, out [][]byte, scratch []byte) error {
	if len(out[0]) == 0 {
		return nil
	}
	take := func(n int) []byte {
		b := scratch[:n:n]
		scratch = scratch[n:]
		return b
	}
	c.Numbers(in)
	c.params = tensor.F32s(take(4 * depthNumbers * c.period))
	natural := take(tensor.RoundUp(3*4*c.xPixel, 64))
	c.bands = take(c.slots * c.bandBytes())
	c.w = in[1]
	if !c.packed {
		c.w = take(c.weightBytes())
		c.Pack(1, c.w, in[1])
	}
	c.spread(in, tensor.F32s(natural))
	pairs := (c.Out[1] + c.outs - 1) / c.outs
	workers := c.workers(p, float64(pairs)*float64(c.chunks)*depthChunk*float64(c.Kernel[2]*c.groups*16+64))
	xBytes, yBytes := len(in[0])/c.Batch, len(out[0])/c.Batch
	for i := range c.Batch {
		c.start(p, c, in[0][i*xBytes:][:xBytes], out[0][i*yBytes:][:yBytes], nil, workers)
		c.cuts = 1
		if workers > 1 {
			c.cuts = min(pairs, 4*workers)
		}
		c.next.Reset(p, c.cuts)
		p.Run(c, min(c.cuts, workers))
	}
	c.x, c.y, c.w, c.image, c.params, c.bands = nil, nil, nil, nil, nil, nil
	return nil
}

// spread reads what the operands say about channels.
func (c *nhwcDepthwise) spread(in [][]byte, natural []float32) {
	n := c.xPixel
	sums, bias := tensor.View[int32](c.w[:4*n]), tensor.View[int32](tensor.Memory(in, 4))
	for j := range n {
		v := -c.AZero * sums[j]
		if bias != nil && j < len(bias) {
			v += bias[j]
		}
		natural[j] = math.Float32frombits(uint32(v))
	}
	quant.SpreadColumns(natural[n:2*n], tensor.F32s(tensor.Memory(in, 5)), c.Columns)
	quant.SpreadColumns(natural[2*n:3*n], tensor.F32s(tensor.Memory(in, 6)), c.Columns)
	for i := 0; i < c.period*depthChunk; i += quant.Int8Step {
		at := i/depthChunk*depthNumbers + depthPlace(i%depthChunk)
		m := i
		if c.Stride[2] == 1 {
			m %= n
		}
		for k := range 3 {
			to := (*[quant.Int8Step]float32)(c.params[at+k*depthChunk:])
			if m < n {
				*to = *(*[quant.Int8Step]float32)(natural[k*n+m:])
			} else {
				*to = [quant.Int8Step]float32{}
			}
		}
	}
}

// Do implements [Task].
func (c *nhwcDepthwise) Do(part int) {
	band := c.bands[part*c.bandBytes():][:c.bandBytes()]
	for {
		unit, ok := c.next.Draw(part)
		if !ok {
			return
		}
		lo, hi := tensor.Span(c.Out[1], c.cuts, unit, c.outs)
		copied := 0 // lines, those before the first included
		for y := lo; y < hi; y += c.outs {
			at := min(y, c.Out[1]-c.outs)
			first := at * c.Stride[1]
			end := first + c.under
			for line := max(first, copied); line < end; line++ {
				c.copyLine(band[line%c.under*c.line:][:c.line], line)
			}
			copied = end
			c.compute(band, at, first)
		}
	}
}

// compute computes a line of the result, or two, of windows that begin at a
// line of the image.
func (c *nhwcDepthwise) compute(band []byte, y, first int) {
	size := c.Out[2] * c.yPixel
	var rows [depthLines]int32
	for i, line := range c.rows {
		rows[i] = int32((first + line) % c.under * c.line)
	}
	args := bytesDepthArgs{
		x: &band[0], rows: &rows[0], chunks: c.chunks, period: c.period,
		taps: c.Kernel[2], tap: c.Dilation[2] * c.xPixel, params: &c.params[0], weights: &c.w[tensor.RoundUp(4*c.xPixel, 64)],
		mask: c.mask, wrap: c.wrap, groups: c.groups, outs: c.outs, end: bytesEndOf(&c.Int8End),
	}
	for o := range c.outs {
		args.out[o] = &c.y[(y+o)*size]
	}
	if c.Stride[2] > 1 {
		args.inSkip = c.Stride[2]*c.xPixel - c.period*depthChunk
		args.outSkip = c.xPixel - c.period*depthChunk
	}
	bytesDepth(&args)
}
