package tensor

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
)

// The element types that Go has arithmetic for.
type (
	// Signed is the signed integers.
	Signed interface {
		~int8 | ~int16 | ~int32 | ~int64
	}
	// Unsigned is the unsigned integers.
	Unsigned interface {
		~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	// Integer is all integers.
	Integer interface{ Signed | Unsigned }
	// Float is single and double precision.
	Float interface{ ~float32 | ~float64 }
	// Number is all of them.
	Number interface{ Integer | Float }
)

// View returns the memory of a tensor as a slice of its element type. b must be aligned to
// T's size, as Kernel.Run promises; nothing is copied.
func View[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// F32s returns the memory of a tensor of F32 as a slice.
func F32s(b []byte) []float32 { return View[float32](b) }

// F64s returns the memory of a tensor of F64 as a slice.
func F64s(b []byte) []float64 { return View[float64](b) }

// Elements returns how many elements a verified shape has.
func Elements(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// Strides returns the row-major strides of shape, in elements.
func Strides(shape []int64) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= int(shape[i])
	}
	return s
}

// Ints returns a shape as ints.
func Ints(shape []int64) []int {
	s := make([]int, len(shape))
	for i, d := range shape {
		s[i] = int(d)
	}
	return s
}

// RoundUp returns the multiple of unit that is not below n.
func RoundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// Operand returns the type of operand or result i, the zero type if it is
// left out.
func Operand(types []graph.TensorType, i int) graph.TensorType {
	if i < len(types) {
		return types[i]
	}
	return graph.TensorType{}
}

// Memory returns the memory of operand or result i, nil if it is left out.
func Memory(data [][]byte, i int) []byte {
	if i < len(data) {
		return data[i]
	}
	return nil
}

// IsFloat32 reports whether T is float32.
func IsFloat32[T Number]() bool {
	_, ok := any(T(0)).(float32)
	return ok
}

// AsFloat32 returns x, whose elements are float32, as that type.
func AsFloat32[T Number](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// ElementSize returns the bytes of a T.
func ElementSize[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// RawBytes returns the memory of s.
func RawBytes[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*ElementSize[T]())
}

// Lanes are the vectors along one axis: a tensor seen as [outer, dim, inner].
type Lanes struct{ Outer, Dim, Inner int }

// LanesOf returns the lanes of a tensor of this shape along an axis.
func LanesOf(shape []int64, axis int64) Lanes {
	return Lanes{Elements(shape[:axis]), int(shape[axis]), Elements(shape[axis+1:])}
}

// Typed is a function for each element type that Go has arithmetic for.
type Typed[F any] struct{ I8, U8, I16, U16, I32, U32, I64, U64, F32, F64 F }

// Of returns the function for elements of type d; ok is false if there is none.
func (t *Typed[F]) Of(d graph.DType) (F, bool) {
	switch d {
	case graph.I8:
		return t.I8, true
	case graph.U8:
		return t.U8, true
	case graph.I16:
		return t.I16, true
	case graph.U16:
		return t.U16, true
	case graph.I32:
		return t.I32, true
	case graph.U32:
		return t.U32, true
	case graph.I64:
		return t.I64, true
	case graph.U64:
		return t.U64, true
	case graph.F32:
		return t.F32, true
	case graph.F64:
		return t.F64, true
	}
	var none F
	return none, false
}

// NoKernel is the error of a binder for an element type.
func NoKernel(what any, t graph.DType) error {
	return fmt.Errorf("%v of %v has no CPU kernel", what, t)
}
