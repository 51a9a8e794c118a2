package onnx

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/popefgen/popefgen/internal/budget"
)

// pb builds protobuf messages for tests.
type pb []byte

func (p pb) int(num protowire.Number, v int64) pb {
	return protowire.AppendVarint(protowire.AppendTag(p, num, protowire.VarintType), uint64(v))
}

func (p pb) bytes(num protowire.Number, b []byte) pb {
	return protowire.AppendBytes(protowire.AppendTag(p, num, protowire.BytesType), b)
}

func (p pb) str(num protowire.Number, s string) pb { return p.bytes(num, []byte(s)) }

func (p pb) packed(num protowire.Number, vs ...int64) pb {
	var b []byte
	for _, v := range vs {
		b = protowire.AppendVarint(b, uint64(v))
	}
	return p.bytes(num, b)
}

func (p pb) float(num protowire.Number, v float32) pb {
	return protowire.AppendFixed32(protowire.AppendTag(p, num, protowire.Fixed32Type), math.Float32bits(v))
}

// testModel is a small model with most kinds of field.
func testModel() []byte {
	attr := pb{}.str(1, "axis").int(3, -1).int(20, 2)
	old := pb{}.str(1, "alpha").float(2, 0.5) // no type field, as before IR 2
	node := pb{}.str(1, "x").str(1, "w").str(2, "y").str(3, "n0").str(4, "Foo").bytes(5, attr).bytes(5, old).str(7, "ai.onnx")
	w := pb{}.packed(1, 2).int(2, 1).str(8, "w").bytes(9, []byte{0, 0, 128, 63, 0, 0, 0, 64})
	dim := func(v int64) pb { return pb{}.bytes(1, pb{}.int(1, v)) }
	shape := append(pb{}.bytes(1, pb{}.str(2, "N")), dim(3)...)
	input := pb{}.str(1, "x").bytes(2, pb{}.bytes(1, pb{}.int(1, 1).bytes(2, shape)))
	output := pb{}.str(1, "y").bytes(2, pb{}.bytes(4, nil))
	g := pb{}.bytes(1, node).str(2, "g").bytes(5, w).bytes(11, input).bytes(12, output)
	return pb{}.int(1, 8).str(2, "test").bytes(7, g).bytes(8, pb{}.int(2, 13)).bytes(8, pb{}.str(1, "com.x").int(2, 1))
}

func TestDecode(t *testing.T) {
	got, err := Decode(testModel(), "")
	require.NoError(t, err)
	want := &Model{
		Size: int64(len(testModel())), IRVersion: 8, ProducerName: "test",
		Opsets: []Opset{{Version: 13}, {Domain: "com.x", Version: 1}},
		Graph: &Graph{
			Name: "g",
			Nodes: []*Node{{OpType: "Foo", Name: "n0", Inputs: []string{"x", "w"}, Outputs: []string{"y"}, Attributes: []*Attribute{
				{Name: "axis", Type: AttrInt, Int: -1}, {Name: "alpha", Type: AttrFloat, Float: 0.5},
			}}},
			Initializers: []*Tensor{{Name: "w", Elem: Float, Dims: []int64{2}, Data: []byte{0, 0, 128, 63, 0, 0, 0, 64}}},
			Inputs:       []ValueInfo{{Name: "x", Elem: Float, HasShape: true, Dims: []Dim{{Symbol: "N"}, {Known: true, Value: 3}}}},
			Outputs:      []ValueInfo{{Name: "y", NotDense: "sequence"}},
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
		{"raw", pb{}.packed(1, 2).int(2, 6).bytes(9, []byte{1, 0, 0, 0, 2, 0, 0, 0}), []byte{1, 0, 0, 0, 2, 0, 0, 0}, ""},
		{"unpacked dims and int32_data", pb{}.int(1, 2).int(1, 1).int(2, 3).int(5, -1).int(5, 7), []byte{255, 7}, ""},
		{"float16 as bit patterns", pb{}.packed(1, 1).int(2, 10).packed(5, 0x3c00), []byte{0, 0x3c}, ""},
		{"int4 raw, low nibble first", pb{}.packed(1, 3).int(2, 22).bytes(9, []byte{0x2f, 0x08}), []byte{255, 2, 0xf8}, ""},
		{"uint2 in int32_data", pb{}.packed(1, 5).int(2, 25).packed(5, 0b11100100, 1), []byte{0, 1, 2, 3, 1}, ""},
		{"uint64_data", pb{}.packed(1, 1).int(2, 12).packed(11, 0xffffffff), []byte{255, 255, 255, 255}, ""},
		{"scalar", pb{}.int(2, 9).bytes(9, []byte{1}), []byte{1}, ""},
		{"no elements, no data", pb{}.packed(1, 0, 4).int(2, 1), []byte{}, ""},
		{"short", pb{}.packed(1, 3).int(2, 1).bytes(9, make([]byte, 8)), nil, "found 8 bytes of data, want 12"},
		{"no data", pb{}.packed(1, 1<<40).int(2, 1), nil, "found 0 numbers in float_data, want 1099511627776"},
		{"overflow", pb{}.packed(1, 1<<40, 1<<40).int(2, 1), nil, "more elements than 64 bits count"},
		{"negative", pb{}.packed(1, -1).int(2, 1), nil, "dimension -1 is negative"},
		{"cut", pb{}.packed(1, 1).int(2, 1).bytes(9, make([]byte, 4))[:8], nil, "field 9"},
		{"no type", pb{}.packed(1, 1), nil, "no element type"},
		{"external without a directory", pb{}.packed(1, 1).int(2, 1).int(14, 1).bytes(13, pb{}.str(1, "location").str(2, "w.bin")), nil, "has no directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := DecodeTensor(c.in)
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
	entry := func(k, v string) []byte { return pb{}.str(1, k).str(2, v) }
	model := func(loc, off, length string) []byte {
		w := pb{}.packed(1, 1).int(2, 1).str(8, "w").int(14, 1).bytes(13, entry("location", loc))
		if off != "" {
			w = w.bytes(13, entry("offset", off))
		}
		if length != "" {
			w = w.bytes(13, entry("length", length))
		}
		return pb{}.int(1, 8).bytes(7, pb{}.bytes(5, w)).bytes(8, pb{}.int(2, 13))
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
			m, err := ReadFile(path)
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
	g := pb{}.str(2, "leaf")
	for range 200 {
		g = pb{}.bytes(1, pb{}.str(4, "If").bytes(5, pb{}.str(1, "then_branch").bytes(6, g)))
	}
	_, err := Decode(pb{}.bytes(7, g), "")
	require.ErrorContains(t, err, "nested more than 64 deep")
}

func TestDecodeNotAModel(t *testing.T) {
	for _, in := range [][]byte{nil, []byte("hello"), pb{}.int(1, 3), {0xff}} {
		_, err := Decode(in, "")
		require.ErrorIs(t, err, ErrFormat, "%q", in)
	}
}

// TestReadPublicData reads every model and tensor of the public test data.
func TestReadPublicData(t *testing.T) {
	n := 0
	dir, err := filepath.EvalSymlinks(testData(t))
	require.NoError(t, err)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case strings.HasSuffix(path, ".onnx"):
			n++
			_, err = ReadFile(path)
		case strings.HasSuffix(path, ".pb"):
			n++
			_, err = ReadTensor(path)
		}
		return err
	})
	require.NoError(t, err)
	require.Positive(t, n)
}

// testData returns the folder of public test data or skips.
func testData(t testing.TB) string {
	dir := os.Getenv("POPEFGEN_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared")
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err != nil {
		t.Skipf("no public test data in %s (set POPEFGEN_TESTDATA)", dir)
	}
	return dir
}

func FuzzDecode(f *testing.F) {
	f.Add(testModel())
	f.Add([]byte(pb{}.bytes(7, pb{}.bytes(5, pb{}.packed(1, 3).int(2, 22).bytes(9, []byte{0x2f, 0x08})))))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b, "")
		if err == nil && m.Graph == nil {
			t.Error("a model without a graph and without an error")
		}
		if err == nil {
			if _, err := Encode(m); err == nil {
				requireRoundTrip(t, "what was read", m)
			}
		}
		DecodeTensor(b)
	})
}

// TestReadIsBounded reads files whose messages or external files would take far
// more memory than they are worth.
func TestReadIsBounded(t *testing.T) {
	file := func(g pb) []byte { return pb{}.int(1, 8).bytes(8, pb{}.int(2, 13)).bytes(7, g) }
	many := func(n int, unit pb) pb { return bytes.Repeat(unit, n) }
	external := func(name, file string, length int64) pb {
		entry := func(k, v string) pb { return pb{}.bytes(13, pb{}.str(1, k).str(2, v)) }
		p := pb{}.str(8, name).int(2, 1).packed(1, length/4).int(14, 1)
		return append(append(append(p, entry("location", file)...), entry("offset", "0")...), entry("length", fmt.Sprint(length))...)
	}
	t.Run("empty attributes", func(t *testing.T) {
		empty := pb{}.bytes(5, pb{})
		_, err := Decode(file(pb{}.bytes(1, append(pb{}.str(4, "Neg"), many(4<<20, empty)...))), "")
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, "the messages of the file, up to offset")
	})
	t.Run("a sparse file read once", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), nil, 0o666))
		require.NoError(t, os.Truncate(filepath.Join(dir, "big"), 1<<24))
		g := pb{}
		for i := range 64 {
			g = g.bytes(5, external(fmt.Sprint("w", i), "big", 1<<24))
		}
		budget.SetDefault(64 << 20)
		defer budget.SetDefault(0)
		m, err := Decode(file(g), dir)
		require.NoError(t, err)
		for _, w := range m.Graph.Initializers {
			require.Same(t, &m.Graph.Initializers[0].Data[0], &w.Data[0])
		}
		budget.SetDefault(8 << 20)
		_, err = Decode(file(g), dir)
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, `external data of file "big": it needs 16 MiB beside the 2 KiB in use, more than the limit of 8 MiB`)
	})
}
