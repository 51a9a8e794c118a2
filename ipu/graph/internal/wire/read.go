package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Reader reads from B at At. After the first failure every read gives zero.
type Reader struct {
	B   []byte
	At  int
	Err error

	strings []string
	compact bool
	near    // where compact
	room    int64
}

// NewReader returns a reader of the plain form.
func NewReader(b []byte) *Reader { return &Reader{B: b} }

// NewCompact returns a reader of the compact form, of what may take so many bytes in memory.
func NewCompact(b []byte, room int64) *Reader { return &Reader{B: b, compact: true, room: room} }

// Fail notes the first failure.
func (r *Reader) Fail(format string, args ...any) {
	if r.Err == nil {
		r.Err = fmt.Errorf("at offset %d: "+format, append([]any{r.At}, args...)...)
	}
}

// Bytes reads n bytes.
func (r *Reader) Bytes(n int) []byte {
	if r.Err != nil {
		return nil
	}
	if n > len(r.B)-r.At {
		r.Fail("%d bytes are wanted, but %d are left", n, len(r.B)-r.At)
		return nil
	}
	b := r.B[r.At : r.At+n]
	r.At += n
	return b
}

// U8 reads a byte.
func (r *Reader) U8() uint8 {
	if b := r.Bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// U32 reads a count or a reference.
func (r *Reader) U32() uint32 {
	if r.compact {
		v := varint(r, binary.Uvarint)
		if v > math.MaxUint32 {
			r.Fail("a count or a reference is %d, want at most %d", v, uint32(math.MaxUint32))
			return 0
		}
		return uint32(v)
	}
	if b := r.Bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads a number of 8 bytes.
func (r *Reader) U64() uint64 {
	if b := r.Bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// Count reads how many entries follow. Each takes at least size bytes in the plain form, so
// that no more memory is set aside than the bytes left can fill.
func (r *Reader) Count(size int) int {
	n := r.U32()
	if r.compact {
		size = 1
	}
	if r.Err == nil && uint64(n)*uint64(size) > uint64(len(r.B)-r.At) {
		r.Fail("%d entries of at least %d bytes are announced, but %d bytes are left", n, size, len(r.B)-r.At)
	}
	if r.Err != nil {
		return 0
	}
	return int(n)
}

// List reads a count and that many entries of at least size bytes each; it is
// nil for none. It grows with what is read: lists nest, and each could announce
// all of the bytes left.
func List[T any](r *Reader, size int, read func() T) []T {
	n := r.Count(size)
	if n == 0 {
		return nil
	}
	v := make([]T, 0, min(n, 1024))
	for range n {
		if x := read(); r.Err == nil {
			r.Holds(int64(unsafe.Sizeof(x)))
			v = append(v, x)
		} else {
			return nil
		}
	}
	return v
}

// Float reads a number of 8 bytes.
func (r *Reader) Float() float64 { return math.Float64frombits(r.U64()) }

// Int reads a number with a sign.
func (r *Reader) Int() int64 {
	if r.compact {
		return varint(r, binary.Varint)
	}
	return int64(r.U64())
}

// Tensor reads a reference to a tensor, -1 for none.
func (r *Reader) Tensor() int32 {
	if !r.compact {
		return int32(r.U32())
	}
	t, ok := r.tensor(varint(r, binary.Uvarint))
	if !ok {
		r.Fail("a reference leads to no tensor")
	}
	return t
}

// Str reads a reference to a string and returns that.
func (r *Reader) Str() string { return r.string(int64(r.U32())) }

// Name is Str for what [Writer.Name] has written.
func (r *Reader) Name() string {
	if r.compact {
		return r.string(r.toName(varint(r, binary.Varint)))
	}
	return r.Str()
}

func (r *Reader) string(id int64) string {
	if r.Err == nil && (id < 0 || id >= int64(len(r.strings))) {
		r.Fail("string %d does not exist, there are %d", id, len(r.strings))
	}
	if r.Err != nil {
		return ""
	}
	return r.strings[id]
}

// ReadStrings reads the strings that are referred to from then on.
func (r *Reader) ReadStrings() {
	r.strings = List(r, 4, func() string { return string(r.Bytes(r.Count(1))) })
}

// Holds counts bytes that what was read takes in memory.
func (r *Reader) Holds(n int64) {
	if !r.compact {
		return
	}
	if r.room -= n; r.room < 0 {
		r.Fail("what it holds takes more memory than a file of this size may ask for: %d MiB, and %d bytes for each of its own", memoryBase>>20, memoryFactor)
	}
}

// varint reads a number with a function of package encoding/binary.
func varint[T int64 | uint64](r *Reader, read func([]byte) (T, int)) T {
	if r.Err != nil {
		return 0
	}
	v, n := read(r.B[r.At:])
	if n <= 0 {
		r.Fail("a number has no end")
		return 0
	}
	r.At += n
	return v
}
