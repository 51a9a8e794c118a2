package popef_test

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	capnp "capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/packed"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
	"github.com/popefgen/popefgen/popef/popeftest"
)

// part is one blob taken apart, to be put together again in odd ways.
type part struct {
	kind    uint16
	version string
	info    []byte // message
	payload []byte
	noSize  bool // leave the size 0
}

// frameLen returns the length of the plain message that b starts with.
func frameLen(b []byte) int {
	n := int(binary.LittleEndian.Uint32(b)) + 1
	size := (4 + 4*n + 7) &^ 7
	for i := range n {
		size += 8 * int(binary.LittleEndian.Uint32(b[4+4*i:]))
	}
	return size
}

// header builds the header message of a blob.
func header(t testing.TB, kind uint16, version string, size uint64) []byte {
	t.Helper()
	return message(t, func(s *capnp.Segment) {
		h, err := wire.NewRootBlobHeader(s)
		require.NoError(t, err)
		h.SetType(wire.BlobType(kind))
		h.SetSize(size)
		if version != "" {
			require.NoError(t, h.SetVersion(version))
		}
	})
}

// message builds a plain message of one segment.
func message(t testing.TB, build func(*capnp.Segment)) []byte {
	t.Helper()
	m, s, err := capnp.NewMessage(capnp.SingleSegment(nil))
	require.NoError(t, err)
	build(s)
	b, err := m.Marshal()
	require.NoError(t, err)
	return b
}

// tensorInfoMessage builds the info message of a tensor blob.
func tensorInfoMessage(t testing.TB, name string, dt popef.DataType, shape ...int64) []byte {
	t.Helper()
	return message(t, func(s *capnp.Segment) {
		m, err := wire.NewRootTensorDataInfo(s)
		require.NoError(t, err)
		require.NoError(t, m.SetName(name))
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

// opaqueMessage builds the info message of an opaque blob.
func opaqueMessage(t testing.TB, name, executable string) []byte {
	t.Helper()
	return message(t, func(s *capnp.Segment) {
		m, err := wire.NewRootOpaque(s)
		require.NoError(t, err)
		require.NoError(t, m.SetName(name))
		require.NoError(t, m.SetExecutable(executable))
	})
}

// take takes a file apart.
func take(t testing.TB, file []byte) []part {
	t.Helper()
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("take", file))
	var parts []part
	for _, b := range r.Blobs() {
		at := file[b.Offset:]
		at = at[frameLen(at):]
		p, err := b.Bytes()
		require.NoError(t, err)
		parts = append(parts, part{kind: uint16(b.Kind), version: b.Version, info: at[:frameLen(at)], payload: p})
	}
	return parts
}

// reading says how sizes count, as scan.go's dialects do.
type reading struct {
	packed         bool
	header, intoIt bool // the size counts the header message; the info message
}

var asSpecified = reading{header: true, intoIt: true}

// put puts a file together.
func put(t testing.TB, how reading, parts ...part) []byte {
	t.Helper()
	var file []byte
	for _, p := range parts {
		encode := func(size uint64) (head, info []byte) {
			head, info = header(t, p.kind, p.version, size), p.info
			if how.packed {
				head, info = packed.Pack(nil, head), packed.Pack(nil, info)
			}
			return head, info
		}
		// The length of a packed header depends on the size within.
		size := uint64(0)
		head, info := encode(size)
		for !p.noSize {
			want := uint64(len(p.payload))
			if how.header {
				want += uint64(len(head))
			}
			if how.intoIt {
				want += uint64(len(info))
			}
			if want == size {
				break
			}
			size = want
			head, info = encode(size)
		}
		file = append(append(append(file, head...), info...), p.payload...)
	}
	return file
}

// write returns the file that fn writes.
func write(t testing.TB, fn func(*popef.Writer) error, opts ...popef.WriterOption) []byte {
	t.Helper()
	var b popeftest.Buffer
	w := popef.NewWriter(&b, opts...)
	require.NoError(t, fn(w))
	require.NoError(t, w.Close())
	return b.Bytes()
}

// payload writes all of a blob that a Create method has started.
func payload(w io.WriteCloser, err error) func(data []byte) error {
	return func(data []byte) error {
		if err != nil {
			return err
		}
		_, err := w.Write(data)
		return errors.Join(err, w.Close())
	}
}

// small returns a file of one small model: every kind of blob once.
func small(t testing.TB, opts ...popef.WriterOption) []byte {
	t.Helper()
	return write(t, func(w *popef.Writer) error {
		return errors.Join(writeSmall(w)...)
	}, opts...)
}

var (
	wInfo = popef.TensorInfo{Shape: []int64{1, 2}, DataType: popef.F32}
	xInfo = popef.TensorInfo{Shape: []int64{3}, DataType: popef.U8}
)

func smallMetadata() *popef.Metadata {
	return &popef.Metadata{
		ReplicationFactor: 1, NumIPUs: 1, NumProcesses: 1, IPUVersion: 21, Executable: "42", IsInference: true,
		DeviceIterations: 2, SeedHandle: "seed", EngineOptions: []popef.Option{{Name: "a", Value: "b"}},
		Anchors: []popef.Anchor{
			{Name: "w", Handle: "h2d_w", Programs: []uint32{0}, Info: wInfo, Type: popef.Input},
			{Name: "x", Handle: "h2d_x", Programs: []uint32{5}, Info: xInfo, Type: popef.Input},
			{Name: "w", Handle: "d2h_w", Programs: []uint32{7}, Info: wInfo, Type: popef.Output},
			{Name: "y", Handle: "d2h_y", Programs: []uint32{5}, Info: xInfo, Type: popef.Output, PerReplica: true},
		},
		ProgramFlow: popef.ProgramFlow{Load: []uint32{0}, Main: []uint32{5}, Save: []uint32{7}},
		Programs:    []popef.ProgramInfo{{Index: 5, Name: "Program"}, {Index: 0, Name: "WeightsFromHost"}},
	}
}

var (
	wData = []byte{0, 0, 128, 63, 0, 0, 0, 64}
	xData = []byte{1, 2, 3, 4, 5, 6}
)

func writeSmall(w *popef.Writer) []error {
	errs := []error{
		w.WriteMetadata(smallMetadata()),
		payload(w.CreateExecutable("42", false))([]byte("GC_EXE_3")),
		w.WriteTensor("w", wInfo, wData),
	}
	f, err := w.CreateFeed("x", xInfo, 2)
	if errs = append(errs, err); err == nil {
		errs = append(errs, f.WriteTensor(0, xData[:3]), f.WriteTensor(1, xData[3:]))
	}
	return append(errs, payload(w.CreateOpaque("note", "42"))([]byte("hello")))
}

// checkSmall checks the model that writeSmall wrote.
func checkSmall(t testing.TB, m *popef.Model) {
	t.Helper()
	require.Equal(t, *smallMetadata(), m.Metadata)
	exe, err := m.Executable()
	require.NoError(t, err)
	require.Equal(t, "GC_EXE_3", string(exe))
	p, ok := m.TensorData("w")
	require.True(t, ok)
	require.Equal(t, wData, p)
	f, ok := m.Feed("x")
	require.True(t, ok)
	require.Equal(t, 2, f.Len())
	for i := range 2 {
		p, err := f.Tensor(i)
		require.NoError(t, err)
		require.Equal(t, xData[3*i:3*i+3], p)
	}
	b, ok := m.Data("x")
	require.True(t, ok)
	require.Same(t, f.Blob, b)
	_, ok = m.Data("y")
	require.False(t, ok)
	require.Same(t, &m.Metadata.Anchors[0], &m.MetadataBlob().Metadata.Anchors[0])
	require.Len(t, m.Opaques(), 1)
	o := m.Opaques()[0]
	require.Equal(t, "note", o.Name)
	p, err = io.ReadAll(o.Open())
	require.NoError(t, err)
	require.Equal(t, "hello", string(p))
}

// testData returns the path of a public test file, or skips the test.
func testData(t testing.TB, elem ...string) string {
	t.Helper()
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		root, err := os.Getwd()
		require.NoError(t, err)
		for {
			if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
				break
			}
			require.NotEqual(t, root, filepath.Dir(root), "go.mod not found")
			root = filepath.Dir(root)
		}
		dir = filepath.Join(root, "..", "shared")
	}
	path := filepath.Join(append([]string{dir}, elem...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no test data: %v", err)
	}
	return path
}
