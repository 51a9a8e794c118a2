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

// TestRoiAlignGradient: the gradient of x is the adjoint of the averages, each result is the same by itself, and whoever computes it;
// single precision is near double. Package autodiff compares with differences.
func TestRoiAlignGradient(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &graph.RoiAlign{
			Mode: graph.RoiAverage, Height: rapid.Int64Range(1, 3).Draw(t, "height"), Width: rapid.Int64Range(1, 3).Draw(t, "width"),
			SamplingRatio: rapid.Int64Range(0, 3).Draw(t, "ratio"), SpatialScale: 0.5, HalfPixel: rapid.Bool().Draw(t, "half pixel"),
		}
		n, c, h, w, r := rapid.Int64Range(1, 2).Draw(t, "batch"), rapid.Int64Range(1, 9).Draw(t, "channels"),
			rapid.Int64Range(0, 6).Draw(t, "h"), rapid.Int64Range(1, 6).Draw(t, "w"), rapid.Int64Range(0, 3).Draw(t, "regions")
		x, dy := []int64{n, c, h, w}, []int64{r, c, o.Height, o.Width}
		src := &kerneltest.Source{R: kerneltest.Seeded(rapid.Uint64().Draw(t, "data"))}
		numbers := func(shape []int64, low, high float64) []kerneltest.Elem {
			v := make([]kerneltest.Elem, tensor.Elements(shape))
			for i := range v {
				v[i].F = float64(float32(low + src.R.Float64()*(high-low)))
			}
			return v
		}
		xs, rois, dys, images := numbers(x, -1, 1), numbers([]int64{r, 4}, -5, 15), numbers(dy, -1, 1), make([]kerneltest.Elem, r)
		for i := range images {
			images[i].I = src.R.Int64N(n)
		}
		operands := func(d graph.DType) (types []graph.TensorType, data [][]byte) {
			types = []graph.TensorType{{DType: d, Shape: x}, {DType: d, Shape: []int64{r, 4}}, {DType: graph.I32, Shape: []int64{r}}, {DType: d, Shape: dy}}
			return types, [][]byte{kerneltest.Store(d, xs), kerneltest.Store(d, rois), kerneltest.Store(graph.I32, images), kerneltest.Store(d, dys)}
		}
		types, data := operands(graph.F64)
		back := graph.RoiAlignGradient(*o)
		out, got := run(t, &back, types, data)
		_, y := run(t, o, types[:3], data[:3])
		dx := kerneltest.Values(out[0], got[0])
		forward, backward := 0.0, 0.0
		for i, v := range kerneltest.Values(types[3], y[0]) {
			forward += v * dys[i].F
		}
		for i, v := range dx {
			backward += v * xs[i].F
		}
		require.InDelta(t, forward, backward, 1e-9)

		if o.SamplingRatio > 0 { // else rounding decides how many there are
			types, data := operands(graph.F32)
			_, single := run(t, &back, types, data)
			for i, v := range kerneltest.Values(graph.TensorType{DType: graph.F32, Shape: x}, single[0]) {
				require.InDelta(t, dx[i], v, 1e-4)
			}
		}
		k, err := newKernel(&back, types, out)
		require.NoError(t, err)
		for i := range got {
			alone := [][]byte{nil, nil}
			alone[i] = kerneltest.Aligned(len(got[i]))
			require.NoError(t, k.Run(kerneltest.InTurn(4), data, alone[:i+1], nil))
			require.Equal(t, got[i], alone[i])
		}
	})
}

// TestRoiAlignGradientOfWildRegions: they are refused as on the way forward, and those far beyond x take no time.
func TestRoiAlignGradientOfWildRegions(t *testing.T) {
	o := &graph.RoiAlignGradient{Mode: graph.RoiAverage, Height: 1, Width: 1, SpatialScale: 1}
	in := []graph.TensorType{{DType: graph.F32, Shape: []int64{1, 1, 2, 2}}, {DType: graph.F32, Shape: []int64{1, 4}}, {DType: graph.I64, Shape: []int64{1}}, {DType: graph.F32, Shape: []int64{1, 1, 1, 1}}}
	out, err := o.Infer(in)
	require.NoError(t, err)
	k, err := newKernel(o, in, out)
	require.NoError(t, err)
	try := func(image int64, box ...float64) error {
		rois := make([]kerneltest.Elem, 4)
		for i, v := range box {
			rois[i].F = v
		}
		return k.Run(tensor.Serial{}, [][]byte{kerneltest.Aligned(16), kerneltest.Store(graph.F32, rois), kerneltest.Store(graph.I64, []kerneltest.Elem{{I: image}}), kerneltest.Aligned(4)},
			[][]byte{kerneltest.Aligned(16), kerneltest.Aligned(16)}, nil)
	}
	require.ErrorContains(t, try(1, 0, 0, 1, 1), "region 0 is in image 1, want 0 to 0")
	require.ErrorContains(t, try(0, 0, 0, math.NaN(), 1), "want numbers below 2^40")
	require.NoError(t, try(0, -1e11, -1e11, 1e11, 1e11))
}
