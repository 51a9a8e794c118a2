package onnx

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// qlinearOps are products of quantised numbers, whose sums are exact.
var qlinearOps = map[string]definition{
	"MatMulInteger": takes("A:A=bytes B:B=bytes a_zero_point:A b_zero_point:B").since(10, matMulInteger),
	"ConvInteger":   takes("x:X=bytes w:W=bytes x_zero_point:X w_zero_point:W").since(10, convInteger, "auto_pad=NOTSET dilations:ints group=1 kernel_shape:ints pads:ints strides:ints"),
	"QLinearMatMul": takes("a:A=bytes a_scale:S=scales a_zero_point:A b:B=bytes b_scale:S b_zero_point:B y_scale:S y_zero_point:bytes").since(10, qlinearMatMul),
	"QLinearConv":   takes("x:X=bytes x_scale:float x_zero_point:X w:W=bytes w_scale:float w_zero_point:W y_scale:float y_zero_point:bytes B:int32").since(10, qlinearConv, "auto_pad=NOTSET dilations:ints group=1 kernel_shape:ints pads:ints strides:ints"),
}

// exactF32 bounds the integers that float32 holds without gaps.
const exactF32 = 1 << 24

// centred returns x less its zero point, which broadcasts to x, as float32,
// and the greatest magnitude that it can have.
func (c *call) centred(x, zero *value) (*value, float64) {
	if t := x.typ.DType; t != graph.I8 && t != graph.U8 {
		c.fail("operand is %v, want int8 or uint8", x.typ)
	}
	low, high := 0.0, 255.0
	if x.typ.DType == graph.I8 {
		low, high = -128, 127
	}
	y := c.cast(x, graph.F32)
	if zero == nil {
		return y, max(-low, high)
	}
	if zero.typ.DType != x.typ.DType {
		c.fail("zero point is %v, want elements of type %v", zero.typ, x.typ.DType)
	}
	z := c.cast(zero, graph.F32)
	y = c.emit(&graph.Binary{Fn: graph.Sub}, y, z)
	if !zero.known {
		return y, high - low
	}
	most := 0.0
	for i := 0; i < len(z.data); i += 4 {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(z.data[i:])))
		most = max(most, high-v, v-low)
	}
	return y, most
}

// sumOf bounds the magnitude of the sums of products of weights along axes
// with numbers of magnitude up to one.
func (c *call) sumOf(w *value, magnitude float64, axes []int64) float64 {
	n := 1.0
	for _, a := range axes {
		n *= float64(w.typ.Shape[a])
	}
	if bound := magnitude * n; !w.known || bound == 0 {
		return bound
	}
	all := make([]int64, w.rank()-int64(len(axes)))
	for i := range all {
		all[i] = int64(i)
	}
	v := c.emit(&graph.Reduce{Fn: graph.ReduceMax, Axes: all}, c.emit(&graph.Reduce{Fn: graph.ReduceL1, Axes: axes}, w))
	if !v.known {
		return magnitude * n
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data)))
}

// rowwise gives a parameter of a matrix' rows, a list, the shape of a column.
func (c *call) rowwise(p *value) *value {
	switch {
	case p == nil || p.rank() == 0:
		return p
	case p.typ.Elements() == 1:
		return c.emit(&graph.Reshape{}, p)
	case p.rank() == 1:
		return c.along(p, 0, 2)
	}
	return p
}

// columnwise drops the dimension of a parameter with one element.
func (c *call) columnwise(p *value) *value {
	if p != nil && p.typ.Elements() == 1 {
		return c.emit(&graph.Reshape{}, p)
	}
	return p
}

// integerProduct multiplies matrices of quantised numbers. The result is
// float32 or int32, whichever is exact.
func (c *call) integerProduct(a, aZero, b, bZero *value) *value {
	if a.rank() < 1 || b.rank() < 1 {
		c.fail("operands are %v and %v, want matrices", a.typ, b.typ)
	}
	x, xMost := c.centred(a, c.rowwise(aZero))
	w, wMost := c.centred(b, c.columnwise(bZero))
	if !slices.Equal(x.typ.Shape, a.typ.Shape) || !slices.Equal(w.typ.Shape, b.typ.Shape) {
		c.fail("zero points do not fit operands %v and %v", a.typ, b.typ)
	}
	if xMost*c.sumOf(w, wMost, []int64{max(w.rank()-2, 0)}) >= exactF32 {
		x, w = c.cast(x, graph.I32), c.cast(w, graph.I32)
	}
	return c.emit(&graph.MatMul{}, x, w)
}

func matMulInteger(c *call) []*value {
	a, b, aZero, bZero := c.in(0), c.in(1), c.opt(2), c.opt(3)
	if integerProductFits(a, aZero, b, bZero) {
		return one(c.emit(&graph.IntegerMatMul{To: graph.I32}, a, b, c.columnwise(aZero), c.columnwise(bZero)))
	}
	return one(c.cast(c.integerProduct(a, aZero, b, bZero), graph.I32))
}

// integerProductFits reports whether [graph.IntegerMatMul] takes operands.
func integerProductFits(a, aZero, b, bZero *value) bool {
	return a.rank() > 0 && b.rank() > 0 && zeroFits(a, aZero, 1) && zeroFits(b, bZero, b.typ.Shape[b.rank()-1])
}

// zeroFits reports whether x are bytes and the zero point, of the same type,
// is one or, in a list, one for each of so many columns.
func zeroFits(x, zero *value, columns int64) bool {
	if t := x.typ.DType; t != graph.I8 && t != graph.U8 {
		return false
	}
	return zero == nil || zero.typ.DType == x.typ.DType && single(zero, columns)
}

// single reports whether p has one element or is a list of so many.
func single(p *value, columns int64) bool {
	return p.typ.Elements() == 1 || p.rank() == 1 && p.typ.Elements() == columns
}

func qlinearMatMul(c *call) []*value {
	a, b := c.in(0), c.in(3)
	columns := int64(1)
	if b.rank() > 1 {
		columns = b.typ.Shape[b.rank()-1]
	}
	if integerProductFits(a, c.in(2), b, c.in(5)) && single(c.in(1), 1) && single(c.in(4), columns) && single(c.in(6), 1) && single(c.in(7), 1) {
		op := &graph.IntegerMatMul{To: c.in(7).typ.DType}
		return one(c.emit(op, a, b, c.columnwise(c.in(2)), c.columnwise(c.in(5)), nil, c.factor(c.in(1), c.in(4), c.in(6)), nil, c.columnwise(c.in(7))))
	}
	acc := c.integerProduct(a, c.in(2), b, c.in(5))
	aScale, bScale, yScale := c.rowwise(c.in(1)), c.columnwise(c.in(4)), c.rowwise(c.in(6))
	return one(c.requantize(acc, aScale, bScale, yScale, c.in(7), acc.rank()-2))
}

// factor is what exact sums are multiplied with, as float32: one number or a
// list.
func (c *call) factor(xScale, wScale, yScale *value) *value {
	f := c.emit(&graph.Binary{Fn: graph.Mul}, c.columnwise(xScale), c.columnwise(wScale))
	return c.cast(c.emit(&graph.Binary{Fn: graph.Div}, f, c.columnwise(yScale)), graph.F32)
}

// requantize scales exact sums to a quantised result. The zero point has one
// element, or one for each place on axis.
func (c *call) requantize(acc, xScale, wScale, yScale, zero *value, axis int64) *value {
	factor := c.emit(&graph.Binary{Fn: graph.Mul}, xScale, wScale)
	factor = c.emit(&graph.Binary{Fn: graph.Div}, factor, yScale)
	y := c.emit(&graph.Binary{Fn: graph.Mul}, c.cast(acc, graph.F32), c.cast(factor, graph.F32))
	if !slices.Equal(y.typ.Shape, acc.typ.Shape) {
		c.fail("scales do not fit the result, %v", acc.typ)
	}
	op := &graph.Quantize{To: zero.typ.DType, Precision: graph.F32}
	if zero.typ.Elements() == 1 {
		zero = c.emit(&graph.Reshape{}, zero)
	} else {
		op.Axis = axis
		zero = c.emit(&graph.Reshape{Shape: []int64{zero.typ.Elements()}}, zero)
	}
	return c.emit(op, y, c.expand(scalar(graph.F32, 1), zero.typ.Shape), zero)
}

// integerConv is the convolution of quantised numbers, as floats that are
// exact.
func (c *call) integerConv(x, xZero, w, wZero, bias *value) *value {
	if w.rank() < 3 || w.rank() != x.rank() {
		c.fail("operands are %v and %v, want batch, channels and spatial axes", x.typ, w.typ)
	}
	if wZero != nil {
		if wZero.typ.Elements() == 1 {
			wZero = c.emit(&graph.Reshape{}, wZero)
		} else {
			wZero = c.perChannel(wZero, w, 0)
		}
	}
	a, aMost := c.centred(x, c.columnwise(xZero))
	b, bMost := c.centred(w, wZero)
	axes := make([]int64, w.rank()-1)
	for i := range axes {
		axes[i] = int64(i) + 1
	}
	most := aMost * c.sumOf(b, bMost, axes)
	wide := graph.F32
	if bias != nil {
		if bias.typ.DType != graph.I32 {
			c.fail("operand 8 (B) is %v, want int32", bias.typ)
		}
		list, err := bias.ints()
		if !bias.known || err != nil {
			most += math.MaxInt32
		}
		magnitude := 0.0
		for _, v := range list {
			magnitude = max(magnitude, math.Abs(float64(v)))
		}
		most += magnitude
	}
	if most >= exactF32 {
		wide = graph.F64
	}
	a, b = c.cast(a, wide), c.cast(b, wide)
	if bias != nil {
		bias = c.cast(bias, wide)
	}
	return c.conv(a, b, bias)
}

// perChannel gives a list with a number for each place on axis 0 of w the
// shape in which it broadcasts along axis of a tensor of w's rank.
func (c *call) perChannel(list, w *value, axis int64) *value {
	if list.typ.Elements() != w.typ.Shape[0] {
		c.fail("%v has a number for each of %d channels, want %d", list.typ, list.typ.Elements(), w.typ.Shape[0])
	}
	return c.along(list, axis, w.rank())
}

func convInteger(c *call) []*value {
	x, w, xZero, wZero := c.in(0), c.in(1), c.opt(2), c.opt(3)
	if integerConvFits(x, xZero, w, wZero) {
		return one(c.emit(c.integerConvOp(x, w, graph.I32), x, w, c.columnwise(xZero), c.columnwise(wZero)))
	}
	return one(c.cast(c.integerConv(x, xZero, w, wZero, nil), graph.I32))
}

// integerConvFits reports whether [graph.IntegerConv] takes operands.
func integerConvFits(x, xZero, w, wZero *value) bool {
	return (x.rank() == 3 || x.rank() == 4) && w.rank() == x.rank() && zeroFits(x, xZero, 1) && zeroFits(w, wZero, w.typ.Shape[0])
}

// integerConvOp reads the node's attributes.
func (c *call) integerConvOp(x, w *value, to graph.DType) *graph.IntegerConv {
	g := c.convOp(x, w)
	return &graph.IntegerConv{Strides: g.Strides, Dilations: g.Dilations, PadsBegin: g.PadsBegin, PadsEnd: g.PadsEnd, Group: g.Group, To: to}
}

func qlinearConv(c *call) []*value {
	x, w, bias := c.in(0), c.in(3), c.opt(8)
	if integerConvFits(x, c.in(2), w, c.in(5)) && single(c.in(1), 1) && single(c.in(4), w.typ.Shape[0]) && single(c.in(6), 1) && single(c.in(7), 1) &&
		(bias == nil || bias.typ.DType == graph.I32) {
		op := c.integerConvOp(x, w, c.in(7).typ.DType)
		return one(c.emit(op, x, w, c.columnwise(c.in(2)), c.columnwise(c.in(5)), bias, c.factor(c.in(1), c.in(4), c.in(6)), nil, c.columnwise(c.in(7))))
	}
	acc := c.integerConv(x, c.in(2), w, c.in(5), bias)
	wScale := c.columnwise(c.in(4))
	if wScale.typ.Elements() != 1 {
		wScale = c.perChannel(wScale, w, 1)
	}
	return one(c.requantize(acc, c.columnwise(c.in(1)), wScale, c.columnwise(c.in(6)), c.in(7), 1))
}
