// Package onnxtest builds ONNX models for tests: tensors, attributes, nodes and graphs, and the
// bytes of files that no writer of models would write.
package onnxtest

import (
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// Tensor returns a tensor whose values are converted to its element type.
func Tensor(elem onnx.ElemType, shape []int64, values ...float64) *onnx.Tensor {
	t := &onnx.Tensor{Elem: elem, Dims: shape, Data: []byte{}}
	for _, v := range values {
		t.Data = append(t.Data, lower.EncodeFloat(elem.DType(), v)...)
	}
	return t
}

// F32s returns a tensor of float32.
func F32s(shape []int64, values ...float64) *onnx.Tensor { return Tensor(onnx.Float, shape, values...) }

// I64s returns a tensor of int64.
func I64s(shape []int64, values ...float64) *onnx.Tensor { return Tensor(onnx.Int64, shape, values...) }

// Bools returns a tensor of bools.
func Bools(shape []int64, values ...float64) *onnx.Tensor { return Tensor(onnx.Bool, shape, values...) }

// List returns an int64 tensor of rank 1.
func List(values ...float64) *onnx.Tensor { return I64s(Dims(int64(len(values))), values...) }

// Dims returns a shape.
func Dims(d ...int64) []int64 { return d }

// Named returns t with a name.
func Named(t *onnx.Tensor, name string) *onnx.Tensor {
	c := *t
	c.Name = name
	return &c
}

// AInt returns an attribute that is an integer.
func AInt(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: v}
}

// AInts returns an attribute that is a list of integers.
func AInts(name string, v ...int64) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrInts, Ints: v}
}

// AFloat returns an attribute that is a float32.
func AFloat(name string, v float32) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrFloat, Float: v}
}

// AStr returns an attribute that is a string.
func AStr(name, v string) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrString, String: []byte(v)}
}

// ATensor returns an attribute that is a tensor.
func ATensor(name string, v *onnx.Tensor) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrTensor, Tensor: v}
}

// AGraph returns an attribute that is a graph.
func AGraph(name string, g *onnx.Graph) *onnx.Attribute {
	return &onnx.Attribute{Name: name, Type: onnx.AttrGraph, Graph: g}
}

// Node returns a node without a name.
func Node(op string, in, out []string, attrs ...*onnx.Attribute) *onnx.Node {
	return &onnx.Node{OpType: op, Inputs: in, Outputs: out, Attributes: attrs}
}

// Names returns the names of operands or results.
func Names(n ...string) []string { return n }

// Info is a value of fixed or symbolic shape: numbers and symbols.
func Info(name string, elem onnx.ElemType, shape ...any) onnx.ValueInfo {
	v := onnx.ValueInfo{Name: name, Elem: elem, HasShape: true}
	for _, d := range shape {
		switch d := d.(type) {
		case int:
			v.Dims = append(v.Dims, onnx.Dim{Known: true, Value: int64(d)})
		case string:
			v.Dims = append(v.Dims, onnx.Dim{Symbol: d})
		}
	}
	return v
}

// Outputs returns graph outputs of unknown type.
func Outputs(names ...string) []onnx.ValueInfo {
	var v []onnx.ValueInfo
	for _, n := range names {
		v = append(v, onnx.ValueInfo{Name: n})
	}
	return v
}

// Model returns a model of the given operator set.
func Model(opset int64, g *onnx.Graph) *onnx.Model {
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Domain: "", Version: opset}}, Graph: g}
}
