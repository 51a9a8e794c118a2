package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	require.NoError(t, WriteBytes(path, []byte("old")))
	broken := errors.New("broken")
	require.ErrorIs(t, Write(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "ne")
		return errors.Join(err, broken)
	}), broken)
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(have))
	require.NoError(t, WriteBytes(path, []byte("new")))
	have, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(have))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "temporary files are left")

	require.Error(t, WriteBytes(dir, nil), "a folder is in the way")
	require.Error(t, WriteBytes(filepath.Join(dir, "nowhere", "file"), nil))
}
