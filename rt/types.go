package rt

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/num"
)

// Generation is the newest generation of generated code that this package
// runs, OldestGeneration the oldest. Generated code fails to build where its
// generation lies outside of them.
const (
	Generation       = 2
	OldestGeneration = 2
)

// The element types that Go lacks.
type (
	// Float16 is IEEE 754 half precision, PopEF's F16.
	Float16 = num.Float16
	// Float8E4M3 is PopEF's F8143.
	Float8E4M3 = num.Float8E4M3
	// Float8E5M2 is PopEF's F8152.
	Float8E5M2 = num.Float8E5M2
	// Float8 is PopEF's F8, whose encoding the format does not say.
	Float8 uint8
)

// Element is any type of a tensor's elements.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 |
		Float16 | Float8E4M3 | Float8E5M2 | Float8
}

// Flat views the elements of a tensor type as a flat slice in row-major order,
// without copying. T must be a struct of one array of E, as generated code
// has; a size that is not a multiple of E's panics.
func Flat[E Element, T any](t *T) []E {
	var e E
	if unsafe.Sizeof(*t)%unsafe.Sizeof(e) != 0 || unsafe.Alignof(*t) < unsafe.Alignof(e) {
		panic(fmt.Sprintf("rt: flat view of %T as a slice of %T", *t, e))
	}
	return unsafe.Slice((*E)(unsafe.Pointer(t)), unsafe.Sizeof(*t)/unsafe.Sizeof(e))
}

// From views flat as a tensor of type T, which must be a struct of one array
// of E, without copying. If the number of elements is not exactly T's, the
// error wraps [ErrLength] and names the anchor.
func From[T any, E Element](anchor string, flat []E) (*T, error) {
	var e E
	var t *T
	want := unsafe.Sizeof(*t) / unsafe.Sizeof(e)
	if uintptr(len(flat)) != want {
		return nil, fmt.Errorf("anchor %q: %w: %d, the tensor has %d", anchor, ErrLength, len(flat), want)
	}
	if want == 0 {
		return new(T), nil // an empty slice may have no memory to point to
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(flat))), nil
}

// Bytes views the memory of a tensor type, or an array of them, without copying.
// nil is nil.
func Bytes[T any](t *T) []byte { return bytesOf(t) }

// bytesOf views *t as bytes; nil is nil.
func bytesOf[T any](t *T) []byte {
	if t == nil {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
}
