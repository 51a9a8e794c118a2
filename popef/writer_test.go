package popef_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/popeftest"
)

func TestStartingABlobEndsTheOneBefore(t *testing.T) {
	var b popeftest.Buffer
	w := popef.NewWriter(&b)
	first, err := w.CreateOpaque("first", "e")
	require.NoError(t, err)
	_, err = io.WriteString(first, "one")
	require.NoError(t, err)
	second, err := w.CreateOpaque("second", "e")
	require.NoError(t, err)
	_, err = io.WriteString(first, "late")
	require.ErrorIs(t, err, popef.ErrSuperseded)
	require.EqualError(t, err, `popef writer@0x0: blob 0 (opaque "first"): write after the blob has ended`)
	require.NoError(t, first.Close())
	_, err = io.WriteString(second, "two")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	_, err = io.WriteString(second, "late")
	require.ErrorIs(t, err, popef.ErrSuperseded)
	require.ErrorIs(t, w.WriteMetadata(&popef.Metadata{}), popef.ErrClosed)

	parts := take(t, b.Bytes())
	require.Len(t, parts, 2)
	require.Equal(t, "one", string(parts[0].payload))
	require.Equal(t, "two", string(parts[1].payload))
}

func TestFeedsAreFilledInTurns(t *testing.T) {
	big := popef.TensorInfo{Shape: []int64{50_000}, DataType: popef.U8} // buffers and seeks mix
	file := write(t, func(w *popef.Writer) error {
		a, err := w.CreateFeed("a", big, 3)
		require.NoError(t, err)
		b, err := w.CreateFeed("b", xInfo, 2)
		require.NoError(t, err)
		o, err := w.CreateOpaque("o", "e")
		require.NoError(t, err)
		for i := range 3 {
			p := make([]byte, 50_000)
			p[0], p[49_999] = byte(i+1), byte(i+1)
			require.NoError(t, a.WriteTensor(2-i, p))
			_, err = o.Write([]byte{byte('0' + i)})
			require.NoError(t, err)
		}
		require.NoError(t, b.WriteTensor(1, xData[3:]))
		require.NoError(t, b.WriteTensor(0, xData[:3]))
		require.ErrorIs(t, b.WriteTensor(0, xData), popef.ErrMismatch)
		require.Error(t, b.WriteTensor(2, xData[:3]))
		require.Error(t, b.WriteTensor(-1, xData[:3]))
		require.NoError(t, b.Close())
		require.ErrorIs(t, b.WriteTensor(0, xData[:3]), popef.ErrClosed)
		return nil
	})
	parts := take(t, file)
	require.Len(t, parts, 3)
	for i := range 3 {
		require.Equal(t, byte(3-i), parts[0].payload[50_000*i])
		require.Equal(t, byte(3-i), parts[0].payload[50_000*i+49_999])
	}
	require.Equal(t, xData, parts[1].payload)
	require.Equal(t, "012", string(parts[2].payload))
}

func TestWriterRefuses(t *testing.T) {
	bad := popef.TensorInfo{Shape: []int64{-1}, DataType: popef.F32}
	cases := []struct {
		name string
		is   error
		want string
		fn   writeFunc
	}{
		{"short tensor", popef.ErrShortData, "7 bytes of data, F32 [1 2] takes 8", func(w *popef.Writer) error { return w.WriteTensor("w", wInfo, wData[:7]) }},
		{"long tensor", popef.ErrShortData, "9 bytes of data", func(w *popef.Writer) error { return w.WriteTensor("w", wInfo, make([]byte, 9)) }},
		{"short stream", popef.ErrShortData, `blob 0 (tensor data "w"): 7 bytes of data, F32 [1 2] takes 8`, func(w *popef.Writer) error { return payload(w.CreateTensor("w", wInfo))(wData[:7]) }},
		{"long stream", popef.ErrMismatch, "more data than the 8 bytes that F32 [1 2] takes", func(w *popef.Writer) error { return payload(w.CreateTensor("w", wInfo))(make([]byte, 9)) }},
		{"short remote", popef.ErrShortData, "8 bytes of data, F32 [1 2] takes 16", func(w *popef.Writer) error { return payload(w.CreateRemoteTensor("w", wInfo, 2))(wData) }},
		{"tensor twice", popef.ErrDuplicate, `blob 1 (tensor data "w"): tensor data "w" has been written already`, func(w *popef.Writer) error { return errors.Join(tensor("w", wInfo)(w), tensor("w", wInfo)(w)) }},
		{"executable twice", popef.ErrDuplicate, "has been written already", func(w *popef.Writer) error { return errors.Join(executable("e")(w), executable("e")(w)) }},
		{"metadata twice", popef.ErrDuplicate, `metadata "e" has been written already`, func(w *popef.Writer) error { return errors.Join(metadata("e")(w), metadata("e")(w)) }},
		{"executable without name", popef.ErrExecutableName, "executable has no name", executable("")},
		{"bad shape", nil, "dimension 0 is negative", tensor("w", bad)},
		{"bad shape of an anchor", nil, `anchor 0 "w": shape [-1]: dimension 0 is negative`, metadata("e", in("w", bad))},
		{"bad anchor type", nil, "anchor type TensorType(3) is unknown", metadata("e", popef.Anchor{Type: 3})},
		{"bad element type", nil, "DataType(15) is unknown", tensor("w", popef.TensorInfo{DataType: 15})},
		{"huge feed", nil, "exceeds 64 bits", func(w *popef.Writer) error {
			_, err := w.CreateFeed("f", popef.TensorInfo{Shape: []int64{1 << 40}, DataType: popef.F32}, 1<<30)
			return err
		}},
		{"huge feed, nearly", nil, "exceed what a file can hold", func(w *popef.Writer) error {
			_, err := w.CreateFeed("f", popef.TensorInfo{Shape: []int64{1<<63 - 1}, DataType: popef.U8}, 1)
			return err
		}},
		{"feed left unfilled", popef.ErrShortData, `(feed data "x"): 1 of 2 tensors have not been written`, func(w *popef.Writer) error {
			f, err := w.CreateFeed("x", xInfo, 2)
			return errors.Join(err, f.WriteTensor(1, xData[:3]))
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b popeftest.Buffer
			w := popef.NewWriter(&b)
			err := c.fn(w)
			err = errors.Join(err, w.Close())
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			var e *popef.Error
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestRemoteTensor(t *testing.T) {
	file := write(t, func(w *popef.Writer) error {
		return payload(w.CreateRemoteTensor("w", wInfo, 3))(make([]byte, 24))
	})
	require.Len(t, take(t, file)[0].payload, 24)
}

func TestAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.popef")
	require.NoError(t, popef.WriteFile(path, func(w *popef.Writer) error { return errors.Join(metadata("e")(w), executable("e")(w)) }))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	w := popef.NewWriter(f)
	require.NoError(t, opaque("poptorch", "e")(w))
	require.NoError(t, w.Close())
	require.NoError(t, f.Close())
	m, err := popef.Load(path)
	require.NoError(t, err)
	require.Empty(t, m.Warnings())
	require.Equal(t, "poptorch", m.Opaques()[0].Name)
	require.Equal(t, 2, m.Opaques()[0].Index)
	require.NoError(t, m.Close())
	require.NoError(t, m.Close())
	_, err = m.Executable()
	require.ErrorIs(t, err, popef.ErrClosed)
	_, err = io.ReadAll(m.Opaques()[0].Open())
	require.ErrorIs(t, err, popef.ErrClosed)
	_, ok := m.Opaques()[0].View()
	require.False(t, ok)
}

// failing fails once limit bytes have been written, or at the n-th seek.
type failing struct {
	popeftest.Buffer
	limit, seeks int
}

var errDisk = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if f.limit < len(p) {
		n, _ := f.Buffer.Write(p[:f.limit])
		f.limit = 0
		return n, errDisk
	}
	f.limit -= len(p)
	return f.Buffer.Write(p)
}

func (f *failing) Seek(off int64, whence int) (int64, error) {
	if f.seeks--; f.seeks < 0 {
		return 0, errDisk
	}
	return f.Buffer.Seek(off, whence)
}

func TestFailingDestination(t *testing.T) {
	n := len(small(t))
	all := func(f *failing) error {
		w := popef.NewWriter(f)
		return errors.Join(append(writeSmall(w), w.Close())...)
	}
	written := &failing{limit: 1 << 20, seeks: 1 << 20}
	require.NoError(t, all(written))
	total := 1<<20 - written.limit
	require.GreaterOrEqual(t, total, n)
	for limit := range total {
		require.ErrorIs(t, all(&failing{limit: limit, seeks: 1 << 20}), errDisk, "after %d bytes", limit)
	}
	for seeks := range 1<<20 - written.seeks {
		require.ErrorIs(t, all(&failing{limit: 1 << 20, seeks: seeks}), errDisk, "at seek %d", seeks)
	}
}

func TestWriteFileLeavesAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.popef")
	names := func() []string {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		var s []string
		for _, e := range entries {
			s = append(s, e.Name())
		}
		return s
	}
	stop := errors.New("stop")
	half := func(w *popef.Writer) error { return errors.Join(metadata("e")(w), stop) }
	require.ErrorIs(t, popef.WriteFile(path, half), stop)
	require.Empty(t, names())
	unfilled := func(w *popef.Writer) error { _, err := w.CreateFeed("f", xInfo, 1); return err }
	err := popef.WriteFile(path, unfilled)
	require.ErrorIs(t, err, popef.ErrShortData)
	require.ErrorContains(t, err, path+"@0x0: blob 0 (feed data")
	require.Empty(t, names())
	require.Panics(t, func() { popef.WriteFile(path, func(*popef.Writer) error { panic("stop") }) })
	require.Empty(t, names())

	require.NoError(t, popef.WriteFile(path, executable("old")))
	require.NoError(t, os.Chmod(path, 0o640))
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	require.ErrorIs(t, popef.WriteFile(path, half), stop)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, popef.WriteFile(path, executable("new")))
	require.Equal(t, []string{"m.popef"}, names())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())

	err = popef.WriteFile(filepath.Join(dir, "absent", "m.popef"), executable("e"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "taken"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "taken", "x"), nil, 0o666))
	require.Error(t, popef.WriteFile(filepath.Join(dir, "taken"), executable("e")))
	require.Equal(t, []string{"m.popef", "taken"}, names())
}

func TestLargeMetadata(t *testing.T) {
	m := &popef.Metadata{Executable: "e"}
	for range 20_000 {
		m.Anchors = append(m.Anchors, smallMetadata().Anchors...)
	}
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("f", write(t, func(w *popef.Writer) error { return w.WriteMetadata(m) })))
	require.Equal(t, m, r.Blobs()[0].Metadata)
}
