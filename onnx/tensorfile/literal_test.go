package tensorfile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
)

func TestPath(t *testing.T) {
	for value, want := range map[string]string{
		"scan.npy": "scan.npy", "a/B.PB": "a/B.PB", "raw.bin": "raw.bin", "@16000": "16000", "@scan.npy": "scan.npy", "@": "",
	} {
		path, ok := Path(value)
		require.True(t, ok, value)
		require.Equal(t, want, path)
	}
	for _, value := range []string{"16000", "1,2,3", "[1]", "1.5", "1e-3", "scan.txt", "true", ""} {
		_, ok := Path(value)
		require.False(t, ok, value)
	}
}

func TestLiteral(t *testing.T) {
	for _, c := range []struct {
		text  string
		dtype popef.DataType
		want  int64 // elements
		bytes []byte
		err   string
	}{
		{"16000", popef.S64, 1, []byte{0x80, 0x3e, 0, 0, 0, 0, 0, 0}, ""},
		{"-2", popef.S16, 1, []byte{0xfe, 0xff}, ""},
		{"1,2, 3", popef.U8, 3, []byte{1, 2, 3}, ""},
		{"[1,2]", popef.U8, 2, []byte{1, 2}, ""},
		{"[]", popef.U8, 0, []byte{}, ""},
		{"7", popef.U8, 4, []byte{7, 7, 7, 7}, ""},
		{"7", popef.U8, 0, []byte{}, ""},
		{"true,false", popef.Bool, 2, []byte{1, 0}, ""},
		{"0.5", popef.F32, 1, []byte{0, 0, 0, 0x3f}, ""},
		{"-1", popef.F16, 1, []byte{0, 0xbc}, ""},
		{"inf", popef.F64, 1, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}, ""},
		{"[7]", popef.U8, 4, nil, "found a list of 1 elements, want 4"},
		{"1,2", popef.U8, 3, nil, "found a list of 2 elements, want 3"},
		{"300", popef.U8, 1, nil, `found "300", want a whole number, 0 or more (U8), or a file`},
		{"1.5", popef.S64, 1, nil, `found "1.5", want a whole number (S64)`},
		{"scan.txt", popef.F32, 1, nil, `found "scan.txt", want a number (F32), or a file: a name that ends in .npy, .pb or .bin, or begins with @`},
		{"", popef.F32, 1, nil, `found "", want a number`},
		{"1,,2", popef.F32, 3, nil, `found "", want a number`},
		{"2", popef.Bool, 1, nil, "want true or false"},
		{"0", popef.F32, 1 << 40, nil, "too many to be written down"},
		{"0", popef.F8, 1, nil, "elements of type F8 can't be written down"},
	} {
		got, err := ParseLiteral(c.text).Bytes(c.dtype, c.want)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, c.text)
			continue
		}
		require.NoError(t, err, c.text)
		require.Equal(t, c.bytes, got, c.text)
	}
}

// FuzzLiteral gives the reader of literals any text.
func FuzzLiteral(f *testing.F) {
	f.Add("1,2,3", byte(popef.S64), uint8(3))
	f.Add("[]", byte(popef.F32), uint8(0))
	f.Add("[1", byte(popef.F16), uint8(9))
	f.Fuzz(func(t *testing.T, text string, dtype byte, want uint8) {
		dt := popef.DataType(dtype)
		b, err := ParseLiteral(text).Bytes(dt, int64(want))
		if err == nil && len(b) != int(want)*dt.Size() {
			t.Errorf("found %d bytes, want %d elements of %s", len(b), want, dt)
		}
	})
}
