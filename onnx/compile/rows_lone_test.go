package compile_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

// scaled is a model of N × M that multiplies by its size along an axis.
func scaled(axis float64) *onnx.Model {
	return onnxtest.Model(17, &onnx.Graph{
		Name: "scaled", Inputs: []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, "N", "M")}, Outputs: onnxtest.Outputs("y"),
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.List(axis), "axis")},
		Nodes: []*onnx.Node{
			onnxtest.Node("Shape", onnxtest.Names("x"), onnxtest.Names("shape")),
			onnxtest.Node("Gather", onnxtest.Names("shape", "axis"), onnxtest.Names("n")),
			onnxtest.Node("Cast", onnxtest.Names("n"), onnxtest.Names("f"), onnxtest.AInt("to", int64(onnx.Float))),
			onnxtest.Node("Mul", onnxtest.Names("x", "f"), onnxtest.Names("y")),
		},
	})
}

// TestRowsOfLoneMembers has members of which no two differ in one dimension alone: no row of
// theirs mixes with another, and only another size shows that a model counts its rows.
func TestRowsOfLoneMembers(t *testing.T) {
	for _, c := range []struct {
		name    string
		axis    float64 // that the model multiplies by: along it, requests have to be exact
		members []compile.Sizes
	}{
		{"a tuple each, counts N", 0, sizes("N=1 M=8", "N=2 M=16", "N=4 M=32")},
		{"a tuple each, counts M", 1, sizes("N=1 M=8", "N=2 M=16", "N=4 M=32")},
		{"one without a sibling, counts N", 0, sizes("N=1 M=8", "N=1 M=16", "N=3 M=32")},
		{"one without a sibling, counts M", 1, sizes("N=1 M=8", "N=3 M=8", "N=3 M=2", "N=5 M=32")},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := compile.Compile(scaled(c.axis), compile.Options{Members: c.members})
			require.NoError(t, err)
			for d, dim := range r.Family.Dims {
				require.Equal(t, float64(d) != c.axis, dim.Rows, "%s: %v", dim.Name, r.Mixed[dim.Name])
				require.Equal(t, dim.Rows, r.Mixed[dim.Name] == nil, dim.Name)
			}
		})
	}
}
