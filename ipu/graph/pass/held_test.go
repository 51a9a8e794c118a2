package pass

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/graph"
)

// TestHeld optimises gelu written as primitives: where a factor inside is held it stays what it was, and nothing else is left of that.
func TestHeld(t *testing.T) {
	build := func() (e *graph.Executable, half graph.TensorID) {
		b := graph.NewBuilder("gelu")
		x := b.AddLocal("x", square)
		number := func(v float32) graph.TensorID {
			return b.AddConst("", graph.TensorType{DType: graph.F32}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
		g := b.BeginGraph("main")
		node := func(op graph.Op, in ...graph.TensorID) graph.TensorID {
			out, err := b.Node(op, op.Kind(), in...)
			require.NoError(t, err)
			return out[0]
		}
		half = node(&graph.Binary{Fn: graph.Mul}, x, number(0.5))
		side := node(&graph.Unary{Fn: graph.Erf}, node(&graph.Binary{Fn: graph.Div}, x, number(math.Sqrt2)))
		y := node(&graph.Binary{Fn: graph.Mul}, half, node(&graph.Binary{Fn: graph.Add}, side, number(1)))
		b.AddProgram(0, "main", b.CopyIn("x", x), graph.Step{Kind: graph.Repeat, Count: 2, Body: []graph.Step{b.Call(g)}}, b.CopyOut("y", y))
		b.AddProgram(1, "again", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
		e, err := b.Finish()
		require.NoError(t, err)
		return e, half
	}
	kinds := func(e *graph.Executable) (ops []string) {
		require.Len(t, e.Streams, 2)
		for i, want := range []int{4, 3} { // steps, those in loops included
			n := 0
			graph.Walk(e.Programs[i].Steps, func(*graph.Step) { n++ })
			require.Equal(t, want, n)
		}
		for _, n := range e.Graphs[0].Nodes {
			require.Len(t, n.Outputs, 1)
			ops = append(ops, graph.OpString(n.Op))
		}
		return ops
	}
	free, _ := build()
	require.NoError(t, Optimize(free, OptimizeOptions{}))
	require.Equal(t, []string{"Unary{Fn:gelu}"}, kinds(free))

	held, half := build()
	constant := graph.TensorID(slices.IndexFunc(held.Tensors, func(t graph.Tensor) bool { return t.Const }))
	require.NoError(t, Optimize(held, OptimizeOptions{Held: []graph.TensorID{half, constant}}))
	require.NotContains(t, kinds(held), "Unary{Fn:gelu}")

	none, half := build()
	require.NoError(t, Optimize(none, OptimizeOptions{Held: []graph.TensorID{half}, Disabled: []string{heldUntil}}))
	require.Equal(t, kinds(held), kinds(none), "let go where the pass is left out too")
}
