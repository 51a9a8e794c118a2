package train_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/popef/contract"
)

// withConstants returns a model whose initialisers are values of Constant nodes.
func withConstants(m *onnx.Model) *onnx.Model {
	var nodes []*onnx.Node
	for _, w := range m.Graph.Initializers {
		value := *w
		value.Name = ""
		nodes = append(nodes, onnxtest.Node("Constant", nil, onnxtest.Names(w.Name), onnxtest.ATensor("value", &value)))
	}
	m.Graph.Nodes, m.Graph.Initializers = append(nodes, m.Graph.Nodes...), nil
	return m
}

// TestConstants trains weights that stand in Constant nodes: as if they were initialisers, to the bit.
func TestConstants(t *testing.T) {
	seed := uint64(3)
	for _, init := range []*uint64{nil, &seed} {
		o := ofP(8)
		o.Init = init
		x, labels := samples(8)
		learn := func(m *onnx.Model) (*train.Result, map[string][]byte) {
			r := compiled(t, m, o)
			l := newLearner(t, r).start()
			l.give("x", x)
			l.give("labels", labels)
			for range 3 {
				l.run(5)
			}
			return r, l.weights()
		}
		initialisers, want := learn(mlp())
		constants, got := learn(withConstants(mlp()))
		require.Equal(t, []string{"w1", "b1", "w2", "b2"}, constants.Trained)
		require.Equal(t, constants.Trained, contract.ConstantsOf(loaded(t, constants)))
		require.Empty(t, contract.ConstantsOf(loaded(t, initialisers)))
		require.Empty(t, constants.Frozen, "a constant that is frozen is a constant")
		require.Equal(t, initialisers.Trained, constants.Trained)
		delete(want, "scale")
		require.Equal(t, want, got)
		require.Len(t, constants.Warnings, 1)
		require.Contains(t, constants.Warnings[0], `"w1", "b1", "w2", "b2": values of Constant nodes, which are trained; a package of inference has them as constants and can't be given others: compile the model that popefgen extract makes`)
	}
}

// TestWhichConstants trains those that layers read as their weights, and names the others.
func TestWhichConstants(t *testing.T) {
	constant := func(name string, shape ...int64) *onnx.Node {
		return onnxtest.Node("Constant", nil, onnxtest.Names(name), onnxtest.ATensor("value", ramp(0.5, 0.25, shape...)))
	}
	node := func(op, in, out string, attributes ...*onnx.Attribute) *onnx.Node {
		return onnxtest.Node(op, strings.Fields(in), strings.Fields(out), attributes...)
	}
	inner := &onnx.Graph{Name: "then", Nodes: []*onnx.Node{constant("slope", 4), node("PRelu", "scaled slope", "then_y")}, Outputs: onnxtest.Outputs("then_y")}
	other := &onnx.Graph{Name: "else", Nodes: []*onnx.Node{node("Tanh", "scaled", "else_y")}, Outputs: onnxtest.Outputs("else_y")}
	m := onnxtest.Model(13, &onnx.Graph{
		Name:   "constants",
		Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 5, 3), onnxtest.Info("positive", onnx.Bool)},
		Nodes: []*onnx.Node{
			constant("mean", 3), node("Sub", "x mean", "centred"),
			constant("place", 5, 3), node("Add", "centred place", "placed"),
			constant("w", 4, 3), node("Identity", "w", "same"), node("Transpose", "same", "turned", onnxtest.AInts("perm", 1, 0)),
			node("MatMul", "placed turned", "product"),
			constant("b", 1, 4), node("Add", "b product", "sum"),
			constant("gain", 4), node("Mul", "sum gain", "gained"),
			constant("half"), node("Mul", "gained half", "scaled"),
			node("If", "positive", "y", onnxtest.AGraph("then_branch", inner), onnxtest.AGraph("else_branch", other)),
			node("ReduceMean", "y", "loss", onnxtest.AInt("keepdims", 0)),
		},
		Outputs: onnxtest.Outputs("loss"),
	})
	o := train.Options{Loss: train.Loss{Kind: "output"}}
	r := compiled(t, m, o)
	require.ElementsMatch(t, []string{"w", "b", "gain", "slope"}, r.Trained)
	require.Len(t, r.Warnings, 2)
	require.Contains(t, r.Warnings[1], `"mean", "place": values of Constant nodes, which stay as they are since no layer reads them as its matrix, kernel or table; make an initializer of what is to be trained`)

	o.Freeze = []string{"gain", "place", "mean"}
	r = compiled(t, m, o)
	require.ElementsMatch(t, []string{"w", "b", "slope"}, r.Trained)
	require.Empty(t, r.Frozen)
	require.Len(t, r.Warnings, 1, "whoever freezes a constant knows it")

	o.Freeze = []string{"*"}
	_, err := train.Compile(context.Background(), m, o)
	require.ErrorIs(t, err, train.ErrOptions)
	require.ErrorContains(t, err, `all 4 weights are frozen, want one at least that is not: "b", "gain", "slope", "w"`)
}

// TestConstantsBesideInitialisers leaves what exporters write beside weights that are initialisers: ones and zeros of normalisations, and says so of numbers that
// may mean something.
func TestConstantsBesideInitialisers(t *testing.T) {
	for _, step := range []float64{0, 0.5} {
		m := mlp()
		bias := ramp(1, step, 4)
		m.Graph.Initializers = slices.DeleteFunc(m.Graph.Initializers, func(w *onnx.Tensor) bool { return w.Name == "b1" })
		m.Graph.Nodes = append([]*onnx.Node{onnxtest.Node("Constant", nil, onnxtest.Names("b1"), onnxtest.ATensor("value", bias))}, m.Graph.Nodes...)
		r := compiled(t, m, ofP(8))
		require.Equal(t, []string{"w1", "w2", "b2"}, r.Trained)
		if step == 0 {
			require.Empty(t, r.Warnings)
			continue
		}
		require.Len(t, r.Warnings, 1)
		require.Contains(t, r.Warnings[0], `"b1": values of Constant nodes, which stay as they are`)
	}
}

// TestConstantsLoweredTwice trains constants of a model that has another graph for its evaluation: each is one weight.
func TestConstantsLoweredTwice(t *testing.T) {
	m := mlp()
	for _, n := range m.Graph.Nodes {
		if n.OpType == "Tanh" {
			n.Outputs = onnxtest.Names("before")
		}
	}
	m.Graph.Nodes = slices.Insert(m.Graph.Nodes, 3, onnxtest.Node("Dropout", onnxtest.Names("before"), onnxtest.Names("h")))
	o := ofP(8)
	o.Training = &onnx.Training{Dropout: true}
	r := compiled(t, withConstants(m), o)
	require.Equal(t, []string{"w1", "b1", "w2", "b2"}, r.Trained)
	l := newLearner(t, r).start()
	x, labels := samples(8)
	l.give("x", x)
	l.give("labels", labels)
	l.run(9)
	before := l.loss()
	for range 20 {
		l.run(5)
	}
	l.run(9)
	require.Less(t, l.loss(), before, "what is evaluated is what is trained")
}

// TestExtractConstants puts learnt weights back into the Constant nodes, in whatever form their data were: all other bytes stay.
func TestExtractConstants(t *testing.T) {
	for _, c := range []struct {
		form string
		same bool // the file is the one that was compiled
	}{{"raw", true}, {"packed", true}, {"single", false}, {"external", false}} {
		t.Run(c.form, func(t *testing.T) {
			dir := t.TempDir()
			m := mlp()
			weights := m.Graph.Initializers
			m.Graph.Initializers = nil
			file, err := onnx.Encode(m)
			require.NoError(t, err)
			var nodes []byte
			for _, w := range weights {
				p := unknown(dataOf(t, dir, w, c.form).Str(8, "another name"))
				// The operator stands behind what it decides the meaning of.
				value := onnxtest.Message{}.Str(1, "value").Bytes(5, p).Int(20, int64(onnx.AttrTensor))
				node := onnxtest.Message{}.Bytes(5, unknown(value)).Str(2, w.Name).Str(4, "Constant")
				nodes = protowire.AppendBytes(protowire.AppendTag(nodes, 1, protowire.BytesType), unknown(node))
			}
			file = intoGraph(t, file, nodes)
			read, err := onnx.Decode(file, dir)
			require.NoError(t, err)
			o := ofP(8)
			o.File = file
			training := loaded(t, compiled(t, read, o))
			got, err := train.Extract(training, nil)
			require.NoError(t, err)
			require.Equal(t, c.same, bytes.Equal(file, got))
			require.Equal(t, 17, bytes.Count(got, []byte("as it was")))

			learnt := map[string][]byte{"w1": bytesOf([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}), "b2": bytesOf([]float32{8, 7})}
			got, err = train.Extract(training, learnt)
			require.NoError(t, err)
			again, err := onnx.Decode(got, "") // without other files
			require.NoError(t, err)
			require.Len(t, again.Graph.Nodes, len(read.Graph.Nodes))
			changed := 0
			for i, n := range again.Graph.Nodes {
				data, ok := learnt[n.Outputs[0]]
				if ok {
					require.Equal(t, data, n.Attributes[0].Tensor.Data)
					n.Attributes[0].Tensor.Data = read.Graph.Nodes[i].Attributes[0].Tensor.Data
					changed++
				}
				require.Equal(t, read.Graph.Nodes[i], n)
			}
			require.Equal(t, 2, changed)
		})
	}
}
