package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
)

// TestSimulated runs the generated runner on a simulated IPU of four tiles, which gives the bits of the CPU, and asks for one that is too small.
func TestSimulated(t *testing.T) {
	ctx := context.Background()
	heldOut, err := scans.HeldOut()
	require.NoError(t, err)
	var outs []*classifier.Outputs
	for _, opts := range [][]rt.RunnerOption{nil, {rt.WithSimulation(ipu.Simulation{Version: 21}.Small()), rt.WithReplicas(2)}} {
		r, err := classifier.Open(ctx, opts...)
		require.NoError(t, err)
		defer r.Close()
		in, out := classifier.NewInputs(), classifier.NewOutputs()
		fill(in.Image, heldOut[0])
		require.NoError(t, r.Run(ctx, in, out))
		outs = append(outs, out)
		if opts != nil {
			info := r.Replica(1).Device().Info()
			require.Equal(t, "ipu_model", info.Kind)
			require.Equal(t, []int{1, 21, 4}, []int{info.NumIPUs, info.Version, info.TilesPerIPU})
		}
	}
	require.Equal(t, outs[0], outs[1])
}

// TestSimulatedMemory has a simulated IPU whose tiles are too small for the model.
func TestSimulatedMemory(t *testing.T) {
	_, err := classifier.Open(context.Background(), rt.WithSimulation(ipu.Simulation{BytesPerTile: 40_000}.Small()))
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.EqualError(t, err, `digits.popef: open: load the engine: out of memory: the program needs 165416 bytes (153128 of weights, 0 of constants, 12288 of activations where they are most, `+
		`in program 5 "Program" at node "/0/0.3/Relu" (Conv)), and the device has 160000: IPUs 1 × tiles 4 × bytes 40000; the largest: weight "0.6.weight" (f32[64,512], 131072 bytes), `+
		`weight "0.2.weight" (f32[32,16,3,3], 18432 bytes), activation "/0/0.3/Relu_output_0" (f32[1,32,8,8], 8192 bytes); `+
		`take a device of more IPUs or tiles, or compile the model for a smaller batch`, "the same text on every machine")
}
