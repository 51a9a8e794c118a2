package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// groupNormOps normalise over parts of a tensor.
var groupNormOps = map[string]definition{
	"InstanceNormalization":     takes("input:T=floats scale:T B:T").since(1, instanceNorm, "epsilon=1e-05"),
	"GroupNormalization":        takes("X:T=floats scale:T bias:T").since(18, groupNormPerGroup, "epsilon=1e-05 num_groups:int!").since(21, groupNorm, "epsilon=1e-05 num_groups:int! stash_type=1"),
	"MeanVarianceNormalization": takes("X:floats").since(9, meanVarianceNorm, "axes:ints"),
	"LRN":                       takes("X:floats").since(1, lrn, "alpha=0.0001 beta=0.75 bias=1.0 size:int!"),
	"Det":                       takes("X:floats").since(11, det),
}

func instanceNorm(c *call) []*value {
	x := c.in(0)
	if x.rank() < 2 {
		c.fail("operand 0 is %v, want at least 2 dimensions: batch and channels", x.typ)
	}
	op := &graph.GroupNorm{Groups: max(x.typ.Shape[1], 1), Epsilon: c.float("epsilon")}
	return one(c.emit(op, x, c.in(1), c.in(2)))
}

// groupNormPerGroup is GroupNormalization-18, whose scale and bias have a
// number for each group.
func groupNormPerGroup(c *call) []*value {
	x, scale, bias := c.in(0), c.in(1), c.in(2)
	n := c.int("num_groups")
	if x.rank() < 2 || n < 1 || x.typ.Shape[1]%n != 0 {
		c.fail("attribute \"num_groups\" is %d, want a number that divides the channels of %v", n, x.typ)
	}
	for i, v := range []*value{scale, bias} {
		if !slices.Equal(v.typ.Shape, []int64{n}) {
			c.fail("operand %d is %v, want a number for each of %d groups", i+1, v.typ, n)
		}
	}
	channels := x.typ.Shape[1]
	each := func(v *value) *value {
		v = c.emit(&graph.Reshape{Shape: []int64{n, 1}}, v)
		return c.emit(&graph.Reshape{Shape: []int64{channels}}, c.expand(v, []int64{n, channels / n}))
	}
	return one(c.emit(&graph.GroupNorm{Groups: n, Epsilon: c.float("epsilon")}, x, each(scale), each(bias)))
}

func groupNorm(c *call) []*value {
	op := &graph.GroupNorm{Groups: c.int("num_groups"), Epsilon: c.float("epsilon")}
	in := []*value{c.in(0), c.in(1), c.in(2)}
	t := in[0].typ.DType
	switch stash := ElemType(c.int("stash_type")); stash {
	case Float, Float16, BFloat16: // statistics are computed in single precision at least
	case Double:
		for i, v := range in {
			in[i] = c.cast(v, graph.F64)
		}
	default:
		c.unsupported("set stash_type to 1 (float)", "stash_type %v", stash)
	}
	return one(c.cast(c.emit(op, in...), t))
}

// meanVarianceNorm subtracts the mean and divides by the standard deviation.
func meanVarianceNorm(c *call) []*value {
	x := c.in(0)
	axes, given := c.ints("axes")
	if !given {
		axes = []int64{0, 2, 3}
	}
	v := c.wide(x)
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	mean := func(v *value) *value {
		return c.emit(&graph.Reduce{Fn: graph.ReduceMean, Axes: c.axes(axes, x.rank()), KeepDims: true}, v)
	}
	v = binary(graph.Sub, v, mean(v))
	deviation := c.emit(&graph.Unary{Fn: graph.Sqrt}, mean(binary(graph.Mul, v, v)))
	y := binary(graph.Div, v, binary(graph.Add, deviation, scalar(v.typ.DType, 1e-9)))
	return one(c.cast(y, x.typ.DType))
}

func lrn(c *call) []*value {
	op := &graph.LRN{Size: c.int("size"), Alpha: c.float("alpha"), Beta: c.float("beta"), Bias: c.float("bias")}
	return one(c.emit(op, c.in(0)))
}

func det(c *call) []*value { return one(c.emit(&graph.Det{}, c.in(0))) }
