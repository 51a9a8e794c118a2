package popef

import (
	"io"
	"strings"
)

// Blob is one blob of a file: what its messages say and where its payload
// lies. Which of the fields from Name on are set depends on the kind.
type Blob struct {
	File    string   // path or name of the file
	Index   int      // number in the file, from 0
	Kind    BlobKind // what it holds
	Version string   // version text of its writer

	Offset        int64 // of the blob in the file
	Size          int64 // bytes of the whole blob
	PayloadOffset int64 // of the payload in the file
	PayloadSize   int64 // bytes of the payload
	Unfinished    bool  // its writer never wrote its size; it reaches to the end of the file

	Name             string     // executable, tensor data, feed data, opaque
	Executable       string     // opaque: name of the executable it belongs to
	Info             TensorInfo // tensor data, feed data: of one tensor
	NumTensors       uint32     // feed data
	UncompressedSize uint64     // executable: 2^64-1 where it is not compressed
	Metadata         *Metadata  // metadata

	src   *source
	order int // among all blobs of its Reader
}

// Location returns where the blob starts, for messages.
func (b *Blob) Location() Location {
	return Location{File: b.File, Blob: b.Index, Kind: b.Kind, Name: b.Name, Offset: b.Offset}
}

// seenFrom is the place of b in an error of the blob at other, which names its
// own file.
func (b *Blob) seenFrom(other *Blob) string {
	l := b.Location()
	if l == other.Location() {
		return "the same place"
	}
	if l.File == other.File {
		l.File = ""
	}
	if l.Name == other.Name {
		l.Name = ""
	}
	return strings.TrimPrefix(l.String(), "@")
}

// payloadLocation returns where its payload starts.
func (b *Blob) payloadLocation() Location {
	l := b.Location()
	l.Offset = b.PayloadOffset
	return l
}

// Open returns a reader of the payload as it stands in the file, which works
// until the Reader is closed.
func (b *Blob) Open() *io.SectionReader {
	return io.NewSectionReader(guard{b.src}, b.PayloadOffset, b.PayloadSize)
}

// guard refuses to touch memory that has been unmapped.
type guard struct{ src *source }

func (g guard) ReadAt(p []byte, off int64) (int, error) {
	if g.src.closed.Load() {
		return 0, ErrClosed
	}
	return g.src.r.ReadAt(p, off)
}

// View returns the payload as it stands in the file without copying it, and
// false where the file is neither mapped nor in memory. The bytes are
// read-only, and gone once the Reader is closed.
func (b *Blob) View() ([]byte, bool) {
	if !b.src.inMem || b.src.closed.Load() {
		return nil, false
	}
	end := b.PayloadOffset + b.PayloadSize
	return b.src.mem[b.PayloadOffset:end:end], true
}

// Bytes returns the payload as it stands in the file: a view where there is
// one, else a copy, read anew at every call.
func (b *Blob) Bytes() ([]byte, error) { return b.first(b.PayloadSize) }

// first returns the first n bytes of the payload.
func (b *Blob) first(n int64) ([]byte, error) {
	p, err := b.src.read(b.PayloadOffset, n)
	if err != nil {
		return nil, &Error{Location: b.payloadLocation(), Err: err}
	}
	return p, nil
}
