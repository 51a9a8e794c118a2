//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package atomicfile

import (
	"os"
	"time"
)

// hold does nothing: see removeLeft.
func hold(*os.File) bool { return true }

// removeLeft removes a file under construction that nobody has written to for
// an hour.
func removeLeft(path string) error {
	st, err := os.Stat(path)
	if err != nil || time.Since(st.ModTime()) < time.Hour {
		return err
	}
	return os.Remove(path)
}
