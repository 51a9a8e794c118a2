package popart

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/build"
)

// Model says where the ONNX model of a session comes from: [File], [Bytes], [ONNX] or [Built].
type Model struct {
	path    string
	bytes   []byte
	model   *onnx.Model
	builder *build.Builder
}

// File is the ONNX model at path; external data is looked for beside it.
func File(path string) Model { return Model{path: path} }

// Bytes is an ONNX model in memory, without external data. b is copied when a session is made.
func Bytes(b []byte) Model { return Model{bytes: b} }

// ONNX is a model that was read or built already. It must not change while a session is made.
func ONNX(m *onnx.Model) Model { return Model{model: m} }

// Built is the model that a Builder has when a session is made. The session's error has the Builder's mistakes.
func Built(b *build.Builder) Model { return Model{builder: b} }

// read returns the model and, if it has any, the bytes that it was read from.
func (m Model) read(ctx context.Context) (*onnx.Model, []byte, error) {
	switch {
	case m.path != "":
		read, err := onnx.ReadFileContext(ctx, m.path)
		if err != nil {
			return nil, nil, err
		}
		file, err := os.ReadFile(m.path)
		if err != nil {
			return nil, nil, err
		}
		return read, file, nil
	case m.bytes != nil:
		file := bytes.Clone(m.bytes)
		read, err := onnx.Decode(file, "")
		return read, file, err
	case m.model != nil && m.model.Graph != nil:
		return m.model, nil, nil
	case m.builder != nil:
		built, err := m.builder.Model(ctx)
		return built, nil, err
	}
	return nil, nil, errors.New("there is no model: want File, Bytes, ONNX with a graph, or Built")
}

// withOutputs returns the model with more tensors as outputs.
func withOutputs(m *onnx.Model, more []string) *onnx.Model {
	if len(more) == 0 {
		return m
	}
	graph := *m.Graph
	graph.Outputs = slices.Clone(graph.Outputs)
	for _, name := range more {
		graph.Outputs = append(graph.Outputs, onnx.ValueInfo{Name: name})
	}
	out := *m
	out.Graph = &graph
	return &out
}

// tensors returns the names of all that the nodes of a model's graph make, of its inputs and of its weights.
func tensors(m *onnx.Model) (made []string) {
	for _, n := range m.Graph.Nodes {
		for _, o := range n.Outputs {
			if o != "" {
				made = append(made, o)
			}
		}
	}
	for _, in := range m.Graph.Inputs {
		made = append(made, in.Name)
	}
	for _, w := range m.Graph.Initializers {
		if !slices.Contains(made, w.Name) {
			made = append(made, w.Name)
		}
	}
	return made
}

// depended returns the model with these tensors as its outputs and what they depend on alone, and the names of the inputs that it leaves out.
func depended(m *onnx.Model, outputs []string) (*onnx.Model, []string, error) {
	graph, err := m.Graph.Needed(outputs...)
	if err != nil {
		return nil, nil, err
	}
	var dropped []string
	for _, in := range m.Graph.Inputs {
		read := slices.ContainsFunc(graph.Inputs, func(v onnx.ValueInfo) bool { return v.Name == in.Name })
		if !read && !slices.ContainsFunc(m.Graph.Initializers, func(t *onnx.Tensor) bool { return t.Name == in.Name }) {
			dropped = append(dropped, in.Name)
		}
	}
	out := *m
	out.Graph = graph
	return withOutputs(&out, outputs), dropped, nil
}

// typeOf returns the type of a weight.
func typeOf(w *onnx.Tensor) graph.TensorType {
	return graph.TensorType{DType: w.Elem.DType(), Shape: w.Dims}
}
