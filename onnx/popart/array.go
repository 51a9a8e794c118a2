package popart

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/popef"
)

// Element is an element type of an [Array].
type Element interface {
	bool | int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64 | num.Float16 | num.Float8E4M3 | num.Float8E5M2
}

// Array is memory with an element type: what PopART takes as a NumPy array. [Of] makes one of a slice, whose memory it is. The zero Array is none.
type Array struct {
	Type  popef.DataType
	Shape []int64 // for the reader: of what is passed in, only the number of elements counts; nil if nobody said
	Data  []byte  // row-major, in the machine's order, which is little-endian
}

// Of returns the array of a slice, and its shape if one is given. The memory is shared.
func Of[T Element](data []T, shape ...int64) Array {
	var zero T
	t := popef.F32
	switch any(zero).(type) {
	case bool:
		t = popef.Bool
	case int8:
		t = popef.S8
	case uint8:
		t = popef.U8
	case int16:
		t = popef.S16
	case uint16:
		t = popef.U16
	case int32:
		t = popef.S32
	case uint32:
		t = popef.U32
	case int64:
		t = popef.S64
	case uint64:
		t = popef.U64
	case float64:
		t = popef.F64
	case num.Float16:
		t = popef.F16
	case num.Float8E4M3:
		t = popef.F8143
	case num.Float8E5M2:
		t = popef.F8152
	}
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(data))), len(data)*int(unsafe.Sizeof(zero)))
	return Array{Type: t, Shape: shape, Data: bytes}
}

// In returns the elements of an array as a slice that shares its memory; nil if they are of another type, or their memory is not aligned to it.
func In[T Element](a Array) []T {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if Of([]T(nil)).Type != a.Type || len(a.Data)%size != 0 || len(a.Data) == 0 {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(a.Data))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), len(a.Data)/size)
}

// elements returns how many whole elements an array has.
func (a Array) elements() (int, error) {
	size := a.Type.Size()
	if size == 0 {
		return 0, wrong(ErrType, "element type %v is none that is known", a.Type)
	}
	if len(a.Data)%size != 0 {
		return 0, wrong(ErrSize, "%d bytes are no whole number of elements of %v", len(a.Data), a.Type)
	}
	return len(a.Data) / size, nil
}

// newArray allocates an array, aligned for any element type.
func newArray(t popef.DataType, shape []int64, bytes int) Array {
	words := make([]uint64, (bytes+7)/8)
	return Array{Type: t, Shape: shape, Data: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), bytes)}
}

// isByte8 reports whether a type has 8-bit floats, which PopART's callers hand over as UINT8.
func isByte8(t popef.DataType) bool { return t == popef.F8 || t == popef.F8143 || t == popef.F8152 }

// narrow converts INT64 elements to INT32. A number that does not fit is an error, where PopART wraps it.
func narrow(to, from []byte) error {
	for i := range len(from) / 8 {
		v := int64(binary.LittleEndian.Uint64(from[8*i:]))
		if v < math.MinInt32 || v > math.MaxInt32 {
			return wrong(ErrType, "element %d is %d, which does not fit into INT32: scale the data, or compile the model with INT64 inputs", i, v)
		}
		binary.LittleEndian.PutUint32(to[4*i:], uint32(int32(v)))
	}
	return nil
}

// checkType returns whether an array of INT64 is to be narrowed for a tensor of INT32, or why the types do not go together.
func checkType(name string, want, found popef.DataType) (narrows bool, err error) {
	switch {
	case want == found, isByte8(want) && found == popef.U8, isByte8(found) && want == popef.U8:
		return false, nil
	case want == popef.S32 && found == popef.S64:
		return true, nil
	}
	return false, fmt.Errorf("%w: tensor %q has elements of %v, and the array has %v", ErrType, name, want, found)
}
