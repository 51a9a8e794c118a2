package ops

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt/popxl"
)

// power returns 2 to the power of a whole number.
func power(call string, log2 popxl.Tensor[int32]) popxl.Tensor[float32] {
	two := popxl.Constant(log2.Ir(), []float32{2})
	return popxl.Apply[float32](call, &graph.Binary{Fn: graph.Pow}, two, popxl.Apply[float32](call, &graph.Cast{To: graph.F32}, log2))
}

// scaled returns x·2^log2 as float32.
func scaled[T popxl.Element](call string, x popxl.Tensor[T], log2 popxl.Tensor[int32]) popxl.Tensor[float32] {
	return popxl.Apply[float32](call, &graph.Binary{Fn: graph.Mul}, popxl.Apply[float32](call, &graph.Cast{To: graph.F32}, x), power(call, log2))
}

// Pow2ScaleCastToFP8 returns x·2^log2 in 8 bits, log2 being a scalar; what is too large becomes the greatest number of the type, or no number, as the conversion of ipu/num says.
func Pow2ScaleCastToFP8[To popxl.Float8, T num.Float16 | float32](x popxl.Tensor[T], log2 popxl.Tensor[int32]) popxl.Tensor[To] {
	const call = "ops.Pow2ScaleCastToFP8"
	return popxl.Apply[To](call, &graph.Cast{To: popxl.TypeOf[To]()}, scaled(call, x, log2))
}

// Pow2ScaleCastFromFP8 returns x·2^log2 of numbers of 8 bits in more, log2 being a scalar.
func Pow2ScaleCastFromFP8[To num.Float16 | float32, T popxl.Float8](x popxl.Tensor[T], log2 popxl.Tensor[int32]) popxl.Tensor[To] {
	const call = "ops.Pow2ScaleCastFromFP8"
	return popxl.Apply[To](call, &graph.Cast{To: popxl.TypeOf[To]()}, scaled(call, x, log2))
}

// MatMulPow2Scaled returns the matrix product of numbers of 8 bits times 2^log2, log2 being a scalar: sums are float32, and the result is rounded once.
func MatMulPow2Scaled[A, B popxl.Float8](a popxl.Tensor[A], b popxl.Tensor[B], log2 popxl.Tensor[int32]) popxl.Tensor[num.Float16] {
	const call = "ops.MatMulPow2Scaled"
	wide := &graph.Cast{To: graph.F32}
	y := popxl.Apply[float32](call, &graph.MatMul{}, popxl.Apply[float32](call, wide, a), popxl.Apply[float32](call, wide, b))
	return popxl.Apply[num.Float16](call, &graph.Cast{To: graph.F16}, scaled(call, y, log2))
}

// ConvPow2Scaled returns [Conv] of numbers of 8 bits times 2^log2, log2 being a scalar: sums are float32, and the result is rounded once.
func ConvPow2Scaled[X, W popxl.Float8](x popxl.Tensor[X], weights popxl.Tensor[W], log2 popxl.Tensor[int32], groups int64, w Window) popxl.Tensor[num.Float16] {
	const call = "ops.ConvPow2Scaled"
	wide := &graph.Cast{To: graph.F32}
	y := conv(call, popxl.Apply[float32](call, wide, x), popxl.Apply[float32](call, wide, weights), groups, w)
	return popxl.Apply[num.Float16](call, &graph.Cast{To: graph.F16}, scaled(call, y, log2))
}
