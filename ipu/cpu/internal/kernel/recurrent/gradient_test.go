package recurrent

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// gradientOperands returns the types of all operands of a RecurrentGradient.
func gradientOperands(o *graph.RecurrentGradient, d graph.DType, steps, batch, input int64) []graph.TensorType {
	of := func(shape ...int64) graph.TensorType { return graph.TensorType{DType: d, Shape: shape} }
	dirs, h := int64(1), o.Hidden
	if o.Direction == "bidirectional" {
		dirs = 2
	}
	gates := int64(cellKinds[gradientCells[o.Cell]].gates)
	x, y, state := of(steps, batch, input), of(steps, dirs, batch, h), of(dirs, batch, h)
	if o.BatchFirst {
		x, y, state = of(batch, steps, input), of(batch, steps, dirs, h), of(batch, dirs, h)
	}
	in := []graph.TensorType{x, of(dirs, gates*h, input), of(dirs, gates*h, h), of(dirs, 2*gates*h),
		{DType: graph.I32, Shape: []int64{batch}}, state, {}, y, y, state, {}}
	if o.Cell == "lstm" {
		in[recurrentC], in[gradientDC] = state, state
	}
	return in
}

// gradientData draws numbers for the operands, for which Y is computed.
func gradientData(t kerneltest.Fataler, src *kerneltest.Source, o *graph.RecurrentGradient, in []graph.TensorType, steps int64) [][]byte {
	data := make([][]byte, len(in))
	for i, tt := range in {
		if tt.DType == graph.Invalid {
			continue
		}
		data[i] = src.Tensor(tt)
		elems := kerneltest.Load(tt.DType, data[i])
		for j := range elems {
			switch i {
			case recurrentW, recurrentR:
				elems[j].F /= 4 * math.Sqrt(1+float64(in[recurrentW].Shape[2]+o.Hidden)/8)
			case recurrentLens:
				elems[j].I = int64(src.R.IntN(int(steps) + 1))
			}
		}
		data[i] = kerneltest.Store(tt.DType, elems)
	}
	n := recurrentP
	if o.Cell != "lstm" {
		n = recurrentC
	}
	_, out := run(t, o.Forward(), in[:n], data[:n])
	data[gradientY] = out[0]
	return data
}

// TestRecurrentGradient compares single precision with double, in plain Go, whose results the tests of package autodiff
// compare with central differences, on all paths, threads and layouts.
func TestRecurrentGradient(t *testing.T) {
	kerneltest.CheckPaths(t, func(t *rapid.T) {
		o := &graph.RecurrentGradient{
			Cell:       rapid.SampledFrom([]string{"lstm", "gru", "linear gru", "rnn"}).Draw(t, "cell"),
			Hidden:     rapid.SampledFrom([]int64{1, 2, 5, 8, 31, 33, 40, 70}).Draw(t, "hidden"),
			Direction:  rapid.SampledFrom([]string{"forward", "reverse", "bidirectional"}).Draw(t, "direction"),
			BatchFirst: rapid.Bool().Draw(t, "batch first"),
		}
		steps, batch := rapid.Int64Range(0, 7).Draw(t, "steps"), rapid.SampledFrom([]int64{0, 1, 2, 3, 7, 13}).Draw(t, "batch")
		input := rapid.SampledFrom([]int64{0, 1, 3, 33}).Draw(t, "input")
		in := gradientOperands(o, graph.F32, steps, batch, input)
		for i := range in {
			if i > recurrentR && i != gradientY && rapid.IntRange(0, 3).Draw(t, "left out") == 0 {
				in[i] = graph.TensorType{}
			}
		}
		data := gradientData(t, &kerneltest.Source{R: kerneltest.DrawSource(t).R}, o, in, steps)
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
				wanted[j] = kerneltest.Wanted{Value: v, Size: 16 + float64(steps*batch) + 4*math.Abs(v)}
			}
			kerneltest.CompareSums(t, o, out[i], got[i], wanted)
		}
	})
}

// TestRecurrentGradientLeavesOutResults: each result is the same by itself, and lengths beyond X are refused.
func TestRecurrentGradientLeavesOutResults(t *testing.T) {
	for _, cell := range []string{"lstm", "gru", "linear gru", "rnn"} {
		o := &graph.RecurrentGradient{Cell: cell, Hidden: 5, Direction: "bidirectional"}
		in := gradientOperands(o, graph.F32, 4, 3, 2)
		data := gradientData(t, &kerneltest.Source{R: kerneltest.Seeded(3)}, o, in, 4)
		out, want := run(t, o, in, data)
		k, err := newKernel(o, in, out)
		require.NoError(t, err)
		scratch := kerneltest.Aligned(k.Scratch())
		for i := range want {
			got := make([][]byte, len(want))
			got[i] = kerneltest.Aligned(len(want[i]))
			require.NoError(t, k.Run(tensor.Serial{}, data, got, scratch))
			require.Equal(t, want[i], got[i], "result %d of %s", i, cell)
		}
		require.Zero(t, testing.AllocsPerRun(3, func() { _ = k.Run(kerneltest.InTurn(4), data, want, scratch) }))
		data[recurrentLens] = kerneltest.Store(graph.I32, []kerneltest.Elem{{I: 1}, {I: 5}, {I: 2}})
		require.ErrorContains(t, k.Run(tensor.Serial{}, data, want, scratch), "sequence_lens[1] is 5, want 0 to 4")
	}
}
