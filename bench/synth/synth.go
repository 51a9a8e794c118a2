// Package synth writes ONNX models: single operators and networks of chosen
// sizes with random weights, for measurements that need no model of anybody's.
package synth

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/onnx"
)

// Model is an ONNX model under construction.
type Model struct {
	Inputs  []Value
	Outputs []Value

	opset     int64
	graph     message // nodes and initializers
	ins, outs [][]byte
	random    *rand.Rand
	names     int
}

// Value is a float32 input or output.
type Value struct {
	Name string
	Dims []int64
}

// New starts a model of an operator set version of ai.onnx. Its weights are the
// same at every run.
func New(opset int64) *Model {
	return &Model{opset: opset, random: rand.New(rand.NewPCG(1, 2))}
}

// message builds a protobuf message.
type message []byte

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

func (m *message) string(field protowire.Number, s string) { m.bytes(field, []byte(s)) }

func (m *message) int(field protowire.Number, v int64) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), uint64(v))
}

func (m *message) float(field protowire.Number, v float32) {
	*m = protowire.AppendFixed32(protowire.AppendTag(*m, field, protowire.Fixed32Type), math.Float32bits(v))
}

// Input adds a float32 input and returns its name.
func (m *Model) Input(name string, dims ...int64) string {
	m.Inputs = append(m.Inputs, Value{name, dims})
	m.ins = append(m.ins, valueInfo(name, dims))
	return name
}

// Output makes a value an output.
func (m *Model) Output(name string, dims ...int64) {
	m.Outputs = append(m.Outputs, Value{name, dims})
	m.outs = append(m.outs, valueInfo(name, dims))
}

// valueInfo is a ValueInfoProto of a float32 tensor.
func valueInfo(name string, dims []int64) []byte {
	var shape, tensor, typ, v message
	for _, d := range dims {
		var dim message
		dim.int(1, d)
		shape.bytes(1, dim)
	}
	tensor.int(1, int64(onnx.Float))
	tensor.bytes(2, shape)
	typ.bytes(1, tensor)
	v.string(1, name)
	v.bytes(2, typ)
	return v
}

// Weights adds a tensor of random numbers of the normal distribution times
// scale, and returns its name.
func (m *Model) Weights(scale float64, dims ...int64) string {
	data := make([]byte, 0, 4*elements(dims))
	for range elements(dims) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(scale*m.random.NormFloat64())))
	}
	return m.tensor(onnx.Float, dims, data)
}

// Ints adds a tensor of int64 and one dimension, and returns its name.
func (m *Model) Ints(v ...int64) string {
	var data []byte
	for _, x := range v {
		data = binary.LittleEndian.AppendUint64(data, uint64(x))
	}
	return m.tensor(onnx.Int64, []int64{int64(len(v))}, data)
}

// Number adds a float32 without dimensions and returns its name.
func (m *Model) Number(v float32) string {
	return m.tensor(onnx.Float, nil, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}

func (m *Model) tensor(elem onnx.ElemType, dims []int64, data []byte) string {
	name := m.name("w")
	var t message
	for _, d := range dims {
		t.int(1, d)
	}
	t.int(2, int64(elem))
	t.string(8, name)
	t.bytes(9, data)
	m.graph.bytes(5, t)
	return name
}

// name returns a name that nothing in the model has.
func (m *Model) name(prefix string) string {
	m.names++
	return prefix + strconv.Itoa(m.names)
}

// Attr is an attribute of a node: an int64, a float32, a string or an []int64.
type Attr struct {
	Name  string
	Value any
}

// Node adds a node of one result and returns its name. An empty operand is
// left out.
func (m *Model) Node(op string, operands []string, attrs ...Attr) string {
	return m.Nodes(op, operands, 1, attrs...)[0]
}

// Nodes adds a node of several results and returns their names.
func (m *Model) Nodes(op string, operands []string, results int, attrs ...Attr) []string {
	var n message
	for _, in := range operands {
		n.string(1, in)
	}
	names := make([]string, results)
	for i := range names {
		names[i] = m.name("t")
		n.string(2, names[i])
	}
	n.string(4, op)
	for _, a := range attrs {
		n.bytes(5, a.encode())
	}
	m.graph.bytes(1, n)
	return names
}

func (a Attr) encode() []byte {
	var b message
	b.string(1, a.Name)
	kind := onnx.AttrInt
	switch v := a.Value.(type) {
	case int64:
		b.int(3, v)
	case float32:
		b.float(2, v)
		kind = onnx.AttrFloat
	case string:
		b.string(4, v)
		kind = onnx.AttrString
	case []int64:
		for _, x := range v {
			b.int(8, x)
		}
		kind = onnx.AttrInts
	default:
		panic("synth: an attribute of a type that Attr does not list")
	}
	b.int(20, int64(kind))
	return b
}

// Bytes returns the model as an ONNX file.
func (m *Model) Bytes() []byte {
	g := append(message{}, m.graph...)
	g.string(2, "graph")
	for _, v := range m.ins {
		g.bytes(11, v)
	}
	for _, v := range m.outs {
		g.bytes(12, v)
	}
	var opset, b message
	opset.int(2, m.opset)
	b.int(1, irVersion)
	b.bytes(7, g)
	b.bytes(8, opset)
	return b
}

// irVersion is that of ONNX 1.12, which goes with operator set 17.
const irVersion = 8

// elements returns the product of dims.
func elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}
