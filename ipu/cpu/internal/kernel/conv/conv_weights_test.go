package conv

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestConvWeightGradient(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		d := rapid.SampledFrom(kerneltest.FloatTypes).Draw(t, "type")
		axes := rapid.IntRange(1, 3).Draw(t, "axes")
		small := func(name string) int64 { return rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, name) }
		n, group, c := rapid.SampledFrom([]int64{0, 1, 1, 2, 5}).Draw(t, "batch"), small("group"), rapid.SampledFrom([]int64{0, 1, 1, 2, 3, 20}).Draw(t, "channels")
		m := rapid.SampledFrom([]int64{1, 3, 4, 7, 8, 16, 20, 33, 70}).Draw(t, "maps")
		op := &graph.ConvWeightGradient{Group: group}
		var size, out []int64
		points := rapid.IntRange(0, 3).Draw(t, "points") == 0
		for range axes {
			most := []int64{60, 9, 4}[axes-1]
			s, k := rapid.Int64Range(0, most).Draw(t, "size"), rapid.SampledFrom([]int64{1, 2, 3, 3, 4, 8}).Draw(t, "kernel")
			stride, dilation := rapid.Int64Range(1, 3).Draw(t, "stride"), rapid.SampledFrom([]int64{1, 1, 2, 3}).Draw(t, "dilation")
			pad := rapid.Int64Range(-2, 4).Draw(t, "pad")
			o := max((s+2*pad-(k-1)*dilation-1)/stride+1+rapid.Int64Range(-1, 1).Draw(t, "more"), 0)
			if points {
				k, stride, pad, o = 1, 1, 0, s
			}
			size, out = append(size, s), append(out, o)
			op.Kernel, op.Strides, op.Dilations = append(op.Kernel, k), append(op.Strides, stride), append(op.Dilations, dilation)
			op.PadsBegin = append(op.PadsBegin, pad)
		}
		checkWeightGradient(t, d, op, append([]int64{n, group * c}, size...), append([]int64{n, group * m}, out...))
	})
}

// TestConvWeightGradientInBlocks has images of which only a part is multiplied at a time, and many of them.
func TestConvWeightGradientInBlocks(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		two := func(v int64) []int64 { return []int64{v, v} }
		for _, c := range []struct{ n, channels, maps, size, kernel, stride, pad int64 }{
			{2, 1, 5, 83, 3, 1, 1}, {2, 2, 5, 83, 1, 1, 0}, {300, 2, 9, 4, 3, 1, 1}, {150, 3, 40, 7, 2, 2, 0},
		} {
			op := &graph.ConvWeightGradient{Kernel: two(c.kernel), Strides: two(c.stride), Dilations: two(1), PadsBegin: two(c.pad), Group: 1}
			out := (c.size+2*c.pad-c.kernel)/c.stride + 1
			checkWeightGradient(t, graph.F32, op, []int64{c.n, c.channels, c.size, c.size}, []int64{c.n, c.maps, out, out})
		}
	})
}

// checkWeightGradient compares the gradients with the sums of their definition.
func checkWeightGradient(t kerneltest.Fataler, d graph.DType, op *graph.ConvWeightGradient, x, dy []int64) {
	t.Helper()
	in := []graph.TensorType{{DType: d, Shape: x}, {DType: d, Shape: dy}}
	src := &kerneltest.Source{R: kerneltest.Seeded(uint64(x[0] + 3*dy[1]))}
	data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1])}
	out, got := run(t, op, in, data)

	xs, dys := kerneltest.Values(in[0], data[0]), kerneltest.Values(in[1], data[1])
	want, sums := make([]kerneltest.Wanted, tensor.Elements(out[0].Shape)), make([]kerneltest.Wanted, dy[1])
	channels := x[1] / op.Group
	window := tensor.Elements(op.Kernel)
	image := tensor.Elements(x[2:])
	kerneltest.Coords(dy, func(at []int64, flat int) {
		sums[at[1]].Value += dys[flat]
		sums[at[1]].Size += math.Abs(dys[flat])
		first := int(at[0]*x[1] + at[1]/(dy[1]/op.Group)*channels)
		kerneltest.Coords(op.Kernel, func(k []int64, tap int) {
			from := 0
			for i := range k {
				p := at[2+i]*op.Strides[i] + k[i]*op.Dilations[i] - op.PadsBegin[i]
				if p < 0 || p >= x[2+i] {
					return
				}
				from = from*int(x[2+i]) + int(p)
			}
			for c := range int(channels) {
				w := &want[(int(at[1]*channels)+c)*window+tap]
				v := dys[flat] * xs[(first+c)*image+from]
				w.Value += v
				w.Size += math.Abs(v)
			}
		})
	})
	kerneltest.CompareSums(t, op, out[0], got[0], want)
	kerneltest.CompareSums(t, op, out[1], got[1], sums)
}

// TestConvWeightGradientAlone: the sums may be left out.
func TestConvWeightGradientAlone(t *testing.T) {
	kerneltest.EachPath(t, func(t *testing.T) {
		for _, kernel := range []int64{1, 3} {
			op := &graph.ConvWeightGradient{Kernel: []int64{kernel}, Strides: []int64{1}, Dilations: []int64{1}, PadsBegin: []int64{0}, Group: 1}
			in := []graph.TensorType{{DType: graph.F32, Shape: []int64{2, 3, 9}}, {DType: graph.F32, Shape: []int64{2, 8, 10 - kernel}}}
			src := &kerneltest.Source{R: kerneltest.Seeded(1)}
			data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1])}
			out, want := run(t, op, in, data)
			k, err := newKernel(op, in, out)
			require.NoError(t, err)
			got := kerneltest.Aligned(len(want[0]))
			require.NoError(t, k.Run(tensor.Serial{}, data, [][]byte{got, nil}, kerneltest.Aligned(k.Scratch())))
			require.Equal(t, want[0], got)
		}
	})
}
