package ops

import (
	"errors"
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
	const call = "ops.Gather"
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

// ErrSpatial is the error of windows whose lists of numbers have other lengths than the image has spatial axes.
var ErrSpatial = errors.New("there are not as many numbers as spatial axes")

// Window says where a convolution or a pooling looks at its operand; all lists have one number per spatial axis.
type Window struct {
	Strides   []int64 // nil: 1 each
	Dilations []int64 // nil: 1 each
	Begin     []int64 // padding before; nil: none
	End       []int64 // padding behind; nil: none
}

// fill returns w with defaults for axes spatial axes.
func (w Window) fill(spatial int) (Window, error) {
	for _, l := range []struct {
		of    *[]int64
		usual int64
	}{{&w.Strides, 1}, {&w.Dilations, 1}, {&w.Begin, 0}, {&w.End, 0}} {
		if *l.of == nil {
			*l.of = slices.Repeat([]int64{l.usual}, spatial)
		}
		if len(*l.of) != spatial {
			return w, ErrSpatial
		}
		*l.of = slices.Clone(*l.of)
	}
	return w, nil
}

// Conv returns the convolution of x [N, C, …] with weights [M, C/groups, …], over 1 to 3 spatial axes.
func Conv[T popxl.Float](x, weights popxl.Tensor[T], groups int64, w Window) popxl.Tensor[T] {
	const call = "ops.Conv"
	if !x.Valid() {
		return x
	}
	w, err := w.fill(max(len(x.Shape())-2, 0))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Conv{Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, PadsEnd: w.End, Group: groups}, x, weights)
}

// MaxPool returns the greatest element of each window of x [N, C, …]; kernel has the window's sizes.
func MaxPool[T popxl.Float](x popxl.Tensor[T], kernel []int64, w Window) popxl.Tensor[T] {
	const call = "ops.MaxPool"
	if !x.Valid() {
		return x
	}
	w, err := w.fill(max(len(x.Shape())-2, 0))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.MaxPool{Kernel: slices.Clone(kernel), Strides: w.Strides, Dilations: w.Dilations, PadsBegin: w.Begin, PadsEnd: w.End}, x)
}
