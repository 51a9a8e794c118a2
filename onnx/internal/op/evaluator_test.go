package op

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// evaluator is an evaluator for tests.
type evaluator struct {
	onnx.Evaluator
	fold func(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error)
}

func (e evaluator) Fold(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error) {
	return e.fold(op, in, data)
}

// evaluating returns options with an evaluator that folds so.
func evaluating(fold func(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error)) onnx.Options {
	return onnx.Options{NewEvaluator: func(ctx context.Context, memory int64) onnx.Evaluator {
		return evaluator{cpu.NewFolder(ctx, memory), fold}
	}}
}

func declines(op graph.Op, _ []graph.TensorType, _ [][]byte) ([]graph.TensorType, [][]byte, error) {
	return nil, nil, fmt.Errorf("%s on a device of one's own: %w", op.Kind(), graph.ErrNotFolded)
}

// TestEvaluatorDeclines leaves all to the executable, which computes the same; where a
// shape depends on it, the error says what was in the way.
func TestEvaluatorDeclines(t *testing.T) {
	m := model(13, &onnx.Graph{
		Inputs:       []onnx.ValueInfo{info("x", onnx.Float, 2)},
		Initializers: []*onnx.Tensor{named(list1(2, 3), "a"), named(list1(5, 7), "b")},
		Nodes:        []*onnx.Node{node("Mul", names("a", "b"), names("c")), node("Cast", names("c"), names("d"), aInt("to", int64(onnx.Float))), node("Add", names("x", "d"), names("y"))},
		Outputs:      outputs("y"),
	})
	feeds := map[string][]byte{"x": f32s(dims(2), 0.5, -1).Data}
	for _, o := range []onnx.Options{{}, evaluating(declines)} {
		low, err := Lower(m, o)
		require.NoError(t, err)
		want := []string{"Binary"}
		if o.NewEvaluator != nil {
			want = []string{"Binary", "Cast", "Binary"}
		}
		require.Equal(t, want, kinds(verified(t, low)))
		out, err := interpret(low, feeds)
		require.NoError(t, err)
		require.Equal(t, []float64{10.5, 20}, numbers(graph.F32, out[0]))
	}

	m.Graph.Nodes = []*onnx.Node{node("Mul", names("a", "b"), names("c")), node("Expand", names("x", "c"), names("y"))}
	_, err := Lower(m, evaluating(declines))
	require.ErrorIs(t, err, graph.ErrNotFolded)
	require.ErrorContains(t, err, `node 1 (Expand): operand 1 (shape), i64[2], must be known now, but computing it is too much work for compile time: Binary on a device of one's own: not computed at compile time`)
}

// TestEvaluatorIsChecked: what somebody else's code computes need not be what was asked for.
func TestEvaluatorIsChecked(t *testing.T) {
	m := model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{named(list1(2, 3), "a")},
		Nodes:        []*onnx.Node{node("Neg", names("a"), names("y"))},
		Outputs:      outputs("y"),
	})
	for want, results := range map[string][][]byte{
		"the evaluator gave 0 results of Unary, want 1":                       nil,
		"the evaluator gave 2 results of Unary, want 1":                       {make([]byte, 16), nil},
		"the evaluator gave 15 bytes for result 0 of Unary, want 16 (i64[2])": {make([]byte, 15)},
	} {
		_, err := Lower(m, evaluating(func(graph.Op, []graph.TensorType, [][]byte) ([]graph.TensorType, [][]byte, error) {
			return nil, results, nil
		}))
		require.ErrorContains(t, err, "node 0 (Neg): computing it from constants: "+want)
	}
	broken := errors.New("the device is gone")
	_, err := Lower(m, evaluating(func(graph.Op, []graph.TensorType, [][]byte) ([]graph.TensorType, [][]byte, error) {
		return nil, nil, broken
	}))
	require.ErrorIs(t, err, broken)
}

// TestNoEvaluator says what is missing and what to do.
func TestNoEvaluator(t *testing.T) {
	m := model(13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2)}, Nodes: []*onnx.Node{node("Neg", names("x"), names("y"))}, Outputs: outputs("y")})
	_, err := lower.Lower(t.Context(), m, onnx.Options{}, table)
	require.ErrorContains(t, err, "set onnx.Options.NewEvaluator, or call package onnx/compile")
}

// TestEvaluatorGetsOptions: memory and context are the lowering's.
func TestEvaluatorGetsOptions(t *testing.T) {
	room := budget.New(1 << 20)
	ctx := budget.Into(t.Context(), room)
	m := model(13, &onnx.Graph{Inputs: []onnx.ValueInfo{info("x", onnx.Float, 2)}, Nodes: []*onnx.Node{node("Neg", names("x"), names("y"))}, Outputs: outputs("y")})
	asked := 0
	_, err := lower.Lower(ctx, m, onnx.Options{Memory: 77, NewEvaluator: func(ctx context.Context, memory int64) onnx.Evaluator {
		asked++
		require.Same(t, room, budget.From(ctx))
		require.EqualValues(t, 77, memory)
		return cpu.NewFolder(ctx, memory)
	}}, table)
	require.NoError(t, err)
	require.Equal(t, 1, asked)
}
