package popef

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/internal/budget"
)

// source is where the bytes of one file come from.
type source struct {
	name   string
	size   int64
	r      io.ReaderAt    // reads the bytes; never nil
	mem    []byte         // all of them, where they are in memory or mapped
	inMem  bool           // mem is meaningful, even if empty
	mapped bool           // mem is the file itself
	info   os.FileInfo    // what the file was when it was opened; nil if it is none
	close  func() error   // may be nil
	room   *budget.Budget // of what was read from it; nil before
	closed atomic.Bool
}

func bytesSource(name string, b []byte) *source {
	return &source{name: name, size: int64(len(b)), mem: b, inMem: true, r: memReader(b)}
}

// fileSource opens path, mapped into memory where the platform can do that.
func fileSource(path string) (*source, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err // which says what was done to which file
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err // which says what was done to which file
	}
	if !info.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("%s: not a regular file (%v); hint: copy the data to a file first", path, info.Mode().Type())
	}
	if mem, unmap, err := mapFile(f, info.Size()); err == nil {
		f.Close() // the mapping outlives the descriptor
		s := bytesSource(path, mem)
		s.close, s.mapped, s.info = unmap, true, info
		return s, nil
	}
	return &source{name: path, size: info.Size(), r: f, close: f.Close, info: info}, nil
}

// copySource reads all of the file f into memory, which counts on the budget of ctx
// until it is closed, and closes f.
func copySource(ctx context.Context, f *source) (s *source, err error) {
	defer f.Close()
	fail := func(err error) (*source, error) { return nil, fmt.Errorf("copy model file %s: %w", f.name, err) }
	r, err := os.Open(f.name) // reading fails where a mapping would end the process
	if err != nil {
		return nil, err // which says what was done to which file
	}
	defer r.Close()
	room := budget.From(ctx).Part(0)
	if err := room.Take(f.size, "a copy in memory"); err != nil {
		return fail(errorf(ErrLimit, "%w", err))
	}
	if f.size != int64(int(f.size)) {
		err = errorf(ErrLimit, "%d bytes do not fit into this machine's address space", f.size)
	}
	var b []byte
	if err == nil {
		b = make([]byte, f.size)
		var n int
		if n, err = io.ReadFull(watched{ctx, r}, b); err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errorf(ErrTruncated, "data ends after %d of %d bytes", n, f.size)
		}
	}
	if err == nil {
		err = f.unchanged()
	}
	if err != nil {
		room.Release()
		return fail(err)
	}
	s = bytesSource(f.name, b)
	s.close = func() error { room.Release(); return nil }
	return s, nil
}

// unchanged returns an error if the file was written over. One that took its
// place by a rename is another file, which does not matter.
func (s *source) unchanged() error {
	if s.info == nil {
		return nil
	}
	now, err := os.Stat(s.name)
	if err != nil || !os.SameFile(now, s.info) || now.Size() == s.info.Size() && now.ModTime().Equal(s.info.ModTime()) {
		return nil // err: it was removed or renamed, and what is open stays
	}
	return fmt.Errorf("%s: %w: it has %d bytes of %v, and had %d of %v; replace models by a rename, as popef.WriteFile does", s.name, ErrChanged,
		now.Size(), now.ModTime().Format(time.RFC3339Nano), s.info.Size(), s.info.ModTime().Format(time.RFC3339Nano))
}

// Close releases the source once; later calls do nothing.
func (s *source) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if s.room != nil {
		s.room.Release()
	}
	if s.close == nil {
		return nil
	}
	return s.close()
}

// read returns n bytes from off, a view where they are in memory. Memory for a
// copy grows as data arrives: the size of a file may be a claim of its caller.
func (s *source) read(off, n int64) ([]byte, error) {
	if s.closed.Load() {
		return nil, ErrClosed
	}
	if s.inMem {
		return s.mem[off : off+n : off+n], nil
	}
	return readGrowing(io.NewSectionReader(s.r, off, n), n)
}

// release gives back the memory pages that a part of a mapped file takes up and
// shares with no other part: they are read from the file again if somebody
// looks at them.
func (s *source) release(off, n int64) {
	if !s.mapped || s.closed.Load() {
		return
	}
	page := int64(os.Getpagesize())
	first, end := (off+page-1)/page*page, (off+n)/page*page
	if first < end {
		dropPages(s.mem[first:end])
	}
}

// firstChunk is how much memory is taken on the word of a length field.
const firstChunk = 1 << 20

// readGrowing reads exactly n bytes, doubling its buffer as they arrive.
func readGrowing(r io.Reader, n int64) ([]byte, error) {
	if n != int64(int(n)) {
		return nil, errorf(ErrLimit, "%d bytes do not fit into this machine's address space", n)
	}
	b := make([]byte, 0, min(n, firstChunk))
	for {
		got, err := io.ReadFull(r, b[len(b):cap(b)])
		b = b[:len(b)+got]
		if int64(len(b)) == n && err == nil {
			return b, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return nil, errorf(ErrTruncated, "data ends after %d of %d bytes", len(b), n)
		}
		if err != nil {
			return nil, err
		}
		grown := make([]byte, len(b), min(n, 2*int64(cap(b))))
		copy(grown, b)
		b = grown
	}
}

// memReader is an io.ReaderAt over bytes.
type memReader []byte

func (m memReader) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// view is a wire.View of a source: the bytes themselves where they are in
// memory, else a window that moves with the reading.
type view struct {
	src *source
	off int64
	win []byte
}

// window is how much is read at once where the file is not in memory: enough
// for the header and info message of nearly every blob.
const window = 4096

func (v *view) Size() int64 { return v.src.size }

func (v *view) At(off int64, n int) ([]byte, error) {
	if v.src.inMem {
		return v.src.read(off, int64(n))
	}
	if off < v.off || off+int64(n) > v.off+int64(len(v.win)) {
		b, err := v.src.read(off, min(max(int64(n), window), v.src.size-off))
		if err != nil {
			return nil, err
		}
		v.off, v.win = off, b
	}
	i := int(off - v.off)
	return v.win[i : i+n : i+n], nil
}
