//go:build linux || darwin || freebsd || netbsd || openbsd

package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHoldAnother holds a file whose name another file has by now, or none.
func TestHoldAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), prefix+"one")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	require.True(t, hold(f))
	require.NoError(t, os.Remove(path))
	require.False(t, hold(f), "it has no name any more")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.False(t, hold(f), "another has its name")
}
