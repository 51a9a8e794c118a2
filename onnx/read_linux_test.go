package onnx

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestExternalPipe refuses external data that is a pipe, which nobody writes to,
// without opening it.
func TestExternalPipe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	p := pb{}.str(8, "w").int(2, 1).packed(1, 2).int(14, 1).bytes(13, pb{}.str(1, "location").str(2, "pipe"))
	_, err := Decode(pb{}.int(1, 8).bytes(8, pb{}.int(2, 13)).bytes(7, pb{}.bytes(5, p)), dir)
	require.ErrorContains(t, err, `external data file "pipe" is not a regular file`)
}
