package ops

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

func unary[T popxl.Element](call string, fn graph.UnaryFn, x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T](call, &graph.Unary{Fn: fn}, x)
}

// Abs returns |x|, for every element.
func Abs[T popxl.Number](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Abs", graph.Abs, x) }

// Negate returns -x, for every element.
func Negate[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return unary("ops.Negate", graph.Neg, x)
}

// Sign returns -1, 0 or 1, the sign of x, for every element.
func Sign[T popxl.Number](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Sign", graph.Sign, x) }

// Floor returns x rounded down, for every element.
func Floor[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return unary("ops.Floor", graph.Floor, x)
}

// Ceil returns x rounded up, for every element.
func Ceil[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Ceil", graph.Ceil, x) }

// Sqrt returns √x, for every element.
func Sqrt[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Sqrt", graph.Sqrt, x) }

// Exp returns e to the power of x, for every element.
func Exp[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Exp", graph.Exp, x) }

// Log returns the natural logarithm of x, for every element.
func Log[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Log", graph.Log, x) }

// Sin returns the sine of x, for every element.
func Sin[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Sin", graph.Sin, x) }

// Cos returns the cosine of x, for every element.
func Cos[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Cos", graph.Cos, x) }

// Tanh returns the hyperbolic tangent of x, for every element.
func Tanh[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Tanh", graph.Tanh, x) }

// Relu returns max(x, 0), for every element.
func Relu[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Relu", graph.Relu, x) }

// Gelu returns x·½·(1+erf(x/√2)), for every element.
func Gelu[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] { return unary("ops.Gelu", graph.Gelu, x) }

// Sigmoid returns 1/(1+e^-x), for every element.
func Sigmoid[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return unary("ops.Sigmoid", graph.Sigmoid, x)
}

// Swish returns x/(1+e^-x), for every element.
func Swish[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Swish", &graph.Unary{Fn: graph.Swish, Alpha: 1}, x)
}

// Round returns x rounded to the nearest integer, of two to the even one, for every element.
func Round[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	return unary("ops.Round", graph.Round, x)
}

// Log2 returns the logarithm of x to the base 2, for every element.
func Log2[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.Log2"
	return popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, unary(call, graph.Log, x), number[T](call, x.Ir(), 1/math.Ln2))
}

// IsNaN returns whether x is no number, for every element.
func IsNaN[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[bool] {
	const call = "ops.IsNaN"
	return unary(call, graph.Not, popxl.Apply[bool](call, &graph.Binary{Fn: graph.Equal}, x, x))
}

// IsInf returns whether x is infinite, for every element.
func IsInf[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[bool] {
	const call = "ops.IsInf"
	return popxl.Apply[bool](call, &graph.Binary{Fn: graph.Equal}, unary(call, graph.Abs, x), number[T](call, x.Ir(), math.Inf(1)))
}

// IsFinite returns whether x is a number and not infinite, for every element.
func IsFinite[T popxl.Float](x popxl.Tensor[T]) popxl.Tensor[bool] {
	const call = "ops.IsFinite"
	return popxl.Apply[bool](call, &graph.Binary{Fn: graph.Less}, unary(call, graph.Abs, x), number[T](call, x.Ir(), math.Inf(1)))
}

// number returns a constant of no dimensions.
func number[T popxl.Float](call string, ir *popxl.Ir, v float64) popxl.Tensor[T] {
	return popxl.Apply[T](call, &graph.Cast{To: popxl.TypeOf[T]()}, popxl.Constant(ir, []float64{v}))
}

// Add returns a + b, for every pair of elements.
func Add[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Add", &graph.Binary{Fn: graph.Add}, a, b)
}

// Sub returns a - b, for every pair of elements.
func Sub[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Sub", &graph.Binary{Fn: graph.Sub}, a, b)
}

// Mul returns a · b, for every pair of elements.
func Mul[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Mul", &graph.Binary{Fn: graph.Mul}, a, b)
}

// Div returns a / b; integers truncate, and by zero give 0, for every pair of elements.
func Div[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Div", &graph.Binary{Fn: graph.Div}, a, b)
}

// Maximum returns the greater of a and b, for every pair of elements.
func Maximum[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Maximum", &graph.Binary{Fn: graph.Max}, a, b)
}

// Minimum returns the lesser of a and b, for every pair of elements.
func Minimum[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Minimum", &graph.Binary{Fn: graph.Min}, a, b)
}

// Pow returns a to the power of b, for every pair of elements.
func Pow[T popxl.Float](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Pow", &graph.Binary{Fn: graph.Pow}, a, b)
}

// Equal returns whether a = b, for every pair of elements.
func Equal[T popxl.Element](a, b popxl.Tensor[T]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.Equal", &graph.Binary{Fn: graph.Equal}, a, b)
}

// Greater returns whether a > b, for every pair of elements.
func Greater[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.Greater", &graph.Binary{Fn: graph.Greater}, a, b)
}

// GreaterEqual returns whether a ≥ b, for every pair of elements.
func GreaterEqual[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.GreaterEqual", &graph.Binary{Fn: graph.GreaterEqual}, a, b)
}

// Less returns whether a < b, for every pair of elements.
func Less[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.Less", &graph.Binary{Fn: graph.Less}, a, b)
}

// LessEqual returns whether a ≤ b, for every pair of elements.
func LessEqual[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.LessEqual", &graph.Binary{Fn: graph.LessEqual}, a, b)
}

// LogicalAnd returns a and b, for every pair of elements.
func LogicalAnd(a, b popxl.Tensor[bool]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.LogicalAnd", &graph.Binary{Fn: graph.And}, a, b)
}

// LogicalOr returns a or b, for every pair of elements.
func LogicalOr(a, b popxl.Tensor[bool]) popxl.Tensor[bool] {
	return popxl.Apply[bool]("ops.LogicalOr", &graph.Binary{Fn: graph.Or}, a, b)
}

// LogicalNot returns whether x is false, for every element.
func LogicalNot(x popxl.Tensor[bool]) popxl.Tensor[bool] {
	return unary("ops.LogicalNot", graph.Not, x)
}

// Where returns a where cond is true and b elsewhere.
func Where[T popxl.Element](cond popxl.Tensor[bool], a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Where", &graph.Where{}, cond, a, b)
}

// Cast returns x with elements of type To: floats are truncated towards zero where To is an integer type, narrower integers wrap,
// bool is whether an element is not zero.
func Cast[To, From popxl.Element](x popxl.Tensor[From]) popxl.Tensor[To] {
	return popxl.Apply[To]("ops.Cast", &graph.Cast{To: popxl.TypeOf[To]()}, x)
}

// Fmod returns the remainder of a / b with the sign of a, for every pair of elements; of integers modulo 0 it is 0.
func Fmod[T popxl.Number](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T]("ops.Fmod", &graph.Mod{Truncated: true}, a, b)
}

// IncrementMod returns (x + increment) modulo a number, with the sign of the sum, for every element; both numbers are scalars.
func IncrementMod[T popxl.Number](x, increment, modulo popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.IncrementMod"
	return popxl.Apply[T](call, &graph.Mod{Truncated: true}, popxl.Apply[T](call, &graph.Binary{Fn: graph.Add}, x, increment), modulo)
}

// ScaledAdd returns α·x + β·y, for every pair of elements; α and β are scalars.
func ScaledAdd[T popxl.Number](x, y, alpha, beta popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.ScaledAdd"
	times := func(v, by popxl.Tensor[T]) popxl.Tensor[T] {
		return popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, v, by)
	}
	return popxl.Apply[T](call, &graph.Binary{Fn: graph.Add}, times(x, alpha), times(y, beta))
}

func bits[T popxl.Integer](call string, fn graph.BitwiseFn, a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T](call, &graph.Bitwise{Fn: fn}, a, b)
}

// flip returns x with every bit changed.
func flip[T popxl.Integer](call string, x popxl.Tensor[T]) popxl.Tensor[T] {
	return bits(call, graph.BitXor, x, popxl.Constant(x.Ir(), []T{^T(0)}))
}

// BitwiseAnd returns the bits that a and b have, for every pair of elements.
func BitwiseAnd[T popxl.Integer](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return bits("ops.BitwiseAnd", graph.BitAnd, a, b)
}

// BitwiseOr returns the bits that a or b has, for every pair of elements.
func BitwiseOr[T popxl.Integer](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return bits("ops.BitwiseOr", graph.BitOr, a, b)
}

// BitwiseXor returns the bits in which a and b differ, for every pair of elements.
func BitwiseXor[T popxl.Integer](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	return bits("ops.BitwiseXor", graph.BitXor, a, b)
}

// BitwiseXnor returns the bits in which a and b agree, for every pair of elements.
func BitwiseXnor[T popxl.Integer](a, b popxl.Tensor[T]) popxl.Tensor[T] {
	const call = "ops.BitwiseXnor"
	return flip(call, bits(call, graph.BitXor, a, b))
}

// BitwiseNot returns the bits that x does not have, for every element.
func BitwiseNot[T popxl.Integer](x popxl.Tensor[T]) popxl.Tensor[T] {
	return flip("ops.BitwiseNot", x)
}
