package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// activationOps are the activations that came later than the functions of
// [elementwiseOps].
var activationOps = map[string]definition{
	"PRelu":           takes("X:T=wide slope:T").since(1, preluLegacy).since(7, numpyBinary(graph.PRelu)),
	"Selu":            takes("X:floats").since(1, selu, "alpha=1.6732 gamma=1.0507").since(6, selu, "alpha=1.6732631921768188 gamma=1.0507010221481323"),
	"Celu":            takes("X:floats").since(12, celu, "alpha=1.0"),
	"ThresholdedRelu": takes("X:floats").since(1, unaryAlpha(graph.ThresholdedRelu), "alpha=1.0"),
	"HardSwish":       takes("X:floats").since(14, unary(graph.HardSwish)),
	"Gelu":            takes("X:floats").since(20, gelu, "approximate=none"),
	"Mish":            takes("X:floats").since(18, unary(graph.Mish)),
	"Swish":           takes("X:floats").since(24, unaryAlpha(graph.Swish), "alpha=1.0"),
	"SwiGLU":          takes("A:T=floats B:T").since(28, swiglu, "alpha=1.0"),

	// PopART's Gelu is the approximation by a tanh.
	"ai.graphcore.Gelu": takes("X:floats").since(1, unary(graph.GeluTanh)),
	"ai.graphcore.PrintTensor": takes("X:any").since(1, printTensor,
		"print_gradient=1 title:string summariseThreshold:int edgeItems:int maxLineWidth:int digits:int floatFormat:int separator:string openBracket:string closeBracket:string"),
}

// preluLegacy is PRelu up to version 6, whose slope has one element or one for
// each channel, which is axis 1.
func preluLegacy(c *call) []*lower.Value {
	x, slope := c.In(0), c.In(1)
	n := slope.Type.Elements()
	if n != 1 && (x.Rank() < 2 || x.Type.Shape[1] != n) {
		c.Fail("operand 1 (slope) is %v, want one element or one for each channel of operand 0, %v", slope.Type, x.Type)
	}
	shape := slices.Repeat([]int64{1}, len(x.Type.Shape))
	if n != 1 {
		shape[1] = n
	}
	return lower.One(c.Emit(&graph.Binary{Fn: graph.PRelu}, x, c.Emit(&graph.Reshape{Shape: shape}, slope)))
}

func selu(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.Unary{Fn: graph.Selu, Alpha: c.Float("alpha"), Beta: c.Float("gamma")}, c.In(0)))
}

func celu(c *call) []*lower.Value {
	alpha := c.Float("alpha")
	if alpha == 0 {
		c.Fail("attribute \"alpha\" is 0")
	}
	return lower.One(c.Emit(&graph.Unary{Fn: graph.Celu, Alpha: alpha}, c.In(0)))
}

func gelu(c *call) []*lower.Value {
	switch approximate := c.Str("approximate"); approximate {
	case "none":
		return lower.One(c.Emit(&graph.Unary{Fn: graph.Gelu}, c.In(0)))
	case "tanh":
		return lower.One(c.Emit(&graph.Unary{Fn: graph.GeluTanh}, c.In(0)))
	default:
		c.Fail("attribute \"approximate\" is %q, want none or tanh", approximate)
		return nil
	}
}

// swiglu is the gated linear unit Swish(a)·b.
func swiglu(c *call) []*lower.Value {
	gate := c.Emit(&graph.Unary{Fn: graph.Swish, Alpha: c.Float("alpha")}, c.In(0))
	return lower.One(c.Emit(&graph.Binary{Fn: graph.Mul}, gate, c.In(1)))
}

// printTensor gives its operand: an executable has nowhere to print to.
func printTensor(c *call) []*lower.Value {
	c.Warn("PrintTensor prints nothing: its operand %q is passed on", c.In(0).Name)
	return lower.One(c.In(0))
}
