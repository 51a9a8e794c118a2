package popef

import (
	"fmt"

	"github.com/pierrec/lz4/v4"
)

// blobWriter writes the payload of the blob that is open.
type blobWriter struct {
	w          *Writer
	blob       *draft
	want       int64       // length that the payload must have, or -1
	compressor *lz4.Writer // nil where the payload is written as it comes
	raw        uint64      // bytes given to the compressor
	ended      bool
}

// Write appends to the payload.
func (b *blobWriter) Write(p []byte) (int, error) {
	switch {
	case b.ended:
		return 0, b.w.fail(b.blob, errorf(ErrSuperseded, "write after the blob has ended"))
	case len(p) == 0:
		return 0, nil
	case b.compressor == nil:
		return rawBlob{b}.Write(p)
	}
	n, err := b.compressor.Write(p)
	b.raw += uint64(n)
	if err != nil {
		return n, b.w.fail(b.blob, err)
	}
	return n, nil
}

// rawBlob appends to the payload without compressing.
type rawBlob struct{ *blobWriter }

func (b rawBlob) Write(p []byte) (int, error) {
	if b.want >= 0 && int64(len(p)) > b.want-b.written() {
		return 0, b.w.fail(b.blob, errorf(ErrMismatch, "more data than the %d bytes that %v takes", b.want, b.blob.Info))
	}
	b.w.writeAt(b.w.end, p)
	if b.w.err != nil {
		return 0, b.w.fail(b.blob, b.w.err)
	}
	b.w.end += int64(len(p))
	return len(p), nil
}

func (b *blobWriter) written() int64 { return b.w.end - b.blob.PayloadOffset }

// Close ends the blob: its sizes are filled in.
func (b *blobWriter) Close() error {
	if b.ended {
		return nil
	}
	b.ended = true
	b.w.open = nil
	if b.want >= 0 && b.written() != b.want {
		b.w.err = b.w.fail(b.blob, errorf(ErrShortData, "%d bytes of data, %v takes %d", b.written(), b.blob.Info, b.want))
		return b.w.err
	}
	if b.compressor != nil {
		size := uint64(notCompressed) // nothing was written, not even a frame
		if b.raw > 0 {
			size = b.raw
			if err := b.compressor.Close(); err != nil {
				return b.w.fail(b.blob, err)
			}
		}
		b.w.writeAt(b.blob.infoOffset+uncompressedSizeFieldOffset, le64(size))
	}
	b.w.writeAt(b.blob.Offset+sizeFieldOffset, le64(uint64(b.w.end-b.blob.Offset)))
	if b.w.err != nil {
		return b.w.fail(b.blob, b.w.err)
	}
	return nil
}

// FeedWriter fills the tensors of a feed, in any order, until its Writer is
// closed. Other blobs may be written meanwhile.
type FeedWriter struct {
	w    *Writer
	blob *draft
	size int64  // bytes of one tensor
	done []bool // which tensors have been written
	left int    // how many have not
	shut bool
}

// CreateFeed starts a feed of n tensors and reserves their space.
func (w *Writer) CreateFeed(name string, info TensorInfo, n uint32) (*FeedWriter, error) {
	b := &draft{Blob: Blob{Kind: FeedBlob, Name: name, Info: info, NumTensors: n}}
	if err := w.checkTensor(b, n); err != nil {
		return nil, err
	}
	size, _ := info.SizeInBytes()
	payload := size * int64(n)
	if err := w.start(b, payload); err != nil {
		return nil, err
	}
	// Zeros rather than a seek beyond the end: not every destination allows one.
	zeros := make([]byte, min(payload, bufferSize))
	for left := payload; left > 0 && w.err == nil; left -= int64(len(zeros)) {
		zeros = zeros[:min(left, int64(len(zeros)))]
		w.writeAt(w.end, zeros)
		w.end += int64(len(zeros))
	}
	if w.err != nil {
		return nil, w.fail(b, w.err)
	}
	f := &FeedWriter{w: w, blob: b, size: size}
	if size > 0 {
		f.done, f.left = make([]bool, n), int(n)
	}
	w.feeds = append(w.feeds, f)
	return f, nil
}

// WriteTensor writes the i-th tensor.
func (f *FeedWriter) WriteTensor(i int, data []byte) error {
	switch {
	case f.shut:
		return f.w.fail(f.blob, errorf(ErrClosed, "write to a closed feed"))
	case i < 0 || int64(i) >= int64(f.blob.NumTensors):
		return f.w.fail(f.blob, fmt.Errorf("tensor %d of a feed of %d", i, f.blob.NumTensors))
	case int64(len(data)) != f.size:
		return f.w.fail(f.blob, errorf(ErrMismatch, "tensor %d: %d bytes of data, %v takes %d", i, len(data), f.blob.Info, f.size))
	}
	f.w.writeAt(f.blob.PayloadOffset+int64(i)*f.size, data)
	if f.w.err != nil {
		return f.w.fail(f.blob, f.w.err)
	}
	if f.size > 0 && !f.done[i] {
		f.done[i] = true
		f.left--
	}
	return nil
}

// Close ends the feed. It fails if a tensor has not been written.
func (f *FeedWriter) Close() error {
	if f.shut {
		return nil
	}
	f.shut = true
	if f.left > 0 {
		f.w.err = f.w.fail(f.blob, errorf(ErrShortData, "%d of %d tensors have not been written", f.left, f.blob.NumTensors))
		return f.w.err
	}
	return nil
}
