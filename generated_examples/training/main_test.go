package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/export"
	"github.com/popefgen/popefgen/ipu/graph/optim"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/train"
	"github.com/popefgen/popefgen/rt"
)

// drawn returns the model with initial weights of another seed.
func drawn(t *testing.T, seed uint64) []byte {
	m, err := onnx.ReadFile("../digits/digits.onnx")
	require.NoError(t, err)
	o, err := optim.Parse("adam,lr=~0.002")
	require.NoError(t, err)
	r, err := train.Compile(context.Background(), m, train.Options{
		Options: onnx.Options{Batch: 64}, Optimizer: o, Init: &seed,
		Returns: map[string]train.Return{"probabilities": {None: true}, "loss": {Type: export.All}},
	})
	require.NoError(t, err)
	b, err := r.Bytes()
	require.NoError(t, err)
	return b
}

// TestSeeds trains from draws of initial weights, five with POPEFGEN_TESTS=all and else two, and reads what is held out with the
// inference package.
func TestSeeds(t *testing.T) {
	if testing.Short() {
		t.Skip("trains networks")
	}
	var right []int
	seeds := uint64(2)
	if os.Getenv("POPEFGEN_TESTS") == "all" {
		seeds = 5
	}
	for seed := range seeds {
		tr := training{epochs: 30, settle: 20, seed: seed, options: []rt.RunnerOption{rt.WithModelBytes(drawn(t, seed+1))}}
		res, err := tr.run(context.Background(), io.Discard)
		require.NoError(t, err)
		require.Greater(t, res.right, 97*359/100, "seed %d", seed)
		right = append(right, res.right)
	}
	slices.Sort(right)
	t.Logf("%d of 359", right)
	require.Greater(t, right[len(right)/2], 98*359/100)
}

// TestRun looks at what is on the screen.
func TestRun(t *testing.T) {
	var screen strings.Builder
	tr := training{epochs: 2, settle: 1, seed: 1}
	res, err := tr.run(context.Background(), &screen)
	require.NoError(t, err)
	require.Len(t, res.losses, 2*(1438/batch))
	require.Less(t, res.losses[len(res.losses)-1], res.losses[0])
	for _, want := range []string{"epoch  2 of 2 ", "loss of 44 steps of 64 scans", "read wrongly after the first epoch", fmt.Sprintf("%d of 359 held-out scans read rightly", res.right)} {
		require.Contains(t, screen.String(), want)
	}
}

// TestResume trains in one go, and with a checkpoint between: what is learnt has the same bits.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	whole, half, other := filepath.Join(dir, "whole"), filepath.Join(dir, "half"), filepath.Join(dir, "other")
	for _, tr := range []training{
		{epochs: 2, settle: 1, seed: 1, save: whole},
		{epochs: 1, settle: 1, seed: 1, save: half},
		{epochs: 2, settle: 1, seed: 1, resume: half, save: other},
	} {
		_, err := tr.run(ctx, io.Discard)
		require.NoError(t, err)
	}
	a, err := os.ReadFile(whole)
	require.NoError(t, err)
	b, err := os.ReadFile(other)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b))
}

func TestCurve(t *testing.T) {
	require.Equal(t, "  1.0000 █▂  \n  0.0010 ███▁\n", curve([]float32{1, 0.1, 0.03, 0.001}, 10, 2))
	require.Equal(t, "  0.5000 ▁\n", curve([]float32{0.5, 0.5}, 1, 1))
}
