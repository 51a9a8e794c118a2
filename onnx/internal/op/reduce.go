package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// reduceOps are the reductions. Their axes became an operand with version 18,
// those of ReduceSum with 13.
var reduceOps = map[string]definition{
	"ReduceSum":       reductions("data:wide axes:int64", graph.ReduceSum, 13),
	"ReduceMean":      reductions("data:wide axes:int64", graph.ReduceMean, 18),
	"ReduceMax":       reductions("data:numbers|bool axes:int64", graph.ReduceMax, 18),
	"ReduceMin":       reductions("data:numbers|bool axes:int64", graph.ReduceMin, 18),
	"ReduceProd":      reductions("data:wide axes:int64", graph.ReduceProd, 18),
	"ReduceL1":        reductions("data:wide axes:int64", graph.ReduceL1, 18),
	"ReduceL2":        reductions("data:wide axes:int64", graph.ReduceL2, 18),
	"ReduceLogSum":    reductions("data:wide axes:int64", graph.ReduceLogSum, 18),
	"ReduceLogSumExp": reductions("data:wide axes:int64", graph.ReduceLogSumExp, 18),
	"ReduceSumSquare": reductions("data:wide axes:int64", graph.ReduceSumSquare, 18),
}

// reductions defines a reduction whose axes are an operand from a version on.
func reductions(operands string, fn graph.ReduceFn, operand int64) definition {
	attribute := func(c *call) []*lower.Value {
		axes, _ := c.Ints("axes")
		return c.reduce(fn, axes, false)
	}
	known := func(c *call) []*lower.Value {
		axes, _ := c.KnownInts(1, "axes")
		return c.reduce(fn, axes, c.Bool("noop_with_empty_axes"))
	}
	return takes(operands).since(1, attribute, "axes:ints keepdims=1").since(operand, known, "keepdims=1 noop_with_empty_axes=0")
}

// reduce reduces over axes. Without any it reduces over all, or over none.
func (c *call) reduce(fn graph.ReduceFn, axes []int64, noneIfEmpty bool) []*lower.Value {
	x := c.In(0)
	op := &graph.Reduce{Fn: fn, Axes: c.Axes(axes, x.Rank()), KeepDims: c.Bool("keepdims")}
	if len(axes) == 0 && !noneIfEmpty {
		for a := range x.Rank() {
			op.Axes = append(op.Axes, a)
		}
	}
	return lower.One(c.Emit(op, x))
}
