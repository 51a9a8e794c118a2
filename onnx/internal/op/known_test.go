package op

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// TestSizedByData refuses results whose size depends on what requests bring, and
// does not ask for a value that nobody can give.
func TestSizedByData(t *testing.T) {
	type operand struct {
		name string
		typ  onnx.ElemType
		dims []int64
	}
	x := operand{"x", onnx.Float, dims(1, 6, 4)}
	for op, c := range map[string]struct {
		nodes []*onnx.Node
		want  string
	}{
		"NonZero":           {[]*onnx.Node{node("Relu", names("x"), names("r")), node("NonZero", names("r"), names("y"))}, "operand 0"},
		"Unique":            {[]*onnx.Node{node("Relu", names("x"), names("r")), node("Unique", names("r"), names("y"))}, "operand 0"},
		"Compress":          {[]*onnx.Node{node("Relu", names("x"), names("r")), node("Cast", names("r"), names("m"), &onnx.Attribute{Name: "to", Type: onnx.AttrInt, Int: int64(onnx.Bool)}), node("Compress", names("x", "m"), names("y"))}, "operand 1"},
		"NonMaxSuppression": {[]*onnx.Node{node("Relu", names("x"), names("b")), node("Transpose", names("b"), names("s"), &onnx.Attribute{Name: "perm", Type: onnx.AttrInts, Ints: []int64{0, 2, 1}}), node("NonMaxSuppression", names("b", "s"), names("y"))}, "operand 0"},
	} {
		m := &onnx.Model{IRVersion: 8, Opsets: []onnx.Opset{{Domain: "", Version: 17}}, Graph: &onnx.Graph{Name: "g", Nodes: c.nodes,
			Inputs:  []onnx.ValueInfo{{Name: x.name, Elem: x.typ, HasShape: true, Dims: []onnx.Dim{{Known: true, Value: 1}, {Known: true, Value: 6}, {Known: true, Value: 4}}}},
			Outputs: []onnx.ValueInfo{{Name: "y"}}}}
		_, err := Lower(m, onnx.Options{})
		var need *onnx.NeedValueError
		require.ErrorAs(t, err, &need, op)
		require.Equal(t, []string{"x"}, need.Inputs(), "who has the value of a data set may still bind it")
		require.Contains(t, err.Error(), "the size of its result depends on the elements of "+c.want, op)
		require.Contains(t, err.Error(), "end the model before this node", op)
		require.NotContains(t, err.Error(), "bind a value", op)
		require.Equal(t, 1, strings.Count(err.Error(), "hint:"), err)
	}
}
