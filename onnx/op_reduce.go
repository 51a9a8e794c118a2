package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// reduceOps are the reductions. Their axes became an operand with version 18,
// those of ReduceSum with 13.
var reduceOps = map[string][]since{
	"ReduceSum":       reductions(graph.ReduceSum, 13),
	"ReduceMean":      reductions(graph.ReduceMean, 18),
	"ReduceMax":       reductions(graph.ReduceMax, 18),
	"ReduceMin":       reductions(graph.ReduceMin, 18),
	"ReduceProd":      reductions(graph.ReduceProd, 18),
	"ReduceL1":        reductions(graph.ReduceL1, 18),
	"ReduceL2":        reductions(graph.ReduceL2, 18),
	"ReduceLogSum":    reductions(graph.ReduceLogSum, 18),
	"ReduceLogSumExp": reductions(graph.ReduceLogSumExp, 18),
	"ReduceSumSquare": reductions(graph.ReduceSumSquare, 18),
}

func reductions(fn graph.ReduceFn, operand int64) []since {
	return []since{
		{1, func(c *call) []*value {
			axes, _ := c.ints("axes")
			return c.reduce(fn, axes, false)
		}},
		{operand, func(c *call) []*value {
			axes, _ := c.knownInts(1, "axes")
			return c.reduce(fn, axes, c.bool("noop_with_empty_axes", false))
		}},
	}
}

// reduce reduces over axes. Without any it reduces over all, or over none.
func (c *call) reduce(fn graph.ReduceFn, axes []int64, noneIfEmpty bool) []*value {
	x := c.in(0)
	op := &graph.Reduce{Fn: fn, Axes: c.axes(axes, x.rank()), KeepDims: c.bool("keepdims", true)}
	if len(axes) == 0 && !noneIfEmpty {
		for a := range x.rank() {
			op.Axes = append(op.Axes, a)
		}
	}
	return one(c.emit(op, x))
}
