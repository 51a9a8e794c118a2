package graph_test

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/internal/graphtest"
	"pgregory.net/rapid"
)

// Whatever the attributes and operands are, Infer gives usable types or an
// error.
func TestInferNeverPanics(t *testing.T) {
	dims := rapid.OneOf(rapid.Int64Range(0, 4), rapid.Int64Range(-1, 1<<41), rapid.Int64())
	tensors := rapid.Custom(func(t *rapid.T) graph.TensorType {
		return graph.TensorType{
			rapid.OneOf(rapid.Just(graph.F32), rapid.Map(rapid.Uint8Range(0, 25), func(n uint8) graph.DType { return graph.DType(n) })).Draw(t, "dtype"),
			rapid.SliceOfN(dims, 0, 6).Draw(t, "shape"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		op := graph.NewOp(rapid.SampledFrom(graph.Kinds()).Draw(t, "kind"))
		graphtest.FillAttributes(t, op)
		in := rapid.SliceOfN(tensors, 0, 9).Draw(t, "operands")
		out, err := op.Infer(in)
		if err != nil {
			if len(err.Error()) == 0 || out != nil {
				t.Fatalf("error %q with results %v", err, out)
			}
			return
		}
		for _, o := range out {
			if err := o.Check(); err != nil {
				t.Fatalf("%s(%v): %v", graph.OpString(op), in, err)
			}
		}
	})
}
