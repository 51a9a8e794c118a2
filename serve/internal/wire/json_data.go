package wire

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/serve/oip"
)

// data reads the elements of a tensor: an array of all of them in row-major order, or arrays in arrays as the shape
// says. dst has the size of them all.
func (d *Reader) data(t oip.DataType, dst []byte, shape []int64) error {
	if t == oip.BF16 {
		return d.wrong("JSON has no data of type BF16; send it as binary data")
	}
	if err := d.open('['); err != nil {
		return err
	}
	if d.next() == '[' {
		if len(shape) < 2 {
			return d.wrong("arrays are nested deeper than the %d sizes of the shape", len(shape))
		}
		rest, err := d.nested(t, dst, shape)
		if err == nil && len(rest) > 0 {
			panic("wire: the shape says otherwise") // each level has counted
		}
		return err
	}
	want := len(dst) / t.Size()
	n, err := d.row(t, dst, want)
	if err == nil && n != want {
		return d.wrong("data has %d elements, but the shape %s has %d", n, sizes(shape), want)
	}
	return err
}

// nested reads what follows the bracket of an array of the sizes shape. It returns what it leaves of dst.
func (d *Reader) nested(t oip.DataType, dst []byte, shape []int64) ([]byte, error) {
	want := shape[0]
	if len(shape) == 1 {
		n, err := d.row(t, dst, int(want))
		if err == nil && int64(n) != want {
			err = d.wrong("an array of data has %d elements, but the shape says %d there", n, want)
		}
		return dst[n*t.Size():], err
	}
	for n := int64(0); ; n++ {
		end, err := d.list(int(n), ']')
		switch {
		case err != nil:
			return dst, err
		case end && n != want:
			return dst, d.wrong("an array of data has %d arrays, but the shape says %d there", n, want)
		case end:
			return dst, nil
		case n == want:
			return dst, d.wrong("an array of data has more than the %d arrays that the shape says there", want)
		}
		if err = d.open('['); err != nil {
			return dst, err
		}
		if dst, err = d.nested(t, dst, shape[1:]); err != nil {
			return dst, err
		}
	}
}

// row reads elements and the bracket after them, want of them at most, and returns how many there were.
func (d *Reader) row(t oip.DataType, dst []byte, want int) (n int, err error) {
	if d.next() == ']' {
		d.pos++
		return 0, nil
	}
	size := t.Size()
	for ; ; n++ {
		if n == want {
			return n, d.wrong("data has more than the %d elements that the shape says", want)
		}
		if c := d.buf[d.pos]; c <= ' ' {
			d.next()
		}
		if d.end-d.pos <= maxNumber {
			d.ensure(maxNumber + 1)
		}
		if t == oip.Bool {
			var v bool
			if v, err = d.bool(); err != nil {
				return n, err
			}
			dst[n] = 0
			if v {
				dst[n] = 1
			}
		} else if err = d.element(t, dst[n*size:]); err != nil {
			return n, err
		}
		c := d.buf[d.pos]
		if c <= ' ' {
			c = d.next()
		}
		switch c {
		case ',':
			d.pos++
		case ']':
			d.pos++
			return n + 1, nil
		default:
			return n, d.expected("',' or ']'")
		}
	}
}

// element reads a number, which the buffer has whole.
func (d *Reader) element(t oip.DataType, dst []byte) error {
	n := scanNumber(d.buf, d.pos)
	if n.end < 0 {
		d.pos += -n.end - 1
		return d.expected("a number")
	}
	text := d.buf[d.pos:n.end]
	if len(text) > maxNumber {
		return d.wrong("number has more than %d bytes", maxNumber)
	}
	ok := true
	switch t {
	case oip.FP32:
		var f float32
		f, ok = n.float32(text)
		binary.LittleEndian.PutUint32(dst, math.Float32bits(f))
	case oip.FP64:
		var f float64
		f, ok = n.float64(text)
		binary.LittleEndian.PutUint64(dst, math.Float64bits(f))
	case oip.FP16:
		var f float64
		f, ok = n.float64(text)
		h := num.Float16From64(f)
		ok = ok && h&0x7fff < 0x7c00
		binary.LittleEndian.PutUint16(dst, uint16(h))
	default:
		if !n.whole {
			return d.wrong("%s is not written as an integer, as data of type %s has to be", text, t)
		}
		ok = n.integer(t, text, dst)
	}
	if !ok {
		return d.wrong("%s is out of the range of %s", text, t)
	}
	d.pos = n.end
	return nil
}

// integer writes a number that was written as an integer, unless it is out of the range of the type: then it returns false.
func (n *number) integer(t oip.DataType, text, dst []byte) bool {
	m, size := n.m, t.Size()
	if n.long {
		u, err := strconv.ParseUint(string(text), 10, 64) // of a negative one it is an error, and out of range it is too
		if err != nil {
			return false
		}
		m = u
	}
	width := uint(size * 8)
	switch t {
	case oip.Int8, oip.Int16, oip.Int32, oip.Int64:
		most := uint64(1) << (width - 1)
		if m > most || m == most && !n.neg {
			return false
		}
		if n.neg {
			m = -m
		}
	default:
		if n.neg || width < 64 && m>>width != 0 {
			return false
		}
	}
	switch size {
	case 1:
		dst[0] = byte(m)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(m))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(m))
	case 8:
		binary.LittleEndian.PutUint64(dst, m)
	}
	return true
}
