package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/words/letters"
)

func TestRun(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, run(&b, options{words: 5, begin: "pop", temperature: 0.5, seed: 3}))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 6)
	for _, l := range lines[:5] {
		require.Regexp(t, regexp.MustCompile(`^pop[a-z]*$`), l)
	}
	require.ErrorContains(t, run(&b, options{words: 1, begin: "É", temperature: 1}), "a to z")
	require.ErrorContains(t, run(&b, options{words: 1}), "-temperature")
}

// TestState shows that the state matters and that Reset ends it: the same
// letters give the same probabilities again, and without their history others.
func TestState(t *testing.T) {
	r, err := letters.Open(context.Background())
	require.NoError(t, err)
	defer r.Close()
	m, err := newWriter(r, rand.New(rand.NewPCG(1, 1)), 1)
	require.NoError(t, err)
	after := func(letters ...int32) []float32 {
		require.NoError(t, m.stream.Reset())
		for _, l := range letters {
			require.NoError(t, m.step(l))
		}
		return append([]float32{}, m.out.Next.Flat()...)
	}
	qu := after(0, 'q'-'a'+1)
	require.Equal(t, qu, after(0, 'q'-'a'+1))
	require.NotEqual(t, qu, after(0, 'x'-'a'+1, 'q'-'a'+1))
	require.Greater(t, qu['u'-'a'+1], float32(0.9), "after q comes u")
}

func TestNoAllocation(t *testing.T) {
	r, err := letters.Open(context.Background())
	require.NoError(t, err)
	defer r.Close()
	m, err := newWriter(r, rand.New(rand.NewPCG(1, 1)), 1)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { err = m.step(1) }))
	require.NoError(t, err)
}
