package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// activationOps are the activations that came later than the functions of
// [elementwiseOps].
var activationOps = map[string][]since{
	"PRelu":           {{1, preluLegacy}, {7, numpyBinary(graph.PRelu)}},
	"Selu":            {{1, selu(1.6732, 1.0507)}, {6, selu(1.67326319217681884765625, 1.05070102214813232421875)}},
	"Celu":            {{12, celu}},
	"ThresholdedRelu": {{1, unaryAlpha(graph.ThresholdedRelu, 1)}},
	"HardSwish":       {{14, unary(graph.HardSwish)}},
	"Gelu":            {{20, gelu}},
	"Mish":            {{18, unary(graph.Mish)}},
	"Swish":           {{24, unaryAlpha(graph.Swish, 1)}},
	"SwiGLU":          {{28, swiglu}},

	// PopART's Gelu is the approximation by a tanh.
	"ai.graphcore.Gelu":        {{1, unary(graph.GeluTanh)}},
	"ai.graphcore.PrintTensor": {{1, printTensor}},
}

// preluLegacy is PRelu up to version 6, whose slope has one element or one for
// each channel, which is axis 1.
func preluLegacy(c *call) []*value {
	x, slope := c.in(0), c.in(1)
	n := slope.typ.Elements()
	if n != 1 && (x.rank() < 2 || x.typ.Shape[1] != n) {
		c.fail("operand 1 (slope) is %v, want one element or one for each channel of operand 0, %v", slope.typ, x.typ)
	}
	shape := slices.Repeat([]int64{1}, len(x.typ.Shape))
	if n != 1 {
		shape[1] = n
	}
	return one(c.emit(&graph.Binary{Fn: graph.PRelu}, x, c.emit(&graph.Reshape{Shape: shape}, slope)))
}

func selu(alpha, gamma float64) lowerFunc {
	return func(c *call) []*value {
		op := &graph.Unary{Fn: graph.Selu, Alpha: c.float("alpha", alpha), Beta: c.float("gamma", gamma)}
		return one(c.emit(op, c.in(0)))
	}
}

func celu(c *call) []*value {
	alpha := c.float("alpha", 1)
	if alpha == 0 {
		c.fail("attribute \"alpha\" is 0")
	}
	return one(c.emit(&graph.Unary{Fn: graph.Celu, Alpha: alpha}, c.in(0)))
}

func gelu(c *call) []*value {
	switch approximate := c.str("approximate", "none"); approximate {
	case "none":
		return one(c.emit(&graph.Unary{Fn: graph.Gelu}, c.in(0)))
	case "tanh":
		return one(c.emit(&graph.Unary{Fn: graph.GeluTanh}, c.in(0)))
	default:
		c.fail("attribute \"approximate\" is %q, want none or tanh", approximate)
		return nil
	}
}

// swiglu is the gated linear unit Swish(a)·b.
func swiglu(c *call) []*value {
	gate := c.emit(&graph.Unary{Fn: graph.Swish, Alpha: c.float("alpha", 1)}, c.in(0))
	return one(c.emit(&graph.Binary{Fn: graph.Mul}, gate, c.in(1)))
}

// printTensor gives its operand: an executable has nowhere to print to.
func printTensor(c *call) []*value {
	for _, a := range c.node.Attributes {
		c.ignore(a.Name)
	}
	c.l.warn("PrintTensor prints nothing: its operand %q is passed on", c.in(0).name)
	return one(c.in(0))
}
