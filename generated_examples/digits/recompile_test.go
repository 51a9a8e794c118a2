package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/generated_examples/digits/classifier"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
	"github.com/popefgen/popefgen/rt"
)

// recompile compiles digits.onnx, changed by edit, for the given batch.
func recompile(t *testing.T, batch int64, edit func(*onnx.Model)) string {
	m, err := onnx.ReadFile("digits.onnx")
	require.NoError(t, err)
	edit(m)
	r, err := compile.Compile(m, compile.Options{Options: onnx.Options{Batch: batch}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "digits.popef")
	require.NoError(t, r.WriteFile(path, false))
	return path
}

// TestOtherWeights runs a model of other weights through the package that was
// generated before: nothing has to be generated again.
func TestOtherWeights(t *testing.T) {
	path := recompile(t, 1, func(m *onnx.Model) {
		for _, w := range m.Graph.Initializers {
			w.Data = make([]byte, len(w.Data))
		}
	})
	old, err := os.ReadFile("classifier/digits.popef")
	require.NoError(t, err)
	other, err := os.ReadFile(path)
	require.NoError(t, err)
	require.False(t, bytes.Equal(old, other))

	r, err := classifier.Open(context.Background(), rt.WithModelFile(path))
	require.NoError(t, err)
	defer r.Close()
	in, out := classifier.NewInputs(), classifier.NewOutputs()
	require.NoError(t, r.Run(context.Background(), in, out))
	for digit, p := range out.Probabilities.Data[0] {
		require.InDelta(t, 0.1, p, 1e-6, "without weights every digit is as likely; digit %d", digit)
	}
}

// TestOtherShape opens a model of another shape through the package that was
// generated before.
func TestOtherShape(t *testing.T) {
	path := recompile(t, 2, func(*onnx.Model) {})
	_, err := classifier.Open(context.Background(), rt.WithModelFile(path))
	require.ErrorIs(t, err, rt.ErrContract)
	for _, want := range []string{`"image"`, `[1 1 8 8]`, `[2 1 8 8]`, `"probabilities"`, "[1 10]", "[2 10]"} {
		require.ErrorContains(t, err, want)
	}
}
