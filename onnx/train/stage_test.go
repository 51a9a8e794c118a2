package train_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/pass"
	"github.com/popefgen/popefgen/onnx/train"
)

// TestStages: a compilation tells its stages in order, each with the executable as it is then, and what each pass did, which is what the executable says afterwards.
func TestStages(t *testing.T) {
	var stages []train.Stage
	var sizes []int
	var passes []graph.PassReport
	o := ofP(8)
	o.Stage = func(s train.Stage, e *graph.Executable) {
		stages = append(stages, s)
		sizes = append(sizes, len(e.Graphs))
		require.Equal(t, s == train.Optimised, len(passes) == len(pass.Passes))
		require.Equal(t, s == train.Optimised, len(e.Programs) > 0)
	}
	o.Pass = func(r graph.PassReport) { passes = append(passes, r) }
	r := compiled(t, mlp(), o)
	require.Equal(t, []train.Stage{train.Lowered, train.LossAppended, train.GradientsAppended, train.OptimizerAppended, train.Optimised}, stages)
	require.IsNonDecreasing(t, sizes)
	require.Equal(t, r.Executable.Passes, passes)
}
