package kernel

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/graph"
)

// signed, unsigned, integer, float and number are the element types that Go
// computes with by itself.
type (
	signed interface {
		~int8 | ~int16 | ~int32 | ~int64
	}
	unsigned interface {
		~uint8 | ~uint16 | ~uint32 | ~uint64
	}
	integer interface{ signed | unsigned }
	float   interface{ ~float32 | ~float64 }
	number  interface{ integer | float }
)

// view gives the memory of a tensor its element type. b must be aligned to
// T's size, as Kernel.Run promises; nothing is copied.
func view[T any](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func f32s(b []byte) []float32 { return view[float32](b) }
func f64s(b []byte) []float64 { return view[float64](b) }

// elements returns how many elements a verified shape has.
func elements(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

// strides returns the row-major strides of shape, in elements.
func strides(shape []int64) []int {
	s := make([]int, len(shape))
	n := 1
	for i := len(shape) - 1; i >= 0; i-- {
		s[i] = n
		n *= int(shape[i])
	}
	return s
}

// ints converts a shape.
func ints(shape []int64) []int {
	s := make([]int, len(shape))
	for i, d := range shape {
		s[i] = int(d)
	}
	return s
}

// roundUp returns the multiple of unit that is not below n.
func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// operand returns the type of operand or result i, the zero type if it is
// left out.
func operand(types []graph.TensorType, i int) graph.TensorType {
	if i < len(types) {
		return types[i]
	}
	return graph.TensorType{}
}

// memory returns the memory of operand or result i, nil if it is left out.
func memory(data [][]byte, i int) []byte {
	if i < len(data) {
		return data[i]
	}
	return nil
}

// isFloat32 reports whether T is float32.
func isFloat32[T number]() bool {
	_, ok := any(T(0)).(float32)
	return ok
}

// asFloat32 gives x, whose elements are float32, that type.
func asFloat32[T number](x []T) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(x))), len(x))
}

// elementSize returns the bytes of a T.
func elementSize[T any]() int {
	var zero T
	return int(unsafe.Sizeof(zero))
}

// rawBytes returns the memory of s.
func rawBytes[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*elementSize[T]())
}

// lanes are the vectors along one axis: a tensor seen as [outer, dim, inner].
type lanes struct{ outer, dim, inner int }

func lanesOf(shape []int64, axis int64) lanes {
	return lanes{elements(shape[:axis]), int(shape[axis]), elements(shape[axis+1:])}
}

// typed picks a function by the element type that Go computes with.
type typed[F any] struct{ i8, u8, i16, u16, i32, u32, i64, u64, f32, f64 F }

func (t *typed[F]) of(d graph.DType) (F, bool) {
	switch d {
	case graph.I8:
		return t.i8, true
	case graph.U8:
		return t.u8, true
	case graph.I16:
		return t.i16, true
	case graph.U16:
		return t.u16, true
	case graph.I32:
		return t.i32, true
	case graph.U32:
		return t.u32, true
	case graph.I64:
		return t.i64, true
	case graph.U64:
		return t.u64, true
	case graph.F32:
		return t.f32, true
	case graph.F64:
		return t.f64, true
	}
	var none F
	return none, false
}

// noKernel is the error of a binder for an element type.
func noKernel(what any, t graph.DType) error {
	return fmt.Errorf("%v of %v has no CPU kernel", what, t)
}
