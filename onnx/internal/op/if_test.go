package op

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// halfPossible is an If on x > 0 of which one branch fits x and the other one
// wants more columns.
func halfPossible(then bool) *onnx.Model {
	fits := &onnx.Graph{Nodes: []*onnx.Node{node("Neg", names("x"), names("r"))}, Outputs: outputs("r")}
	not := &onnx.Graph{
		Initializers: []*onnx.Tensor{named(list32(1, 2, 3), "w")},
		Nodes:        []*onnx.Node{node("Add", names("x", "w"), names("r"))}, Outputs: outputs("r"),
	}
	if !then {
		fits, not = not, fits
	}
	return model(13, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2)},
		Initializers: []*onnx.Tensor{named(list32(0), "zero")},
		Nodes: []*onnx.Node{
			node("ReduceSum", names("x"), names("sum"), aInt("keepdims", 0)),
			node("Greater", names("sum", "zero"), names("cond")),
			node("If", names("cond"), names("y"), aGraph("then_branch", fits), aGraph("else_branch", not)),
		},
		Outputs: outputs("y"),
	})
}

func TestIfWithOnePossibleBranch(t *testing.T) {
	for _, then := range []bool{true, false} {
		m := halfPossible(then)
		low := mustLower(t, m, onnx.Options{})
		verified(t, low)
		require.Len(t, low.Executable.Graphs, 1, "the branch takes the place of the If")
		require.Len(t, low.Warnings, 1)
		good, bad := list32(1, 2).Data, list32(-1, -2).Data
		want := []float64{-1, -2}
		kept, other := "then_branch", "else_branch"
		if !then {
			good, bad, want = bad, good, []float64{1, 2}
			kept, other = other, kept
		}
		outs, err := interpret(low, map[string][]byte{"x": good})
		require.NoError(t, err)
		require.Equal(t, want, numbers(graph.F32, outs[0]))

		_, err = interpret(low, map[string][]byte{"x": bad})
		var assertion *ipu.AssertionError
		require.ErrorAs(t, err, &assertion)
		for _, part := range []string{"node 2 (If)", other + " can't be compiled", `axis 1 from the end is 2 and 3`,
			`depends on input "x"`, "feed what asks for " + kept, "--bind x=VALUE"} {
			require.Contains(t, assertion.Message, part)
		}
		require.Equal(t, 1, strings.Count(assertion.Message, "node 2 (If)"), "the node is named once")
	}
}

// A branch that is not possible is left alone where the condition is known, and
// both are reported where neither is possible.
func TestIfWithoutPossibleBranch(t *testing.T) {
	m := halfPossible(true)
	known := mustLower(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"x": list32(1, 2)}})
	require.Empty(t, known.Warnings)
	require.Empty(t, known.Executable.Graphs[0].Nodes, "no check of what is known")
	_, err := Lower(m, onnx.Options{Values: map[string]*onnx.Tensor{"x": list32(-1, -2)}})
	require.ErrorContains(t, err, "do not broadcast")

	fits := m.Graph.Nodes[2].Attributes[0].Graph
	fits.Nodes[0] = node("Unknown", names("x"), names("r"))
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, "else_branch: node 0 (Add)")
	require.ErrorContains(t, err, "operator Unknown")

	// What only lacks a value is asked for it, whatever the other branch is.
	m = halfPossible(true)
	m.Graph.Inputs = append(m.Graph.Inputs, info("axis", onnx.Int64, 1))
	m.Graph.Nodes[2].Attributes[0].Graph.Nodes[0] = node("CumSum", names("x", "axis"), names("r"))
	_, err = Lower(m, onnx.Options{})
	var need *onnx.NeedValueError
	require.ErrorAs(t, err, &need)
	require.Equal(t, []string{"axis"}, need.Inputs())
	low := mustLower(t, m, onnx.Options{Values: map[string]*onnx.Tensor{"axis": i64s(dims(1), 0)}})
	require.Len(t, low.Warnings, 1)
}

// The results of the branch that is left are as known as they are there, and
// the check is made all the same. It is made where the If stands: inside a
// branch only if that runs, in a loop each time.
func TestIfWithOnePossibleBranchInside(t *testing.T) {
	m := halfPossible(true)
	fits := m.Graph.Nodes[2].Attributes[0].Graph
	fits.Nodes = nil
	fits.Initializers = []*onnx.Tensor{named(list1(7), "r")}
	low := mustLower(t, m, onnx.Options{})
	require.True(t, low.Executable.Tensors[low.Outputs[0].Tensor].Const)
	_, err := interpret(low, map[string][]byte{"x": list32(-1, -2).Data})
	var assertion *ipu.AssertionError
	require.ErrorAs(t, err, &assertion)

	inner := halfPossible(true)
	m = model(13, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2), info("flag", onnx.Bool)},
		Initializers: inner.Graph.Initializers,
		Nodes: []*onnx.Node{node("If", names("flag"), names("y"),
			aGraph("then_branch", &onnx.Graph{Nodes: inner.Graph.Nodes, Outputs: outputs("y")}),
			aGraph("else_branch", &onnx.Graph{Outputs: outputs("x")}))},
		Outputs: outputs("y"),
	})
	low = mustLower(t, m, onnx.Options{})
	verified(t, low)
	outs, err := interpret(low, map[string][]byte{"x": list32(-1, -2).Data, "flag": {0}})
	require.NoError(t, err)
	require.Equal(t, []float64{-1, -2}, numbers(graph.F32, outs[0]))
	_, err = interpret(low, map[string][]byte{"x": list32(-1, -2).Data, "flag": {1}})
	require.ErrorAs(t, err, &assertion)
	outs, err = interpret(low, map[string][]byte{"x": list32(1, 2).Data, "flag": {1}})
	require.NoError(t, err)
	require.Equal(t, []float64{-1, -2}, numbers(graph.F32, outs[0]))
}

// Branches inside branches are lowered a bounded number of times, whether one
// of each is possible or, at the bottom, none.
func TestNestedIfsAreTriedWithinBounds(t *testing.T) {
	impossible := &onnx.Graph{Initializers: []*onnx.Tensor{named(list32(1, 2, 3), "w")},
		Nodes: []*onnx.Node{node("Add", names("x", "w"), names("r"))}, Outputs: outputs("r")}
	g := &onnx.Graph{Nodes: []*onnx.Node{node("Neg", names("x"), names("r"))}, Outputs: outputs("r")}
	bottom := g
	for range onnx.MaxDepth - 1 {
		g = &onnx.Graph{Nodes: []*onnx.Node{node("If", names("flag"), names("r"), aGraph("then_branch", g), aGraph("else_branch", impossible))}, Outputs: outputs("r")}
	}
	m := model(13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2), info("flag", onnx.Bool)}, Nodes: g.Nodes, Outputs: outputs("r")})
	low := mustLower(t, m, onnx.Options{})
	checks := 0
	for _, n := range low.Executable.Graphs[0].Nodes {
		if _, ok := n.Op.(*graph.Assert); ok {
			checks++
		}
	}
	require.Equal(t, onnx.MaxDepth-1, checks)
	outs, err := interpret(low, map[string][]byte{"x": list32(1, 2).Data, "flag": {1}})
	require.NoError(t, err)
	require.Equal(t, []float64{-1, -2}, numbers(graph.F32, outs[0]))

	bottom.Nodes = impossible.Nodes
	bottom.Initializers = impossible.Initializers
	_, err = Lower(m, onnx.Options{})
	require.ErrorContains(t, err, "do not broadcast")
}
