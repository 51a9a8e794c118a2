package main

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/bench/peer"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
)

// attrs are the attributes of a node: int, float32, string, []int, []float32,
// []string.
type attrs map[string]any

// sketch is an ONNX model of any types under construction, with data for its
// inputs, all drawn at random.
type sketch struct {
	*rand.Rand
	opset   int
	nodes   []byte
	values  []byte // initializers, inputs and outputs
	inputs  []peer.Tensor
	outputs []string
	elems   []onnx.ElemType // of the outputs
	names   int
	step    float64 // of quantised outputs: how far they may be off
	log     string  // what the model is, for messages
}

func (s *sketch) name(prefix string) string {
	s.names++
	return prefix + strconv.Itoa(s.names)
}

func field(b []byte, n protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
}

func number(b []byte, n protowire.Number, v int64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// info is a ValueInfoProto, without a shape if dims is nil.
func info(name string, elem onnx.ElemType, dims []int) []byte {
	t := number(nil, 1, int64(elem))
	if dims != nil {
		var shape []byte
		for _, d := range dims {
			shape = field(shape, 1, number(nil, 1, int64(d)))
		}
		t = field(t, 2, shape)
	}
	return field(field(nil, 1, []byte(name)), 2, field(nil, 1, t))
}

// data draws the elements of a tensor.
func (s *sketch) data(elem onnx.ElemType, n int, draw func() float64) []byte {
	var b []byte
	for range n {
		b = encodeElem(b, elem, draw())
	}
	return b
}

// encodeElem appends v as an element, converted as Go converts.
func encodeElem(b []byte, elem onnx.ElemType, v float64) []byte {
	le := binary.LittleEndian
	switch elem {
	case onnx.Float:
		return le.AppendUint32(b, math.Float32bits(float32(v)))
	case onnx.Double:
		return le.AppendUint64(b, math.Float64bits(v))
	case onnx.Float16:
		return le.AppendUint16(b, uint16(num.Float16From(float32(v))))
	case onnx.Int64:
		return le.AppendUint64(b, uint64(int64(v)))
	case onnx.Uint64:
		return le.AppendUint64(b, uint64(v))
	case onnx.Int32:
		return le.AppendUint32(b, uint32(int32(v)))
	case onnx.Uint32:
		return le.AppendUint32(b, uint32(v))
	case onnx.Int16:
		return le.AppendUint16(b, uint16(int16(v)))
	case onnx.Uint16:
		return le.AppendUint16(b, uint16(v))
	case onnx.Int8:
		return append(b, byte(int8(v)))
	case onnx.Uint8:
		return append(b, byte(v))
	case onnx.Bool:
		if v > 0 {
			return append(b, 1)
		}
		return append(b, 0)
	}
	panic("no such element")
}

func volume(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func int64s(dims []int) []int64 {
	out := make([]int64, len(dims))
	for i, d := range dims {
		out[i] = int64(d)
	}
	return out
}

// input adds an input with data drawn by draw.
func (s *sketch) input(elem onnx.ElemType, dims []int, draw func() float64) string {
	name := s.name("x")
	data := s.data(elem, volume(dims), draw)
	s.inputs = append(s.inputs, peer.Tensor{Name: name, Elem: peer.Elem(elem), Dims: int64s(dims), Size: len(data), Data: data})
	s.values = field(s.values, 11, info(name, elem, dims))
	s.log += " " + name + ":" + elem.String() + dimString(dims)
	return name
}

// constant adds an initializer.
func (s *sketch) constant(elem onnx.ElemType, dims []int, data []byte) string {
	name := s.name("w")
	var t []byte
	for _, d := range dims {
		t = number(t, 1, int64(d))
	}
	t = field(field(number(t, 2, int64(elem)), 8, []byte(name)), 9, data)
	s.values = field(s.values, 5, t)
	s.log += " " + name + ":const " + elem.String() + dimString(dims)
	return name
}

func dimString(dims []int) string {
	b := []byte{'['}
	for i, d := range dims {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(d), 10)
	}
	return string(append(b, ']'))
}

// ints adds a list of int64.
func (s *sketch) ints(v ...int) string {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint64(data, uint64(x))
	}
	name := s.constant(onnx.Int64, []int{len(v)}, data)
	s.log += dimString(v)
	return name
}

// scalar adds a value without dimensions.
func (s *sketch) scalar(elem onnx.ElemType, v float64) string {
	name := s.constant(elem, []int{}, encodeElem(nil, elem, v))
	s.log += "=" + strconv.FormatFloat(v, 'g', 6, 64)
	return name
}

// floats adds a list of float32.
func (s *sketch) floats(v ...float64) string {
	var data []byte
	for _, x := range v {
		data = encodeElem(data, onnx.Float, x)
	}
	name := s.constant(onnx.Float, []int{len(v)}, data)
	for _, x := range v {
		s.log += " " + strconv.FormatFloat(x, 'g', 6, 64)
	}
	return name
}

// node adds a node with some results and returns their names.
func (s *sketch) node(op string, results int, a attrs, operands ...string) []string {
	var n []byte
	for _, in := range operands {
		n = field(n, 1, []byte(in))
	}
	var names []string
	for range results {
		names = append(names, s.name("t"))
		n = field(n, 2, []byte(names[len(names)-1]))
	}
	n = field(n, 4, []byte(op))
	s.log += "\n  " + op
	for _, k := range sortedKeys(a) {
		n = field(n, 5, attribute(k, a[k]))
	}
	s.log += attrString(a)
	for _, o := range operands {
		s.log += " " + o
	}
	s.nodes = field(s.nodes, 1, n)
	return names
}

func attribute(name string, v any) []byte {
	b := field(nil, 1, []byte(name))
	kind := int64(0)
	switch v := v.(type) {
	case int:
		b, kind = number(b, 3, int64(v)), 2
	case float64:
		b, kind = protowire.AppendFixed32(protowire.AppendTag(b, 2, protowire.Fixed32Type), math.Float32bits(float32(v))), 1
	case string:
		b, kind = field(b, 4, []byte(v)), 3
	case []int:
		for _, x := range v {
			b = number(b, 8, int64(x))
		}
		kind = 7
	case []float64:
		for _, x := range v {
			b = protowire.AppendFixed32(protowire.AppendTag(b, 7, protowire.Fixed32Type), math.Float32bits(float32(x)))
		}
		kind = 6
	case []string:
		for _, x := range v {
			b = field(b, 9, []byte(x))
		}
		kind = 8
	case *sketch:
		b, kind = field(b, 6, v.graph()), 5
	default:
		panic("no such attribute")
	}
	return number(b, 20, kind)
}

// output makes a value an output, of the type elem.
func (s *sketch) output(name string, elem onnx.ElemType) {
	s.values = field(s.values, 12, info(name, elem, nil))
	s.outputs, s.elems = append(s.outputs, name), append(s.elems, elem)
}

// body starts a graph for an attribute of s, which can read the values of s.
func (s *sketch) body() *sketch {
	return &sketch{Rand: s.Rand, opset: s.opset, names: s.names + 1000, log: " {"}
}

// param adds an input to a body.
func (s *sketch) param(elem onnx.ElemType, dims []int) string {
	name := s.name("p")
	s.values = field(s.values, 11, info(name, elem, dims))
	return name
}

// String describes a body.
func (s *sketch) String() string { return strings.ReplaceAll(s.log, "\n", "\n    ") + " }" }

// graph returns the GraphProto.
func (s *sketch) graph() []byte {
	return append(field(append([]byte{}, s.nodes...), 2, []byte("graph")), s.values...)
}

// bytes returns the model as an ONNX file.
func (s *sketch) bytes() []byte {
	g := s.graph()
	ir := int64(8)
	if s.opset >= 19 {
		ir = 10
	}
	b := number(nil, 1, ir)
	b = field(b, 7, g)
	return field(b, 8, number(nil, 2, int64(s.opset)))
}
