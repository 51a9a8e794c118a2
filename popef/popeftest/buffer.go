// Package popeftest helps tests with PopEF files: files in memory, and four
// models like those that PopART, PopTorch and TensorFlow export.
package popeftest

import (
	"errors"
	"io"
)

// Buffer is a file in memory that can be written, also beyond its end, and
// sought. The zero value is empty.
type Buffer struct {
	data []byte
	off  int64
}

// Bytes returns the content, which stays valid until the next write.
func (b *Buffer) Bytes() []byte { return b.data }

// Write writes p at the current offset, growing the content where needed.
func (b *Buffer) Write(p []byte) (int, error) {
	if end := b.off + int64(len(p)); end > int64(len(b.data)) {
		b.data = append(b.data, make([]byte, end-int64(len(b.data)))...)
	}
	n := copy(b.data[b.off:], p)
	b.off += int64(n)
	return n, nil
}

// Seek moves the current offset.
func (b *Buffer) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.off
	case io.SeekEnd:
		offset += int64(len(b.data))
	}
	if offset < 0 {
		return 0, errors.New("popeftest: seek before the start")
	}
	b.off = offset
	return offset, nil
}
