package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/encoding"
)

// TestTransposedAsConvolutions compares transposed convolutions of all shapes
// with the convolutions that the pass "transposed" makes of them.
func TestTransposedAsConvolutions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &netDraw{T: t, model: newModel("transposed")}
		upTo := func(lo, hi int64, label string) int64 { return rapid.Int64Range(lo, hi).Draw(t, label) }
		group, channels, maps := upTo(1, 2, "group"), upTo(1, 3, "channels"), upTo(1, 3, "maps")
		op := &graph.ConvTranspose{Group: group}
		in, w := []int64{upTo(1, 2, "batch"), group * channels}, []int64{group * channels, maps}
		for range upTo(1, 2, "axes") {
			k, s, dilation := upTo(1, 5, "kernel"), upTo(1, 4, "stride"), upTo(1, 8, "dilation")/8+1
			size, pad := upTo(1, 5, "size"), upTo(-2, 6, "pad")
			in, w = append(in, size), append(w, k)
			op.Strides, op.Dilations, op.PadsBegin = append(op.Strides, s), append(op.Dilations, dilation), append(op.PadsBegin, pad)
			op.Output = append(op.Output, max(1, (size-1)*s+k+upTo(-6, 3, "output")))
		}
		x := d.b.AddLocal("x", f32(in...))
		g := d.b.BeginGraph("main")
		operands := []graph.TensorID{x, d.param(false, w...), graph.None}
		if d.yes("bias") {
			operands[2] = d.param(false, group*maps)
		}
		y := d.node(op, operands...)
		switch rapid.IntRange(0, 2).Draw(t, "activation") {
		case 1:
			y = d.unary(graph.Relu, y)
		case 2:
			y = d.node(&graph.Clip{}, y, d.number(-0.25), d.number(0.5))
		}
		d.finish(x, y, g)
		exe := executable(t, d.b)
		plain, err := encoding.Decode(exe)
		require.NoError(t, err)
		reference := newInterpreter(plain)
		_, want := d.start(t, reference)
		run(t, reference, 1)
		code := optimized(t, exe, nil)
		e, err := New(ipu.EngineConfig{Name: "transposed", Executable: code})
		require.NoError(t, err)
		load(t, e)
		_, got := d.start(t, e)
		run(t, e, 1)
		require.InDeltaSlice(t, want, got, 1e-5)
		require.NoError(t, e.Close())
		after, err := encoding.Decode(code)
		require.NoError(t, err)
		suits := true
		for i, k := range w[2:] {
			suits = suits && k >= op.Strides[i] && op.Dilations[i] == 1
		}
		require.NotEqual(t, suits, count(after, "ConvTranspose") == 1)
	})
}

// count counts the nodes of an operator.
func count(e *graph.Executable, kind string) (n int) {
	for _, g := range e.Graphs {
		for _, node := range g.Nodes {
			if node.Op.Kind() == kind {
				n++
			}
		}
	}
	return n
}
