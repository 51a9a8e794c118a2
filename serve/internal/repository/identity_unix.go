//go:build unix

package repository

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity tells a file from another one that takes its place.
func identity(st fs.FileInfo) string {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
	}
	return ""
}
