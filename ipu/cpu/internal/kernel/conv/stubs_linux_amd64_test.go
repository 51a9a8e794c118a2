package conv

import (
	"fmt"
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// TestStubs runs every tile by itself, with every remainder, between pages that
// may not be touched.
func TestStubs(t *testing.T) {
	s := kerneltest.NewStubs(t)
	s.Each(func(set kerneltest.Set) {
		stubsMaps(s, set)
		stubsStore(s, set)
		stubsPixels(s, set)
		stubsPlane(s, set)
		stubsDepthwise(s, set)
	})
	s.Finish()
}

// pathOf is the path of an instruction set.
func pathOf(set kerneltest.Set) tensor.VectorPath {
	if set.Wide() {
		return tensor.PathAVX512
	}
	return tensor.PathAVX2
}

// blockEnds are numbers of products: less than a block of sums, one and more.
var blockEnds = []int{1, 2, 5, convBlock, convBlock + 1, 2*convBlock + 3}

// drawOffsets returns where the elements of k products are, in bytes, up to
// span elements on.
func drawOffsets(m *kerneltest.Guarded, k, span int) []int32 {
	offsets := make([]int32, k)
	for i := range offsets {
		offsets[i] = 4 * int32(m.IntN(span+1))
	}
	offsets[m.IntN(k)] = 4 * int32(span)
	return kerneltest.At(m, offsets)
}

const span = 9

func stubsMaps(s *kerneltest.Stubs, set kerneltest.Set) {
	call := convMapsAVX2
	if set.Wide() {
		call = convMapsAVX512
	}
	most, _, _ := ConvLimits(pathOf(set))
	for vectors := 1; vectors <= 2; vectors++ {
		for rows := 1; rows <= most; rows++ {
			for halves := 1; halves <= 2; halves++ {
				if rows%halves != 0 {
					continue
				}
				cols := vectors * set.Lanes
				function := fmt.Sprintf("convMaps_%dx%d%s", rows, cols, set.Tile)
				if halves == 2 {
					function = fmt.Sprintf("convMaps_2x%dx%d%s", rows/2, cols, set.Tile)
				}
				for _, k := range blockEnds {
					s.Run(function, func(m *kerneltest.Guarded) {
						x, offsets, w := [2][]float32{m.Whole(span + rows/halves), m.Whole(span + rows/halves)}, drawOffsets(m, k, span), m.Whole(k*cols)
						tile, want := m.Unset(rows * cols)
						for r := range rows {
							for c := range cols {
								v := float32(0)
								for i := range k {
									v += x[r*halves/rows][r%(rows/halves)+int(offsets[i]/4)] * w[i*cols+c]
								}
								want[r*cols+c] = v
							}
						}
						args := convArgs{x: &x[0][0], w: &w[0], offsets: &offsets[0], k: k, tile: &tile[0], rows: rows, vectors: vectors, y: &tile[0]}
						if halves == 2 {
							args.x2, args.split = &x[1][0], rows/2
						}
						call(&args)
						kerneltest.Same(m, fmt.Sprintf("%s of %d products", function, k), tile, want)
					})
				}
			}
		}
	}
}

func stubsStore(s *kerneltest.Stubs, set kerneltest.Set) {
	call := convStoreAVX2
	if set.Wide() {
		call = convStoreAVX512
	}
	function := "convStore" + set.Name
	for vectors := 1; vectors <= 2; vectors++ {
		for channels := 1; channels <= vectors*set.Lanes; channels++ {
			for pixels := 1; pixels <= set.Lanes; pixels++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					tile, bias := m.Whole(set.Lanes*set.Lanes*vectors), m.Whole(channels)
					yRow := pixels + m.IntN(2)
					y, want := m.Unset((channels-1)*yRow + pixels)
					for c := range channels {
						for p := range pixels {
							want[c*yRow+p] = min(max(tile[p*set.Lanes*vectors+c]+bias[c], -3), 5)
						}
					}
					args := convArgs{tile: &tile[0], rows: channels, vectors: vectors, y: &y[0], yRow: 4 * yRow, bias: &bias[0], low: -3, high: 5}
					args.setMask(pathOf(set), pixels)
					call(&args)
					kerneltest.Same(m, fmt.Sprintf("%s of %d channels, %d pixels", function, channels, pixels), y, want)
				})
			}
		}
	}
}

func stubsPixels(s *kerneltest.Stubs, set kerneltest.Set) {
	call := convPixelsAVX2
	if set.Wide() {
		call = convPixelsAVX512
	}
	_, most, few := ConvLimits(pathOf(set))
	for _, vectors := range []int{1, 2, 4} {
		if vectors == 4 {
			most = few
		}
		for rows := 1; rows <= most; rows++ {
			cols := vectors * set.Lanes
			function := fmt.Sprintf("convPixels_%dx%d%s", rows, cols, set.Tile)
			run := func(k, pixels int) {
				s.Run(function, func(m *kerneltest.Guarded) {
					x, offsets, w, bias := m.Whole(span+cols), drawOffsets(m, k, span), m.Whole(k*rows), m.Whole(rows)
					yRow := pixels + m.IntN(2)
					y, want := m.Unset((rows-1)*yRow + pixels)
					tile, _ := m.Unset(rows * cols)
					for r := range rows {
						for p := range pixels {
							v := float32(0)
							for i := range k {
								v += w[i*rows+r] * x[p+int(offsets[i]/4)]
							}
							want[r*yRow+p] = min(max(v+bias[r], -30), 50)
						}
					}
					args := convArgs{x: &x[0], w: &w[0], offsets: &offsets[0], k: k, tile: &tile[0], rows: rows, vectors: vectors, y: &y[0], yRow: 4 * yRow, bias: &bias[0], low: -30, high: 50}
					args.setMask(pathOf(set), pixels)
					call(&args)
					kerneltest.Same(m, fmt.Sprintf("%s of %d products, %d pixels", function, k, pixels), y, want)
				})
			}
			for _, k := range blockEnds {
				run(k, cols)
			}
			for pixels := 1; pixels < cols; pixels++ {
				run(1+pixels%5, pixels)
			}
		}
	}
}

func stubsPlane(s *kerneltest.Stubs, set kerneltest.Set) {
	call := convPlaneAVX2
	if set.Wide() {
		call = convPlaneAVX512
	}
	for _, vectors := range []int{1, 2, 4} {
		if vectors == 4 && !set.Wide() {
			continue
		}
		cols := vectors * set.Lanes
		function := fmt.Sprintf("convPlane_%d%s", cols, set.Tile)
		for pixels := 1; pixels <= cols; pixels++ {
			for k := 1; k <= 11; k++ {
				s.Run(function, func(m *kerneltest.Guarded) {
					x, offsets, w, bias := m.Whole(span+cols), drawOffsets(m, k, span), m.Whole(k), m.Whole(1)
					y, want := m.Unset(pixels)
					for p := range want {
						v := float32(0)
						for i := range k {
							v += w[i] * x[p+int(offsets[i]/4)]
						}
						want[p] = min(max(v+bias[0], -20), 30)
					}
					args := convArgs{x: &x[0], w: &w[0], offsets: &offsets[0], k: k, vectors: vectors, y: &y[0], bias: &bias[0], low: -20, high: 30}
					args.setMask(pathOf(set), pixels)
					call(&args)
					kerneltest.Same(m, fmt.Sprintf("%s of %d products, %d pixels", function, k, pixels), y, want)
				})
			}
		}
	}
}

// stubsDepthwise runs strips over planes that are as wide as the strip's result
// asks for, with columns and rows outside on all sides.
func stubsDepthwise(s *kerneltest.Stubs, set kerneltest.Set) {
	for _, size := range []int{3, 5} {
		for stride := 1; stride <= 2; stride++ {
			for vectors := 1; vectors <= depthwiseVectors(pathOf(set), size, stride); vectors++ {
				function := fmt.Sprintf("depthwise%d%s_%d%s", size, [...]string{"", "Even"}[stride-1], vectors*set.Lanes, set.Tile)
				for out := (vectors-1)*set.Lanes + 1; out <= vectors*set.Lanes; out++ {
					for pad := range size {
						// The window of the last column ends inside, or as far outside as that of the first begins.
						for end := range min(pad, size-1) + 1 {
							s.Run(function, func(m *kerneltest.Guarded) {
								in := (out-1)*stride + size - pad - end
								if in < 1 {
									return
								}
								rows := 1 + m.IntN(2*size)
								height := (rows-1)*stride + size - pad - end
								if height < 1 {
									return
								}
								shape := ConvShape{Kernel: [3]int{1, size, size}, Stride: [3]int{1, stride, stride}, Pad: [3]int{0, pad, pad}, In: [3]int{1, height, in}, Out: [3]int{1, rows, out}}
								d := depthwise{ConvShape: shape, path: pathOf(set), zeros: make([]float32, in+2*beyond)}
								x, w := m.Whole(height*in), m.Whole(size*size)
								y, want := m.Unset(rows * out)
								for i := range rows {
									for j := range out {
										v := float32(0)
										for p := range size {
											for q := range size {
												if r, c := i*stride+p-pad, j*stride+q-pad; r >= 0 && r < height && c >= 0 && c < in {
													v += w[p*size+q] * x[r*in+c]
												}
											}
										}
										want[i*out+j] = min(max(v+3, -20), 30)
									}
								}
								args := d.strip(0, vectors, set.Lanes).args
								args.x, args.w, args.y, args.row = &x[0], &w[0], &y[0], -pad
								args.bias, args.low, args.high = 3, -20, 30
								runDepthwise(d.path, &args, size == 3, stride == 1)
								kerneltest.Same(m, fmt.Sprintf("%s of %d columns, %d outside", function, out, pad), y, want)
							})
						}
					}
				}
			}
		}
	}
}
