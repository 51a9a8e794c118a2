package onnx_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/popefgen/popefgen/onnx"
)

// TestExternalPipe refuses external data that is a pipe, which nobody writes to,
// without opening it.
func TestExternalPipe(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	p := pb{}.Str(8, "w").Int(2, 1).Packed(1, 2).Int(14, 1).Bytes(13, pb{}.Str(1, "location").Str(2, "pipe"))
	_, err := onnx.Decode(pb{}.Int(1, 8).Bytes(8, pb{}.Int(2, 13)).Bytes(7, pb{}.Bytes(5, p)), dir)
	require.ErrorContains(t, err, `external data file "pipe" is not a regular file`)
}
