//go:build linux || darwin || freebsd || netbsd || openbsd

package atomicfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPipe: what is no regular file is written to and stays what it is, also if
// writing fails.
func TestPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	read := make(chan string)
	go func() {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(err.Error())
		}
		read <- string(b)
	}()
	require.NoError(t, WriteBytes(path, []byte("content")))
	require.Equal(t, "content", <-read)
	go func() {
		b, _ := os.ReadFile(path)
		read <- string(b)
	}()
	f, err := Create(path)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	f.Abort()
	require.Empty(t, <-read)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.ModeNamedPipe, st.Mode().Type())
	names, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, names, 1)
}
