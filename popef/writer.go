package popef

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/pierrec/lz4/v4"

	"github.com/popefgen/popefgen/popef/internal/wire"
)

// DefaultVersion is the version text that a Writer gives its blobs. What
// Graphcore's library writes is not known.
const DefaultVersion = "1.0.0"

// Alignment is what the payloads of executables, tensors and feeds are aligned
// to, in bytes from the start of the file, so that a mapped file can be used in
// place: a cache line, and the widest vector register.
const Alignment = 64

// Writer writes blobs to one file. One blob is open at a time: starting the
// next ends the one before, whose writer then fails with [ErrSuperseded]. Feeds
// are the exception: their space is reserved at once, so several can be filled
// in turns. A Writer is for one goroutine.
//
// A payload is aligned to [Alignment] by zero words at the end of the message
// before it, which every reader skips. That works wherever the blob starts at
// a multiple of 8. As blobs follow each other without a gap, one payload whose
// length is no multiple of 8 spoils it for the rest of the file: write such
// tensors and opaque blobs last.
type Writer struct {
	w       io.WriteSeeker
	version string
	align   int64
	buf     []byte // written, but not yet handed to w
	pos     int64  // offset in w of the first byte of buf
	end     int64  // offset of the end of the file
	blobs   int
	open    *blobWriter
	feeds   []*FeedWriter
	names   map[nameKey]bool
	err     error // the first error of w; everything fails after it
	closed  bool
}

// draft is a blob that is being written.
type draft struct {
	Blob
	infoOffset int64 // of the info message in the file
	started    bool  // it has its place in the file
}

type nameKey struct {
	kind BlobKind
	name string
}

// WriterOption changes what a Writer writes.
type WriterOption func(*Writer)

// WithVersion replaces [DefaultVersion].
func WithVersion(version string) WriterOption {
	return func(w *Writer) { w.version = version }
}

// WithoutAlignment leaves payloads where they fall, for the smallest file.
func WithoutAlignment() WriterOption {
	return func(w *Writer) { w.align = 1 }
}

// NewWriter returns a Writer that starts at ws's current offset, so that blobs
// can be appended to a finished file. ws is not closed.
func NewWriter(ws io.WriteSeeker, opts ...WriterOption) *Writer {
	w := &Writer{w: ws, version: DefaultVersion, align: Alignment, names: map[nameKey]bool{}}
	for _, o := range opts {
		o(w)
	}
	w.pos, w.err = ws.Seek(0, io.SeekCurrent)
	w.end = w.pos
	return w
}

// WriteMetadata writes a metadata blob. Metadata that a Reader would refuse is
// refused: a negative dimension, an unknown type.
func (w *Writer) WriteMetadata(m *Metadata) error {
	b := &draft{Blob: Blob{Kind: MetadataBlob, Metadata: m, Executable: m.Executable}}
	if err := checkMetadata(m); err != nil {
		return w.fail(b, err)
	}
	return w.whole(b, nil)
}

// WriteTensor writes a tensor blob; data is all of it.
func (w *Writer) WriteTensor(name string, info TensorInfo, data []byte) error {
	b := &draft{Blob: Blob{Kind: TensorBlob, Name: name, Info: info}}
	if err := w.checkTensor(b, 1); err != nil {
		return err
	}
	if want, _ := info.SizeInBytes(); int64(len(data)) != want {
		return w.fail(b, errorf(ErrShortData, "%d bytes of data, %v takes %d", len(data), info, want))
	}
	return w.whole(b, data)
}

// CreateTensor starts a tensor blob. Its Close fails unless exactly
// [TensorInfo.SizeInBytes] bytes have been written.
func (w *Writer) CreateTensor(name string, info TensorInfo) (io.WriteCloser, error) {
	return w.CreateRemoteTensor(name, info, 1)
}

// CreateRemoteTensor starts a tensor blob for an anchor in a remote buffer,
// which takes the tensor's bytes repeats times.
func (w *Writer) CreateRemoteTensor(name string, info TensorInfo, repeats uint32) (io.WriteCloser, error) {
	b := &draft{Blob: Blob{Kind: TensorBlob, Name: name, Info: info}}
	if err := w.checkTensor(b, repeats); err != nil {
		return nil, err
	}
	want, _ := info.SizeInBytes()
	return w.create(b, want*int64(max(repeats, 1)))
}

// checkTensor refuses a tensor that a Reader would refuse.
func (w *Writer) checkTensor(b *draft, repeats uint32) error {
	if err := checkInfo(b.Info); err != nil {
		return w.fail(b, err)
	}
	if n, _ := b.Info.SizeInBytes(); n > math.MaxInt64/int64(max(repeats, 1)) {
		return w.fail(b, fmt.Errorf("%d × %v exceeds 64 bits", repeats, b.Info))
	}
	return nil
}

// CreateExecutable starts an executable blob. Its name must not be empty, and
// is what the metadata refers to. With compress the payload is an LZ4 frame;
// which codec Graphcore's library uses is not known, so a file for others to
// read had better not be compressed.
func (w *Writer) CreateExecutable(name string, compress bool) (io.WriteCloser, error) {
	b := &draft{Blob: Blob{Kind: ExecutableBlob, Name: name, UncompressedSize: notCompressed}}
	if name == "" {
		return nil, w.fail(b, errorf(ErrExecutableName, "executable has no name"))
	}
	if !compress {
		return w.create(b, -1)
	}
	bw, err := w.create(b, -1)
	if err != nil {
		return nil, err
	}
	bw.compressor = lz4.NewWriter(rawBlob{bw})
	return bw, nil
}

// CreateOpaque starts an opaque blob: whatever the owner of the name attaches
// to an executable.
func (w *Writer) CreateOpaque(name, executable string) (io.WriteCloser, error) {
	return w.create(&draft{Blob: Blob{Kind: OpaqueBlob, Name: name, Executable: executable}}, -1)
}

// Close ends the last blob. It fails if a feed has not been filled.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	err := w.endOpen()
	for _, f := range w.feeds {
		err = errors.Join(err, f.Close())
	}
	w.flush()
	if err == nil && w.err != nil {
		err = fmt.Errorf("write %s: %w", w.name(), w.err)
	}
	return err
}

// fail places an error at a blob, unless it has its place already. A blob that
// has not been started is the next one.
func (w *Writer) fail(b *draft, err error) error {
	if e := (*Error)(nil); errors.As(err, &e) {
		return err
	}
	if !b.started {
		b.Index, b.Offset = w.blobs, w.end
	}
	return &Error{Location: Location{File: w.name(), Blob: b.Index, Kind: b.Kind, Name: b.Name, Offset: b.Offset}, Err: err}
}

// name returns the file's name, where the destination has one.
func (w *Writer) name() string {
	if n, ok := w.w.(interface{ Name() string }); ok {
		return n.Name()
	}
	return "popef writer"
}

// start ends the blob before and writes the messages of the next one. The
// size field is size if that is not negative, else 0 until the blob ends.
func (w *Writer) start(b *draft, payload int64) error {
	if w.closed {
		return w.fail(b, ErrClosed)
	}
	if err := w.endOpen(); err != nil {
		return err
	}
	if w.err != nil {
		return w.fail(b, w.err)
	}
	key := nameKey{b.Kind, b.Name}
	if b.Kind == MetadataBlob {
		key.name = b.Executable
	}
	if b.Kind != OpaqueBlob && w.names[key] {
		return w.fail(b, errorf(ErrDuplicate, "%v %q has been written already", b.Kind, shorten(key.name)))
	}
	head, err := encodeHeader(w.version, b.Kind, 0)
	if err != nil {
		return w.fail(b, err)
	}
	info, err := encodeInfo(&b.Blob)
	if err != nil {
		return w.fail(b, err)
	}
	b.Index, b.Offset, b.started = w.blobs, w.end, true
	b.PayloadOffset = b.Offset + int64(len(head)) + 8 + int64(len(info))
	words := 0
	if b.Kind == ExecutableBlob || b.Kind == TensorBlob || b.Kind == FeedBlob {
		if miss := (w.align - b.PayloadOffset%w.align) % w.align; miss%8 == 0 {
			words = int(miss / 8)
			b.PayloadOffset += miss
		}
	}
	if payload > math.MaxInt64-b.PayloadOffset {
		return w.fail(b, fmt.Errorf("%d bytes of payload exceed what a file can hold", payload))
	}
	if payload >= 0 {
		copy(head[sizeFieldOffset:], le64(uint64(b.PayloadOffset-b.Offset+payload)))
	}
	b.infoOffset = b.Offset + int64(len(head))
	w.writeAt(b.Offset, head)
	w.writeAt(b.infoOffset, wire.Frame(info, words))
	w.end = b.PayloadOffset
	if w.err != nil {
		return w.fail(b, w.err)
	}
	w.blobs++
	w.names[key] = true
	return nil
}

// whole writes a blob whose payload is at hand.
func (w *Writer) whole(b *draft, payload []byte) error {
	if err := w.start(b, int64(len(payload))); err != nil {
		return err
	}
	w.writeAt(w.end, payload)
	w.end += int64(len(payload))
	if w.err != nil {
		return w.fail(b, w.err)
	}
	return nil
}

// create starts a blob whose payload follows; want is its length, or -1.
func (w *Writer) create(b *draft, want int64) (*blobWriter, error) {
	if err := w.start(b, -1); err != nil {
		return nil, err
	}
	w.open = &blobWriter{w: w, blob: b, want: want}
	return w.open, nil
}

// endOpen ends the blob that is open, if there is one.
func (w *Writer) endOpen() error {
	if w.open == nil {
		return nil
	}
	return w.open.Close()
}

// bufferSize is how much is gathered before it is handed on.
const bufferSize = 64 << 10

// writeAt writes p at off. What continues where the last write ended is
// gathered in the buffer.
func (w *Writer) writeAt(off int64, p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	if off != w.pos+int64(len(w.buf)) {
		w.flush()
		if w.err != nil {
			return
		}
		if w.pos, w.err = w.w.Seek(off, io.SeekStart); w.err != nil {
			return
		}
	}
	if len(w.buf)+len(p) <= bufferSize {
		w.buf = append(w.buf, p...)
		return
	}
	w.flush()
	if len(p) < bufferSize {
		w.buf = append(w.buf, p...)
		return
	}
	w.hand(p)
}

// flush hands the buffer on.
func (w *Writer) flush() {
	w.hand(w.buf)
	w.buf = w.buf[:0]
}

// hand gives p to the destination.
func (w *Writer) hand(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}
	n, err := w.w.Write(p)
	w.pos += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	w.err = err
}
