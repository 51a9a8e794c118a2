// Package onnx reads and writes ONNX models (protobuf wire format) and gives their
// symbolic dimensions sizes. Package onnx/compile lowers them to the operators of the
// portable executable (package ipu/graph) and makes PopEF models of them.
package onnx

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Model is an ONNX ModelProto. The field Other of it and of what it consists of has the fields of a message that this package does not read, such as
// documentation and metadata, as they stand in the file, one behind the other with their tags: [Encode] writes them again.
type Model struct {
	Path            string // file it was read from, for messages; may be empty
	Size            int64  // bytes that were read: of the file and of its external data, each region once
	IRVersion       int64
	ProducerName    string
	ProducerVersion string
	Opsets          []Opset
	Graph           *Graph
	Functions       []*Function
	Other           []byte
}

// Opset is an operator set that a model imports.
type Opset struct {
	Domain  string // "" for ai.onnx
	Version int64
}

// Function is a model-local function.
type Function struct {
	Name, Domain    string
	Overload        string
	Inputs, Outputs []string
	Attributes      []string     // names of attributes without a default
	Defaults        []*Attribute // attributes with a default
	Nodes           []*Node
	Opsets          []Opset
	Other           []byte
}

// Graph is an ONNX GraphProto.
type Graph struct {
	Name         string
	Nodes        []*Node
	Initializers []*Tensor
	Inputs       []ValueInfo // may list initializers too
	Outputs      []ValueInfo
	Values       []ValueInfo // types of intermediate values, where given
	Other        []byte
}

// Node is an ONNX NodeProto. An empty name in Inputs or Outputs is a left-out
// operand or result.
type Node struct {
	OpType, Domain, Overload string
	Name                     string
	Inputs, Outputs          []string
	Attributes               []*Attribute
	Other                    []byte
}

// Attribute is an ONNX AttributeProto; Type says which field is set.
type Attribute struct {
	Name    string
	Type    AttributeType
	Float   float32
	Int     int64
	String  []byte
	Tensor  *Tensor
	Graph   *Graph
	Floats  []float32
	Ints    []int64
	Strings [][]byte
	Tensors []*Tensor
	Graphs  []*Graph
	Ref     string // in a function: the name of the caller's attribute it stands for
	Other   []byte // of types that are not read, the value too
}

// AttributeType is ONNX's AttributeProto.AttributeType.
type AttributeType int32

// The attribute types that are read. Sparse tensors and type protos are
// reported as unsupported.
const (
	AttrUndefined AttributeType = 0
	AttrFloat     AttributeType = 1
	AttrInt       AttributeType = 2
	AttrString    AttributeType = 3
	AttrTensor    AttributeType = 4
	AttrGraph     AttributeType = 5
	AttrFloats    AttributeType = 6
	AttrInts      AttributeType = 7
	AttrStrings   AttributeType = 8
	AttrTensors   AttributeType = 9
	AttrGraphs    AttributeType = 10
	AttrSparse    AttributeType = 11
)

// ElemType is ONNX's TensorProto.DataType.
type ElemType int32

// The element types of ONNX.
const (
	Undefined  ElemType = 0
	Float      ElemType = 1
	Uint8      ElemType = 2
	Int8       ElemType = 3
	Uint16     ElemType = 4
	Int16      ElemType = 5
	Int32      ElemType = 6
	Int64      ElemType = 7
	String     ElemType = 8
	Bool       ElemType = 9
	Float16    ElemType = 10
	Double     ElemType = 11
	Uint32     ElemType = 12
	Uint64     ElemType = 13
	Complex64  ElemType = 14
	Complex128 ElemType = 15
	BFloat16   ElemType = 16
	F8E4M3FN   ElemType = 17
	F8E4M3FNUZ ElemType = 18
	F8E5M2     ElemType = 19
	F8E5M2FNUZ ElemType = 20
	Uint4      ElemType = 21
	Int4       ElemType = 22
	F4E2M1     ElemType = 23
	F8E8M0     ElemType = 24
	Uint2      ElemType = 25
	Int2       ElemType = 26
)

var elemTypes = []struct {
	name  string
	dtype graph.DType
}{
	Undefined: {"undefined", 0}, Float: {"float", graph.F32}, Uint8: {"uint8", graph.U8}, Int8: {"int8", graph.I8},
	Uint16: {"uint16", graph.U16}, Int16: {"int16", graph.I16}, Int32: {"int32", graph.I32}, Int64: {"int64", graph.I64},
	String: {"string", 0}, Bool: {"bool", graph.Bool}, Float16: {"float16", graph.F16}, Double: {"double", graph.F64},
	Uint32: {"uint32", graph.U32}, Uint64: {"uint64", graph.U64}, Complex64: {"complex64", 0}, Complex128: {"complex128", 0},
	BFloat16: {"bfloat16", graph.BF16}, F8E4M3FN: {"float8e4m3fn", 0}, F8E4M3FNUZ: {"float8e4m3fnuz", graph.F8E4M3},
	F8E5M2: {"float8e5m2", 0}, F8E5M2FNUZ: {"float8e5m2fnuz", graph.F8E5M2}, Uint4: {"uint4", graph.U4}, Int4: {"int4", graph.I4},
	F4E2M1: {"float4e2m1", 0}, F8E8M0: {"float8e8m0", 0}, Uint2: {"uint2", graph.U2}, Int2: {"int2", graph.I2},
}

// ElemTypes returns ONNX's element types, supported or not, in the order of their numbers.
func ElemTypes() []ElemType {
	all := make([]ElemType, len(elemTypes)-1)
	for i := range all {
		all[i] = ElemType(i + 1)
	}
	return all
}

// String returns ONNX's name of the type, such as "float16".
func (t ElemType) String() string {
	if t >= 0 && int(t) < len(elemTypes) {
		return elemTypes[t].name
	}
	return fmt.Sprintf("type %d", int32(t))
}

// DType returns the executable's element type, or graph.Invalid if this type
// is not supported.
func (t ElemType) DType() graph.DType {
	if t >= 0 && int(t) < len(elemTypes) {
		return elemTypes[t].dtype
	}
	return graph.Invalid
}

// Tensor is an ONNX TensorProto with its data decoded.
type Tensor struct {
	Name string
	Elem ElemType
	Dims []int64
	// Data is row-major and little-endian, in the form package graph uses:
	// one byte a bool and one byte for each int4, uint4, int2 and uint2.
	// It may share memory with the file it was read from.
	Data  []byte
	Other []byte // of element types that are not read, the data too
}

// ValueInfo is the name and type of a graph input, output or value.
type ValueInfo struct {
	Name     string
	Elem     ElemType // Undefined where the model does not say
	HasShape bool
	Dims     []Dim
	NotDense string // "sequence", "optional", "map", "sparse tensor": not a dense tensor
	Other    []byte // of what is not a dense tensor, the type too
	Meaning  []byte // other fields of its type, such as a denotation
}

// Dim is one dimension: a number, a symbol, or unknown (neither).
type Dim struct {
	Known  bool
	Value  int64  // if Known
	Symbol string // if not Known; may be empty
	// Denotation is what the dimension means, in ONNX's words, such as DATA_BATCH; mostly empty.
	Denotation string
}

// attributeTypes are ONNX's names of the attribute types.
var attributeTypes = []string{"undefined", "float", "int", "string", "tensor", "graph", "floats", "ints", "strings", "tensors", "graphs", "sparse"}

// String returns ONNX's name of the attribute type, such as "ints".
func (t AttributeType) String() string {
	if t >= 0 && int(t) < len(attributeTypes) {
		return attributeTypes[t]
	}
	return fmt.Sprintf("type %d", int32(t))
}

// ElemTypeOf returns ONNX's element type for one of the executable.
func ElemTypeOf(t graph.DType) ElemType {
	for e, x := range elemTypes {
		if x.dtype == t {
			return ElemType(e)
		}
	}
	return Undefined
}
