package kernel

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
)

// BenchmarkRows measures what normalises, reduces, pools and quantises.
func BenchmarkRows(b *testing.B) {
	f := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	i8 := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.I8, Shape: shape} }
	one, two := []int64{1, 1}, []int64{2, 2}
	three, zero := []int64{3, 3}, []int64{0, 0}
	for _, p := range []vectorPath{pathGo, pathAVX2, pathAVX512} {
		if p > fastestPath() {
			continue
		}
		b.Run(p.String(), func(b *testing.B) {
			defer func(chosen vectorPath) { path = chosen }(path)
			path = p
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
