package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// lossOps are losses, which models carry for training.
var lossOps = map[string]definition{
	"NegativeLogLikelihoodLoss": takes("input:T=floats target:indices weight:T").since(12, negativeLogLikelihood, "ignore_index:int reduction=mean"),
	"SoftmaxCrossEntropyLoss":   takes("scores:T=floats labels:indices weights:T").since(12, softmaxCrossEntropy, "ignore_index:int reduction=mean"),
}

func negativeLogLikelihood(c *call) []*lower.Value {
	x := c.In(0)
	return lower.One(c.cast(c.likelihoodLoss(c.wide(x), c.In(1), c.Opt(2)), x.Type.DType))
}

func softmaxCrossEntropy(c *call) []*lower.Value {
	x := c.In(0)
	if x.Rank() < 2 {
		c.Fail("operand 0 (scores) is %v, want at least 2 dimensions", x.Type)
	}
	p := c.Emit(&graph.Softmax{Axis: 1, Log: true}, c.wide(x))
	out := []*lower.Value{c.cast(c.likelihoodLoss(p, c.In(1), c.Opt(2)), x.Type.DType), nil}
	if c.Wants(1) {
		out[1] = c.cast(p, x.Type.DType)
	}
	return out
}

// likelihoodLoss returns -weight·x of every place's target class, axis 1 of x
// being the classes, reduced as attribute reduction says. Places whose target
// is attribute ignore_index count for nothing.
func (c *call) likelihoodLoss(x, target, weight *lower.Value) *lower.Value {
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	if x.Rank() < 2 || target.Rank() != x.Rank()-1 {
		c.Fail("operands 0 and 1 are %v and %v, want a target for all places but the axis of classes, axis 1", x.Type, target.Type)
	}
	t, classes := x.Type.DType, x.Type.Shape[1]
	if target.Type.DType != graph.I32 && target.Type.DType != graph.I64 {
		c.Fail("operand 1 (target) is %v, want int32 or int64", target.Type)
	}
	var counts *lower.Value // the places that count, if not all do
	if a := c.Attr("ignore_index"); a != nil {
		counts = c.Emit(&graph.Unary{Fn: graph.Not}, binary(graph.Equal, target, lower.Scalar(target.Type.DType, float64(a.Int))))
		target = c.Emit(&graph.Where{}, counts, target, lower.Scalar(target.Type.DType, 0))
	}
	at := c.Emit(&graph.Reshape{Shape: slices.Insert(slices.Clone(target.Type.Shape), 1, 1)}, target)
	picked := c.Emit(&graph.GatherElements{Axis: 1}, x, at)
	loss := c.Emit(&graph.Unary{Fn: graph.Neg}, c.Emit(&graph.Reshape{Shape: target.Type.Shape}, picked))
	var weights *lower.Value // of every place, if not all are 1
	if weight != nil {
		if weight.Rank() != 1 || weight.Type.Shape[0] != classes {
			c.Fail("operand 2 (weight) is %v, want one for each of the %d classes", weight.Type, classes)
		}
		weights = c.Emit(&graph.Gather{}, c.cast(weight, t), target)
		loss = binary(graph.Mul, loss, weights)
	}
	if counts != nil {
		loss = c.Emit(&graph.Where{}, counts, loss, lower.Scalar(t, 0))
		if weights == nil {
			weights = lower.Scalar(t, 1)
		}
		weights = c.Emit(&graph.Where{}, counts, weights, lower.Scalar(t, 0))
	}
	all := make([]int64, loss.Rank())
	for i := range all {
		all[i] = int64(i)
	}
	sum := func(v *lower.Value) *lower.Value { return c.Emit(&graph.Reduce{Fn: graph.ReduceSum, Axes: all}, v) }
	switch reduction := c.Str("reduction"); reduction {
	case "none":
		return loss
	case "sum":
		return sum(loss)
	case "mean":
		if weights == nil {
			return c.Emit(&graph.Reduce{Fn: graph.ReduceMean, Axes: all}, loss)
		}
		return binary(graph.Div, sum(loss), sum(weights))
	default:
		c.Fail("attribute \"reduction\" is %q, want none, sum or mean", reduction)
		return nil
	}
}
