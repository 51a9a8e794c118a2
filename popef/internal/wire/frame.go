package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	capnp "capnproto.org/go/capnp/v3"
)

// MaxSegments is the largest number of segments of a message; the C++ library
// draws the same line.
const MaxSegments = 512

var (
	// ErrTruncated: a message is longer than what is left of the file.
	ErrTruncated = errors.New("message is longer than the rest of the file")
	// ErrTooLarge: a message is larger than the limit.
	ErrTooLarge = errors.New("message is larger than the limit")
)

// View gives access to the bytes of a file. At returns n bytes from off, which
// stay valid until the next call; it must fail rather than return fewer.
type View interface {
	At(off int64, n int) ([]byte, error)
	Size() int64
}

// Message is one message out of a file.
type Message struct {
	Root capnp.Struct
	End  int64 // offset in the file of the byte after it
	Size int64 // bytes of its segments, unpacked
}

// tableSize returns the bytes of the segment table of n segments.
func tableSize(n int) int { return (4 + 4*n + 7) &^ 7 }

// segmentCount reads the first four bytes of a segment table.
func segmentCount(b []byte) (int, error) {
	last := binary.LittleEndian.Uint32(b)
	if last >= MaxSegments {
		return 0, fmt.Errorf("message claims %d segments, at most %d are allowed", uint64(last)+1, MaxSegments)
	}
	return int(last) + 1, nil
}

// segmentSizes reads the lengths of n segments, in bytes, and their sum.
func segmentSizes(table []byte, n int) (sizes []int64, total int64) {
	sizes = make([]int64, n)
	for i := range sizes {
		sizes[i] = 8 * int64(binary.LittleEndian.Uint32(table[4+4*i:]))
		total += sizes[i]
	}
	return sizes, total
}

// table reads the segment table at off and checks it against the file's size.
func table(v View, off int64) (sizes []int64, body, end int64, err error) {
	left := v.Size() - off
	if left < 8 {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes left", ErrTruncated, left)
	}
	b, err := v.At(off, 8)
	if err != nil {
		return nil, 0, 0, err
	}
	n, err := segmentCount(b)
	if err != nil {
		return nil, 0, 0, err
	}
	size := tableSize(n)
	if int64(size) > left {
		return nil, 0, 0, fmt.Errorf("%w: %d bytes left", ErrTruncated, left)
	}
	if b, err = v.At(off, size); err != nil {
		return nil, 0, 0, err
	}
	sizes, total := segmentSizes(b, n)
	if total > left-int64(size) {
		return nil, 0, 0, fmt.Errorf("%w: it claims %d bytes, %d are left", ErrTruncated, total, left-int64(size))
	}
	body = off + int64(size)
	return sizes, body, body + total, nil
}

// Read reads the plain message at off. A message of more than limit bytes is
// refused before it is read. What the message holds stays valid until the next
// call of v.At.
func Read(v View, off, limit int64) (Message, error) {
	sizes, body, end, err := table(v, off)
	if err != nil {
		return Message{}, err
	}
	if end-body > limit {
		return Message{}, fmt.Errorf("%w: it claims %d bytes, %d are allowed", ErrTooLarge, end-body, limit)
	}
	b, err := v.At(body, int(end-body))
	if err != nil {
		return Message{}, err
	}
	root, err := open(b, sizes)
	return Message{Root: root, End: end, Size: end - body}, err
}

// open makes a message of consecutive segments and returns its root.
func open(b []byte, sizes []int64) (capnp.Struct, error) {
	segments := make([][]byte, len(sizes))
	for i, n := range sizes {
		segments[i], b = b[:n:n], b[n:]
	}
	msg, _, err := capnp.NewMessage(capnp.MultiSegment(segments))
	if err != nil {
		return capnp.Struct{}, err
	}
	total := uint64(0)
	for _, n := range sizes {
		total += uint64(n)
	}
	// Every pointer is followed once, so an honest message is traversed once;
	// twice leaves room for shared parts and stops amplification.
	msg.TraverseLimit = 2*total + 4096
	root, err := msg.Root()
	if err != nil {
		return capnp.Struct{}, fmt.Errorf("its root: %w", Plain(err))
	}
	if s := root.Struct(); s.IsValid() {
		return s, nil
	}
	return capnp.Struct{}, errors.New("message has no struct at its root")
}

// Frame returns the plain form of a message of one segment, to which words
// zero words are appended; readers never look at them.
func Frame(segment []byte, words int) []byte {
	b := make([]byte, 8, 8+len(segment)+8*words)
	binary.LittleEndian.PutUint32(b[4:], uint32(len(segment)/8+words))
	b = append(b, segment...)
	return append(b, make([]byte, 8*words)...)
}

// Plain returns an error of Cap'n Proto without what it was doing in its own
// words ("read root: read pointer: struct pointer: invalid address").
func Plain(err error) error {
	text := err.Error()
	for _, doing := range []string{"read root: ", "read pointer: ", "read "} {
		text = strings.TrimPrefix(text, doing)
	}
	return errors.New(text)
}
