package window

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// reflected mirrors x at the borders until it lies between them.
func reflected(x, lo, hi float64) float64 {
	if hi <= lo {
		return lo
	}
	for x < lo || x > hi {
		if x < lo {
			x = 2*lo - x
		} else {
			x = 2*hi - x
		}
	}
	return x
}

func TestGridSample(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &graph.GridSample{
			Mode:         rapid.SampledFrom(resizeModes).Draw(t, "mode"),
			Padding:      rapid.SampledFrom([]graph.SamplePadding{graph.SampleZeros, graph.SampleBorder, graph.SampleReflection}).Draw(t, "padding"),
			AlignCorners: rapid.Bool().Draw(t, "align"),
		}
		axes := rapid.IntRange(1, 3).Draw(t, "axes")
		n, c := rapid.Int64Range(0, 2).Draw(t, "batch"), rapid.Int64Range(1, 3).Draw(t, "channels")
		x := graph.TensorType{DType: rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type"), Shape: []int64{n, c}}
		grid := graph.TensorType{DType: rapid.SampledFrom([]graph.DType{graph.F32, graph.F64}).Draw(t, "grid"), Shape: []int64{n}}
		for range axes {
			x.Shape = append(x.Shape, rapid.Int64Range(1, 5).Draw(t, "size"))
			grid.Shape = append(grid.Shape, rapid.Int64Range(1, 4).Draw(t, "points"))
		}
		grid.Shape = append(grid.Shape, int64(axes))
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		data := [][]byte{src.Tensor(x), src.Tensor(grid)}
		out, got := run(t, o, []graph.TensorType{x, grid}, data)

		v, g := kerneltest.Values(x, data[0]), kerneltest.Values(grid, data[1])
		size := x.Shape[2:]
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			point := int(at[0])
			for i, p := range at[2:] {
				point = point*int(grid.Shape[1+i]) + int(p)
			}
			place := make([]float64, axes)
			for i := range place {
				p, d := g[point*axes+axes-1-i], float64(size[i])
				lo, hi := -0.5, d-0.5
				switch {
				case o.AlignCorners && grid.DType == graph.F32:
					p = float64((float32(p) + 1) / 2 * float32(d-1))
				case o.AlignCorners:
					p = (p + 1) / 2 * (d - 1)
				case grid.DType == graph.F32:
					p = float64((float32((float32(p)+1)*float32(d)) - 1) / 2)
				default:
					p = (float64((p+1)*d) - 1) / 2
				}
				if o.AlignCorners {
					lo, hi = 0, d-1
				}
				if o.Mode == graph.ResizeNearest {
					p = math.RoundToEven(p)
				}
				if p < lo || p > hi {
					switch {
					case o.Padding == graph.SampleBorder && o.Mode != graph.ResizeCubic:
						p = min(max(p, 0), d-1)
					case o.Padding == graph.SampleReflection:
						p = reflected(p, lo, hi)
					}
				}
				place[i] = p
			}
			// Sum over all elements near enough on every axis, beyond the
			// borders too.
			var sum func(axis, base int, weight float64)
			sum = func(axis, base int, weight float64) {
				if axis == axes {
					x := v[(int(at[0]*c+at[1]))*tensor.Elements(size)+base]
					want[flat].Value += weight * x
					want[flat].Size += math.Abs(weight*x) + math.Abs(x)/16 + 1e-3 // weights near 0 are rounded like those near 1
					return
				}
				d := float64(size[axis])
				for i := math.Floor(place[axis]) - 3; i <= place[axis]+3; i++ {
					dist := math.Abs(i - place[axis])
					w := 0.0
					switch {
					case o.Mode == graph.ResizeNearest && dist == 0:
						w = 1
					case o.Mode == graph.ResizeLinear:
						w = max(0, 1-dist)
					case o.Mode == graph.ResizeCubic:
						w = cubic(dist, -0.75)
					}
					from := i
					if i < 0 || i >= d {
						switch o.Padding {
						case graph.SampleZeros:
							continue
						case graph.SampleBorder:
							from = min(max(i, 0), d-1)
						case graph.SampleReflection:
							from = reflected(i, -0.5, d-0.5)
							if o.AlignCorners {
								from = reflected(i, 0, d-1)
							}
						}
					}
					if w != 0 {
						sum(axis+1, base*int(d)+int(from), weight*w)
					}
				}
			}
			sum(0, 0, 1)
		})
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}

// Places that are no numbers, or beyond all bounds, are outside.
func TestGridSampleOfWildPlaces(t *testing.T) {
	for _, mode := range resizeModes {
		for _, padding := range []graph.SamplePadding{graph.SampleZeros, graph.SampleBorder, graph.SampleReflection} {
			o := &graph.GridSample{Mode: mode, Padding: padding}
			x := graph.TensorType{DType: graph.F32, Shape: []int64{1, 1, 3}}
			grid := graph.TensorType{DType: graph.F32, Shape: []int64{1, 5, 1}}
			_, got := run(t, o, []graph.TensorType{x, grid}, [][]byte{
				kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 1}, {F: 1}, {F: 1}}),
				kerneltest.Store(graph.F32, []kerneltest.Elem{{F: math.NaN()}, {F: math.Inf(1)}, {F: math.Inf(-1)}, {F: 1e38}, {F: -1e38}}),
			})
			want := float32(1)
			if padding == graph.SampleZeros {
				want = 0
			}
			for _, v := range tensor.F32s(got[0]) {
				require.Equal(t, want, v, "%+v", o)
			}
		}
	}
}

func TestRoiAlign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &graph.RoiAlign{
			Mode:   rapid.SampledFrom([]graph.RoiMode{graph.RoiAverage, graph.RoiMax}).Draw(t, "mode"),
			Height: rapid.Int64Range(1, 3).Draw(t, "height"), Width: rapid.Int64Range(1, 3).Draw(t, "width"),
			SamplingRatio: rapid.Int64Range(0, 3).Draw(t, "ratio"), SpatialScale: rapid.SampledFrom([]float64{1, 0.5}).Draw(t, "scale"),
			HalfPixel: rapid.Bool().Draw(t, "half pixel"),
		}
		n, c, h, w, r := rapid.Int64Range(1, 2).Draw(t, "batch"), rapid.Int64Range(1, 3).Draw(t, "channels"),
			rapid.Int64Range(0, 6).Draw(t, "h"), rapid.Int64Range(1, 6).Draw(t, "w"), rapid.Int64Range(0, 3).Draw(t, "regions")
		x := graph.TensorType{DType: graph.F64, Shape: []int64{n, c, h, w}}
		in := []graph.TensorType{x, {DType: graph.F64, Shape: []int64{r, 4}}, {DType: rapid.SampledFrom([]graph.DType{graph.I32, graph.I64}).Draw(t, "index"), Shape: []int64{r}}}
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		rois, images := make([]kerneltest.Elem, 4*r), make([]kerneltest.Elem, r)
		for i := range rois {
			rois[i].F = math.Floor(src.R.Float64()*400-100) / 20
		}
		for i := range images {
			images[i].I = src.R.Int64N(n)
		}
		data := [][]byte{src.Tensor(x), kerneltest.Store(graph.F64, rois), kerneltest.Store(in[2].DType, images)}
		out, got := run(t, o, in, data)

		v := kerneltest.Values(x, data[0])
		want := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape))
		kerneltest.Coords(out[0].Shape, func(at []int64, flat int) {
			box := rois[4*at[0]:][:4]
			offset := 0.0
			if o.HalfPixel {
				offset = 0.5
			}
			axis := func(lo, hi float64, cells, cell int64) (places []float64) {
				lo, hi = lo*o.SpatialScale-offset, hi*o.SpatialScale-offset
				length := hi - lo
				if !o.HalfPixel {
					length = max(length, 1)
				}
				size := length / float64(cells)
				n := int(o.SamplingRatio)
				if n == 0 {
					n = int(math.Ceil(size))
				}
				for i := range n {
					places = append(places, lo+float64(cell)*size+(float64(i)+0.5)*size/float64(n))
				}
				return places
			}
			ys, xs := axis(box[1].F, box[3].F, o.Height, at[2]), axis(box[0].F, box[2].F, o.Width, at[3])
			sum, most := 0.0, math.Inf(-1)
			for _, py := range ys {
				for _, px := range xs {
					if h == 0 || py < -1 || py > float64(h) || px < -1 || px > float64(w) {
						most = max(most, 0)
						continue
					}
					cy, cx := min(max(py, 0), float64(h-1)), min(max(px, 0), float64(w-1))
					y0, x0 := math.Floor(cy), math.Floor(cx)
					for i := range 4 {
						row, col := min(y0+float64(i/2), float64(h-1)), min(x0+float64(i%2), float64(w-1))
						wy, wx := cy-y0, cx-x0
						if i/2 == 0 {
							wy = 1 - wy
						}
						if i%2 == 0 {
							wx = 1 - wx
						}
						s := wy * wx * v[((images[at[0]].I*c+at[1])*h+int64(row))*w+int64(col)]
						sum += s
						most = max(most, s)
					}
				}
			}
			want[flat] = kerneltest.Wanted{Value: sum / max(float64(len(ys)*len(xs)), 1), Size: 4}
			if o.Mode == graph.RoiMax {
				want[flat].Value = most
				if len(ys)*len(xs) == 0 {
					want[flat].Value = 0
				}
			}
		})
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}

func TestMaxRoiPool(t *testing.T) {
	o := &graph.MaxRoiPool{Height: 2, Width: 2, SpatialScale: 0.5}
	x := graph.TensorType{DType: graph.F32, Shape: []int64{2, 1, 3, 4}}
	rois := graph.TensorType{DType: graph.F32, Shape: []int64{3, 5}}
	var elems []kerneltest.Elem
	for i := range 24 {
		elems = append(elems, kerneltest.Elem{F: float64(i)})
	}
	box := func(v ...float64) (e []kerneltest.Elem) {
		for _, f := range v {
			e = append(e, kerneltest.Elem{F: f})
		}
		return e
	}
	boxes := append(append(box(0, 0, 0, 6, 4), box(1, 2, 2, 2, 2)...), box(0, 20, 20, 30, 30)...)
	_, got := run(t, o, []graph.TensorType{x, rois}, [][]byte{kerneltest.Store(graph.F32, elems), kerneltest.Store(graph.F32, boxes)})
	require.Equal(t, []float32{5, 7, 9, 11, 17, 17, 17, 17, 0, 0, 0, 0}, append([]float32(nil), tensor.F32s(got[0])...))
	require.Equal(t, []int64{5, 7, 9, 11, 17, 17, 17, 17, -1, -1, -1, -1}, append([]int64(nil), tensor.View[int64](got[1])...))

	// The first of maxima, the first that is no number.
	nan := math.NaN()
	for _, c := range []struct {
		x    []kerneltest.Elem
		want int64
	}{{box(1, 3, 3, 2, 3, 3), 1}, {box(1, 3, 3, 2, nan, nan), 4}, {box(9, 1, 9, 2, 2, 9), 4}} {
		x, rois := graph.TensorType{DType: graph.F32, Shape: []int64{1, 1, 2, 3}}, graph.TensorType{DType: graph.F32, Shape: []int64{1, 5}}
		region := box(0, 0, 0, 2, 1)
		if c.x[0].F == 9 { // the middle column
			region = box(0, 1, 0, 1, 1)
		}
		_, got := run(t, &graph.MaxRoiPool{Height: 1, Width: 1, SpatialScale: 1}, []graph.TensorType{x, rois}, [][]byte{kerneltest.Store(graph.F32, c.x), kerneltest.Store(graph.F32, region)})
		require.Equal(t, c.want, tensor.View[int64](got[1])[0], "%v", c.x)
	}
}

// Regions that are no regions end the run instead of taking forever.
func TestWildRegions(t *testing.T) {
	x := graph.TensorType{DType: graph.F32, Shape: []int64{2, 1, 3, 3}}
	try := func(op graph.Op, rois graph.TensorType, data []kerneltest.Elem, more ...graph.TensorType) error {
		in := append([]graph.TensorType{x, rois}, more...)
		out, err := op.Infer(in)
		require.NoError(t, err)
		k, err := newKernel(op, in, out)
		require.NoError(t, err)
		bytes := [][]byte{kerneltest.Aligned(72), kerneltest.Store(graph.F32, data)}
		for range more {
			bytes = append(bytes, kerneltest.Store(graph.I64, []kerneltest.Elem{{I: 2}}))
		}
		return k.Run(tensor.Serial{}, bytes, [][]byte{kerneltest.Aligned(4)}, nil)
	}
	align := &graph.RoiAlign{Mode: graph.RoiAverage, Height: 1, Width: 1, SpatialScale: 1}
	four, image := graph.TensorType{DType: graph.F32, Shape: []int64{1, 4}}, graph.TensorType{DType: graph.I64, Shape: []int64{1}}
	require.ErrorContains(t, try(align, four, make([]kerneltest.Elem, 4), image), "region 0 is in image 2, want 0 to 1")
	pool := &graph.MaxRoiPool{Height: 1, Width: 1, SpatialScale: 1}
	five := graph.TensorType{DType: graph.F32, Shape: []int64{1, 5}}
	require.ErrorContains(t, try(pool, five, []kerneltest.Elem{{F: math.NaN()}, {}, {}, {}, {}}), "region 0 is in image NaN")
	require.ErrorContains(t, try(pool, five, []kerneltest.Elem{{}, {F: math.Inf(1)}, {}, {}, {}}), "region 0 is [+Inf 0 0 0]")

	in := []graph.TensorType{x, four, image}
	k, err := newKernel(align, in, []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 1, 1, 1}}})
	require.NoError(t, err)
	run := func(box ...float64) ([]float32, error) {
		y := kerneltest.Aligned(4)
		err := k.Run(tensor.Serial{}, [][]byte{kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 9}, {F: 9}, {F: 9}, {F: 9}, {F: 9}, {F: 9}, {F: 9}, {F: 9}, {F: 9}, {}, {}, {}, {}, {}, {}, {}, {}, {}}),
			kerneltest.Store(graph.F32, []kerneltest.Elem{{F: box[0]}, {F: box[1]}, {F: box[2]}, {F: box[3]}}), kerneltest.Store(graph.I64, []kerneltest.Elem{{}})}, [][]byte{y}, nil)
		return tensor.F32s(y), err
	}
	_, err = run(0, math.NaN(), 1, 1)
	require.ErrorContains(t, err, "want numbers below 2^40")
	y, err := run(-1e11, -1e11, 1e11, 1e11) // 4·10²² samples, of which a few are inside
	require.NoError(t, err)
	require.InDelta(t, 0, y[0], 1e-12)
}
