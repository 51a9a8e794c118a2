package popef_test

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

// TestSparseFile opens a model whose weights are a hole of 12 GB, in no time
// and in no memory.
func TestSparseFile(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("needs a 64-bit address space")
	}
	size := int64(12) << 30
	info := popef.TensorInfo{Shape: []int64{3, 1 << 30}, DataType: popef.F32}
	path := filepath.Join(t.TempDir(), "large.popef")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	front := write(t, metadata("e", in("w", info)))
	message := tensorInfoMessage(t, "w", popef.F32, info.Shape...)
	head := header(t, uint16(popef.TensorBlob), "1.0.0", 0)
	head = header(t, uint16(popef.TensorBlob), "1.0.0", uint64(int64(len(head)+len(message))+size))
	front = append(append(front, head...), message...)
	_, err = f.Write(front)
	require.NoError(t, err)
	end := int64(len(front)) + size
	if _, err := f.WriteAt([]byte{1, 2, 3, 4}, end-4); err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	_, err = f.WriteAt(write(t, executable("e")), end)
	require.NoError(t, err)
	total, err := f.Seek(0, io.SeekEnd)
	require.NoError(t, err)

	// A machine that does other work must not fail the test; without reading
	// the payload it takes well below a millisecond.
	const patience = 2 * time.Second
	t.Run("file", func(t *testing.T) {
		var m *popef.Model
		start := time.Now()
		got := allocated(func() {
			m, err = popef.Load(path)
			require.NoError(t, err)
			p, ok := m.TensorData("w")
			require.True(t, ok)
			require.EqualValues(t, size, len(p))
			require.Equal(t, []byte{0, 1, 2, 3, 4}, p[size-5:])
		})
		require.Less(t, time.Since(start), patience)
		require.Less(t, got, uint64(128<<10))
		require.NoError(t, m.Close())
	})
	t.Run("reader", func(t *testing.T) {
		r := popef.NewReader()
		start := time.Now()
		got := allocated(func() {
			require.NoError(t, r.AddReaderAt(path, f, total))
			models, err := r.Models()
			require.NoError(t, err)
			s, ok := models[0].OpenTensor("w")
			require.True(t, ok)
			require.EqualValues(t, size, s.Size())
			p := make([]byte, 5)
			_, err = s.ReadAt(p, size-5)
			require.NoError(t, err)
			require.Equal(t, []byte{0, 1, 2, 3, 4}, p)
			_, ok = r.Blobs()[1].View()
			require.False(t, ok)
		})
		require.Less(t, time.Since(start), patience)
		require.Less(t, got, uint64(128<<10))
	})
}

func TestViewsDoNotCopy(t *testing.T) {
	file := small(t)
	m, err := popef.LoadBytes("f", file)
	require.NoError(t, err)
	p, ok := m.TensorData("w")
	require.True(t, ok)
	require.Same(t, &file[m.Tensors()[0].PayloadOffset], &p[0])
	require.Equal(t, len(p), cap(p), "appending must not reach into the file")
	exe, err := m.Executable()
	require.NoError(t, err)
	require.Same(t, &file[m.ExecutableBlob().PayloadOffset], &exe[0])
	f, ok := m.Feed("x")
	require.True(t, ok)
	second, err := f.Tensor(1)
	require.NoError(t, err)
	require.Same(t, &file[f.Blob.PayloadOffset+3], &second[0])
}

// broken fails every read beyond the messages.
type broken struct {
	io.ReaderAt
	from int64
}

func (b broken) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > b.from {
		return 0, io.ErrNoProgress
	}
	return b.ReaderAt.ReadAt(p, off)
}

func TestReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	pad := popef.TensorInfo{Shape: []int64{8192}, DataType: popef.U8}
	file := write(t, func(w *popef.Writer) error {
		if err := metadata("e", in("w", pad))(w); err != nil {
			return err
		}
		if err := executable("e")(w); err != nil {
			return err
		}
		return tensor("w", pad)(w)
	})
	require.NoError(t, os.WriteFile(path, file, 0o666))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r := popef.NewReader()
	require.NoError(t, r.AddReaderAt("f", broken{f, 8000}, int64(len(file))))
	models, err := r.Models()
	require.NoError(t, err)
	m := models[0]
	p, ok := m.TensorData("w")
	require.True(t, ok, "the file carries it")
	require.Nil(t, p)
	_, err = m.ReadTensor("w")
	require.ErrorIs(t, err, io.ErrNoProgress)
	require.ErrorContains(t, err, `(tensor data "w")`)
	_, err = m.ReadTensor("absent")
	require.ErrorIs(t, err, popef.ErrNoData)

	err = popef.NewReader().AddReaderAt("f", broken{f, 0}, int64(len(file)))
	require.ErrorIs(t, err, io.ErrNoProgress)
	err = popef.NewReader().AddReaderAt("f", f, int64(len(file)+5))
	require.ErrorIs(t, err, popef.ErrTruncated)
}
