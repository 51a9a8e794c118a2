package popxl_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// TestOperators computes every operator of package ops once, in one run, and compares with values that follow from its definition.
func TestOperators(t *testing.T) {
	ir := popxl.New("operators")
	x := popxl.NewInput[float32](ir, "x", 2, 3).Load()
	c := popxl.NewInput[bool](ir, "c", 3).Load()
	in := []float32{-1.5, 0, 2, 0.25, 4, -3}
	scalar := func(v float32) popxl.Tensor[float32] { return popxl.Constant(ir, []float32{v}) }
	d := popxl.Constant(ir, []float32{2, -1, 0.5}, 3)
	wanted := map[string][]float64{}
	add := func(name string, y popxl.Tensor[float32], want ...float64) {
		popxl.NewOutput(name, y)
		wanted[name] = want
	}
	each := func(name string, op func(popxl.Tensor[float32]) popxl.Tensor[float32], f func(float64) float64) {
		var want []float64
		for _, v := range in {
			want = append(want, f(float64(v)))
		}
		add(name, op(x), want...)
	}
	each("abs", ops.Abs[float32], math.Abs)
	each("negate", ops.Negate[float32], func(v float64) float64 { return -v })
	each("floor", ops.Floor[float32], math.Floor)
	each("ceil", ops.Ceil[float32], math.Ceil)
	each("exp", ops.Exp[float32], math.Exp)
	each("sin", ops.Sin[float32], math.Sin)
	each("cos", ops.Cos[float32], math.Cos)
	each("tanh", ops.Tanh[float32], math.Tanh)
	each("sign", ops.Sign[float32], func(v float64) float64 {
		if v == 0 {
			return 0
		}
		return math.Copysign(1, v)
	})
	each("relu", ops.Relu[float32], func(v float64) float64 { return max(v, 0) })
	each("gelu", ops.Gelu[float32], func(v float64) float64 { return v / 2 * (1 + math.Erf(v/math.Sqrt2)) })
	each("sqrt", func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Sqrt(ops.Abs(x)) }, func(v float64) float64 { return math.Sqrt(math.Abs(v)) })
	each("log", func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Log(ops.Add(ops.Abs(x), scalar(1))) }, func(v float64) float64 { return math.Log(1 + math.Abs(v)) })
	each("pow", func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Pow(x, scalar(2)) }, func(v float64) float64 { return v * v })
	each("clip", func(x popxl.Tensor[float32]) popxl.Tensor[float32] { return ops.Clip(x, scalar(-1), scalar(3)) }, func(v float64) float64 { return min(max(v, -1), 3) })
	add("add", ops.Add(x, d), 0.5, -1, 2.5, 2.25, 3, -2.5)
	add("sub", ops.Sub(x, d), -3.5, 1, 1.5, -1.75, 5, -3.5)
	add("mul", ops.Mul(x, d), -3, 0, 1, 0.5, -4, -1.5)
	add("div", ops.Div(x, d), -0.75, 0, 4, 0.125, -4, -6)
	add("maximum", ops.Maximum(x, d), 2, 0, 2, 2, 4, 0.5)
	add("minimum", ops.Minimum(x, d), -1.5, -1, 0.5, 0.25, -1, -3)
	number := func(b popxl.Tensor[bool]) popxl.Tensor[float32] { return ops.Cast[float32](b) }
	add("equal", number(ops.Equal(x, scalar(4))), 0, 0, 0, 0, 1, 0)
	add("greater", number(ops.Greater(x, scalar(0))), 0, 0, 1, 1, 1, 0)
	add("and", number(ops.LogicalAnd(ops.Greater(x, scalar(0)), c)), 0, 0, 1, 1, 0, 0)
	add("or", number(ops.LogicalOr(ops.Greater(x, scalar(0)), c)), 1, 0, 1, 1, 1, 1)
	add("not", number(ops.LogicalNot(c)), 0, 1, 0)
	add("where", ops.Where(c, x, d), -1.5, -1, 2, 0.25, -1, -3)
	add("sum", ops.Sum(x), 1.75)
	add("mean", ops.Mean(x, -1), 0.5/3, 1.25/3)
	add("max", ops.Max(x, 0), 0.25, 4, 2)
	add("min", ops.Min(x, 1), -1.5, -3)
	add("prod", ops.Prod(x, 1), 0, -3)
	add("l1", ops.L1(x, 1), 3.5, 7.25)
	add("l2", ops.L2(x, 1), 2.5, math.Sqrt(25.0625))
	add("log_sum", ops.LogSum(x, 1), math.Log(0.5), math.Log(1.25))
	add("log_sum_exp", ops.LogSumExp(x, 0), math.Log(math.Exp(-1.5)+math.Exp(0.25)), math.Log(1+math.Exp(4)), math.Log(math.Exp(2)+math.Exp(-3)))
	add("sum_square", ops.SumSquare(x, 1), 6.25, 25.0625)
	add("argmax", ops.Cast[float32](ops.Argmax(x, 1)), 2, 1)
	add("argmin", ops.Cast[float32](ops.Argmin(x, 0)), 0, 0, 1)
	s := math.Exp(-1.5) + 1 + math.Exp(2)
	u := math.Exp(0.25) + math.Exp(4) + math.Exp(-3)
	add("softmax", ops.Softmax(x, -1), math.Exp(-1.5)/s, 1/s, math.Exp(2)/s, math.Exp(0.25)/u, math.Exp(4)/u, math.Exp(-3)/u)
	add("matmul", ops.MatMul(x, d), -2, -5)
	add("reshape", ops.Reshape(x, 3, 2), -1.5, 0, 2, 0.25, 4, -3)
	add("transpose", ops.Transpose(x), -1.5, 0.25, 0, 4, 2, -3)
	add("transpose_by", ops.Transpose(ops.Reshape(x, 1, 2, 3), 2, 0, 1), -1.5, 0.25, 0, 4, 2, -3)
	add("concat", ops.Concat(-1, x, x), -1.5, 0, 2, -1.5, 0, 2, 0.25, 4, -3, 0.25, 4, -3)
	add("gather", ops.Gather(x, popxl.Constant(ir, []int32{2, -3}, 2), 1), 2, -1.5, -3, 0.25)
	image := ops.Reshape(x, 1, 1, 6)
	add("conv", ops.Conv(image, popxl.Constant(ir, []float32{1, 2}, 1, 1, 2), 1, ops.Window{End: []int64{1}}), -1.5, 4, 2.5, 8.25, -2, -3)
	add("max_pool", ops.MaxPool(image, []int64{2}, ops.Window{Strides: []int64{2}}), 0, 2, 4)

	labels := popxl.Constant(ir, []int32{2, 0}, 2)
	add("softmax_cross_entropy", ops.SoftmaxCrossEntropy(x, labels), (math.Log(s)-2+math.Log(u)-0.25)/2)
	add("nll_loss", ops.NLLLoss(ops.Softmax(x, 1), labels, ops.Reduce(optim.None)), math.Log(s)-2, math.Log(u)-0.25)
	add("nll_loss_ignore", ops.NLLLoss(ops.Softmax(x, 1), labels, ops.IgnoreIndex(0), nil), math.Log(s)-2)
	add("mse_loss", ops.MSELoss(d, popxl.Constant(ir, []float32{1, 1, 1}, 3), ops.Reduce(optim.Sum)), 1+4+0.25)

	got := run(t, ir, map[string]any{"x": in, "c": []bool{true, false, true}})
	for name, want := range wanted {
		values := decode[float32](t, got[name])
		require.Len(t, values, len(want), name)
		for i, v := range values {
			require.InDelta(t, want[i], v, 1e-5*max(1, math.Abs(want[i])), "%s[%d]", name, i)
		}
	}
}

// TestRandomCalls: whatever is called with whatever tensors and numbers, nothing panics, and an Ir without a mistake and with an
// output exports.
func TestRandomCalls(t *testing.T) {
	exported := 0
	defer func() { require.Positive(t, exported) }()
	rapid.Check(t, func(t *rapid.T) {
		ir, other := popxl.New("random"), popxl.New("other")
		size := rapid.Int64Range(-1, 4)
		sizes := rapid.SliceOfN(size, 0, 4)
		pool := []popxl.Tensor[float32]{{}, popxl.NewInput[float32](other, "x", 2).Load(), popxl.NewInput[float32](ir, "x", 2, 3).Load()}
		wild := rapid.Bool().Draw(t, "wild") // else tensors without mistakes are used
		pick := func() popxl.Tensor[float32] {
			if wild {
				return rapid.SampledFrom(pool).Draw(t, "tensor")
			}
			return rapid.SampledFrom(pool[2:]).Filter(func(x popxl.Tensor[float32]) bool { return x.Valid() }).Draw(t, "tensor")
		}
		for range rapid.IntRange(1, 12).Draw(t, "calls") {
			x := pick()
			switch a := rapid.Int64Range(-4, 4).Draw(t, "axis"); rapid.IntRange(0, 22).Draw(t, "call") {
			case 0:
				x = ops.Add(x, pick())
			case 1:
				x = ops.MatMul(x, pick())
			case 2:
				x = ops.Reshape(x, sizes.Draw(t, "shape")...)
			case 3:
				x = ops.Transpose(x, sizes.Draw(t, "perm")...)
			case 4:
				x = ops.Concat(a, x, pick())
			case 5:
				x = ops.Sum(x, sizes.Draw(t, "axes")...)
			case 6:
				x = ops.Softmax(x, a)
			case 7:
				x = ops.Conv(x, pick(), a, ops.Window{Strides: sizes.Draw(t, "strides"), End: sizes.Draw(t, "end")})
			case 8:
				x = ops.MaxPool(x, sizes.Draw(t, "kernel"), ops.Window{Dilations: sizes.Draw(t, "dilations")})
			case 9:
				x = ops.Gather(x, ops.Argmin(pick(), a), a)
			case 10:
				x = popxl.NewVariable(ir, rapid.StringN(0, 2, -1).Draw(t, "name"), make([]float32, 6), sizes.Draw(t, "shape")...).Tensor()
			case 11:
				x = ops.Where(ops.Greater(x, pick()), x, pick())
			case 12:
				x = ops.Clip(x, pick(), pick())
			case 13:
				popxl.NewOutput(rapid.StringN(0, 2, -1).Draw(t, "name"), x)
			case 14:
				x = ops.Slice(x, a, size.Draw(t, "start"), size.Draw(t, "stop"), size.Draw(t, "step"))
			case 15:
				pool = append(pool, ops.Split(x, a, sizes.Draw(t, "sizes")...)...)
			case 16:
				x = ops.Squeeze(ops.Unsqueeze(x, sizes.Draw(t, "added")...), sizes.Draw(t, "gone")...)
			case 17:
				x = ops.DynamicUpdate(x, ops.Cast[int32](ops.Argmin(ops.Flatten(pick()), a)), pick(), sizes.Draw(t, "along"))
			case 18:
				x, _ = ops.TopK(x, size.Draw(t, "k"), a, true)
			case 19:
				x, _ = ops.Median(x, a)
			case 20:
				x = ops.Repeat(size.Draw(t, "count"), x, func(x popxl.Tensor[float32]) popxl.Tensor[float32] {
					y := ops.Mul(x, pick())
					pool = append(pool, y) // which is a mistake if it is used outside
					return y
				})
			case 21:
				x = popxl.GradOf(popxl.Gradients(x, pick()), pick())
			case 22:
				v := popxl.NewVariable(ir, rapid.StringN(0, 2, -1).Draw(t, "name"), make([]float32, 6), 2, 3)
				popxl.Minimize(ops.Mul(v.Tensor(), x), popxl.Training{Optimizer: optim.NewSGD()}, v)
				v.Assign(pick())
			}
			pool = append(pool, x)
		}
		popxl.NewOutput("last", ops.Relu(pool[2]))
		failed := ir.Err()
		_, err := ir.Export(t.Context())
		if failed == nil {
			exported++
		}
		if failed == nil && err != nil {
			t.Fatalf("an Ir without mistakes: %v", err)
		}
	})
}
