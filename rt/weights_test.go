package rt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

// TestUpdateThatFails has the load programs fail while weights are updated: what
// they left is never computed with, and the next request loads again.
func TestUpdateThatFails(t *testing.T) {
	ctx := context.Background()
	s := affineScript()
	loads, failing := 0, error(nil)
	program := s.programs[loadProgram]
	s.programs[loadProgram] = func(ctx context.Context, e *engine) error {
		if loads++; failing != nil {
			return failing
		}
		return program(ctx, e)
	}
	r := variant{backend: fakeName, model: file(t, affineMetadata(), register(t, s), affineData)}.open(t)
	in, out := NewInputs(), NewOutputs()
	fill(in, 1)
	require.NoError(t, r.Run(ctx, in, out))
	before := loads
	failing = errors.New("no")
	require.ErrorIs(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(7, 7)}), failing)
	require.ErrorIs(t, r.Run(ctx, in, out), failing, "it loads first")
	failing = nil
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, before+3, loads)
	require.Equal(t, float32(7*1+10), out.Y[0].Data[0], "with the new weights")
	require.NoError(t, r.Run(ctx, in, out))
	require.Equal(t, before+3, loads, "once")
}

// TestWeightNames gives weights by names that mean one input, several or none.
func TestWeightNames(t *testing.T) {
	ctx := context.Background()
	meta := affineMetadata()
	meta.Anchors[4].Name = "w" // as the one before it
	s := variant{backend: portable, model: file(t, meta, affinePortable(t), nil)}.session(t)
	err := s.UpdateWeights(ctx, rt.Weight{Anchor: "w", Data: floats(1, 2)})
	require.ErrorIs(t, err, rt.ErrUnknownStream)
	require.Contains(t, err.Error(), "use the stream handle")
	require.NoError(t, s.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_w", Data: floats(1, 2)}, rt.Weight{Anchor: "h2d_b", Data: floats(1, 2)}))
	for _, data := range [][]byte{nil, floats(1), floats(1, 2, 3)} {
		require.ErrorIs(t, s.UpdateWeights(ctx, rt.Weight{Anchor: "h2d_w", Data: data}), rt.ErrData)
		require.ErrorIs(t, s.ConnectData(ctx, "h2d_w", data), rt.ErrData)
	}

	other := load(t, file(t, affineMetadata(), []byte("x"), affineData))
	weights, err := rt.FileWeights(other)
	require.NoError(t, err)
	require.Len(t, weights, 1)
	require.Equal(t, "h2d_w", weights[0].Anchor, "by handle, which is never ambiguous")
}
