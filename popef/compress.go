package popef

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/popefgen/popefgen/internal/budget"
)

// notCompressed is the uncompressed size that marks a raw executable.
const notCompressed = math.MaxUint64

// Codec is how the payload of an executable blob is compressed. The format
// does not say which algorithm it uses, so the payload's first bytes decide.
type Codec uint8

// The codecs that are recognised. XZ can't be decompressed.
const (
	Raw Codec = iota // not compressed
	LZ4              // LZ4 frames
	Zstd
	Gzip
	Zlib
	Bzip2
	XZ
	UnknownCodec // compressed, with something else
)

// String returns the likes of "LZ4".
func (c Codec) String() string {
	switch c {
	case Raw:
		return "raw"
	case LZ4:
		return "LZ4"
	case Zstd:
		return "zstd"
	case Gzip:
		return "gzip"
	case Zlib:
		return "zlib"
	case Bzip2:
		return "bzip2"
	case XZ:
		return "xz"
	case UnknownCodec:
		return "unknown codec"
	}
	return "Codec(" + strconv.Itoa(int(c)) + ")"
}

// poplarMagic starts every executable that Poplar serialised.
const poplarMagic = "GC_EXE"

// magics are the first bytes of the codecs that have any.
var magics = []struct {
	prefix string
	codec  Codec
}{
	{poplarMagic, Raw},
	{"\x04\x22\x4d\x18", LZ4},
	{"\x28\xb5\x2f\xfd", Zstd},
	{"\x1f\x8b", Gzip},
	{"\x78\x01", Zlib}, {"\x78\x5e", Zlib}, {"\x78\x9c", Zlib}, {"\x78\xda", Zlib},
	{"\xfd7zXZ\x00", XZ},
	{"BZh", Bzip2},
}

// Codec returns how an executable is compressed. It is raw if the file says
// so, if it gives 0 as its size, or if the payload starts like one of Poplar's
// own; otherwise the first bytes tell.
func (b *Blob) Codec() (Codec, error) {
	if b.Kind != ExecutableBlob || b.UncompressedSize == notCompressed || b.UncompressedSize == 0 {
		return Raw, nil
	}
	start, err := b.first(min(b.PayloadSize, 8))
	if err != nil {
		return UnknownCodec, err
	}
	for _, m := range magics {
		if bytes.HasPrefix(start, []byte(m.prefix)) {
			return m.codec, nil
		}
	}
	return UnknownCodec, nil
}

// usualRatio is how much smaller compression makes things at most, but for the
// likes of Zstd: that of Gzip.
const usualRatio = 1032

// decompress returns the size bytes that r holds in compressed form, of which
// there are packed, until ctx is done. All their memory is taken at once if they
// can be so many; else it grows as data arrives, and never beyond size. They
// count on the budget of ctx.
func decompress(ctx context.Context, codec Codec, r io.Reader, packed int64, size uint64, limit int64) (p []byte, err error) {
	if size > uint64(limit) {
		return nil, errorf(ErrLimit, "executable claims %d bytes when decompressed, %d are allowed", size, limit)
	}
	whole := int64(size) <= budget.Mul(usualRatio, packed)
	need := int64(size)
	if !whole { // half of it is garbage in the end
		need *= 2
	}
	room := budget.From(ctx)
	if err := room.Take(need, "decompressing the executable"); err != nil {
		return nil, errorf(ErrLimit, "%w", err)
	}
	defer func() {
		room.Give(need - int64(len(p))) // all of it after an error
	}()
	z, done, err := newDecompressor(codec, watched{ctx, r}, room.Left())
	if err != nil {
		return nil, errorf(ErrCompression, "executable (%v): %w", codec, err)
	}
	defer done()
	z = watched{ctx, z}
	if whole && int64(size) == int64(int(size)) {
		b := make([]byte, size)
		var n int
		if n, err = io.ReadFull(z, b); err == nil {
			p = b
		} else if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errorf(ErrTruncated, "data ends after %d of %d bytes", n, size)
		}
	} else {
		p, err = readGrowing(z, int64(size))
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("decompress the executable: %w", ctx.Err())
	case errors.Is(err, ErrTruncated):
		return nil, errorf(ErrCompression, "executable (%v): %w when decompressed", codec, err)
	case err != nil:
		return nil, errorf(ErrCompression, "executable (%v): %w", codec, err)
	}
	// One more byte must not come; reading on also makes the codec verify its
	// checksum.
	switch n, err := io.ReadFull(z, make([]byte, 1)); {
	case n != 0:
		return nil, errorf(ErrCompression, "executable (%v): more than the %d bytes it claims when decompressed", codec, size)
	case err != io.EOF:
		return nil, errorf(ErrCompression, "executable (%v): %w", codec, err)
	}
	return p, nil
}

// watchedBytes is how much is read between two looks at a context: some
// milliseconds.
const watchedBytes = 8 << 20

// watched is a reader until its context is done, whose error it then returns.
type watched struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (w watched) Read(p []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	return w.r.Read(p[:min(len(p), watchedBytes)])
}

// newDecompressor returns a reader of what r holds compressed, and what ends its use. Memory of
// its own takes left bytes at most.
func newDecompressor(codec Codec, r io.Reader, left int64) (io.Reader, func(), error) {
	done := func() {}
	switch codec {
	case LZ4:
		return lz4.NewReader(r), done, nil
	case Zstd:
		// A frame says how much memory its decoder needs; 128 MiB is what the
		// zstd tool itself accepts by default.
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(uint64(min(max(left, zstd.MinWindowSize), 128<<20))))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case Gzip:
		z, err := gzip.NewReader(r)
		return z, done, err
	case Zlib:
		z, err := zlib.NewReader(r)
		return z, done, err
	case Bzip2:
		return bzip2.NewReader(r), done, nil
	case XZ:
		return nil, nil, errors.New("xz is not supported")
	}
	return nil, nil, errors.New("the first bytes match no known compression")
}
