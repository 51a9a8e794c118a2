package cpu

import "unsafe"

// alignment of every block of memory that the engine hands out, in bytes: a
// cache line, which is also the widest vector register.
const alignment = 64

// alignUp rounds n up to a multiple of [alignment].
func alignUp(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }

// alignedBytes returns n zero bytes that start at a multiple of [alignment].
// The result is never nil.
func alignedBytes(n int64) []byte {
	b := make([]byte, n+alignment)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (alignment - 1)
	return b[skip : skip+uintptr(n) : skip+uintptr(n)]
}

// hugePage is the size of the memory pages that large blocks are made of where
// the system has such. The processor needs one entry of its page tables where
// small ones need 512, and the first touch of each costs a single fault.
const hugePage = 2 << 20

// huge returns how much of a block of n bytes, from its start, large pages may
// back: they must not make it larger by more than a quarter of one.
func huge(n int64) int64 { return (n + hugePage/4) / hugePage * hugePage }

// allocateBlock returns n zero bytes, of which the first, used many, are sure to
// be used. Nothing may use the memory once release has been called.
func allocateBlock(n, used int64) (b []byte, release func()) {
	if large := huge(used); large > 0 {
		if b, release := mapBlock(n, large); b != nil {
			return b, release
		}
	}
	return alignedBytes(n), func() {}
}

// alignedTo reports whether b starts at a multiple of size, a power of two.
func alignedTo(b []byte, size int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(b)))&uintptr(size-1) == 0
}
