package op

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

func TestFunctions(t *testing.T) {
	scale := &onnx.Function{ // y = alpha·leaky(x) + bias, bias optional in name only
		Name: "Scale", Domain: "local", Inputs: names("x", "bias"), Outputs: names("y", "unused"),
		Attributes: names("slope"), Defaults: []*onnx.Attribute{aFloat("alpha", 2)}, Opsets: []onnx.Opset{{Domain: "", Version: 13}},
		Nodes: []*onnx.Node{
			node("Constant", nil, names("alpha"), &onnx.Attribute{Name: "value_float", Type: onnx.AttrFloat, Ref: "alpha"}),
			node("LeakyRelu", names("x"), names("leaky"), &onnx.Attribute{Name: "alpha", Type: onnx.AttrFloat, Ref: "slope"}),
			node("Mul", names("leaky", "alpha"), names("m")),
			node("Clip", names("m", "bias"), names("y")),
			node("Missing", names("x"), names("unused")),
		},
	}
	twice := &onnx.Function{
		Name: "Twice", Domain: "local", Inputs: names("x"), Outputs: names("y"), Opsets: []onnx.Opset{{Domain: "local", Version: 1}},
		Nodes: []*onnx.Node{
			{OpType: "Scale", Domain: "local", Inputs: names("x"), Outputs: names("m"), Attributes: []*onnx.Attribute{aFloat("slope", 0.5)}},
			{OpType: "Scale", Domain: "local", Inputs: names("m", "zero"), Outputs: names("y"), Attributes: []*onnx.Attribute{aFloat("slope", 1), aFloat("alpha", 3)}},
			node("Constant", nil, names("zero"), aFloat("value_float", -4)),
		},
	}
	m := model(13, &onnx.Graph{
		Inputs:  []onnx.ValueInfo{info("x", onnx.Float, 3)},
		Nodes:   []*onnx.Node{{OpType: "Twice", Domain: "local", Inputs: names("x"), Outputs: names("y"), Name: "call"}},
		Outputs: outputs("y"),
	})
	m.Opsets = append(m.Opsets, onnx.Opset{Domain: "local", Version: 1})
	m.Functions = []*onnx.Function{scale, twice}
	low := mustLower(t, m, onnx.Options{})
	out, err := interpret(low, map[string][]byte{"x": list32(-1, 1, -9).Data})
	require.NoError(t, err)
	require.Equal(t, []float64{-3, 6, -4}, numbers(graph.F32, out[0]))

	// Errors say where in which function.
	scale.Nodes[2].Inputs[1] = "x2"
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, `node "call" (local.Twice, number 0): in function Twice: node 0 (local.Scale): function Scale: node 2 (Mul) uses "x2"`)
	scale.Nodes[2].Inputs[1] = "alpha"
	twice.Nodes[0].Attributes = nil
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, `function Scale needs the attribute "slope"`)
	twice.Nodes[0].Attributes = []*onnx.Attribute{aFloat("slop", 1)}
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, `function Scale has no attribute "slop"`)
	twice.Nodes[0].OpType = "Twice"
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, "function Twice calls itself")
}

// TestFunctionExplosion checks functions that call each other twice on every
// level, which would make 2^40 nodes.
func TestFunctionExplosion(t *testing.T) {
	m := model(13, &onnx.Graph{
		Inputs: []onnx.ValueInfo{info("x", onnx.Float, 1)}, Outputs: outputs("y"),
		Nodes: []*onnx.Node{{OpType: "f0", Domain: "local", Inputs: names("x"), Outputs: names("y")}},
	})
	m.Opsets = append(m.Opsets, onnx.Opset{Domain: "local", Version: 1})
	for i := range 40 {
		next := fmt.Sprint("f", i+1)
		m.Functions = append(m.Functions, &onnx.Function{Name: fmt.Sprint("f", i), Domain: "local", Inputs: names("x"), Outputs: names("y"), Nodes: []*onnx.Node{
			{OpType: next, Domain: "local", Inputs: names("x"), Outputs: names("a")},
			{OpType: next, Domain: "local", Inputs: names("a"), Outputs: names("y")},
		}})
	}
	m.Functions = append(m.Functions, &onnx.Function{Name: "f40", Domain: "local", Inputs: names("x"), Outputs: names("y"), Nodes: []*onnx.Node{node("Neg", names("x"), names("y"))}})
	_, err := Lower(m, onnx.Options{})
	require.ErrorContains(t, err, "the model has more than 262144 nodes")
}

func TestIf(t *testing.T) {
	then := &onnx.Graph{
		Initializers: []*onnx.Tensor{named(list32(10, 20), "w")},
		Nodes:        []*onnx.Node{node("Add", names("outer", "w"), names("r"))},
		Outputs:      outputs("r"),
	}
	otherwise := &onnx.Graph{
		Initializers: []*onnx.Tensor{named(list32(1, 2), "w")},
		Nodes:        []*onnx.Node{node("Unknown", names("outer"), names("r"))}, // not taken: no obstacle
		Outputs:      outputs("r"),
	}
	m := model(13, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2), info("flag", onnx.Bool)},
		Initializers: []*onnx.Tensor{named(list32(5, 5), "w2")},
		Nodes: []*onnx.Node{
			node("If", names("cond"), names("a"), aGraph("then_branch", then), aGraph("else_branch", otherwise)),
			node("If", names("cond"), names("b"), aGraph("then_branch", then), aGraph("else_branch", otherwise)),
			node("Mul", names("a", "b"), names("y")),
			node("Neg", names("x"), names("outer")),
			node("Not", names("flag"), names("cond")),
		},
		Outputs: outputs("y"),
	})
	low := mustLower(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"flag": bools(dims(), 0)}})
	out, err := interpret(low, map[string][]byte{"x": list32(1, 2).Data})
	require.NoError(t, err)
	require.Equal(t, []float64{81, 324}, numbers(graph.F32, out[0]))
	require.Equal(t, []string{"w", "w_2"}, []string{low.Weights[0].Name, low.Weights[1].Name})

	low = mustLower(t, m, onnx.Options{}) // only one branch is possible: the condition is checked
	require.Len(t, low.Warnings, 2)
	require.Contains(t, low.Warnings[0], `node 0 (If): its condition must be true, since else_branch can't be compiled for the sizes given (operator Unknown of operator set 13 is not supported: node 0 (If): else_branch: node 0 (Unknown))`)
	_, err = Lower(m, onnx.Options{Values: map[string]*onnx.Tensor{"flag": bools(dims(), 1)}})
	require.ErrorContains(t, err, `operator Unknown of operator set 13: node 0 (If): else_branch: node 0 (Unknown)`)

	// A subgraph that uses what is not there, and one nested without end.
	then.Nodes[0].Inputs[0] = "nowhere"
	_, err = Lower(m, onnx.Options{Values: map[string]*onnx.Tensor{"flag": bools(dims(), 0)}})
	require.ErrorContains(t, err, `uses "nowhere", which nothing defines`)
	then.Nodes = []*onnx.Node{node("If", names("cond"), names("r"), aGraph("then_branch", then), aGraph("else_branch", then))}
	_, err = Lower(m, onnx.Options{Values: map[string]*onnx.Tensor{"flag": bools(dims(), 0)}})
	require.ErrorIs(t, err, onnx.ErrDepth)
}

// FuzzLower lowers whatever model a file holds: it may be refused, but never
// with a panic, and what is accepted makes a valid executable.
func FuzzLower(f *testing.F) {
	f.Add(onnxtest.Example())
	f.Add(fuzzModel(13, "Reshape", "Softmax", "Concat", "Slice"))
	f.Add(fuzzModel(6, "Conv", "MaxPool", "LSTM", "Pad"))
	for _, b := range operatorSeeds(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := onnx.Decode(b, "")
		if err != nil {
			return
		}
		low, err := Lower(m, onnx.Options{})
		if err != nil {
			_ = err.Error()
			return
		}
		verified(t, low)
	})
}

// operatorSeeds returns a small model for each form of each operator.
func operatorSeeds(t testing.TB) (files [][]byte) {
	for _, c := range allTypeCases() {
		m, _ := c.model(t, c.tensors(t, c.usual()))
		m.Graph.Nodes[0].Outputs = names("y0")
		m.Graph.Outputs = outputs("y0")
		b, err := onnx.Encode(m)
		require.NoError(t, err)
		files = append(files, b)
	}
	return files
}

// TestOperatorSeeds checks that what fuzzing starts from can be lowered.
func TestOperatorSeeds(t *testing.T) {
	for _, b := range operatorSeeds(t) {
		m, err := onnx.Decode(b, "")
		require.NoError(t, err)
		low, err := Lower(m, onnx.Options{})
		require.NoError(t, err, m.Graph.Nodes[0].OpType)
		verified(t, low)
	}
}

// fuzzModel is a model file with a node of each of the given operators on an
// input, a known list and a scalar.
func fuzzModel(opset int64, ops ...string) []byte {
	dim := func(n int64) pb { return pb{}.Int(1, n) }
	input := pb{}.Str(1, "x").Bytes(2, pb{}.Bytes(1, pb{}.Int(1, 1).Bytes(2, pb{}.Bytes(1, dim(1)).Bytes(1, dim(2)).Bytes(1, dim(2)))))
	list := pb{}.Packed(1, 1).Int(2, 7).Packed(7, 1).Str(8, "k")
	g := pb{}.Bytes(11, input).Bytes(5, list)
	for _, op := range ops {
		attr := pb{}.Str(1, "axis").Int(3, 0).Int(20, 2)
		kernel := pb{}.Str(1, "kernel_shape").Packed(8, 1).Int(20, 7)
		g = g.Bytes(1, pb{}.Str(1, "x").Str(1, "k").Str(2, op).Str(4, op).Bytes(5, attr).Bytes(5, kernel)).Bytes(12, pb{}.Str(1, op))
	}
	return pb{}.Int(1, 8).Bytes(8, pb{}.Int(2, opset)).Bytes(7, g)
}
