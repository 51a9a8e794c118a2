package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// lossOps are losses, which models carry for training.
var lossOps = map[string]definition{
	"NegativeLogLikelihoodLoss": takes("input:T=floats target:indices weight:T").since(12, negativeLogLikelihood, "ignore_index:int reduction=mean"),
	"SoftmaxCrossEntropyLoss":   takes("scores:T=floats labels:indices weights:T").since(12, softmaxCrossEntropy, "ignore_index:int reduction=mean"),
}

func negativeLogLikelihood(c *call) []*value {
	x := c.in(0)
	return one(c.cast(c.likelihoodLoss(c.wide(x), c.in(1), c.opt(2)), x.typ.DType))
}

func softmaxCrossEntropy(c *call) []*value {
	x := c.in(0)
	if x.rank() < 2 {
		c.fail("operand 0 (scores) is %v, want at least 2 dimensions", x.typ)
	}
	p := c.emit(&graph.Softmax{Axis: 1, Log: true}, c.wide(x))
	out := []*value{c.cast(c.likelihoodLoss(p, c.in(1), c.opt(2)), x.typ.DType), nil}
	if c.wants(1) {
		out[1] = c.cast(p, x.typ.DType)
	}
	return out
}

// likelihoodLoss returns -weight·x of every place's target class, axis 1 of x
// being the classes, reduced as attribute reduction says. Places whose target
// is attribute ignore_index count for nothing.
func (c *call) likelihoodLoss(x, target, weight *value) *value {
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	if x.rank() < 2 || target.rank() != x.rank()-1 {
		c.fail("operands 0 and 1 are %v and %v, want a target for all places but the axis of classes, axis 1", x.typ, target.typ)
	}
	t, classes := x.typ.DType, x.typ.Shape[1]
	if target.typ.DType != graph.I32 && target.typ.DType != graph.I64 {
		c.fail("operand 1 (target) is %v, want int32 or int64", target.typ)
	}
	var counts *value // the places that count, if not all do
	if a := c.attr("ignore_index"); a != nil {
		counts = c.emit(&graph.Unary{Fn: graph.Not}, binary(graph.Equal, target, scalar(target.typ.DType, float64(a.Int))))
		target = c.emit(&graph.Where{}, counts, target, scalar(target.typ.DType, 0))
	}
	at := c.emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(target.typ.Shape), 1, 1)}, target)
	picked := c.emit(&graph.GatherElements{Axis: 1}, x, at)
	loss := c.emit(&graph.Unary{Fn: graph.Neg}, c.emit(&graph.Reshape{Shape: target.typ.Shape}, picked))
	var weights *value // of every place, if not all are 1
	if weight != nil {
		if weight.rank() != 1 || weight.typ.Shape[0] != classes {
			c.fail("operand 2 (weight) is %v, want one for each of the %d classes", weight.typ, classes)
		}
		weights = c.emit(&graph.Gather{}, c.cast(weight, t), target)
		loss = binary(graph.Mul, loss, weights)
	}
	if counts != nil {
		loss = c.emit(&graph.Where{}, counts, loss, scalar(t, 0))
		if weights == nil {
			weights = scalar(t, 1)
		}
		weights = c.emit(&graph.Where{}, counts, weights, scalar(t, 0))
	}
	all := make([]int64, loss.rank())
	for i := range all {
		all[i] = int64(i)
	}
	sum := func(v *value) *value { return c.emit(&graph.Reduce{Fn: graph.ReduceSum, Axes: all}, v) }
	switch reduction := c.str("reduction"); reduction {
	case "none":
		return loss
	case "sum":
		return sum(loss)
	case "mean":
		if weights == nil {
			return c.emit(&graph.Reduce{Fn: graph.ReduceMean, Axes: all}, loss)
		}
		return binary(graph.Div, sum(loss), sum(weights))
	default:
		c.fail("attribute \"reduction\" is %q, want none, sum or mean", reduction)
		return nil
	}
}
