package wire

import (
	"encoding/binary"

	"github.com/popefgen/popefgen/serve/oip"
)

// The fields of InferTensorContents, in the order of their numbers.
var contentsFields = [...]string{"", "bool_contents", "int_contents", "int64_contents", "uint_contents", "uint64_contents", "fp32_contents", "fp64_contents", "bytes_contents"}

// contentsField returns the number of the field that has the elements of a type, and its wire type; 0 if there is none.
func contentsField(t oip.DataType) (number, wiretype int) {
	switch t {
	case oip.Bool:
		return 1, typeVarint
	case oip.Int8, oip.Int16, oip.Int32:
		return 2, typeVarint
	case oip.Int64:
		return 3, typeVarint
	case oip.Uint8, oip.Uint16, oip.Uint32:
		return 4, typeVarint
	case oip.Uint64:
		return 5, typeVarint
	case oip.FP32:
		return 6, typeFixed4
	case oip.FP64:
		return 7, typeFixed8
	case oip.Bytes:
		return 8, typeBytes
	}
	return 0, 0
}

// tensorOf says which tensor of which model something is about: "input 'a' for model 'm'".
type tensorOf struct {
	kind  string
	model string
	*oip.Tensor
}

func (t tensorOf) wrong(format string, args ...any) error {
	return oip.Errorf(oip.InvalidArgument, "%s '%s' for model '%s' "+format, append([]any{t.kind, t.Name, t.model}, args...)...)
}

// contents fills dst with the elements of pieces of InferTensorContents, which protobuf puts together.
func contents(pieces []cursor, t tensorOf, dst []byte) error {
	field, typ := contentsField(t.Type)
	size := t.Type.Size()
	n := 0 // bytes of dst that are filled
	for i := range pieces {
		c := pieces[i]
		for c.left > 0 {
			number, wiretype, err := c.field()
			if err != nil {
				return err
			}
			if number != field || wiretype != typ && wiretype != typeBytes {
				if err := other(&c, number, wiretype, t); err != nil {
					return err
				}
				continue
			}
			m := &c
			if wiretype == typeBytes {
				packed, err := c.message()
				if err != nil {
					return err
				}
				m = &packed
			}
			switch {
			case typ == typeVarint:
				n, err = t.varints(m, dst, n, wiretype == typeBytes)
			case wiretype != typeBytes:
				if n == len(dst) {
					return t.count(n/size+1, len(dst))
				}
				if m.left < size {
					return m.wrong("it ends in a number")
				}
				m.copy(dst[n:][:size])
				n += size
			case m.left%size != 0:
				return m.wrong("it ends in a number")
			case m.left > len(dst)-n:
				return t.count((n+m.left)/size, len(dst))
			default:
				n += m.left
				m.copy(dst[n-m.left:][:m.left])
			}
			if err != nil {
				return err
			}
		}
	}
	if n < len(dst) {
		return t.count(n/size, len(dst))
	}
	return nil
}

// other goes past a field that is not the one of the tensor's type. If it has elements they are of another type.
func other(c *cursor, number, wiretype int, t tensorOf) error {
	if number >= len(contentsFields) {
		return c.skip(number, wiretype)
	}
	found := wiretype == typeBytes
	if wiretype == typeBytes && number != 8 {
		m := *c
		packed, err := m.message()
		if err != nil {
			return err
		}
		found = packed.left > 0
	}
	switch {
	case number == 1 || number >= 2 && number <= 5:
		found = found || wiretype == typeVarint
	case number == 6:
		found = found || wiretype == typeFixed4
	case number == 7:
		found = found || wiretype == typeFixed8
	}
	if !found {
		return c.skip(number, wiretype)
	}
	if field, _ := contentsField(t.Type); field > 0 {
		return t.wrong("has elements in %s, expected %s for %s", contentsFields[number], contentsFields[field], t.Type)
	}
	return t.wrong("has contents, but there is no field of contents for %s: it travels in raw_input_contents", t.Type)
}

// count returns the error that there are more or fewer elements than the shape says.
func (t tensorOf) count(found, size int) error {
	if found*t.Type.Size() > size {
		return t.wrong("has more than the %d elements of its shape in its contents", size/t.Type.Size())
	}
	return t.wrong("has %d elements in its contents, expected %d", found, size/t.Type.Size())
}

// varints reads the integers of m, or one, to dst from byte n on.
func (t tensorOf) varints(m *cursor, dst []byte, n int, packed bool) (int, error) {
	size := t.Type.Size()
	for first := true; m.left > 0 && packed || first && !packed; first = false {
		v, err := m.varint()
		if err != nil {
			return n, err
		}
		if n == len(dst) {
			return n, t.count(n/size+1, len(dst))
		}
		fits := true
		switch t.Type {
		case oip.Bool:
			if v != 0 {
				v = 1
			}
		case oip.Int8, oip.Int16:
			v = uint64(int32(v))
			fits = within(int64(v), size)
		case oip.Uint8, oip.Uint16:
			v = uint64(uint32(v))
			fits = v>>(8*size) == 0
		}
		if !fits {
			return n, t.wrong("has %d as element %d, which is no %s", int64(v), n/size, t.Type)
		}
		switch size {
		case 1:
			dst[n] = byte(v)
		case 2:
			binary.LittleEndian.PutUint16(dst[n:], uint16(v))
		case 4:
			binary.LittleEndian.PutUint32(dst[n:], uint32(v))
		default:
			binary.LittleEndian.PutUint64(dst[n:], v)
		}
		n += size
	}
	return n, nil
}

// element returns element i of a tensor of integers as protobuf writes it: negative ones take ten bytes.
func element(t oip.DataType, data []byte, i int) uint64 {
	switch t {
	case oip.Bool, oip.Uint8:
		return uint64(data[i])
	case oip.Int8:
		return uint64(int8(data[i]))
	case oip.Uint16:
		return uint64(binary.LittleEndian.Uint16(data[2*i:]))
	case oip.Int16:
		return uint64(int16(binary.LittleEndian.Uint16(data[2*i:])))
	case oip.Uint32:
		return uint64(binary.LittleEndian.Uint32(data[4*i:]))
	case oip.Int32:
		return uint64(int32(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return binary.LittleEndian.Uint64(data[8*i:])
}

// sizeContents returns how many bytes appendContents appends.
func sizeContents(t oip.DataType, data []byte) int {
	if len(data) == 0 {
		return 0
	}
	n := packedSize(t, data)
	return 1 + sizeVarint(uint64(n)) + n
}

func packedSize(t oip.DataType, data []byte) int {
	if _, typ := contentsField(t); typ != typeVarint {
		return len(data)
	}
	n := 0
	for i := range len(data) / t.Size() {
		n += sizeVarint(element(t, data, i))
	}
	return n
}

// appendContents appends the elements of a tensor as the one field of an InferTensorContents.
func appendContents(b []byte, t oip.DataType, data []byte) []byte {
	if len(data) == 0 {
		return b
	}
	number, typ := contentsField(t)
	b = appendVarint(appendTag(b, number, typeBytes), uint64(packedSize(t, data)))
	if typ != typeVarint {
		return append(b, data...)
	}
	for i := range len(data) / t.Size() {
		b = appendVarint(b, element(t, data, i))
	}
	return b
}

// checkBools returns an error if a byte of the elements of a BOOL is neither 0 nor 1, which no bool of Go may be; all are 0 then.
func checkBools(t tensorOf, data []byte) error {
	if t.Type != oip.Bool {
		return nil
	}
	for i, b := range data {
		if b > 1 {
			clear(data)
			return t.wrong("has the byte %d as element %d, expected 0 or 1 for BOOL", b, i)
		}
	}
	return nil
}
