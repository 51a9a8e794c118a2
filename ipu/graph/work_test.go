package graph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryOperatorHasACost: what has none is not computed at compile time, so
// that a new operator can't make a compiler hang.
func TestEveryOperatorHasACost(t *testing.T) {
	for _, kind := range Kinds() {
		require.Contains(t, declaredWork, kind, "operator without a declared cost")
	}
	_, known := Work(&testOp{}, nil, nil)
	require.False(t, known, "an operator that nobody knows")
}

// TestWork compares with what operators do by definition.
func TestWork(t *testing.T) {
	one, zero := []int64{1}, []int64{0}
	for name, c := range map[string]struct {
		op    Op
		in    []TensorType
		least int64
	}{
		"product":       {&MatMul{}, []TensorType{f32(64, 128), f32(128, 32)}, 64 * 128 * 32},
		"of bytes":      {&IntegerMatMul{To: I32}, []TensorType{typ(U8, 64, 128), typ(I8, 128, 32)}, 64 * 128 * 32},
		"convolution":   {&Conv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1}, []TensorType{f32(2, 3, 100), f32(5, 3, 10)}, 2 * 5 * 91 * 30},
		"of integers":   {&IntegerConv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: 1, To: I32}, []TensorType{typ(U8, 2, 3, 100), typ(I8, 5, 3, 10)}, 2 * 5 * 91 * 30},
		"attention":     {&Attention{Heads: 2, KVHeads: 2, Scale: 1, Scores: ScoresRaw}, []TensorType{f32(1, 2, 64, 16), f32(1, 2, 32, 16), f32(1, 2, 32, 8)}, 2 * 64 * 32 * 24},
		"of states":     {&LinearAttention{Heads: 2, KVHeads: 2, Scale: 1}, []TensorType{f32(1, 64, 32), f32(1, 64, 32), f32(1, 64, 16), f32(1, 2, 16, 8)}, 2 * 64 * 16 * 8},
		"regions":       {&MaxRoiPool{Height: 2, Width: 2, SpatialScale: 1}, []TensorType{f32(1, 3, 50, 50), f32(7, 5)}, 7 * 3 * 50 * 50},
		"determinant":   {&Det{}, []TensorType{f32(5, 60, 60)}, 5 * 60 * 60 * 60 / 3},
		"great windows": {&LpPool{P: 2, Kernel: []int64{1 << 30}, Strides: one, Dilations: one, PadsBegin: []int64{1 << 30}, PadsEnd: zero}, []TensorType{f32(1, 1, 8)}, 9 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := c.op.Infer(c.in)
			require.NoError(t, err)
			n, known := Work(c.op, c.in, out)
			require.True(t, known)
			require.GreaterOrEqual(t, n, c.least)
			require.LessOrEqual(t, n, 64*c.least)
		})
	}
	var s workSum
	s.add(1<<40, 1<<40)
	require.EqualValues(t, MoreWork, s)
	s.add(1)
	require.EqualValues(t, MoreWork, s)
}
