package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// BenchmarkRows measures what normalises, reduces, pools and quantises.
func BenchmarkRows(b *testing.B) {
	f := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	i8 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.I8, Shape: shape} }
	one, two := []int64{1, 1}, []int64{2, 2}
	three, zero := []int64{3, 3}, []int64{0, 0}
	for _, p := range []tensor.VectorPath{tensor.PathGo, tensor.PathAVX2, tensor.PathAVX512} {
		if p > tensor.FastestPath() {
			continue
		}
		b.Run(p.String(), func(b *testing.B) {
			defer func(chosen tensor.VectorPath) { tensor.Path = chosen }(tensor.Path)
			tensor.Path = p
			benchmark(b, "softmax", &graph.Softmax{Axis: 1}, f(64, 1000))
			benchmark(b, "softmax", &graph.Softmax{Axis: 2}, f(8, 64, 64))
			benchmark(b, "softmax", &graph.Softmax{Axis: 1}, f(8, 21, 400))
			benchmark(b, "softmax", &graph.Softmax{Axis: 1}, f(4420, 2))
			benchmark(b, "pow", &graph.Binary{Fn: graph.Pow}, f(64, 1000), f())
			benchmark(b, "log softmax", &graph.Softmax{Axis: 1, Log: true}, f(64, 1000))
			benchmark(b, "layer norm", &graph.LayerNorm{Axis: 1, Epsilon: 1e-5}, f(128, 768), f(768), f(768))
			benchmark(b, "rms norm", &graph.RMSNorm{Axis: 1, Epsilon: 1e-5}, f(128, 768), f(768))
			benchmark(b, "group norm", &graph.GroupNorm{Groups: 8, Epsilon: 1e-5}, f(1, 64, 28, 28), f(64), f(64))
			for _, fn := range []graph.ReduceFn{graph.ReduceSum, graph.ReduceMax, graph.ReduceSumSquare} {
				benchmark(b, string(fn), &graph.Reduce{Fn: fn, Axes: []int64{1}}, f(64, 1024))
				benchmark(b, string(fn), &graph.Reduce{Fn: fn, Axes: []int64{0}}, f(64, 1024))
			}
			benchmark(b, "sum of few", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{1}}, f(32<<10, 2))
			benchmark(b, "arg max", &graph.ArgMax{Axis: 1}, f(64, 1000))
			benchmark(b, "max pool 3x3 s2", &graph.MaxPool{Kernel: three, Strides: two, Dilations: one, PadsBegin: one, PadsEnd: one}, f(1, 64, 112, 112))
			benchmark(b, "max pool 2x2 s2", &graph.MaxPool{Kernel: two, Strides: two, Dilations: one, PadsBegin: zero, PadsEnd: zero}, f(1, 64, 112, 112))
			benchmark(b, "max pool 5x5 s1", &graph.MaxPool{Kernel: []int64{5, 5}, Strides: one, Dilations: one, PadsBegin: two, PadsEnd: two}, f(1, 64, 20, 20))
			benchmark(b, "average pool 3x3 s1", &graph.AveragePool{Kernel: three, Strides: one, Dilations: one, PadsBegin: one, PadsEnd: one}, f(1, 64, 28, 28))
			benchmark(b, "average pool all", &graph.AveragePool{Kernel: []int64{7, 7}, Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero}, f(1, 512, 7, 7))
			i32 := graph.TensorType{DType: graph.I32, Shape: []int64{64, 1024}}
			benchmark(b, "equal", &graph.Binary{Fn: graph.Equal}, i32, i32)
			benchmark(b, "less", &graph.Binary{Fn: graph.Less}, f(64, 1024), f(64, 1024))
			benchmark(b, "cast", &graph.Cast{To: graph.F32}, graph.TensorType{DType: graph.Bool, Shape: []int64{64, 1024}})
			benchmark(b, "quantize", &graph.Quantize{To: graph.I8, Precision: graph.F32}, f(64, 1024), f())
			benchmark(b, "dequantize", &graph.Dequantize{To: graph.F32}, i8(64, 1024), f())
		})
	}
}

func BenchmarkKernels(b *testing.B) {
	f := func(t graph.DType, shape ...int64) graph.TensorType { return graph.TensorType{DType: t, Shape: shape} }
	big := f(graph.F32, 64, 1024)
	for _, fn := range []graph.UnaryFn{graph.Relu, graph.LeakyRelu, graph.Exp, graph.Log, graph.Erf, graph.Tanh, graph.Sigmoid, graph.Softplus, graph.Sqrt} {
		benchmark(b, string(fn), &graph.Unary{Fn: fn}, big)
	}
	benchmark(b, "relu", &graph.Unary{Fn: graph.Relu}, f(graph.F16, 64, 1024))
	benchmark(b, "relu", &graph.Unary{Fn: graph.Relu}, f(graph.F32, 10))
	add := &graph.Binary{Fn: graph.Add}
	benchmark(b, "add", add, big, big)
	benchmark(b, "add", add, big, f(graph.F32, 1024))
	benchmark(b, "add", add, big, f(graph.F32))
	benchmark(b, "add", add, f(graph.F32, 64, 1024), f(graph.F32, 64, 1))
	benchmark(b, "add", add, f(graph.F32, 8400, 4), f(graph.F32, 4))
	benchmark(b, "add", add, f(graph.F32, 8400, 4), f(graph.F32, 8400, 1))
	benchmark(b, "add", add, f(graph.F16, 64, 1024), f(graph.F16, 64, 1024))
	benchmark(b, "add", add, f(graph.F32, 10), f(graph.F32, 10))
	benchmark(b, "pow", &graph.Binary{Fn: graph.Pow}, big, f(graph.I64))
	benchmark(b, "clip", &graph.Clip{}, big, f(graph.F32), f(graph.F32))
	benchmark(b, "where", &graph.Where{}, f(graph.Bool, 64, 1024), big, big)
	benchmark(b, "cast", &graph.Cast{To: graph.F32}, f(graph.U8, 64, 1024))
	benchmark(b, "cast", &graph.Cast{To: graph.I32}, big)
	benchmark(b, "transpose", &graph.Transpose{Perm: []int64{1, 0}}, f(graph.F32, 512, 512))
	benchmark(b, "transpose", &graph.Transpose{Perm: []int64{0, 2, 1, 3}}, f(graph.F32, 8, 64, 8, 64))
	benchmark(b, "transpose", &graph.Transpose{Perm: []int64{0, 3, 1, 2}}, f(graph.F32, 1, 224, 224, 3))
	benchmark(b, "transpose", &graph.Transpose{Perm: []int64{0, 2, 3, 1}}, f(graph.F32, 1, 3, 224, 224))
	benchmark(b, "slice", &graph.Slice{Start: []int64{0, 0}, Size: []int64{64, 512}, Step: []int64{1, 2}}, big)
	benchmark(b, "concat", &graph.Concat{Axis: 1}, f(graph.F32, 8400, 2), f(graph.F32, 8400, 2))
	benchmark(b, "concat", &graph.Concat{Axis: 1}, big, big)
	benchmark(b, "pad", &graph.Pad{Mode: graph.PadConstant, Before: []int64{0, 0, 1, 1}, After: []int64{0, 0, 1, 1}}, f(graph.F32, 1, 64, 56, 56))
	benchmark(b, "gather", &graph.Gather{Axis: 0}, f(graph.F32, 1000, 128), f(graph.I64, 512))
	for _, fn := range []graph.ReduceFn{graph.ReduceSum, graph.ReduceMax, graph.ReduceLogSumExp} {
		benchmark(b, string(fn), &graph.Reduce{Fn: fn, Axes: []int64{1}}, big)
		benchmark(b, string(fn), &graph.Reduce{Fn: fn, Axes: []int64{0}}, big)
	}
	benchmark(b, "mean", &graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{2, 3}}, f(graph.F32, 1, 512, 7, 7))
	benchmark(b, "sum", &graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{1}}, f(graph.F32, 8400, 4))
}
