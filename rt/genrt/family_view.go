package genrt

import (
	"fmt"
	"iter"
	"math"
	"unsafe"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
)

// View is a tensor of a request to a [Family]: where its memory and its sizes are.
type View struct {
	data  unsafe.Pointer // of a tensor with open dimensions: its slice; of another: its memory, nil if there is none
	sizes *int           // of open dimensions, the first of fields that lie one behind the other; nil if there are none
}

// Whole views a tensor without open dimensions; nil is one without memory.
func Whole[T any](t *T) View { return View{data: unsafe.Pointer(t)} }

// Open views a tensor with open dimensions: sizes is the first of its fields, which
// all are sizes and lie one behind the other, and data is the field with its elements.
func Open[E any](sizes *int, data *[]E) View {
	return View{data: unsafe.Pointer(data), sizes: sizes}
}

// size returns the field with index k.
func (v *View) size(k int) *int {
	return (*int)(unsafe.Add(unsafe.Pointer(v.sizes), uintptr(k)*unsafe.Sizeof(0)))
}

// elements returns how many elements the slice has, and has room for. What lies behind its length is the
// tensor's own: one over memory of the caller has no more room.
func (v *View) elements() (length, room int) {
	s := *(*[]byte)(v.data) // whatever its elements are, its numbers stand in the same place
	return len(s), cap(s)
}

// resize makes the slice have n elements of so many bytes: in the memory that it
// has, if there is room, else in new memory with room for most.
func (v *View) resize(n, most, bytes int) {
	s := (*[]byte)(v.data)
	if n > cap(*s) || *s == nil {
		words := make([]uint64, (most*bytes+7)/8+1) // aligned for any element, and never without memory
		*s = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), most)
	}
	*s = (*s)[:n]
}

// bytes returns the memory of n elements of so many bytes, of which the slice has room
// for as many, or that of a tensor without open dimensions.
func (v *View) bytes(n, bytes int) []byte {
	if v.sizes == nil {
		return unsafe.Slice((*byte)(v.data), n*bytes)
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(*(*[]byte)(v.data)))), n*bytes)
}

// Length returns how many elements sizes make. It panics if a size is below 0 or they make more than
// there can be.
func Length(sizes ...int) int {
	n, ok := product(sizes)
	if !ok {
		panic(fmt.Sprintf("genrt: no tensor has the sizes %d", append([]int(nil), sizes...))) // a copy: sizes does not escape
	}
	return n
}

// Grow returns a slice of n elements, in the memory of s if there is room. The number is not made of sizes here,
// since the arguments of a generic function that another package inlines are allocated.
func Grow[E any](s []E, n int) []E {
	if n > cap(s) || s == nil {
		return make([]E, n)
	}
	return s[:n]
}

// Cut views flat as a slice of elements of type T, which is E or an array of it, without copying: as
// many as the sizes make. If flat has not exactly so many the error wraps [rt.ErrLength] and names the anchor.
func Cut[T any, E Element](anchor string, flat []E, sizes ...int) ([]T, error) {
	var t T
	var e E
	each := int(unsafe.Sizeof(t) / unsafe.Sizeof(e))
	n, ok := product(sizes)
	if !ok {
		return nil, fmt.Errorf("anchor %q: %w: no tensor has the sizes %d", anchor, rt.ErrLength, sizes)
	}
	if len(flat)%each != 0 || len(flat)/each != n {
		return nil, fmt.Errorf("anchor %q: %w: %d, and sizes %d make %d", anchor, rt.ErrLength, len(flat), sizes, n*each)
	}
	if n == 0 {
		return []T{}, nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(flat))), n), nil
}

// product multiplies sizes, and reports whether they are those of a tensor.
func product(sizes []int) (int, bool) {
	n := 1
	for _, s := range sizes {
		if s < 0 || s > 0 && n > math.MaxInt/s {
			return 0, false
		}
		n *= s
	}
	return n, true
}

// Elements views a slice of arrays as their elements, without copying.
func Elements[E Element, T any](s []T) []E {
	var t T
	var e E
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(t)/unsafe.Sizeof(e)))
}

// Parts returns an iterator over n equal parts of s.
func Parts[T any](s []T, n int) iter.Seq2[int, []T] {
	return func(yield func(int, []T) bool) {
		for i := range n {
			each := len(s) / n
			if !yield(i, s[i*each:(i+1)*each:(i+1)*each]) {
				return
			}
		}
	}
}

// Follow returns ⌊(mul·n+add)/div⌋: the length of an axis that follows from a dimension. It is
// not less than 0 for a size that is not: no request of it is computed.
func Follow(n, mul, add, div int) int {
	axis := family.Axis{Mul: int64(mul), Add: int64(add), Div: int64(div)}
	return max(min(n, 0), int(axis.At(int64(n))))
}

// Index returns i, and panics unless it is at least 0 and less than n: an index
// along an inner axis, which the bounds of a slice do not check.
func Index(i, n int) int {
	if uint(i) >= uint(n) {
		outside(i, n)
	}
	return i
}

// outside is not inlined, so that Index is.
//
//go:noinline
func outside(i, n int) {
	_ = make([]struct{}, n)[i] // which says it as Go does
}
