//go:build linux || darwin || freebsd || netbsd || openbsd

package atomicfile

import (
	"os"
	"syscall"
)

// hold locks a file as long as it is open, so that it is not taken for one that
// was left, and reports whether it still has its name.
func hold(f *os.File) bool {
	// A file system without locks has no files under construction that Clean
	// would remove either.
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, there)
}

// removeLeft removes a file under construction that nobody holds.
func removeLeft(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return nil // somebody is writing it, or nobody can tell
	}
	return os.Remove(path)
}
