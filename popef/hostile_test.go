package popef_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	capnp "capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/packed"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

// allocated returns how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// claims is an io.ReaderAt that ends before the size that is claimed for it.
type claims struct{ *bytes.Reader }

func TestTruncatedAnywhere(t *testing.T) {
	file := small(t)
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("whole", file))
	ends := map[int]bool{0: true}
	for _, b := range r.Blobs() {
		ends[int(b.Offset+b.Size)] = true
	}
	for n := range file {
		for name, add := range map[string]func(r *popef.Reader) error{
			"bytes":  func(r *popef.Reader) error { return r.AddBytes("f", file[:n]) },
			"reader": func(r *popef.Reader) error { return r.AddReaderAt("f", bytes.NewReader(file[:n]), int64(n)) },
			"liar":   func(r *popef.Reader) error { return r.AddReaderAt("f", bytes.NewReader(file[:n]), int64(len(file))) },
		} {
			r := popef.NewReader()
			err := add(r)
			if name == "liar" {
				// Found out at once or when the payload is read.
				if err == nil {
					for _, b := range r.Blobs() {
						_, e := b.Bytes()
						err = errors.Join(err, e)
					}
				}
			} else if ends[n] {
				require.NoError(t, err, "%s %#x", name, n)
				continue
			}
			require.Error(t, err, "%s %#x", name, n)
			var e *popef.Error
			require.ErrorAs(t, err, &e, "%s %#x", name, n)
			require.ErrorIs(t, err, popef.ErrTruncated, "%s %#x", name, n)
			require.LessOrEqual(t, e.Offset, int64(len(file)))
		}
	}
}

func TestTruncatedMessage(t *testing.T) {
	err := popef.NewReader().AddBytes("lenet.popef", small(t)[:0x420])
	require.EqualError(t, err, `lenet.popef@0x3c8: blob 3 (feed data): info message: message is longer than the rest of the file: it claims 64 bytes, 32 are left; hint: the file is incomplete; copy or write it again`)
	err = popef.NewReader().AddBytes("notes.txt", []byte("Dear reader, this is no model at all."))
	require.EqualError(t, err, `notes.txt@0x0: blob 0: header message: message claims 1918985541 segments, at most 512 are allowed; hint: is this a PopEF file?`)
}

func TestHostileSizes(t *testing.T) {
	for _, size := range []uint64{1, 47, 48, 100, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64, math.MaxUint64 - 40} {
		for kind := range uint16(7) {
			file := append(header(t, kind, "1.0.0", size), make([]byte, 64)...)
			var err error
			got := allocated(func() {
				err = popef.NewReader().AddBytes("f", file)
				err = errors.Join(err, popef.NewReader().AddReaderAt("f", bytes.NewReader(file), int64(len(file))))
			})
			if kind < 5 || size != 100 && size != 48 {
				require.Error(t, err, "kind %d size %d", kind, size)
			}
			require.Less(t, got, uint64(1<<20))
		}
	}
}

func TestClaimedFileSize(t *testing.T) {
	// A message of 200 MB in a file said to hold it, of which little arrives.
	b := make([]byte, 16)
	binary.LittleEndian.PutUint32(b[4:], 25<<20)
	binary.LittleEndian.PutUint64(b[8:], 1<<32)
	file := claims{bytes.NewReader(append(b, make([]byte, 100)...))}
	var err error
	got := allocated(func() { err = popef.NewReader().AddReaderAt("f", file, 1<<40) })
	require.ErrorIs(t, err, popef.ErrTruncated)
	require.Less(t, got, uint64(16<<20))

	binary.LittleEndian.PutUint32(b[4:], 1<<30)
	err = popef.NewReader().AddReaderAt("f", claims{bytes.NewReader(append(b, make([]byte, 5000)...))}, 1<<40)
	require.ErrorIs(t, err, popef.ErrLimit)
	require.ErrorContains(t, err, "hint: raise the reader's limits")
	require.Error(t, popef.NewReader().AddReaderAt("f", claims{bytes.NewReader(b)}, -1))
}

// TestSharedParts has many anchors point to one long list of programs.
func TestSharedParts(t *testing.T) {
	const anchors, programs = 4000, 100_000
	info := message(t, func(s *capnp.Segment) {
		m, err := wire.NewRootMetadata(s)
		require.NoError(t, err)
		l, err := m.NewAnchors(anchors)
		require.NoError(t, err)
		p, err := capnp.NewUInt32List(s, programs)
		require.NoError(t, err)
		for i := range anchors {
			require.NoError(t, l.At(i).SetPrograms(p))
		}
	})
	var err error
	got := allocated(func() {
		err = popef.NewReader().AddBytes("f", put(t, asSpecified, part{kind: 1, info: info}))
	})
	require.ErrorIs(t, err, popef.ErrFormat)
	require.ErrorContains(t, err, "traversal limit")
	require.Less(t, got, uint64(64*len(info)))
}

// TestEmptyElements has lists claim half a billion elements of no size.
func TestEmptyElements(t *testing.T) {
	const count = 1<<29 - 1
	voidList := []byte{0x01, 0, 0, 0, 0xf8, 0xff, 0xff, 0xff}
	binary.LittleEndian.PutUint32(voidList[4:], count<<3)
	empties := make([]byte, 16) // composite list of no words, then its tag
	binary.LittleEndian.PutUint32(empties, 1)
	binary.LittleEndian.PutUint32(empties[4:], 7)
	binary.LittleEndian.PutUint32(empties[8:], count<<2)
	for name, list := range map[string][]byte{"void": voidList, "composite": empties} {
		for pointer := range 7 {
			seg := make([]byte, 8+24+56)
			binary.LittleEndian.PutUint64(seg, 3<<32|7<<48)
			copy(seg[32+8*pointer:], list[:8])
			if len(list) > 8 {
				off := uint32(7 - pointer - 1)
				binary.LittleEndian.PutUint32(seg[32+8*pointer:], off<<2|1)
				seg = append(seg, list[8:]...)
			}
			var err error
			got := allocated(func() {
				err = popef.NewReader().AddBytes("f", put(t, asSpecified, part{kind: 1, info: wire.Frame(seg, 0)}))
			})
			require.ErrorIs(t, err, popef.ErrFormat, "%s in pointer %d", name, pointer)
			require.Less(t, got, uint64(1<<20))
		}
	}
}

func TestPackedBomb(t *testing.T) {
	// A header message of 50 MiB, nearly all zero words: 2 bytes for 2 KiB.
	const words = 25600 * 256
	table := make([]byte, 8)
	binary.LittleEndian.PutUint32(table[4:], words+256)
	bomb := packed.Pack(nil, table)
	bomb = append(bomb, packed.Pack(nil, []byte{0, 0, 0, 0, 2, 0, 1, 0})...)
	for range words / 256 {
		bomb = append(bomb, 0, 255)
	}
	bomb = append(bomb, 0, 254)
	var err error
	got := allocated(func() { err = popef.NewReader().AddBytes("f", bytes.Repeat(bomb, 20)) })
	require.ErrorIs(t, err, popef.ErrLimit)
	require.Less(t, got, uint64(1<<30))
}

func TestManyTinyBlobs(t *testing.T) {
	// Blobs of unknown kind are the smallest; each draws a warning.
	tiny := put(t, asSpecified, part{kind: 77})
	file := bytes.Repeat(tiny, 50_000)
	r := popef.NewReader()
	require.NoError(t, r.AddBytes("f", file))
	require.Len(t, r.Blobs(), 50_000)
	require.Len(t, r.Warnings(), 101)
	require.Contains(t, texts(r.Warnings()), "and 49900 more warnings")

	r = popef.NewReader(popef.WithLimits(popef.Limits{Blobs: 10}))
	err := r.AddBytes("f", file)
	require.ErrorIs(t, err, popef.ErrLimit)
	require.ErrorContains(t, err, "blob 10: more than 10 blobs")
}

// TestManyModels: linking must not compare everything with everything.
func TestManyModels(t *testing.T) {
	// link returns the time that linking n models takes, at best.
	link := func(n int) time.Duration {
		file := write(t, func(w *popef.Writer) error {
			for i := range n {
				name := fmt.Sprint(i)
				if err := errors.Join(metadata(name, in("w", wInfo))(w), executable(name)(w), opaque("stray", "?")(w)); err != nil {
					return err
				}
			}
			return tensor("w", wInfo)(w)
		})
		best := time.Duration(math.MaxInt64)
		for range 3 {
			r := popef.NewReader()
			require.NoError(t, r.AddBytes("f", file))
			start := time.Now()
			models, err := r.Models()
			best = min(best, time.Since(start))
			require.NoError(t, err)
			require.Len(t, models, n)
			require.Len(t, models[n-1].Tensors(), 1)
			require.Len(t, models[n-1].Warnings(), 101)
		}
		return best
	}
	// Who shares the machine may disturb a measurement, but not all of them.
	for try := 1; ; try++ {
		few, many := link(500), link(8000)
		if many < 100*few {
			return
		}
		require.Less(t, try, 5, "16 times the models take %v instead of %v; time growing with the square would be 256 times", many, few)
	}
}

func TestEveryByteChanged(t *testing.T) {
	file := small(t)
	for i := range file {
		for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff, file[i] ^ 4} {
			changed := bytes.Clone(file)
			changed[i] = b
			useAll(t, fmt.Sprintf("%#x=%#x", i, b), changed)
		}
	}
}

// useAll reads everything that a file offers. It must not panic, and what it
// returns must agree with itself.
func useAll(t testing.TB, name string, file []byte) {
	t.Helper()
	limits := popef.WithLimits(popef.Limits{Executable: 1 << 20, Message: 1 << 20})
	r, ra := popef.NewReader(limits), popef.NewReader(limits)
	err := r.AddBytes(name, file)
	errAt := ra.AddReaderAt(name, bytes.NewReader(file), int64(len(file)))
	require.Equal(t, fmt.Sprint(err), fmt.Sprint(errAt), "a file reads the same from memory and otherwise")
	if err != nil {
		var e *popef.Error
		require.ErrorAs(t, err, &e)
		return
	}
	end := int64(0)
	for i, b := range r.Blobs() {
		require.Equal(t, end, b.Offset)
		end += b.Size
		p, err := b.Bytes()
		require.NoError(t, err)
		require.Len(t, p, int(b.PayloadSize))
		require.LessOrEqual(t, b.PayloadOffset+b.PayloadSize, end)
		q, err := ra.Blobs()[i].Bytes()
		require.NoError(t, err)
		require.Equal(t, p, q)
		_, err = b.Codec()
		require.NoError(t, err)
	}
	require.EqualValues(t, len(file), end)
	models, err := r.Models()
	if err != nil {
		require.Empty(t, models)
	}
	for _, m := range models {
		for _, a := range m.Metadata.Anchors {
			p, ok := m.TensorData(a.Name)
			if n, err := a.Info.SizeInBytes(); ok && a.Type.TakesData() {
				require.NoError(t, err)
				require.GreaterOrEqual(t, int64(len(p)), n)
			}
			if f, ok := m.Feed(a.Name); ok {
				for i := range min(f.Len(), 3) {
					_, err := f.Tensor(i)
					require.NoError(t, err)
				}
			}
		}
		if exe, err := m.Executable(); err == nil {
			require.LessOrEqual(t, len(exe), max(len(file), 1<<20))
		}
		_ = m.Opaques()
	}
	_ = texts(r.Warnings())
}
