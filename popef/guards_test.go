package popef_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	capnp "capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// TestUnknownKindSmallerThanItsHeader gives a blob of an unknown kind sizes that
// end inside its own header, or exactly behind it.
func TestUnknownKindSmallerThanItsHeader(t *testing.T) {
	known := small(t)
	length := uint64(len(header(t, 9, "1.0.0", 0)))
	for _, size := range []uint64{1, 8, length - 1} {
		file := append(header(t, 9, "1.0.0", size), known...)
		require.ErrorContains(t, popef.NewReader().AddBytes("f", file), "is smaller than its own header", size)
	}
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("f", append(header(t, 9, "1.0.0", length), known...)))
	require.Zero(t, r.Blobs()[0].PayloadSize)
	_, err := r.Models()
	require.NoError(t, err)
}

// TestHeaderThatCannotBeRead has a header, of a kind that would be skipped, whose
// version lies outside the message.
func TestHeaderThatCannotBeRead(t *testing.T) {
	bad := header(t, 9, "1.0.0", uint64(len(header(t, 9, "1.0.0", 0))))
	const version = 8 + 8 + 16                                          // behind the frame, the root pointer and the numbers
	binary.LittleEndian.PutUint64(bad[version:], 1|1000<<2|2<<32|6<<35) // six bytes, a thousand words from here
	err := popef.NewReader().AddBytes("f", append(small(t), bad...))
	require.ErrorIs(t, err, popef.ErrFormat)
	require.ErrorContains(t, err, "header message")
}

// TestPackedRunBeyondItsMessage reads a packed message of a struct of one word,
// then those whose run of zeros or of literal words goes on behind it.
func TestPackedRunBeyondItsMessage(t *testing.T) {
	head := []byte{0x10, 2, 0x10, 1} // one segment of two words, the first says so
	m, err := wire.ReadPacked(bytesView(append(head[:4:4], 0, 0)), 0, 1<<10)
	require.NoError(t, err)
	require.EqualValues(t, 6, m.End)
	for _, word := range [][]byte{{0, 1}, append(append([]byte{0xff}, make([]byte, 8)...), 1, 0, 0, 0, 0, 0, 0, 0, 0)} {
		_, err := wire.ReadPacked(bytesView(append(head[:4:4], word...)), 0, 1<<10)
		require.ErrorContains(t, err, "reaches beyond its end")
	}
}

// feedMessage builds the info message of a feed.
func feedMessage(t *testing.T, name string, n uint32, dt popef.DataType, shape ...int64) []byte {
	return message(t, func(s *capnp.Segment) {
		m, err := wire.NewRootFeedDataInfo(s)
		require.NoError(t, err)
		require.NoError(t, m.SetName(name))
		m.SetNumTensors(n)
		i, err := m.NewTensorInfo()
		require.NoError(t, err)
		i.SetDataType(wire.DataType(dt))
		l, err := i.NewShape(int32(len(shape)))
		require.NoError(t, err)
		for j, d := range shape {
			l.Set(j, d)
		}
	})
}

// TestFeedSizeOverflow describes a feed whose length exceeds 64 bits, so that the
// product of its sizes looks like a short one.
func TestFeedSizeOverflow(t *testing.T) {
	const elements = 1 << 61 // of 8 tensors of 4 bytes: 2^66, or 0 in 64 bits
	for _, n := range []uint32{4, 8, math.MaxUint32} {
		info := popef.TensorInfo{Shape: []int64{elements}, DataType: popef.U8}
		file := write(t, func(w *popef.Writer) error {
			return errors.Join(metadata("e", in("x", info))(w), executable("e")(w))
		})
		file = append(file, put(t, asSpecified, part{kind: uint16(popef.FeedBlob), info: feedMessage(t, "x", n, popef.U8, elements)})...)
		r := popef.NewReader()
		require.NoError(t, r.AddBytes("f", file))
		require.Contains(t, texts(r.Warnings()), "the length of its payload can't be checked", n)
		_, err := r.Models()
		require.ErrorIs(t, err, popef.ErrShortData, n)
		require.ErrorContains(t, err, "exceed 64 bits", n)
	}
}

// TestShortPayloadWarning cuts one byte from the data of a tensor that no model
// takes: linking does not see it, so the reader must say so.
func TestShortPayloadWarning(t *testing.T) {
	for n, want := range map[int]bool{7: true, 8: false, 9: false} {
		r := popef.NewReader()
		require.NoError(t, r.AddBytes("f", put(t, asSpecified, part{kind: uint16(popef.TensorBlob), info: tensorInfoMessage(t, "w", popef.F32, 1, 2), payload: make([]byte, n)})))
		require.Equal(t, want, bytes.Contains([]byte(texts(r.Warnings())), []byte("bytes of payload, 8 expected; it can't be used")), n)
	}
}

// TestOrderOfData lists tensors and feeds in the order of the files, whatever the
// order of the anchors.
func TestOrderOfData(t *testing.T) {
	anchors := []popef.Anchor{in("a", xInfo), in("b", xInfo), in("c", xInfo), in("d", xInfo), in("e", xInfo), in("f", xInfo)}
	_, models, err := files(t, one(tensor("c", xInfo), feed("f", xInfo), metadata("x", anchors...)), one(tensor("a", xInfo), feed("d", xInfo)),
		one(executable("x"), feed("e", xInfo), tensor("b", xInfo)))
	require.NoError(t, err)
	var tensors, feeds []string
	for _, b := range models[0].Tensors() {
		tensors = append(tensors, b.Name)
	}
	for _, f := range models[0].Feeds() {
		feeds = append(feeds, f.Blob.Name)
	}
	require.Equal(t, []string{"c", "a", "b"}, tensors)
	require.Equal(t, []string{"f", "d", "e"}, feeds)
}

// TestRepeatsOutsideRemoteBuffers gives an anchor that is in no remote buffer a
// number of repeats: its data is one tensor all the same.
func TestRepeatsOutsideRemoteBuffers(t *testing.T) {
	a := in("w", wInfo)
	a.Repeats = 3
	file := write(t, func(w *popef.Writer) error { return errors.Join(metadata("e", a)(w), executable("e")(w)) })
	file = append(file, put(t, asSpecified, part{kind: uint16(popef.TensorBlob), info: tensorInfoMessage(t, "w", popef.F32, 1, 2), payload: make([]byte, 24)})...)
	m, err := popef.LoadBytes("f", file)
	require.NoError(t, err)
	p, ok := m.TensorData("w")
	require.True(t, ok)
	require.Len(t, p, 8)
	require.Contains(t, texts(m.Warnings()), "24 bytes of data, F32 [1 2] needs 8; the rest is ignored")
}

// TestAnchorsOfOneName gives two anchors of a name, type and shape one tensor: it
// is listed once, and with as many bytes as the first of them takes.
func TestAnchorsOfOneName(t *testing.T) {
	remote := in("w", wInfo)
	remote.Handle, remote.RemoteBuffer, remote.Repeats = "h2d_again", true, 2
	file := write(t, func(w *popef.Writer) error {
		return errors.Join(metadata("e", in("w", wInfo), remote, in("x", xInfo), in("x", xInfo))(w), executable("e")(w), feed("x", xInfo)(w))
	})
	file = append(file, put(t, asSpecified, part{kind: uint16(popef.TensorBlob), info: tensorInfoMessage(t, "w", popef.F32, 1, 2), payload: make([]byte, 16)})...)
	m, err := popef.LoadBytes("f", file)
	require.NoError(t, err)
	require.Len(t, m.Tensors(), 1)
	require.Len(t, m.Feeds(), 1)
	p, ok := m.TensorData("w")
	require.True(t, ok)
	require.Len(t, p, 8)
}

// TestEmptyCompressedExecutable marks an executable of which nothing was written
// as not compressed: there is no frame.
func TestEmptyCompressedExecutable(t *testing.T) {
	m, err := popef.LoadBytes("f", write(t, func(w *popef.Writer) error {
		return errors.Join(metadata("e")(w), payload(w.CreateExecutable("e", true))(nil))
	}))
	require.NoError(t, err)
	require.EqualValues(t, uint64(math.MaxUint64), m.ExecutableBlob().UncompressedSize)
}

// TestFeedTensorWrittenTwice writes one tensor of a feed twice and another never.
func TestFeedTensorWrittenTwice(t *testing.T) {
	var b popeftest.Buffer
	w := popef.NewWriter(&b)
	f, err := w.CreateFeed("x", xInfo, 2)
	require.NoError(t, err)
	require.NoError(t, f.WriteTensor(0, xData[:3]))
	require.NoError(t, f.WriteTensor(0, xData[3:]))
	require.ErrorIs(t, f.Close(), popef.ErrShortData)
	require.ErrorContains(t, w.Close(), "1 of 2 tensors have not been written")
}

// shortWriter takes half of what it is given and says that all is well.
type shortWriter struct{ popeftest.Buffer }

func (s *shortWriter) Write(p []byte) (int, error) { return s.Buffer.Write(p[:len(p)/2]) }

// TestShortWrites tells a destination that writes less than it was given, without
// an error, from one that writes all.
func TestShortWrites(t *testing.T) {
	w := popef.NewWriter(&shortWriter{})
	err := metadata("e")(w)
	require.ErrorIs(t, errors.Join(err, w.Close()), io.ErrShortWrite)
}

// TestNewerByOneField gives a struct one data word, or one pointer, more than this
// package knows, with a value or without.
func TestNewerByOneField(t *testing.T) {
	for _, c := range []struct {
		data     capnp.Size
		pointers uint16
		set      bool
	}{{8, 2, true}, {8, 2, false}, {0, 3, true}, {0, 3, false}} {
		parts := take(t, small(t))
		parts[4].info = message(t, func(s *capnp.Segment) {
			o, err := capnp.NewRootStruct(s, capnp.ObjectSize{DataSize: c.data, PointerCount: c.pointers})
			require.NoError(t, err)
			require.NoError(t, o.SetText(0, "note"))
			require.NoError(t, o.SetText(1, "42"))
			switch {
			case c.set && c.data > 0:
				o.SetUint64(0, 1)
			case c.set:
				require.NoError(t, o.SetText(2, "unheard of"))
			}
		})
		m, err := popef.LoadBytes("f", put(t, asSpecified, parts...))
		require.NoError(t, err)
		if c.set {
			require.Contains(t, texts(m.Warnings()), "the opaque message has fields that are newer than this reader", c)
		} else {
			require.NotContains(t, texts(m.Warnings()), "newer than this reader", c)
		}
	}
}

// TestNumberOfSegments gives a header as many segments as are allowed, and one
// more.
func TestNumberOfSegments(t *testing.T) {
	one := header(t, 5, "", 0)[8:] // without its table
	for _, n := range []int{1, wire.MaxSegments, wire.MaxSegments + 1} {
		table := make([]byte, (4+4*n+7)&^7)
		binary.LittleEndian.PutUint32(table, uint32(n-1))
		binary.LittleEndian.PutUint32(table[4:], uint32(len(one)/8))
		file := append(table, one...)
		binary.LittleEndian.PutUint64(file[len(table)+8+8:], uint64(len(file))) // BlobHeader.size
		err := popef.NewReader().AddBytes("f", file)
		if n > wire.MaxSegments {
			require.ErrorContains(t, err, "message claims 513 segments, at most 512 are allowed")
		} else {
			require.NoError(t, err, n)
		}
	}
}

// TestRefusedFilesAreClosed looks for files that stay mapped or open after they
// were refused: by the reader, and by Load because they hold no model.
func TestRefusedFilesAreClosed(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skipf("nothing tells which files are mapped: %v", err)
	}
	require.NotEmpty(t, maps)
	dir := t.TempDir()
	refused, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"broken": []byte("not a model"), "none": write(t, executable("e")),
		"two": append(write(t, func(w *popef.Writer) error { return errors.Join(metadata("a")(w), executable("a")(w)) }),
			write(t, func(w *popef.Writer) error { return errors.Join(metadata("b")(w), executable("b")(w)) })...),
	} {
		path := filepath.Join(refused, name)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		_, err := popef.Load(path)
		require.Error(t, err, name)
		maps, err := os.ReadFile("/proc/self/maps")
		require.NoError(t, err)
		require.NotContains(t, string(maps), path)
	}
}
