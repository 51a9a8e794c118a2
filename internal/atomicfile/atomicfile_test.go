package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

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

// TestModes keeps to the umask for new files, and to the permissions of old ones.
func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("there are no such permissions")
	}
	for _, c := range []struct {
		umask     int
		old, want os.FileMode // old 0: there is no such file
	}{
		{0o022, 0, 0o644}, {0o077, 0, 0o600}, {0o002, 0, 0o664}, {0, 0, 0o666},
		{0o022, 0o600, 0o600}, {0o077, 0o644, 0o644}, {0o022, 0o666, 0o666}, {0o022, 0o400, 0o400}, {0o022, 0o755, 0o755},
	} {
		path := filepath.Join(t.TempDir(), "file")
		if c.old != 0 {
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			require.NoError(t, os.Chmod(path, c.old))
		}
		before := umask(c.umask)
		err := WriteBytes(path, []byte("new"))
		umask(before)
		require.NoError(t, err)
		st, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, c.want, st.Mode().Perm(), "umask %03o, it was %03o", c.umask, c.old)
	}
}

// TestClean removes what was left, and nothing that is being written.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "file"))
	require.NoError(t, err)
	left := filepath.Join(dir, ".popefgen-left")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)))
	foreign := filepath.Join(dir, ".popefgenrc")
	require.NoError(t, os.WriteFile(foreign, nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".popefgen-dir"), 0o700))
	require.NoError(t, Clean(dir))
	require.NoFileExists(t, left)
	require.FileExists(t, foreign)
	require.FileExists(t, f.Name(), "it was being written")
	require.NoError(t, f.Commit())
	require.FileExists(t, filepath.Join(dir, "file"))
	require.NoError(t, Clean(filepath.Join(dir, "nowhere")))
}

// TestCreateCleans: whoever writes a file removes what a run that was killed
// left in its folder, and goes on where that can't be removed.
func TestCreateCleans(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, ".popefgen-0123abcd")
	require.NoError(t, os.WriteFile(left, []byte("half"), 0o600))
	require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)))
	require.NoError(t, WriteBytes(filepath.Join(dir, "file"), []byte("whole")))
	require.NoFileExists(t, left)

	if runtime.GOOS == "windows" || runtime.GOOS == "js" {
		t.Skip("there are no such permissions")
	}
	dir = t.TempDir()
	left = filepath.Join(dir, ".popefgen-0123abcd")
	require.NoError(t, os.WriteFile(left, nil, 0o400)) // nobody but root may open it for writing
	require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-2*time.Hour)))
	require.NoError(t, WriteBytes(filepath.Join(dir, "file"), []byte("whole")))
	require.FileExists(t, filepath.Join(dir, "file"))
}
