package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// quantOps convert between numbers and their quantised forms.
var quantOps = map[string]definition{
	"QuantizeLinear":        takes("x:scales|int32 y_scale:scales|int32 y_zero_point:quantised").since(10, quantizeLinear, "axis=1 block_size=0 output_dtype=0 precision=0 saturate=1"),
	"DequantizeLinear":      takes("x:Z=quantised|int32 x_scale:scales x_zero_point:Z").since(10, dequantizeLinear, "axis=1 block_size=0 output_dtype=0"),
	"DynamicQuantizeLinear": takes("x:float").since(11, dynamicQuantizeLinear),
}

// quantParams are the scale and the zero point of x.
type quantParams struct {
	axis, block int64
	scale, zero *lower.Value
}

// quantParams reads operands 1 and 2 and the attributes that say which scale
// is whose: axis from version 13 on, block_size from version 21 on.
func (c *call) quantParams(x *lower.Value) quantParams {
	p := quantParams{scale: c.In(1), zero: c.Opt(2), block: c.Int("block_size")}
	if p.scale.Type.DType == graph.I32 {
		p.scale = c.cast(p.scale, graph.F32)
	}
	axis := c.Int("axis")
	if p.zero != nil && !slices.Equal(p.zero.Type.Shape, p.scale.Type.Shape) && p.zero.Type.Elements() == 1 {
		// One zero point does for all scales.
		p.zero = c.expand(c.Emit(&graph.Reshape{}, p.zero), p.scale.Type.Shape)
	}
	if p.scale.Rank() <= 1 && p.scale.Type.Elements() == 1 {
		p.block = 0
		return p
	}
	p.axis = c.Axis(axis, x.Rank())
	return p
}

// dtypeOf reads an attribute that names an element type; 0 stands for none.
func (c *call) dtypeOf(name string, def graph.DType) graph.DType {
	e := onnx.ElemType(c.Int(name))
	if e == onnx.Undefined {
		return def
	}
	if !e.DType().Valid() {
		c.Unsupported(lower.HintOf(e), "element type %v", e)
	}
	return e.DType()
}

func quantizeLinear(c *call) []*lower.Value {
	x := c.In(0)
	p := c.quantParams(x)
	to := graph.U8
	if p.zero != nil {
		to = p.zero.Type.DType
	}
	if t := c.dtypeOf("output_dtype", to); p.zero != nil && t != to { // from version 21 on
		c.Fail("attribute \"output_dtype\" is %v, but operand 2 (y_zero_point) is %v", t, p.zero.Type)
	} else {
		to = t
	}
	precision := c.dtypeOf("precision", p.scale.Type.DType) // from version 23 on
	saturate := c.Bool("saturate")                          // from version 19 on
	if to.IsFloat() {
		if !saturate {
			c.Unsupported("set attribute saturate to 1", "conversion to %v without saturation", to)
		}
		q := c.Emit(&graph.Binary{Fn: graph.Div}, c.cast(x, precision), c.cast(c.spread(p, x), precision))
		return lower.One(c.cast(q, to))
	}
	op := &graph.Quantize{Axis: p.axis, Block: p.block, To: to, Precision: precision}
	return lower.One(c.Emit(op, x, p.scale, p.zero))
}

func dequantizeLinear(c *call) []*lower.Value {
	x := c.In(0)
	p := c.quantParams(x)
	to := c.dtypeOf("output_dtype", p.scale.Type.DType) // from version 23 on
	if x.Type.DType.IsFloat() {
		// Zero points of floats are zero.
		y := c.Emit(&graph.Binary{Fn: graph.Mul}, c.cast(x, graph.F32), c.cast(c.spread(p, x), graph.F32))
		return lower.One(c.cast(y, to))
	}
	return lower.One(c.Emit(&graph.Dequantize{Axis: p.axis, Block: p.block, To: to}, c.Unfolded(x), p.scale, p.zero))
}

// spread returns the scale in a shape that broadcasts to x.
func (c *call) spread(p quantParams, x *lower.Value) *lower.Value {
	s := p.scale
	switch {
	case s.Rank() <= 1 && s.Type.Elements() == 1:
		return c.Emit(&graph.Reshape{}, s)
	case p.block == 0:
		return c.along(s, p.axis, x.Rank())
	case s.Rank() != x.Rank() || p.block < 0 || p.block >= graph.MaxTensorBytes || s.Type.Shape[p.axis] >= graph.MaxTensorBytes/p.block:
		c.Fail("operand 1 (scale) is %v, want the shape of operand 0, %v, with an element for every %d on axis %d", s.Type, x.Type, p.block, p.axis)
	}
	// Every scale is repeated, and what is too much is cut off.
	split := slices.Insert(slices.Clone(s.Type.Shape), int(p.axis)+1, 1)
	wide := slices.Clone(split)
	wide[p.axis+1] = p.block
	joined := slices.Clone(s.Type.Shape)
	joined[p.axis] *= p.block
	s = c.Emit(&graph.Reshape{Shape: joined}, c.expand(c.Emit(&graph.Reshape{Shape: split}, s), wide))
	cut := whole(s)
	cut.Size[p.axis] = min(cut.Size[p.axis], x.Type.Shape[p.axis])
	return c.Emit(cut, s)
}

// dynamicQuantizeLinear takes scale and zero point from the range of x and 0.
func dynamicQuantizeLinear(c *call) []*lower.Value {
	x := c.In(0)
	if x.Type.DType != graph.F32 {
		c.Fail("operand 0 is %v, want float", x.Type)
	}
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	number := func(v float64) *lower.Value { return lower.Scalar(graph.F32, v) }
	all := make([]int64, x.Rank())
	for i := range all {
		all[i] = int64(i)
	}
	high := binary(graph.Max, number(0), c.Emit(&graph.Reduce{Fn: graph.ReduceMax, Axes: all}, x))
	low := binary(graph.Min, number(0), c.Emit(&graph.Reduce{Fn: graph.ReduceMin, Axes: all}, x))
	width := binary(graph.Sub, high, low)
	// Where all is zero, any scale but 0 serves.
	scale := c.Emit(&graph.Where{}, binary(graph.Equal, width, number(0)), number(1), binary(graph.Div, width, number(255)))
	zero := binary(graph.Sub, number(0), binary(graph.Div, low, scale))
	zero = c.Emit(&graph.Unary{Fn: graph.Round}, c.Emit(&graph.Clip{}, zero, number(0), number(255)))
	zero = c.cast(zero, graph.U8)
	y := c.Emit(&graph.Quantize{To: graph.U8, Precision: graph.F32}, x, scale, zero)
	return []*lower.Value{y, scale, zero}
}
