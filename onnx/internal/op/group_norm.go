package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// groupNormOps normalise over parts of a tensor.
var groupNormOps = map[string]definition{
	"InstanceNormalization":     takes("input:T=floats scale:T B:T").since(1, instanceNorm, "epsilon=1e-05"),
	"GroupNormalization":        takes("X:T=floats scale:T bias:T").since(18, groupNormPerGroup, "epsilon=1e-05 num_groups:int!").since(21, groupNorm, "epsilon=1e-05 num_groups:int! stash_type=1"),
	"MeanVarianceNormalization": takes("X:floats").since(9, meanVarianceNorm, "axes:ints"),
	"LRN":                       takes("X:floats").since(1, lrn, "alpha=0.0001 beta=0.75 bias=1.0 size:int!"),
	"Det":                       takes("X:floats").since(11, det),
}

func instanceNorm(c *call) []*lower.Value {
	x := c.In(0)
	if x.Rank() < 2 {
		c.Fail("operand 0 is %v, want at least 2 dimensions: batch and channels", x.Type)
	}
	op := &graph.GroupNorm{Groups: max(x.Type.Shape[1], 1), Epsilon: c.Float("epsilon")}
	return lower.One(c.Emit(op, x, c.In(1), c.In(2)))
}

// groupNormPerGroup is GroupNormalization-18, whose scale and bias have a
// number for each group.
func groupNormPerGroup(c *call) []*lower.Value {
	x, scale, bias := c.In(0), c.In(1), c.In(2)
	n := c.Int("num_groups")
	if x.Rank() < 2 || n < 1 || x.Type.Shape[1]%n != 0 {
		c.Fail("attribute \"num_groups\" is %d, want a number that divides the channels of %v", n, x.Type)
	}
	for i, v := range []*lower.Value{scale, bias} {
		if !slices.Equal(v.Type.Shape, []int64{n}) {
			c.Fail("operand %d is %v, want a number for each of %d groups", i+1, v.Type, n)
		}
	}
	channels := x.Type.Shape[1]
	each := func(v *lower.Value) *lower.Value {
		v = c.Emit(&graph.Reshape{Shape: []int64{n, 1}}, v)
		return c.Emit(&graph.Reshape{Shape: []int64{channels}}, c.expand(v, []int64{n, channels / n}))
	}
	return lower.One(c.Emit(&graph.GroupNorm{Groups: n, Epsilon: c.Float("epsilon")}, x, each(scale), each(bias)))
}

func groupNorm(c *call) []*lower.Value {
	op := &graph.GroupNorm{Groups: c.Int("num_groups"), Epsilon: c.Float("epsilon")}
	in := []*lower.Value{c.In(0), c.In(1), c.In(2)}
	t := in[0].Type.DType
	switch stash := onnx.ElemType(c.Int("stash_type")); stash {
	case onnx.Float, onnx.Float16, onnx.BFloat16: // statistics are computed in single precision at least
	case onnx.Double:
		for i, v := range in {
			in[i] = c.cast(v, graph.F64)
		}
	default:
		c.Unsupported("set stash_type to 1 (float)", "stash_type %v", stash)
	}
	return lower.One(c.cast(c.Emit(op, in...), t))
}

// meanVarianceNorm subtracts the mean and divides by the standard deviation.
func meanVarianceNorm(c *call) []*lower.Value {
	x := c.In(0)
	axes, given := c.Ints("axes")
	if !given {
		axes = []int64{0, 2, 3}
	}
	v := c.wide(x)
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	mean := func(v *lower.Value) *lower.Value {
		return c.Emit(&graph.Reduce{Fn: graph.ReduceMean, Axes: c.Axes(axes, x.Rank()), KeepDims: true}, v)
	}
	v = binary(graph.Sub, v, mean(v))
	deviation := c.Emit(&graph.Unary{Fn: graph.Sqrt}, mean(binary(graph.Mul, v, v)))
	y := binary(graph.Div, v, binary(graph.Add, deviation, lower.Scalar(v.Type.DType, 1e-9)))
	return lower.One(c.cast(y, x.Type.DType))
}

func lrn(c *call) []*lower.Value {
	op := &graph.LRN{Size: c.Int("size"), Alpha: c.Float("alpha"), Beta: c.Float("beta"), Bias: c.Float("bias")}
	return lower.One(c.Emit(op, c.In(0)))
}

func det(c *call) []*lower.Value { return lower.One(c.Emit(&graph.Det{}, c.In(0))) }
