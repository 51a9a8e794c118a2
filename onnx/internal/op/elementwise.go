package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// elementwiseOps are the operators that work on elements one by one.
var elementwiseOps = map[string]definition{
	"Abs":         takes("X:numbers").since(1, unary(graph.Abs)),
	"Neg":         takes("X:signed").since(1, unary(graph.Neg)),
	"Sign":        takes("input:numbers").since(9, unary(graph.Sign)),
	"Reciprocal":  takes("X:floats").since(1, unary(graph.Reciprocal)),
	"Floor":       takes("X:floats").since(1, unary(graph.Floor)),
	"Ceil":        takes("X:floats").since(1, unary(graph.Ceil)),
	"Round":       takes("X:floats").since(11, unary(graph.Round)),
	"Sqrt":        takes("X:floats").since(1, unary(graph.Sqrt)),
	"Exp":         takes("input:floats").since(1, unary(graph.Exp)),
	"Log":         takes("input:floats").since(1, unary(graph.Log)),
	"Erf":         takes("input:numbers").since(9, erf),
	"Sin":         takes("input:floats").since(7, unary(graph.Sin)),
	"Cos":         takes("input:floats").since(7, unary(graph.Cos)),
	"Tan":         takes("input:floats").since(7, unary(graph.Tan)),
	"Asin":        takes("input:floats").since(7, unary(graph.Asin)),
	"Acos":        takes("input:floats").since(7, unary(graph.Acos)),
	"Atan":        takes("input:floats").since(7, unary(graph.Atan)),
	"Sinh":        takes("input:floats").since(9, unary(graph.Sinh)),
	"Cosh":        takes("input:floats").since(9, unary(graph.Cosh)),
	"Tanh":        takes("input:floats").since(1, unary(graph.Tanh)),
	"Asinh":       takes("input:floats").since(9, unary(graph.Asinh)),
	"Acosh":       takes("input:floats").since(9, unary(graph.Acosh)),
	"Atanh":       takes("input:floats").since(9, unary(graph.Atanh)),
	"Sigmoid":     takes("X:floats").since(1, unary(graph.Sigmoid)),
	"Relu":        takes("X:signed").since(1, unary(graph.Relu)),
	"Softplus":    takes("X:floats").since(1, unary(graph.Softplus)),
	"Softsign":    takes("input:floats").since(1, unary(graph.Softsign)),
	"Not":         takes("X:bool").since(1, unary(graph.Not)),
	"LeakyRelu":   takes("X:floats").since(1, unaryAlpha(graph.LeakyRelu), "alpha=0.01"),
	"Elu":         takes("X:floats").since(1, unaryAlpha(graph.Elu), "alpha=1.0"),
	"HardSigmoid": takes("X:floats").since(1, hardSigmoid, "alpha=0.2 beta=0.5"),

	"Add":            takes("A:T=numbers B:T").since(1, legacyBinary(graph.Add), "axis:int broadcast=0").since(7, numpyBinary(graph.Add)),
	"Sub":            takes("A:T=numbers B:T").since(1, legacyBinary(graph.Sub), "axis:int broadcast=0").since(7, numpyBinary(graph.Sub)),
	"Mul":            takes("A:T=numbers B:T").since(1, legacyBinary(graph.Mul), "axis:int broadcast=0").since(7, numpyBinary(graph.Mul)),
	"Div":            takes("A:T=numbers B:T").since(1, legacyBinary(graph.Div), "axis:int broadcast=0").since(7, numpyBinary(graph.Div)),
	"Pow":            takes("X:wide Y:numbers").since(1, legacyBinary(graph.Pow), "axis:int broadcast=0").since(7, numpyBinary(graph.Pow)),
	"Equal":          takes("A:T=numbers|bool B:T").since(1, legacyBinary(graph.Equal), "axis:int broadcast=0").since(7, numpyBinary(graph.Equal)),
	"Less":           takes("A:T=numbers B:T").since(1, legacyBinary(graph.Less), "axis:int broadcast=0").since(7, numpyBinary(graph.Less)),
	"Greater":        takes("A:T=numbers B:T").since(1, legacyBinary(graph.Greater), "axis:int broadcast=0").since(7, numpyBinary(graph.Greater)),
	"LessOrEqual":    takes("A:T=numbers B:T").since(12, numpyBinary(graph.LessEqual)),
	"GreaterOrEqual": takes("A:T=numbers B:T").since(12, numpyBinary(graph.GreaterEqual)),
	"And":            takes("A:T=bool B:T").since(1, legacyBinary(graph.And), "axis:int broadcast=0").since(7, numpyBinary(graph.And)),
	"Or":             takes("A:T=bool B:T").since(1, legacyBinary(graph.Or), "axis:int broadcast=0").since(7, numpyBinary(graph.Or)),
	"Xor":            takes("A:T=bool B:T").since(1, legacyBinary(graph.Xor), "axis:int broadcast=0").since(7, numpyBinary(graph.Xor)),

	"Max":  takes("data…:T=numbers").since(1, sameShapes(variadic(graph.Max))).since(8, variadic(graph.Max)),
	"Min":  takes("data…:T=numbers").since(1, sameShapes(variadic(graph.Min))).since(8, variadic(graph.Min)),
	"Sum":  takes("data…:T=floats").since(1, sameShapes(variadic(graph.Add))).since(8, variadic(graph.Add)),
	"Mean": takes("data…:T=floats").since(1, sameShapes(mean)).since(8, mean),

	"Clip":  takes("input:T=numbers min:T max:T").since(1, clipAttributes, "max:float min:float").since(11, clipOperands),
	"Where": takes("condition:bool X:T=any Y:T").since(9, where),
}

func unary(fn graph.UnaryFn) lowerFunc {
	return func(c *call) []*lower.Value { return lower.One(c.Emit(&graph.Unary{Fn: fn}, c.In(0))) }
}

func unaryAlpha(fn graph.UnaryFn) lowerFunc {
	return func(c *call) []*lower.Value {
		return lower.One(c.Emit(&graph.Unary{Fn: fn, Alpha: c.Float("alpha")}, c.In(0)))
	}
}

// erf has a meaning for integers in ONNX, which cuts the result off.
func erf(c *call) []*lower.Value {
	x, op := c.In(0), &graph.Unary{Fn: graph.Erf}
	if x.Type.DType.IsFloat() {
		return lower.One(c.Emit(op, x))
	}
	return lower.One(c.cast(c.Emit(op, c.cast(x, graph.F64)), x.Type.DType))
}

func hardSigmoid(c *call) []*lower.Value {
	op := &graph.Unary{Fn: graph.HardSigmoid, Alpha: c.Float("alpha"), Beta: c.Float("beta")}
	return lower.One(c.Emit(op, c.In(0)))
}

// numpyBinary broadcasts by numpy's rules.
func numpyBinary(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*lower.Value { return lower.One(c.Emit(&graph.Binary{Fn: fn}, c.In(0), c.In(1))) }
}

// legacyBinary broadcasts as operators did before version 7: the second
// operand only, only if attribute broadcast says so, and with its dimensions
// aligned at attribute axis, or else at the last axis.
func legacyBinary(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*lower.Value {
		a, b := c.In(0), c.In(1)
		axis := max(a.Rank()-b.Rank(), 0)
		if set := c.Attr("axis"); set != nil {
			axis = set.Int
		}
		if !c.Bool("broadcast") {
			if !slices.Equal(a.Type.Shape, b.Type.Shape) {
				c.Fail("operands are %v and %v, want equal shapes, as attribute broadcast is not set", a.Type, b.Type)
			}
			return lower.One(c.Emit(&graph.Binary{Fn: fn}, a, b))
		}
		if axis < 0 {
			axis += a.Rank()
		}
		after := a.Rank() - b.Rank() - axis
		if axis < 0 || axis > a.Rank() || after < 0 {
			c.Fail("operand 1 is %v, want a shape that fits into operand 0, %v, from axis %d on", b.Type, a.Type, axis)
		}
		if after > 0 {
			shape := slices.Clone(b.Type.Shape)
			for range after {
				shape = append(shape, 1)
			}
			b = c.Emit(&graph.Reshape{Shape: shape}, b)
		}
		y := c.Emit(&graph.Binary{Fn: fn}, a, b)
		if !slices.Equal(y.Type.Shape, a.Type.Shape) {
			c.Fail("operand 1 is %v, want a shape that broadcasts to operand 0, %v", b.Type, a.Type)
		}
		return lower.One(y)
	}
}

// variadic applies fn from left to right.
func variadic(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*lower.Value {
		all := c.All()
		y := all[0]
		for _, v := range all[1:] {
			y = c.Emit(&graph.Binary{Fn: fn}, y, v)
		}
		return lower.One(y)
	}
}

func mean(c *call) []*lower.Value {
	y := variadic(graph.Add)(c)[0]
	return lower.One(c.Emit(&graph.Binary{Fn: graph.Div}, y, lower.Scalar(y.Type.DType, float64(len(c.All())))))
}

// sameShapes refuses broadcasting, which came with version 8.
func sameShapes(f lowerFunc) lowerFunc {
	return func(c *call) []*lower.Value {
		all := c.All()
		for i, v := range all {
			if !slices.Equal(v.Type.Shape, all[0].Type.Shape) {
				c.Fail("operand %d is %v, want the shape of operand 0, %v", i, v.Type, all[0].Type)
			}
		}
		return f(c)
	}
}

func clipAttributes(c *call) []*lower.Value {
	x := c.In(0)
	var limit [2]*lower.Value
	for i, name := range []string{"min", "max"} {
		if a := c.Attr(name); a != nil {
			limit[i] = lower.Scalar(x.Type.DType, float64(a.Float))
		}
	}
	return lower.One(c.Emit(&graph.Clip{}, x, limit[0], limit[1]))
}

func clipOperands(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.Clip{}, c.In(0), c.Opt(1).Constant(), c.Opt(2).Constant()))
}

func where(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.Where{}, c.In(0), c.In(1), c.In(2)))
}
