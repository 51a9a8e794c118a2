package conv

import (
	"math"
	"runtime"
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// convForm is a way to make tiles of a convolution.
type convForm uint8

const (
	convByMaps   convForm = iota // rows of a tile are pixels, its columns output channels
	convByPixels                 // the other way round
	convByPlane                  // rows of pixels, for one channel and one output channel per group
)

// What of the image a band may take of the second-level cache, in bytes, and
// how much more it takes where that is inevitable before rows are cut. They are
// variables for the tests.
var (
	bandBytes     = 256 << 10
	mostBandBytes = 512 << 10
)

// convBand is how a part of the image lies in memory: for every channel rows
// that are padded where the window leaves the image. Where the stride is
// greater than one, elements of a row that a window's element meets one after
// the other are neighbours: those whose column has the same remainder when
// divided by the stride.
type convBand struct {
	direct bool // it is the image itself
	flat   bool // its rows follow one another without a gap, so that they can be taken for one
	phases []int
	step   int // rows from one output row to the next
	reach  int // columns of a window beyond the first, divided by the stride

	width, rows       int // the most columns and rows of the output
	phasePitch        int // elements from phase to phase
	rowPitch, inRows  int // elements from row to row; rows of a channel at one depth
	planePitch, total int // elements from channel to channel; in all, with what loops may read beyond
}

// plan chooses the form and lays out the band.
func (c *vectorConv) plan() {
	// Axes of one element go to the front, for the last one to be long.
	s := &c.ConvShape
	for range 2 {
		if s.In[2] == 1 && s.Out[2] == 1 && s.Kernel[2] == 1 {
			for _, axis := range []*[3]int{&s.In, &s.Out, &s.Kernel, &s.Stride, &s.Dilation, &s.Pad} {
				*axis = [3]int{axis[2], axis[0], axis[1]}
			}
		}
	}
	ones := [3]int{1, 1, 1}
	points := s.Kernel == ones && s.Stride == ones && s.Pad == [3]int{} && s.In == s.Out
	if points {
		n := Product3(s.In)
		s.In, s.Out = [3]int{1, 1, n}, [3]int{1, 1, n}
	}
	c.window = Product3(s.Kernel)
	c.depth = s.Channels * c.window
	c.lanes = c.path.Lanes()
	c.tall, c.short, c.few = ConvLimits(c.path)
	c.band.flat = s.Kernel == ones && s.Pad == [3]int{}
	for i := range 3 {
		c.band.flat = c.band.flat && (s.Out[i]-1)*s.Stride[i] < s.In[i]
	}
	c.form = convByPixels
	switch {
	case s.Channels == 1 && s.Maps == 1:
		c.form = convByPlane
	case c.cyclesByMaps() < c.cyclesByPixels():
		c.form = convByMaps
	}
	c.blocks = (s.Maps + c.short - 1) / c.short
	if c.form == convByMaps {
		c.blocks = (s.Maps + 2*c.lanes - 1) / (2 * c.lanes)
	}
	c.band.direct = points && c.readsDirectly()
	c.layOut()
}

// lineLength is the number of pixels that lie in a row, for tiles.
func (c *vectorConv) lineLength() int {
	if c.band.flat {
		return c.Out[1] * c.Out[2]
	}
	return c.Out[2]
}

// cyclesByMaps and cyclesByPixels estimate the time of a row of pixels, by the
// multiply-adds, of which two start in a cycle, or one and a tenth where each
// reads memory, and by what is done for every tile at its end.
func (c *vectorConv) cyclesByMaps() float64 {
	n := float64(c.lineLength())
	tiles := math.Ceil(n / float64(c.tall))
	if 2*c.Out[2] <= c.tall && c.Out[1] > 1 {
		tiles = 0.5
	}
	pairs, half := c.Maps/(2*c.lanes), 0.0
	switch rest := c.Maps % (2 * c.lanes); {
	case rest > c.lanes:
		pairs++
	case rest > 0:
		half = 1
	}
	k := float64(c.depth)
	perStore := 3 * float64(c.lanes)
	return float64(pairs)*(n*k+tiles*(20+2*perStore)) + half*(n*(0.55*k)+tiles*(20+perStore))
}

func (c *vectorConv) cyclesByPixels() float64 {
	n := c.lineLength()
	k, m := float64(c.depth), float64(c.Maps)
	blocks := math.Ceil(m / float64(c.short))
	whole, rest := n/(2*c.lanes), n%(2*c.lanes)
	if rest > c.lanes {
		whole, rest = whole+1, 0
	}
	perPair := max(m, 4*blocks)*k + 3*m + 20*blocks
	cycles := float64(whole) * perPair
	if c.Maps <= c.few {
		cycles = float64(whole) * (max(m, 2)*k + 3*m + 10)
	}
	if rest > 0 {
		cycles += max(0.55*m, 4*blocks)*k + 2*m + 20*blocks
	}
	// Vectors of pixels seldom begin with a cache line.
	return 1.05 * cycles
}

// readsDirectly reports whether a convolution of points reads the image where
// it lies. Copying pays where many output channels read it again, and where
// the channels' elements share the sets of the first-level cache.
func (c *vectorConv) readsDirectly() bool {
	plane := c.In[2]
	bytes := 4 * c.Channels * plane
	if bytes > math.MaxInt32 {
		return false
	}
	// The sets that elements lie in which are a plane apart.
	sets := 64
	for step := 4 * plane % 4096; sets > 1 && step%(4096/sets*2) == 0; {
		sets /= 2
	}
	if c.form == convByPixels {
		return c.blocks <= 2 || bytes <= mostBandBytes || c.blocks <= 8 && c.Channels <= 12*sets
	}
	return c.blocks <= 4 && c.Channels <= 6*sets
}

// layOut chooses the size of a band and where its elements lie.
func (c *vectorConv) layOut() {
	b := &c.band
	b.reach = (c.Kernel[2] - 1) * c.Dilation[2] / c.Stride[2]
	b.phases = make([]int, 0, c.Kernel[2])
	for kx := range c.Kernel[2] {
		b.phases = append(b.phases, kx*c.Dilation[2]%c.Stride[2])
	}
	slices.Sort(b.phases)
	b.phases = slices.Compact(b.phases)
	b.step = c.Stride[1]
	if c.Kernel[1] == 1 {
		b.step = 1
	}
	if c.depth == 0 {
		return
	}
	b.width, b.rows = c.Out[2], c.leastRows()
	for n := 2; c.bandBytes(b.width, b.rows) > mostBandBytes && b.width > 4*c.lanes; n++ {
		b.width = tensor.RoundUp((c.Out[2]+n-1)/n, c.columnUnit())
		b.flat = b.flat && b.direct
	}
	if b.direct {
		n := c.bandBytes(b.width, 1)/bandBytes + 1
		b.width = min(b.width, tensor.RoundUp((c.Out[2]+n-1)/n, c.columnUnit()))
	}
	// Rows that the windows of neighbouring bands share are copied for each.
	shared := c.rowsIn(1) - b.step
	for b.rows < c.Out[1] {
		most := bandBytes
		if b.rows*b.step < 2*shared {
			most = mostBandBytes
		}
		if c.bandBytes(b.width, 2*b.rows) > most {
			break
		}
		b.rows *= 2
	}
	bands := (c.Out[1] + b.rows - 1) / b.rows
	b.rows = tensor.RoundUp((c.Out[1]+bands-1)/bands, c.leastRows())

	b.phasePitch = c.linePitch(b.width)
	b.rowPitch = b.phasePitch * len(b.phases)
	b.inRows = c.rowsIn(b.rows)
	if b.direct {
		b.planePitch = c.In[2]
	} else {
		// An odd number of cache lines, to use all sets of the cache.
		b.planePitch = tensor.RoundUp(c.Kernel[0]*b.inRows*b.rowPitch, 16) | 16
		b.total = c.Channels*b.planePitch + 8*c.lanes
	}
	c.offsets = make([]int32, 0, c.depth)
	for ch := range c.Channels {
		for kz := range c.Kernel[0] {
			for ky := range c.Kernel[1] {
				row := ch*b.planePitch + (kz*b.inRows+ky*c.Dilation[1])*b.rowPitch
				for kx := range c.Kernel[2] {
					x := kx * c.Dilation[2]
					phase, _ := slices.BinarySearch(b.phases, x%c.Stride[2])
					c.offsets = append(c.offsets, int32(4*(row+phase*b.phasePitch+x/c.Stride[2])))
				}
			}
		}
	}
	if b.direct && c.form != convByMaps {
		c.panelOffsets = make([]int32, 0, c.Channels)
		for ch := range c.Channels {
			c.panelOffsets = append(c.panelOffsets, int32(4*ch*gemm.Panel))
		}
	}
}

// leastRows is the number of rows of the output that are computed together.
func (c *vectorConv) leastRows() int {
	if c.pairs() {
		return 2
	}
	return 1
}

// pairs reports whether a tile spans two rows of the output.
func (c *vectorConv) pairs() bool {
	return c.form == convByMaps && !c.band.flat && 2*c.Out[2] <= c.tall && c.Out[1] > 1
}

// columnUnit is a number of pixels that makes whole tiles.
func (c *vectorConv) columnUnit() int {
	if c.form == convByMaps {
		return c.tall
	}
	return 2 * c.lanes
}

// linePitch returns the elements of one phase of a row.
func (c *vectorConv) linePitch(width int) int {
	if c.band.flat {
		return width
	}
	return tensor.RoundUp(width+c.band.reach, c.lanes)
}

// rowsIn returns how many rows of the image a number of output rows needs.
func (c *vectorConv) rowsIn(rows int) int {
	return (rows-1)*c.band.step + (c.Kernel[1]-1)*c.Dilation[1] + 1
}

func (c *vectorConv) bandBytes(width, rows int) int {
	return 4 * c.Channels * c.Kernel[0] * c.rowsIn(rows) * c.linePitch(width) * len(c.band.phases)
}

// newVectorConv returns a kernel that computes s with SIMD instructions, nil if there are
// none for T or it would need too much memory.
func newVectorConv[T tensor.Float](s ConvShape) tensor.Kernel {
	if _, ok := any(T(0)).(float32); !ok || tensor.Path == tensor.PathGo {
		return nil
	}
	c := &vectorConv{ConvShape: s, path: tensor.Path}
	c.plan()
	if 4*c.band.total > math.MaxInt32 {
		return nil
	}
	c.zeros = tensor.Zeros(tensor.RoundUp(c.Maps, 2*c.lanes))
	c.slots = max(1, min(tensor.MaxParts, runtime.GOMAXPROCS(0), tensor.MostScratch/max(1, c.partBytes())))
	return c
}
