package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

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
		for _, c := range []heavyCase{
			{resize(graph.ResizeNearest, graph.Asymmetric), []graph.TensorType{of(2, 10, 10)}},
			{resize(graph.ResizeLinear, graph.HalfPixel), []graph.TensorType{of(2, 10, 10)}},
			{resize(graph.ResizeCubic, graph.CropAndResize), []graph.TensorType{of(2, 10, 10)}},
			{&graph.GridSample{Mode: graph.ResizeCubic, Padding: graph.SampleReflection}, []graph.TensorType{of(1, 3, 8, 8), of(1, 9, 9, 2)}},
			{&graph.RoiAlign{Mode: graph.RoiAverage, Height: 3, Width: 3, SpatialScale: 1},
				[]graph.TensorType{of(1, 3, 8, 8), of(5, 4), {DType: graph.I64, Shape: []int64{5}}}},
			{&graph.MaxRoiPool{Height: 3, Width: 3, SpatialScale: 1}, []graph.TensorType{of(1, 3, 8, 8), of(5, 5)}},
			{&graph.ConvTranspose{Strides: ones, Dilations: ones, PadsBegin: ones, Output: []int64{12, 12}, Group: 1},
				[]graph.TensorType{of(1, 8, 12, 12), of(8, 16, 3, 3), of(16)}},
			{&graph.DeformConv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1, OffsetGroup: 2},
				[]graph.TensorType{of(1, 8, 12, 12), of(4, 8, 3, 3), of(1, 36, 12, 12), {}, of(1, 18, 12, 12)}},
			{&graph.Col2Im{Image: []int64{9, 9}, Block: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: zeros},
				[]graph.TensorType{of(2, 12, 64)}},
			{&graph.LpPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zeros, PadsEnd: ones, P: 3}, []graph.TensorType{of(1, 8, 12, 12)}},
			{&graph.MaxUnpool{Shape: []int64{1, 8, 24}}, []graph.TensorType{of(1, 8, 12), {DType: graph.I64, Shape: []int64{1, 8, 12}}}},
			{&graph.GroupNorm{Groups: 2, Epsilon: 1e-5}, []graph.TensorType{of(2, 8, 50), of(8), of(8)}},
			{&graph.LRN{Size: 5, Alpha: 1, Beta: 0.75, Bias: 1}, []graph.TensorType{of(2, 8, 50)}},
			{&graph.Det{}, []graph.TensorType{of(9, 6, 6)}},
		} {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			k, err := New(c.op, c.in, out)
			require.NoError(t, err)
			s := &source{r: seeded(1)}
			var data, results [][]byte
			for _, tt := range c.in {
				if tt.DType == graph.I64 { // images and indices
					data = append(data, aligned(8*elements(tt.Shape)))
					continue
				}
				b := s.tensor(tt)
				if _, ok := c.op.(*graph.MaxRoiPool); ok && len(data) == 1 {
					clear(b)
				}
				data = append(data, b)
			}
			for _, tt := range out {
				results = append(results, aligned(elements(tt.Shape)*tt.DType.Size()))
			}
			scratch := aligned(k.Scratch())
			for _, p := range []Pool{Serial{}, inTurn(4)} {
				n := testing.AllocsPerRun(2, func() {
					if err := k.Run(p, data, results, scratch); err != nil {
						t.Fatal(err)
					}
				})
				require.Zero(t, n, "%s of %v with %d workers", c.op.Kind(), c.in, p.Workers())
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
