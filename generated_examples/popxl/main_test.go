package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/scans"
	"github.com/popefgen/popefgen/generated_examples/popxl/reader"
	"github.com/popefgen/popefgen/rt"
)

// TestReplicas: two replicas, each with half of every batch, learn what one learns, but for the order in which gradients are added up.
func TestReplicas(t *testing.T) {
	learnt := func(replicas int) (losses []float32) {
		tr := training{epochs: 1, seed: 1, replicas: replicas}
		res, err := tr.run(t.Context(), io.Discard)
		require.NoError(t, err)
		return res.losses
	}
	want, got := learnt(1), learnt(2)
	require.Len(t, want, 1438/batch)
	require.Less(t, want[21], want[0]/2)
	require.InDeltaSlice(t, want, got, 1e-3)
	tr := training{replicas: 3}
	_, err := tr.run(t.Context(), io.Discard)
	require.ErrorContains(t, err, "3 replicas do not share a batch of 64 scans")
}

// TestRun learns for a few epochs, looks at what is on the screen, and opens the model that was written with the generated package: it reads as the package that was given the weights.
func TestRun(t *testing.T) {
	var screen strings.Builder
	tr := training{epochs: 4, seed: 1, replicas: 1, save: filepath.Join(t.TempDir(), "learnt.popef")}
	res, err := tr.run(t.Context(), &screen)
	require.NoError(t, err)
	require.Len(t, res.losses, 4*(1438/batch))
	require.Less(t, mean(res.losses[3*22:]), mean(res.losses[:22])/4)
	require.Greater(t, res.right, 85*359/100)
	for _, want := range []string{"epoch  4 of 4 ", "loss of 88 steps of 64 scans", fmt.Sprintf("%d of 359 held-out scans read rightly by the generated package", res.right)} {
		require.Contains(t, screen.String(), want)
	}
	heldOut, err := scans.HeldOut()
	require.NoError(t, err)
	answers := func(opts ...rt.RunnerOption) (all [][10]float32) {
		r, err := reader.Open(context.Background(), opts...)
		require.NoError(t, err)
		defer r.Close()
		if len(opts) == 0 {
			_, err := read(t.Context(), r, res.weights, nil)
			require.NoError(t, err)
		}
		in, out := reader.NewInputs(), reader.NewOutputs()
		for i := range heldOut[:40] {
			fill(in.Images.Flat(), &heldOut[i])
			require.NoError(t, r.Run(t.Context(), in, out))
			all = append(all, out.Probabilities.Data[0])
		}
		return all
	}
	require.Equal(t, answers(), answers(rt.WithModelFile(tr.save)))
}

func TestCurve(t *testing.T) {
	require.Equal(t, "1.0000 █▆▄▁ 0.0010", curve([]float32{1, 0.1, 0.03, 0.001}, 10))
	require.Equal(t, "0.5000 ▁ 0.5000", curve([]float32{0.5, 0.5}, 1))
}
