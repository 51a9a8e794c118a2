package merge

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestConstants keeps constants of equal bytes apart where their types differ, and once
// where they do not.
func TestConstants(t *testing.T) {
	m := New("family", "test", 0, "load")
	for i, shape := range [][]int64{{2, 3}, {3, 2}, {2, 3}} {
		typ := graph.TensorType{DType: graph.F32, Shape: shape}
		b := graph.NewBuilder("member")
		c, x := b.AddConst("c", typ, make([]byte, 24)), b.AddLocal("x", typ)
		g := b.BeginGraph("main")
		y, err := b.Node(&graph.Binary{Fn: graph.Add}, "sum", x, c)
		require.NoError(t, err)
		b.AddProgram(5, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y[0]))
		e, err := b.Finish()
		require.NoError(t, err)
		require.NoError(t, m.Add(e, 0, []Program{{5, graph.Program{Index: 5 + i, Name: "main"}}}, func(h string) string { return fmt.Sprint(h, i) }))
	}
	e := m.Executable()
	require.NoError(t, graph.Verify(e))
	var shapes [][]int64
	for _, c := range e.Tensors {
		if c.Const {
			shapes = append(shapes, c.Type.Shape)
		}
	}
	require.Equal(t, [][]int64{{2, 3}, {3, 2}}, shapes)
}
