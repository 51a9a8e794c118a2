package move

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
)

func BenchmarkIndexing(b *testing.B) {
	f := func(t graph.DType, shape ...int64) graph.TensorType { return graph.TensorType{DType: t, Shape: shape} }
	big := f(graph.F32, 64, 1024)
	benchmark(b, "gather elements", &graph.GatherElements{Axis: 1}, big, f(graph.I64, 64, 50))
	benchmark(b, "gather slices", &graph.GatherND{}, f(graph.F32, 64, 64, 32), f(graph.I64, 512, 2))
	benchmark(b, "scatter elements", &graph.ScatterElements{Axis: 1, Fn: graph.ScatterAdd}, big, f(graph.I64, 64, 50), f(graph.F32, 64, 50))
	benchmark(b, "scatter slices", &graph.ScatterND{Fn: graph.ScatterNone}, big, f(graph.I64, 32, 1), f(graph.F32, 32, 1024))
	benchmark(b, "one hot", &graph.OneHot{Axis: 1, Depth: 256}, f(graph.I64, 256), f(graph.F32, 2))
	benchmark(b, "arg max", &graph.ArgMax{Axis: 1}, big)
	benchmark(b, "arg max", &graph.ArgMax{Axis: 0}, big)
	benchmark(b, "arg min", &graph.ArgMax{Axis: 1, Min: true}, big)
	benchmark(b, "top k", &graph.TopK{Axis: 1, K: 5}, big)
	benchmark(b, "top k", &graph.TopK{Axis: 1, K: 500}, big)
	benchmark(b, "cumulate", &graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, big)
	benchmark(b, "cumulate", &graph.Cumulate{Fn: graph.CumulateSum, Axis: 0}, big)
	benchmark(b, "quantise", &graph.Quantize{To: graph.I8, Precision: graph.F32}, big, f(graph.F32))
	benchmark(b, "quantise", &graph.Quantize{Axis: 1, To: graph.I8, Precision: graph.F32}, big, f(graph.F32, 1024))
	benchmark(b, "dequantise", &graph.Dequantize{To: graph.F32}, f(graph.I8, 64, 1024), f(graph.F32), f(graph.I8))
	benchmark(b, "mod", &graph.Mod{}, f(graph.I64, 64, 1024), f(graph.I64))
}
