package kernel

import (
	"runtime"
	"unsafe"
)

// convMode is a way to make a convolution a product W·X.
type convMode uint8

const (
	// convPoints: a window is one element, so X is the input as it lies there.
	convPoints convMode = iota
	// convTaps: rows of X are read where they lie, a stretch of an output row
	// at a time, elements outside the input masked.
	convTaps
	// convPanels: X is collected in panels of output positions.
	convPanels
)

// convDepth is the most products of a block of channels: so much of a panel
// stays in the second-level cache while all rows of W pass over it.
const convDepth = 512

// vectorConv computes a convolution of float32 by vectors.
type vectorConv struct {
	convShape
	path      vectorPath
	mode      convMode
	copied    bool  // X is copied into panels although it could be read in place
	window    int   // elements of one channel's window
	depth     int   // channels of a block
	lo, hi    []int // outputs along the last axis for which an element of the window's line lies inside
	panelSize int   // elements of one part's panel
	slots     int   // parts that have scratch memory
	task      vectorConvTask
}

// newVectorConv returns a kernel that computes s by vectors, nil if there are
// none for T.
func newVectorConv[T float](s convShape) Kernel {
	if _, ok := any(T(0)).(float32); !ok || path == pathGo {
		return nil
	}
	// Axes of one element go to the front, for the last one to be long.
	for range 2 {
		if s.in[2] == 1 && s.out[2] == 1 && s.kernel[2] == 1 {
			for _, axis := range []*[3]int{&s.in, &s.out, &s.kernel, &s.stride, &s.dilation, &s.pad} {
				*axis = [3]int{axis[2], axis[0], axis[1]}
			}
		}
	}
	c := &vectorConv{convShape: s, path: path, window: product3(s.kernel)}
	for k := range s.kernel[2] {
		lo, hi := c.inside(2, k)
		c.lo, c.hi = append(c.lo, lo), append(c.hi, hi)
	}
	c.depth = max(1, min(convDepth/max(1, c.window), s.channels))
	ones := [3]int{1, 1, 1}
	switch {
	case c.window == 1 && s.stride == ones && s.pad == [3]int{} && s.in == s.out:
		c.mode = convPoints
		c.depth = max(1, min(depthBlock, s.channels))
		c.copied = s.maps > packedRows
	case s.stride[2] == 1 && s.kernel[0] == 1 && s.in[0] == 1 && s.out[0] == 1 && c.tapsPay():
		c.mode = convTaps
	default:
		c.mode = convPanels
	}
	if c.mode == convPanels || c.copied {
		c.panelSize = c.depth * c.window * panel
	}
	most := max(1, mostScratch/max(1, c.partBytes()))
	c.slots = min(maxParts, runtime.GOMAXPROCS(0), most)
	return c
}

// tapsPay reports whether vectors that end with the output's rows cost less
// than to collect windows: per product, in quarters of cycles, a multiply-add
// for every unused element against a copy of some two and a half cycles for
// every stretch of 32.
func (c *vectorConv) tapsPay() bool {
	_, cols := c.path.tile()
	used, width := c.out[2], roundUp(c.out[2], cols/2)
	return 2*c.maps*(width-used) < 5*(used+32)
}

// partBytes returns the bytes of scratch memory of a part.
func (c *vectorConv) partBytes() int {
	return roundUp(4*c.panelSize, 64) + roundUp(c.window*int(unsafe.Sizeof(tap{})), 64)
}

// Scratch implements [Kernel].
func (c *vectorConv) Scratch() int { return c.slots * c.partBytes() }

// vectorConvTask is one run. The units of work are some rows or panels of some
// output channels of one image and group; parts take the next one until none
// is left.
type vectorConvTask struct {
	*vectorConv
	x, w, b, y      []float32
	scratch         []byte
	height          int // output channels of a unit
	mapBlocks       int
	rows, rowBlocks int // output rows of a unit, for convTaps
	strips          int // stretches of an output row, or panels
	units           int
	next            tickets
}

// Run implements [Kernel].
func (c *vectorConv) Run(p Pool, in, out [][]byte, scratch []byte) error {
	t := &c.task
	t.vectorConv = c
	t.x, t.w, t.b, t.y, t.scratch = f32s(in[0]), f32s(in[1]), f32s(memory(in, 2)), f32s(out[0]), scratch
	if len(t.y) > 0 {
		workers := workersFor(p, float64(len(t.y))/16*(float64(c.channels*c.window)/2+4))
		t.divide(workers)
		t.next.reset(t.units)
		p.Run(t, min(t.units, c.slots, workers))
	}
	t.x, t.w, t.b, t.y, t.scratch = nil, nil, nil, nil, nil
	return nil
}

// divide cuts the result into units, a few for every worker.
func (t *vectorConvTask) divide(workers int) {
	_, cols := t.path.tile()
	t.rows, t.rowBlocks = 1, 1
	if t.mode == convTaps {
		t.strips = (t.out[2] + cols - 1) / cols
		t.rows = t.out[1]
	} else {
		t.strips = (product3(t.out) + panel - 1) / panel
	}
	groups := t.batch * t.group * t.strips
	want := 4 * workers
	if t.mode == convTaps && workers > 1 && groups < want {
		t.rows = max(4, t.out[1]*groups/want)
	}
	if t.mode == convTaps {
		t.rowBlocks = (t.out[1] + t.rows - 1) / t.rows
	}
	groups *= t.rowBlocks
	t.height = t.maps
	if workers > 1 && groups < want {
		t.height = max(2*rowsAVX512, roundUp(t.maps*groups/want, rowsAVX512))
	}
	t.mapBlocks = (t.maps + t.height - 1) / t.height
	t.units = groups * t.mapBlocks
}

// Do implements [Task].
func (t *vectorConvTask) Do(part int) {
	scratch := t.scratch[part*t.partBytes():][:t.partBytes()]
	at := roundUp(4*t.panelSize, 64)
	buf, taps := f32s(scratch[:at]), view[tap](scratch[at:])[:t.window]
	for {
		unit, ok := t.next.draw(part)
		if !ok {
			return
		}
		first := unit % t.mapBlocks * t.height
		unit /= t.mapBlocks
		strip := unit % t.strips
		unit /= t.strips
		row := unit % t.rowBlocks * t.rows
		image := unit / t.rowBlocks // and group
		maps := min(t.height, t.maps-first)
		if t.mode == convTaps {
			t.strip(image, first, maps, strip, row, min(row+t.rows, t.out[1]), taps)
		} else {
			t.panel(image, first, maps, strip*panel, buf, taps)
		}
	}
}

// bias returns what the sums for an output channel and those after it are
// added to.
func (t *vectorConvTask) bias(image, first int) addend {
	if t.b == nil {
		return noAddend
	}
	return addend{data: t.b[image%t.group*t.maps+first:], row: 1, column: true}
}

// weights returns the rows of W from an output channel on.
func (t *vectorConvTask) weights(image, first int) matrix[float32] {
	depth := t.channels * t.window
	return matrix[float32]{t.w[(image%t.group*t.maps+first)*depth:], depth, 1}
}

// panel computes the output positions from pos on that make a panel.
func (t *vectorConvTask) panel(image, first, maps, pos int, buf []float32, taps []tap) {
	plane, positions := product3(t.in), product3(t.out)
	cols := min(panel, positions-pos)
	y := t.y[(image*t.maps+first)*positions+pos:]
	w, d := t.weights(image, first), t.bias(image, first)
	if t.channels*t.window*plane == 0 {
		fillRows(y, positions, maps, cols, d)
		return
	}
	for c := 0; c < t.channels; c += t.depth {
		channels := min(t.depth, t.channels-c)
		x := t.x[(image*t.channels+c)*plane:]
		b, ldb := x, plane
		switch {
		case t.mode == convPanels:
			t.gather(buf, x, channels, pos, cols, taps)
			b, ldb = buf, panel
		case t.copied:
			packF32(t.path, buf, matrix[float32]{x[pos:], plane, 1}, channels, cols)
			b, ldb = buf, panel
		default:
			b = x[pos:]
		}
		multiplyF32(t.path, y, positions, maps, cols, w.at(0, c*t.window), b, ldb, channels*t.window, 1, d, nil)
		d = addend{data: y, row: positions}
	}
}

// fillRows sets rows×cols elements of y to d, which is a column.
func fillRows(y []float32, ldy, rows, cols int, d addend) {
	for i := range rows {
		row, v := y[i*ldy:][:cols], d.data[i*d.row]
		for j := range row {
			row[j] = v
		}
	}
}

// gather collects the windows of the output positions [pos, pos+cols) as
// columns of a panel.
func (t *vectorConvTask) gather(dst, x []float32, channels, pos, cols int, taps []tap) {
	stride := t.stride[2]
	if stride > 2 {
		gatherWindows(&t.convShape, dst, x, channels, pos, cols)
		return
	}
	plane := product3(t.in)
	_, width := t.path.tile()
	args := gatherArgs{src: &x[0], groups: channels, step: 4 * plane, taps: &taps[0], nTaps: t.window}
	_, _ = x[channels*plane-1], dst[channels*t.window*panel-1]
	// The positions fall into stretches of one output row each.
	for lane := 0; lane < cols; {
		at := pos + lane
		ox := at % t.out[2]
		oy := at / t.out[2] % t.out[1]
		oz := at / (t.out[2] * t.out[1])
		n := min(cols-lane, t.out[2]-ox, width-lane%width)
		k := 0
		for kz := range t.kernel[0] {
			iz := oz*t.stride[0] - t.pad[0] + kz*t.dilation[0]
			for ky := range t.kernel[1] {
				iy := oy*t.stride[1] - t.pad[1] + ky*t.dilation[1]
				inside := iz >= 0 && iz < t.in[0] && iy >= 0 && iy < t.in[1]
				row := (iz*t.in[1]+iy)*t.in[2] + ox*stride - t.pad[2]
				for kx := range t.kernel[2] {
					p := &taps[k]
					k++
					if !inside {
						p.set(0, 0, t.path)
						continue
					}
					p.set(row+kx*t.dilation[2], laneBits(t.lo[kx]-ox, t.hi[kx]-ox, n), t.path)
				}
			}
		}
		args.dst, args.mask = &dst[lane], laneBits(0, n, n)
		t.path.gather(&args, stride)
		lane += n
	}
}

// set gives a tap the row of B that begins offset elements away, and its mask.
func (p *tap) set(offset int, mask uint32, path vectorPath) {
	p.offset = 4 * offset
	p.mask = mask
	if path == pathAVX2 {
		p.lanes.set(mask)
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

// strip computes a stretch of the output rows [from, to).
func (t *vectorConvTask) strip(image, first, maps, strip, from, to int, taps []tap) {
	most, cols := t.path.tile()
	ox := strip * cols
	n := min(cols, t.out[2]-ox)
	plane, positions := product3(t.in), product3(t.out)
	depth := t.channels * t.window
	bias := t.bias(image, first)
	y := t.y[(image*t.maps+first)*positions+ox:]
	if depth*plane == 0 {
		for oy := from; oy < to; oy++ {
			fillRows(y[oy*t.out[2]:], positions, maps, n, bias)
		}
		return
	}
	// A tap's offset counts from the input row under the window's first line
	// that lies inside.
	line := t.kernel[2]
	for ky := range t.kernel[1] {
		for kx := range line {
			taps[ky*line+kx].set(ky*t.dilation[1]*t.in[2]+ox-t.pad[2]+kx*t.dilation[2], laneBits(t.lo[kx]-ox, t.hi[kx]-ox, n), t.path)
		}
	}
	w := t.weights(image, first)
	args := gemmArgs{
		aRow: 4 * depth, aStep: 4, bStep: 4 * plane, cRow: 4 * positions, taps: &taps[0],
		alpha: 1, mask: laneBits(0, n, n),
	}
	args.lanes.set(args.mask)
	blocks := (maps + most - 1) / most
	// The assembly trusts these.
	_, _, _ = w.data[maps*depth-1], y[(maps-1)*positions+(to-1)*t.out[2]+n-1], t.x[(image+1)*t.channels*plane-1]
	_ = bias.data[(maps-1)*bias.row]
	for oy := from; oy < to; oy++ {
		k0, k1 := t.taps(1, oy)
		y := y[oy*t.out[2]:]
		if k0 >= k1 {
			fillRows(y, positions, maps, n, bias)
			continue
		}
		row := (oy*t.stride[1] - t.pad[1] + k0*t.dilation[1]) * t.in[2]
		args.nTaps = (k1 - k0) * line
		args.aSkip = 4 * (t.window - args.nTaps)
		for c := 0; c < t.channels; c += t.depth {
			args.k = min(t.depth, t.channels-c)
			args.b = &t.x[(image*t.channels+c)*plane+row]
			for i := range blocks {
				lo, hi := maps*i/blocks, maps*(i+1)/blocks
				args.rows = hi - lo
				args.a, args.c = &w.data[lo*depth+c*t.window+k0*line], &y[lo*positions]
				if c == 0 {
					args.d, args.dRow, args.column = &bias.data[lo*bias.row], 4*bias.row, true
				} else {
					args.d, args.dRow, args.column = args.c, args.cRow, false
				}
				t.path.multiplyTaps(&args)
			}
		}
	}
}
