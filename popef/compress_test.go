package popef_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"testing"

	capnp "capnproto.org/go/capnp/v3"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

// compressed returns a file with one model whose executable is given.
func compressed(t testing.TB, size uint64, p []byte) []byte {
	t.Helper()
	return put(t, asSpecified,
		take(t, write(t, metadata("e")))[0],
		part{kind: uint16(popef.ExecutableBlob), payload: p, info: message(t, func(s *capnp.Segment) {
			m, err := wire.NewRootPoplarExecutable(s)
			require.NoError(t, err)
			require.NoError(t, m.SetName("e"))
			m.SetUncompressedSize(size)
		})})
}

func pack(t testing.TB, p []byte, open func(io.Writer) (io.WriteCloser, error)) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := open(&b)
	require.NoError(t, err)
	_, err = w.Write(p)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func lz4Writer(w io.Writer) (io.WriteCloser, error)  { return lz4.NewWriter(w), nil }
func zstdWriter(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
func gzipWriter(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func zlibWriter(level int) func(io.Writer) (io.WriteCloser, error) {
	return func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriterLevel(w, level) }
}

// hello200 is "hello" 200 times, by bzip2 1.0.8.
const hello200 = "QlpoOTFBWSZTWVdZafwAAMeBAAJEoAAwzTQKUGCLhFoi4IvF3JFOFCQV1lp/AA=="

func TestCompressedExecutables(t *testing.T) {
	plain := bytes.Repeat([]byte("hello"), 200)
	bz, err := base64.StdEncoding.DecodeString(hello200)
	require.NoError(t, err)
	half := len(plain) / 2
	twoFrames := append(pack(t, plain[:half], lz4Writer), pack(t, plain[half:], lz4Writer)...)
	poplar := []byte("GC_EXE_3 and so on")
	n := uint64(len(plain))
	cases := []struct {
		name  string
		codec popef.Codec
		size  uint64
		in    []byte
		want  []byte
	}{
		{"raw", popef.Raw, math.MaxUint64, plain, plain},
		{"raw although it looks like LZ4", popef.Raw, math.MaxUint64, twoFrames, twoFrames},
		{"size 0", popef.Raw, 0, plain, plain},
		{"Poplar's own", popef.Raw, 99, poplar, poplar},
		{"LZ4", popef.LZ4, n, pack(t, plain, lz4Writer), plain},
		{"LZ4, two frames", popef.LZ4, n, twoFrames, plain},
		{"zstd", popef.Zstd, n, pack(t, plain, zstdWriter), plain},
		{"gzip", popef.Gzip, n, pack(t, plain, gzipWriter), plain},
		{"zlib 1", popef.Zlib, n, pack(t, plain, zlibWriter(1)), plain},
		{"zlib 6", popef.Zlib, n, pack(t, plain, zlibWriter(6)), plain},
		{"zlib 9", popef.Zlib, n, pack(t, plain, zlibWriter(9)), plain},
		{"bzip2", popef.Bzip2, n, bz, plain},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m, err := popef.LoadBytes("f", compressed(t, c.size, c.in))
			require.NoError(t, err)
			codec, err := m.ExecutableBlob().Codec()
			require.NoError(t, err)
			require.Equal(t, c.codec, codec)
			got, err := m.Executable()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			if c.codec == popef.Raw {
				return
			}
			for _, wrong := range []uint64{1, c.size - 1, c.size + 1, 1 << 30} {
				m, err := popef.LoadBytes("f", compressed(t, wrong, c.in))
				require.NoError(t, err)
				_, err = m.Executable()
				require.ErrorIs(t, err, popef.ErrCompression, "%d", wrong)
				if wrong < c.size {
					require.ErrorContains(t, err, fmt.Sprintf("more than the %d bytes it claims when decompressed", wrong))
				}
			}
			for _, cut := range []int{len(c.in) / 2, len(c.in) - 1} {
				m, err := popef.LoadBytes("f", compressed(t, c.size, c.in[:cut]))
				require.NoError(t, err)
				_, err = m.Executable()
				require.ErrorIs(t, err, popef.ErrCompression, "cut to %d", cut)
			}
			require.Error(t, func() error {
				m, err := popef.LoadBytes("f", compressed(t, 5<<30, c.in))
				require.NoError(t, err)
				_, err = m.Executable()
				require.ErrorIs(t, err, popef.ErrLimit)
				return err
			}())
		})
	}
}

func TestUnreadableExecutables(t *testing.T) {
	for _, c := range []struct {
		in, want string
		codec    popef.Codec
	}{
		{"\xfd7zXZ\x00 and so on", "executable (xz): xz is not supported; hint: write the file again without compression", popef.XZ},
		{"who knows", "executable (unknown codec): the first bytes match no known compression; hint:", popef.UnknownCodec},
		{"", "executable (unknown codec)", popef.UnknownCodec},
		{"\x1f\x8b", "executable (gzip): unexpected EOF", popef.Gzip},
		{"\x78\x9cgarbage", "executable (zlib)", popef.Zlib},
		{"\x04\x22\x4d\x18garbage", "executable (LZ4)", popef.LZ4},
		{"\x28\xb5\x2f\xfdgarbage", "executable (zstd)", popef.Zstd},
		{"BZh9garbage", "executable (bzip2)", popef.Bzip2},
	} {
		m, err := popef.LoadBytes("f", compressed(t, 100, []byte(c.in)))
		require.NoError(t, err)
		_, err = m.Executable()
		require.ErrorIs(t, err, popef.ErrCompression)
		require.ErrorContains(t, err, c.want)
		codec, err := m.ExecutableBlob().Codec()
		require.NoError(t, err)
		require.Equal(t, c.codec, codec)
		p, err := m.ExecutableBlob().Bytes()
		require.NoError(t, err)
		require.Equal(t, c.in, string(p), "the bytes as they are")
	}
}

func TestDecompressionTakesNoMoreThanArrives(t *testing.T) {
	// Zeros compress a thousand to one; the file claims a gigabyte or little.
	bomb := pack(t, make([]byte, 16<<20), gzipWriter)
	for _, size := range []uint64{1 << 30, 1000} {
		m, err := popef.LoadBytes("f", compressed(t, size, bomb[:len(bomb)/8]))
		require.NoError(t, err)
		got := allocated(func() {
			_, err = m.Executable()
		})
		require.ErrorIs(t, err, popef.ErrCompression)
		require.Less(t, got, uint64(12<<20), "claimed %d", size)
		if size == 1000 {
			require.Less(t, got, uint64(1<<20))
		}
	}
	r := popef.NewReader(popef.WithLimits(popef.Limits{Executable: 999}))
	require.NoError(t, r.AddBytes("f", compressed(t, 1000, pack(t, make([]byte, 1000), gzipWriter))))
	models, err := r.Models()
	require.NoError(t, err)
	_, err = models[0].Executable()
	require.ErrorIs(t, err, popef.ErrLimit)
	require.ErrorContains(t, err, "claims 1000 bytes when decompressed, 999 are allowed; hint: raise Limits.Executable")
}

func TestWriteCompressed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 9<<20) // more than two LZ4 blocks
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for _, plain := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("hello"), 1<<18), random} {
		file := write(t, func(w *popef.Writer) error {
			if err := w.WriteMetadata(&popef.Metadata{Executable: "e"}); err != nil {
				return err
			}
			return payload(w.CreateExecutable("e", true))(plain)
		})
		m, err := popef.LoadBytes("f", file)
		require.NoError(t, err)
		got, err := m.Executable()
		require.NoError(t, err)
		require.True(t, bytes.Equal(plain, got))
		b := m.ExecutableBlob()
		require.Zero(t, b.PayloadOffset%popef.Alignment)
		if len(plain) > 0 {
			require.EqualValues(t, len(plain), b.UncompressedSize)
			codec, err := b.Codec()
			require.NoError(t, err)
			require.Equal(t, popef.LZ4, codec)
		}
	}
}

// TestBombs decompresses what is thousands of times as large then, or claims to
// be, with a budget of 80 MiB.
func TestBombs(t *testing.T) {
	budget.SetDefault(80 << 20)
	defer budget.SetDefault(0)
	for name, open := range map[string]func(io.Writer) (io.WriteCloser, error){"LZ4": lz4Writer, "zstd": zstdWriter, "gzip": gzipWriter} {
		bomb := pack(t, make([]byte, 32<<20), open)
		require.Less(t, len(bomb), 1<<20, name)
		for _, c := range []struct {
			size uint64
			want error
			most uint64 // bytes that may be allocated
		}{
			{32 << 20, nil, 112 << 20},
			{32<<20 - 1, popef.ErrCompression, 112 << 20}, // more than it claims
			{32<<20 + 1, popef.ErrCompression, 112 << 20}, // less
			{1000, popef.ErrCompression, 12 << 20},
			{128 << 20, popef.ErrLimit, 1 << 20},
			{1 << 40, popef.ErrLimit, 1 << 20},
			{1 << 63, popef.ErrLimit, 1 << 20},
		} {
			m, err := popef.LoadBytes("f", compressed(t, c.size, bomb))
			require.NoError(t, err)
			var p []byte
			got := allocated(func() { p, err = m.Executable() })
			require.Less(t, got, c.most+24<<20, "%s claims %d", name, c.size) // and the decoder's own
			if c.want != nil {
				require.ErrorIs(t, err, c.want, "%s claims %d", name, c.size)
				continue
			}
			require.NoError(t, err, name)
			require.Len(t, p, 32<<20)
		}
	}
}
