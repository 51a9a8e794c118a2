package ops

import (
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// rows returns the indices from element i of starts to that plus size-1.
func rows(call string, starts popxl.Tensor[int32], i, size int64) popxl.Tensor[int32] {
	if size < 1 || size > 1<<30 {
		return popxl.Fail[int32](starts.Ir(), call, fmt.Errorf("%d elements, want 1 to 2^30", size))
	}
	up := make([]int32, size)
	for i := range up {
		up[i] = int32(i)
	}
	first := starts
	if len(starts.Shape()) != 1 {
		first = popxl.Apply[int32](call, &graph.Reshape{Shape: []int64{1}}, first)
	} else if starts.Shape()[0] != 1 {
		first = popxl.Apply[int32](call, &graph.Slice{Start: []int64{i}, Size: []int64{1}, Step: []int64{1}}, first)
	}
	return popxl.Apply[int32](call, &graph.Binary{Fn: graph.Add}, first, popxl.Constant(starts.Ir(), up, size))
}

// boxAxes returns the axes of x along which a box lies that begins at starts, one element for each axis. It is not ok if there are none since a call failed, or, which is kept as a mistake, numbers
// do not fit each other.
func boxAxes[T popxl.Element](call string, x popxl.Tensor[T], starts popxl.Tensor[int32], given []int64) ([]int64, bool) {
	if !x.Valid() || !starts.Valid() {
		return nil, false
	}
	at := make([]int64, len(given))
	for i, a := range given {
		var ok bool
		if at[i], ok = along(call, x, a); !ok {
			return nil, false
		}
		if slices.Contains(at[:i], at[i]) {
			popxl.Fail[T](x.Ir(), call, fmt.Errorf("axis %d is given twice", at[i]))
			return nil, false
		}
	}
	n := int64(1)
	for _, d := range starts.Shape() {
		n *= d
	}
	if n != int64(len(at)) || n == 0 {
		popxl.Fail[T](x.Ir(), call, fmt.Errorf("start has %d elements and there are %d axes, want one element for each axis, of which there is one at least", n, len(at)))
		return nil, false
	}
	return at, true
}

// DynamicSlice returns a part of x that is known when the model runs: along axes, as many elements as sizes says, beginning with start, which has an element for each axis. A part that does not lie
// within x ends the run with an error; PopXL wraps it around.
func DynamicSlice[T popxl.Element](x popxl.Tensor[T], start popxl.Tensor[int32], axes, sizes []int64) popxl.Tensor[T] {
	const call = "ops.DynamicSlice"
	at, ok := boxAxes(call, x, start, axes)
	if !ok {
		return popxl.Failed[T](x.Ir())
	}
	if len(sizes) != len(at) {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("%d sizes, want the %d of the axes", len(sizes), len(at)))
	}
	for i, a := range at {
		x = popxl.Apply[T](call, &graph.Gather{Axis: a}, x, rows(call, start, int64(i), sizes[i]))
	}
	return x
}

// DynamicUpdate returns x with a part replaced that is known when the model runs: along axes, it begins with start, which has an element for each axis, and is as long as part, whose other sizes are
// those of x. A part that does not fit there ends the run with an error.
func DynamicUpdate[T popxl.Element](x popxl.Tensor[T], start popxl.Tensor[int32], part popxl.Tensor[T], axes []int64) popxl.Tensor[T] {
	const call = "ops.DynamicUpdate"
	at, ok := boxAxes(call, x, start, axes)
	if !ok || !part.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	shape, has := part.Shape(), x.Shape()
	fits := len(shape) == len(has)
	for a := 0; fits && a < len(has); a++ {
		fits = shape[a] == has[a] || slices.Contains(at, int64(a))
	}
	if !fits {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("the part is %s and x %s, want the same sizes but of axes %s", graph.ShapeString(shape), graph.ShapeString(has), graph.ShapeString(at)))
	}
	return updated(call, x, start, part, at, 0)
}

// updated replaces the part of x along axis i of at and those behind it.
func updated[T popxl.Element](call string, x popxl.Tensor[T], start popxl.Tensor[int32], part popxl.Tensor[T], at []int64, i int) popxl.Tensor[T] {
	a, shape := at[i], part.Shape()
	if !x.Valid() || !part.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	places := rows(call, start, int64(i), shape[a])
	if i+1 < len(at) {
		part = updated(call, popxl.Apply[T](call, &graph.Gather{Axis: a}, x, places), start, part, at, i+1)
		if !part.Valid() {
			return part
		}
		shape = part.Shape()
	}
	column := slices.Repeat([]int64{1}, len(shape))
	column[a] = shape[a]
	to := popxl.Apply[int32](call, &graph.Expand{Shape: shape}, popxl.Apply[int32](call, &graph.Reshape{Shape: column}, places))
	return popxl.Apply[T](call, &graph.ScatterElements{Axis: a, Fn: graph.ScatterNone}, x, to, part)
}

// Scatter returns x with single elements changed: that of updates at a place goes to the same place of x but for an axis, along which indices name it. Indices and updates
// have the same sizes. fn is [graph.ScatterNone], which replaces elements, or says how they are reduced with those of x.
func Scatter[T popxl.Element, I int32 | int64](x popxl.Tensor[T], indices popxl.Tensor[I], updates popxl.Tensor[T], of int64, fn graph.ScatterFn) popxl.Tensor[T] {
	return scatter("ops.Scatter", x, indices, updates, of, fn)
}

func scatter[T popxl.Element, I int32 | int64](call string, x popxl.Tensor[T], indices popxl.Tensor[I], updates popxl.Tensor[T], of int64, fn graph.ScatterFn) popxl.Tensor[T] {
	a, ok := along(call, x, of)
	if !ok {
		return popxl.Failed[T](x.Ir())
	}
	return popxl.Apply[T](call, &graph.ScatterElements{Axis: a, Fn: fn}, x, indices, updates)
}

// ScatterReduce returns a tensor of x's sizes, but size elements along an axis, each of which is what fn makes of those elements of x whose index along that axis names it: [graph.ScatterAdd] their sum,
// [graph.ScatterMul] their product, [graph.ScatterMax] and [graph.ScatterMin] the greatest and the least, [graph.ScatterNone] the last of them. Indices have x's sizes, or are a vector with an element
// for each place of the axis. Where no index names an element it is 0, with ScatterMul 1, with ScatterMax and ScatterMin the infinity that any other number replaces.
// To begin with other numbers, take [Scatter].
func ScatterReduce[T popxl.Float, I int32 | int64](x popxl.Tensor[T], indices popxl.Tensor[I], of, size int64, fn graph.ScatterFn) popxl.Tensor[T] {
	const call = "ops.ScatterReduce"
	a, ok := along(call, x, of)
	if !ok || !indices.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	shape := x.Shape()
	if size < 1 {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("%d elements along axis %d, want at least 1", size, a))
	}
	if has := indices.Shape(); len(has) == 1 && len(shape) > 1 && has[0] == shape[a] {
		column := slices.Repeat([]int64{1}, len(shape))
		column[a] = shape[a]
		indices = popxl.Apply[I](call, &graph.Expand{Shape: slices.Clone(shape)}, popxl.Apply[I](call, &graph.Reshape{Shape: column}, indices))
	}
	first := map[graph.ScatterFn]float64{graph.ScatterMul: 1, graph.ScatterMax: math.Inf(-1), graph.ScatterMin: math.Inf(1)}[fn]
	shape[a] = size
	empty := popxl.Apply[T](call, &graph.Expand{Shape: shape}, number[T](call, x.Ir(), first))
	return scatter(call, empty, indices, x, a, fn)
}

// TiedGather is [Gather]: PopXL's tells a compiler for IPUs to lay x out for a product with it transposed, which a CPU has no use for.
func TiedGather[T popxl.Element, I int32 | int64](x popxl.Tensor[T], indices popxl.Tensor[I], along int64) popxl.Tensor[T] {
	return gather("ops.TiedGather", x, indices, along)
}

// GroupedGather returns [Gather] of each of the groups of x [groups, …] with the indices [groups, …] of that group: the sizes of a group's indices take the place of the axis, which is one of x but the first. An index
// that is out of range ends the run with an error.
func GroupedGather[T popxl.Element, I int32 | int64](x popxl.Tensor[T], indices popxl.Tensor[I], of int64) popxl.Tensor[T] {
	const call = "ops.GroupedGather"
	a, ok := along(call, x, of)
	if !ok || !indices.Valid() {
		return popxl.Failed[T](x.Ir())
	}
	shape, at := x.Shape(), indices.Shape()
	if a == 0 || len(at) < 1 || at[0] != shape[0] {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("x is %s, indices are %s and the axis is %d, want as many groups, the first size, of both, and an axis behind it", graph.ShapeString(shape), graph.ShapeString(at), a))
	}
	// The axis of x comes second, so that places of x[group, index] are named; then it goes back to where it was.
	perm := slices.Insert(slices.Delete(upTo(len(shape)), int(a), int(a)+1), 1, a)
	picked := popxl.Apply[T](call, &graph.GatherND{BatchDims: 1}, popxl.Apply[T](call, &graph.Transpose{Perm: perm}, x), popxl.Apply[I](call, &graph.Reshape{Shape: append(clone(at), 1)}, indices))
	back := upTo(len(shape) + len(at) - 2)
	places := slices.Clone(back[1:len(at)])
	back = slices.Insert(slices.Delete(back, 1, len(at)), int(a), places...)
	return popxl.Apply[T](call, &graph.Transpose{Perm: back}, picked)
}

// upTo returns the numbers from 0 to n-1.
func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

// OneHot gives indices an axis more, the last, of depth elements: on where the index names the element, off elsewhere. An index that names none gives off alone.
func OneHot[T popxl.Number, I int32 | int64](indices popxl.Tensor[I], depth int64, off, on popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.OneHot"
	one := func(v popxl.Tensor[T]) popxl.Tensor[T] {
		return popxl.Apply[T](call, &graph.Reshape{Shape: []int64{1}}, v)
	}
	values := popxl.Apply[T](call, &graph.Concat{}, one(off), one(on))
	return popxl.Apply[T](call, &graph.OneHot{Axis: int64(len(indices.Shape())), Depth: depth}, indices, values)
}
