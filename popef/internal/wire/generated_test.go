package wire

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGeneratedCodeIsCurrent regenerates the code from the schema where the
// capnp compiler is at hand.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	if _, err := exec.LookPath("capnp"); err != nil {
		t.Skip("the capnp compiler is not installed")
	}
	if testing.Short() {
		t.Skip("runs the compilers of Go and Cap'n Proto")
	}
	dir := t.TempDir()
	for _, name := range []string{"popef.capnp", "wire.go"} {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	// The generator runs in the copy and needs the module's tools.
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o666))
	}
	cmd := exec.Command("go", "generate", ".")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	want, err := os.ReadFile("popef.capnp.go")
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(dir, "popef.capnp.go"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run go generate in popef/internal/wire")
}
