package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestImageRunsAllocateNothing runs the kernels that resize, sample, pool and
// transpose, with a pool that cuts the work.
func TestImageRunsAllocateNothing(t *testing.T) {
	ones, zeros := []int64{1, 1}, []int64{0, 0}
	for _, d := range []graph.DType{graph.F32, graph.F64, graph.F16} {
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		resize := func(mode graph.ResizeMode, c graph.Coordinates) *graph.Resize {
			o := &graph.Resize{Mode: mode, Coordinates: c, Rounding: graph.RoundFloor, CubicA: -0.75, Sizes: []int64{2, 20, 11}, Scales: []float64{1, 2, 1.1}}
			if c == graph.CropAndResize {
				o.RoiStart, o.RoiEnd = []float64{0, 0, -1}, []float64{1, 1, 1}
			}
			return o
		}
		for _, c := range []kerneltest.HeavyCase{
			{Op: resize(graph.ResizeNearest, graph.Asymmetric), In: []graph.TensorType{of(2, 10, 10)}},
			{Op: resize(graph.ResizeLinear, graph.HalfPixel), In: []graph.TensorType{of(2, 10, 10)}},
			{Op: resize(graph.ResizeCubic, graph.CropAndResize), In: []graph.TensorType{of(2, 10, 10)}},
			{Op: &graph.GridSample{Mode: graph.ResizeCubic, Padding: graph.SampleReflection}, In: []graph.TensorType{of(1, 3, 8, 8), of(1, 9, 9, 2)}},
			{Op: &graph.RoiAlign{Mode: graph.RoiAverage, Height: 3, Width: 3, SpatialScale: 1},
				In: []graph.TensorType{of(1, 3, 8, 8), of(5, 4), {DType: graph.I64, Shape: []int64{5}}}},
			{Op: &graph.RoiAlignGradient{Mode: graph.RoiAverage, Height: 3, Width: 3, SpatialScale: 1},
				In: []graph.TensorType{of(1, 3, 8, 8), of(5, 4), {DType: graph.I64, Shape: []int64{5}}, of(5, 3, 3, 3)}},
			{Op: &graph.MaxRoiPool{Height: 3, Width: 3, SpatialScale: 1}, In: []graph.TensorType{of(1, 3, 8, 8), of(5, 5)}},
			{Op: &graph.ConvTranspose{Strides: ones, Dilations: ones, PadsBegin: ones, Output: []int64{12, 12}, Group: 1},
				In: []graph.TensorType{of(1, 8, 12, 12), of(8, 16, 3, 3), of(16)}},
			{Op: &graph.DeformConv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1, OffsetGroup: 2},
				In: []graph.TensorType{of(1, 8, 12, 12), of(4, 8, 3, 3), of(1, 36, 12, 12), {}, of(1, 18, 12, 12)}},
			{Op: &graph.Col2Im{Image: []int64{9, 9}, Block: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros},
				In: []graph.TensorType{of(2, 12, 64)}},
			{Op: &graph.LpPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones, P: 3}, In: []graph.TensorType{of(1, 8, 12, 12)}},
			{Op: &graph.MaxUnpool{Shape: []int64{1, 8, 24}}, In: []graph.TensorType{of(1, 8, 12), {DType: graph.I64, Shape: []int64{1, 8, 12}}}},
			{Op: &graph.GroupNorm{Groups: 2, Epsilon: 1e-5}, In: []graph.TensorType{of(2, 8, 50), of(8), of(8)}},
			{Op: &graph.LRN{Size: 5, Alpha: 1, Beta: 0.75, Bias: 1}, In: []graph.TensorType{of(2, 8, 50)}},
			{Op: &graph.Det{}, In: []graph.TensorType{of(9, 6, 6)}},
		} {
			out, err := c.Op.Infer(c.In)
			require.NoError(t, err)
			k, err := New(c.Op, c.In, out)
			require.NoError(t, err)
			s := &kerneltest.Source{R: kerneltest.Seeded(1)}
			var data, results [][]byte
			for _, tt := range c.In {
				if tt.DType == graph.I64 { // images and indices
					data = append(data, kerneltest.Aligned(8*tensor.Elements(tt.Shape)))
					continue
				}
				b := s.Tensor(tt)
				if _, ok := c.Op.(*graph.MaxRoiPool); ok && len(data) == 1 {
					clear(b)
				}
				data = append(data, b)
			}
			for _, tt := range out {
				results = append(results, kerneltest.Aligned(tensor.Elements(tt.Shape)*tt.DType.Size()))
			}
			scratch := kerneltest.Aligned(k.Scratch())
			for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.Op.Kind(), c.In, p.Workers())
			}
		}
	}
}

func BenchmarkConvTranspose(b *testing.B) {
	for _, c := range []struct{ channels, maps, size, kernel, stride int64 }{
		{64, 32, 32, 4, 2}, {128, 64, 16, 2, 2}, {32, 1, 112, 9, 2}, {64, 64, 28, 3, 1},
	} {
		op := &graph.ConvTranspose{Strides: []int64{c.stride, c.stride}, Dilations: []int64{1, 1}, PadsBegin: []int64{0, 0},
			Output: []int64{c.size * c.stride, c.size * c.stride}, Group: 1}
		measure(b, op, 2*float64(c.channels*c.maps*c.size*c.size*c.kernel*c.kernel),
			[]int64{1, c.channels, c.size, c.size}, []int64{c.channels, c.maps, c.kernel, c.kernel})
	}
}
