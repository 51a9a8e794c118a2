package ops

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// splitNumber makes the numbers of which seeds are split independent of those that are drawn with the seed itself.
const splitNumber = 1

// draw returns random numbers, which follow from the seed and their place alone.
func draw[T popxl.Float | uint32](call string, seed popxl.Tensor[uint32], op graph.Random, shape []int64) popxl.Tensor[T] {
	op.To, op.Shape = popxl.TypeOf[T](), slices.Clone(shape)
	return popxl.Apply[T](call, &op, seed, popxl.Constant(seed.Ir(), []int64{0}))
}

// RandomUniform returns numbers from low to high, without high but for rounding, each as likely. seed is [2]: one seed gives the same numbers each time, on every machine, so a run that is to draw others
// takes its seed from an input, and calls that are not to draw the same take theirs from [SplitRandomSeed].
func RandomUniform[T popxl.Float](seed popxl.Tensor[uint32], low, high float64, shape ...int64) popxl.Tensor[T] {
	return draw[T]("ops.RandomUniform", seed, graph.Random{Fn: graph.RandomUniform, A: low, B: high}, shape)
}

// RandomNormal returns numbers of a normal distribution of that mean and standard deviation. seed is that of [RandomUniform].
func RandomNormal[T popxl.Float](seed popxl.Tensor[uint32], mean, deviation float64, shape ...int64) popxl.Tensor[T] {
	return draw[T]("ops.RandomNormal", seed, graph.Random{Fn: graph.RandomNormal, A: mean, B: deviation}, shape)
}

// SplitRandomSeed returns n seeds, made of one, with which calls draw numbers that have nothing to do with each other.
func SplitRandomSeed(seed popxl.Tensor[uint32], n int64) []popxl.Tensor[uint32] {
	const call = "ops.SplitRandomSeed"
	if n < 1 || n > 1<<16 {
		popxl.Fail[uint32](seed.Ir(), call, fmt.Errorf("%d seeds, want 1 to 65536", n))
		return slices.Repeat([]popxl.Tensor[uint32]{popxl.Failed[uint32](seed.Ir())}, int(min(max(n, 0), 1<<16)))
	}
	bits := draw[uint32](call, seed, graph.Random{Fn: graph.RandomBits, Number: splitNumber}, []int64{2 * n})
	seeds := make([]popxl.Tensor[uint32], n)
	for i := range seeds {
		seeds[i] = popxl.Apply[uint32](call, &graph.Slice{Start: []int64{int64(2 * i)}, Size: []int64{2}, Step: []int64{1}}, bits)
	}
	return seeds
}

// Dropout returns x with each element zero with probability p, 0 or more and less than 1, and divided by 1-p otherwise. What is dropped follows from the seed, as in [RandomUniform]; the gradient
// goes through what is not.
func Dropout[T popxl.Float](x popxl.Tensor[T], seed popxl.Tensor[uint32], p float64) popxl.Tensor[T] {
	const call = "ops.Dropout"
	if !x.Valid() {
		return x
	}
	if !(p >= 0 && p < 1) {
		return popxl.Fail[T](x.Ir(), call, fmt.Errorf("probability %g, want 0 or more and less than 1", p))
	}
	u := draw[float32](call, seed, graph.Random{Fn: graph.RandomUniform, B: 1}, x.Shape())
	kept := popxl.Apply[bool](call, &graph.Binary{Fn: graph.GreaterEqual}, u, popxl.Constant(x.Ir(), []float32{float32(p)}))
	scaled := popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, x, number[T](call, x.Ir(), 1/(1-p)))
	return popxl.Apply[T](call, &graph.Where{}, kept, scaled, number[T](call, x.Ir(), 0))
}
