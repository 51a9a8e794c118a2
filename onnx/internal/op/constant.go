package op

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// constantOps make constants and convert types.
var constantOps = map[string]definition{
	"Constant":        takes("").since(1, constantNode, "sparse_value:sparse value:tensor value_float:float value_floats:floats value_int:int value_ints:ints value_string:string value_strings:strings"),
	"ConstantOfShape": takes("input:int64").since(9, constantOfShape, "value:tensor"),
	"Range":           takes("start:T=floats|int16|indices limit:T delta:T").since(11, rangeNode),
	"Cast":            takes("input:any").since(1, castName, "round_mode:string saturate=1 to:string!").since(6, castType, "round_mode:string saturate=1 to:int!"),
	"CastLike":        takes("input:any target_type:any").since(15, castLike, "round_mode:string saturate=1"),
}

func constantNode(c *call) []*lower.Value {
	var found []*lower.Value
	add := func(v *lower.Value) { found = append(found, v) }
	if a := c.Attr("value"); a != nil {
		add(c.Weight(c.tensorValue(a)))
	}
	if a := c.Attr("value_float"); a != nil {
		add(lower.Scalar(graph.F32, float64(a.Float)))
	}
	if a := c.Attr("value_int"); a != nil {
		v := lower.KnownInts(a.Int)
		v.Type.Shape = nil
		add(v)
	}
	if a := c.Attr("value_ints"); a != nil {
		add(lower.KnownInts(a.Ints...))
	}
	if a := c.Attr("value_floats"); a != nil {
		b := make([]byte, 0, 4*len(a.Floats))
		for _, f := range a.Floats {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		add(lower.Known(graph.TensorType{DType: graph.F32, Shape: []int64{int64(len(a.Floats))}}, b))
	}
	for _, name := range []string{"value_string", "value_strings", "sparse_value"} {
		if c.Has(name) {
			c.Unsupported(hintConstant[name], "attribute %s", name)
		}
	}
	if len(found) != 1 {
		c.Fail("%d of the attributes that give the value are set, want one", len(found))
	}
	return found
}

// hintConstant says what to do about attributes of Constant.
var hintConstant = map[string]string{"value_string": lower.HintText, "value_strings": lower.HintText, "sparse_value": "convert it to a dense tensor"}

// tensorValue returns the value of the attribute "value", a tensor.
func (c *call) tensorValue(a *onnx.Attribute) *lower.Value {
	if !a.Tensor.Elem.DType().Valid() {
		c.Unsupported(lower.HintOf(a.Tensor.Elem), "element type %v", a.Tensor.Elem)
	}
	v, err := lower.Constant("", a.Tensor)
	if err != nil {
		c.Fail("attribute \"value\": %w", err)
	}
	return v
}

func constantOfShape(c *call) []*lower.Value {
	fill := lower.Scalar(graph.F32, 0)
	if a := c.Attr("value"); a != nil {
		v := c.tensorValue(a)
		if v.Type.Elements() != 1 {
			c.Fail("attribute \"value\" is %v, want one element", v.Type)
		}
		v.Type.Shape = nil
		fill = v
	}
	if to := c.In(0); c.decided(to) {
		return lower.One(c.expandBy(fill, to))
	}
	return lower.One(c.expand(fill, c.RequireKnownInts(0, "input")))
}

// rangeNode computes Range, whose operands decide the size of the result.
func rangeNode(c *call) []*lower.Value {
	names := [...]string{"start", "limit", "delta"}
	t := c.In(0).Type.DType
	known := true
	for i, name := range names {
		v := c.In(i)
		known = known && v.Known
		if v.Type.DType != t || v.Type.Elements() != 1 {
			c.Fail("operand %d (%s) is %v, want one element of type %v", i, name, v.Type, t)
		}
	}
	if !known {
		return lower.One(c.rangeBy())
	}
	if t.IsFloat() {
		return lower.One(c.floatRange(t))
	}
	return lower.One(c.intRange(t))
}

func (c *call) intRange(t graph.DType) *lower.Value {
	var in [3]int64
	for i := range in {
		v, err := c.Emit(&graph.Cast{To: graph.I64}, c.In(i)).Ints()
		if err != nil {
			c.Fail("operand %d: %w", i, err)
		}
		in[i] = v[0]
	}
	start, limit, delta := in[0], in[1], in[2]
	n := uint64(0)
	switch { // distances are below 2^64 and may be above 2^63
	case delta == 0:
		c.Fail("operand 2 (delta) is 0")
	case delta > 0 && limit > start:
		n = (uint64(limit)-uint64(start)-1)/uint64(delta) + 1
	case delta < 0 && limit < start:
		n = (uint64(start)-uint64(limit)-1)/-uint64(delta) + 1
	}
	return c.sequence(t, float64(n), func(i int64) []byte { return lower.EncodeInt(t, start+i*delta) })
}

func (c *call) floatRange(t graph.DType) *lower.Value {
	var in [3]float64
	for i := range in {
		in[i] = math.Float64frombits(binary.LittleEndian.Uint64(c.Emit(&graph.Cast{To: graph.F64}, c.In(i)).Data))
	}
	if in[2] == 0 {
		c.Fail("operand 2 (delta) is 0")
	}
	return c.sequence(t, math.Ceil((in[1]-in[0])/in[2]), func(i int64) []byte { return lower.EncodeFloat(t, in[0]+float64(i)*in[2]) })
}

// sequence returns a known value of n elements, none if n is below 0.
func (c *call) sequence(t graph.DType, n float64, element func(i int64) []byte) *lower.Value {
	n = max(n, 0)
	if !(n < graph.MaxTensorBytes) {
		c.Fail("the range has %v elements, want fewer than 2^40", n)
	}
	c.Makes(int64(n) * int64(t.Size()))
	data := make([]byte, 0, int(n)*t.Size())
	for i := range int64(n) {
		data = append(data, element(i)...)
	}
	return lower.Known(graph.TensorType{DType: t, Shape: []int64{int64(n)}}, data)
}

// castName is Cast before version 6, which names the type in a string.
func castName(c *call) []*lower.Value {
	to := c.Str("to")
	all := onnx.ElemTypes()
	i := slices.IndexFunc(all, func(e onnx.ElemType) bool { return strings.EqualFold(e.String(), to) })
	if i < 0 {
		c.Fail("attribute \"to\" is %q, want the name of an element type", to)
	}
	return lower.One(c.castTo(all[i]))
}

func castType(c *call) []*lower.Value { return lower.One(c.castTo(onnx.ElemType(c.Int("to")))) }

// castTo converts operand 0.
func (c *call) castTo(to onnx.ElemType) *lower.Value {
	if !to.DType().Valid() {
		c.Unsupported(lower.HintOf(to), "conversion to %v", to)
	}
	if saturate := c.Bool("saturate"); !saturate && to.DType().Size() == 1 && to.DType().IsFloat() {
		c.Unsupported("set attribute saturate to 1", "conversion to %v without saturation", to)
	}
	return c.cast(c.In(0), to.DType())
}

func castLike(c *call) []*lower.Value {
	return lower.One(c.castTo(onnx.ElemTypeOf(c.In(1).Type.DType)))
}

// cast converts x, which is returned itself if it has the type already.
func (c *call) cast(x *lower.Value, to graph.DType) *lower.Value {
	if x.Type.DType == to {
		return x
	}
	return c.Emit(&graph.Cast{To: to}, x)
}
