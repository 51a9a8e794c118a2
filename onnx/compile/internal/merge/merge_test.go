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

// TestShared merges executables that change what they share: a weight is there once, and what copies it is too.
func TestShared(t *testing.T) {
	learner := func(n int64) *graph.Executable {
		vector := graph.TensorType{DType: graph.F32, Shape: []int64{n}}
		b := graph.NewBuilder("member")
		w, x := b.AddPersistent("w", graph.TensorType{DType: graph.F32}), b.AddLocal("x", vector)
		g := b.BeginGraph("main")
		y, err := b.Node(&graph.Binary{Fn: graph.Mul}, "product", x, w)
		require.NoError(t, err)
		require.NoError(t, b.NodeTo(&graph.Binary{Fn: graph.Add}, "update", []graph.TensorID{w}, w, w))
		b.AddProgram(0, "load")
		b.AddProgram(1, "set", b.CopyIn("w", w))
		b.AddProgram(5, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y[0]))
		b.AddProgram(7, "save", b.CopyOut("saved w", w))
		b.AddProgram(9, "evaluate", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y[0]))
		e, err := b.Finish()
		require.NoError(t, err)
		return e
	}
	m := New("family", "test", 0, "load")
	for i, n := range []int64{2, 3} {
		own := []Program{{5, graph.Program{Index: 5 + 10*i, Name: "main"}}, {9, graph.Program{Index: 9 + 10*i, Name: "evaluate"}}}
		require.NoError(t, m.Add(learner(n), 0, own, func(h string) string {
			if h == "x" || h == "y" {
				return fmt.Sprint(h, i)
			}
			return h
		}))
	}
	e := m.Executable()
	require.NoError(t, graph.Verify(e))
	var programs []int
	for _, p := range e.Programs {
		programs = append(programs, p.Index)
	}
	require.Equal(t, []int{0, 1, 5, 7, 9, 15, 19}, programs)
	require.Len(t, e.Streams, 6, "w, saved w, and x and y of both")
	persistent := 0
	for _, x := range e.Tensors {
		if x.Persistent {
			persistent++
		}
	}
	require.Equal(t, 1, persistent)

	m, e = New("family", "test", 0, "load"), learner(2)
	e.Programs[1].Steps = append(e.Programs[1].Steps, graph.Step{Kind: graph.Call})
	err := m.Add(e, 0, []Program{{5, graph.Program{Index: 5}}, {9, graph.Program{Index: 9}}}, func(h string) string { return h })
	require.ErrorContains(t, err, `program 1 "set" has a step Call, want copies alone`)
}
