package build

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// Model returns the model as it is now: PopART's getModelProto, as a value. Types of outputs that are not declared are found out by lowering the model, which also finds operands that do not
// fit together; outputs whose types depend on custom operators, or on values that only requests have, must be declared ([Builder.Declare]). The error has all mistakes, each an [*Error]. The Builder may be used further; what
// is added later is not in the model.
func (b *Builder) Model(ctx context.Context) (*onnx.Model, error) {
	if !b.usable() {
		return nil, ErrNoBuilder
	}
	if err := b.Err(); err != nil {
		return nil, err
	}
	p := here("Model")
	switch {
	case len(b.frames) > 1:
		return nil, p.error(errors.New("a subgraph is being made: return from its function first"))
	case len(b.frames[0].outputs) == 0:
		return nil, p.error(errors.New("the model has no outputs: add one with Output"))
	}
	m := b.assemble(b.frames[0].outputs)
	if err := b.infer(ctx, p, m); err != nil {
		return nil, err
	}
	return m, nil
}

// Bytes returns the model as the bytes of an ONNX file: PopART's getModelProto. Errors are those of [Builder.Model]; a model that is too large for one file is one too.
func (b *Builder) Bytes(ctx context.Context) ([]byte, error) {
	m, err := b.Model(ctx)
	if err != nil {
		return nil, err
	}
	return onnx.Encode(m)
}

// irVersions are the versions of ONNX's file format, by the first operator set that came with each.
var irVersions = []struct{ opset, ir int64 }{{25, 13}, {24, 12}, {23, 11}, {21, 10}, {19, 9}, {15, 8}, {12, 7}, {11, 6}, {10, 5}}

// irVersion returns the file format of an operator set. Before version 4 every initializer had to be an input.
func irVersion(opset int64) int64 {
	for _, v := range irVersions {
		if opset >= v.opset {
			return v.ir
		}
	}
	return 4
}

// assemble returns the model with these outputs.
func (b *Builder) assemble(outputs []*Tensor) *onnx.Model {
	m := &onnx.Model{IRVersion: irVersion(b.opset), ProducerName: "popefgen build", Opsets: []onnx.Opset{{Version: b.opset}}}
	for _, domain := range slices.Sorted(maps.Keys(b.opsets)) {
		m.Opsets = append(m.Opsets, onnx.Opset{Domain: domain, Version: b.opsets[domain]})
	}
	main := *b.frames[0]
	main.name, main.outputs = b.name, outputs
	m.Graph = main.assemble()
	return m
}

// assemble returns the graph that is made so far.
func (f *frame) assemble() *onnx.Graph {
	g := &onnx.Graph{Name: f.name}
	for _, t := range f.inputs {
		g.Inputs = append(g.Inputs, t.named())
	}
	for _, t := range f.outputs {
		g.Outputs = append(g.Outputs, t.named())
	}
	for _, t := range f.initializers {
		value := *t.value
		value.Name = t.name
		g.Initializers = append(g.Initializers, &value)
	}
	for _, n := range f.nodes {
		node := &onnx.Node{Name: n.name, Domain: n.domain, OpType: n.operator}
		for _, t := range n.in {
			node.Inputs = append(node.Inputs, operandName(t))
		}
		node.Inputs = trimmed(node.Inputs)
		for i, t := range n.results {
			name := ""
			if t.used || i < n.required {
				name = t.name
			}
			node.Outputs = append(node.Outputs, name)
			if t.info != nil && !t.output && !slices.Contains(f.outputs, t) {
				g.Values = append(g.Values, t.named())
			}
		}
		node.Outputs = trimmed(node.Outputs)
		for i := range n.attributes {
			a := n.attributes[i].Attribute
			if sub := n.attributes[i].graph; sub != nil {
				a.Graph = sub.assemble()
			}
			node.Attributes = append(node.Attributes, &a)
		}
		g.Nodes = append(g.Nodes, node)
	}
	return g
}

// named returns the value's type with its name, or its name alone.
func (t *Tensor) named() onnx.ValueInfo {
	v := onnx.ValueInfo{}
	switch {
	case t.info != nil:
		v = *t.info
	case t.value != nil:
		v = onnx.Declare("", t.value.Elem, t.value.Dims)
	}
	v.Name = t.name
	return v
}

func operandName(t *Tensor) string {
	if t == nil {
		return ""
	}
	return t.name
}

// trimmed leaves out names at the end that are empty.
func trimmed(names []string) []string {
	for len(names) > 0 && names[len(names)-1] == "" {
		names = names[:len(names)-1]
	}
	return names
}
