package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/graph"
)

// TestReshapeOfReshapedState reads an old state through two reshapes, of
// which only the second is needed after the state was replaced.
func TestReshapeOfReshapedState(t *testing.T) {
	b := graph.NewBuilder("delay")
	s, x := b.AddPersistent("s", f32(2, 1)), b.AddLocal("x", f32(2, 1))
	g := b.BeginGraph("main")
	r := node(t, b, &graph.Reshape{Shape: []int64{2}}, "r", s)
	r = node(t, b, &graph.Reshape{Shape: []int64{1, 2}}, "rr", r)
	require.NoError(t, b.NodeTo(&graph.Unary{Fn: graph.Neg}, "neg", []graph.TensorID{s}, x))
	y := node(t, b, &graph.Unary{Fn: graph.Abs}, "abs", r)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	yv := make([]float32, 2)
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 2}), "y": out(t, yv)})
	run(t, e, 0)
	require.Equal(t, []float32{0, 0}, yv)
	run(t, e, 0)
	require.Equal(t, []float32{1, 2}, yv)
}

// TestLateInputInOutputMemory copies an input in from memory that an output
// will be delivered to, after that output was computed.
func TestLateInputInOutputMemory(t *testing.T) {
	b := graph.NewBuilder("late")
	x, late := b.AddLocal("x", f32(2)), b.AddLocal("late", f32(2))
	g1 := b.BeginGraph("first")
	y := node(t, b, &graph.Unary{Fn: graph.Neg}, "y", x)
	g2 := b.BeginGraph("second")
	z := node(t, b, &graph.Unary{Fn: graph.Abs}, "z", late)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g1), b.CopyIn("late", late), b.Call(g2), b.CopyOut("y", y), b.CopyOut("z", z))
	e := newLoaded(t, b)
	mem, zv := []float32{-5, -6}, make([]float32, 2)
	connect(t, e, map[string]ipu.Stream{"x": in(t, []float32{1, 2}), "late": in(t, mem), "y": out(t, mem), "z": out(t, zv)})
	run(t, e, 0)
	require.Equal(t, []float32{5, 6}, zv)
	require.Equal(t, []float32{-1, -2}, mem)
}

// TestSeveralTransfersOfOneStream keeps two transfers of each stream in use at
// the same time; the hosts check that they do not interleave.
func TestSeveralTransfersOfOneStream(t *testing.T) {
	b := graph.NewBuilder("pair")
	x1, x2 := b.AddLocal("x1", f32(2)), b.AddLocal("x2", f32(2))
	g := b.BeginGraph("main")
	sum := node(t, b, &graph.Binary{Fn: graph.Add}, "sum", x1, x2)
	diff := node(t, b, &graph.Binary{Fn: graph.Sub}, "diff", x1, x2)
	b.AddProgram(0, "main", b.CopyIn("x", x1), b.CopyIn("x", x2), b.Call(g), b.CopyOut("y", sum), b.CopyOut("y", diff))
	e := newLoaded(t, b)
	y1, y2 := make([]float32, 2), make([]float32, 2)
	connect(t, e, map[string]ipu.Stream{
		"x": direct{newHost(t, bytesOf([]float32{5, 6}), bytesOf([]float32{1, 2}))},
		"y": direct{newHost(t, bytesOf(y1), bytesOf(y2))}})
	run(t, e, 0)
	require.Equal(t, []float32{6, 8}, y1)
	require.Equal(t, []float32{4, 4}, y2)
}

// TestInputReadAfterItsLoop copies an input in every iteration and reads the
// last one after the loop.
func TestInputReadAfterItsLoop(t *testing.T) {
	b := graph.NewBuilder("last")
	x := b.AddLocal("x", f32(2))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	b.AddProgram(0, "main", b.Repeat(3, b.CopyIn("x", x)), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	xs, yv := newHost(t, bytesOf([]float32{1, 2}), bytesOf([]float32{3, 4}), bytesOf([]float32{5, 6})), make([]float32, 2)
	connect(t, e, map[string]ipu.Stream{"x": direct{xs}, "y": out(t, yv)})
	run(t, e, 0)
	require.Equal(t, []float32{-5, -6}, yv)
	require.Equal(t, 3, xs.completed)
}

// TestMisalignedMemoryIsCopied looks at where the operands point.
func TestMisalignedMemoryIsCopied(t *testing.T) {
	b := graph.NewBuilder("neg")
	x := b.AddLocal("x", f32(3))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
	b.AddProgram(0, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	e := newLoaded(t, b)
	for off, aligned := range []bool{true, false, false, false, true} {
		xm, ym := align.Bytes(16)[off:off+12], align.Bytes(16)[off:off+12]
		connect(t, e, map[string]ipu.Stream{"x": sink{xm}, "y": sink{ym}})
		run(t, e, 0)
		node := e.programs[0].code[2]
		require.Equal(t, aligned, &node.in[0][0] == &xm[0])
		require.Equal(t, aligned, &node.out[0][0] == &ym[0])
	}
}
