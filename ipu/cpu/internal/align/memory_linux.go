package align

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapBlock maps n zero bytes that start at a multiple of [hugePage]. The first of
// them, large many, consist of large pages as far as there are some; they may
// reach beyond n. It returns nil where that is not possible. Nothing may use the
// memory once release has been called.
func mapBlock(n, large int64) (b []byte, release func()) {
	size := max(n, large) + hugePage // to begin where a large page can
	if size != int64(int(size)) {
		return nil, nil
	}
	all, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, nil
	}
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(all))) & (hugePage - 1)
	// Without large pages it is memory like any other.
	_ = unix.Madvise(all[skip:skip+uintptr(large)], unix.MADV_HUGEPAGE)
	return all[skip : skip+uintptr(n) : skip+uintptr(n)], func() { _ = unix.Munmap(all) }
}
