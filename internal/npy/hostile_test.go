package npy

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/popefgen/popefgen/internal/budget"
)

// headed returns an array with any header and data.
func headed(head string, data []byte) []byte {
	return append(fmt.Appendf(nil, "%s\x01\x00%s%s", magic, []byte{byte(len(head)), byte(len(head) >> 8)}, head), data...)
}

// shaped returns an array of floats that claims a shape.
func shaped(shape string, data []byte) []byte {
	return headed("{'descr': '<f4', 'fortran_order': False, 'shape': ("+shape+"), }\n", data)
}

// allocated returns the bytes that fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestArraysThatLie reads arrays whose headers claim more, or less, than there is.
func TestArraysThatLie(t *testing.T) {
	budget.SetDefault(64 << 20)
	defer budget.SetDefault(0)
	for name, c := range map[string]struct {
		file []byte
		data int    // bytes that are read
		want string // of the error
	}{
		"as it says":               {shaped("2,", make([]byte, 8)), 8, ""},
		"more than it says":        {shaped("2,", make([]byte, 1<<20)), 9, ""},
		"less than it says":        {shaped("4096,", make([]byte, 8)), 8, ""},
		"32 MiB, of which 8 bytes": {shaped("2048,4096", make([]byte, 8)), 8, ""},
		"a terabyte":               {shaped("1024,1024,1024,256", make([]byte, 8)), 0, "more than the limit of 64 MiB"},
		"2^90 bytes":               {shaped("1073741824,1073741824,1073741824", make([]byte, 8)), 0, "more than the limit"},
		"2^90 bytes, none":         {shaped("1073741824,1073741824,1073741824,0", nil), 0, ""},
		"a dimension of 2^70":      {shaped("1180591620717411303424,", make([]byte, 8)), 0, `dimension "1180591620717411303424"`},
		"a type of 2^62 bytes":     {headed("{'descr': '<f4611686018427387904', 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 8)), 0, "more than the limit"},
		"64 dimensions":            {shaped(strings.Repeat("1,", 64), make([]byte, 4)), 4, ""},
		"30,000 dimensions":        {shaped(strings.Repeat("1,", 30000), make([]byte, 4)), 0, "30000 dimensions (want 64 at most)"},
		"a long list of nothing":   {shaped(strings.Repeat(",", 60000), make([]byte, 4)), 4, ""},
		"a header of 4 GiB":        {append([]byte(magic+"\x02\x00\xff\xff\xff\xff"), make([]byte, 100)...), 0, "longer than 65536 bytes"},
		"a record":                 {headed("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", make([]byte, 4)), 0, "want a plain array"},
	} {
		t.Run(name, func(t *testing.T) {
			var a *Array
			var err error
			got := allocated(func() { a, err = ReadArray(bytes.NewReader(c.file), math.MaxInt64-1) })
			require.Less(t, got, uint64(10<<20))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			require.Len(t, a.Data, c.data)
		})
	}
}

// TestArchivesThatExplode reads archives that are thousands of times as large
// once they are unpacked.
func TestArchivesThatExplode(t *testing.T) {
	budget.SetDefault(64 << 20)
	defer budget.SetDefault(0)
	path := filepath.Join(t.TempDir(), "bomb.npz")
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, head := range map[string]string{"large": "268435456,", "small": "4,", "fits": "4194304,"} {
		w, err := z.Create(name + ".npy")
		require.NoError(t, err)
		_, err = w.Write(shaped(head, nil))
		require.NoError(t, err)
		_, err = io.CopyN(w, zeros{}, 48<<20)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	require.Less(t, b.Len(), 2<<20)
	require.NoError(t, os.WriteFile(path, b.Bytes(), 0o666))
	a, err := OpenArchive(path)
	require.NoError(t, err)
	defer a.Close()
	require.Less(t, allocated(func() {
		_, err = a.Array("large", 1<<31)
		require.ErrorIs(t, err, budget.ErrExceeded)
		require.ErrorContains(t, err, path+": large: the data of the array: it needs 1.1 GiB")
		small, err := a.Array("small", 1<<31)
		require.NoError(t, err)
		require.Len(t, small.Data, 17)
		fits, err := a.Array("fits", 1<<31)
		require.NoError(t, err)
		require.Len(t, fits.Data, 16<<20+1)
	}), uint64(40<<20))
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestAnyData reads any data back, however it arrives.
func TestAnyData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int64{0, 1, 4, 1000, firstRead - 1, firstRead, firstRead + 1, 9*firstRead + 3}).Draw(t, "bytes")
		size := rapid.SampledFrom([]int64{0, n, n + 1, max(0, n-1), 20 * firstRead}).Draw(t, "claimed")
		data := bytes.Repeat([]byte{1, 2, 3}, int(n/3+1))[:n]
		got, err := readData(bytes.NewReader(data), size)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data[:min(n, size+1)], got))
	})
}
