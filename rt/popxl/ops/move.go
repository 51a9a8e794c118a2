package ops

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// Reshape returns x with other sizes and as many elements.
func Reshape[T popxl.Element](x popxl.Tensor[T], shape ...int64) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Reshape", &graph.Reshape{Shape: slices.Clone(shape)}, x)
}

// Identity returns x.
func Identity[T popxl.Element](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Identity", &graph.Reshape{Shape: x.Shape()}, x)
}

// Transpose returns x with its axes in another order: axis i of the result is axis perm[i] of x. Without perm it reverses them.
func Transpose[T popxl.Element](x popxl.Tensor[T], perm ...int64) popxl.Tensor[T] {
	perm = slices.Clone(perm)
	if len(perm) == 0 {
		for a := range x.Shape() {
			perm = append([]int64{int64(a)}, perm...)
		}
	}
	return popxl.Apply[T]("ops.Transpose", &graph.Transpose{Perm: perm}, x)
}

// Concat joins tensors along an axis. Their other sizes are equal.
func Concat[T popxl.Element](along int64, xs ...popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.Concat"
	operands := make([]popxl.Operand, len(xs))
	for i, x := range xs {
		operands[i] = x
		if !x.Valid() {
			return x
		}
	}
	if len(xs) == 0 {
		return popxl.Tensor[T]{}
	}
	a, err := axis(along, len(xs[0].Shape()))
	if err != nil {
		return popxl.Fail[T](xs[0].Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Concat{Axis: a}, operands...)
}

// Gather returns the slices of x along an axis that indices name: the sizes of indices take the place of the axis. An index that is
// out of range ends the run with an error.
func Gather[T popxl.Element, I int32 | int64](x popxl.Tensor[T], indices popxl.Tensor[I], along int64) popxl.Tensor[T] {
	return gather("ops.Gather", x, indices, along)
}

func gather[T popxl.Element, I int32 | int64](call string, x popxl.Tensor[T], indices popxl.Tensor[I], along int64) popxl.Tensor[T] {
	if !x.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	a, err := axis(along, len(x.Shape()))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Gather{Axis: a}, x, indices)
}

// Clip returns x with every element kept within low and high, scalars.
func Clip[T popxl.Number](x, low, high popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Clip", &graph.Clip{}, x, low, high)
}
