package need

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

func f32(shape ...int64) graph.TensorType { return graph.TensorType{DType: graph.F32, Shape: shape} }

// TestOf: tensors count from the place that writes them to the last that reads them; views count once; what a loop reads of what was before it
// counts until its end, and what it carries too.
func TestOf(t *testing.T) {
	builder := func(t *testing.T) (*graph.Builder, func(op graph.Op, name string, in ...graph.TensorID) graph.TensorID) {
		b := graph.NewBuilder(t.Name())
		return b, func(op graph.Op, name string, in ...graph.TensorID) graph.TensorID {
			out, err := b.Node(op, name, in...)
			require.NoError(t, err)
			return out[0]
		}
	}
	neg := &graph.Unary{Fn: graph.Neg}
	add := &graph.Binary{Fn: graph.Add}
	for _, tt := range []struct {
		name  string
		build func(t *testing.T) *graph.Builder
		peak  int64
		node  string
	}{
		{"a chain holds two", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x := b.AddLocal("x", f32(10))
			g := b.BeginGraph("main")
			y := node(neg, "c", node(neg, "b", node(neg, "a", x)))
			b.AddProgram(0, "", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
			return b
		}, 80, `node "a" (Unary)`},
		{"a residual holds three", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x := b.AddLocal("x", f32(10))
			g := b.BeginGraph("main")
			y := node(add, "sum", x, node(neg, "b", node(neg, "a", x)))
			b.AddProgram(0, "", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
			return b
		}, 120, `node "b" (Unary)`},
		{"a view is no tensor of its own", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x := b.AddLocal("x", f32(10))
			g := b.BeginGraph("main")
			y := node(&graph.Reshape{Shape: []int64{10, 1}}, "view", node(&graph.Reshape{Shape: []int64{2, 5}}, "view", node(neg, "a", x)))
			b.AddProgram(0, "", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
			return b
		}, 80, `node "a" (Unary)`},
		{"what a loop reads is kept to its end", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x, z := b.AddLocal("x", f32(10)), b.AddLocal("z", f32(100))
			g := b.BeginGraph("main")
			y := node(neg, "a", x)
			big := node(neg, "big", z)
			b.AddProgram(0, "", b.CopyIn("x", x), b.Repeat(3, b.CopyIn("z", z), b.Call(g), b.CopyOut("y", y), b.CopyOut("big", big)))
			return b
		}, 40 + 40 + 800, `node "big" (Unary)`},
		{"a graph that is called twice", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x := b.AddLocal("x", f32(10))
			g := b.BeginGraph("main")
			y := node(neg, "a", x)
			b.AddProgram(0, "", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y), b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
			return b
		}, 80, `node "a" (Unary)`},
		{"the greater branch", func(t *testing.T) *graph.Builder {
			b, node := builder(t)
			x, cond := b.AddLocal("x", f32(10)), b.AddLocal("cond", graph.TensorType{DType: graph.Bool})
			small := b.BeginGraph("then")
			b.SetParams(small, nil, []graph.TensorID{node(neg, "small", x)})
			wide := b.AddConst("wide", f32(50, 10), make([]byte, 2000))
			large := b.BeginGraph("else")
			b.SetParams(large, nil, []graph.TensorID{node(&graph.Reduce{Fn: graph.ReduceSum, Axes: []int64{0}}, "sum", node(add, "large", x, wide))})
			g := b.BeginGraph("main")
			y := node(&graph.If{Then: small, Else: large}, "if", cond)
			b.AddProgram(0, "", b.CopyIn("x", x), b.CopyIn("cond", cond), b.Call(g), b.CopyOut("y", y))
			return b
		}, 40 + 2000, `node "large" (Binary)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e, err := tt.build(t).Finish()
			require.NoError(t, err)
			require.NoError(t, graph.Verify(e))
			n := Of(e)
			require.Equal(t, tt.peak, n.Peak)
			require.Equal(t, tt.node, n.Node)
			require.Equal(t, "0", n.Program)
			require.Equal(t, n.Weights+n.Constants+n.Peak, n.Total())
		})
	}
}

// TestCheck: the sum is compared with all tiles; a device that does not tell its memory takes everything.
func TestCheck(t *testing.T) {
	n := Need{Weights: 10, Constants: 3, Largest: []Tensor{{"weight", "w", graph.TensorType{DType: graph.U8, Shape: []int64{10}}}}}
	require.NoError(t, n.Check(ipu.DeviceInfo{NumIPUs: 1, TilesPerIPU: 13, BytesPerTile: 1}))
	require.NoError(t, n.Check(ipu.DeviceInfo{NumIPUs: 1, TilesPerIPU: 1}))
	err := n.Check(ipu.DeviceInfo{NumIPUs: 2, TilesPerIPU: 3, BytesPerTile: 2})
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.EqualError(t, err, `out of memory: the program needs 13 bytes (10 of weights, 3 of constants, 0 of activations), and the device has 12: IPUs 2 × tiles 3 × bytes 2; `+
		`the largest: weight "w" (u8[10], 10 bytes); take a device of more IPUs or tiles, or compile the model for a smaller batch`)
}
