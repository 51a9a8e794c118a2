package nchwc

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/num"
)

// TestStubs runs every tile by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		stubsTiles(s, set)
		stubsDepthwise(s, set)
		stubsMoves(s, set)
		stubsPool(s, set)
	})
	s.Finish()
}

// rounded is v in half precision.
func rounded(v float32) float32 { return num.Float16From64(float64(v)).Float32() }

// ending is what becomes of sums in NCHWc.
type ending struct {
	half, added bool
	bounds      int // 0: none, 1: both, 2: the lower one
	bias, r     []float32
	low, high   float32
}

// newEnding draws what becomes of a result of so many numbers.
func newEnding(m *kerneltest.Guarded, channels, results int) *ending {
	e := &ending{half: m.IntN(2) == 0, added: m.IntN(2) == 0, bounds: m.IntN(2), low: -9, high: 11, bias: m.Whole(channels), r: m.Whole(results)}
	for i := range e.bias {
		e.bias[i] += 1. / 4096 // for something to be rounded
	}
	return e
}

// of is the result of a sum.
func (e *ending) of(sum float32, c, at int) float32 {
	round := func(v float32) float32 { return v }
	if e.half {
		round = rounded
	}
	sum = round(sum + e.bias[c])
	if e.added {
		sum = round(sum + e.r[at])
	}
	if e.bounds > 0 {
		sum = max(sum, e.low)
	}
	if e.bounds == 1 {
		sum = min(sum, e.high)
	}
	return sum
}

// set sets arguments.
func (e *ending) set(bias, r **float32, half, bounded *int, low, high *float32) {
	*bias, *bounded, *low, *high = &e.bias[0], e.bounds, e.low, e.high
	if e.added {
		*r = &e.r[0]
	}
	if e.half {
		*half = 1
	}
}

func stubsTiles(s *kerneltest.Stubs, set kerneltest.Set) {
	call, most := blockedTilesAVX2, 6
	if set.Wide() {
		call, most = blockedTilesAVX512, 14
	}
	const span = 9
	for vectors := 1; vectors <= 2; vectors++ {
		for rows := 1; rows <= most; rows++ {
			for halves := 1; halves <= 2; halves++ {
				if rows%halves != 0 {
					continue
				}
				cols := vectors * set.Lanes
				function := fmt.Sprintf("blockedTiles_%dx%d%s", rows, cols, set.Tile)
				if halves == 2 {
					function = fmt.Sprintf("blockedTiles_2x%dx%d%s", rows/2, cols, set.Tile)
				}
				// Every remainder of four products, and of blocks of 128.
				for _, k := range []int{1, 2, 3, 4, 5, 11, 128, 129, 128 + 5, 2*128 + 3} {
					s.Run(function, func(m *kerneltest.Guarded) {
						tiles, step := 1+m.IntN(3), 1+m.IntN(3)
						tileX := rows/halves*step + m.IntN(2)
						last := (tiles-1)*tileX + (rows/halves-1)*step + span
						x := [2][]float32{m.Whole(last + 1), m.Whole(last + 1)}
						offsets, w := make([]int32, k), m.Whole(k*cols)
						for i := range offsets {
							offsets[i] = 4 * int32(m.IntN(span+1))
						}
						offsets[m.IntN(k)] = 4 * span
						offsets = kerneltest.At(m, offsets)
						sums, _ := m.Unset(rows * cols)
						tileY := rows*set.Lanes + m.IntN(3)
						block := tiles*tileY + m.IntN(3)
						size := (vectors-1)*block + (tiles-1)*tileY + rows*set.Lanes
						y, want := m.Unset(size)
						e := newEnding(m, cols, size)
						for t := range tiles {
							for p := range rows {
								from := x[p*halves/rows][t*tileX+p%(rows/halves)*step:]
								for c := range cols {
									v := float32(0)
									for i := range k {
										v += from[offsets[i]/4] * w[i*cols+c]
									}
									at := t*tileY + c/set.Lanes*block + p*set.Lanes + c%set.Lanes
									want[at] = e.of(v, c, at)
								}
							}
						}
						args := blockedArgs{
							x: &x[0][0], step: 4 * step, tileX: 4 * tileX, w: &w[0], offsets: &offsets[0], k: k, ahead: &w[0], pace: 64, sums: &sums[0],
							rows: rows, vectors: vectors, tiles: tiles, y: &y[0], tileY: 4 * tileY, block: 4 * block,
						}
						if halves == 2 {
							args.x2, args.split = &x[1][0], rows/2
						}
						e.set(&args.bias, &args.r, &args.half, &args.bounded, &args.low, &args.high)
						call(&args)
						kerneltest.Same(m, fmt.Sprintf("%s of %d products, %d tiles", function, k, tiles), y, want)
					})
				}
			}
		}
	}
}

// stubsDepthwise runs rows of all widths, with windows that reach beyond none, one
// or both ends of a row, and planes with rows outside.
func stubsDepthwise(s *kerneltest.Stubs, set kerneltest.Set) {
	calls := []func(*blockedDepthwiseArgs){blockedDepthwise3AVX2, blockedDepthwise3EvenAVX2, blockedDepthwise5AVX2, blockedDepthwise5EvenAVX2}
	if set.Wide() {
		calls = []func(*blockedDepthwiseArgs){blockedDepthwise3AVX512, blockedDepthwise3EvenAVX512, blockedDepthwise5AVX512, blockedDepthwise5EvenAVX512}
	}
	lanes := set.Lanes
	for i, call := range calls {
		size, stride := 3+i/2*2, 1+i%2
		function := fmt.Sprintf("blockedDepthwise%d%s%s", size, [...]string{"", "Even"}[i%2], set.Name)
		for inside := range 2*4 + 3 { // pixels that are computed four at a time
			for before := range 3 {
				for after := range 3 {
					out := before + inside + after
					if out == 0 {
						continue
					}
					s.Run(function, func(m *kerneltest.Guarded) {
						// The window of the first pixel begins at column, that of the last ends at width or
						// beyond.
						column := 0
						if before > 0 {
							column = -(before-1)*stride - 1
						}
						width := column + (out-after-1)*stride + size
						if inside == 0 {
							width = max(1, column+size)
						}
						width = max(width, 1)
						rows, row := 1+m.IntN(3), -m.IntN(size)
						height := 1 + m.IntN(rows*stride+size)
						x, w := m.Whole(height*width*lanes), m.Whole(size*size*lanes)
						y, want := m.Unset(rows * out * lanes)
						e := newEnding(m, lanes, len(y))
						if e.bounds == 1 && m.IntN(2) == 0 {
							e.bounds = 2
						}
						zeros := kerneltest.At(m, make([]float32, width*lanes))
						for i := range rows {
							for j := range out {
								for c := range lanes {
									v := float32(0)
									for p := range size {
										for q := range size {
											if r, k := row+i*stride+p, column+j*stride+q; r >= 0 && r < height && k >= 0 && k < width {
												v += w[(p*size+q)*lanes+c] * x[(r*width+k)*lanes+c]
											}
										}
									}
									at := (i*out+j)*lanes + c
									want[at] = e.of(v, c, at)
								}
							}
						}
						args := blockedDepthwiseArgs{
							x: &x[0], zeros: &zeros[0], w: &w[0], y: &y[0], row: row, height: height, width: width, xRow: 4 * width * lanes,
							rows: rows, column: column, before: before, inside: inside, after: after,
						}
						e.set(&args.bias, &args.r, &args.half, &args.bounded, &args.low, &args.high)
						call(&args)
						kerneltest.Same(m, fmt.Sprintf("%s of %d+%d+%d pixels", function, before, inside, after), y, want)
					})
				}
			}
		}
	}
}

func stubsMoves(s *kerneltest.Stubs, set kerneltest.Set) {
	calls := []func(*blockMoveArgs){planesToBlocksAVX2, planesToBlocksHalfAVX2, blocksToPlanesAVX2, blocksToPlanesHalfAVX2}
	if set.Wide() {
		calls = []func(*blockMoveArgs){planesToBlocksAVX512, planesToBlocksHalfAVX512, blocksToPlanesAVX512, blocksToPlanesHalfAVX512}
	}
	lanes := set.Lanes
	for i, call := range calls {
		back, half := i/2 == 1, i%2 == 1
		function := [...]string{"planesToBlocks", "blocksToPlanes"}[i/2] + [...]string{"", "Half"}[i%2] + set.Name
		for channels := 1; channels <= lanes; channels++ {
			for chunks := 1; chunks <= 3; chunks++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					pixels := chunks * lanes
					pitch := pixels + m.IntN(3)
					n := (channels-1)*pitch + pixels
					what := fmt.Sprintf("%s of %d channels, %d pixels", function, channels, pixels)
					args := blockMoveArgs{pitch: 4 * pitch, chunks: chunks, channels: channels}
					if half {
						args.pitch = 2 * pitch
					}
					if back {
						blocked := m.Whole(pixels * lanes)
						for i := range blocked {
							blocked[i] += 1. / 4096
						}
						args.blocked = &blocked[0]
						halves := kerneltest.At(m, make([]num.Float16, n))
						planar, want := m.Unset(n)
						args.planar = unsafe.Pointer(&planar[0])
						if half {
							args.planar = unsafe.Pointer(&halves[0])
							clear(want)
						}
						for c := range channels {
							for p := range pixels {
								want[c*pitch+p] = blocked[lanes*p+c]
								if half {
									want[c*pitch+p] = rounded(want[c*pitch+p])
								}
							}
						}
						call(&args)
						if half {
							for i, v := range halves {
								planar[i] = v.Float32()
							}
						}
						kerneltest.Same(m, what, planar, want)
						return
					}
					planar := m.Whole(n)
					halves := make([]num.Float16, n)
					for i, v := range planar {
						halves[i] = num.Float16From64(float64(v))
					}
					halves = kerneltest.At(m, halves)
					blocked, want := m.Unset(pixels * lanes)
					for c := range lanes {
						for p := range pixels {
							want[lanes*p+c] = planar[min(c, channels-1)*pitch+p]
						}
					}
					args.planar, args.blocked = unsafe.Pointer(&planar[0]), &blocked[0]
					if half {
						args.planar = unsafe.Pointer(&halves[0])
					}
					call(&args)
					kerneltest.Same(m, what, blocked, want)
				})
			}
		}
	}
}

func stubsPool(s *kerneltest.Stubs, set kerneltest.Set) {
	calls := []func(dst, x *float32, pixels, taps, stride, step int){sumPixelsAVX2, mostPixelsAVX2}
	if set.Wide() {
		calls = []func(dst, x *float32, pixels, taps, stride, step int){sumPixelsAVX512, mostPixelsAVX512}
	}
	lanes := set.Lanes
	for i, call := range calls {
		function := [...]string{"sumPixels", "mostPixels"}[i] + set.Name
		for pixels := 1; pixels <= 4; pixels++ {
			for taps := 1; taps <= 4; taps++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					stride, step := 1+m.IntN(2), 1+m.IntN(2)
					x := m.Whole(((pixels-1)*step + (taps-1)*stride + 1) * lanes)
					if i == 1 {
						x[m.IntN(len(x))] = float32(math.NaN())
					}
					dst, want := m.Unset(pixels * lanes)
					for p := range pixels {
						for c := range lanes {
							v := x[p*step*lanes+c]
							for t := 1; t < taps; t++ {
								next := x[(p*step+t*stride)*lanes+c]
								if i == 1 {
									v = max(v, next)
								} else {
									v += next
								}
							}
							want[p*lanes+c] = v
						}
					}
					call(&dst[0], &x[0], pixels, taps, 4*stride*lanes, 4*step*lanes)
					kerneltest.Same(m, fmt.Sprintf("%s of %d pixels, %d taps", function, pixels, taps), dst, want)
				})
			}
		}
	}
}
