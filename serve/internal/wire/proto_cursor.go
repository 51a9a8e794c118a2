package wire

import (
	"math"
	"unicode/utf8"

	"github.com/popefgen/popefgen/serve/oip"
)

// The wire types of protobuf.
const (
	typeVarint = 0
	typeFixed8 = 1 // eight bytes
	typeBytes  = 2
	typeBegin  = 3 // of a group
	typeEnd    = 4
	typeFixed4 = 5 // four bytes
)

// Limits of a message beside those of every request.
const (
	maxField  = 1<<29 - 1
	maxGroups = 32   // groups of unknown fields in each other
	maxText   = 4096 // bytes of a name, a type, a key or a value of a parameter
	maxAxes   = 64   // of a shape
	maxPieces = 16   // of the contents of one tensor, which protobuf puts together
)

// cursor goes through a message that lies in segments. A copy of it is a place to come back to.
type cursor struct {
	cur  []byte   // what is left of the segment, at most left bytes
	rest [][]byte // segments after it
	left int      // bytes until the message ends
	end  int      // where in the whole that is, for errors
	what string   // "request" or "answer", for errors
}

// start returns a cursor at the beginning of a message.
func start(segments [][]byte, what string) cursor {
	n := 0
	for _, s := range segments {
		n += len(s)
	}
	return cursor{rest: segments, left: n, end: n, what: what}
}

// wrong returns the error that what stands here is no protobuf.
func (c *cursor) wrong(why string) error {
	return oip.Errorf(oip.InvalidArgument, "%s, byte %d: not a protobuf message: %s", c.what, c.end-c.left, why)
}

// next makes cur the next segment that has bytes. There must be one.
func (c *cursor) next() {
	for len(c.cur) == 0 {
		c.cur, c.rest = c.rest[0], c.rest[1:]
		if len(c.cur) > c.left {
			c.cur = c.cur[:c.left]
		}
	}
}

// advance leaves n bytes out, which there must be.
func (c *cursor) advance(n int) {
	for n > 0 {
		if len(c.cur) == 0 {
			c.next()
		}
		m := min(n, len(c.cur))
		c.cur = c.cur[m:]
		c.left -= m
		n -= m
	}
}

// copy moves len(dst) bytes, which there must be, to dst.
func (c *cursor) copy(dst []byte) {
	for len(dst) > 0 {
		if len(c.cur) == 0 {
			c.next()
		}
		m := copy(dst, c.cur)
		c.cur, dst = c.cur[m:], dst[m:]
		c.left -= m
	}
}

func (c *cursor) varint() (uint64, error) {
	if len(c.cur) > 0 && c.cur[0] < 0x80 {
		v := c.cur[0]
		c.cur = c.cur[1:]
		c.left--
		return uint64(v), nil
	}
	v := uint64(0)
	for i := range 10 {
		if c.left == 0 {
			return 0, c.wrong("it ends in a number")
		}
		if len(c.cur) == 0 {
			c.next()
		}
		b := c.cur[0]
		c.cur = c.cur[1:]
		c.left--
		v |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if i == 9 && b > 1 {
				break
			}
			return v, nil
		}
	}
	return 0, c.wrong("a number has more than 64 bits")
}

// fixed returns a number of n bytes, 4 or 8.
func (c *cursor) fixed(n int) (uint64, error) {
	if c.left < n {
		return 0, c.wrong("it ends in a number")
	}
	v := uint64(0)
	for i := range n {
		if len(c.cur) == 0 {
			c.next()
		}
		v |= uint64(c.cur[0]) << (8 * i)
		c.cur = c.cur[1:]
		c.left--
	}
	return v, nil
}

// field returns number and wire type of the next field.
func (c *cursor) field() (number, wiretype int, err error) {
	tag, err := c.varint()
	if err != nil {
		return 0, 0, err
	}
	if n := tag >> 3; n == 0 || n > maxField {
		return 0, 0, c.wrong("a field has a number that fields can not have")
	}
	return int(tag >> 3), int(tag & 7), nil
}

// message returns a cursor of the next field's bytes alone, and goes past them.
func (c *cursor) message() (cursor, error) {
	n, err := c.varint()
	if err != nil {
		return cursor{}, err
	}
	if n > uint64(c.left) {
		return cursor{}, c.wrong("a field is longer than what it is in")
	}
	m := *c
	m.end -= m.left - int(n)
	m.left = int(n)
	if len(m.cur) > m.left {
		m.cur = m.cur[:m.left]
	}
	c.advance(int(n))
	return m, nil
}

// skip goes past a field that is not known.
func (c *cursor) skip(number, wiretype int) error {
	var groups [maxGroups]int
	depth := 0
	for {
		switch wiretype {
		case typeVarint:
			if _, err := c.varint(); err != nil {
				return err
			}
		case typeFixed8:
			if _, err := c.fixed(8); err != nil {
				return err
			}
		case typeFixed4:
			if _, err := c.fixed(4); err != nil {
				return err
			}
		case typeBytes:
			if _, err := c.message(); err != nil {
				return err
			}
		case typeBegin:
			if depth == maxGroups {
				return c.wrong("groups of unknown fields are too deep in each other")
			}
			groups[depth] = number
			depth++
		case typeEnd:
			if depth == 0 || groups[depth-1] != number {
				return c.wrong("a group ends that did not begin")
			}
			depth--
		default:
			return c.wrong("a field has an unknown wire type")
		}
		if depth == 0 {
			return nil
		}
		if c.left == 0 {
			return c.wrong("it ends in a group")
		}
		var err error
		if number, wiretype, err = c.field(); err != nil {
			return err
		}
	}
}

// arena has the texts that lie across the border of two segments.
type arena struct{ bytes []byte }

// text returns the next field, which is a string. It stands in a segment, or in the arena.
func (a *arena) text(c *cursor) ([]byte, error) {
	m, err := c.message()
	if err != nil {
		return nil, err
	}
	if m.left > maxText {
		return nil, oip.Errorf(oip.InvalidArgument, "%s, byte %d: a name or parameter has %d bytes, expected at most %d", m.what, m.end-m.left, m.left, maxText)
	}
	if m.left == 0 {
		return nil, nil
	}
	if len(m.cur) == 0 {
		m.next()
	}
	s := m.cur
	if len(s) < m.left {
		from := len(a.bytes)
		a.bytes = append(a.bytes, make([]byte, m.left)...)
		s = a.bytes[from:len(a.bytes):len(a.bytes)]
		m.copy(s)
	}
	if !utf8.Valid(s) {
		return nil, c.wrong("a string is no UTF-8")
	}
	return s, nil
}

// numbers appends the next field to a list of integers of 64 bits, which is packed or has one number.
func (c *cursor) numbers(to []int64, wiretype, most int) ([]int64, error) {
	m := c
	if wiretype == typeBytes {
		packed, err := c.message()
		if err != nil {
			return to, err
		}
		m = &packed
	}
	for first := true; first && wiretype == typeVarint || m.left > 0 && wiretype == typeBytes; first = false {
		v, err := m.varint()
		if err != nil {
			return to, err
		}
		if len(to) == most {
			return to, oip.Errorf(oip.InvalidArgument, "%s: a shape has more than %d axes", c.what, most)
		}
		to = append(to, int64(v))
	}
	return to, nil
}

// appendVarint appends v in protobuf's variable length.
func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// sizeVarint returns how many bytes appendVarint appends.
func sizeVarint(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// appendTag appends number and wire type of a field.
func appendTag(b []byte, number, wiretype int) []byte {
	return appendVarint(b, uint64(number)<<3|uint64(wiretype))
}

// appendText appends a field that is a string, unless that is empty.
func appendText[S string | []byte](b []byte, number int, s S) []byte {
	if len(s) == 0 {
		return b
	}
	return append(appendVarint(appendTag(b, number, typeBytes), uint64(len(s))), s...)
}

// sizeText returns how many bytes appendText appends for a field whose tag takes one.
func sizeText(n int) int {
	if n == 0 {
		return 0
	}
	return 1 + sizeVarint(uint64(n)) + n
}

// within reports whether v, an integer, is at most what n bytes hold.
func within(v int64, n int) bool {
	most := int64(math.MaxInt64) >> (64 - 8*n)
	return -most-1 <= v && v <= most
}
