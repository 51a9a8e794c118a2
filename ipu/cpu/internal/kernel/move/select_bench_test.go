package move

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
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

// BenchmarkNonMaxSuppression is of a detector with 8400 boxes: of 80 classes with a threshold, of
// which few boxes exceed it, and of one class without.
func BenchmarkNonMaxSuppression(b *testing.B) {
	const n = 8400
	r := kerneltest.Seeded(1)
	boxes := make([]float32, 4*n)
	for i := range n {
		y, x := r.Float32()*640, r.Float32()*640
		copy(boxes[4*i:], []float32{y, x, y + 20 + 60*r.Float32(), x + 20 + 60*r.Float32()})
	}
	for _, c := range []struct {
		name    string
		classes int64
		least   []float32
		most    int64
	}{{"80 classes", 80, []float32{0.97}, 100}, {"all boxes", 1, nil, n}, {"the best 300", 1, nil, 300}} {
		b.Run(c.name, func(b *testing.B) {
			scores := make([]float32, c.classes*n)
			for i := range scores {
				scores[i] = r.Float32()
			}
			op := &graph.NonMaxSuppression{Most: c.most, Bound: min(c.classes*c.most, 20000)}
			in := []graph.TensorType{{DType: graph.F32, Shape: []int64{1, n, 4}}, {DType: graph.F32, Shape: []int64{1, c.classes, n}}, {}, {DType: graph.F32}, {}}
			data := [][]byte{kerneltest.BytesOf(boxes), kerneltest.BytesOf(scores), nil, kerneltest.BytesOf([]float32{0.5}), nil}
			if c.least != nil {
				in[4], data[4] = graph.TensorType{DType: graph.F32}, kerneltest.BytesOf(c.least)
			}
			out, err := op.Infer(in)
			if err != nil {
				b.Fatal(err)
			}
			k, err := bindSuppression(op, in, out)
			if err != nil {
				b.Fatal(err)
			}
			results := [][]byte{make([]byte, out[0].Bytes()), make([]byte, 8)}
			scratch := kerneltest.Aligned(k.Scratch())
			for b.Loop() {
				if err := k.Run(tensor.Serial{}, data, results, scratch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(tensor.View[int64](results[1])[0]), "picked")
		})
	}
}
