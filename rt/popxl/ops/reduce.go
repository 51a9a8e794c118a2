package ops

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// axis returns a in 0 … rank-1.
func axis(a int64, rank int) (int64, error) {
	r := int64(rank)
	if a < -r || a >= r {
		return 0, fmt.Errorf("axis %d, want one from %d to %d", a, -r, r-1)
	}
	if a < 0 {
		a += r
	}
	return a, nil
}

// axes returns axes ascending, each once; all of them if none is given.
func axes(given []int64, rank int) ([]int64, error) {
	var all []int64
	for _, a := range given {
		n, err := axis(a, rank)
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, n) {
			return nil, fmt.Errorf("axis %d is given twice", n)
		}
		all = append(all, n)
	}
	for a := range int64(rank) {
		if len(given) == 0 {
			all = append(all, a)
		}
	}
	slices.Sort(all)
	return all, nil
}

func reduce[T popxl.Number](call string, fn graph.ReduceFn, x popxl.Tensor[T], given []int64) popxl.Tensor[T] {
	if !x.Valid() {
		return x
	}
	over, err := axes(given, len(x.Shape()))
	if err != nil {
		return popxl.Fail[T](x.Ir(), call, err)
	}
	return popxl.Apply[T](call, &graph.Reduce{Fn: fn, Axes: over}, x)
}

// Sum returns the sum over the given axes, all if none is given; they are gone from the result.
func Sum[T popxl.Number](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.Sum", graph.ReduceSum, x, over)
}

// Mean returns the mean over the given axes, all if none is given; they are gone from the result.
func Mean[T popxl.Float](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.Mean", graph.ReduceMean, x, over)
}

// Max returns the greatest element over the given axes, all if none is given; they are gone from the result.
func Max[T popxl.Number](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.Max", graph.ReduceMax, x, over)
}

// Min returns the least element over the given axes, all if none is given; they are gone from the result.
func Min[T popxl.Number](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.Min", graph.ReduceMin, x, over)
}

// Prod returns the product over the given axes, all if none is given; they are gone from the result.
func Prod[T popxl.Number](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.Prod", graph.ReduceProd, x, over)
}

// L1 returns the sum of absolute values over the given axes, all if none is given; they are gone from the result.
func L1[T popxl.Float](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.L1", graph.ReduceL1, x, over)
}

// L2 returns the square root of the sum of squares over the given axes, all if none is given; they are gone from the result.
func L2[T popxl.Float](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.L2", graph.ReduceL2, x, over)
}

// LogSum returns the logarithm of the sum over the given axes, all if none is given; they are gone from the result.
func LogSum[T popxl.Float](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.LogSum", graph.ReduceLogSum, x, over)
}

// LogSumExp returns the logarithm of the sum of exponentials over the given axes, all if none is given; they are gone from the result.
func LogSumExp[T popxl.Float](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.LogSumExp", graph.ReduceLogSumExp, x, over)
}

// SumSquare returns the sum of squares over the given axes, all if none is given; they are gone from the result.
func SumSquare[T popxl.Number](x popxl.Tensor[T], over ...int64) popxl.Tensor[T] {
	return reduce("ops.SumSquare", graph.ReduceSumSquare, x, over)
}

// LambSquare returns the sum of the squares of all elements as float32, in which they are computed: what the LAMB optimizer takes of a tensor's norm.
func LambSquare[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[float32] {
	const call = "ops.LambSquare"
	return reduce(call, graph.ReduceSumSquare, popxl.Apply[float32](call, &graph.Cast{To: graph.F32}, x), nil)
}

// Histogram returns how many elements of x lie between the numbers of levels, which ascend: below levels[0], from levels[0] on and below levels[1], and so on, from the last on; with absolute, how many of their absolute
// values. There is one number more than levels. An element that is no number counts as below all.
func Histogram[T popxl.Float](x popxl.Tensor[T], levels []float64, absolute bool) popxl.Tensor[uint32] {
	const call = "ops.Histogram"
	if !x.Valid() {
		return popxl.Failed[uint32](x.Ir())
	}
	for i, l := range levels {
		if l != l || i > 0 && l <= levels[i-1] {
			return popxl.Fail[uint32](x.Ir(), call, fmt.Errorf("level %d is %g, want numbers that ascend", i, l))
		}
	}
	n := int64(1)
	for _, d := range x.Shape() {
		n *= d
	}
	if n > 1<<31-1 || len(levels) > 1<<16 {
		return popxl.Fail[uint32](x.Ir(), call, fmt.Errorf("%d elements and %d levels, want less than 2^31 and at most 2^16", n, len(levels)))
	}
	if absolute {
		x = popxl.Apply[T](call, &graph.Unary{Fn: graph.Abs}, x)
	}
	// How many are at least each level; the counts are the differences.
	above := []popxl.Operand{popxl.Constant(x.Ir(), []int32{int32(n)}, 1)}
	for _, l := range levels {
		over := popxl.Apply[bool](call, &graph.Binary{Fn: graph.GreaterEqual}, x, number[T](call, x.Ir(), l))
		count := reduce(call, graph.ReduceSum, popxl.Apply[int32](call, &graph.Cast{To: graph.I32}, over), nil)
		above = append(above, popxl.Apply[int32](call, &graph.Reshape{Shape: []int64{1}}, count))
	}
	from := popxl.Apply[int32](call, &graph.Concat{}, above...)
	to := popxl.Apply[int32](call, &graph.Concat{}, append(slices.Clone(above[1:]), popxl.Constant(x.Ir(), []int32{0}, 1))...)
	return popxl.Apply[uint32](call, &graph.Cast{To: graph.U32}, popxl.Apply[int32](call, &graph.Binary{Fn: graph.Sub}, from, to))
}

// Argmax returns the positions of the greatest elements along an axis, of equal ones the first; the axis is gone from the result.
func Argmax[T popxl.Number](x popxl.Tensor[T], along int64) popxl.Tensor[int64] {
	return argmax("ops.Argmax", x, along, false)
}

// Argmin returns the positions of the least elements along an axis, of equal ones the first; the axis is gone from the result.
func Argmin[T popxl.Number](x popxl.Tensor[T], along int64) popxl.Tensor[int64] {
	return argmax("ops.Argmin", x, along, true)
}

func argmax[T popxl.Number](call string, x popxl.Tensor[T], along int64, least bool) popxl.Tensor[int64] {
	if !x.Valid() {
		return popxl.Failed[int64](x.Ir())
	}
	a, err := axis(along, len(x.Shape()))
	if err != nil {
		return popxl.Fail[int64](x.Ir(), call, err)
	}
	return popxl.Apply[int64](call, &graph.ArgMax{Axis: a, Min: least}, x)
}

// Softmax returns exponentials of x divided by their sum along an axis.
func Softmax[T popxl.Float](x popxl.Tensor[T], along int64) popxl.Tensor[T] {
	if !x.Valid() {
		return x
	}
	a, err := axis(along, len(x.Shape()))
	if err != nil {
		return popxl.Fail[T](x.Ir(), "ops.Softmax", err)
	}
	return popxl.Apply[T]("ops.Softmax", &graph.Softmax{Axis: a}, x)
}

// MatMul returns the matrix product over the last two axes; those before them broadcast, and a vector is a row on the left, a
// column on the right.
func MatMul[T popxl.Float](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.MatMul", &graph.MatMul{}, a, b)
}
