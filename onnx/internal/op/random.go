package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// randomOps draw random numbers, which [lower.Call.Random] says what they follow from. Numbers of other libraries are others: of
// ONNX's tests only rate, scale and mask can be compared.
var randomOps = map[string]definition{
	"RandomNormal":      takes("").since(1, randomNormal(randomShape), "dtype=1 mean=0.0 scale=1.0 seed:float shape:ints!"),
	"RandomNormalLike":  takes("input:any").since(1, randomNormal(shapeLike), "dtype:int mean=0.0 scale=1.0 seed:float"),
	"RandomUniform":     takes("").since(1, randomUniform(randomShape), "dtype=1 high=1.0 low=0.0 seed:float shape:ints!"),
	"RandomUniformLike": takes("input:any").since(1, randomUniform(shapeLike), "dtype:int high=1.0 low=0.0 seed:float"),
	"Bernoulli":         takes("input:floats").since(15, bernoulli, "dtype:int seed:float"),
	"Multinomial":       takes("input:floats").since(7, multinomial, "dtype=6 sample_size=1 seed:float"),
	"Dropout":           takes("data:floats ratio:floats training_mode:bool").since(1, dropoutAttributes, "is_test=0 ratio=0.5").since(12, dropoutOperands, "seed:int"),
}

// randomShape is what an operator draws whose attributes say the shape.
func randomShape(c *call) (graph.DType, []int64) {
	shape := c.RequireInts("shape")
	if err := (graph.TensorType{DType: graph.F32, Shape: shape}).Check(); err != nil {
		c.Fail("attribute \"shape\": %w", err)
	}
	return c.floatType(graph.F32), shape
}

// shapeLike is what an operator draws for each element of its operand.
func shapeLike(c *call) (graph.DType, []int64) {
	x := c.In(0)
	return c.floatType(x.Type.DType), x.Type.Shape
}

// dtypeOr returns the type that attribute dtype says, or the given one where it is left out.
func (c *call) dtypeOr(without graph.DType) graph.DType {
	if c.Attr("dtype") == nil {
		return without
	}
	return c.dtypeOf("dtype", without)
}

// floatType returns the type that attribute dtype says, or the given one, which has to be one of floats.
func (c *call) floatType(without graph.DType) graph.DType {
	t := c.dtypeOr(without)
	switch t {
	case graph.F16, graph.BF16, graph.F32, graph.F64:
		return t
	}
	c.Fail("the numbers are to be of type %v, want float, float16, bfloat16 or double: set attribute dtype", onnx.ElemTypeOf(t))
	return t
}

func randomNormal(what func(*call) (graph.DType, []int64)) lowerFunc {
	return func(c *call) []*lower.Value {
		t, shape := what(c)
		return lower.One(c.Random(graph.RandomNormal, c.Float("mean"), c.Float("scale"), t, shape))
	}
}

func randomUniform(what func(*call) (graph.DType, []int64)) lowerFunc {
	return func(c *call) []*lower.Value {
		t, shape := what(c)
		return lower.One(c.Random(graph.RandomUniform, c.Float("low"), c.Float("high"), t, shape))
	}
}

// unit draws from 0 to 1, without 1.
func (c *call) unit(shape []int64) *lower.Value {
	return c.Random(graph.RandomUniform, 0, 1, graph.F32, shape)
}

// bernoulli gives 1 as often as the operand says.
func bernoulli(c *call) []*lower.Value {
	p := c.In(0)
	t := c.dtypeOr(p.Type.DType)
	hit := c.Binary(graph.Less, c.unit(p.Type.Shape), c.cast(p, graph.F32))
	return lower.One(c.cast(hit, t))
}

// multinomial draws classes by the logarithms of their probabilities: the class is the first of which the sum of
// probabilities is more than a number drawn from 0 to that of all.
func multinomial(c *call) []*lower.Value {
	x := c.In(0)
	if x.Rank() != 2 || x.Type.Shape[1] < 1 {
		c.Fail("operand 0 is %v, want a row of logarithms of probabilities for each of a batch", x.Type)
	}
	n := c.Int("sample_size")
	if n < 1 || n > graph.MaxTensorBytes {
		c.Fail("attribute \"sample_size\" is %d, want at least 1", n)
	}
	t := c.dtypeOr(graph.I32)
	if t != graph.I32 && t != graph.I64 {
		c.Fail("attribute \"dtype\" is %v, want int32 or int64", onnx.ElemTypeOf(t))
	}
	batch, classes := x.Type.Shape[0], x.Type.Shape[1]
	sums := c.Emit(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, c.Emit(&graph.Softmax{Axis: 1}, c.cast(x, graph.F32)))
	all := c.Emit(&graph.Slice{Start: []int64{0, classes - 1}, Size: []int64{batch, 1}, Step: []int64{1, 1}}, sums)
	u := c.Binary(graph.Mul, c.unit([]int64{batch, n}), all)
	before := c.Binary(graph.GreaterEqual, c.Emit(&graph.Reshape{Shape: []int64{batch, n, 1}}, u), c.Emit(&graph.Reshape{Shape: []int64{batch, 1, classes}}, sums))
	at := c.Emit(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{2}}, c.cast(before, t))
	// Rounding may have drawn the sum of all.
	return lower.One(c.Binary(graph.Min, at, lower.Scalar(t, float64(classes-1))))
}

// dropoutAttributes is Dropout up to version 11. What the executable does is
// inference, whatever attribute is_test (up to version 6) says, unless the options ask for training.
func dropoutAttributes(c *call) []*lower.Value {
	test := c.Bool("is_test")
	opset := c.Opset()
	ratio := lower.Scalar(graph.F32, c.Float("ratio"))
	x := c.In(0)
	mask := graph.Bool
	if opset < 10 {
		mask = x.Type.DType
	}
	if c.Learns(c.Training().Dropout) {
		return c.dropped(x, ratio, nil, mask)
	}
	if opset < 7 && !test && !c.Training().Dropout {
		c.Warn("Dropout drops nothing, though its attribute is_test is not set: what is compiled is inference")
	}
	return c.kept(x, mask)
}

func dropoutOperands(c *call) []*lower.Value {
	x, ratio, training := c.In(0), c.Opt(1), c.Opt(2)
	switch {
	case training == nil:
		if !c.Training().Dropout {
			return c.kept(x, graph.Bool)
		}
	case training.Type.DType != graph.Bool || training.Type.Elements() != 1:
		c.Fail("operand 2 (training_mode) is %v, want one bool", training.Type)
	case training.Known && training.Data[0] == 0:
		return c.kept(x, graph.Bool)
	case training.Known:
		training = nil
	}
	if !c.Learns(true) {
		return c.kept(x, graph.Bool)
	}
	if ratio == nil {
		ratio = lower.Scalar(graph.F32, 0.5)
	} else if ratio.Type.Elements() != 1 {
		c.Fail("operand 1 (ratio) is %v, want one number", ratio.Type)
	}
	return c.dropped(x, ratio, training, graph.Bool)
}

// dropped returns the results of a Dropout that drops elements at a ratio, if training, a bool, is not there or true.
func (c *call) dropped(x, ratio, training *lower.Value, mask graph.DType) []*lower.Value {
	if ratio.Known {
		// Exporters write F.dropout(x, p=0), as attention does, in training mode.
		switch r := graph.Number(ratio.Type.DType, ratio.Data); {
		case r == 0:
			return c.kept(x, mask)
		case !(r > 0 && r < 1):
			c.Fail("the ratio of elements to drop is %v, want 0 to 1, without 1", r)
		}
	}
	scalar := func(v *lower.Value) *lower.Value { return c.Emit(&graph.Reshape{}, v) }
	t := c.wideType(x.Type.DType)
	ratio = c.cast(scalar(ratio.Constant()), graph.F32)
	keeps := c.Binary(graph.GreaterEqual, c.unit(x.Type.Shape), ratio)
	factor := c.Binary(graph.Div, lower.Scalar(graph.F32, 1), c.Binary(graph.Sub, lower.Scalar(graph.F32, 1), ratio))
	if training != nil {
		training = scalar(training)
		keeps = c.Binary(graph.Or, keeps, c.Emit(&graph.Unary{Fn: graph.Not}, training))
		factor = c.Emit(&graph.Where{}, training, factor, lower.Scalar(graph.F32, 1))
	}
	y := c.Binary(graph.Mul, c.cast(x, t), c.cast(factor, t))
	y = c.Emit(&graph.Where{}, keeps, y, lower.Scalar(t, 0))
	out := []*lower.Value{c.cast(y, x.Type.DType), nil}
	if c.Wants(1) {
		out[1] = c.cast(keeps, mask)
	}
	return out
}

// kept returns the results of a Dropout that drops nothing.
func (c *call) kept(x *lower.Value, mask graph.DType) []*lower.Value {
	out := []*lower.Value{x, nil}
	if c.Wants(1) {
		if x.Counted() {
			c.Unsupported("", "the mask of a tensor whose size data decides")
		}
		out[1] = c.expand(lower.Scalar(mask, 1), x.Type.Shape)
	}
	return out
}
