package main

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVet builds the command and lets it report a package, by itself and as the
// tool of go vet.
func TestVet(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the command")
	}
	t.Parallel()
	tool := filepath.Join(t.TempDir(), "popefgen")
	out, err := exec.Command("go", "build", "-o", tool, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const copies = "../../golden/internal/poptorch_resnet50/testdata/copies"
	const want = "copies.go:7:22: range over out.FcFcModelFcFcGemm0[0].Data copies the array, and each row again (8000 bytes); range over out.FcFcModelFcFcGemm0[0].Rows(), whose rows are pointers"
	for _, args := range [][]string{{tool, "vet", copies}, {"go", "vet", "-vettool=" + tool, copies}} {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", out)
		require.Equal(t, 1, exit.ExitCode(), "%s", out)
		require.Contains(t, string(out), want)
	}
	out, err = exec.Command(tool, "vet", "./internal/vet").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(tool, "vet", "-x").CombinedOutput()
	require.Error(t, err)
	require.NotContains(t, string(out), "unsafeptr")
}
