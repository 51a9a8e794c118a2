package popxl_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// answers are outputs with what they have to be, by definition.
type answers struct {
	ir     *popxl.Ir
	wanted map[string][]float64
	sizes  map[string][2][]int64 // that are wanted, and that are there
}

// want makes an output of y, of these sizes.
func want[T popxl.Number](a *answers, name string, y popxl.Tensor[T], sizes []int64, values ...float64) {
	popxl.NewOutput(name, ops.Cast[float64](y))
	a.wanted[name], a.sizes[name] = values, [2][]int64{sizes, y.Shape()}
}

// compare runs the graph.
func (a *answers) compare(t *testing.T, inputs map[string]any) {
	t.Helper()
	got := run(t, a.ir, inputs)
	for name, w := range a.wanted {
		require.Equal(t, a.sizes[name][0], a.sizes[name][1], name)
		values := decode[float64](t, got[name])
		require.Len(t, values, len(w), name)
		for i, v := range values {
			require.InDelta(t, w[i], v, 1e-5*max(1, math.Abs(w[i])), "%s[%d]", name, i)
		}
	}
}

func number(b popxl.Tensor[bool]) popxl.Tensor[float32] { return ops.Cast[float32](b) }

// TestElementOperators: functions of elements and of pairs of them, with values that follow from their definitions.
func TestElementOperators(t *testing.T) {
	ir := popxl.New("elements")
	a := &answers{ir, map[string][]float64{}, map[string][2][]int64{}}
	x := popxl.NewInput[float32](ir, "x", 4).Load()
	odd := popxl.NewInput[float32](ir, "odd", 5).Load()
	n := popxl.NewInput[uint8](ir, "n", 2).Load()
	half := popxl.Constant(ir, []num.Float16{num.Float16From(8)}, 1)
	c := func(v ...float32) popxl.Tensor[float32] { return popxl.Constant(ir, v, int64(len(v))) }
	one := func(v float32) popxl.Tensor[float32] { return popxl.Constant(ir, []float32{v}) }
	in := []float64{-1.5, 0.5, 2.5, 3}
	four, five, two := []int64{4}, []int64{5}, []int64{2}
	sigmoid := func(v float64) float64 { return 1 / (1 + math.Exp(-v)) }
	want(a, "sigmoid", ops.Sigmoid(x), four, sigmoid(in[0]), sigmoid(in[1]), sigmoid(in[2]), sigmoid(in[3]))
	want(a, "swish", ops.Swish(x), four, in[0]*sigmoid(in[0]), in[1]*sigmoid(in[1]), in[2]*sigmoid(in[2]), in[3]*sigmoid(in[3]))
	want(a, "round", ops.Round(x), four, -2, 0, 2, 3)
	want(a, "log2", ops.Log2(c(8, 0.25, 1)), []int64{3}, 3, -2, 0)
	want(a, "log2_half", ops.Cast[float32](ops.Log2(half)), []int64{1}, 3)
	want(a, "isnan", number(ops.IsNaN(odd)), five, 0, 1, 0, 0, 0)
	want(a, "isinf", number(ops.IsInf(odd)), five, 0, 0, 1, 1, 0)
	want(a, "isfinite", number(ops.IsFinite(odd)), five, 1, 0, 0, 0, 1)
	want(a, "isinf_half", number(ops.IsInf(half)), []int64{1}, 0)
	want(a, "greater_equal", number(ops.GreaterEqual(x, one(2.5))), four, 0, 0, 1, 1)
	want(a, "less", number(ops.Less(x, one(2.5))), four, 1, 1, 0, 0)
	want(a, "less_equal", number(ops.LessEqual(x, one(2.5))), four, 1, 1, 1, 0)
	want(a, "fmod", ops.Fmod(x, one(2)), four, -1.5, 0.5, 0.5, 1)
	want(a, "increment_mod", ops.IncrementMod(n, popxl.Constant(ir, []uint8{3}), popxl.Constant(ir, []uint8{8})), two, (0b110011+3)%8, (0b101+3)%8)
	want(a, "scaled_add", ops.ScaledAdd(x, c(1, 2, 3, 4), one(2), one(-1)), four, -4, -1, 2, 2)
	m := popxl.Constant(ir, []uint8{0b1010, 0b0110}, 2)
	want(a, "and", ops.BitwiseAnd(n, m), two, 0b110010&0b1010, 0b0100)
	want(a, "or", ops.BitwiseOr(n, m), two, 0b111011, 0b0111)
	want(a, "xor", ops.BitwiseXor(n, m), two, 0b111001, 0b0011)
	want(a, "xnor", ops.BitwiseXnor(n, m), two, 255-0b111001, 255-0b0011)
	want(a, "not", ops.BitwiseNot(n), two, 255-0b110011, 255-0b101)
	want(a, "not_signed", ops.BitwiseNot(popxl.Constant(ir, []int32{5, -1}, 2)), two, -6, 0)
	inf := float32(math.Inf(1))
	a.compare(t, map[string]any{"x": []float32{-1.5, 0.5, 2.5, 3}, "n": []uint8{0b110011, 0b101}, "odd": []float32{0, float32(math.NaN()), inf, -inf, -7}})
}

// TestLayoutOperators: selections, rearrangements and orders.
func TestLayoutOperators(t *testing.T) {
	ir := popxl.New("layout")
	a := &answers{ir, map[string][]float64{}, map[string][2][]int64{}}
	x := popxl.NewInput[float32](ir, "x", 2, 3).Load() // [[5 1 4] [2 6 3]]
	start := popxl.NewInput[int32](ir, "start").Load() // 1
	ints := func(v ...int32) popxl.Tensor[int32] { return popxl.Constant(ir, v, int64(len(v))) }
	want(a, "detach", ops.Detach(x), []int64{2, 3}, 5, 1, 4, 2, 6, 3)
	want(a, "flatten", ops.Flatten(x), []int64{6}, 5, 1, 4, 2, 6, 3)
	row := ops.Slice(x, 0, 1, 2, 1)
	want(a, "slice", row, []int64{1, 3}, 2, 6, 3)
	want(a, "slice_end", ops.Slice(x, -1, -2, 99, 1), []int64{2, 2}, 1, 4, 6, 3)
	want(a, "slice_back", ops.Slice(x, 1, -1, -4, -1), []int64{2, 3}, 4, 1, 5, 3, 6, 2)
	want(a, "slice_step", ops.Slice(x, 1, 0, 3, 2), []int64{2, 2}, 5, 4, 2, 3)
	want(a, "slice_back_step", ops.Slice(x, 1, 2, -9, -2), []int64{2, 2}, 4, 5, 3, 2)
	want(a, "slice_none", ops.Slice(x, 1, 2, 1, 1), []int64{2, 0})
	want(a, "slice_far", ops.Slice(x, 1, math.MinInt64, math.MaxInt64, math.MaxInt64), []int64{2, 1}, 5, 2)
	want(a, "slice_far_back", ops.Slice(x, 1, math.MaxInt64, math.MinInt64, math.MinInt64), []int64{2, 1}, 4, 3)
	want(a, "squeeze", ops.Squeeze(row), []int64{3}, 2, 6, 3)
	want(a, "squeeze_axis", ops.Squeeze(ops.Unsqueeze(row, 0), 1), []int64{1, 3}, 2, 6, 3)
	want(a, "unsqueeze", ops.Unsqueeze(row, -1, 1), []int64{1, 1, 3, 1}, 2, 6, 3)
	want(a, "subsample", ops.Subsample(x, 2, 2), []int64{1, 2}, 5, 4)
	for i, p := range ops.Split(x, 1, 1, 2) {
		want(a, []string{"split_0", "split_1"}[i], p, []int64{2, int64(i + 1)}, [][]float64{{5, 2}, {1, 4, 6, 3}}[i]...)
	}
	want(a, "dynamic_slice", ops.DynamicSlice(x, start, []int64{1}, []int64{2}), []int64{2, 2}, 1, 4, 6, 3)
	want(a, "dynamic_update", ops.DynamicUpdate(x, start, popxl.Constant(ir, []float32{10, 20, 30, 40}, 2, 2), []int64{-1}), []int64{2, 3}, 5, 10, 20, 2, 30, 40)
	want(a, "dynamic_slice_two", ops.DynamicSlice(x, ops.Concat(0, ops.Unsqueeze(start, 0), ints(0)), []int64{1, 0}, []int64{2, 1}), []int64{1, 2}, 1, 4)
	want(a, "dynamic_update_two", ops.DynamicUpdate(x, ops.Concat(0, ops.Unsqueeze(start, 0), ops.Unsqueeze(start, 0)), popxl.Constant(ir, []float32{10, 20}, 1, 2), []int64{1, 0}), []int64{2, 3}, 5, 1, 4, 2, 10, 20)
	at := popxl.Constant(ir, []int32{2, 0}, 2, 1)
	new2 := popxl.Constant(ir, []float32{100, 200}, 2, 1)
	want(a, "scatter", ops.Scatter(x, at, new2, 1, graph.ScatterNone), []int64{2, 3}, 5, 1, 100, 200, 6, 3)
	want(a, "scatter_add", ops.Scatter(x, at, new2, 1, graph.ScatterAdd), []int64{2, 3}, 5, 1, 104, 202, 6, 3)
	want(a, "one_hot", ops.OneHot(ints(2, 0, 7), 3, popxl.Constant(ir, []float32{-1}), popxl.Constant(ir, []float32{9})), []int64{3, 3}, -1, -1, 9, 9, -1, -1, -1, -1, -1)
	most, where := ops.TopK(x, 2, 1, false)
	want(a, "topk", most, []int64{2, 2}, 5, 4, 6, 3)
	want(a, "topk_at", where, []int64{2, 2}, 0, 2, 1, 2)
	least, _ := ops.TopK(x, 1, 0, true)
	want(a, "topk_least", least, []int64{1, 3}, 2, 1, 3)
	median, place := ops.Median(x, 1)
	want(a, "median", median, []int64{2}, 4, 3)
	want(a, "median_at", place, []int64{2}, 2, 2)
	lower, _ := ops.Median(x, 0)
	want(a, "median_lower", lower, []int64{3}, 2, 1, 3)
	want(a, "cumsum", ops.Cumsum(x, 1), []int64{2, 3}, 5, 6, 10, 2, 8, 11)
	a.compare(t, map[string]any{"x": []float32{5, 1, 4, 2, 6, 3}, "start": []int32{1}})
}

// TestNetworkOperators: normalisations and pooling.
func TestNetworkOperators(t *testing.T) {
	ir := popxl.New("network")
	a := &answers{ir, map[string][]float64{}, map[string][2][]int64{}}
	x := popxl.NewInput[float32](ir, "x", 2, 2).Load() // [[1 3] [-2 0]]
	c := func(v ...float32) popxl.Tensor[float32] { return popxl.Constant(ir, v, int64(len(v))) }
	log := math.Log(math.Exp(1) + math.Exp(3))
	log2 := math.Log(math.Exp(-2) + 1)
	want(a, "log_softmax", ops.LogSoftmax(x, -1), []int64{2, 2}, 1-log, 3-log, -2-log2, -log2)
	// Mean 2 and -1, variance 1 each: ±1/√(1+3) = ±½.
	want(a, "layer_norm", ops.LayerNorm(x, c(2, 4), c(10, 20), 3), []int64{2, 2}, 9, 22, 9, 22)
	want(a, "group_norm", ops.GroupNorm(x, c(2, 4), c(10, 20), 1, 3), []int64{2, 2}, 9, 22, 9, 22)
	want(a, "group_norm_each", ops.GroupNorm(ops.Reshape(x, 1, 2, 2), c(2, 4), c(10, 20), 2, 3), []int64{1, 2, 2}, 9, 11, 18, 22)
	want(a, "batch_norm", ops.BatchNormInference(x, c(2, 4), c(10, 20), c(1, -1), c(1, 13), 3), []int64{2, 2}, 10, 24, 7, 21)
	image := ops.Reshape(x, 1, 1, 4)
	want(a, "average_pool", ops.AveragePool(image, []int64{2}, ops.Window{Strides: []int64{2}}), []int64{1, 1, 2}, 2, -1)
	want(a, "average_pool_padded", ops.AveragePool(image, []int64{2}, ops.Window{Begin: []int64{1}}), []int64{1, 1, 4}, 1, 2, 0.5, -1)
	a.compare(t, map[string]any{"x": []float32{1, 3, -2, 0}})
}

// TestDetach: no gradient flows through what is detached, and all of it through the rest.
func TestDetach(t *testing.T) {
	ir := popxl.New("detach")
	x := popxl.NewInput[float32](ir, "x").Load()
	popxl.NewOutput("dx", popxl.GradOf(popxl.Gradients(ops.Mul(x, ops.Detach(ops.Mul(x, x))), x), x))
	require.Equal(t, []float32{9}, decode[float32](t, run(t, ir, map[string]any{"x": []float32{3}})["dx"]))
}

// TestLayoutMistakes: what does not fit, with the call's name.
func TestLayoutMistakes(t *testing.T) {
	ir := popxl.New("wrong")
	x, i := popxl.NewInput[float32](ir, "x", 2, 3).Load(), popxl.NewInput[int32](ir, "i").Load()
	for _, tt := range []struct {
		do   func()
		want string
	}{
		{func() { ops.Slice(x, 1, 0, 1, 0) }, "ops.Slice: the step is 0"},
		{func() { ops.Slice(x, 2, 0, 1, 1) }, "ops.Slice: axis 2, want one from -2 to 1"},
		{func() { ops.Squeeze(x, 1) }, "ops.Squeeze: axis 1 of x, which is [2,3], has 3 elements, want 1"},
		{func() { ops.Squeeze(x, 5) }, "ops.Squeeze: axis 5"},
		{func() { ops.Unsqueeze(x, 4) }, "ops.Unsqueeze: axis 4, want one from -3 to 2"},
		{func() { ops.Subsample(x, 1) }, "ops.Subsample: 1 strides, want the 2 of x, which is [2,3]"},
		{func() { ops.Subsample(x, 1, 0) }, "ops.Subsample: stride 0 of axis 1, want at least 1"},
		{func() { ops.Split(x, 1, 1, 1) }, "ops.Split: sizes [1,1] do not add up to the 3 elements of axis 1"},
		{func() { ops.Split(x, 1, 4, -1) }, "ops.Split: sizes [4,-1] do not add up"},
		{func() { ops.DynamicSlice(x, i, []int64{0}, []int64{-1}) }, "ops.DynamicSlice: -1 elements"},
		{func() { ops.DynamicSlice(x, i, []int64{9}, []int64{1}) }, "ops.DynamicSlice: axis 9"},
		{func() { ops.DynamicUpdate(x, i, ops.Flatten(x), []int64{0}) }, "ops.DynamicUpdate: the part is [6] and x [2,3], want the same sizes but of axes [0]"},
		{func() { ops.DynamicUpdate(x, i, x, []int64{0, 1}) }, "ops.DynamicUpdate: start has 1 elements and there are 2 axes, want one element for each axis"},
		{func() { ops.DynamicSlice(x, popxl.Constant(ir, []int32{0, 0}, 2), []int64{1, -1}, []int64{1, 1}) }, "ops.DynamicSlice: axis 1 is given twice"},
		{func() { ops.Scatter(x, i, x, 3, graph.ScatterNone) }, "ops.Scatter: axis 3"},
		{func() { ops.TopK(x, 4, 1, false) }, "ops.TopK: "},
		{func() { ops.TopK(x, 1, 7, false) }, "ops.TopK: axis 7"},
		{func() { ops.Median(x, -3) }, "ops.Median: axis -3"},
		{func() { ops.Cumsum(x, 2) }, "ops.Cumsum: axis 2"},
		{func() { ops.LogSoftmax(x, 2) }, "ops.LogSoftmax: axis 2"},
		{func() { ops.LayerNorm(ops.Sum(x), x, x, 1) }, "ops.LayerNorm: axis -1"},
		{func() { ops.AveragePool(x, []int64{1}, ops.Window{Strides: []int64{1}}) }, "ops.AveragePool: there are not as many numbers"},
		{func() { popxl.Apply2[float32, int64]("mine", &graph.Unary{Fn: graph.Abs}, x) }, "mine: Unary has one result, want two"},
		{func() { popxl.Apply2[float32, int32]("mine", &graph.TopK{K: 1}, x) }, "mine: the result is i64, want i32"},
		{func() { popxl.Apply2[float32, int32]("mine", nil, x) }, "mine: the operator is nil"},
	} {
		before := len(errors(ir))
		tt.do()
		require.Len(t, errors(ir), before+1, tt.want)
		require.ErrorContains(t, errors(ir)[before], tt.want)
		require.ErrorContains(t, errors(ir)[before], "ops_layout_test.go:")
	}
	before := len(errors(ir))
	var none popxl.Tensor[float32]
	ops.Slice(none, 0, 0, 0, 0)
	ops.Squeeze(none)
	ops.Unsqueeze(none, 9)
	ops.Subsample(none)
	require.Len(t, ops.Split(none, 0, 1, 2), 2)
	ops.DynamicUpdate(none, i, none, []int64{0})
	ops.Scatter(none, i, none, 0, "")
	ops.TopK(none, 0, 0, false)
	ops.Median(none, 0)
	ops.Cumsum(none, 0)
	ops.LogSoftmax(none, 0)
	ops.LayerNorm(none, none, none, 0)
	ops.AveragePool(none, nil, ops.Window{})
	ops.Log2(none)
	ops.BitwiseNot(popxl.Tensor[int8]{})
	ops.OneHot(popxl.Tensor[int32]{}, 1, none, none)
	ops.Detach(none)
	require.Len(t, errors(ir), before)
}
