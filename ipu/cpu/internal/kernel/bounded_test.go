package kernel

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestBoundedGemm compares products that limit their result with a Clip of
// what they give without limits, or a rectifier, bit by bit but for the bits of NaN.
func TestBoundedGemm(t *testing.T) {
	negative := math.Copysign(0, -1)
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		op := &graph.Gemm{TransA: rapid.Bool().Draw(t, "transA"), TransB: rapid.Bool().Draw(t, "transB")}
		op.Alpha = rapid.SampledFrom([]float64{1, 1, -1}).Draw(t, "alpha")
		op.Beta = rapid.SampledFrom([]float64{1, 1, 2, 0}).Draw(t, "beta")
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F16, graph.BF16}).Draw(t, "type")
		m, n := rapid.Int64Range(0, 20).Draw(t, "M"), rapid.Int64Range(1, 100).Draw(t, "N")
		k := rapid.SampledFrom([]int64{0, 1, 5, 40, depthForTests}).Draw(t, "K")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{of(m, k), of(k, n), {}}
		if op.TransA {
			in[0] = of(k, m)
		}
		if op.TransB {
			in[1] = of(n, k)
		}
		src := kerneltest.DrawSource(t)
		data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), nil}
		if rapid.Bool().Draw(t, "c") {
			in[2] = of(rapid.SampledFrom([][]int64{{n}, {m, 1}, {m, n}}).Draw(t, "C")...)
			data[2] = src.Tensor(in[2])
			if rapid.Bool().Draw(t, "negative zeros") {
				fillScalar(d, data[2], negative)
				clear(data[0])
			}
		}
		out, plain := runPacked(t, op, in, data)
		limits := rapid.SampledFrom([][2]float64{
			{0, math.Inf(1)}, {0, 6}, {math.Inf(-1), 0.5}, {-1, -2}, {math.Inf(-1), negative}, {negative, 0}, {-1, 0}, {math.Inf(-1), math.Inf(1)},
		}).Draw(t, "limits")
		bounded := *op
		bounded.Bounded, bounded.Low, bounded.High = true, limits[0], limits[1]
		_, got := runPacked(t, &bounded, in, data)
		var want [][]byte
		if limits[1] > 6 && limits[0] == 0 {
			_, want = runPacked(t, &graph.Unary{Fn: graph.Relu}, out, plain)
		} else {
			low, high := kerneltest.Aligned(d.Size()), kerneltest.Aligned(d.Size())
			fillScalar(d, low, limits[0])
			fillScalar(d, high, limits[1])
			_, want = runPacked(t, &graph.Clip{}, []graph.TensorType{out[0], of(), of()}, [][]byte{plain[0], low, high})
		}
		w := kerneltest.Values(out[0], want[0])
		for i, v := range kerneltest.Values(out[0], got[0]) {
			same := v == w[i] && math.Signbit(v) == math.Signbit(w[i]) || v != v && w[i] != w[i]
			require.True(t, same, "element %d is %v, want %v", i, v, w[i])
		}
	})
}

// depthForTests is more than a block of the sums of a product.
const depthForTests = 1100

// fillScalar sets all elements of type d in data to v.
func fillScalar(d graph.DType, data []byte, v float64) {
	x := make([]float32, len(data)/d.Size())
	for i := range x {
		x[i] = float32(v)
	}
	if d == graph.F32 {
		copy(data, tensor.RawBytes(x))
	} else {
		vec.EncodeHalf(d, data, x)
	}
}

// TestBoundedConv compares convolutions that limit their result with a Clip of
// what they give without limits.
func TestBoundedConv(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		pick := func(name string, of ...int64) int64 { return rapid.SampledFrom(of).Draw(t, name) }
		group, c, m := int64(1), pick("channels", 1, 3, 20), pick("maps", 1, 2, 17)
		if rapid.Bool().Draw(t, "depthwise") {
			group, c, m = pick("group", 1, 5, 16), 1, 1
		}
		k, stride := pick("window", 1, 3, 5), pick("stride", 1, 2)
		op := &graph.Conv{Strides: []int64{stride, stride}, Dilations: []int64{1, 1}, PadsBegin: []int64{k / 2, k / 2}, PadsEnd: []int64{k / 2, k / 2}, Group: group}
		d := rapid.SampledFrom([]graph.DType{graph.F32, graph.F32, graph.F16}).Draw(t, "type")
		of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
		in := []graph.TensorType{of(2, group*c, pick("height", 5, 12), pick("width", 7, 40)), of(group*m, c, k, k), of(group * m)}
		src := kerneltest.DrawSource(t)
		data := [][]byte{src.Tensor(in[0]), src.Tensor(in[1]), src.Tensor(in[2])}
		out, plain := runPacked(t, op, in, data)
		limits := rapid.SampledFrom([][2]float64{{0, math.Inf(1)}, {0, 6}, {math.Inf(-1), 0.5}, {-1, -2}}).Draw(t, "limits")
		bounded := *op
		bounded.Bounded, bounded.Low, bounded.High = true, limits[0], limits[1]
		_, got := runPacked(t, &bounded, in, data)
		want := kerneltest.Values(out[0], plain[0])
		for i, v := range kerneltest.Values(out[0], got[0]) {
			w := min(max(want[i], limits[0]), limits[1])
			require.True(t, v == w || v != v && w != w, "element %d is %v, want %v", i, v, w)
		}
	})
}
