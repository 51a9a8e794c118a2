package popart_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
	"github.com/popefgen/popefgen/onnx/popart"
)

// dropping is y = dropout(x) with the loss Σ y·w, of 64 numbers.
func dropping() popart.Model {
	return popart.ONNX(onnxtest.Model(13, &onnx.Graph{
		Initializers: []*onnx.Tensor{onnxtest.Named(onnxtest.F32s(onnxtest.Dims(1), 1), "w")},
		Inputs:       []onnx.ValueInfo{onnxtest.Info("x", onnx.Float, 64)},
		Nodes: []*onnx.Node{
			onnxtest.Node("Dropout", onnxtest.Names("x"), onnxtest.Names("y")),
			onnxtest.Node("Mul", onnxtest.Names("y", "w"), onnxtest.Names("z")),
			onnxtest.Node("ReduceSum", onnxtest.Names("z"), onnxtest.Names("cost"), onnxtest.AInt("keepdims", 0)),
		},
		Outputs: onnxtest.Outputs("cost"),
	}))
}

// TestRandomState: steps draw other numbers each time; an earlier state brings those that followed it again, to the bit, also in another session with the same seed; a seed begins anew.
// Feature 111.
func TestRandomState(t *testing.T) {
	open := func(prepare bool) *popart.TrainingSession {
		s, err := popart.NewTrainingSession(t.Context(), dropping(), popart.DataFlow{2, popart.Anchors{"y": popart.All}}, popart.Loss("cost"), popart.ConstSGD(0), popart.CPU(), nil, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		if prepare {
			require.NoError(t, s.PrepareDevice(t.Context()))
			require.NoError(t, s.WeightsFromHost(t.Context()))
		}
		return s
	}
	ones := slices.Repeat([]float32{1}, 128)
	step := func(s *popart.TrainingSession) []float32 {
		out := s.InitAnchorArrays()
		require.NoError(t, s.Run(t.Context(), popart.Arrays(map[string]popart.Array{"x": popart.Of(ones)}, out)))
		return popart.In[float32](out["y"])
	}
	a := open(true)
	require.NoError(t, a.SetRandomSeed(t.Context(), 1<<40+7))
	first := step(a)
	require.NotEqual(t, first[:64], first[64:], "batches of a step draw other numbers")
	state, err := a.RNGState(t.Context())
	require.NoError(t, err)
	second, third := step(a), step(a)
	require.NotEqual(t, first, second)
	require.NoError(t, a.SetRNGState(t.Context(), state))
	require.Equal(t, second, step(a))
	require.Equal(t, third, step(a))
	seed, err := a.RandomSeed(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(1<<40+7), seed)
	require.NoError(t, a.SetRandomSeed(t.Context(), seed))
	require.Equal(t, first, step(a), "the same seed begins with the same numbers")
	require.NoError(t, a.SetRandomSeed(t.Context(), 8))
	require.NotEqual(t, first, step(a))

	b := open(false) // seed and state wait for the device
	_, err = b.RNGState(t.Context())
	require.ErrorIs(t, err, popart.ErrNotPrepared)
	require.NoError(t, b.SetRandomSeed(t.Context(), seed))
	require.NoError(t, b.SetRNGState(t.Context(), state))
	require.NoError(t, b.PrepareDevice(t.Context()))
	_, err = b.RandomSeed(t.Context())
	require.ErrorIs(t, err, popart.ErrWeightsNotLoaded)
	require.NoError(t, b.WeightsFromHost(t.Context()))
	require.Equal(t, second, step(b))
	require.ErrorContains(t, b.SetRNGState(t.Context(), state[1:]), "want 8")

	s := prepared(t, popart.DataFlow{1, popart.Anchors{"z": popart.All}}, nil)
	require.ErrorIs(t, s.SetRandomSeed(t.Context(), 1), popart.ErrOption)
	require.ErrorIs(t, s.SetRNGState(t.Context(), nil), popart.ErrOption)
	_, err = s.RandomSeed(t.Context())
	require.ErrorContains(t, err, "draws no random numbers")
}
