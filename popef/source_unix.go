//go:build unix

package popef

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps a file for reading. An empty file can't be mapped and needs not be.
func mapFile(f *os.File, size int64) ([]byte, func() error, error) {
	if size == 0 {
		return nil, nil, nil
	}
	if size != int64(int(size)) {
		return nil, nil, errors.New("file is larger than the address space")
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return mem, func() error { return unix.Munmap(mem) }, nil
}

// dropPages tells the system that a part of a mapped file, whole pages, is not
// needed for now. That the system refuses changes nothing but the use of memory.
func dropPages(mem []byte) { _ = unix.Madvise(mem, unix.MADV_DONTNEED) }
