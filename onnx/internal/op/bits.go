package op

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// bitsOps look at the bits of numbers, and at numbers that are none.
var bitsOps = map[string]definition{
	"BitShift":   takes("X:T=unsigned Y:T").since(11, bitShift, "direction:string!"),
	"BitwiseAnd": takes("A:T=integers B:T").since(18, bitwise(graph.BitAnd)),
	"BitwiseOr":  takes("A:T=integers B:T").since(18, bitwise(graph.BitOr)),
	"BitwiseXor": takes("A:T=integers B:T").since(18, bitwise(graph.BitXor)),
	"BitwiseNot": takes("X:integers").since(18, bitwiseNot),
	"BitCast":    takes("input:any").since(26, bitCast, "to:int!"),
	"Mod":        takes("A:T=numbers B:T").since(10, mod, "fmod=0"),
	"IsNaN":      takes("X:floats|float8").since(9, isNaN),
	"IsInf":      takes("X:floats|float8").since(10, isInf, "detect_negative=1 detect_positive=1"),
}

func bitwise(fn graph.BitwiseFn) lowerFunc {
	return func(c *call) []*lower.Value { return lower.One(c.Emit(&graph.Bitwise{Fn: fn}, c.In(0), c.In(1))) }
}

func bitShift(c *call) []*lower.Value {
	switch direction := c.Str("direction"); direction {
	case "LEFT":
		return bitwise(graph.ShiftLeft)(c)
	case "RIGHT":
		return bitwise(graph.ShiftRight)(c)
	default:
		c.Fail("attribute \"direction\" is %q, want LEFT or RIGHT", direction)
		return nil
	}
}

func bitwiseNot(c *call) []*lower.Value {
	x := c.In(0)
	ones := lower.Known(graph.TensorType{DType: x.Type.DType}, lower.EncodeInt(x.Type.DType, -1))
	return lower.One(c.Emit(&graph.Bitwise{Fn: graph.BitXor}, x, ones))
}

func bitCast(c *call) []*lower.Value {
	x, to := c.In(0), onnx.ElemType(c.Int("to"))
	if !to.DType().Valid() {
		c.Unsupported(lower.HintOf(to), "element type %v", to)
	}
	from := x.Type.DType
	if bits(from) != bits(to.DType()) {
		c.Fail("operand 0 is %v and attribute \"to\" is %v, want types of as many bits", x.Type, to)
	}
	// Converting narrow integers and bools to others of their size keeps the
	// bits that count.
	if bits(from) < 8 || from == graph.Bool || to.DType() == graph.Bool {
		if from.IsFloat() {
			x = c.Emit(&graph.BitCast{To: graph.U8}, x)
		}
		if to.DType().IsFloat() {
			return lower.One(c.Emit(&graph.BitCast{To: to.DType()}, c.cast(x, graph.U8)))
		}
		return lower.One(c.cast(x, to.DType()))
	}
	if from == to.DType() {
		return lower.One(x)
	}
	return lower.One(c.Emit(&graph.BitCast{To: to.DType()}, x))
}

// bits returns how many bits an element of ONNX's type t has.
func bits(t graph.DType) int {
	switch t {
	case graph.I4, graph.U4:
		return 4
	case graph.I2, graph.U2:
		return 2
	}
	return 8 * t.Size()
}

func mod(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.Mod{Truncated: c.Bool("fmod")}, c.In(0), c.In(1)))
}

// tested returns an operand whose numbers can be compared.
func (c *call) tested() *lower.Value {
	x := c.In(0)
	if t := x.Type.DType; t.IsFloat() && t.Size() == 1 {
		return c.cast(x, graph.F32)
	}
	return x
}

func isNaN(c *call) []*lower.Value {
	x := c.tested()
	return lower.One(c.Emit(&graph.Unary{Fn: graph.Not}, c.Emit(&graph.Binary{Fn: graph.Equal}, x, x)))
}

func isInf(c *call) []*lower.Value {
	x := c.tested()
	if !x.Type.DType.IsFloat() {
		c.Fail("operand 0 is %v, want floats", x.Type)
	}
	var found *lower.Value
	for _, side := range []struct {
		attr string
		sign int
	}{{"detect_negative", -1}, {"detect_positive", 1}} {
		if !c.Bool(side.attr) {
			continue
		}
		is := c.Emit(&graph.Binary{Fn: graph.Equal}, x, lower.Scalar(x.Type.DType, math.Inf(side.sign)))
		if found != nil {
			is = c.Emit(&graph.Binary{Fn: graph.Or}, found, is)
		}
		found = is
	}
	if found == nil {
		found = c.expand(lower.Scalar(graph.Bool, 0), x.Type.Shape)
	}
	return lower.One(found)
}
