package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRun goes through all of it: what the session learns, what is on the screen, which files it leaves, and that the generated package makes the session's step, to the bit.
func TestRun(t *testing.T) {
	var screen strings.Builder
	tr := training{epochs: 12, seed: 2, folder: filepath.Join(t.TempDir(), "kept")}
	res, err := tr.run(t.Context(), &screen)
	require.NoError(t, err)
	require.Len(t, res.losses, 12)
	require.Less(t, res.losses[11], res.losses[0]/5)
	require.Greater(t, res.right, 93*359/100)
	require.Equal(t, res.step, res.typed)
	require.Greater(t, res.forgot[0], 5*res.step[0], "the initial weights")
	for _, want := range []string{"epoch 12 of 12 ", "backward", fmt.Sprintf("%d of 359 held-out scans", res.right), "equal to the bit"} {
		require.Contains(t, screen.String(), want)
	}
	for _, file := range []string{"learner.popef", "learnt.onnx"} {
		_, err := os.Stat(filepath.Join(tr.folder, file))
		require.NoError(t, err)
	}
}
