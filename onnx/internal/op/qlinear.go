package op

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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
func (c *call) centred(x, zero *lower.Value) (*lower.Value, float64) {
	if t := x.Type.DType; t != graph.I8 && t != graph.U8 {
		c.Fail("operand is %v, want int8 or uint8", x.Type)
	}
	low, high := 0.0, 255.0
	if x.Type.DType == graph.I8 {
		low, high = -128, 127
	}
	y := c.cast(x, graph.F32)
	if zero == nil {
		return y, max(-low, high)
	}
	if zero.Type.DType != x.Type.DType {
		c.Fail("zero point is %v, want elements of type %v", zero.Type, x.Type.DType)
	}
	z := c.cast(zero, graph.F32)
	y = c.Emit(&graph.Binary{Fn: graph.Sub}, y, z)
	if !zero.Known {
		return y, high - low
	}
	most := 0.0
	for i := 0; i < len(z.Data); i += 4 {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(z.Data[i:])))
		most = max(most, high-v, v-low)
	}
	return y, most
}

// sumOf bounds the magnitude of the sums of products of weights along axes
// with numbers of magnitude up to one.
func (c *call) sumOf(w *lower.Value, magnitude float64, axes []int64) float64 {
	n := 1.0
	for _, a := range axes {
		n *= float64(w.Type.Shape[a])
	}
	if bound := magnitude * n; !w.Known || bound == 0 {
		return bound
	}
	all := make([]int64, w.Rank()-int64(len(axes)))
	for i := range all {
		all[i] = int64(i)
	}
	v := c.Emit(&graph.Reduce{Fn: graph.ReduceMax, Axes: all}, c.Emit(&graph.Reduce{Fn: graph.ReduceL1, Axes: axes}, w))
	if !v.Known {
		return magnitude * n
	}
	return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.Data)))
}

// rowwise gives a parameter of a matrix' rows, a list, the shape of a column.
func (c *call) rowwise(p *lower.Value) *lower.Value {
	switch {
	case p == nil || p.Rank() == 0:
		return p
	case p.Type.Elements() == 1:
		return c.Emit(&graph.Reshape{}, p)
	case p.Rank() == 1:
		return c.along(p, 0, 2)
	}
	return p
}

// columnwise drops the dimension of a parameter with one element.
func (c *call) columnwise(p *lower.Value) *lower.Value {
	if p != nil && p.Type.Elements() == 1 {
		return c.Emit(&graph.Reshape{}, p)
	}
	return p
}

// integerProduct multiplies matrices of quantised numbers. The result is
// float32 or int32, whichever is exact.
func (c *call) integerProduct(a, aZero, b, bZero *lower.Value) *lower.Value {
	if a.Rank() < 1 || b.Rank() < 1 {
		c.Fail("operands are %v and %v, want matrices", a.Type, b.Type)
	}
	x, xMost := c.centred(a, c.rowwise(aZero))
	w, wMost := c.centred(b, c.columnwise(bZero))
	if !slices.Equal(x.Type.Shape, a.Type.Shape) || !slices.Equal(w.Type.Shape, b.Type.Shape) {
		c.Fail("zero points do not fit operands %v and %v", a.Type, b.Type)
	}
	if xMost*c.sumOf(w, wMost, []int64{max(w.Rank()-2, 0)}) >= exactF32 {
		x, w = c.cast(x, graph.I32), c.cast(w, graph.I32)
	}
	return c.Emit(&graph.MatMul{}, x, w)
}

func matMulInteger(c *call) []*lower.Value {
	a, b, aZero, bZero := c.In(0), c.In(1), c.Opt(2), c.Opt(3)
	if integerProductFits(a, aZero, b, bZero) {
		return lower.One(c.Emit(&graph.IntegerMatMul{To: graph.I32}, a, b, c.columnwise(aZero), c.columnwise(bZero)))
	}
	return lower.One(c.cast(c.integerProduct(a, aZero, b, bZero), graph.I32))
}

// integerProductFits reports whether [graph.IntegerMatMul] takes operands.
func integerProductFits(a, aZero, b, bZero *lower.Value) bool {
	return a.Rank() > 0 && b.Rank() > 0 && zeroFits(a, aZero, 1) && zeroFits(b, bZero, b.Type.Shape[b.Rank()-1])
}

// zeroFits reports whether x are bytes and the zero point, of the same type,
// is one or, in a list, one for each of so many columns.
func zeroFits(x, zero *lower.Value, columns int64) bool {
	if t := x.Type.DType; t != graph.I8 && t != graph.U8 {
		return false
	}
	return zero == nil || zero.Type.DType == x.Type.DType && single(zero, columns)
}

// single reports whether p has one element or is a list of so many.
func single(p *lower.Value, columns int64) bool {
	return p.Type.Elements() == 1 || p.Rank() == 1 && p.Type.Elements() == columns
}

func qlinearMatMul(c *call) []*lower.Value {
	a, b := c.In(0), c.In(3)
	columns := int64(1)
	if b.Rank() > 1 {
		columns = b.Type.Shape[b.Rank()-1]
	}
	if integerProductFits(a, c.In(2), b, c.In(5)) && single(c.In(1), 1) && single(c.In(4), columns) && single(c.In(6), 1) && single(c.In(7), 1) {
		op := &graph.IntegerMatMul{To: c.In(7).Type.DType}
		return lower.One(c.Emit(op, a, b, c.columnwise(c.In(2)), c.columnwise(c.In(5)), nil, c.factor(c.In(1), c.In(4), c.In(6)), nil, c.columnwise(c.In(7))))
	}
	acc := c.integerProduct(a, c.In(2), b, c.In(5))
	aScale, bScale, yScale := c.rowwise(c.In(1)), c.columnwise(c.In(4)), c.rowwise(c.In(6))
	return lower.One(c.requantize(acc, aScale, bScale, yScale, c.In(7), acc.Rank()-2))
}

// factor is what exact sums are multiplied with, as float32: one number or a
// list.
func (c *call) factor(xScale, wScale, yScale *lower.Value) *lower.Value {
	f := c.Emit(&graph.Binary{Fn: graph.Mul}, c.columnwise(xScale), c.columnwise(wScale))
	return c.cast(c.Emit(&graph.Binary{Fn: graph.Div}, f, c.columnwise(yScale)), graph.F32)
}

// requantize scales exact sums to a quantised result. The zero point has one
// element, or one for each place on axis.
func (c *call) requantize(acc, xScale, wScale, yScale, zero *lower.Value, axis int64) *lower.Value {
	factor := c.Emit(&graph.Binary{Fn: graph.Mul}, xScale, wScale)
	factor = c.Emit(&graph.Binary{Fn: graph.Div}, factor, yScale)
	y := c.Emit(&graph.Binary{Fn: graph.Mul}, c.cast(acc, graph.F32), c.cast(factor, graph.F32))
	if !slices.Equal(y.Type.Shape, acc.Type.Shape) {
		c.Fail("scales do not fit the result, %v", acc.Type)
	}
	op := &graph.Quantize{To: zero.Type.DType, Precision: graph.F32}
	if zero.Type.Elements() == 1 {
		zero = c.Emit(&graph.Reshape{}, zero)
	} else {
		op.Axis = axis
		zero = c.Emit(&graph.Reshape{Shape: []int64{zero.Type.Elements()}}, zero)
	}
	return c.Emit(op, y, c.expand(lower.Scalar(graph.F32, 1), zero.Type.Shape), zero)
}

// integerConv is the convolution of quantised numbers, as floats that are
// exact.
func (c *call) integerConv(x, xZero, w, wZero, bias *lower.Value) *lower.Value {
	if w.Rank() < 3 || w.Rank() != x.Rank() {
		c.Fail("operands are %v and %v, want batch, channels and spatial axes", x.Type, w.Type)
	}
	if wZero != nil {
		if wZero.Type.Elements() == 1 {
			wZero = c.Emit(&graph.Reshape{}, wZero)
		} else {
			wZero = c.perChannel(wZero, w, 0)
		}
	}
	a, aMost := c.centred(x, c.columnwise(xZero))
	b, bMost := c.centred(w, wZero)
	axes := make([]int64, w.Rank()-1)
	for i := range axes {
		axes[i] = int64(i) + 1
	}
	most := aMost * c.sumOf(b, bMost, axes)
	wide := graph.F32
	if bias != nil {
		if bias.Type.DType != graph.I32 {
			c.Fail("operand 8 (B) is %v, want int32", bias.Type)
		}
		list, err := bias.Ints()
		if !bias.Known || err != nil {
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
func (c *call) perChannel(list, w *lower.Value, axis int64) *lower.Value {
	if list.Type.Elements() != w.Type.Shape[0] {
		c.Fail("%v has a number for each of %d channels, want %d", list.Type, list.Type.Elements(), w.Type.Shape[0])
	}
	return c.along(list, axis, w.Rank())
}

func convInteger(c *call) []*lower.Value {
	x, w, xZero, wZero := c.In(0), c.In(1), c.Opt(2), c.Opt(3)
	if integerConvFits(x, xZero, w, wZero) {
		return lower.One(c.Emit(c.integerConvOp(x, w, graph.I32), x, w, c.columnwise(xZero), c.columnwise(wZero)))
	}
	return lower.One(c.cast(c.integerConv(x, xZero, w, wZero, nil), graph.I32))
}

// integerConvFits reports whether [graph.IntegerConv] takes operands.
func integerConvFits(x, xZero, w, wZero *lower.Value) bool {
	return (x.Rank() == 3 || x.Rank() == 4) && w.Rank() == x.Rank() && zeroFits(x, xZero, 1) && zeroFits(w, wZero, w.Type.Shape[0])
}

// integerConvOp reads the node's attributes.
func (c *call) integerConvOp(x, w *lower.Value, to graph.DType) *graph.IntegerConv {
	g := c.convOp(x, w)
	return &graph.IntegerConv{Strides: g.Strides, Dilations: g.Dilations, PadsBegin: g.PadsBegin, PadsEnd: g.PadsEnd, Group: g.Group, To: to}
}

func qlinearConv(c *call) []*lower.Value {
	x, w, bias := c.In(0), c.In(3), c.Opt(8)
	if integerConvFits(x, c.In(2), w, c.In(5)) && single(c.In(1), 1) && single(c.In(4), w.Type.Shape[0]) && single(c.In(6), 1) && single(c.In(7), 1) &&
		(bias == nil || bias.Type.DType == graph.I32) {
		op := c.integerConvOp(x, w, c.In(7).Type.DType)
		return lower.One(c.Emit(op, x, w, c.columnwise(c.In(2)), c.columnwise(c.In(5)), bias, c.factor(c.In(1), c.In(4), c.In(6)), nil, c.columnwise(c.In(7))))
	}
	acc := c.integerConv(x, c.In(2), w, c.In(5), bias)
	wScale := c.columnwise(c.In(4))
	if wScale.Type.Elements() != 1 {
		wScale = c.perChannel(wScale, w, 1)
	}
	return lower.One(c.requantize(acc, c.columnwise(c.In(1)), wScale, c.columnwise(c.In(6)), c.In(7), 1))
}
