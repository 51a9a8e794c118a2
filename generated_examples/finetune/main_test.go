package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/generated_examples/finetune/learner"
)

// TestRun wants letters read, and the convolutions as they were.
func TestRun(t *testing.T) {
	var screen strings.Builder
	right, err := run(context.Background(), &screen, 16)
	require.NoError(t, err)
	require.GreaterOrEqual(t, right, 475, "of 500")
	require.Contains(t, screen.String(), "  4096 letters  loss ")
	require.Contains(t, screen.String(), ", read as ")
}

// TestBefore reads letters with the weights of digits: the layers that are drawn anew have something to learn.
func TestBefore(t *testing.T) {
	ctx := context.Background()
	c, err := classifier.Open(ctx)
	require.NoError(t, err)
	defer c.Close()
	random := rand.New(rand.NewPCG(1, 2))
	letters := make([]sample, 500)
	count := make([]int, len(alphabet))
	for i := range letters {
		letters[i] = write(random)
		count[letters[i].class]++
	}
	right, err := read(ctx, c, letters, nil)
	require.NoError(t, err)
	require.Less(t, right, 150, "of 500")
	for class, n := range count {
		require.Greater(t, n, 25, alphabet[class].letter)
	}
}

// TestFrozen makes a step and compares weights before and after.
func TestFrozen(t *testing.T) {
	ctx := context.Background()
	l, err := learner.Open(ctx)
	require.NoError(t, err)
	defer l.Close()
	before, after := learner.NewWeights(), learner.NewWeights()
	require.NoError(t, l.Weights(ctx, before))
	in, out := learner.NewInputs(), learner.NewOutputs()
	for i := range in.Image {
		in.Image[i].Data[0][0][3][3] = 1
	}
	require.NoError(t, l.Step(ctx, in, out))
	require.NoError(t, l.Weights(ctx, after))
	require.Equal(t, before.X0_0Weight, after.X0_0Weight)
	require.Equal(t, before.X0_2Bias, after.X0_2Bias)
	require.NotEqual(t, before.X0_6Weight, after.X0_6Weight)
	require.NotEqual(t, before.X0_8Bias, after.X0_8Bias)
}
