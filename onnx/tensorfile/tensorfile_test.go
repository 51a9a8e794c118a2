package tensorfile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/internal/npy"
	"github.com/popefgen/popefgen/popef"
)

// npyMagic is what a .npy file begins with.
const npyMagic = "\x93NUMPY"

func TestNpyRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := []popef.DataType{popef.Bool, popef.F8, popef.F16, popef.F32, popef.F64, popef.S8, popef.U8, popef.S16, popef.U16,
			popef.S32, popef.U32, popef.S64, popef.U64, popef.F8143, popef.F8152}
		info := popef.TensorInfo{DataType: rapid.SampledFrom(types).Draw(t, "type"), Shape: rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 5).Draw(t, "shape")}
		size, err := info.SizeInBytes()
		require.NoError(t, err)
		want := rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")
		var b bytes.Buffer
		require.NoError(t, npy.Write(&b, info, want))
		require.Zero(t, (b.Len()-len(want))%64, "the data begin at a multiple of 64")
		dir, err := os.MkdirTemp("", "npy")
		require.NoError(t, err)
		defer os.RemoveAll(dir)
		path := filepath.Join(dir, "x.npy")
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o666))
		got, err := Read(path, info, 1)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}

func TestRead(t *testing.T) {
	f32 := popef.TensorInfo{DataType: popef.F32, Shape: []int64{2, 3}}
	npy := func(head string, data int) []byte {
		b := append([]byte(npyMagic), 1, 0, byte(len(head)), byte(len(head)>>8))
		return append(append(b, head...), make([]byte, data)...)
	}
	for _, c := range []struct {
		name  string
		file  string
		data  []byte
		times int64
		err   string
	}{
		{"good", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24), 1, ""},
		{"python 2 longs", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2L, 3L), }\n", 24), 1, ""},
		{"two iterations, extra axis", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 3), }\n", 48), 2, ""},
		{"two iterations, longer axis", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4, 3), }\n", 48), 2, ""},
		{"one of two iterations", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24), 2, "want [2 3], 2 times, once per device iteration"},
		{"shape", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }\n", 24), 1, "found shape [3 2], want [2 3]"},
		{"type", "a.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }\n", 48), 1, `found element type "<f8", want "<f4" (F32)`},
		{"order", "a.npy", npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n", 24), 1, "Fortran order"},
		{"objects", "a.npy", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n", 24), 1, "want a plain array"},
		{"short", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 20), 1, "found 20 bytes of data, want 24 (F32 [2 3])"},
		{"long", "a.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 30), 1, "want 24"},
		{"cut header", "a.npy", []byte(npyMagic + "\x01\x00\xff\x00{"), 1, "the header is cut"},
		{"huge header", "a.npy", []byte(npyMagic + "\x02\x00\xff\xff\xff\xff"), 1, "longer than"},
		{"not npy", "a.npy", []byte("hello, world"), 1, "does not begin with"},
		{"raw", "a.bin", make([]byte, 24), 1, ""},
		{"raw, wrong size", "a.bin", make([]byte, 25), 1, "found 25 bytes of data, want 24"},
		{"extension", "a.txt", nil, 1, `extension ".txt" is not known (want .npy, .pb or .bin)`},
		{"proto", "a.pb", append([]byte{0x08, 2, 0x08, 3, 0x10, 1, 0x4a, 24}, make([]byte, 24)...), 1, ""},
		{"proto of another type", "a.pb", append([]byte{0x08, 2, 0x08, 3, 0x10, 6, 0x4a, 24}, make([]byte, 24)...), 1, "found element type int32, want F32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.file)
			require.NoError(t, os.WriteFile(path, c.data, 0o666))
			_, err := Read(path, f32, c.times)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
			require.ErrorContains(t, err, path)
		})
	}
}

func TestReadBigEndian(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	head := "{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n"
	require.NoError(t, os.WriteFile(path, append([]byte(npyMagic+"\x01\x00"+string(rune(len(head)))+"\x00"+head), 1, 2, 3, 4), 0o666))
	got, err := Read(path, popef.TensorInfo{DataType: popef.S16, Shape: []int64{2}}, 1)
	require.NoError(t, err)
	require.Equal(t, []byte{2, 1, 4, 3}, got)
}
