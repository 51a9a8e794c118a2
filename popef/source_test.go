package popef_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// TestReleaseTensor checks that views of tensors survive their release, also
// where several share a memory page, where the file is not mapped, and that a
// release after the end does nothing.
func TestReleaseTensor(t *testing.T) {
	sizes := []int64{3, 100_003, 5, 4096, 70_000}
	names := []string{"a", "b", "c", "d", "e"}
	meta := smallMetadata()
	meta.Anchors, meta.SeedHandle = nil, ""
	data := make([][]byte, len(sizes))
	for i, n := range sizes {
		data[i] = bytes.Repeat([]byte{byte(i + 1), 7, 9}, int(n))[:n]
		meta.Anchors = append(meta.Anchors, popef.Anchor{Name: names[i], Handle: names[i], Programs: []uint32{0}, Type: popef.Input,
			Info: popef.TensorInfo{Shape: []int64{n}, DataType: popef.U8}})
	}
	file := write(t, func(w *popef.Writer) error {
		errs := []error{w.WriteMetadata(meta), payload(w.CreateExecutable("42", false))([]byte("GC_EXE_3"))}
		for i := range data {
			errs = append(errs, w.WriteTensor(names[i], meta.Anchors[i].Info, data[i]))
		}
		return errors.Join(errs...)
	})
	path := filepath.Join(t.TempDir(), "model.popef")
	require.NoError(t, os.WriteFile(path, file, 0o600))
	mapped, err := popef.Load(path)
	require.NoError(t, err)
	inMemory, err := popef.LoadBytes("model", file)
	require.NoError(t, err)
	for _, m := range []*popef.Model{mapped, inMemory} {
		m.ReleaseTensor("of no file")
		var views [][]byte
		for _, name := range names {
			view, ok := m.TensorData(name)
			require.True(t, ok)
			views = append(views, view)
		}
		for range 2 {
			require.Equal(t, data, views)
			for _, name := range names {
				m.ReleaseTensor(name)
			}
		}
		require.Equal(t, data, views)
		require.NoError(t, m.Close())
		m.ReleaseTensor("b")
	}
}
