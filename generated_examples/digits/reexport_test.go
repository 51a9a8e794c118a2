package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/gen"
	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
)

// replaceWeights replaces every weight of the model by what change makes of
// it: another initializer, whose value node brings back to float.
func replaceWeights(m *onnx.Model, change func(w *onnx.Tensor) (*onnx.Tensor, []*onnx.Tensor, *onnx.Node)) {
	var nodes []*onnx.Node
	var all []*onnx.Tensor
	for _, w := range m.Graph.Initializers {
		name := w.Name
		t, more, node := change(w)
		t.Name = name + "_stored"
		node.Inputs, node.Outputs = append([]string{t.Name}, node.Inputs...), []string{name}
		all, nodes = append(append(all, t), more...), append(nodes, node)
	}
	m.Graph.Initializers, m.Graph.Nodes = all, append(nodes, m.Graph.Nodes...)
}

func cast(to onnx.ElemType) *onnx.Node {
	return &onnx.Node{OpType: "Cast", Attributes: []*onnx.Attribute{{Name: "to", Type: onnx.AttrInt, Int: int64(to)}}}
}

func floats(w *onnx.Tensor) []float32 {
	out := make([]float32, len(w.Data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(w.Data[4*i:]))
	}
	return out
}

// renameValues gives another name to everything in the graph but its inputs
// and outputs.
func renameValues(m *onnx.Model, rename func(string) string) {
	keep := map[string]bool{"": true}
	for _, v := range slices.Concat(m.Graph.Inputs, m.Graph.Outputs) {
		keep[v.Name] = true
	}
	for _, w := range m.Graph.Initializers {
		w.Name = rename(w.Name)
	}
	for _, n := range m.Graph.Nodes {
		n.Name = rename(n.Name)
		for _, list := range [][]string{n.Inputs, n.Outputs} {
			for i, name := range list {
				if !keep[name] {
					list[i] = rename(name)
				}
			}
		}
	}
	m.Graph.Values = nil
}

// onnxReexports are what becomes of digits.onnx between two exports and
// compilations of it.
var onnxReexports = []struct {
	name    string
	edit    func(m *onnx.Model, o *compile.Options)
	verdict contract.Verdict
	opens   bool
}{
	{"nothing", func(*onnx.Model, *compile.Options) {}, contract.Identical, true},
	{"weights as constants", func(_ *onnx.Model, o *compile.Options) { o.FoldWeights = true }, contract.Identical, true},
	{"no passes", func(_ *onnx.Model, o *compile.Options) {
		for _, p := range pass.Passes {
			o.DisablePasses = append(o.DisablePasses, p.Name)
		}
	}, contract.Identical, true},
	{"names of another version of PyTorch", func(m *onnx.Model, _ *compile.Options) {
		n := 0
		names := map[string]string{}
		renameValues(m, func(old string) string {
			if names[old] == "" {
				n++
				names[old] = fmt.Sprintf("onnx::Node_%d", n)
			}
			return names[old]
		})
	}, contract.Identical, true},
	{"another exporter", func(m *onnx.Model, _ *compile.Options) {
		m.ProducerName, m.ProducerVersion, m.IRVersion, m.Opsets = "torch.onnx", "2.9", 10, []onnx.Opset{{Version: 17}}
	}, contract.Identical, true},
	{"order of weights", func(m *onnx.Model, _ *compile.Options) { slices.Reverse(m.Graph.Initializers) }, contract.Identical, true},
	{"weights in Constant nodes", func(m *onnx.Model, _ *compile.Options) {
		var nodes []*onnx.Node
		for _, w := range m.Graph.Initializers {
			nodes = append(nodes, &onnx.Node{OpType: "Constant", Outputs: []string{w.Name},
				Attributes: []*onnx.Attribute{{Name: "value", Type: onnx.AttrTensor, Tensor: w}}})
		}
		m.Graph.Initializers, m.Graph.Nodes = nil, append(nodes, m.Graph.Nodes...)
	}, contract.Identical, true},
	{"weights in half precision", func(m *onnx.Model, _ *compile.Options) {
		replaceWeights(m, func(w *onnx.Tensor) (*onnx.Tensor, []*onnx.Tensor, *onnx.Node) {
			half := &onnx.Tensor{Elem: onnx.Float16, Dims: w.Dims}
			for _, v := range floats(w) {
				half.Data = binary.LittleEndian.AppendUint16(half.Data, uint16(num.Float16From(v)))
			}
			return half, nil, cast(onnx.Float)
		})
	}, contract.Identical, true},
	{"quantised weights", func(m *onnx.Model, _ *compile.Options) {
		replaceWeights(m, func(w *onnx.Tensor) (*onnx.Tensor, []*onnx.Tensor, *onnx.Node) {
			var largest float64
			for _, v := range floats(w) {
				largest = max(largest, math.Abs(float64(v)))
			}
			scale := float32(largest / 127)
			bytes := &onnx.Tensor{Elem: onnx.Int8, Dims: w.Dims}
			for _, v := range floats(w) {
				bytes.Data = append(bytes.Data, byte(int8(math.RoundToEven(float64(v/scale)))))
			}
			s := &onnx.Tensor{Name: w.Name + "_scale", Elem: onnx.Float, Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(scale))}
			return bytes, []*onnx.Tensor{s}, &onnx.Node{OpType: "DequantizeLinear", Inputs: []string{s.Name}}
		})
	}, contract.Identical, true},
	{"Identity behind everything", func(m *onnx.Model, _ *compile.Options) {
		var nodes []*onnx.Node
		for _, n := range m.Graph.Nodes {
			nodes = append(nodes, n)
			if out := n.Outputs[0]; out != "probabilities" {
				n.Outputs[0] = out + "/before"
				nodes = append(nodes, &onnx.Node{OpType: "Identity", Inputs: []string{out + "/before"}, Outputs: []string{out}})
			}
		}
		m.Graph.Nodes = nodes
	}, contract.Identical, true},
	{"logits as another output", func(m *onnx.Model, _ *compile.Options) {
		last := m.Graph.Nodes[len(m.Graph.Nodes)-1]
		m.Graph.Outputs = append([]onnx.ValueInfo{{Name: last.Inputs[0], Elem: onnx.Float}}, m.Graph.Outputs...)
	}, contract.Compatible, true},
	{"another name of the output", func(m *onnx.Model, _ *compile.Options) {
		last := m.Graph.Nodes[len(m.Graph.Nodes)-1]
		last.Outputs[0], m.Graph.Outputs[0].Name = "scores", "scores"
	}, contract.Breaking, false},
	{"another type of the input", func(m *onnx.Model, _ *compile.Options) {
		m.Graph.Inputs[0].Elem = onnx.Uint8
		c := cast(onnx.Float)
		c.Inputs, c.Outputs = []string{"image"}, []string{"image/float"}
		m.Graph.Nodes[0].Inputs[0] = "image/float"
		m.Graph.Nodes = append([]*onnx.Node{c}, m.Graph.Nodes...)
	}, contract.Breaking, false},
	{"another batch", func(_ *onnx.Model, o *compile.Options) { o.Batch = 2 }, contract.Breaking, false},
	{"device iterations", func(_ *onnx.Model, o *compile.Options) { o.Iterations = 4 }, contract.Breaking, false},
}

// TestReexports exports and compiles the model otherwise, and opens it with the
// package that was generated before: what the verdict of diff says must come
// true, and the answers must be those of the model.
func TestReexports(t *testing.T) {
	ctx := context.Background()
	plan := func(m *popef.Model) *gen.Plan {
		p, err := gen.Build(m, gen.Options{ModelBase: "digits.popef", Package: "classifier"})
		require.NoError(t, err)
		return p
	}
	load := func(path string) *popef.Model {
		m, err := popef.Load(path)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, m.Close()) })
		return m
	}
	old := plan(load("classifier/digits.popef"))
	require.Equal(t, classifier.ContractHash, old.ContractHash)
	in, want := classifier.NewInputs(), classifier.NewOutputs()
	for i := range in.Image.Flat() {
		in.Image.Flat()[i] = float32(i%9) / 8
	}
	r, err := classifier.Open(ctx)
	require.NoError(t, err)
	require.NoError(t, r.Run(ctx, in, want))
	require.NoError(t, r.Close())

	for _, c := range onnxReexports {
		t.Run(c.name, func(t *testing.T) {
			m, err := onnx.ReadFile("digits.onnx")
			require.NoError(t, err)
			o := compile.Options{Options: onnx.Options{Batch: 1}}
			c.edit(m, &o)
			compiled, err := compile.Compile(m, o)
			require.NoError(t, err)
			path := filepath.Join(t.TempDir(), "digits.popef")
			require.NoError(t, compiled.WriteFile(path, false))
			new := load(path)
			findings := contract.Judge(old.Published(), plan(new).Published())
			require.Equal(t, c.verdict, contract.Worst(findings), "%v", findings)
			require.Equal(t, c.opens, contract.Opens(findings))
			require.Equal(t, c.verdict == contract.Identical, plan(new).Pin == old.Pin)

			r, err := classifier.Open(ctx, rt.WithModelFile(path))
			if !c.opens {
				require.ErrorIs(t, err, rt.ErrContract)
				return
			}
			require.NoError(t, err)
			defer r.Close()
			out := classifier.NewOutputs()
			require.NoError(t, r.Run(ctx, in, out))
			require.InDeltaSlice(t, want.Probabilities.Flat(), out.Probabilities.Flat(), 0.02)
		})
	}
}
