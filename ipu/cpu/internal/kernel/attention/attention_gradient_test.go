package attention

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestAttentionGradient compares single precision with double, in plain Go, whose results the tests of package autodiff
// compare with central differences, on all paths, threads and layouts.
func TestAttentionGradient(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		n := func(lo, hi int64, name string) int64 { return rapid.Int64Range(lo, hi).Draw(t, name) }
		kv := n(1, 3, "kv heads")
		o := &graph.AttentionGradient{
			Heads: kv * n(1, 3, "group"), KVHeads: kv, Scale: 0.25, Softcap: rapid.SampledFrom([]float64{0, 0, 1.5}).Draw(t, "softcap"),
			Causal: rapid.Bool().Draw(t, "causal"), Past: n(0, 3, "past"), Scores: graph.ScoresRaw,
		}
		batch, rows, cols := n(0, 2, "batch"), rapid.SampledFrom([]int64{0, 1, 2, 5, 70}).Draw(t, "rows"), rapid.SampledFrom([]int64{1, 3, 33, 70}).Draw(t, "cols")
		size, width := rapid.SampledFrom([]int64{1, 4, 33}).Draw(t, "size"), rapid.SampledFrom([]int64{1, 8, 35}).Draw(t, "width")
		layout := func(name string, heads, sequence, size int64) graph.TensorType {
			if rapid.Bool().Draw(t, name) {
				return graph.TensorType{DType: graph.F32, Shape: []int64{batch, sequence, heads * size}}
			}
			return graph.TensorType{DType: graph.F32, Shape: []int64{batch, heads, sequence, size}}
		}
		in := []graph.TensorType{layout("q", o.Heads, rows, size), layout("k", kv, cols, size), layout("v", kv, cols, width), {}, {},
			{DType: graph.F32, Shape: []int64{batch, o.Heads, rows, width}}}
		if len(in[0].Shape) == 3 {
			in[gradientDY].Shape = []int64{batch, rows, o.Heads * width}
		}
		src := &kerneltest.Source{R: kerneltest.DrawSource(t).R}
		data := make([][]byte, len(in))
		for _, i := range []int{0, 1, 2, gradientDY} {
			data[i] = src.Tensor(in[i])
		}
		if kind := rapid.SampledFrom([]string{"none", "bool", "float"}).Draw(t, "bias"); kind != "none" {
			in[3] = graph.TensorType{DType: graph.F32, Shape: kerneltest.DrawBroadcast(t, []int64{batch, o.Heads, rows, cols})}
			if kind == "bool" {
				in[3].DType = graph.Bool
			}
			elems := make([]kerneltest.Elem, tensor.Elements(in[3].Shape))
			for i := range elems {
				elems[i].F, elems[i].I = src.R.Float64(), 1
				if src.R.IntN(2) == 0 {
					elems[i].F, elems[i].I = math.Inf(-1), 0
				}
			}
			data[3] = kerneltest.Store(in[3].DType, elems)
		}
		if rapid.Bool().Draw(t, "lengths") {
			in[4] = graph.TensorType{DType: graph.I64, Shape: []int64{batch}}
			elems := make([]kerneltest.Elem, batch)
			for i := range elems {
				elems[i].I = n(0, cols, "length")
			}
			data[4] = kerneltest.Store(graph.I64, elems)
		}
		out, got := run(t, o, in, data)

		wide, numbers := make([]graph.TensorType, len(in)), make([][]byte, len(in))
		for i, tt := range in {
			wide[i], numbers[i] = tt, data[i]
			if tt.DType == graph.F32 {
				wide[i].DType = graph.F64
				numbers[i] = kerneltest.Store(graph.F64, kerneltest.Load(graph.F32, data[i]))
			}
		}
		types, want := run(t, o, wide, numbers)
		for i := range out {
			values := kerneltest.Values(types[i], want[i])
			wanted := make([]kerneltest.Wanted, len(values))
			for j, v := range values {
				wanted[j] = kerneltest.Wanted{Value: v, Size: 16 + float64(width+o.Heads*rows) + math.Abs(v)}
			}
			kerneltest.CompareSums(t, o, out[i], got[i], wanted)
		}
	})
}

// TestAttentionGradientLeavesOutResults: each result is the same by itself, runs allocate nothing, and lengths beyond K are refused.
func TestAttentionGradientLeavesOutResults(t *testing.T) {
	o := &graph.AttentionGradient{Heads: 4, KVHeads: 2, Scale: 0.5, Softcap: 2, Scores: graph.ScoresRaw}
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }
	in := []graph.TensorType{of(2, 5, 12), of(2, 7, 6), of(2, 7, 8), {}, {DType: graph.I64, Shape: []int64{2}}, of(2, 5, 16)}
	src := &kerneltest.Source{R: kerneltest.Seeded(3)}
	data := make([][]byte, len(in))
	for i, tt := range in {
		data[i] = src.Tensor(tt)
	}
	data[4] = kerneltest.Store(graph.I64, []kerneltest.Elem{{I: 7}, {I: 3}})
	out, want := run(t, o, in, data)
	k, err := newKernel(o, in, out)
	require.NoError(t, err)
	scratch := kerneltest.Aligned(k.Scratch())
	for i := range want {
		got := make([][]byte, len(want))
		got[i] = kerneltest.Aligned(len(want[i]))
		require.NoError(t, k.Run(tensor.Serial{}, data, got, scratch))
		require.Equal(t, want[i], got[i], "result %d", i)
	}
	require.Zero(t, testing.AllocsPerRun(3, func() { _ = k.Run(kerneltest.InTurn(4), data, want, scratch) }))
	data[4] = kerneltest.Store(graph.I64, []kerneltest.Elem{{I: 1}, {I: 8}})
	require.ErrorContains(t, k.Run(tensor.Serial{}, data, want, scratch), "lengths[1] is 8, want 0 to 7")
}
