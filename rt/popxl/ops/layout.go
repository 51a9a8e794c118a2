package ops

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

func clone(v []int64) []int64 { return slices.Clone(v) }

// along returns one axis of x. It is not ok if x is no tensor, or, which is kept as a mistake, has no such axis.
func along[T popxl.Element](call string, x popxl.Tensor[T], a int64) (int64, bool) {
	if !x.Valid() {
		return 0, false
	}
	a, err := axis(a, len(x.Shape()))
	if err != nil {
		popxl.Fail[T](x.Ir(), call, err)
	}
	return a, err == nil
}

// Detach returns x, through which no gradient flows.
func Detach[T popxl.Element](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Detach("ops.Detach", x)
}

// Flatten returns x as a vector.
func Flatten[T popxl.Element](x popxl.Tensor[T]) popxl.Tensor[T] {
	n := int64(1)
	for _, d := range x.Shape() {
		n *= d
	}
	return popxl.Apply[T]("ops.Flatten", &graph.Reshape{Shape: []int64{n}}, x)
}

// Squeeze returns x without the given axes, which have one element each; without all that have one if none is given.
func Squeeze[T popxl.Element](x popxl.Tensor[T], gone ...int64) popxl.Tensor[T] {
	const call = "ops.Squeeze"
	if !x.Valid() {
		return x
	}
	shape := x.Shape()
	var out []int64
	drop, err := axes(gone, len(shape))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	for a, d := range shape {
		switch named := slices.Contains(drop, int64(a)); {
		case named && d == 1:
		case named && len(gone) > 0:
			return popxl.Fail[T](x.Ir(), call, fmt.Errorf("axis %d of x, which is %s, has %d elements, want 1", a, graph.ShapeString(shape), d))
		default:
			out = append(out, d)
		}
	}
	return popxl.Apply[T](call, &graph.Reshape{Shape: out}, x)
}

// Unsqueeze returns x with axes of one element more, which have these numbers in the result.
func Unsqueeze[T popxl.Element](x popxl.Tensor[T], added ...int64) popxl.Tensor[T] {
	const call = "ops.Unsqueeze"
	if !x.Valid() || len(added) == 0 {
		return x
	}
	shape := x.Shape()
	at, err := axes(added, len(shape)+len(added))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	for _, a := range at {
		shape = slices.Insert(shape, int(a), 1)
	}
	return popxl.Apply[T](call, &graph.Reshape{Shape: shape}, x)
}

// Slice returns the elements start, start+step, … before stop of an axis of x. Start and stop count from the end if they are negative, and are limited to the axis, as in Python; step is
// not 0. A negative step goes back; it begins at start.
func Slice[T popxl.Element](x popxl.Tensor[T], of, start, stop, step int64) popxl.Tensor[T] {
	const call = "ops.Slice"
	a, ok := along(call, x, of)
	if !ok {
		return popxl.Failed[T](x.Ir())
	}
	if step == 0 {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("the step is 0"))
	}
	shape := x.Shape()
	size := shape[a]
	low, high := int64(0), size
	if step < 0 {
		low, high = -1, size-1
	}
	limit := func(v int64) int64 {
		if v < 0 {
			v = max(v, -size-1) + size
		}
		return min(max(v, low), high)
	}
	start, stop = limit(start), limit(stop)
	n := int64(0)
	switch {
	case step > 0 && stop > start:
		n = (stop-start-1)/step + 1
	case step < 0 && start > stop:
		n = (start-stop-1)/-max(step, -size-1) + 1
	}
	s := &graph.Slice{Start: make([]int64, len(shape)), Size: shape, Step: slices.Repeat([]int64{1}, len(shape))}
	s.Size[a] = n
	if n > 0 {
		s.Start[a] = start
	}
	if n > 1 {
		s.Step[a] = step
	}
	return popxl.Apply[T](call, s, x)
}

// Subsample returns every so many-th element along each axis of x, beginning with the first; strides has a number for each axis.
func Subsample[T popxl.Element](x popxl.Tensor[T], strides ...int64) popxl.Tensor[T] {
	const call = "ops.Subsample"
	if !x.Valid() {
		return x
	}
	shape := x.Shape()
	s := &graph.Slice{Start: make([]int64, len(shape)), Size: shape, Step: slices.Repeat([]int64{1}, len(shape))}
	if len(strides) != len(shape) {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("%d strides, want the %d of x, which is %s", len(strides), len(shape), graph.ShapeString(shape)))
	}
	for a, by := range strides {
		if by < 1 {
			return popxl.Fail[T](x.Ir(), call, fmt.Errorf("stride %d of axis %d, want at least 1", by, a))
		}
		if n := shape[a]; n > 0 {
			s.Size[a] = (n-1)/by + 1
		}
		if s.Size[a] > 1 {
			s.Step[a] = by
		}
	}
	return popxl.Apply[T](call, s, x)
}

// Split returns parts of x that follow each other along an axis and have these sizes, which add up to that of the axis.
func Split[T popxl.Element](x popxl.Tensor[T], of int64, sizes ...int64) []popxl.Tensor[T] {
	const call = "ops.Split"
	parts := slices.Repeat([]popxl.Tensor[T]{popxl.Failed[T](x.Ir())}, len(sizes))
	a, ok := along(call, x, of)
	if !ok {
		return parts
	}
	shape := x.Shape()
	left := shape[a]
	for _, n := range sizes {
		if n < 0 || n > left {
			left = -1
			break
		}
		left -= n
	}
	if left != 0 {
		popxl.Fail[T](x.Ir(), call, fmt.Errorf("sizes %s do not add up to the %d elements of axis %d", graph.ShapeString(sizes), shape[a], a))
		return parts
	}
	at := int64(0)
	for i, n := range sizes {
		s := &graph.Slice{Start: make([]int64, len(shape)), Size: slices.Clone(shape), Step: slices.Repeat([]int64{1}, len(shape))}
		s.Start[a], s.Size[a] = at, n
		parts[i] = popxl.Apply[T](call, s, x)
		at += n
	}
	return parts
}

// Init returns a tensor of zeros: PopXL's init, whose other kinds leave memory as it is, which this engine has no use for.
func Init[T popxl.Number](ir *popxl.Ir, shape ...int64) popxl.Tensor[T] {
	const call = "ops.Init"
	return popxl.Apply[T](call, &graph.Expand{Shape: slices.Clone(shape)}, popxl.Constant(ir, make([]T, 1)))
}
