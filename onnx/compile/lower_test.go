package compile

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
	"github.com/popefgen/popefgen/onnx"
)

// counting is the CPU's evaluator, and counts what it computes.
type counting struct {
	*cpu.Folder
	ops *[]string
}

func (c counting) Fold(op graph.Op, in []graph.TensorType, data [][]byte) ([]graph.TensorType, [][]byte, error) {
	*c.ops = append(*c.ops, op.Kind())
	return c.Folder.Fold(op, in, data)
}

// TestEvaluator: the lowering and the passes compute what is known by the evaluator of the
// options, and by the CPU's where there is none.
func TestEvaluator(t *testing.T) {
	var ops []string
	made := 0
	given := onnx.Options{Batch: 4, FoldWeights: true, Values: map[string]*onnx.Tensor{}, NewEvaluator: func(ctx context.Context, memory int64) onnx.Evaluator {
		made++
		return counting{cpu.NewFolder(ctx, memory), &ops}
	}}
	m := affine()
	m.Graph.Nodes = append(m.Graph.Nodes, &onnx.Node{OpType: "Neg", Inputs: []string{"w"}, Outputs: []string{"negated"}})
	m.Graph.Outputs = append(m.Graph.Outputs, onnx.ValueInfo{Name: "negated"})

	low, err := Lower(m, given)
	require.NoError(t, err)
	require.Equal(t, []string{"Unary"}, ops)
	plain, err := Lower(m, onnx.Options{Batch: 4, FoldWeights: true})
	require.NoError(t, err)
	require.Equal(t, dump.String(plain.Executable), dump.String(low.Executable))

	r, err := Compile(m, Options{Options: given})
	require.NoError(t, err)
	require.Equal(t, 3, made, "one for each lowering and one for the passes")
	same, err := Compile(m, Options{Options: onnx.Options{Batch: 4, FoldWeights: true}})
	require.NoError(t, err)
	require.Equal(t, dump.String(same.Executable), dump.String(r.Executable))
}
