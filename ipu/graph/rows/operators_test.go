package rows

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// operand is one of an operator's: of that type, with three rows in an axis, or a weight.
type operand struct {
	graph.TensorType
	axis int // -1: none
}

func x(axis int, shape ...int64) operand { return operand{f32(shape...), axis} }
func w(shape ...int64) operand           { return operand{f32(shape...), -1} }
func ix(axis int, shape ...int64) operand {
	return operand{i64(shape...), axis}
}

var none = operand{axis: -1}

func typed(d graph.DType, axis int, shape ...int64) operand {
	return operand{graph.TensorType{DType: d, Shape: shape}, axis}
}

var (
	sigmoid = []string{"Sigmoid", "Tanh", "Tanh"}
	ones    = []int64{1, 1}
	zero2   = []int64{0, 0}
)

// conv is a convolution whose kernels are of k by k.
func conv(group, k int64) *graph.Conv {
	return &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: []int64{k / 2, k / 2}, PadsEnd: []int64{k / 2, k / 2}, Group: group}
}

// slice cuts x of shape [3,4].
func slice(start, size, step []int64) *graph.Slice {
	return &graph.Slice{Start: start, Size: size, Step: step}
}

func lstm(first bool) *graph.LSTM {
	return &graph.LSTM{Hidden: 2, Direction: "forward", Activations: sigmoid, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3), BatchFirst: first}
}

func resize(sizes []int64, scales []float64) *graph.Resize {
	return &graph.Resize{Mode: graph.ResizeLinear, Coordinates: graph.HalfPixel, Sizes: sizes, Scales: scales}
}

// TestOperators: where the rows of an operator's result are, by where those of its operands are.
func TestOperators(t *testing.T) {
	const mixes, differs, refuses = -1, -2, -3
	pool := &graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: zero2, PadsEnd: zero2}
	point := &graph.AveragePool{Kernel: ones, Strides: ones, Dilations: ones, PadsBegin: zero2, PadsEnd: zero2}
	attention := func(causal bool) *graph.Attention {
		return &graph.Attention{Heads: 2, KVHeads: 2, Scale: 1, Causal: causal, Scores: graph.ScoresRaw}
	}
	for i, c := range []struct {
		op     graph.Op
		in     []operand
		result int
		axis   int // of the rows, or mixes, differs or refuses
	}{
		{&graph.Softmax{Axis: 1}, []operand{x(0, 3, 4)}, 0, 0},
		{&graph.Softmax{Axis: 0}, []operand{x(0, 3, 4)}, 0, mixes},
		{&graph.Softmax{Axis: 0}, []operand{x(1, 4, 3)}, 0, 1},
		{&graph.Cumulate{Fn: graph.CumulateSum, Axis: 0}, []operand{x(0, 3, 4)}, 0, mixes},
		{&graph.TopK{Axis: 1, K: 2}, []operand{x(0, 3, 4)}, 1, 0},
		{&graph.TopK{Axis: 0, K: 3}, []operand{x(0, 3, 4)}, 1, mixes},
		{&graph.ArgMax{Axis: 0}, []operand{x(1, 4, 3)}, 0, 0},
		{&graph.ArgMax{Axis: 1}, []operand{x(1, 4, 3)}, 0, mixes},
		{&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0, 2}}, []operand{x(1, 4, 3, 2)}, 0, 0},
		{&graph.LayerNorm{Axis: 1}, []operand{x(0, 3, 4), w(4)}, 0, 0},
		{&graph.LayerNorm{Axis: 0}, []operand{x(0, 3, 4), w(4)}, 0, mixes},
		{&graph.LayerNorm{Axis: 1}, []operand{x(0, 3, 4), w(3, 4)}, 0, differs},
		{&graph.RMSNorm{Axis: 0}, []operand{x(0, 3, 4), w(4)}, 0, mixes},
		{&graph.GroupNorm{Groups: 3}, []operand{x(1, 1, 3, 4), w(3), w(3)}, 0, differs},
		{&graph.GroupNorm{Groups: 3}, []operand{x(1, 1, 3, 4), w(3), w(3)}, 1, 1},
		{&graph.GroupNorm{Groups: 1}, []operand{x(1, 1, 3, 4), w(3), w(3)}, 1, mixes},
		{&graph.BatchNorm{}, []operand{x(0, 3, 4, 2), w(4), w(4), w(4), w(4)}, 0, 0},
		{&graph.BatchNorm{}, []operand{x(1, 4, 3, 2), w(3), w(3), w(3), w(3)}, 0, differs},
		{&graph.LRN{Size: 1}, []operand{x(1, 4, 3, 2)}, 0, mixes},
		{&graph.Det{}, []operand{x(0, 3, 2, 2)}, 0, 0},
		{&graph.Det{}, []operand{x(1, 2, 3, 3)}, 0, mixes},
		{&graph.DFT{Axis: 0, Length: 3}, []operand{x(0, 3, 4, 2)}, 0, mixes},
		{&graph.MatMul{}, []operand{x(0, 3, 4), w(4, 5)}, 0, 0},
		{&graph.MatMul{}, []operand{w(5, 4), x(1, 4, 3)}, 0, 1},
		{&graph.MatMul{}, []operand{x(1, 4, 3), w(3, 5)}, 0, mixes},
		{&graph.MatMul{}, []operand{x(0, 3, 4), x(1, 4, 3)}, 0, mixes},
		{&graph.MatMul{}, []operand{x(0, 3, 2, 4), x(0, 3, 4, 2)}, 0, 0},
		{&graph.MatMul{}, []operand{x(0, 3, 4), w(4)}, 0, 0},
		{&graph.Gemm{TransA: true}, []operand{x(0, 3, 4), w(3, 5)}, 0, mixes},
		{&graph.Gemm{TransA: true}, []operand{x(1, 4, 3), w(4, 5)}, 0, 0},
		{&graph.Gemm{TransB: true}, []operand{w(5, 4), x(0, 3, 4)}, 0, 1},
		{&graph.Gemm{}, []operand{x(0, 3, 4), w(4, 5), w(3, 1)}, 0, differs},
		{conv(1, 3), []operand{x(0, 3, 2, 4, 4), w(2, 2, 3, 3)}, 0, 0},
		{conv(1, 3), []operand{x(2, 1, 2, 3, 4), w(2, 2, 3, 3)}, 0, mixes},
		{conv(1, 1), []operand{x(2, 1, 2, 3, 4), w(2, 2, 1, 1)}, 0, 2},
		{conv(1, 1), []operand{x(1, 1, 3, 4, 4), w(2, 3, 1, 1)}, 0, mixes},
		{conv(1, 1), []operand{x(1, 1, 3, 4, 4), w(3, 3, 1, 1)}, 0, mixes},
		{conv(3, 1), []operand{x(1, 1, 3, 4, 4), w(3, 1, 1, 1)}, 0, differs},
		{pool, []operand{x(0, 3, 2, 4, 4)}, 0, 0},
		{pool, []operand{x(0, 3, 2, 4, 4)}, 1, differs},
		{pool, []operand{x(3, 1, 2, 4, 3)}, 0, mixes},
		{point, []operand{x(3, 1, 2, 4, 3)}, 0, 3},
		{&graph.MaxUnpool{Shape: []int64{3, 1, 4}}, []operand{x(0, 3, 1, 2), ix(0, 3, 1, 2)}, 0, mixes},
		{resize([]int64{3, 8}, []float64{1, 2}), []operand{x(0, 3, 4)}, 0, 0},
		{resize([]int64{6, 4}, []float64{2, 1}), []operand{x(0, 3, 4)}, 0, mixes},
		{&graph.RoiAlign{Mode: graph.RoiAverage, Height: 1, Width: 1, SpatialScale: 1}, []operand{x(0, 3, 2, 4, 4), w(5, 4), operand{i64(5), -1}}, 0, mixes},
		{&graph.RoiAlign{Mode: graph.RoiAverage, Height: 1, Width: 1, SpatialScale: 1}, []operand{w(1, 2, 4, 4), x(0, 3, 4), operand{i64(3), -1}}, 0, differs},
		{&graph.GridSample{Mode: graph.ResizeLinear, Padding: graph.SampleZeros}, []operand{x(0, 3, 1, 4, 4), x(0, 3, 2, 2, 2)}, 0, 0},
		{&graph.GridSample{Mode: graph.ResizeLinear, Padding: graph.SampleZeros}, []operand{x(2, 1, 1, 3, 4), w(1, 2, 2, 2)}, 0, mixes},
		{lstm(false), []operand{x(1, 5, 3, 4), w(1, 8, 4), w(1, 8, 2)}, 0, 2},
		{lstm(false), []operand{x(1, 5, 3, 4), w(1, 8, 4), w(1, 8, 2)}, 1, 1},
		{lstm(false), []operand{x(0, 3, 5, 4), w(1, 8, 4), w(1, 8, 2)}, 0, mixes},
		{lstm(true), []operand{x(0, 3, 5, 4), w(1, 8, 4), w(1, 8, 2)}, 2, 0},
		{lstm(false), []operand{x(1, 5, 3, 4), w(1, 8, 4), w(1, 8, 2), none, none, w(1, 3, 2)}, 0, differs},
		{attention(false), []operand{x(0, 3, 5, 4), x(0, 3, 5, 4), x(0, 3, 5, 4)}, 0, 0},
		{attention(false), []operand{x(1, 1, 3, 4), w(1, 3, 4), w(1, 3, 4)}, 0, mixes},
		{attention(false), []operand{x(0, 3, 2, 5, 4), x(0, 3, 2, 5, 4), x(0, 3, 2, 5, 4), w(3, 1, 5, 5)}, 0, differs},
		{attention(false), []operand{x(0, 3, 2, 5, 4), x(0, 3, 2, 5, 4), x(0, 3, 2, 5, 4), w(2, 5, 5)}, 1, 0},
		{slice([]int64{0, 1}, []int64{3, 2}, []int64{1, 2}), []operand{x(0, 3, 4)}, 0, 0},
		{slice([]int64{1, 0}, []int64{1, 4}, []int64{1, 1}), []operand{x(0, 3, 4)}, 0, mixes},
		{&graph.Pad{Before: []int64{0, 1}, After: zero2, Mode: graph.PadEdge}, []operand{x(0, 3, 4)}, 0, 0},
		{&graph.Pad{Before: []int64{1, 0}, After: []int64{-1, 0}, Mode: graph.PadConstant}, []operand{x(0, 3, 4)}, 0, mixes},
		{&graph.Concat{Axis: 1}, []operand{x(0, 3, 4), w(3, 2)}, 0, differs},
		{&graph.Concat{Axis: 0}, []operand{x(0, 3, 4), w(2, 4)}, 0, mixes},
		{&graph.Gather{Axis: 1}, []operand{x(0, 3, 4), operand{i64(2), -1}}, 0, 0},
		{&graph.Gather{Axis: 0}, []operand{x(0, 3, 4), operand{i64(3), -1}}, 0, mixes},
		{&graph.Gather{Axis: 0}, []operand{w(10, 4), ix(0, 3)}, 0, 0},
		{&graph.Gather{Axis: 0}, []operand{w(0, 4), ix(0, 3)}, 0, refuses},
		{&graph.Gather{Axis: 1}, []operand{x(0, 3, 4), ix(0, 3)}, 0, mixes},
		{&graph.GatherElements{Axis: 1}, []operand{x(0, 3, 4), ix(0, 3, 2)}, 0, 0},
		{&graph.GatherElements{Axis: 0}, []operand{x(0, 3, 4), ix(0, 3, 4)}, 0, mixes},
		{&graph.GatherND{BatchDims: 1}, []operand{x(0, 3, 4), ix(0, 3, 1)}, 0, 0},
		{&graph.GatherND{}, []operand{x(0, 3, 4), operand{i64(3, 2), -1}}, 0, mixes},
		{&graph.ScatterElements{Axis: 1, Fn: graph.ScatterNone}, []operand{x(0, 3, 4), ix(0, 3, 2), x(0, 3, 2)}, 0, 0},
		{&graph.ScatterElements{Axis: 0, Fn: graph.ScatterNone}, []operand{x(0, 3, 4), operand{i64(1, 4), -1}, w(1, 4)}, 0, mixes},
		{&graph.ScatterElements{Axis: 1, Fn: graph.ScatterNone}, []operand{x(0, 3, 4), operand{i64(1, 4), -1}, w(1, 4)}, 0, mixes},
		{&graph.ScatterND{Fn: graph.ScatterNone}, []operand{x(0, 3, 4), operand{i64(1, 1), -1}, w(1, 4)}, 0, mixes},
		{&graph.ScatterND{Fn: graph.ScatterAdd}, []operand{x(1, 4, 3), operand{i64(2, 1), -1}, x(1, 2, 3)}, 0, 1},
		{&graph.OneHot{Axis: 0, Depth: 5}, []operand{ix(0, 3), w(2)}, 0, 1},
		{&graph.TfIdf{MinGram: 1, MaxGram: 1, Counts: []int64{0}, Columns: []int64{0}, Pool: []int64{7}}, []operand{ix(0, 3, 4)}, 0, 0},
		{&graph.TfIdf{MinGram: 1, MaxGram: 1, Counts: []int64{0}, Columns: []int64{0}, Pool: []int64{7}}, []operand{ix(1, 4, 3)}, 0, mixes},
		{&graph.Quantize{Axis: 1, To: graph.I8, Precision: graph.F32}, []operand{x(0, 3, 4), w(4)}, 0, 0},
		{&graph.Quantize{Axis: 0, To: graph.I8, Precision: graph.F32}, []operand{x(0, 3, 4), w(3)}, 0, differs},
		{&graph.Quantize{Axis: 0, To: graph.I8, Precision: graph.F32}, []operand{x(0, 3, 4), x(0, 3)}, 0, 0},
		{&graph.IntegerMatMul{To: graph.I32}, []operand{typed(graph.U8, 0, 3, 4), typed(graph.I8, -1, 4, 5)}, 0, 0},
		{&graph.NonZero{Bound: 4}, []operand{typed(graph.Bool, 0, 3, 4)}, 0, mixes},
	} {
		t.Run(fmt.Sprint(i, " ", c.op.Kind()), func(t *testing.T) {
			b := graph.NewBuilder("operator")
			axes := map[string]int{}
			var in []graph.TensorID
			var steps []graph.Step
			for k, o := range c.in {
				switch {
				case o.DType == graph.Invalid:
					in = append(in, graph.None)
				case o.axis < 0:
					in = append(in, b.AddPersistent("w", o.TensorType))
				default:
					name := fmt.Sprint("x", k)
					id := b.AddLocal(name, o.TensorType)
					in, axes[name] = append(in, id), o.axis
					steps = append(steps, b.CopyIn(name, id))
				}
			}
			g := b.BeginGraph("main")
			out, err := b.Node(c.op, "it", in...)
			require.NoError(t, err)
			b.AddProgram(1, "main", append(steps, b.Call(g), b.CopyOut("y", out[c.result]))...)
			e, err := b.Finish()
			require.NoError(t, err)
			if c.axis >= 0 {
				axes["y"] = c.axis
			}
			err = Independent(e, 1, 3, axes)
			if c.axis >= 0 {
				require.NoError(t, err)
				return
			}
			var f *Finding
			require.ErrorAs(t, err, &f)
			require.Equal(t, map[int]Reason{mixes: Mixes, differs: Differs, refuses: Refuses}[c.axis], f.Reason, "%v", f)
			require.Equal(t, "it", f.Node)
		})
	}
}
