package encoding

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/internal/graphtest"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph/internal/wire"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEncodeDecode(t *testing.T) {
	for version, encode := range encodings {
		e := graphtest.Sample(t)
		b := encode(t, e)
		require.EqualValues(t, version, binary.LittleEndian.Uint32(b[versionAt:]))
		require.Equal(t, ipu.FormatPortable, ipu.Identify(b))
		require.Equal(t, b, encode(t, graphtest.Sample(t)), "encoding twice")
		for off := range 65 {
			blob := at(off, b)
			got, err := Decode(blob)
			require.NoError(t, err)
			sameExecutable(t, e, got)
			require.Equal(t, b, encode(t, got), "encoding what was decoded")
			for _, x := range got.Tensors {
				if len(x.Data) == 0 {
					continue
				}
				p := uintptr(unsafe.Pointer(unsafe.SliceData(x.Data)))
				require.Zero(t, p%constAlign, "constants are aligned wherever the file lies")
				lo := uintptr(unsafe.Pointer(unsafe.SliceData(blob)))
				inPlace := p >= lo && p < lo+uintptr(len(blob))
				require.Equal(t, off%constAlign == 0, inPlace, "offset %d: in place", off)
			}
		}
	}
}

// TestDefinitionsOfOperators: what an executable was compiled by is read as it was written, with passes and without, in both versions; without it nothing is written.
func TestDefinitionsOfOperators(t *testing.T) {
	for _, encode := range encodings {
		for _, passes := range [][]graph.PassReport{nil, {{Name: "fold", Before: 2, After: 1}}} {
			e := graphtest.Sample(t)
			e.Passes = passes
			plain := encode(t, e)
			e.Package = graph.PackageOf(e)
			require.NotEmpty(t, e.Package.Operators)
			b := encode(t, e)
			require.Greater(t, len(b), len(plain))
			got, err := Decode(at(0, b))
			require.NoError(t, err)
			require.Equal(t, e.Package, got.Package)
			require.Equal(t, e.Passes, got.Passes)
			require.Equal(t, b, encode(t, got))
			got, err = Decode(at(0, plain))
			require.NoError(t, err)
			require.Nil(t, got.Package)
		}
	}
}

// encodings encode as each version does.
var encodings = map[int]func(testing.TB, *graph.Executable) []byte{
	versionPlain: encoded,
	versionCompact: func(t testing.TB, e *graph.Executable) []byte {
		var b bytes.Buffer
		require.NoError(t, encode(&b, e, true))
		return b.Bytes()
	},
}

func TestEncodeEmpty(t *testing.T) {
	e := &graph.Executable{Name: "empty"}
	got, err := Decode(encoded(t, e))
	require.NoError(t, err)
	sameExecutable(t, e, got)
}

func TestEncodeRefusesInvalid(t *testing.T) {
	e := graphtest.Sample(t)
	e.Programs[0].Index = -1
	require.ErrorIs(t, Encode(nil, e), graph.ErrInvalid)
}

// Numbers are the encoding's: they must never change.
func TestNumbersOfEncoding(t *testing.T) {
	names := []string{"invalid", "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64",
		"i4", "u4", "i2", "u2", "f8e4m3", "f8e5m2"}
	for i, n := range names {
		require.Equal(t, n, graph.DType(i).String())
	}
	require.Equal(t, []graph.StepKind{1, 2, 3, 4}, []graph.StepKind{graph.CopyIn, graph.CopyOut, graph.Call, graph.Repeat})
	require.Equal(t, []graph.Direction{0, 1}, []graph.Direction{graph.HostToDevice, graph.DeviceToHost})
	require.Equal(t, attrType(9), attrGraph)
}

// Every attribute of every operator survives, at its zero value and at others.
func TestAttributes(t *testing.T) {
	for _, kind := range graph.Kinds() {
		op := graph.NewOp(kind)
		require.Equal(t, kind, op.Kind())
		require.Equal(t, kind, reflect.TypeOf(op).Elem().Name())
		s := reflect.TypeOf(op).Elem()
		for i := range s.NumField() {
			require.True(t, s.Field(i).IsExported(), "%s.%s", kind, s.Field(i).Name)
			require.NotZero(t, attrTypeOf(s.Field(i).Type), "%s.%s", kind, s.Field(i).Name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		op := graph.NewOp(rapid.SampledFrom(graph.Kinds()).Draw(t, "kind"))
		graphtest.FillAttributes(t, op)
		compact := rapid.Bool().Draw(t, "compact")
		b, d := attributesOf(op, compact)
		got := graph.NewOp(op.Kind())
		d.attributes(got, "n")
		if d.Err != nil || d.At != len(d.B) {
			t.Fatalf("%v, %d of %d bytes read", d.Err, d.At, len(d.B))
		}
		if b2, _ := attributesOf(got, compact); string(b) != string(b2) {
			t.Fatalf("%#v became %#v", op, got)
		}
	})
}

// attributesOf returns an operator's attributes encoded, and a decoder for them.
func attributesOf(op graph.Op, compact bool) ([]byte, *decoder) {
	enc := encoder{Writer: wire.NewWriter(compact)}
	b := enc.Section(func() { enc.attributes(op) })
	all := append(enc.Section(enc.WriteStrings), b...)
	d := &decoder{Reader: wire.NewReader(all)}
	if compact {
		d.Reader = wire.NewCompact(all, 1<<20)
	}
	d.ReadStrings()
	return b, d
}

func TestNegativeZeroAttribute(t *testing.T) {
	op := &graph.Unary{Fn: graph.LeakyRelu, Alpha: math.Copysign(0, -1)}
	got := new(graph.Unary)
	_, d := attributesOf(op, false)
	d.attributes(got, "n")
	require.NoError(t, d.Err)
	require.True(t, math.Signbit(got.Alpha))
}

// rechecksum makes a damaged file's checksum right again.
func rechecksum(b []byte) []byte {
	end := headerSize + int(binary.LittleEndian.Uint64(b[sectionsAt:]))
	binary.LittleEndian.PutUint32(b[checksumAt:], 0)
	binary.LittleEndian.PutUint32(b[checksumAt:], crc32.Checksum(b[:end], castagnoli))
	return b
}

func TestDecodeErrors(t *testing.T) {
	good := encoded(t, graphtest.Sample(t))
	damage := func(f func(b []byte) []byte) []byte { return f(append([]byte(nil), good...)) }
	// rename replaces a word of the string table by another one as long.
	rename := func(old, new string) []byte {
		return damage(func(b []byte) []byte {
			at := indexOnce(t, b, old)
			copy(b[at:], new)
			return rechecksum(b)
		})
	}
	tests := []struct {
		name string
		b    []byte
		want string
		is   error
	}{
		{"empty", nil, `it begins with "", want "POPEFGEN"`, nil},
		{"Poplar", []byte("GC_EXE_3 and so on"), `it begins with "GC_EXE_3"`, nil},
		{"short", good[:20], "it has 20 bytes, want a header of 32", nil},
		{"cut off", good[:len(good)-1], "it is cut off", nil},
		{"joined", append(good[:len(good):len(good)], 0), "joined with something", nil},
		{"damaged", damage(func(b []byte) []byte { b[100] ^= 1; return b }), "it is damaged", nil},
		{"newer", damage(func(b []byte) []byte { b[versionAt] = 3; return b }),
			"its format version is 3, want at most 2; use the popefgen that compiled the model, or a newer one", ErrVersion},
		{"version 0", damage(func(b []byte) []byte { b[versionAt] = 0; return b }), "its format version is 0, want 1 to 2", nil},
		{"unknown operator", rename("Gemm", "Germ"), `node "gemm" has the operator "Germ", which is not known`, ErrVersion},
		{"unknown attribute", rename("KeepDims", "KeepDams"), `operator Reduce of node "max" has the attribute "KeepDams", which is not known`, ErrVersion},
		{"attribute of another type", rename("KeepDims", "Axes\x00\x00\x00\x00"), `which is not known`, ErrVersion},
		{"unknown function", rename("leaky_relu", "leaky_rule"), `graph 0 "main", node 1 "act" (Unary): there is no unary function "leaky_rule"`, nil},
		{"section", rename("prog", "grog"), `section 5 is "grog", want "prog"`, nil},
		{"sections too long", damage(func(b []byte) []byte { b[sectionsAt+7] = 1; return b }), "its header says that sections take", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode(tt.b)
			require.ErrorContains(t, err, tt.want)
			require.ErrorIs(t, err, graph.ErrInvalid)
			if tt.is != nil {
				require.ErrorIs(t, err, tt.is)
			}
		})
	}
}

func indexOnce(t *testing.T, b []byte, s string) int {
	t.Helper()
	at := -1
	for i := range len(b) - len(s) {
		if string(b[i:i+len(s)]) == s && at < 0 {
			at = i
		}
	}
	require.GreaterOrEqual(t, at, 0, "%q", s)
	return at
}

// A file cut anywhere, or with any byte changed, is refused without a panic;
// the checksum is made right so that what is behind it is reached too.
func TestDecodeDamaged(t *testing.T) {
	decodes := func(b []byte) {
		e, err := Decode(rechecksum(b))
		if err == nil {
			require.NoError(t, graph.Verify(e))
		} else {
			require.ErrorIs(t, err, graph.ErrInvalid)
		}
	}
	values := []byte{0, 1, 0x7f, 0x80, 0xff}
	for _, encode := range encodings {
		good := encode(t, graphtest.Sample(t))
		sections := headerSize + int(binary.LittleEndian.Uint64(good[sectionsAt:]))
		for i := range good {
			_, err := Decode(good[:i])
			require.ErrorIs(t, err, graph.ErrInvalid)
		}
		for i := headerSize; i < sections; i++ {
			for _, v := range values {
				b := append([]byte(nil), good...)
				b[i] = v
				decodes(b)
			}
		}
	}
	good := sectionsOf(graphtest.Sample(t), true)
	for i := range good {
		for _, v := range values {
			b := append([]byte(nil), good...)
			b[i] = v
			decodes(WithSections(b))
		}
	}
}

// WithSections returns a file of version 2 with the given sections, whatever these are,
// and no constants. It is for the tests outside of this package too.
func WithSections(sections []byte) []byte {
	packed := wire.Pack(sections)
	if packed == nil {
		packed = binary.LittleEndian.AppendUint64(nil, uint64(len(sections)))
	}
	b := append(make([]byte, headerSize), packed...)
	binary.LittleEndian.PutUint64(b[sectionsAt:], uint64(len(packed)))
	binary.LittleEndian.PutUint32(b[versionAt:], versionCompact)
	return Checked(b)
}

// CompactSections returns the sections of version 2 for [WithSections].
func CompactSections(e *graph.Executable) []byte { return sectionsOf(e, true) }

// TestCompactErrors refuses packed sections that do not hold what they say, or more than
// a file of their size may.
func TestCompactErrors(t *testing.T) {
	good := encodings[versionCompact](t, graphtest.Sample(t))
	sections := headerSize + int(binary.LittleEndian.Uint64(good[sectionsAt:]))
	// says has the file say that its sections are n bytes.
	says := func(n func(was uint64) uint64) []byte {
		b := append([]byte(nil), good...)
		binary.LittleEndian.PutUint64(b[headerSize:], n(binary.LittleEndian.Uint64(b[headerSize:])))
		return rechecksum(b)
	}
	section := func(name string, body []byte) []byte {
		return append(binary.LittleEndian.AppendUint64([]byte(name), uint64(len(body))), body...)
	}
	// Graphs of as many nodes as there are bytes of zeros, of five a node.
	nodes := func(n int) []byte {
		body := append(binary.AppendUvarint([]byte{1, 0, 0, 0}, uint64(n)), make([]byte, 5*n)...)
		return slices.Concat(section("strs", []byte{1, 4, 'A', 'b', 'o', 'r'}), section("exec", []byte{0, 0}), section("tens", []byte{0}), section("grph", body))
	}
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"longer than said", says(func(n uint64) uint64 { return n - 1 }), "decompress its sections"},
		{"shorter than said", says(func(n uint64) uint64 { return n + 1 }), "bytes decompressed, want"},
		{"endless", says(func(uint64) uint64 { return math.MaxUint64 }), "its sections are to become 18446744073709551615 bytes, want at most"},
		{"no sections", Checked(binary.LittleEndian.AppendUint64(append([]byte(nil), good[:sectionsAt]...), 0)), "its sections are 0 bytes long, want at least 8"},
		{"not compressed", func() []byte {
			b := append([]byte(nil), good...)
			for i := headerSize + 8; i < sections; i++ {
				b[i] = 0xff
			}
			return rechecksum(b)
		}(), "decompress its sections"},
		{"zeros", WithSections(make([]byte, 10<<20)), "its sections are to become 10485760 bytes, want at most"},
		{"an operator that is none", WithSections(append(nodes(1000), make([]byte, 64)...)), `has the operator "Abor", which is not known`},
		{"a number without an end", WithSections(append(section("strs", bytes.Repeat([]byte{0xff}, 200)), make([]byte, 64)...)), "a number has no end"},
		{"more strings than bytes", WithSections(append(section("strs", []byte{100, 0}), make([]byte, 64)...)), "100 entries of at least 1 bytes are announced, but 1 bytes are left"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Decode(tt.b)
			require.ErrorIs(t, err, graph.ErrInvalid)
			require.ErrorContains(t, err, tt.want)
		})
	}
	// Tensors take four bytes each here, and some hundred in memory.
	const n = 1 << 20
	body := append(binary.AppendUvarint([]byte{1, 0}, n), make([]byte, 4*n)...)
	for i := 1; i < n; i++ {
		body[5+4*i] = 1 // the name before this one again
	}
	room := &decoder{Reader: wire.NewCompact(body, n)}
	room.ReadStrings()
	e := new(graph.Executable)
	room.tensors(e)
	require.ErrorContains(t, room.Err, "more memory than a file of this size may ask for")
	require.Less(t, cap(e.Tensors), 1<<15)
}

// TestCompactSizes encodes an executable of many sizes, of which each further one takes a
// small part of what the first takes, and reads what it held.
func TestCompactSizes(t *testing.T) {
	family := func(sizes int) *graph.Executable {
		b := graph.NewBuilder("family")
		w := b.AddConst("w", graph.TensorType{DType: graph.F32, Shape: []int64{8, 8}}, make([]byte, 256))
		for m := range sizes {
			rows := int64(m + 1)
			x := b.AddLocal("x", graph.TensorType{DType: graph.F32, Shape: []int64{rows, 8}})
			g := b.BeginGraph("main")
			y := x
			for i := range 30 {
				out, err := b.Node(&graph.MatMul{}, fmt.Sprint("product", i), y, w)
				require.NoError(t, err)
				out, err = b.Node(&graph.Unary{Fn: graph.Relu}, fmt.Sprint("rectified", i), out[0])
				require.NoError(t, err)
				y = out[0]
			}
			b.AddProgram(5+m, fmt.Sprint("rows ", rows), b.CopyIn(fmt.Sprint("x", m), x), b.Call(g), b.CopyOut(fmt.Sprint("y", m), y))
		}
		e, err := b.Finish()
		require.NoError(t, err)
		return e
	}
	size := map[int]int{}
	for _, n := range []int{1, 2, 3, 40} {
		e := family(n)
		b := encoded(t, e)
		got, err := Decode(b)
		require.NoError(t, err)
		sameExecutable(t, e, got)
		size[n] = len(b)
		want := versionCompact
		if n == 1 {
			want = versionPlain
		}
		require.EqualValues(t, want, binary.LittleEndian.Uint32(b[versionAt:]), "%d sizes", n)
	}
	require.Less(t, size[2], size[1])
	require.Less(t, (size[40]-size[3])/37, size[1]/20, "%v", size)
}

// A few bytes that announce huge or deeply nested lists cost little memory.
func TestDecodeBounded(t *testing.T) {
	body := []byte{}
	for range 200_000 {
		body = append(body, byte(graph.Repeat))
		body = binary.LittleEndian.AppendUint64(body, 1)
		body = binary.LittleEndian.AppendUint32(body, 1)
	}
	d := &decoder{Reader: wire.NewReader(body)}
	d.step()
	require.ErrorContains(t, d.Err, "nested deeper than 32")

	d = &decoder{Reader: wire.NewReader(binary.LittleEndian.AppendUint32(nil, math.MaxUint32))}
	require.Nil(t, d.ints())
	require.ErrorContains(t, d.Err, "4294967295 entries of at least 8 bytes are announced, but 0 bytes are left")
}

// Checked returns b as a file whose header holds, whatever b is: it leads a
// fuzzer past the checks of the header. It is for the tests outside of this
// package.
func Checked(b []byte) []byte {
	if len(b) < headerSize {
		return b
	}
	b = append([]byte(nil), b...)
	copy(b, Magic)
	if v := binary.LittleEndian.Uint32(b[versionAt:]); v != versionCompact {
		binary.LittleEndian.PutUint32(b[versionAt:], versionPlain)
	}
	binary.LittleEndian.PutUint64(b[sizeAt:], uint64(len(b)))
	if s := binary.LittleEndian.Uint64(b[sectionsAt:]); s <= uint64(len(b)-headerSize) {
		rechecksum(b)
	}
	return b
}

var update = flag.Bool("update", false, "write the golden file of the encoding")

// Files of all versions stay readable, and the sample's bytes the same on every
// machine.
func TestGoldenFile(t *testing.T) {
	for version, encode := range encodings {
		path := fmt.Sprintf("testdata/sample-v%d.bin", version)
		e := graphtest.Sample(t)
		if *update {
			require.NoError(t, os.WriteFile(path, encode(t, e), 0o644))
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		got, err := Decode(b)
		require.NoError(t, err)
		sameExecutable(t, e, got)
		require.Equal(t, b, encode(t, e))
	}
}
