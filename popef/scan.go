package popef

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/popef/internal/wire"
)

// Limits bound what a Reader believes of a file. A zero field stands for its
// default.
type Limits struct {
	Message    int64 // bytes of one Cap'n Proto message; default 256 MiB
	Executable int64 // bytes of a decompressed executable; default 4 GiB
	Blobs      int   // blobs of one file; default 1,048,576
}

func (l Limits) withDefaults() Limits {
	if l.Message == 0 {
		l.Message = 256 << 20
	}
	if l.Executable == 0 {
		l.Executable = 4 << 30
	}
	if l.Blobs == 0 {
		l.Blobs = 1 << 20
	}
	return l
}

// sizing is a reading of what the size field of a blob counts.
type sizing int

const (
	sizeFromStart  sizing = iota // header, info message and payload: what the format says
	sizeFromHeader               // info message and payload
	sizeFromInfo                 // payload alone
)

// dialect is a reading of a whole file.
type dialect struct {
	packed bool
	sizing sizing
}

// dialects are tried in this order until one fits the whole file.
var dialects = [...]dialect{
	{false, sizeFromStart}, {false, sizeFromHeader}, {false, sizeFromInfo},
	{true, sizeFromStart}, {true, sizeFromHeader}, {true, sizeFromInfo},
}

// scan lists the blobs of a file without touching their payloads. If no
// dialect fits, the error is that of the dialect that the format describes,
// plain or packed as the first header is.
func scan(ctx context.Context, src *source, limits Limits) ([]*Blob, warnings, error) {
	var reported *Error
	for _, d := range dialects {
		s := scanner{
			view: view{src: src}, ctx: ctx, room: budget.From(ctx).Part(0),
			limits: limits, dialect: d,
			budget: 1<<20 + 64*src.size,
		}
		err := s.run()
		if err == nil {
			if d != dialects[0] {
				s.warn.add(Location{File: src.name, Blob: -1}, "%s", d)
			}
			src.room = s.room
			return s.blobs, s.warn, nil
		}
		s.room.Release()
		if ctx.Err() != nil || errors.Is(err, budget.ErrExceeded) {
			return nil, warnings{}, err
		}
		if reported == nil || d.packed && reported.Blob == 0 && reported.Kind == unknownKind && err.Kind != unknownKind {
			reported = err
		}
		// Where the size of one blob led to the header of another, sizes have
		// been read as they were meant, and what is wrong lies elsewhere.
		if err.Blob > 0 && err.Kind != unknownKind {
			break
		}
	}
	return nil, warnings{}, reported
}

func (d dialect) String() string {
	s := "messages are plain"
	if d.packed {
		s = "messages are packed"
	}
	switch d.sizing {
	case sizeFromHeader:
		return s + "; sizes of blobs leave out the header message"
	case sizeFromInfo:
		return s + "; sizes of blobs count the payload alone"
	}
	return s
}

// scanner reads one file in one dialect.
type scanner struct {
	view   view
	ctx    context.Context
	room   *budget.Budget // for what blobs and messages become
	limits Limits
	dialect
	budget int64 // bytes that packed messages may still unfold to
	blobs  []*Blob
	warn   warnings
}

// What is kept of a blob takes this many bytes, and of its info message some times
// the size that it has in the file.
const (
	blobBytes     = 512
	messageFactor = 8
)

func (s *scanner) run() *Error {
	for off := int64(0); off < s.view.Size(); {
		b := &Blob{File: s.view.src.name, Index: len(s.blobs), Kind: unknownKind, Offset: off, src: s.view.src}
		err := s.room.Take(blobBytes, "the list of blobs")
		if err == nil && len(s.blobs)%256 == 0 {
			err = s.ctx.Err()
		}
		switch {
		case err != nil:
		case len(s.blobs) == s.limits.Blobs:
			err = errorf(ErrLimit, "more than %d blobs", s.limits.Blobs)
		default:
			err = s.blob(b)
		}
		if err != nil {
			return &Error{Location: b.Location(), Err: err, Hint: hintFor(err)}
		}
		s.blobs = append(s.blobs, b)
		off += b.Size
	}
	return nil
}

// hintFor says what to do about a file that can't be read.
func hintFor(err error) string {
	switch {
	case errors.Is(err, ErrTruncated):
		return "the file is incomplete; copy or write it again"
	case errors.Is(err, ErrLimit):
		return "raise the reader's limits if the file is to be trusted"
	case errors.Is(err, ErrFormat):
		return "is this a PopEF file?"
	}
	return ""
}

// message reads the message at off.
func (s *scanner) message(what string, off int64) (wire.Message, error) {
	var m wire.Message
	var err error
	if s.packed {
		m, err = wire.ReadPacked(&s.view, off, min(s.limits.Message, s.budget))
		s.budget -= m.Size
	} else {
		m, err = wire.Read(&s.view, off, s.limits.Message)
	}
	switch {
	case err == nil:
		return m, nil
	case errors.Is(err, wire.ErrTruncated):
		return m, errorf(ErrTruncated, "%s message: %w", what, err)
	case errors.Is(err, wire.ErrTooLarge):
		return m, errorf(ErrLimit, "%s message: %w", what, err)
	case errors.Is(err, ErrClosed):
		return m, err
	}
	return m, errorf(ErrFormat, "%s message: %w", what, err)
}

func (s *scanner) header(off int64) (h header, d decoder, end int64, err error) {
	m, err := s.message("header", off)
	if err != nil {
		return h, d, 0, err
	}
	h = d.header(m.Root)
	if d.err != nil {
		return h, d, 0, errorf(ErrFormat, "header message: %w", d.err)
	}
	return h, d, m.End, nil
}

// blob reads the two messages of the blob at b.Offset and works out where its
// payload lies.
func (s *scanner) blob(b *Blob) error {
	h, d, headerEnd, err := s.header(b.Offset)
	if err != nil {
		return err
	}
	b.Kind, b.Version = h.kind, h.version
	if !h.kind.Valid() {
		return s.unknown(b, h, headerEnd)
	}
	m, err := s.message("info", headerEnd)
	if err != nil {
		return err
	}
	if err := s.room.Take(budget.Mul(messageFactor, m.Size), "the %v message", b.Kind); err != nil {
		return err
	}
	d.info(m.Root, b)
	if d.err != nil {
		return errorf(ErrFormat, "%v message: %w", b.Kind, d.err)
	}
	oddities(&s.warn, b, &d)
	b.PayloadOffset = m.End
	if h.size == 0 && s.sizing == sizeFromStart {
		return s.unfinished(b)
	}
	end, err := s.end(b, h, headerEnd, m.End)
	if err != nil {
		return err
	}
	if end < m.End {
		return errorf(ErrFormat, "blob of %d bytes ends at %#x, inside its own messages, which end at %#x", h.size, end, m.End)
	}
	b.Size, b.PayloadSize = end-b.Offset, end-m.End
	s.checkPayload(b)
	return nil
}

// unknown skips a blob of a kind that this package does not know.
func (s *scanner) unknown(b *Blob, h header, headerEnd int64) error {
	base := headerEnd
	if s.sizing == sizeFromInfo {
		m, err := s.message("info", headerEnd)
		if err != nil {
			return err
		}
		base = m.End
	}
	end, err := s.end(b, h, headerEnd, base)
	if err != nil {
		return err
	}
	if end < base {
		return errorf(ErrFormat, "blob of %d bytes is smaller than its own header", h.size)
	}
	b.PayloadOffset, b.PayloadSize, b.Size = base, end-base, end-b.Offset
	s.warn.add(b.Location(), "blobs of kind %d are newer than this reader; skipped", uint16(b.Kind))
	return nil
}

// end returns the offset after the blob, within the file.
func (s *scanner) end(b *Blob, h header, headerEnd, infoEnd int64) (int64, error) {
	base := [...]int64{sizeFromStart: b.Offset, sizeFromHeader: headerEnd, sizeFromInfo: infoEnd}[s.sizing]
	if left := s.view.Size() - base; h.size > uint64(left) {
		return 0, errorf(ErrTruncated, "blob claims %d bytes, the file has %d left", h.size, left)
	}
	return base + int64(h.size), nil
}

// unfinished handles the size 0 of a writer that was never closed: the last
// blob then reaches to the end of the file.
func (s *scanner) unfinished(b *Blob) error {
	next := b.PayloadOffset
	if n, err := b.expected(); err == nil && n <= s.view.Size()-next {
		next += n
	}
	if s.startsBlob(next) {
		return errorf(ErrFormat, "size is 0, as if its writer was never closed, yet another blob follows at %#x", next)
	}
	b.Unfinished = true
	b.Size = s.view.Size() - b.Offset
	b.PayloadSize = s.view.Size() - b.PayloadOffset
	s.warn.add(b.Location(), "its writer was never closed (size 0); the payload is taken to reach to the end of the file")
	s.checkPayload(b)
	return nil
}

// startsBlob reports whether a blob's messages can be read at off. A payload
// may be a Cap'n Proto message too, so the header alone proves little.
func (s *scanner) startsBlob(off int64) bool {
	if off == s.view.Size() {
		return false
	}
	h, d, end, err := s.header(off)
	if err != nil || h.size > uint64(s.view.Size()-off) {
		return false
	}
	if !h.kind.Valid() {
		return h.size > 0
	}
	m, err := s.message("info", end)
	if err != nil {
		return false
	}
	d.info(m.Root, &Blob{Kind: h.kind})
	return d.err == nil
}

// expected returns how many bytes of payload the info message asks for.
func (b *Blob) expected() (int64, error) {
	switch b.Kind {
	case TensorBlob:
		return b.Info.SizeInBytes()
	case FeedBlob:
		n, err := b.Info.SizeInBytes()
		if err != nil {
			return 0, err
		}
		if n > 0 && int64(b.NumTensors) > (1<<63-1)/n {
			return 0, fmt.Errorf("%d tensors of %d bytes exceed 64 bits", b.NumTensors, n)
		}
		return n * int64(b.NumTensors), nil
	}
	return 0, nil
}

// checkPayload warns of a payload that has another length than its info
// message asks for. Whether that is an error depends on its use.
func (s *scanner) checkPayload(b *Blob) {
	if b.Kind == ExecutableBlob || b.Kind == OpaqueBlob {
		return
	}
	n, err := b.expected()
	switch {
	case err != nil:
		s.warn.add(b.Location(), "the length of its payload can't be checked: %v", err)
	case b.PayloadSize < n:
		s.warn.add(b.Location(), "%d bytes of payload, %d expected; it can't be used", b.PayloadSize, n)
	case b.PayloadSize > n && b.Kind == MetadataBlob:
		s.warn.add(b.Location(), "%d bytes of payload are ignored: metadata has none", b.PayloadSize)
	}
}
