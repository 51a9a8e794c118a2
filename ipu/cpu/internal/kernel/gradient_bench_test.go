package kernel

import (
	"fmt"
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
)

// BenchmarkConvInputGradient times input gradients of convolutions [batch, channels of the result, size², channels of
// the operand] with square kernels, strides and groups.
func BenchmarkConvInputGradient(b *testing.B) {
	for _, c := range []struct{ n, maps, size, channels, kernel, stride, group int64 }{
		{64, 32, 14, 64, 3, 1, 1},
		{64, 16, 4, 32, 3, 1, 1},
		{64, 64, 7, 64, 3, 1, 1},
		{64, 32, 28, 64, 3, 2, 1},
		{64, 64, 28, 128, 1, 2, 1},
		{64, 64, 14, 128, 1, 1, 1},
		{8, 3, 64, 64, 4, 2, 1},
		{4, 32, 64, 64, 2, 2, 1},
		{16, 1, 28, 32, 5, 1, 1},
		{16, 1, 28, 1, 3, 1, 32},
		{16, 1, 28, 1, 3, 2, 32},
		{1, 16, 32, 32, 4, 2, 1},
	} {
		out := (c.size-1)/c.stride + 1
		if c.kernel%2 == 0 {
			out = c.size / c.stride
		}
		two := func(v int64) []int64 { return []int64{v, v} }
		o := &graph.ConvTranspose{Strides: two(c.stride), Dilations: two(1), PadsBegin: two((c.kernel - 1) / 2), Output: two(c.size), Group: c.group}
		x, w := []int64{c.n, c.channels * c.group, out, out}, []int64{c.channels * c.group, c.maps, c.kernel, c.kernel}
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			measure(b, o, 2*float64(c.n*c.group*c.channels*out*out*c.maps*c.kernel*c.kernel), x, w)
		})
	}
}

// BenchmarkConvWeightGradient times weight gradients of convolutions [batch, channels, size², output channels] with square
// kernels, strides and groups.
func BenchmarkConvWeightGradient(b *testing.B) {
	for _, c := range []struct{ n, channels, size, maps, kernel, stride, group int64 }{
		{64, 32, 14, 64, 3, 1, 1},
		{64, 1, 28, 32, 3, 1, 1},
		{64, 16, 4, 32, 3, 1, 1},
		{64, 1, 8, 16, 3, 1, 1},
		{64, 64, 7, 64, 3, 1, 1},
		{64, 3, 32, 32, 3, 1, 1},
		{64, 32, 28, 64, 3, 2, 1},
		{16, 64, 56, 64, 3, 1, 1},
		{64, 64, 28, 128, 1, 2, 1},
		{64, 64, 14, 128, 1, 1, 1},
		{8, 3, 112, 64, 7, 2, 1},
		{16, 1, 28, 1, 3, 1, 32},
	} {
		out := (c.size-1)/c.stride + 1
		two := func(v int64) []int64 { return []int64{v, v} }
		o := &graph.ConvWeightGradient{Kernel: two(c.kernel), Strides: two(c.stride), Dilations: two(1), PadsBegin: two((c.kernel - 1) / 2), Group: c.group}
		x, dy := []int64{c.n, c.channels * c.group, c.size, c.size}, []int64{c.n, c.maps * c.group, out, out}
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			measure(b, o, 2*float64(c.n*c.group*c.channels*out*out*c.maps*c.kernel*c.kernel), x, dy)
		})
	}
}

// BenchmarkTrainingProducts times the products of dense layers, rows of batches by their inputs and outputs: forward, the gradient of
// the weights and that of the inputs, with weights as ONNX's Gemm mostly has them and as its MatMul has.
func BenchmarkTrainingProducts(b *testing.B) {
	for _, c := range []struct{ rows, in, out int64 }{{1792, 128, 512}, {1792, 512, 128}, {1792, 128, 128}, {64, 784, 512}, {64, 512, 256}} {
		x, y, w, wt := []int64{c.rows, c.in}, []int64{c.rows, c.out}, []int64{c.in, c.out}, []int64{c.out, c.in}
		for _, p := range []struct {
			name     string
			op       graph.Gemm
			operands [2][]int64
		}{
			{"XW", graph.Gemm{}, [2][]int64{x, w}}, {"XWt", graph.Gemm{TransB: true}, [2][]int64{x, wt}},
			{"XtdY", graph.Gemm{TransA: true}, [2][]int64{x, y}}, {"dYtX", graph.Gemm{TransA: true}, [2][]int64{y, x}},
			{"dYWt", graph.Gemm{TransB: true}, [2][]int64{y, w}}, {"dYW", graph.Gemm{}, [2][]int64{y, wt}},
		} {
			p.op.Alpha = 1
			b.Run(fmt.Sprint(p.name, c), func(b *testing.B) { measureUnpacked(b, &p.op, 2*float64(c.rows*c.in*c.out), p.operands[:]...) })
		}
	}
}
