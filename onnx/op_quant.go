package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
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
	scale, zero *value
}

// quantParams reads operands 1 and 2 and the attributes that say which scale
// is whose: axis from version 13 on, block_size from version 21 on.
func (c *call) quantParams(x *value) quantParams {
	p := quantParams{scale: c.in(1), zero: c.opt(2), block: c.int("block_size")}
	if p.scale.typ.DType == graph.I32 {
		p.scale = c.cast(p.scale, graph.F32)
	}
	axis := c.int("axis")
	if p.zero != nil && !slices.Equal(p.zero.typ.Shape, p.scale.typ.Shape) && p.zero.typ.Elements() == 1 {
		// One zero point does for all scales.
		p.zero = c.expand(c.emit(&graph.Reshape{}, p.zero), p.scale.typ.Shape)
	}
	if p.scale.rank() <= 1 && p.scale.typ.Elements() == 1 {
		p.block = 0
		return p
	}
	p.axis = c.axis(axis, x.rank())
	return p
}

// dtypeOf reads an attribute that names an element type; 0 stands for none.
func (c *call) dtypeOf(name string, def graph.DType) graph.DType {
	e := ElemType(c.int(name))
	if e == Undefined {
		return def
	}
	if !e.DType().Valid() {
		c.unsupported(hintOf(e), "element type %v", e)
	}
	return e.DType()
}

func quantizeLinear(c *call) []*value {
	x := c.in(0)
	p := c.quantParams(x)
	to := graph.U8
	if p.zero != nil {
		to = p.zero.typ.DType
	}
	if t := c.dtypeOf("output_dtype", to); p.zero != nil && t != to { // from version 21 on
		c.fail("attribute \"output_dtype\" is %v, but operand 2 (y_zero_point) is %v", t, p.zero.typ)
	} else {
		to = t
	}
	precision := c.dtypeOf("precision", p.scale.typ.DType) // from version 23 on
	saturate := c.bool("saturate")                         // from version 19 on
	if to.IsFloat() {
		if !saturate {
			c.unsupported("set attribute saturate to 1", "conversion to %v without saturation", to)
		}
		q := c.emit(&graph.Binary{Fn: graph.Div}, c.cast(x, precision), c.cast(c.spread(p, x), precision))
		return one(c.cast(q, to))
	}
	op := &graph.Quantize{Axis: p.axis, Block: p.block, To: to, Precision: precision}
	return one(c.emit(op, x, p.scale, p.zero))
}

func dequantizeLinear(c *call) []*value {
	x := c.in(0)
	p := c.quantParams(x)
	to := c.dtypeOf("output_dtype", p.scale.typ.DType) // from version 23 on
	if x.typ.DType.IsFloat() {
		// Zero points of floats are zero.
		y := c.emit(&graph.Binary{Fn: graph.Mul}, c.cast(x, graph.F32), c.cast(c.spread(p, x), graph.F32))
		return one(c.cast(y, to))
	}
	return one(c.emit(&graph.Dequantize{Axis: p.axis, Block: p.block, To: to}, c.unfolded(x), p.scale, p.zero))
}

// spread returns the scale in a shape that broadcasts to x.
func (c *call) spread(p quantParams, x *value) *value {
	s := p.scale
	switch {
	case s.rank() <= 1 && s.typ.Elements() == 1:
		return c.emit(&graph.Reshape{}, s)
	case p.block == 0:
		return c.along(s, p.axis, x.rank())
	case s.rank() != x.rank() || p.block < 0 || p.block >= graph.MaxTensorBytes || s.typ.Shape[p.axis] >= graph.MaxTensorBytes/p.block:
		c.fail("operand 1 (scale) is %v, want the shape of operand 0, %v, with an element for every %d on axis %d", s.typ, x.typ, p.block, p.axis)
	}
	// Every scale is repeated, and what is too much is cut off.
	split := slices.Insert(slices.Clone(s.typ.Shape), int(p.axis)+1, 1)
	wide := slices.Clone(split)
	wide[p.axis+1] = p.block
	joined := slices.Clone(s.typ.Shape)
	joined[p.axis] *= p.block
	s = c.emit(&graph.Reshape{Shape: joined}, c.expand(c.emit(&graph.Reshape{Shape: split}, s), wide))
	cut := whole(s)
	cut.Size[p.axis] = min(cut.Size[p.axis], x.typ.Shape[p.axis])
	return c.emit(cut, s)
}

// dynamicQuantizeLinear takes scale and zero point from the range of x and 0.
func dynamicQuantizeLinear(c *call) []*value {
	x := c.in(0)
	if x.typ.DType != graph.F32 {
		c.fail("operand 0 is %v, want float", x.typ)
	}
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	number := func(v float64) *value { return scalar(graph.F32, v) }
	all := make([]int64, x.rank())
	for i := range all {
		all[i] = int64(i)
	}
	high := binary(graph.Max, number(0), c.emit(&graph.Reduce{Fn: graph.ReduceMax, Axes: all}, x))
	low := binary(graph.Min, number(0), c.emit(&graph.Reduce{Fn: graph.ReduceMin, Axes: all}, x))
	width := binary(graph.Sub, high, low)
	// Where all is zero, any scale but 0 serves.
	scale := c.emit(&graph.Where{}, binary(graph.Equal, width, number(0)), number(1), binary(graph.Div, width, number(255)))
	zero := binary(graph.Sub, number(0), binary(graph.Div, low, scale))
	zero = c.emit(&graph.Unary{Fn: graph.Round}, c.emit(&graph.Clip{}, zero, number(0), number(255)))
	zero = c.cast(zero, graph.U8)
	y := c.emit(&graph.Quantize{To: graph.U8, Precision: graph.F32}, x, scale, zero)
	return []*value{y, scale, zero}
}
