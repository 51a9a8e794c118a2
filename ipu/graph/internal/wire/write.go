package wire

import (
	"encoding/binary"
	"math"
)

// Writer builds one section after the other.
type Writer struct {
	b       []byte
	strings map[string]uint32
	order   []string
	compact bool
	near    // where compact
}

// NewWriter returns a writer of the compact form or of the plain one.
func NewWriter(compact bool) *Writer { return &Writer{strings: map[string]uint32{}, compact: compact} }

// Section returns what fill writes.
func (w *Writer) Section(fill func()) []byte {
	w.b = nil
	fill()
	return w.b
}

// U8 writes a byte.
func (w *Writer) U8(v uint8) { w.b = append(w.b, v) }

// Float writes a number of 8 bytes.
func (w *Writer) Float(f float64) {
	w.b = binary.LittleEndian.AppendUint64(w.b, math.Float64bits(f))
}

// Count writes how many entries follow.
func (w *Writer) Count(n int) { w.U32(uint32(n)) }

// U32 writes a reference.
func (w *Writer) U32(v uint32) {
	if w.compact {
		w.b = binary.AppendUvarint(w.b, uint64(v))
		return
	}
	w.b = binary.LittleEndian.AppendUint32(w.b, v)
}

// Int writes a number with a sign.
func (w *Writer) Int(v int64) {
	if w.compact {
		w.b = binary.AppendVarint(w.b, v)
		return
	}
	w.b = binary.LittleEndian.AppendUint64(w.b, uint64(v))
}

// Ints writes a list of numbers.
func (w *Writer) Ints(v []int64) {
	w.Count(len(v))
	for _, n := range v {
		w.Int(n)
	}
}

// Str writes a reference to a string.
func (w *Writer) Str(s string) { w.U32(w.number(s)) }

// Name writes a reference to a string that often is the one behind the last name.
func (w *Writer) Name(s string) {
	n := w.number(s)
	if w.compact {
		w.b = binary.AppendVarint(w.b, w.fromName(n))
		return
	}
	w.U32(n)
}

// number returns the number of a string.
func (w *Writer) number(s string) uint32 {
	id, ok := w.strings[s]
	if !ok {
		id = uint32(len(w.order))
		w.strings[s] = id
		w.order = append(w.order, s)
	}
	return id
}

// Tensor writes a reference to a tensor, -1 for none; shared says that many graphs read it.
func (w *Writer) Tensor(t int32, shared bool) {
	if w.compact {
		w.b = binary.AppendUvarint(w.b, w.code(t, shared))
		return
	}
	w.U32(uint32(t))
}

// WriteStrings writes all strings that were referred to so far.
func (w *Writer) WriteStrings() {
	w.Count(len(w.order))
	for _, s := range w.order {
		w.Count(len(s))
		w.b = append(w.b, s...)
	}
}
