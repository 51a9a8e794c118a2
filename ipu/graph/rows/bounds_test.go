package rows

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestDeepGraphs: loops that run loops, each twice, take no longer than a bound.
func TestDeepGraphs(t *testing.T) {
	b := graph.NewBuilder("deep")
	b.BeginGraph("leaf")
	inner := graph.GraphID(-1)
	typ := f32(3, 4)
	for range graph.MaxNesting - 2 {
		g := b.BeginGraph("body")
		i, c := b.AddLocal("i", i64()), b.AddLocal("c", typ)
		x := c
		for range 4 {
			if inner >= 0 {
				x = node1(t, b, &graph.Loop{Body: inner, Count: 1}, graph.None, graph.None, x)
			} else {
				x = node1(t, b, &graph.Unary{Fn: graph.Neg}, x)
			}
		}
		b.SetParams(g, []graph.TensorID{i, c}, []graph.TensorID{x})
		inner = g
	}
	main := b.BeginGraph("main")
	x := b.AddLocal("x", typ)
	in := b.CopyIn("x", x)
	y := node1(t, b, &graph.Loop{Body: inner, Count: 1}, graph.None, graph.None, x)
	b.AddProgram(1, "main", in, b.Call(main), b.CopyOut("y", y))
	e, err := b.Finish()
	require.NoError(t, err)
	require.ErrorContains(t, Independent(e, 1, 3, map[string]int{"x": 0, "y": 0}), "too big to be looked at")
}
