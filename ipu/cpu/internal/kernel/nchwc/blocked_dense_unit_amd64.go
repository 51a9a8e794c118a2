package nchwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// blockedUnit is a unit of work, with a part's memory.
type blockedUnit struct {
	*blockedDenseTask
	band       int // the number of the one that stands in copied
	image      int // and group
	oy, ox     int // the first pixel
	rows, cols int
	x          []float32 // what is read
	copied     []float32
	coming     []float32 // of the image, from what the next band begins with in the first line of channels
	more       int       // elements of a line from there on that the next band copies; 0 if there are none
	args       blockedArgs
}

// read makes what a band needs of the image readable.
func (u *blockedUnit) read(band int) {
	if band == u.band {
		return
	}
	u.band = band
	t := u.blockedDenseTask
	u.ox = band % t.strips * t.width
	band /= t.strips
	u.oy = band % t.bands * t.rows
	u.image = band / t.bands
	u.cols, u.rows = min(t.width, t.Out[2]-u.ox), min(t.rows, t.Out[1]-u.oy)
	plane := t.In[1] * t.In[2] * t.part
	image := t.x[u.image*t.lines*t.xPlane:][:(t.lines-1)*t.xPlane+plane]
	top, left := u.oy*t.Stride[1]-t.Pad[1], u.ox*t.Stride[2]-t.Pad[2]
	if t.direct {
		u.x = image[top*u.rowPitch+left*t.part:]
		return
	}
	u.expect(image, top)
	u.x = u.copied[:t.lines*t.linePitch]
	rows, columns := u.rowsIn(u.rows), u.columnsIn(u.cols)
	lo, hi := max(0, min(-left, columns)), max(0, min(t.In[2]-left, columns))
	hi = max(lo, hi)
	for line := range t.lines {
		from, to := image[line*t.xPlane:][:plane], u.x[line*t.linePitch:]
		for row := range rows {
			dst := to[row*t.rowPitch:][:columns*t.part]
			if at := top + row; at < 0 || at >= t.In[1] || lo == hi {
				clear(dst)
			} else {
				clear(dst[:lo*t.part])
				copy(dst[lo*t.part:hi*t.part], from[(at*t.In[2]+left+lo)*t.part:])
				clear(dst[hi*t.part:])
			}
		}
	}
}

// expect notes which rows of an image this part copies next, below the band that
// starts in row top, if it is not the last.
func (u *blockedUnit) expect(image []float32, top int) {
	t := u.blockedDenseTask
	down := t.workers * t.rows * t.Stride[1]
	lo, hi := max(0, top+u.rowsIn(u.rows), top+down), min(top+down+u.rowsIn(t.rows), t.In[1])
	u.more = 0
	if lo < hi && t.strips == 1 && t.heights == 1 {
		pitch := t.In[2] * t.part
		u.coming, u.more = image[lo*pitch:], (hi-lo)*pitch
	}
}

// fetchAhead lets a call of the inner loop that computes so many tiles prefetch what
// the next band copies: its share, if it is number call of so many.
func (u *blockedUnit) fetchAhead(call, calls, tiles int) {
	t := u.blockedDenseTask
	a := &u.args
	all := t.lines * u.more
	if calls < t.lines || all == 0 {
		return
	}
	at := all / calls * call
	plane := t.In[1] * t.In[2] * t.part
	a.ahead, a.fetched = &u.coming[at/u.more*plane+at%u.more], 0
	a.pace = tensor.RoundUp(4*all/calls/max(1, tiles*(t.depth/4)), 4)
}

// compute computes a block of output channels.
func (u *blockedUnit) compute(block int) {
	t := u.blockedDenseTask
	first := block * 2 * t.lanes
	maps := min(2*t.lanes, t.Maps-first)
	a := &u.args
	a.vectors = (maps + t.lanes - 1) / t.lanes
	g := u.image % t.Group
	w := t.w[(g*t.packedMaps()+first)*t.depth:]
	size := 4 * a.vectors * t.lanes * t.depth
	a.w, a.bias = &w[0], &t.b[g*t.Maps+first]
	a.ahead, a.pace, a.fetched = a.w, 0, 0
	large := 4*t.Maps*t.depth > blockedWeightBytes/2
	if next := (first + 2*t.lanes) * t.depth; large && block+1 < t.blocks {
		a.ahead = &t.w[g*t.packedMaps()*t.depth+next]
		tiles := (u.rows*u.cols + t.tall - 1) / t.tall
		a.pace = tensor.RoundUp(size/max(1, tiles*(t.depth/4)), 64)
	}
	plane := t.Out[1] * t.Out[2] * t.lanes
	blocksOf := (t.Maps + t.lanes - 1) / t.lanes
	at := (u.image*blocksOf+2*block)*plane + (u.oy*t.Out[2]+u.ox)*t.lanes
	pixel := t.part * t.Stride[2]
	if t.Out[1] == 1 {
		tiles := (u.cols + t.tall - 1) / t.tall
		n, more := u.cols/tiles, u.cols%tiles
		u.tiles(0, at, n+1, more, (n+1)*pixel, (n+1)*t.lanes)
		u.tiles(more*(n+1)*pixel, at+more*(n+1)*t.lanes, n, tiles-more, n*pixel, n*t.lanes)
		return
	}
	down, downY := t.Stride[1]*t.rowPitch, t.Out[2]*t.lanes
	rows, from := u.rows, 0
	if t.leastRows() == 2 {
		a.split = down
		u.tiles(0, at, 2*u.cols, rows/2, 2*down, 2*downY)
		a.split = 0
		from = rows &^ 1
	}
	if from < rows {
		tiles := (u.cols + t.tall - 1) / t.tall
		for i := range tiles {
			lo, hi := u.cols*i/tiles, u.cols*(i+1)/tiles
			if !large {
				u.fetchAhead(block*tiles+i, t.blocks*tiles, rows-from)
			}
			u.tiles(from*down+lo*pixel, at+from*downY+lo*t.lanes, hi-lo, rows-from, down, downY)
		}
	}
}

// tiles computes a number of tiles of so many pixels; x and y are where the
// first one begins, tileX and tileY the elements from tile to tile. Where
// args.split is not 0 it is where the second half of a tile's pixels begins.
func (u *blockedUnit) tiles(x, y, pixels, tiles, tileX, tileY int) {
	if tiles == 0 {
		return
	}
	a := &u.args
	a.rows, a.tiles, a.tileX, a.tileY = pixels, tiles, 4*tileX, 4*tileY
	a.x, a.y = &u.x[x], &u.y[y]
	a.x2 = a.x
	if a.split != 0 {
		a.x2 = &u.x[x+a.split]
	}
	a.r, a.done = nil, 0
	if u.r != nil {
		a.r = &u.r[y]
	}
	runBlockedTiles(u.path, a)
}
