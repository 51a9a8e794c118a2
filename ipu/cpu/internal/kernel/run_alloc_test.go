package kernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/kerneltest"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

func TestRunAllocatesNothing(t *testing.T) {
	shape, row, one := []int64{4, 30, 10}, []int64{30, 1}, []int64{}
	of := func(d graph.DType, shapes ...[]int64) (in []graph.TensorType) {
		for _, s := range shapes {
			in = append(in, graph.TensorType{DType: d, Shape: s})
		}
		return in
	}
	type testCase struct {
		op graph.Op
		in []graph.TensorType
	}
	var cases []testCase
	add := func(op graph.Op, in []graph.TensorType) { cases = append(cases, testCase{op, in}) }
	for _, d := range []graph.DType{graph.F16, graph.BF16, graph.F32, graph.F64} {
		for _, fn := range kerneltest.UnaryFns {
			add(&graph.Unary{Fn: fn}, of(d, shape))
		}
		for _, fn := range kerneltest.ReduceFns {
			add(&graph.Reduce{Fn: fn, Axes: []int64{1}}, of(d, shape))
			add(&graph.Reduce{Fn: fn, Axes: []int64{0, 2}}, of(d, shape))
		}
		for _, fn := range []graph.BinaryFn{graph.Add, graph.Div, graph.Pow, graph.Less} {
			add(&graph.Binary{Fn: fn}, of(d, shape, shape))
			add(&graph.Binary{Fn: fn}, of(d, shape, row))
			add(&graph.Binary{Fn: fn}, of(d, one, shape))
		}
		add(&graph.Clip{}, of(d, shape, one, one))
	}
	for _, from := range kerneltest.AllTypes {
		for _, to := range kerneltest.AllTypes {
			add(&graph.Cast{To: to}, of(from, shape))
		}
		add(&graph.Where{}, append(of(graph.Bool, row), of(from, shape, one)...))
		add(&graph.Reshape{Shape: []int64{1200}}, of(from, shape))
		add(&graph.Transpose{Perm: []int64{2, 0, 1}}, of(from, shape))
		add(&graph.Slice{Start: []int64{3, 29, 0}, Size: []int64{2, 10, 5}, Step: []int64{-1, -2, 2}}, of(from, shape))
		add(&graph.Expand{Shape: shape}, of(from, row))
		add(&graph.Concat{Axis: 1}, of(from, shape, shape))
		add(&graph.Pad{Mode: graph.PadReflect, Before: []int64{1, 2, 3}, After: []int64{0, -1, 2}}, of(from, shape))
		add(&graph.Gather{Axis: 1}, append(of(from, shape), of(graph.I64, row)...))
	}
	for _, d := range []graph.DType{graph.I8, graph.F32} {
		add(&graph.ArgMax{Axis: 1}, of(d, shape))
		add(&graph.ArgMax{Axis: 2, Min: true, Last: true}, of(d, shape))
		add(&graph.TopK{Axis: 1, K: 7}, of(d, shape))
		add(&graph.Cumulate{Fn: graph.CumulateProd, Axis: 1}, of(d, shape))
		add(&graph.Unique{}, of(d, shape))
	}
	for _, d := range []graph.DType{graph.F16, graph.F32, graph.U8} {
		index := of(graph.I64, shape)[0]
		add(&graph.GatherElements{Axis: 1}, append(of(d, shape), index))
		add(&graph.ScatterElements{Axis: 1, Fn: graph.ScatterNone}, append(of(d, shape), index, of(d, shape)[0]))
		add(&graph.ScatterElements{Axis: 2, Fn: graph.ScatterAdd}, append(of(d, shape), index, of(d, shape)[0]))
		add(&graph.GatherND{BatchDims: 1}, append(of(d, shape), of(graph.I32, []int64{4, 9, 1})...))
		add(&graph.ScatterND{Fn: graph.ScatterMax}, append(of(d, shape), of(graph.I32, []int64{9, 1})[0], of(d, []int64{9, 30, 10})[0]))
		add(&graph.OneHot{Axis: 1, Depth: 5}, append(of(graph.I32, shape), of(d, []int64{2})...))
		add(&graph.Mod{}, of(d, shape, row))
	}
	add(&graph.AssertLabels{Classes: 3}, of(graph.I32, shape))
	random := append(of(graph.U32, []int64{2}), of(graph.I64, one)...)
	add(&graph.Random{Fn: graph.RandomNormal, B: 1, To: graph.F16, Shape: shape}, random)
	add(&graph.Random{Fn: graph.RandomUniform, B: 1, To: graph.F32, Shape: shape}, random)
	for _, d := range []graph.DType{graph.F16, graph.F32, graph.F64} {
		none, wide := graph.TensorType{}, graph.F32
		if d == graph.F64 {
			wide = d
		}
		state := of(wide, shape)[0]
		add(&graph.Update{Rule: graph.UpdateLamb, Values: make([]float64, 7)}, append(of(d, shape, shape), none, none, none, state, state, of(graph.F32, one)[0]))
		add(&graph.Update{Rule: graph.UpdateCentredRMSProp, Momentum: true, Values: make([]float64, 6)}, append(of(d, shape, shape), none, none, none, state, state, state))
		add(&graph.Update{Rule: graph.UpdateNesterov, Values: make([]float64, 8)}, append(of(d, shape, shape), none, none, none, state))
	}
	for _, d := range []graph.DType{graph.F16, graph.F32, graph.F64} {
		whole, column := []int64{2, 4, 20, 30}, []int64{4}
		half := []int64{2, 4, 10, 15}
		two, none := []int64{2, 2}, []int64{0, 0}
		add(graph.GradientOf(&graph.MaxPool{Kernel: two, Strides: two, Dilations: []int64{1, 1}, PadsBegin: none, PadsEnd: none}), of(d, half, whole))
		add(graph.GradientOf(&graph.MaxPool{Kernel: []int64{3, 3}, Strides: two, Dilations: []int64{1, 1}, PadsBegin: []int64{1, 1}, PadsEnd: none}), of(d, half, whole))
		add(graph.GradientOf(&graph.AveragePool{Kernel: two, Strides: two, Dilations: []int64{1, 1}, PadsBegin: none, PadsEnd: none}), of(d, half, whole))
		add(graph.GradientOf(&graph.LayerNorm{Axis: 3, Epsilon: 1}), of(d, whole, whole, whole[3:], whole[3:]))
		add(graph.GradientOf(&graph.GroupNorm{Groups: 2, Epsilon: 1}), of(d, whole, whole, column, column))
		add(graph.GradientOf(&graph.Softmax{Axis: 3}), of(d, whole, whole))
		add(graph.GradientOf(&graph.Softmax{Axis: 1, Log: true}), of(d, whole, whole))
	}
	add(&graph.NonZero{Bound: 700}, of(graph.Bool, shape))
	add(&graph.NonMaxSuppression{Most: 20, Bound: 500}, of(graph.F32, []int64{2, 500, 4}, []int64{2, 9, 500}))
	add(&graph.Bitwise{Fn: graph.BitXor}, of(graph.U8, shape, row))
	add(&graph.BitCast{To: graph.I32}, of(graph.F32, shape))
	add(&graph.Field{Handle: "h2d_x", Offset: 4, To: graph.F32, Shape: []int64{9}}, of(graph.U64, shape))
	add(&graph.TfIdf{MinGram: 1, MaxGram: 1, Counts: []int64{0}, Columns: []int64{0}, Pool: []int64{0}}, of(graph.I32, []int64{40, 30}))
	for _, d := range []graph.DType{graph.F16, graph.F32, graph.I32} {
		add(&graph.Quantize{To: graph.I8, Precision: graph.F32}, append(of(d, shape), of(graph.F32, one)...))
		add(&graph.Quantize{Axis: 1, To: graph.U4, Precision: graph.F16}, append(of(d, shape), of(graph.F16, []int64{30})...))
	}
	add(&graph.Dequantize{Axis: 2, Block: 3, To: graph.F16}, append(of(graph.I8, shape), of(graph.F32, []int64{4, 30, 4})...))
	add(&graph.Dequantize{To: graph.F32}, append(of(graph.I32, shape), of(graph.F32, one)[0], of(graph.I32, one)[0]))
	add(&graph.Reduce{Fn: graph.ReduceMax, Axes: []int64{1, 2}}, of(graph.Bool, shape))
	add(&graph.Reduce{Fn: graph.ReduceMean, Axes: []int64{1, 2}}, of(graph.U8, shape))
	for _, c := range cases {
		out, err := c.op.Infer(c.in)
		require.NoError(t, err)
		k, err := New(c.op, c.in, out)
		require.NoError(t, err)
		var data [][]byte
		for _, tt := range c.in {
			if tt.DType == graph.Invalid {
				data = append(data, nil)
				continue
			}
			data = append(data, kerneltest.Aligned(tensor.Elements(tt.Shape)*tt.DType.Size()))
		}
		var results [][]byte
		for _, tt := range out {
			results = append(results, kerneltest.Aligned(tensor.Elements(tt.Shape)*tt.DType.Size()))
		}
		scratch := kerneltest.Aligned(k.Scratch())
		for _, p := range []tensor.Pool{tensor.Serial{}, kerneltest.InTurn(4)} {
			n := testing.AllocsPerRun(2, func() {
				if err := k.Run(p, data, results, scratch); err != nil {
					t.Fatal(err)
				}
			})
			require.Zerof(t, n, "%s %+v of %v with %d workers", c.op.Kind(), c.op, c.in, p.Workers())
		}
	}
}
