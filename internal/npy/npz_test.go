package npy

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// archive returns a zip archive of the entries, in order.
func archive(t testing.TB, entries ...[2]string) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		f, err := z.Create(e[0])
		require.NoError(t, err)
		_, err = f.Write([]byte(e[1]))
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return b.Bytes()
}

func array(t testing.TB, n int64) string {
	var b bytes.Buffer
	require.NoError(t, Write(&b, popef.TensorInfo{DataType: popef.F32, Shape: []int64{n}}, make([]byte, 4*n)))
	return b.String()
}

func TestArchive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	open := func(data []byte) (*Archive, error) {
		require.NoError(t, os.WriteFile(path, data, 0o666))
		return OpenArchive(path)
	}
	a, err := open(archive(t, [2]string{"b.npy", array(t, 2)}, [2]string{"in/a.npy", array(t, 1<<20)}, [2]string{"text.npy", "hello"}))
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, []string{"b", "in/a", "text"}, a.Names())
	data, err := a.Read("b", "input b", popef.TensorInfo{DataType: popef.F32, Shape: []int64{2}})
	require.NoError(t, err)
	require.Len(t, data, 8)
	_, err = a.Read("b", "input b", popef.TensorInfo{DataType: popef.F32, Shape: []int64{3}})
	require.ErrorContains(t, err, path+": input b: found shape [2], want [3]")
	_, err = a.Read("c", "input c", popef.TensorInfo{DataType: popef.F32})
	require.ErrorContains(t, err, `there is no array "c"`)
	_, err = a.Array("text", 10)
	require.ErrorContains(t, err, path+": text: not a valid .npy file")

	// Four megabytes of zeros are four kilobytes here: no more is read than the caller wants.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	big, err := a.Array("in/a", 64)
	require.NoError(t, err)
	require.Len(t, big.Data, 65)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))

	for want, data := range map[string][]byte{
		"not a valid zip file":      []byte("hello"),
		`entry "x.txt" is no array`: archive(t, [2]string{"x.txt", ""}),
		`two arrays are called "a"`: archive(t, [2]string{"a.npy", ""}, [2]string{"a.npy", ""}),
		"x.npz: it is no .npz archive, or one that is cut short: zip: not a valid zip": nil,
	} {
		_, err = open(data)
		require.ErrorContains(t, err, want)
	}
	_, err = OpenArchive(t.TempDir())
	require.ErrorContains(t, err, "not a regular file")
	_, err = OpenArchive(filepath.Join(t.TempDir(), "nowhere"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzArchive gives the reader of archives any file.
func FuzzArchive(f *testing.F) {
	f.Add(archive(f, [2]string{"a.npy", array(f, 3)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x.npz")
		require.NoError(t, os.WriteFile(path, data, 0o666))
		a, err := OpenArchive(path)
		if err != nil {
			return
		}
		defer a.Close()
		for _, name := range a.Names() {
			if x, err := a.Array(name, 100); err == nil && len(x.Data) > 101 {
				t.Errorf("read %d bytes of %q, limit 100", len(x.Data), name)
			}
		}
	})
}
