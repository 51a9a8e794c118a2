package onnx

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// constantOps make constants and convert types.
var constantOps = map[string]definition{
	"Constant":        takes("").since(1, constantNode, "sparse_value:sparse value:tensor value_float:float value_floats:floats value_int:int value_ints:ints value_string:string value_strings:strings"),
	"ConstantOfShape": takes("input:int64").since(9, constantOfShape, "value:tensor"),
	"Range":           takes("start:T=floats|int16|indices limit:T delta:T").since(11, rangeNode),
	"Cast":            takes("input:any").since(1, castName, "round_mode:string saturate=1 to:string!").since(6, castType, "round_mode:string saturate=1 to:int!"),
	"CastLike":        takes("input:any target_type:any").since(15, castLike, "round_mode:string saturate=1"),
}

func constantNode(c *call) []*value {
	var found []*value
	add := func(v *value) { found = append(found, v) }
	if a := c.attr("value"); a != nil {
		add(c.tensorValue(a))
	}
	if a := c.attr("value_float"); a != nil {
		add(scalar(graph.F32, float64(a.Float)))
	}
	if a := c.attr("value_int"); a != nil {
		v := knownInts(a.Int)
		v.typ.Shape = nil
		add(v)
	}
	if a := c.attr("value_ints"); a != nil {
		add(knownInts(a.Ints...))
	}
	if a := c.attr("value_floats"); a != nil {
		b := make([]byte, 0, 4*len(a.Floats))
		for _, f := range a.Floats {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
		}
		add(knownValue(graph.TensorType{DType: graph.F32, Shape: []int64{int64(len(a.Floats))}}, b))
	}
	for _, name := range []string{"value_string", "value_strings", "sparse_value"} {
		if c.has(name) {
			c.unsupported(hintConstant[name], "attribute %s", name)
		}
	}
	if len(found) != 1 {
		c.fail("%d of the attributes that give the value are set, want one", len(found))
	}
	return found
}

// hintConstant says what to do about attributes of Constant.
var hintConstant = map[string]string{"value_string": hintText, "value_strings": hintText, "sparse_value": "convert it to a dense tensor"}

// tensorValue returns the value of the attribute "value", a tensor.
func (c *call) tensorValue(a *Attribute) *value {
	if !a.Tensor.Elem.DType().Valid() {
		c.unsupported(hintOf(a.Tensor.Elem), "element type %v", a.Tensor.Elem)
	}
	v, err := constant("", a.Tensor)
	if err != nil {
		c.fail("attribute \"value\": %w", err)
	}
	return v
}

func constantOfShape(c *call) []*value {
	shape := c.requireKnownInts(0, "input")
	fill := scalar(graph.F32, 0)
	if a := c.attr("value"); a != nil {
		v := c.tensorValue(a)
		if v.typ.Elements() != 1 {
			c.fail("attribute \"value\" is %v, want one element", v.typ)
		}
		v.typ.Shape = nil
		fill = v
	}
	return one(c.expand(fill, shape))
}

// rangeNode computes Range, whose operands must be known as they determine
// the shape of the result.
func rangeNode(c *call) []*value {
	names := [...]string{"start", "limit", "delta"}
	t := c.in(0).typ.DType
	for i, name := range names {
		c.in(i)
		if v := c.known(i, name); v.typ.DType != t || v.typ.Elements() != 1 {
			c.fail("operand %d (%s) is %v, want one element of type %v", i, name, v.typ, t)
		}
	}
	if t.IsFloat() {
		return one(c.floatRange(t))
	}
	return one(c.intRange(t))
}

func (c *call) intRange(t graph.DType) *value {
	var in [3]int64
	for i := range in {
		v, err := c.emit(&graph.Cast{To: graph.I64}, c.in(i)).ints()
		if err != nil {
			c.fail("operand %d: %w", i, err)
		}
		in[i] = v[0]
	}
	start, limit, delta := in[0], in[1], in[2]
	n := uint64(0)
	switch { // distances are below 2^64 and may be above 2^63
	case delta == 0:
		c.fail("operand 2 (delta) is 0")
	case delta > 0 && limit > start:
		n = (uint64(limit)-uint64(start)-1)/uint64(delta) + 1
	case delta < 0 && limit < start:
		n = (uint64(start)-uint64(limit)-1)/-uint64(delta) + 1
	}
	return c.sequence(t, float64(n), func(i int64) []byte { return encodeInt(t, start+i*delta) })
}

func (c *call) floatRange(t graph.DType) *value {
	var in [3]float64
	for i := range in {
		in[i] = math.Float64frombits(binary.LittleEndian.Uint64(c.emit(&graph.Cast{To: graph.F64}, c.in(i)).data))
	}
	if in[2] == 0 {
		c.fail("operand 2 (delta) is 0")
	}
	return c.sequence(t, math.Ceil((in[1]-in[0])/in[2]), func(i int64) []byte { return encodeFloat(t, in[0]+float64(i)*in[2]) })
}

// sequence returns a known value of n elements, none if n is below 0.
func (c *call) sequence(t graph.DType, n float64, element func(i int64) []byte) *value {
	n = max(n, 0)
	if !(n < graph.MaxTensorBytes) {
		c.fail("the range has %v elements, want fewer than 2^40", n)
	}
	c.makes(int64(n) * int64(t.Size()))
	data := make([]byte, 0, int(n)*t.Size())
	for i := range int64(n) {
		data = append(data, element(i)...)
	}
	return knownValue(graph.TensorType{DType: t, Shape: []int64{int64(n)}}, data)
}

// castName is Cast before version 6, which names the type in a string.
func castName(c *call) []*value {
	to := c.str("to")
	all := ElemTypes()
	i := slices.IndexFunc(all, func(e ElemType) bool { return strings.EqualFold(e.String(), to) })
	if i < 0 {
		c.fail("attribute \"to\" is %q, want the name of an element type", to)
	}
	return one(c.castTo(all[i]))
}

func castType(c *call) []*value { return one(c.castTo(ElemType(c.int("to")))) }

// castTo converts operand 0.
func (c *call) castTo(to ElemType) *value {
	if !to.DType().Valid() {
		c.unsupported(hintOf(to), "conversion to %v", to)
	}
	if saturate := c.bool("saturate"); !saturate && to.DType().Size() == 1 && to.DType().IsFloat() {
		c.unsupported("set attribute saturate to 1", "conversion to %v without saturation", to)
	}
	return c.cast(c.in(0), to.DType())
}

func castLike(c *call) []*value { return one(c.castTo(ElemTypeOf(c.in(1).typ.DType))) }

// cast converts x, which is returned itself if it has the type already.
func (c *call) cast(x *value, to graph.DType) *value {
	if x.typ.DType == to {
		return x
	}
	return c.emit(&graph.Cast{To: to}, x)
}
