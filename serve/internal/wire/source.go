package wire

import (
	"errors"
	"fmt"
	"io"

	"github.com/popefgen/popefgen/serve/oip"
)

// bufferSize is what a Reader reads at a time, once it has read enough: more than the longest string and the longest number together, so
// that each stands in the buffer whole. What is not text goes around the buffer, into the tensor.
const bufferSize = 16 << 10

// Reader reads the body of a request or an answer: JSON, or JSON followed by the bytes of tensors. One Reader is for one
// body after the other, and keeps its memory. Nothing that it returns allocates, unless a body is wrong.
type Reader struct {
	src   io.Reader
	buf   []byte // buf[end] is 0, so that loops over text need not look for the end
	pos   int    // the next byte
	end   int    // of the text in the buffer
	have  int    // of all that is in the buffer; above end if bytes of tensors follow the text
	saved byte   // what stood at buf[end], if have is above end
	base  int64  // where in the body buf[0] stands
	text  int64  // bytes of the body that are text, -1: all
	limit int64  // bytes of the body at most
	done  bool   // there is no more text to read
	err   error  // why, unless it ended

	what    string // "request" or "answer", for errors
	section string // which list an error is in, "": none
	item    int    // which of the list
	field   string // and which field of it
	nesting int    // how deep values may be nested

	in      inputs  // of the request that is being read
	out     outputs // of the answer
	scratch []byte  // a string without its escapes
	name    []byte  // of the tensor that is being read
	typ     []byte
	shape   []int64
	pending []pending // tensors whose bytes follow the text
	shapes  []int64   // theirs, one after the other

	mark int    // where in the buffer data begins that is kept until the tensor is known; -1: none
	late []byte // that data
}

// pending is a tensor whose bytes follow the text.
type pending struct {
	index, size int
	from, to    int // of its shape in Reader.shapes
	bool        bool
}

// Reset begins another body of at most limit bytes.
func (d *Reader) Reset(src io.Reader, limit int64) {
	if d.buf == nil {
		d.buf = make([]byte, enough+1)
	}
	d.src, d.limit, d.text = src, limit, -1
	d.pos, d.end, d.have, d.base, d.mark = 0, 0, 0, 0, -1
	d.done, d.err = false, nil
	d.buf[0] = 0
	d.section, d.field = "", ""
	d.pending, d.shapes = d.pending[:0], d.shapes[:0]
	const most = 1 << 20
	if cap(d.late) > most {
		d.late = nil
	}
}

// enough is what Peek reads, and the buffer of a Reader that has read no longer text: a thousand clients that send nothing cost a thousand of them. It is less than what net/http has of a body when its header is read, so that who sends all at once costs no further
// call of the system, and what comes past it goes where it belongs.
const enough = 2 << 10

// Peek reads the first 2 KiB, or the whole body if it is smaller, and returns what stands in the way of it. Who asks for
// memory after that does not spend it on clients that send nothing.
func (d *Reader) Peek() error {
	for d.have < enough && d.more() {
	}
	return d.err
}

// Received returns how many bytes of the body were read.
func (d *Reader) Received() int64 { return d.base + int64(d.have) }

// more reads more text behind what is in the buffer. It reports whether there was some.
func (d *Reader) more() bool {
	if d.done {
		return false
	}
	if d.have == len(d.buf)-1 && len(d.buf) <= bufferSize { // the body is longer than what a client of whom little is known gets
		d.buf = append(make([]byte, 0, bufferSize+1), d.buf...)[:bufferSize+1]
	}
	if d.pos > 0 {
		if d.mark >= 0 {
			d.late = append(d.late, d.buf[d.mark:d.pos]...)
			d.mark = 0
		}
		copy(d.buf, d.buf[d.pos:d.have])
		d.base += int64(d.pos)
		d.end, d.have, d.pos = d.end-d.pos, d.have-d.pos, 0
	}
	for empty := 0; ; empty++ {
		n, err := d.src.Read(d.buf[d.have : len(d.buf)-1])
		d.have += n
		if d.base+int64(d.have) > d.limit {
			err = oip.Errorf(oip.TooLarge, "%s body has more than %d bytes, which is what the largest %s needs", d.what, d.limit, d.what)
		} else if n == 0 && err == nil && empty == 100 {
			err = io.ErrNoProgress
		}
		d.cut()
		if err != nil {
			d.done = true
			if !errors.Is(err, io.EOF) {
				d.err = err
			}
		}
		if n > 0 || err != nil {
			return n > 0 && d.err == nil
		}
	}
}

// cut sets the end of the text to what is in the buffer.
func (d *Reader) cut() {
	d.end = d.have
	if d.text >= 0 && d.base+int64(d.have) >= d.text {
		d.end, d.done = int(d.text-d.base), true
	}
	d.saved, d.buf[d.end] = d.buf[d.end], 0
}

// split says that the first n bytes of the body are text.
func (d *Reader) split(n int64) {
	d.text = n
	d.cut()
}

// ensure reads until n bytes of text stand in the buffer, or all that there is.
func (d *Reader) ensure(n int) {
	for d.end-d.pos < n && d.more() {
	}
}

// Place returns where the Reader stands, for errors.
func (d *Reader) place() string {
	s := fmt.Sprintf("%s body, byte %d", d.what, d.base+int64(d.pos))
	if d.section != "" {
		s += fmt.Sprintf(", %s[%d]", d.section, d.item)
		if d.field != "" {
			s += "." + d.field
		}
	} else if d.field != "" {
		s += ", " + d.field
	}
	return s
}

// expected returns the error that something else stands here, or why nothing could be read.
func (d *Reader) expected(format string, args ...any) error {
	if d.err != nil {
		return d.err
	}
	found := "the end"
	if d.pos < d.end {
		found = fmt.Sprintf("%q", d.buf[d.pos])
	}
	return oip.Errorf(oip.InvalidArgument, "%s: found %s, expected %s", d.place(), found, fmt.Sprintf(format, args...))
}

// wrong returns an error about what stands here.
func (d *Reader) wrong(format string, args ...any) error {
	if d.err != nil {
		return d.err
	}
	return oip.Errorf(oip.InvalidArgument, "%s: %s", d.place(), fmt.Sprintf(format, args...))
}

// fill reads len(dst) bytes behind the text, first what is in the buffer, then past it.
func (d *Reader) fill(dst []byte) error {
	n := copy(dst, d.buf[d.pos:d.have])
	d.pos += n
	if n == len(dst) || d.err != nil {
		return d.err
	}
	d.base += int64(d.have)
	d.pos, d.end, d.have = 0, 0, 0
	m, err := io.ReadFull(d.src, dst[n:])
	d.base += int64(m)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return oip.Errorf(oip.InvalidArgument, "%s body ended after %d bytes, %d too early for the sizes that it gives", d.what, d.base, len(dst)-n-m)
	}
	return err
}

// finish checks that nothing follows.
func (d *Reader) finish() error {
	if d.pos < d.have {
		return oip.Errorf(oip.InvalidArgument, "%s body goes on after byte %d, where its last tensor ends", d.what, d.base+int64(d.pos))
	}
	if d.err != nil {
		return d.err
	}
	d.base += int64(d.have)
	d.pos, d.end, d.have = 0, 0, 0
	for range 100 {
		n, err := d.src.Read(d.buf[:1])
		switch {
		case n > 0:
			return oip.Errorf(oip.InvalidArgument, "%s body goes on after byte %d, where its last tensor ends", d.what, d.base)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
	return io.ErrNoProgress
}
