package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCurrent compares the committed Go code with what is generated from inference.proto now.
func TestCurrent(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "internal/inference"), 0o755))
	require.NoError(t, run(dir))
	const name = "internal/inference/inference.pb.go"
	want, err := os.ReadFile(filepath.Join(dir, name))
	require.NoError(t, err)
	have, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, string(want), string(have), "run 'go generate .' in serve/grpc")
}
