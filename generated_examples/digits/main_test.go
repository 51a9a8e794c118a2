package main

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/digits/scans"
)

func TestRun(t *testing.T) { require.NoError(t, run(io.Discard, 4)) }

// TestAccuracy measures the model through its generated runner on scans that
// it was not trained on.
func TestAccuracy(t *testing.T) {
	heldOut, err := scans.HeldOut()
	require.NoError(t, err)
	r, err := classifier.Open(context.Background())
	require.NoError(t, err)
	defer r.Close()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	right := 0
	for _, s := range heldOut {
		fill(in.Image, s)
		require.NoError(t, r.Run(context.Background(), in, out))
		if best(out.Probabilities.Data[0][:]) == s.Label {
			right++
		}
	}
	require.Len(t, heldOut, 359)
	require.GreaterOrEqual(t, float64(right)/float64(len(heldOut)), 0.97)
}
