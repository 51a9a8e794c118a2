// Package align makes blocks of memory as the engine wants them: zero, from the
// start of a cache line, and of large pages where they are worth it.
package align

import "unsafe"

// Line is where every block of memory begins that the engine hands out: a multiple of
// the bytes of a cache line, which is also the widest vector register.
const Line = 64

// Up rounds n up to a multiple of [Line].
func Up(n int64) int64 { return (n + Line - 1) &^ (Line - 1) }

// Bytes returns n zero bytes that start at a multiple of [Line].
// The result is never nil.
func Bytes(n int64) []byte {
	b := make([]byte, n+Line)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (Line - 1)
	return b[skip : skip+uintptr(n) : skip+uintptr(n)]
}

// hugePage is the size of the memory pages that large blocks are made of where
// the system has such. The processor needs one entry of its page tables where
// small ones need 512, and the first touch of each costs a single fault.
const hugePage = 2 << 20

// huge returns how much of a block of n bytes, from its start, large pages may
// back: they must not make it larger by more than a quarter of one.
func huge(n int64) int64 { return (n + hugePage/4) / hugePage * hugePage }

// Block returns n zero bytes, of which the first, used many, are sure to
// be used. Nothing may use the memory once release has been called.
func Block(n, used int64) (b []byte, release func()) {
	if large := huge(used); large > 0 {
		if b, release := mapBlock(n, large); b != nil {
			return b, release
		}
	}
	return Bytes(n), func() {}
}

// To reports whether b starts at a multiple of size, a power of two.
func To(b []byte, size int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(size-1) == 0
}
