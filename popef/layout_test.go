package popef_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

// Bytes that the Cap'n Proto C++ library wrote, from the format's description.
const minimalFile = `
	00 00 00 00 05 00 00 00 00 00 00 00 02 00 01 00
	04 00 00 00 00 00 00 00 65 00 00 00 00 00 00 00
	01 00 00 00 32 00 00 00 31 2e 30 2e 30 00 00 00
	00 00 00 00 05 00 00 00 00 00 00 00 00 00 02 00
	05 00 00 00 2a 00 00 00 05 00 00 00 1a 00 00 00
	6e 6f 74 65 00 00 00 00 34 32 00 00 00 00 00 00
	68 65 6c 6c 6f`

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}

func TestMinimalFileToTheByte(t *testing.T) {
	note := func(w *popef.Writer) error { return payload(w.CreateOpaque("note", "42"))([]byte("hello")) }
	for _, opts := range [][]popef.WriterOption{nil, {popef.WithoutAlignment()}} {
		file := write(t, note, opts...)
		require.Equal(t, unhex(t, minimalFile), file)
		sum := sha256.Sum256(file)
		require.Equal(t, "ed4887d5297f2bd9fd9e7005c83c748acaa84d88329863b86bbb5757c69db285", hex.EncodeToString(sum[:]))
	}
}

func TestTensorBlobToTheByte(t *testing.T) {
	want := unhex(t, `
		00 00 00 00 05 00 00 00 00 00 00 00 02 00 01 00
		02 00 00 00 00 00 00 00 80 00 00 00 00 00 00 00
		01 00 00 00 32 00 00 00 31 2e 30 2e 30 00 00 00
		00 00 00 00 08 00 00 00 00 00 00 00 00 00 02 00
		05 00 00 00 12 00 00 00 04 00 00 00 01 00 01 00
		77 00 00 00 00 00 00 00 03 00 00 00 00 00 00 00
		01 00 00 00 15 00 00 00 01 00 00 00 00 00 00 00
		02 00 00 00 00 00 00 00 00 00 80 3f 00 00 00 40`)
	whole := func(w *popef.Writer) error { return w.WriteTensor("w", wInfo, wData) }
	streamed := func(w *popef.Writer) error { return payload(w.CreateTensor("w", wInfo))(wData) }
	require.Equal(t, want, write(t, whole, popef.WithoutAlignment()))
	require.Equal(t, want, write(t, streamed, popef.WithoutAlignment()))
	// The payload would start at 0x78: one zero word takes it to 0x80.
	require.Equal(t, write(t, whole), write(t, streamed))
	aligned := write(t, whole)
	require.Len(t, aligned, 0x88)
	require.Equal(t, wData, aligned[0x80:])
	require.Equal(t, byte(9), aligned[0x34], "words of the info message")
}

func TestMessageLengths(t *testing.T) {
	headers := map[string]int{"": 40, "1": 48, "1.0.0": 48, "1234567": 48, "12345678": 56}
	for version, want := range headers {
		file := write(t, func(w *popef.Writer) error { return w.WriteMetadata(&popef.Metadata{}) }, popef.WithVersion(version))
		require.Equal(t, want, frameLen(file), "version %q", version)
	}
	infos := []struct {
		name  string
		want  int
		write func(w *popef.Writer) error
	}{
		{"executable", 40, func(w *popef.Writer) error { return payload(w.CreateExecutable("42", false))(nil) }},
		{"feed", 72, func(w *popef.Writer) error { _, err := w.CreateFeed("input", xInfo, 0); return err }},
		{"scalar", 56, func(w *popef.Writer) error {
			return w.WriteTensor("s", popef.TensorInfo{DataType: popef.U8}, []byte{1})
		}},
	}
	for _, c := range infos {
		file := write(t, c.write, popef.WithoutAlignment())
		info := file[frameLen(file):]
		require.Equal(t, c.want, frameLen(info), c.name)
		if c.name == "executable" {
			require.Equal(t, strings.Repeat("\xff", 8), string(info[16:24]))
		}
	}
}

// bytesView reads messages out of bytes.
type bytesView []byte

func (v bytesView) Size() int64                         { return int64(len(v)) }
func (v bytesView) At(off int64, n int) ([]byte, error) { return v[off:][:n], nil }

func TestSmallMetadataMessage(t *testing.T) {
	want := &popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 2, IsInference: true, DeviceIterations: 8,
		Executable: "42",
		Anchors: []popef.Anchor{{
			Name: "x", Handle: "h2d_x", Programs: []uint32{5}, Type: popef.Input,
			Info: popef.TensorInfo{Shape: []int64{4, 16}, DataType: popef.F32},
		}},
		ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}},
		Programs:    []popef.ProgramInfo{{Index: 5, Name: "Program"}},
	}
	ours := take(t, write(t, func(w *popef.Writer) error { return w.WriteMetadata(want) }))[0].info
	require.Len(t, ours, 280)

	theirs, err := os.ReadFile(testData(t, "data", "popef-samples", "metadata_small.bin"))
	require.NoError(t, err)
	file := put(t, asSpecified, part{kind: uint16(popef.MetadataBlob), info: theirs})
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("small", file))
	require.Equal(t, want, r.Blobs()[0].Metadata)
	require.Empty(t, r.Warnings())
}

func TestMetadataOfThreeSegments(t *testing.T) {
	theirs, err := os.ReadFile(testData(t, "data", "popef-samples", "metadata_200anchors_3segments.bin"))
	require.NoError(t, err)
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("segments", put(t, asSpecified, part{kind: uint16(popef.MetadataBlob), info: theirs})))
	m := r.Blobs()[0].Metadata
	require.Len(t, m.Anchors, 200)
	seen := map[string]bool{}
	for _, a := range m.Anchors {
		require.NotEmpty(t, a.Name)
		require.NotEmpty(t, a.Handle)
		seen[a.Handle] = true
	}
	require.Len(t, seen, 200)
	// What we write of it fits one segment and says the same.
	again := write(t, func(w *popef.Writer) error { return w.WriteMetadata(m) })
	require.NoError(t, r.AddBytes("again", again))
	require.Equal(t, m, r.Blobs()[1].Metadata)
}

func TestSampleFiles(t *testing.T) {
	for name, want := range map[string]string{
		"min_opaque.popef": "opaque note",
		"four_blobs.popef": "executable 42, tensor data w, tensor data s, feed data input",
	} {
		file, err := os.ReadFile(testData(t, "data", "popef-samples", name))
		require.NoError(t, err)
		r := popef.NewReader()
		require.NoError(t, r.AddBytes(name, file))
		require.Empty(t, r.Warnings())
		var got []string
		for _, b := range r.Blobs() {
			require.Equal(t, "1.0.0", b.Version)
			got = append(got, b.Kind.String()+" "+b.Name)
		}
		require.Equal(t, want, strings.Join(got, ", "))
	}
	// The same blobs written by us are the same bytes, though the feed starts at
	// an odd offset.
	file := write(t, func(w *popef.Writer) error {
		if err := errors.Join(
			payload(w.CreateExecutable("42", false))([]byte("GC_EXE_3")),
			w.WriteTensor("w", wInfo, wData),
			w.WriteTensor("s", popef.TensorInfo{DataType: popef.U8}, []byte{7}),
		); err != nil {
			return err
		}
		f, err := w.CreateFeed("input", popef.TensorInfo{Shape: []int64{2}, DataType: popef.S16}, 3)
		if err != nil {
			return err
		}
		for i := range 3 {
			err = errors.Join(err, f.WriteTensor(i, []byte{byte(2*i + 1), 0, byte(2*i + 2), 0}))
		}
		return err
	}, popef.WithoutAlignment())
	theirs, err := os.ReadFile(testData(t, "data", "popef-samples", "four_blobs.popef"))
	require.NoError(t, err)
	require.Equal(t, theirs, file)
}

func TestFraming(t *testing.T) {
	good := unhex(t, minimalFile)[:48]
	m, err := wire.Read(bytesView(good), 0, 1<<20)
	require.NoError(t, err)
	require.EqualValues(t, 48, m.End)
	require.EqualValues(t, 40, m.Size)
	cases := []struct {
		name, hex string
		is        error
	}{
		{"empty", "", wire.ErrTruncated},
		{"half a table", "00 00 00 00 05", wire.ErrTruncated},
		{"2^32 segments", "ff ff ff ff 00 00 00 00 00 00 00 00 00 00 00 00", nil},
		{"513 segments", "00 02 00 00 00 00 00 00", nil},
		{"512 segments, no table", "ff 01 00 00 00 00 00 00", wire.ErrTruncated},
		{"longer than the file", "00 00 00 00 ff ff ff ff 00 00 00 00 00 00 00 00", wire.ErrTruncated},
		{"no root", "00 00 00 00 00 00 00 00", nil},
		{"null root", "00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00", nil},
		{"list root", "00 00 00 00 01 00 00 00 01 00 00 00 00 00 00 00", nil},
		{"root outside", "00 00 00 00 01 00 00 00 00 00 00 00 02 00 01 00", nil},
		{"far pointer to itself", "00 00 00 00 01 00 00 00 02 00 00 00 00 00 00 00", nil},
		{"capability root", "00 00 00 00 01 00 00 00 03 00 00 00 00 00 00 00", nil},
	}
	for _, c := range cases {
		_, err := wire.Read(bytesView(unhex(t, c.hex)), 0, 1<<20)
		require.Error(t, err, c.name)
		if c.is != nil {
			require.ErrorIs(t, err, c.is, c.name)
		}
	}
	_, err = wire.Read(bytesView(good), 0, 39)
	require.ErrorIs(t, err, wire.ErrTooLarge)
}
