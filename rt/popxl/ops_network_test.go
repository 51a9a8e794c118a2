package popxl_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestImagesSequencesAndBytes: operators of images, of sequences and of 8-bit numbers, with values that follow from their definitions.
func TestImagesSequencesAndBytes(t *testing.T) {
	ir := popxl.New("networks")
	a := &answers{ir, map[string][]float64{}, map[string][2][]int64{}}
	x := popxl.NewInput[float32](ir, "x", 1, 1, 2, 3).Load() // [[5 1 4] [2 6 3]]
	c := func(v ...float32) popxl.Tensor[float32] { return popxl.Constant(ir, v, int64(len(v))) }
	row := ops.Reshape(x, 1, 1, 6)

	// Elements i·2 + k of the result get x[i]·w[k]; one is cut off in front, one is added behind.
	want(a, "conv_transpose", ops.ConvTranspose(row, popxl.Constant(ir, []float32{1, 10}, 1, 1, 2), 1, ops.Window{Strides: []int64{2}, Begin: []int64{1}}, []int64{1}),
		[]int64{1, 1, 12}, 50, 1, 10, 4, 40, 2, 20, 6, 60, 3, 30, 0)
	want(a, "nearest", ops.Interpolate(x, []float64{1, 1, 2, 1}, ops.Interpolation{}), []int64{1, 1, 4, 3}, 5, 1, 4, 5, 1, 4, 2, 6, 3, 2, 6, 3)
	want(a, "linear", ops.Interpolate(x, []float64{1, 1, 1, 5. / 3}, ops.Interpolation{Mode: graph.ResizeLinear, Coordinates: graph.AlignCorners}),
		[]int64{1, 1, 2, 5}, 5, 3, 1, 2.5, 4, 2, 4, 6, 4.5, 3)
	// The cell from (0, 0) to (1, 2) has samples at y = ½ and x = ½ and 1½, those of the half scale.
	rois := popxl.Constant(ir, []float32{0, 0, 4, 2}, 1, 4)
	want(a, "roi_align", ops.RoiAlign(x, rois, popxl.Constant(ir, []int32{0}, 1), 1, 2, 1, 0.5), []int64{1, 1, 1, 2}, (5.+1+2+6)/4, (1.+4+6+3)/4)
	want(a, "normalize_image", ops.NormalizeImage(popxl.Constant(ir, []uint8{10, 20, 30, 40, 50, 60}, 2, 3), c(1, 2, 3), c(1, 10, 100), 0.1), []int64{2, 4}, 0, 0, 0, 0, 3, 30, 300, 0)

	want(a, "scatter_reduce", ops.ScatterReduce(ops.Reshape(x, 2, 3), popxl.Constant(ir, []int32{2, 0, 2}, 3), 1, 3, graph.ScatterAdd), []int64{2, 3}, 1, 0, 9, 6, 0, 5)
	want(a, "scatter_max", ops.ScatterReduce(ops.Reshape(x, 6), popxl.Constant(ir, []int64{1, 0, 1, 0, 0, 1}, 6), 0, 2, graph.ScatterMax), []int64{2}, 6, 5)
	want(a, "scatter_prod", ops.ScatterReduce(ops.Reshape(x, 6), popxl.Constant(ir, []int64{1, 0, 1, 0, 0, 1}, 6), 0, 3, graph.ScatterMul), []int64{3}, 12, 60, 1)
	groups := popxl.Constant(ir, []int32{1, 0, 1, 2}, 2, 2)
	want(a, "grouped_gather", ops.GroupedGather(ops.Reshape(x, 2, 3), groups, 1), []int64{2, 2}, 1, 5, 6, 3)
	want(a, "grouped_gather_last", ops.GroupedGather(ops.Reshape(ops.Concat(-1, row, ops.Negate(row)), 2, 2, 3), groups, -1), []int64{2, 2, 2}, 1, 5, 6, 2, -1, -4, -6, -3)
	want(a, "tied_gather", ops.TiedGather(ops.Reshape(x, 2, 3), popxl.Constant(ir, []int32{1}, 1), 0), []int64{1, 3}, 2, 6, 3)
	want(a, "lamb_square", ops.LambSquare(ops.Cast[num.Float16](x)), []int64{}, 91)
	want(a, "histogram", ops.Histogram(x, []float64{2, 4.5, 9}, false), []int64{4}, 1, 3, 2, 0)
	want(a, "histogram_absolute", ops.Histogram(ops.Sub(x, c(4)), []float64{0, 1, 3}, true), []int64{4}, 0, 1, 4, 1)
	want(a, "init", ops.Init[float32](ir, 2), []int64{2}, 0, 0)

	labels := popxl.Constant(ir, []int32{0, 1, 2, 7}, 4)
	probs := popxl.Constant(ir, []float32{0.5, 0.25, 0.25, 0.5, 0.25, 0.25, 0.25, 0.25, 0.5, 0.25, 0.25, 0.5}, 4, 3)
	loss, grad := ops.NLLLossWithSoftmaxGrad(probs, labels, popxl.Constant(ir, []float32{6}), ops.IgnoreIndex(7))
	want(a, "nll_loss", loss, []int64{}, (math.Ln2+2*math.Ln2+math.Ln2)/3)
	want(a, "nll_grad", grad, []int64{4, 3}, -1, 0.5, 0.5, 1, -1.5, 0.5, 0.5, 0.5, -1, 0, 0, 0)
	_, grad = ops.NLLLossWithSoftmaxGrad(ops.Slice(probs, 0, 0, 2, 1), ops.Slice(labels, 0, 0, 2, 1), c(2, 4), ops.Reduce(optim.None))
	want(a, "nll_grad_each", grad, []int64{2, 3}, -1, 0.5, 0.5, 2, -3, 1)

	log2 := func(v int32) popxl.Tensor[int32] { return popxl.Constant(ir, []int32{v}) }
	small := ops.Pow2ScaleCastToFP8[num.Float8E4M3](ops.Reshape(x, 2, 3), log2(-1))
	wide := ops.Pow2ScaleCastToFP8[num.Float8E5M2](c(16, 1.1, 3), log2(0)) // 1.1 becomes 1
	want(a, "from_fp8", ops.Pow2ScaleCastFromFP8[float32](small, log2(3)), []int64{2, 3}, 20, 4, 16, 8, 24, 12)
	want(a, "matmul_fp8", ops.MatMulPow2Scaled(small, wide, log2(-1)), []int64{2}, (5*16+1+4*3)/4., (2*16+6+3*3)/4.)
	want(a, "conv_fp8", ops.ConvPow2Scaled(ops.Pow2ScaleCastToFP8[num.Float8E4M3](row, log2(0)), ops.Pow2ScaleCastToFP8[num.Float8E4M3](popxl.Constant(ir, []float32{1, -2}, 1, 1, 2), log2(0)), log2(1), 1, ops.Window{}),
		[]int64{1, 1, 5}, 6, -14, 0, -20, 0)

	sequence(a)
	a.compare(t, map[string]any{"x": []float32{5, 1, 4, 2, 6, 3}, "sequence": sequenceIn})
}

// Of an LSTM with a batch of 1, two steps, one input and two hidden elements.
var (
	sequenceIn    = []float32{0.5, -1}
	gates, recurs = []float32{0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}, []float32{0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.4, -0.4, 0.5, -0.5, 0.6, -0.6, 0.7, -0.7, 0.8, -0.8}
	biases        = []float32{0, 0.1, 0, 0.1, 0, 0.1, 0, 0.1}
)

// sequence adds an LSTM and what the formulas make of the same numbers.
func sequence(a *answers) {
	x := popxl.NewInput[float32](a.ir, "sequence", 2, 1, 1).Load()
	w, r := popxl.Constant(a.ir, gates, 8, 1), popxl.Constant(a.ir, recurs, 8, 2)
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	for _, full := range []bool{true, false} {
		var bias popxl.Tensor[float32]
		begin := ops.LSTMState[float32]{}
		h, c, name, steps := []float64{0, 0}, []float64{0, 0}, "lstm_plain", 2
		if full {
			bias, name, steps = popxl.Constant(a.ir, biases, 8), "lstm", 1
			begin.Hidden, begin.Cell = popxl.Constant(a.ir, []float32{0.5, -0.5}, 1, 2), popxl.Constant(a.ir, []float32{1, 2}, 1, 2)
			begin.Lengths = popxl.Constant(a.ir, []int32{1}, 1)
			h, c = []float64{0.5, -0.5}, []float64{1, 2}
		}
		var all []float64
		for s := range 2 {
			if s >= steps {
				all = append(all, 0, 0)
				continue
			}
			gate := func(g, k int) float64 {
				row := g*2 + k
				v := float64(gates[row])*float64(sequenceIn[s]) + float64(recurs[2*row])*h[0] + float64(recurs[2*row+1])*h[1]
				if full {
					v += float64(biases[row])
				}
				return v
			}
			next, cell := make([]float64, 2), make([]float64, 2)
			for k := range 2 {
				cell[k] = sigmoid(gate(2, k))*c[k] + sigmoid(gate(0, k))*math.Tanh(gate(3, k))
				next[k] = sigmoid(gate(1, k)) * math.Tanh(cell[k])
			}
			h, c = next, cell
			all = append(all, h...)
		}
		y, last := ops.LSTM(x, w, r, bias, begin)
		want(a, name, y, []int64{2, 1, 2}, all...)
		want(a, name+"_cell", last, []int64{1, 2}, c...)
	}
}

// TestMistakesOfImages: what does not fit is an error that says what was found and what is wanted.
func TestMistakesOfImages(t *testing.T) {
	ir := popxl.New("mistakes")
	x := popxl.NewInput[float32](ir, "x", 2, 3).Load()
	image := ops.Reshape(x, 1, 1, 2, 3)
	i := popxl.Constant(ir, []int32{0}, 1)
	var none popxl.Tensor[float32]
	for _, tt := range []struct {
		call func()
		text string
	}{
		{func() { ops.ConvTranspose(image, image, 1, ops.Window{}, []int64{1}) }, "ops.ConvTranspose: there are not as many numbers as spatial axes"},
		{func() { ops.ConvTranspose(image, x, 1, ops.Window{}, nil) }, "ops.ConvTranspose: weights are [2,3] and x is [1,1,2,3], want as many sizes"},
		{func() { ops.ConvTranspose(image, image, 1, ops.Window{Strides: []int64{1, math.MaxInt64}}, nil) }, "ops.ConvTranspose: spatial axis 1: a stride of 9223372036854775807 and a dilation of 1, want 1 to"},
		{func() { ops.ConvTranspose(image, image, 1, ops.Window{End: []int64{9, 9}}, nil) }, "ops.ConvTranspose: attribute Output"},
		{func() { ops.Interpolate(x, []float64{1}, ops.Interpolation{}) }, "ops.Interpolate: 1 factors, want the 2 of x, which is [2,3]"},
		{func() { ops.Interpolate(x, []float64{1, math.NaN()}, ops.Interpolation{}) }, "ops.Interpolate: factor NaN of axis 1"},
		{func() { ops.RoiAlign(x, x, i, 1, 1, 1, 1) }, "ops.RoiAlign: x is f32[2,3]"},
		{func() { ops.NormalizeImage(x, x, x, 1) }, "ops.NormalizeImage: x is [2,3], offsets [2,3] and factors [2,3], want three colours"},
		{func() { ops.ScatterReduce(x, i, 0, 0, graph.ScatterAdd) }, "ops.ScatterReduce: 0 elements along axis 0, want at least 1"},
		{func() { ops.ScatterReduce(x, i, 0, 4, graph.ScatterAdd) }, "ops.ScatterReduce: "},
		{func() { ops.GroupedGather(x, i, 0) }, "ops.GroupedGather: x is [2,3], indices are [1] and the axis is 0, want as many groups"},
		{func() { ops.Histogram(x, []float64{1, 1}, false) }, "ops.Histogram: level 1 is 1, want numbers that ascend"},
		{func() { ops.LSTM(x, x, x, none, ops.LSTMState[float32]{}) }, "ops.LSTM: operand X is f32[2,3], want 3 dimensions"},
		{func() { ops.Init[float32](ir, -1) }, "ops.Init: "},
		{func() { ops.NLLLossWithSoftmaxGrad(x, i, popxl.Constant(ir, []float32{1})) }, "ops.NLLLoss: "},
	} {
		before := len(errors(ir))
		tt.call()
		all := errors(ir)
		require.Len(t, all, before+1, tt.text)
		require.ErrorContains(t, all[before], tt.text)
	}
	// What follows from a call that failed, or from no tensor, adds nothing and does not panic.
	before := len(errors(ir))
	bad := ops.MatMul(x, x)
	n := popxl.Failed[int32](ir)
	ops.ConvTranspose(bad, x, 1, ops.Window{}, nil)
	ops.Interpolate(bad, nil, ops.Interpolation{})
	ops.RoiAlign(bad, bad, n, 1, 1, 1, 1)
	ops.NormalizeImage(bad, bad, bad, 1)
	ops.ScatterReduce(bad, n, 0, 1, graph.ScatterAdd)
	ops.GroupedGather(bad, n, 0)
	ops.TiedGather(bad, n, 0)
	ops.LambSquare(bad)
	ops.Histogram(bad, nil, true)
	ops.LSTM(bad, bad, bad, bad, ops.LSTMState[float32]{Hidden: bad, Cell: bad, Lengths: n})
	ops.NLLLossWithSoftmaxGrad(bad, n, bad)
	ops.MatMulPow2Scaled(ops.Pow2ScaleCastToFP8[num.Float8E5M2](bad, n), popxl.Failed[num.Float8E5M2](ir), n)
	require.Len(t, errors(ir), before+1)
	ops.LSTM(none, none, none, none, ops.LSTMState[float32]{})
	ops.ConvTranspose(none, none, 1, ops.Window{}, nil)
	ops.Histogram(none, nil, false)
	ops.LambSquare(none)
	ops.NormalizeImage(none, none, none, 1)
	ops.Init[float32](nil, 2)
	require.Len(t, errors(ir), before+1)
}
