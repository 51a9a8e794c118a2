package work

import (
	"testing"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/stretchr/testify/require"
)

// unknown is an operator that is none of package graph's.
type unknown struct{ graph.Op }

func (unknown) Kind() string { return "unknown" }

func typ(d graph.DType, shape ...int64) graph.TensorType {
	return graph.TensorType{DType: d, Shape: shape}
}

func f32(shape ...int64) graph.TensorType { return typ(graph.F32, shape...) }

// TestEveryOperatorHasACost: what has none is not computed at compile time, so
// that a new operator can't make a compiler hang.
func TestEveryOperatorHasACost(t *testing.T) {
	for _, kind := range graph.Kinds() {
		require.Contains(t, declaredWork, kind, "operator without a declared cost")
	}
	_, known := Of(unknown{}, nil, nil)
	require.False(t, known, "an operator that nobody knows")
}

// TestWork compares with what operators do by definition.
func TestWork(t *testing.T) {
	one, zero := []int64{1}, []int64{0}
	for name, c := range map[string]struct {
		op    graph.Op
		in    []graph.TensorType
		least int64
	}{
		"product":       {&graph.MatMul{}, []graph.TensorType{f32(64, 128), f32(128, 32)}, 64 * 128 * 32},
		"of bytes":      {&graph.IntegerMatMul{To: graph.I32}, []graph.TensorType{typ(graph.U8, 64, 128), typ(graph.I8, 128, 32)}, 64 * 128 * 32},
		"convolution":   {&graph.Conv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1}, []graph.TensorType{f32(2, 3, 100), f32(5, 3, 10)}, 2 * 5 * 91 * 30},
		"of integers":   {&graph.IntegerConv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1, To: graph.I32}, []graph.TensorType{typ(graph.U8, 2, 3, 100), typ(graph.I8, 5, 3, 10)}, 2 * 5 * 91 * 30},
		"attention":     {&graph.Attention{Heads: 2, KVHeads: 2, Scale: 1, Scores: graph.ScoresRaw}, []graph.TensorType{f32(1, 2, 64, 16), f32(1, 2, 32, 16), f32(1, 2, 32, 8)}, 2 * 64 * 32 * 24},
		"of states":     {&graph.LinearAttention{Heads: 2, KVHeads: 2, Scale: 1}, []graph.TensorType{f32(1, 64, 32), f32(1, 64, 32), f32(1, 64, 16), f32(1, 2, 16, 8)}, 2 * 64 * 16 * 8},
		"regions":       {&graph.MaxRoiPool{Height: 2, Width: 2, SpatialScale: 1}, []graph.TensorType{f32(1, 3, 50, 50), f32(7, 5)}, 7 * 3 * 50 * 50},
		"determinant":   {&graph.Det{}, []graph.TensorType{f32(5, 60, 60)}, 5 * 60 * 60 * 60 / 3},
		"great windows": {&graph.LpPool{P: 2, Kernel: []int64{1 << 30}, Strides: one, Dilations: one, PadsBegin: []int64{1 << 30}, PadsEnd: zero}, []graph.TensorType{f32(1, 1, 8)}, 9 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			n, known := Of(c.op, c.in, out)
			require.True(t, known)
			require.GreaterOrEqual(t, n, c.least)
			require.LessOrEqual(t, n, 64*c.least)
		})
	}
	var s workSum
	s.add(1<<40, 1<<40)
	require.EqualValues(t, Max, s)
	s.add(1)
	require.EqualValues(t, Max, s)
}
