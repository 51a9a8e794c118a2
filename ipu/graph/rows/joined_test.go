package rows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// joinedPair has two inputs in one stream, of which the body of a loop reads both.
func joinedPair(t *testing.T, also func(b *graph.Builder, x graph.TensorID)) *graph.Executable {
	t.Helper()
	b := graph.NewBuilder("pair")
	x := b.AddLocal("x", graph.TensorType{DType: graph.U64, Shape: []int64{2}})
	g := b.BeginGraph("main")
	p, err := b.Node(&graph.Field{Handle: "h2d_p", To: graph.F32, Shape: []int64{2}}, "p", x)
	require.NoError(t, err)
	q, err := b.Node(&graph.Field{Handle: "h2d_q", Offset: 8, To: graph.F32}, "q", x)
	require.NoError(t, err)
	y, err := b.Node(&graph.Binary{Fn: graph.Add}, "y", p[0], q[0])
	require.NoError(t, err)
	if also != nil {
		also(b, x)
	}
	b.AddProgram(5, "main", b.Repeat(3, b.CopyIn("in", x), b.Call(g), b.CopyOut("out", y[0])))
	e, err := b.Finish()
	require.NoError(t, err)
	return e
}

// TestUnjoined takes a joined stream apart, and leaves what something else reads whole.
func TestUnjoined(t *testing.T) {
	e := joinedPair(t, nil)
	before := dump.String(e)
	apart := unjoined(e)
	require.NoError(t, graph.Verify(apart))
	require.Equal(t, before, dump.String(e))
	body := apart.Programs[0].Steps[0].Body
	require.Len(t, body, 4)
	require.Equal(t, []string{"in", "out", "h2d_p", "h2d_q"}, []string{apart.Streams[0].Handle, apart.Streams[1].Handle, apart.Streams[body[0].Stream].Handle, apart.Streams[body[1].Stream].Handle})
	require.Len(t, apart.Graphs[0].Nodes, 1)
	require.NoError(t, Independent(e, 5, 2, map[string]int{"h2d_p": 0, "out": 0}), "q is the same for all rows")
	require.Same(t, apart, unjoined(apart))

	e = joinedPair(t, func(b *graph.Builder, x graph.TensorID) {
		_, err := b.Node(&graph.BitCast{To: graph.I64}, "z", x)
		require.NoError(t, err)
	})
	require.Same(t, e, unjoined(e))
}
