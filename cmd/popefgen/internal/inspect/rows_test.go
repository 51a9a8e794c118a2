package inspect

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// TestInspectRows: what mixes rows is named; of what has no batch nothing is said.
func TestInspectRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		shape []int64
		out   []int64 // of the output in the metadata
		axis  int64
		want  string
	}{
		{"each row", []int64{3, 4}, []int64{3, 4}, 1, "rows independent   yes, 3 in the first dimension\n"},
		{"all rows", []int64{3, 4}, []int64{3, 4}, 0, "rows independent   no: node \"best\\t\" (Softmax): it computes along the rows of operand 0, f32[3,4]: axis 0; output \"y\" follows from it\n"},
		{"one row", []int64{1, 4}, []int64{1, 4}, 0, ""},
		{"no common dimension", []int64{3, 4}, []int64{12}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := graph.NewBuilder("e")
			x := b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: c.shape})
			g := b.BeginGraph("main")
			y, err := b.Node(&graph.Softmax{Axis: c.axis}, "best\t", x)
			require.NoError(t, err)
			b.AddProgram(5, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y[0]))
			e, err := b.Finish()
			require.NoError(t, err)
			md := &popef.Metadata{ProgramFlow: popef.ProgramFlow{Main: []uint32{5}}, Anchors: []popef.Anchor{
				{Handle: "x", Info: popef.TensorInfo{DataType: popef.F32, Shape: c.shape}},
				{Handle: "y", Info: popef.TensorInfo{DataType: popef.F32, Shape: c.out}},
			}}
			var out bytes.Buffer
			if r := rowsOf(md, []contract.Role{contract.RunInput, contract.RunOutput}, e); r != nil {
				r.print(&out)
			}
			require.Equal(t, c.want, out.String())
		})
	}
}
