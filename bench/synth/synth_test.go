package synth

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
)

// TestModel reads back what is written.
func TestModel(t *testing.T) {
	build := func() *Model {
		m := New(17)
		x := m.Input("x", 1, 2, 4)
		y := m.Node("Gemm", []string{x, m.Weights(1, 4, 3)}, Attr{"alpha", float32(0.5)}, Attr{"transB", int64(1)}, Attr{"mode", "m"}, Attr{"list", []int64{1, -2}})
		many := m.Nodes("Split", []string{y, m.Ints(1, -1)}, 2)
		m.Output(many[1], 2, 3)
		return m
	}
	m := build()
	got, err := onnx.Decode(m.Bytes(), "")
	require.NoError(t, err)
	require.Equal(t, []onnx.Opset{{Version: 17}}, got.Opsets)
	g := got.Graph
	require.Len(t, g.Nodes, 2)
	require.Equal(t, "Gemm", g.Nodes[0].OpType)
	require.Equal(t, []string{"x", "w1"}, g.Nodes[0].Inputs)
	a := g.Nodes[0].Attributes
	require.Equal(t, float32(0.5), a[0].Float)
	require.Equal(t, int64(1), a[1].Int)
	require.Equal(t, []byte("m"), a[2].String)
	require.Equal(t, []int64{1, -2}, a[3].Ints)
	require.Len(t, g.Nodes[1].Outputs, 2)
	require.Equal(t, []int64{4, 3}, g.Initializers[0].Dims)
	require.Len(t, g.Initializers[0].Data, 48)
	require.Equal(t, onnx.Int64, g.Initializers[1].Elem)
	require.Equal(t, "x", g.Inputs[0].Name)
	require.Equal(t, g.Nodes[1].Outputs[1], g.Outputs[0].Name)
	require.Equal(t, []Value{{"x", []int64{1, 2, 4}}}, m.Inputs)
	require.Equal(t, build().Bytes(), m.Bytes(), "the same at every run")
	require.Panics(t, func() { m.Node("Exp", []string{"x"}, Attr{"bad", 1}) })
}
