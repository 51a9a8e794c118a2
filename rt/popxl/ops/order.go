package ops

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// TopK returns the k greatest elements along an axis, or the least if least, in order, and their positions. Of equal ones the first comes first.
func TopK[T popxl.Number](x popxl.Tensor[T], k, of int64, least bool) (values popxl.Tensor[T], positions popxl.Tensor[int64]) {
	const call = "ops.TopK"
	a, ok := along(call, x, of)
	if !ok {
		return popxl.Failed[T](x.Ir()), popxl.Failed[int64](x.Ir())
	}
	return popxl.Apply2[T, int64](call, &graph.TopK{Axis: a, K: k, Least: least}, x)
}

// Median returns the median of the elements along an axis, of an even number of them the lower one, and its position; the axis is gone from both.
func Median[T popxl.Number](x popxl.Tensor[T], of int64) (values popxl.Tensor[T], positions popxl.Tensor[int64]) {
	const call = "ops.Median"
	a, ok := along(call, x, of)
	if !ok {
		return popxl.Failed[T](x.Ir()), popxl.Failed[int64](x.Ir())
	}
	shape := x.Shape()
	k := (shape[a] + 1) / 2
	all, places := popxl.Apply2[T, int64](call, &graph.TopK{Axis: a, K: k, Least: true}, x)
	shape[a] = 1
	last := &graph.Slice{Start: make([]int64, len(shape)), Size: shape, Step: slices.Repeat([]int64{1}, len(shape))}
	last.Start[a] = max(k-1, 0)
	gone := &graph.Reshape{Shape: slices.Delete(slices.Clone(shape), int(a), int(a)+1)}
	return popxl.Apply[T](call, gone, popxl.Apply[T](call, last, all)), popxl.Apply[int64](call, gone, popxl.Apply[int64](call, last, places))
}

// Cumsum returns the sums of the elements along an axis up to each.
func Cumsum[T popxl.Number](x popxl.Tensor[T], of int64) popxl.Tensor[T] {
	const call = "ops.Cumsum"
	a, ok := along(call, x, of)
	if !ok {
		return popxl.Failed[T](x.Ir())
	}
	return popxl.Apply[T](call, &graph.Cumulate{Fn: graph.CumulateSum, Axis: a}, x)
}
