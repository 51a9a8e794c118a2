package popef_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	capnp "capnproto.org/go/capnp/v3"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

// texts returns the texts of warnings, for matching.
func texts(w []popef.Warning) string {
	var s []string
	for _, x := range w {
		s = append(s, x.String())
	}
	return strings.Join(s, "\n")
}

func TestEveryReadingOfSizes(t *testing.T) {
	file := small(t)
	parts := take(t, file)
	cases := []struct {
		name, warning string
		how           reading
	}{
		{"as specified", "", asSpecified},
		{"without header", "sizes of blobs leave out the header message", reading{intoIt: true}},
		{"payload alone", "sizes of blobs count the payload alone", reading{}},
		{"packed", "messages are packed", reading{packed: true, header: true, intoIt: true}},
		{"packed without header", "packed; sizes of blobs leave out the header", reading{packed: true, intoIt: true}},
		{"packed payload alone", "packed; sizes of blobs count the payload alone", reading{packed: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := put(t, c.how, parts...)
			for name, add := range map[string]func(*popef.Reader) error{
				"bytes":  func(r *popef.Reader) error { return r.AddBytes("f", b) },
				"reader": func(r *popef.Reader) error { return r.AddReaderAt("f", bytes.NewReader(b), int64(len(b))) },
			} {
				r := popef.NewReader()
				require.NoError(t, add(r), name)
				models, err := r.Models()
				require.NoError(t, err, name)
				require.Len(t, models, 1, name)
				checkSmall(t, models[0])
				if c.warning == "" {
					require.Empty(t, r.Warnings())
				} else {
					require.Len(t, r.Warnings(), 1)
					require.Contains(t, texts(r.Warnings()), c.warning)
				}
			}
		})
	}
}

func TestUnfinishedBlob(t *testing.T) {
	parts := take(t, small(t))
	last := len(parts) - 1
	t.Run("last", func(t *testing.T) {
		p := append([]part(nil), parts...)
		p[last].noSize = true
		m, err := popef.LoadBytes("f", put(t, asSpecified, p...))
		require.NoError(t, err)
		checkSmall(t, m)
		require.Contains(t, texts(m.Warnings()), `blob 4 (opaque "note"): its writer was never closed`)
		require.True(t, m.Opaques()[0].Unfinished)
	})
	t.Run("last, cut short", func(t *testing.T) {
		tensor := parts[2]
		tensor.noSize = true
		tensor.payload = tensor.payload[:7]
		_, err := popef.LoadBytes("f", put(t, asSpecified, parts[0], parts[1], tensor))
		require.ErrorIs(t, err, popef.ErrShortData)
	})
	for name, payload := range map[string][]byte{
		"payload like an unknown blob of no bytes":   header(t, 9, "1.0.0", 0),
		"payload like a blob that the file is short": append(header(t, uint16(popef.OpaqueBlob), "1.0.0", 1<<20), opaqueMessage(t, "a", "b")...),
	} {
		t.Run(name, func(t *testing.T) {
			p := append([]part(nil), parts...)
			p[last].noSize, p[last].payload = true, payload
			m, err := popef.LoadBytes("f", put(t, asSpecified, p...))
			require.NoError(t, err)
			require.True(t, m.Opaques()[0].Unfinished)
			got, err := m.Opaques()[0].Bytes()
			require.NoError(t, err)
			require.Equal(t, payload, got)
		})
	}
	for i := range last {
		p := append([]part(nil), parts...)
		p[i].noSize = true
		r := popef.NewReader()
		err := r.AddBytes("f", put(t, asSpecified, p...))
		if i == 1 { // nothing tells where an executable ends
			require.NoError(t, err)
			require.Len(t, r.Blobs(), 2)
			require.Contains(t, texts(r.Warnings()), "reach to the end of the file")
			continue
		}
		require.ErrorIs(t, err, popef.ErrFormat, "blob %d", i)
		require.ErrorContains(t, err, "another blob follows", "blob %d", i)
	}
}

func TestUnknownKindIsSkipped(t *testing.T) {
	parts := take(t, small(t))
	odd := part{kind: 5, version: "9", info: opaqueMessage(t, "a", "b"), payload: []byte("later")}
	for _, how := range []reading{asSpecified, {packed: true, header: true, intoIt: true}, {}} {
		b := put(t, how, parts[0], odd, parts[1], parts[2], odd, parts[3], parts[4])
		m, err := popef.LoadBytes("f", b)
		require.NoError(t, err)
		checkSmall(t, m)
		require.Contains(t, texts(m.Warnings()), "blob 1 (BlobKind(5)): blobs of kind 5 are newer than this reader; skipped")
	}
}

func TestNewerAndOlderStructs(t *testing.T) {
	parts := take(t, small(t))
	newer := message(t, func(s *capnp.Segment) {
		o, err := capnp.NewRootStruct(s, capnp.ObjectSize{DataSize: 16, PointerCount: 4})
		require.NoError(t, err)
		o.SetUint64(8, 1)
		require.NoError(t, o.SetText(0, "note"))
		require.NoError(t, o.SetText(1, "42"))
		require.NoError(t, o.SetText(3, "unheard of"))
	})
	parts[4].info = newer
	// Metadata of before the flags, the options and the iterations.
	parts[0].info = message(t, func(s *capnp.Segment) {
		m, err := capnp.NewRootStruct(s, capnp.ObjectSize{DataSize: 8, PointerCount: 3})
		require.NoError(t, err)
		m.SetUint32(0, 3)
		m.SetUint32(4, 4)
		require.NoError(t, m.SetText(2, "42"))
	})
	m, err := popef.LoadBytes("f", put(t, asSpecified, parts...))
	require.NoError(t, err)
	require.Equal(t, popef.Metadata{ReplicationFactor: 3, NumIPUs: 4, Executable: "42"}, m.Metadata)
	require.Equal(t, "note", m.Opaques()[0].Name)
	require.Contains(t, texts(m.Warnings()), "the opaque message has fields that are newer than this reader")
	require.NotContains(t, texts(m.Warnings()), "the metadata message has fields")
}

func TestUnknownEnumValues(t *testing.T) {
	parts := take(t, small(t))
	parts[2].info = tensorInfoMessage(t, "later", 15, 3)
	parts = append(parts, part{kind: uint16(popef.MetadataBlob), info: message(t, func(s *capnp.Segment) {
		m, err := wire.NewRootMetadata(s)
		require.NoError(t, err)
		require.NoError(t, m.SetExecutable("other"))
		l, err := m.NewAnchors(1)
		require.NoError(t, err)
		l.At(0).SetType(9)
		i, err := l.At(0).NewTensorInfo()
		require.NoError(t, err)
		i.SetDataType(99)
	})})
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("f", put(t, asSpecified, parts...)))
	w := texts(r.Warnings())
	require.Contains(t, w, "element type DataType(15) is unknown")
	require.Contains(t, w, `anchor "": element type DataType(99) is unknown`)
	require.Contains(t, w, `anchor "": anchor type 9 is unknown`)
	// The bytes are still to be had.
	p, err := r.Blobs()[2].Bytes()
	require.NoError(t, err)
	require.Equal(t, wData, p)
}

func TestMetadataWithPayload(t *testing.T) {
	parts := take(t, small(t))
	parts[0].payload = []byte("?")
	m, err := popef.LoadBytes("f", put(t, asSpecified, parts...))
	require.NoError(t, err)
	checkSmall(t, m)
	require.Contains(t, texts(m.Warnings()), "metadata has none")
}

func TestMistypedFields(t *testing.T) {
	badName := message(t, func(s *capnp.Segment) {
		o, err := capnp.NewRootStruct(s, capnp.ObjectSize{PointerCount: 2})
		require.NoError(t, err)
		l, err := capnp.NewUInt32List(s, 3)
		require.NoError(t, err)
		require.NoError(t, o.SetPtr(0, l.ToPtr()))
	})
	deep := make([]int64, popef.MaxRank+1)
	cases := []struct {
		name, want string
		p          part
	}{
		{"name that is no text", "field name: not a text", part{kind: 4, info: badName}},
		{"negative dimension", "dimension 1 is negative", part{kind: 2, info: tensorInfoMessage(t, "w", popef.F32, 2, -1)}},
		{"too many elements", "exceeds 64 bits", part{kind: 2, info: tensorInfoMessage(t, "w", popef.U8, math.MaxInt64, 2)}},
		{"too many bytes", "exceeds 64 bits", part{kind: 2, info: tensorInfoMessage(t, "w", popef.F32, math.MaxInt64)}},
		{"rank", "field shape: 65 dimensions", part{kind: 2, info: tensorInfoMessage(t, "w", popef.F32, deep...)}},
	}
	for _, c := range cases {
		err := popef.NewReader().AddBytes("f", put(t, asSpecified, c.p))
		require.ErrorIs(t, err, popef.ErrFormat, c.name)
		require.ErrorContains(t, err, c.want, c.name)
		var e *popef.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, 0, e.Blob)
		require.Equal(t, "f", e.File)
	}
}
