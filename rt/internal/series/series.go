// Package series writes numbers that follow one another as elements of a tensor.
package series

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu/num"
	"github.com/popefgen/popefgen/rt"
)

// Lowest is what is added to the scores of positions that must not count: the lowest
// number of half precision, which no exponential survives.
const Lowest = -65504

// Writer fills n elements of mem from element at on: first, first+step, …
type Writer func(mem []byte, at, n, first, step int)

// Of returns what writes elements of a Go type, which generated code names, and the
// bytes of an element; nil for a type that no number is written as.
func Of(goType string) (write Writer, size int) {
	e := elements[goType]
	return e.write, e.size
}

// element is a type of elements.
type element struct {
	size  int
	write Writer
}

// elements has them by the names of their Go types.
var elements = map[string]element{
	"bool": {1, func(mem []byte, at, n, first, step int) { write[uint8](mem, at, n, min(first, 1), 0) }},
	"int8": {1, write[int8]}, "int16": {2, write[int16]}, "int32": {4, write[int32]}, "int64": {8, write[int64]},
	"uint8": {1, write[uint8]}, "uint16": {2, write[uint16]}, "uint32": {4, write[uint32]}, "uint64": {8, write[uint64]},
	"float32": {4, write[float32]}, "float64": {8, write[float64]},
	"rt.Float16": {2, func(mem []byte, at, n, first, step int) {
		to := view[rt.Float16](mem)[at : at+n]
		for i := range to {
			to[i] = num.Float16From(float32(first + i*step))
		}
	}},
}

// write is a [Writer].
func write[E int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64](mem []byte, at, n, first, step int) {
	to := view[E](mem)[at : at+n]
	for i := range to {
		to[i] = E(first + i*step)
	}
}

// view views memory as elements.
func view[E any](mem []byte) []E {
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/int(unsafe.Sizeof(e)))
}
