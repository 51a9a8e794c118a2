package wire

import (
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of JSON texts.
const (
	MaxDepth  = 8    // of nested values, beside the ranks of tensors
	maxString = 4096 // bytes of a string as it is written
	maxNumber = 128  // bytes of a number
	maxRank   = 64   // sizes of a shape
)

// next skips white space and returns the byte that follows, 0 at the end.
func (d *Reader) next() byte {
	for {
		c := d.buf[d.pos]
		switch {
		case c > ' ':
			return c
		case c == ' ', c == '\n', c == '\t', c == '\r':
			d.pos++
		case d.pos < d.end, !d.more():
			return c
		}
	}
}

// open reads the bracket that an object or array begins with.
func (d *Reader) open(bracket byte) error {
	if d.next() != bracket {
		return d.expected("%q", bracket)
	}
	d.pos++
	return nil
}

// list reads what stands before element n of a list: nothing before the first, a comma before others. It reports whether the list
// ended instead.
func (d *Reader) list(n int, bracket byte) (bool, error) {
	switch c := d.next(); {
	case c == bracket:
		d.pos++
		return true, nil
	case n == 0:
		return false, nil
	case c != ',':
		return false, d.expected("',' or %q", bracket)
	}
	d.pos++
	if d.next() == bracket {
		return false, d.expected("another value after ','")
	}
	return false, nil
}

// key reads key n of an object and the colon. The key is valid until more is read.
func (d *Reader) key(n int) (key []byte, end bool, err error) {
	if end, err = d.list(n, '}'); end || err != nil {
		return nil, end, err
	}
	if key, err = d.string(); err != nil {
		return nil, false, err
	}
	d.scratch = append(d.scratch[:0], key...)
	if d.next() != ':' {
		return nil, false, d.expected("':' after the key")
	}
	d.pos++
	return d.scratch, false, nil
}

// null reads null, if that is what follows.
func (d *Reader) null() bool {
	if d.next() != 'n' {
		return false
	}
	d.ensure(4)
	if string(d.buf[d.pos:min(d.pos+4, d.end)]) != "null" {
		return false
	}
	d.pos += 4
	return true
}

// bool reads true or false.
func (d *Reader) bool() (bool, error) {
	d.next()
	d.ensure(5)
	rest := d.buf[d.pos:d.end]
	switch {
	case len(rest) >= 4 && string(rest[:4]) == "true":
		d.pos += 4
		return true, nil
	case len(rest) >= 5 && string(rest[:5]) == "false":
		d.pos += 5
		return false, nil
	}
	return false, d.expected("true or false")
}

// string reads a string. It is valid until more is read.
func (d *Reader) string() ([]byte, error) {
	if d.next() != '"' {
		return nil, d.expected("a string")
	}
	d.ensure(maxString + 16)
	var all byte
	from := d.pos + 1
	for i := from; ; i++ {
		c := d.buf[i]
		all |= c
		switch {
		case c == '"':
			if all >= utf8.RuneSelf && !utf8.Valid(d.buf[from:i]) {
				return nil, d.wrong("string is not valid UTF-8")
			}
			d.pos = i + 1
			return d.buf[from:i], nil
		case c == '\\':
			return d.escaped(from)
		case c < ' ':
			d.pos = i
			return nil, d.expected("the end of a string")
		case i-from >= maxString:
			return nil, d.wrong("string has more than %d bytes", maxString)
		}
	}
}

// escaped reads a string that has escapes, as string does.
func (d *Reader) escaped(from int) ([]byte, error) {
	out := d.scratch[:0]
	for i := from; i-from <= maxString; {
		c := d.buf[i]
		switch {
		case c == '"':
			if !utf8.Valid(d.buf[from:i]) {
				return nil, d.wrong("string is not valid UTF-8")
			}
			d.pos, d.scratch = i+1, out
			return out, nil
		case c < ' ':
			d.pos = i
			return nil, d.expected("the end of a string")
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		i++
		switch c := d.buf[i]; c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := hex4(d.buf, i+1)
			if !ok {
				d.pos = i
				return nil, d.wrong("expected four hexadecimal digits after \\u")
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low, ok := rune(0), false
				if d.buf[i+1] == '\\' && d.buf[i+2] == 'u' {
					low, ok = hex4(d.buf, i+3)
				}
				if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			d.pos = i
			return nil, d.expected("an escape that JSON has after \\")
		}
		i++
	}
	return nil, d.wrong("string has more than %d bytes", maxString)
}

// hex4 returns the value of the four hexadecimal digits at b[i].
func hex4(b []byte, i int) (r rune, ok bool) {
	for n := range 4 {
		if i+n >= len(b) {
			return 0, false
		}
		c := b[i+n]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number reads a number as it is written. It is valid until more is read.
func (d *Reader) number() ([]byte, error) {
	d.next()
	d.ensure(maxNumber + 1)
	n := scanNumber(d.buf, d.pos)
	if n.end < 0 {
		d.pos += -n.end - 1
		return nil, d.expected("a digit of a number")
	}
	if n.end-d.pos > maxNumber {
		return nil, d.wrong("number has more than %d bytes", maxNumber)
	}
	text := d.buf[d.pos:n.end]
	d.pos = n.end
	return text, nil
}

// int reads an integer from lo to hi.
func (d *Reader) int(lo, hi int64) (int64, error) {
	text, err := d.number()
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || v < lo || v > hi {
		d.pos -= len(text)
		return 0, d.wrong("%s is no integer from %d to %d", clip(text), lo, hi)
	}
	return v, nil
}

// skip reads a value of any kind.
func (d *Reader) skip(depth int) error {
	if depth > d.nesting {
		return d.wrong("values are nested deeper than %d", d.nesting)
	}
	switch c := d.next(); c {
	case '{':
		d.pos++
		for n := 0; ; n++ {
			if _, end, err := d.key(n); end || err != nil {
				return err
			}
			if err := d.skip(depth + 1); err != nil {
				return err
			}
		}
	case '[':
		d.pos++
		for n := 0; ; n++ {
			if end, err := d.list(n, ']'); end || err != nil {
				return err
			}
			if err := d.skip(depth + 1); err != nil {
				return err
			}
		}
	case '"':
		_, err := d.string()
		return err
	case 't', 'f':
		_, err := d.bool()
		return err
	case 'n':
		if d.null() {
			return nil
		}
	}
	if c := d.next(); c != '-' && (c < '0' || c > '9') {
		return d.expected("a value")
	}
	_, err := d.number()
	return err
}
