package ops

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// LogSoftmax returns the logarithm of [Softmax] along an axis, of numbers whose exponentials would overflow too.
func LogSoftmax[T popxl.Float](x popxl.Tensor[T], along int64) popxl.Tensor[T] {
	const call = "ops.LogSoftmax"
	if !x.Valid() {
		return x
	}
	a, err := axis(along, len(x.Shape()))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Softmax{Axis: a, Log: true}, x)
}

// LayerNorm returns (x-μ)/√(σ²+epsilon)·weight + bias, mean and variance being over the last axis, whose size weight and bias have.
func LayerNorm[T popxl.Float](x, weight, bias popxl.Tensor[T], epsilon float64) popxl.Tensor[T] {
	const call = "ops.LayerNorm"
	if !x.Valid() {
		return x
	}
	a, err := axis(-1, len(x.Shape()))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.LayerNorm{Axis: a, Epsilon: epsilon}, x, weight, bias)
}

// GroupNorm returns x [N, C, …] normalised as by [LayerNorm] over each of as many groups of neighbouring channels of each sample, and weight and bias [C] applied to each channel.
func GroupNorm[T popxl.Float](x, weight, bias popxl.Tensor[T], groups int64, epsilon float64) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.GroupNorm", &graph.GroupNorm{Groups: groups, Epsilon: epsilon}, x, weight, bias)
}

// BatchNormInference returns (x-mean)/√(variance+epsilon)·weight + bias of x [N, C, …]; the others are [C].
func BatchNormInference[T popxl.Float](x, weight, bias, mean, variance popxl.Tensor[T], epsilon float64) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.BatchNormInference", &graph.BatchNorm{Epsilon: epsilon}, x, weight, bias, mean, variance)
}
