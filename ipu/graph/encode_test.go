package graph

import (
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"reflect"
	"testing"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestEncodeDecode(t *testing.T) {
	e := sample(t)
	b := encode(t, e)
	require.Equal(t, ipu.FormatPortable, ipu.Identify(b))
	require.Equal(t, b, encode(t, sample(t)), "encoding twice")
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

func TestEncodeEmpty(t *testing.T) {
	e := &Executable{Name: "empty"}
	got, err := Decode(encode(t, e))
	require.NoError(t, err)
	sameExecutable(t, e, got)
}

func TestEncodeRefusesInvalid(t *testing.T) {
	e := sample(t)
	e.Programs[0].Index = -1
	require.ErrorIs(t, e.Encode(nil), ErrInvalid)
}

// Numbers are the encoding's: they must never change.
func TestNumbersOfEncoding(t *testing.T) {
	names := []string{"invalid", "bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64",
		"i4", "u4", "i2", "u2", "f8e4m3", "f8e5m2"}
	for i, n := range names {
		require.Equal(t, n, DType(i).String())
	}
	require.Equal(t, []StepKind{1, 2, 3, 4}, []StepKind{CopyIn, CopyOut, Call, Repeat})
	require.Equal(t, []Direction{0, 1}, []Direction{HostToDevice, DeviceToHost})
	require.Equal(t, attrType(9), attrGraph)
}

// Every attribute of every operator survives, at its zero value and at others.
func TestAttributes(t *testing.T) {
	for _, kind := range Kinds() {
		op := NewOp(kind)
		require.Equal(t, kind, op.Kind())
		require.Equal(t, kind, reflect.TypeOf(op).Elem().Name())
		s := reflect.TypeOf(op).Elem()
		for i := range s.NumField() {
			require.True(t, s.Field(i).IsExported(), "%s.%s", kind, s.Field(i).Name)
			require.NotZero(t, attrTypeOf(s.Field(i).Type), "%s.%s", kind, s.Field(i).Name)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		op := NewOp(rapid.SampledFrom(Kinds()).Draw(t, "kind"))
		fillAttributes(t, op)
		enc := encoder{strings: map[string]uint32{}}
		b := enc.section(func() { enc.attributes(op) })
		d := &decoder{b: b, strings: enc.order}
		got := NewOp(op.Kind())
		d.attributes(got, "n")
		if d.err != nil || d.at != len(b) {
			t.Fatalf("%v, %d of %d bytes read", d.err, d.at, len(b))
		}
		again := encoder{strings: map[string]uint32{}}
		if b2 := again.section(func() { again.attributes(got) }); string(b) != string(b2) {
			t.Fatalf("%#v became %#v", op, got)
		}
	})
}

// fillAttributes sets every attribute to any value of its type, hostile ones
// included.
func fillAttributes(t *rapid.T, op Op) {
	words := rapid.SampledFrom([]string{"", "forward", "bidirectional", "Tanh", "add", "pow", "equal", "not", "neg", "exp", "max", "sum",
		"constant", "edge", "bogus", "nearest", "linear", "floor", "asymmetric", "tf_crop_and_resize", "zeros", "avg"})
	ints := rapid.OneOf(rapid.Int64Range(-2, 5), rapid.Int64())
	s := reflect.ValueOf(op).Elem()
	for i := range s.NumField() {
		f, name := s.Field(i), s.Type().Field(i).Name
		switch attrTypeOf(f.Type()) {
		case attrBool:
			f.SetBool(rapid.Bool().Draw(t, name))
		case attrInt:
			f.SetInt(ints.Draw(t, name))
		case attrGraph:
			f.SetInt(int64(rapid.Int32().Draw(t, name)))
		case attrFloat:
			f.SetFloat(rapid.Float64().Draw(t, name))
		case attrString:
			f.SetString(words.Draw(t, name))
		case attrDType:
			f.SetUint(uint64(rapid.Uint8Range(0, 30).Draw(t, name)))
		case attrInts:
			f.Set(reflect.ValueOf(rapid.SliceOfN(ints, -1, 6).Draw(t, name)))
		case attrFloats:
			f.Set(reflect.ValueOf(rapid.SliceOfN(rapid.Float64(), -1, 6).Draw(t, name)))
		case attrStrings:
			f.Set(reflect.ValueOf(rapid.SliceOfN(words, -1, 6).Draw(t, name)))
		}
	}
}

func TestNegativeZeroAttribute(t *testing.T) {
	op := &Unary{Fn: LeakyRelu, Alpha: math.Copysign(0, -1)}
	enc := encoder{strings: map[string]uint32{}}
	b := enc.section(func() { enc.attributes(op) })
	got := new(Unary)
	d := &decoder{b: b, strings: enc.order}
	d.attributes(got, "n")
	require.NoError(t, d.err)
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
	good := encode(t, sample(t))
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
		{"newer", damage(func(b []byte) []byte { b[versionAt]++; return b }),
			"its format version is 2, want at most 1; use the popefgen that compiled the model, or a newer one", ErrVersion},
		{"version 0", damage(func(b []byte) []byte { b[versionAt] = 0; return b }), "its format version is 0, want 1", nil},
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
			require.ErrorIs(t, err, ErrInvalid)
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
	good := encode(t, sample(t))
	sections := headerSize + int(binary.LittleEndian.Uint64(good[sectionsAt:]))
	for i := range good {
		_, err := Decode(good[:i])
		require.ErrorIs(t, err, ErrInvalid)
	}
	for i := headerSize; i < sections; i++ {
		for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
			b := append([]byte(nil), good...)
			b[i] = v
			e, err := Decode(rechecksum(b))
			if err == nil {
				require.NoError(t, Verify(e))
			} else {
				require.ErrorIs(t, err, ErrInvalid)
			}
		}
	}
}

// A few bytes that announce huge or deeply nested lists cost little memory.
func TestDecodeBounded(t *testing.T) {
	body := []byte{}
	for range 200_000 {
		body = append(body, byte(Repeat))
		body = binary.LittleEndian.AppendUint64(body, 1)
		body = binary.LittleEndian.AppendUint32(body, 1)
	}
	d := &decoder{b: body}
	d.step()
	require.ErrorContains(t, d.err, "nested deeper than 32")

	d = &decoder{b: binary.LittleEndian.AppendUint32(nil, math.MaxUint32)}
	require.Nil(t, d.ints())
	require.ErrorContains(t, d.err, "4294967295 entries of at least 8 bytes are announced, but 0 bytes are left")
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
	binary.LittleEndian.PutUint32(b[versionAt:], Version)
	binary.LittleEndian.PutUint64(b[sizeAt:], uint64(len(b)))
	if s := binary.LittleEndian.Uint64(b[sectionsAt:]); s <= uint64(len(b)-headerSize) {
		rechecksum(b)
	}
	return b
}

var update = flag.Bool("update", false, "write the golden file of the encoding")

// Files of version 1 stay readable, and the sample's bytes the same on every
// machine.
func TestGoldenFile(t *testing.T) {
	const path = "testdata/sample-v1.bin"
	e := sample(t)
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
