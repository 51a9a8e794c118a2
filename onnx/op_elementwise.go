package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// elementwiseOps are the operators that work on elements one by one.
var elementwiseOps = map[string][]since{
	"Abs":         {{1, unary(graph.Abs)}},
	"Neg":         {{1, unary(graph.Neg)}},
	"Sign":        {{9, unary(graph.Sign)}},
	"Reciprocal":  {{1, unary(graph.Reciprocal)}},
	"Floor":       {{1, unary(graph.Floor)}},
	"Ceil":        {{1, unary(graph.Ceil)}},
	"Round":       {{11, unary(graph.Round)}},
	"Sqrt":        {{1, unary(graph.Sqrt)}},
	"Exp":         {{1, unary(graph.Exp)}},
	"Log":         {{1, unary(graph.Log)}},
	"Erf":         {{9, unary(graph.Erf)}},
	"Sin":         {{7, unary(graph.Sin)}},
	"Cos":         {{7, unary(graph.Cos)}},
	"Tan":         {{7, unary(graph.Tan)}},
	"Asin":        {{7, unary(graph.Asin)}},
	"Acos":        {{7, unary(graph.Acos)}},
	"Atan":        {{7, unary(graph.Atan)}},
	"Sinh":        {{9, unary(graph.Sinh)}},
	"Cosh":        {{9, unary(graph.Cosh)}},
	"Tanh":        {{1, unary(graph.Tanh)}},
	"Asinh":       {{9, unary(graph.Asinh)}},
	"Acosh":       {{9, unary(graph.Acosh)}},
	"Atanh":       {{9, unary(graph.Atanh)}},
	"Sigmoid":     {{1, unary(graph.Sigmoid)}},
	"Relu":        {{1, unary(graph.Relu)}},
	"Softplus":    {{1, unary(graph.Softplus)}},
	"Softsign":    {{1, unary(graph.Softsign)}},
	"Not":         {{1, unary(graph.Not)}},
	"LeakyRelu":   {{1, unaryAlpha(graph.LeakyRelu, 0.01)}},
	"Elu":         {{1, unaryAlpha(graph.Elu, 1)}},
	"HardSigmoid": {{1, hardSigmoid}},

	"Add":            {{1, legacyBinary(graph.Add)}, {7, numpyBinary(graph.Add)}},
	"Sub":            {{1, legacyBinary(graph.Sub)}, {7, numpyBinary(graph.Sub)}},
	"Mul":            {{1, legacyBinary(graph.Mul)}, {7, numpyBinary(graph.Mul)}},
	"Div":            {{1, legacyBinary(graph.Div)}, {7, numpyBinary(graph.Div)}},
	"Pow":            {{1, legacyBinary(graph.Pow)}, {7, numpyBinary(graph.Pow)}},
	"Equal":          {{1, legacyBinary(graph.Equal)}, {7, numpyBinary(graph.Equal)}},
	"Less":           {{1, legacyBinary(graph.Less)}, {7, numpyBinary(graph.Less)}},
	"Greater":        {{1, legacyBinary(graph.Greater)}, {7, numpyBinary(graph.Greater)}},
	"LessOrEqual":    {{12, numpyBinary(graph.LessEqual)}},
	"GreaterOrEqual": {{12, numpyBinary(graph.GreaterEqual)}},
	"And":            {{1, legacyBinary(graph.And)}, {7, numpyBinary(graph.And)}},
	"Or":             {{1, legacyBinary(graph.Or)}, {7, numpyBinary(graph.Or)}},
	"Xor":            {{1, legacyBinary(graph.Xor)}, {7, numpyBinary(graph.Xor)}},

	"Max":  {{1, sameShapes(variadic(graph.Max))}, {8, variadic(graph.Max)}},
	"Min":  {{1, sameShapes(variadic(graph.Min))}, {8, variadic(graph.Min)}},
	"Sum":  {{1, sameShapes(variadic(graph.Add))}, {8, variadic(graph.Add)}},
	"Mean": {{1, sameShapes(mean)}, {8, mean}},

	"Clip":  {{1, clipAttributes}, {11, clipOperands}},
	"Where": {{9, where}},
}

func unary(fn graph.UnaryFn) lowerFunc {
	return func(c *call) []*value { return one(c.emit(&graph.Unary{Fn: fn}, c.in(0))) }
}

func unaryAlpha(fn graph.UnaryFn, alpha float64) lowerFunc {
	return func(c *call) []*value {
		return one(c.emit(&graph.Unary{Fn: fn, Alpha: c.float("alpha", alpha)}, c.in(0)))
	}
}

func hardSigmoid(c *call) []*value {
	op := &graph.Unary{Fn: graph.HardSigmoid, Alpha: c.float("alpha", 0.2), Beta: c.float("beta", 0.5)}
	return one(c.emit(op, c.in(0)))
}

// numpyBinary broadcasts by numpy's rules.
func numpyBinary(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*value { return one(c.emit(&graph.Binary{Fn: fn}, c.in(0), c.in(1))) }
}

// legacyBinary broadcasts as operators did before version 7: the second
// operand only, only if attribute broadcast says so, and with its dimensions
// aligned at attribute axis, or else at the last axis.
func legacyBinary(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*value {
		a, b := c.in(0), c.in(1)
		axis := c.int("axis", max(a.rank()-b.rank(), 0))
		if !c.bool("broadcast", false) {
			if !slices.Equal(a.typ.Shape, b.typ.Shape) {
				c.fail("operands are %v and %v, want equal shapes, as attribute broadcast is not set", a.typ, b.typ)
			}
			return one(c.emit(&graph.Binary{Fn: fn}, a, b))
		}
		if axis < 0 {
			axis += a.rank()
		}
		after := a.rank() - b.rank() - axis
		if axis < 0 || axis > a.rank() || after < 0 {
			c.fail("operand 1 is %v, want a shape that fits into operand 0, %v, from axis %d on", b.typ, a.typ, axis)
		}
		if after > 0 {
			shape := slices.Clone(b.typ.Shape)
			for range after {
				shape = append(shape, 1)
			}
			b = c.emit(&graph.Reshape{Shape: shape}, b)
		}
		y := c.emit(&graph.Binary{Fn: fn}, a, b)
		if !slices.Equal(y.typ.Shape, a.typ.Shape) {
			c.fail("operand 1 is %v, want a shape that broadcasts to operand 0, %v", b.typ, a.typ)
		}
		return one(y)
	}
}

// variadic applies fn from left to right.
func variadic(fn graph.BinaryFn) lowerFunc {
	return func(c *call) []*value {
		all := c.all()
		y := all[0]
		for _, v := range all[1:] {
			y = c.emit(&graph.Binary{Fn: fn}, y, v)
		}
		return one(y)
	}
}

func mean(c *call) []*value {
	y := variadic(graph.Add)(c)[0]
	return one(c.emit(&graph.Binary{Fn: graph.Div}, y, scalar(y.typ.DType, float64(len(c.inputs)))))
}

// sameShapes refuses broadcasting, which came with version 8.
func sameShapes(lower lowerFunc) lowerFunc {
	return func(c *call) []*value {
		all := c.all()
		for i, v := range all {
			if !slices.Equal(v.typ.Shape, all[0].typ.Shape) {
				c.fail("operand %d is %v, want the shape of operand 0, %v", i, v.typ, all[0].typ)
			}
		}
		return lower(c)
	}
}

func clipAttributes(c *call) []*value {
	x := c.in(0)
	var limit [2]*value
	for i, name := range []string{"min", "max"} {
		if a := c.attr(name, AttrFloat); a != nil {
			limit[i] = scalar(x.typ.DType, float64(a.Float))
		}
	}
	return one(c.emit(&graph.Clip{}, x, limit[0], limit[1]))
}

func clipOperands(c *call) []*value {
	return one(c.emit(&graph.Clip{}, c.in(0), parameter(c.opt(1)), parameter(c.opt(2))))
}

// parameter returns an operand that parametrises an operator: if it is known,
// it is a constant and not a weight.
func parameter(v *value) *value {
	if v == nil || v.weight == nil {
		return v
	}
	p := *v
	p.weight, p.tensor = nil, graph.None
	return &p
}

func where(c *call) []*value { return one(c.emit(&graph.Where{}, c.in(0), c.in(1), c.in(2))) }
