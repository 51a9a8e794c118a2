package onnx_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/onnxtest"
)

type pb = onnxtest.Message

func TestDecode(t *testing.T) {
	got, err := onnx.Decode(onnxtest.Example(), "")
	require.NoError(t, err)
	want := &onnx.Model{
		Size: int64(len(onnxtest.Example())), IRVersion: 8, ProducerName: "test",
		Opsets: []onnx.Opset{{Version: 13}, {Domain: "com.x", Version: 1}},
		Graph: &onnx.Graph{
			Name: "g",
			Nodes: []*onnx.Node{{OpType: "Foo", Name: "n0", Inputs: []string{"x", "w"}, Outputs: []string{"y"}, Attributes: []*onnx.Attribute{
				{Name: "axis", Type: onnx.AttrInt, Int: -1}, {Name: "alpha", Type: onnx.AttrFloat, Float: 0.5},
			}}},
			Initializers: []*onnx.Tensor{{Name: "w", Elem: onnx.Float, Dims: []int64{2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}}},
			Inputs:       []onnx.ValueInfo{{Name: "x", Elem: onnx.Float, HasShape: true, Dims: []onnx.Dim{{Symbol: "N"}, {Known: true, Value: 3}}}},
			Outputs:      []onnx.ValueInfo{{Name: "y", NotDense: "sequence", Other: []byte{0x12, 2, 0x22, 0}}},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestDecodeTensor(t *testing.T) {
	for _, c := range []struct {
		name string
		in   pb
		want []byte
		err  string
	}{
		{"raw", pb{}.Packed(1, 2).Int(2, 6).Bytes(9, []byte{1, 0, 0, 0, 2, 0, 0, 0}), []byte{1, 0, 0, 0, 2, 0, 0, 0}, ""},
		{"unpacked dims and int32_data", pb{}.Int(1, 2).Int(1, 1).Int(2, 3).Int(5, -1).Int(5, 7), []byte{255, 7}, ""},
		{"float16 as bit patterns", pb{}.Packed(1, 1).Int(2, 10).Packed(5, 0x3c00), []byte{0, 0x3c}, ""},
		{"int4 raw, low nibble first", pb{}.Packed(1, 3).Int(2, 22).Bytes(9, []byte{0x2f, 0x08}), []byte{255, 2, 0xf8}, ""},
		{"uint2 in int32_data", pb{}.Packed(1, 5).Int(2, 25).Packed(5, 0b11100100, 1), []byte{0, 1, 2, 3, 1}, ""},
		{"uint64_data", pb{}.Packed(1, 1).Int(2, 12).Packed(11, 0xffffffff), []byte{255, 255, 255, 255}, ""},
		{"scalar", pb{}.Int(2, 9).Bytes(9, []byte{1}), []byte{1}, ""},
		{"no elements, no data", pb{}.Packed(1, 0, 4).Int(2, 1), []byte{}, ""},
		{"short", pb{}.Packed(1, 3).Int(2, 1).Bytes(9, make([]byte, 8)), nil, "found 8 bytes of data, want 12"},
		{"no data", pb{}.Packed(1, 1<<40).Int(2, 1), nil, "found 0 numbers in float_data, want 1099511627776"},
		{"overflow", pb{}.Packed(1, 1<<40, 1<<40).Int(2, 1), nil, "more elements than 64 bits count"},
		{"negative", pb{}.Packed(1, -1).Int(2, 1), nil, "dimension -1 is negative"},
		{"cut", pb{}.Packed(1, 1).Int(2, 1).Bytes(9, make([]byte, 4))[:8], nil, "field 9"},
		{"no type", pb{}.Packed(1, 1), nil, "no element type"},
		{"external without a directory", pb{}.Packed(1, 1).Int(2, 1).Int(14, 1).Bytes(13, pb{}.Str(1, "location").Str(2, "w.bin")), nil, "has no directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := onnx.DecodeTensor(c.in)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, append([]byte{}, got.Data...))
		})
	}
}

func TestExternalData(t *testing.T) {
	outer := t.TempDir()
	dir := filepath.Join(outer, "model")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(outer, "secret"), make([]byte, 64), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "w.bin"), []byte("....\x00\x00\x80\x3f"), 0o666))
	require.NoError(t, os.Symlink(filepath.Join(outer, "secret"), filepath.Join(dir, "link")))
	entry := func(k, v string) []byte { return pb{}.Str(1, k).Str(2, v) }
	model := func(loc, off, length string) []byte {
		w := pb{}.Packed(1, 1).Int(2, 1).Str(8, "w").Int(14, 1).Bytes(13, entry("location", loc))
		if off != "" {
			w = w.Bytes(13, entry("offset", off))
		}
		if length != "" {
			w = w.Bytes(13, entry("length", length))
		}
		return pb{}.Int(1, 8).Bytes(7, pb{}.Bytes(5, w)).Bytes(8, pb{}.Int(2, 13))
	}
	for _, c := range []struct{ name, loc, off, length, err string }{
		{"with offset", "w.bin", "4", "4", ""},
		{"to the end", "w.bin", "4", "", ""},
		{"outside", "../secret", "0", "4", "must lie in the model's directory"},
		{"absolute", filepath.Join(outer, "secret"), "0", "4", "must lie in the model's directory"},
		{"link outside", "link", "0", "4", "must lie in the model's directory"},
		{"missing", "gone.bin", "0", "4", `"gone.bin"`},
		{"directory", ".", "0", "4", "not a regular file"},
		{"too short", "w.bin", "6", "4", "has 8 bytes, the model wants 4 at offset 6"},
		{"offset overflow", "w.bin", "9223372036854775807", "9223372036854775807", "has 8 bytes"},
		{"wrong length", "w.bin", "0", "", "gives 8 bytes, want 4"},
		{"offset not a number", "w.bin", "x", "4", `offset "x"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(dir, "m.onnx")
			require.NoError(t, os.WriteFile(path, model(c.loc, c.off, c.length), 0o666))
			m, err := onnx.ReadFile(path)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.ErrorContains(t, err, `tensor "w"`)
				return
			}
			require.NoError(t, err)
			require.Equal(t, []byte{0, 0, 0x80, 0x3f}, m.Graph.Initializers[0].Data)
		})
	}
}

func TestDecodeDeep(t *testing.T) {
	g := pb{}.Str(2, "leaf")
	for range 200 {
		g = pb{}.Bytes(1, pb{}.Str(4, "If").Bytes(5, pb{}.Str(1, "then_branch").Bytes(6, g)))
	}
	_, err := onnx.Decode(pb{}.Bytes(7, g), "")
	require.ErrorContains(t, err, "nested more than 64 deep")
}

func TestDecodeNotAModel(t *testing.T) {
	for _, in := range [][]byte{nil, []byte("hello"), pb{}.Int(1, 3), {0xff}} {
		_, err := onnx.Decode(in, "")
		require.ErrorIs(t, err, onnx.ErrFormat, "%q", in)
	}
}

// TestReadPublicData reads every model and tensor of the public test data.
func TestReadPublicData(t *testing.T) {
	n := 0
	dir, err := filepath.EvalSymlinks(onnxtest.Data(t))
	require.NoError(t, err)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(path, ".onnx"):
			n++
			_, err = onnx.ReadFile(path)
		case strings.HasSuffix(path, ".pb"):
			n++
			_, err = onnx.ReadTensor(path)
		}
		return err
	})
	require.NoError(t, err)
	require.Positive(t, n)
}

func FuzzDecode(f *testing.F) {
	f.Add(onnxtest.Example())
	f.Add([]byte(pb{}.Bytes(7, pb{}.Bytes(5, pb{}.Packed(1, 3).Int(2, 22).Bytes(9, []byte{0x2f, 0x08})))))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := onnx.Decode(b, "")
		if err == nil && m.Graph == nil {
			t.Error("a model without a graph and without an error")
		}
		if err == nil {
			if _, err := onnx.Encode(m); err == nil {
				requireRoundTrip(t, "what was read", m)
			}
		}
		onnx.DecodeTensor(b)
	})
}

// TestReadIsBounded reads files whose messages or external files would take far
// more memory than they are worth.
func TestReadIsBounded(t *testing.T) {
	file := func(g pb) []byte { return pb{}.Int(1, 8).Bytes(8, pb{}.Int(2, 13)).Bytes(7, g) }
	many := func(n int, unit pb) pb { return bytes.Repeat(unit, n) }
	external := func(name, file string, length int64) pb {
		entry := func(k, v string) pb { return pb{}.Bytes(13, pb{}.Str(1, k).Str(2, v)) }
		p := pb{}.Str(8, name).Int(2, 1).Packed(1, length/4).Int(14, 1)
		return append(append(append(p, entry("location", file)...), entry("offset", "0")...), entry("length", fmt.Sprint(length))...)
	}
	t.Run("empty attributes", func(t *testing.T) {
		empty := pb{}.Bytes(5, pb{})
		_, err := onnx.Decode(file(pb{}.Bytes(1, append(pb{}.Str(4, "Neg"), many(4<<20, empty)...))), "")
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, "the messages of the file, up to offset")
	})
	t.Run("a sparse file read once", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), nil, 0o666))
		require.NoError(t, os.Truncate(filepath.Join(dir, "big"), 1<<24))
		g := pb{}
		for i := range 64 {
			g = g.Bytes(5, external(fmt.Sprint("w", i), "big", 1<<24))
		}
		budget.SetDefault(64 << 20)
		defer budget.SetDefault(0)
		m, err := onnx.Decode(file(g), dir)
		require.NoError(t, err)
		for _, w := range m.Graph.Initializers {
			require.Same(t, &m.Graph.Initializers[0].Data[0], &w.Data[0])
		}
		budget.SetDefault(8 << 20)
		_, err = onnx.Decode(file(g), dir)
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, `external data of file "big": it needs 16 MiB beside the 2 KiB in use, more than the limit of 8 MiB`)
	})
}
