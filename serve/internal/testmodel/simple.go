// Package testmodel has the models that tests of servers, of their clients and of their limits ask: the model simple of
// Triton's example clients as ONNX, and models in Go whose requests take as long, or fail, as a test wants.
package testmodel

import (
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// Elements is how many integers a sample of the model simple has; Samples is the most samples of a request.
const (
	Elements = 16
	Samples  = 8
)

// SimpleONNX returns the model simple: INPUT0 and INPUT1, INT32 [-1,16], give OUTPUT0, their sum, and OUTPUT1, their
// difference.
func SimpleONNX() *onnx.Model {
	value := func(name string) onnx.ValueInfo {
		return onnx.ValueInfo{Name: name, Elem: onnx.Int32, HasShape: true, Dims: []onnx.Dim{{Symbol: "batch"}, {Known: true, Value: Elements}}}
	}
	inputs := []string{"INPUT0", "INPUT1"}
	return &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Version: 17}}, Graph: &onnx.Graph{
		Name:    "simple",
		Inputs:  []onnx.ValueInfo{value("INPUT0"), value("INPUT1")},
		Outputs: []onnx.ValueInfo{value("OUTPUT0"), value("OUTPUT1")},
		Nodes: []*onnx.Node{
			{OpType: "Add", Inputs: inputs, Outputs: []string{"OUTPUT0"}},
			{OpType: "Sub", Inputs: inputs, Outputs: []string{"OUTPUT1"}},
		},
	}}
}

// SimplePopEF returns the model simple compiled for every number of samples up to Samples.
func SimplePopEF() ([]byte, error) { return Compile(SimpleONNX(), Samples) }

// Compile returns a model whose open dimension is called batch, compiled for every size up to the largest.
func Compile(m *onnx.Model, largest int64) ([]byte, error) {
	var o compile.Options
	for n := int64(1); n <= largest; n++ {
		o.Members = append(o.Members, compile.Sizes{Dims: map[string]int64{"batch": n}})
	}
	r, err := compile.Compile(m, o)
	if err != nil {
		return nil, err
	}
	return r.Bytes()
}
