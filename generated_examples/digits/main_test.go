package main

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
)

func TestRun(t *testing.T) { require.NoError(t, run(io.Discard, 4)) }

// TestAccuracy measures the model through its generated runner on scans that
// it was not trained on.
func TestAccuracy(t *testing.T) {
	scans, err := parse(heldout)
	require.NoError(t, err)
	r, err := classifier.Open(context.Background())
	require.NoError(t, err)
	defer r.Close()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	right := 0
	for _, s := range scans {
		fill(in.Image, s)
		require.NoError(t, r.Run(context.Background(), in, out))
		if best(out.Probabilities.Data[0][:]) == s.label {
			right++
		}
	}
	require.Len(t, scans, 359)
	require.GreaterOrEqual(t, float64(right)/float64(len(scans)), 0.97)
}

func TestParse(t *testing.T) {
	for _, bad := range []string{"", "# only a comment\n", "1,2,3\n", "x,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"} {
		_, err := parse(bad)
		require.Error(t, err, "%q", bad)
	}
}
