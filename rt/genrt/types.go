package genrt

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Generation is the newest generation of generated code that this package
// runs, OldestGeneration the oldest. Generated code fails to build where its
// generation lies outside of them.
const (
	Generation       = 3
	OldestGeneration = 3
)

// Element is any type of a tensor's elements.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 |
		rt.Float16 | rt.Float8E4M3 | rt.Float8E5M2 | rt.Float8
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
// error wraps [rt.ErrLength] and names the anchor.
func From[T any, E Element](anchor string, flat []E) (*T, error) {
	var e E
	var t *T
	want := unsafe.Sizeof(*t) / unsafe.Sizeof(e)
	if uintptr(len(flat)) != want {
		return nil, fmt.Errorf("anchor %q: %w: %d, the tensor has %d", anchor, rt.ErrLength, len(flat), want)
	}
	if want == 0 {
		return new(T), nil // an empty slice may have no memory to point to
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(flat))), nil
}

// Bytes views the memory of a tensor type, or an array of them, without copying.
// nil is nil.
func Bytes[T any](t *T) []byte { return view.Bytes(t) }
