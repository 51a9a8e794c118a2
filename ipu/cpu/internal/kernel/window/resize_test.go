package window

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// placeReference returns where element j of the result lies on an axis of n
// elements, as ONNX's text defines it, in the precision of T: for places half-way
// between two elements it decides, and ONNX Runtime computes in float32.
func placeReference[T tensor.Float](o *graph.Resize, axis, n, j int) (place T, inside bool) {
	size, s := T(n), T(o.Scales[axis])
	length, at := T(o.Sizes[axis]), T(j)
	switch o.Coordinates {
	case graph.HalfPixel:
		return (at+0.5)/s - 0.5, true
	case graph.HalfPixelSymmetric:
		return T(size/2*(1-length/T(size*s))) + (at+0.5)/s - 0.5, true
	case graph.PytorchHalfPixel:
		if length != 1 {
			place = (at+0.5)/s - 0.5
		}
	case graph.AlignCorners:
		if length != 1 {
			place = T(at*(size-1)) / (length - 1)
		}
	case graph.Asymmetric:
		return at / s, true
	case graph.HalfPixelForNearest:
		return (at + 0.5) / s, true
	case graph.CropAndResize:
		start, end := T(o.RoiStart[axis]), T(o.RoiEnd[axis])
		if length == 1 {
			place = T(start*(size-1)) + T((end-start)*(size-1))/2
		} else {
			place = T(start*(size-1)) + T(T(at*(end-start))*(size-1))/(length-1)
		}
		return place, place >= 0 && place <= size-1
	}
	return place, true
}

// resizeReference computes element j of one axis of x, as ONNX's text defines
// it for one axis after the other, with the result's whole length.
func resizeReference(o *graph.Resize, axis int, x []float64, j int) float64 {
	n, s := float64(len(x)), o.Scales[axis]
	place, inside := placeReference[float64](o, axis, len(x), j)
	if o.Mode == graph.ResizeNearest {
		var rounded float32
		rounded, inside = placeReference[float32](o, axis, len(x), j)
		place = float64(rounded)
	}
	if !inside {
		return math.NaN() // marks what is to be extrapolated
	}
	place = min(max(place, -1), n)
	pixel := func(i float64) float64 { return x[int(min(max(i, 0), n-1))] }
	floor := math.Floor(place)
	if o.Mode == graph.ResizeNearest {
		up, tie := place-floor, 1e-6 // places in float32 miss the half by less
		switch o.Rounding {
		case graph.RoundPreferFloor:
			return pixel(math.Ceil(place - 0.5 - tie))
		case graph.RoundPreferCeil:
			return pixel(math.Floor(place + 0.5 + tie))
		case graph.RoundSimple:
			if s >= 1 {
				up = 0
			}
		case graph.RoundFloor:
			up = 0
		}
		if up > 0 {
			floor++
		}
		return pixel(floor)
	}
	width, scale := 1.0, 1.0
	if o.Mode == graph.ResizeCubic {
		width = 2
	}
	if o.Antialias {
		scale = min(s, 1)
	}
	sum, weights := 0.0, 0.0
	for i := floor - math.Ceil(width/scale) - 1; i <= floor+math.Ceil(width/scale)+1; i++ {
		d := math.Abs(i-place) * scale
		w := max(0, 1-d)
		if o.Mode == graph.ResizeCubic {
			a := o.CubicA
			switch {
			case d <= 1:
				w = (a+2)*d*d*d - (a+3)*d*d + 1
			case d < 2:
				w = a*d*d*d - 5*a*d*d + 8*a*d - 4*a
			default:
				w = 0
			}
		}
		if o.ExcludeOutside && (i < 0 || i >= n) {
			continue
		}
		sum += w * pixel(i)
		weights += w
	}
	if o.Antialias || o.ExcludeOutside {
		sum /= weights
	}
	return sum
}

var (
	resizeModes     = []graph.ResizeMode{graph.ResizeNearest, graph.ResizeLinear, graph.ResizeCubic}
	transformations = []graph.Coordinates{graph.HalfPixel, graph.HalfPixelSymmetric, graph.PytorchHalfPixel, graph.AlignCorners,
		graph.Asymmetric, graph.HalfPixelForNearest, graph.CropAndResize}
	roundings = []graph.NearestRounding{graph.RoundPreferFloor, graph.RoundPreferCeil, graph.RoundFloor, graph.RoundCeil, graph.RoundSimple}
)

func drawResize(t *rapid.T) (*graph.Resize, []int64) {
	o := &graph.Resize{
		Mode: rapid.SampledFrom(resizeModes).Draw(t, "mode"), Coordinates: rapid.SampledFrom(transformations).Draw(t, "coordinates"),
		Rounding: rapid.SampledFrom(roundings).Draw(t, "rounding"), CubicA: -0.75, Extrapolation: 7,
		Antialias: rapid.Bool().Draw(t, "antialias"), ExcludeOutside: rapid.Bool().Draw(t, "exclude outside"),
	}
	var shape []int64
	for range rapid.IntRange(0, 4).Draw(t, "rank") {
		n := rapid.Int64Range(1, 9).Draw(t, "length")
		m := n
		scale := 1.0
		if rapid.IntRange(0, 2).Draw(t, "changes") > 0 {
			if rapid.Bool().Draw(t, "by size") {
				m = rapid.Int64Range(1, 20).Draw(t, "size")
				scale = float64(m) / float64(n)
			} else {
				scale = rapid.Float64Range(1/float64(n), 3).Draw(t, "scale")
				m = int64(scale * float64(n))
			}
		}
		shape, o.Sizes, o.Scales = append(shape, n), append(o.Sizes, m), append(o.Scales, scale)
		if o.Coordinates == graph.CropAndResize {
			o.RoiStart = append(o.RoiStart, rapid.Float64Range(-0.3, 1).Draw(t, "start"))
			o.RoiEnd = append(o.RoiEnd, rapid.Float64Range(0, 1.3).Draw(t, "end"))
		}
	}
	return o, shape
}

func TestResize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, shape := drawResize(t)
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		tt := graph.TensorType{DType: d, Shape: shape}
		x := (&kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}).Tensor(tt)
		out, got := run(t, o, []graph.TensorType{tt}, [][]byte{x})

		// One axis after the other.
		v, dims := kerneltest.Values(tt, x), slices.Clone(shape)
		for axis := range shape {
			next := slices.Clone(dims)
			next[axis] = o.Sizes[axis]
			y := make([]float64, tensor.Elements(next))
			kerneltest.Coords(next, func(at []int64, flat int) {
				line := make([]float64, dims[axis])
				from := slices.Clone(at)
				for i := range line {
					from[axis] = int64(i)
					line[i] = v[kerneltest.Flatten(dims, from)]
				}
				if dims[axis] == next[axis] && o.Scales[axis] == 1 && o.Coordinates != graph.CropAndResize {
					y[flat] = line[at[axis]]
				} else {
					y[flat] = resizeReference(o, axis, line, int(at[axis]))
				}
			})
			v, dims = y, next
		}
		want := make([]kerneltest.Wanted, len(v))
		for i, w := range v {
			if w != w {
				w = o.Extrapolation
			}
			want[i] = kerneltest.Wanted{Value: w, Size: 16} // of elements up to 2
			if o.ExcludeOutside {
				want[i].Size = 64 // what is left of the weights may be small
			}
		}
		kerneltest.CompareSums(t, o, out[0], got[0], want)
	})
}

// Elements of any type are copied.
func TestResizeNearestOfAnyType(t *testing.T) {
	for _, d := range kerneltest.AllTypes {
		tt := graph.TensorType{DType: d, Shape: []int64{2, 3, 2}}
		x := kerneltest.Distinct(tt)
		o := &graph.Resize{Mode: graph.ResizeNearest, Rounding: graph.RoundFloor, Coordinates: graph.Asymmetric, Sizes: []int64{2, 6, 2}, Scales: []float64{1, 2, 1}}
		out, got := run(t, o, []graph.TensorType{tt}, [][]byte{x})
		kerneltest.CheckMoved(t, o, tt, out[0], x, got[0], nil, func(at []int64) int { return int(at[0]*6 + at[1]/2*2 + at[2]) })
	}
}

// A tiny scale must not make filters that are much longer than the operand.
func TestResizeOfTinyScale(t *testing.T) {
	o := &graph.Resize{Mode: graph.ResizeCubic, Coordinates: graph.HalfPixel, CubicA: -0.5, Antialias: true, Sizes: []int64{1}, Scales: []float64{1e-300}}
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{4}}
	_, got := run(t, o, []graph.TensorType{tt}, [][]byte{kerneltest.Store(graph.F32, []kerneltest.Elem{{F: 1}, {F: 1}, {F: 1}, {F: 1}})})
	require.InDelta(t, 1, tensor.F32s(got[0])[0], 1e-6)
	k, err := newKernel(o, []graph.TensorType{tt}, []graph.TensorType{{DType: graph.F32, Shape: []int64{1}}})
	require.NoError(t, err)
	require.Less(t, k.(*filter[float32]).passes[0].taps, 100)
}

func BenchmarkResize(b *testing.B) {
	o := &graph.Resize{Mode: graph.ResizeLinear, Coordinates: graph.HalfPixel, Sizes: []int64{1, 64, 80, 80}, Scales: []float64{1, 1, 2, 2}}
	tt := graph.TensorType{DType: graph.F32, Shape: []int64{1, 64, 40, 40}}
	benchmark(b, "linear", o, tt)
	near := *o
	near.Mode, near.Rounding = graph.ResizeNearest, graph.RoundFloor
	benchmark(b, "nearest", &near, tt)
}

// TestResizeUpByVectors compares enlarged images with the plain loop bit by
// bit, however the work is cut.
func TestResizeUpByVectors(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		height, width := rapid.Int64Range(1, 6).Draw(t, "height"), rapid.Int64Range(1, 9).Draw(t, "width")
		shape := []int64{1, rapid.Int64Range(1, 3).Draw(t, "channels"), height, width}
		rows, columns := height*rapid.Int64Range(2, 5).Draw(t, "rows"), rapid.Int64Range(16, 70).Draw(t, "columns")
		o := &graph.Resize{
			Mode: graph.ResizeLinear, Coordinates: rapid.SampledFrom(transformations[:5]).Draw(t, "coordinates"),
			Sizes:  []int64{1, shape[1], rows, columns},
			Scales: []float64{1, 1, float64(rows) / float64(height), float64(columns) / float64(width)},
		}
		tt := graph.TensorType{DType: graph.F32, Shape: shape}
		x := (&kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}).Tensor(tt)
		fast := newBilinear2[float32](o, shape).(*bilinear2[float32])
		plain := newBilinear2[float32](o, shape).(*bilinear2[float32])
		plain.gathered = false
		require.Equal(t, tensor.Path != tensor.PathGo, fast.gathered)
		want := make([]float32, tensor.Elements(o.Sizes))
		require.NoError(t, plain.Run(tensor.Serial{}, [][]byte{x}, [][]byte{kerneltest.BytesOf(want)}, nil))
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(3)} {
			got := make([]float32, len(want))
			require.NoError(t, fast.Run(p, [][]byte{x}, [][]byte{kerneltest.BytesOf(got)}, kerneltest.Junk(fast.Scratch())))
			for i, w := range want {
				require.Equal(t, math.Float32bits(w), math.Float32bits(got[i]), "element %d of %v to %v", i, shape, o.Sizes)
			}
		}
	})
}
