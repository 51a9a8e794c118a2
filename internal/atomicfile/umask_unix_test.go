//go:build unix

package atomicfile

import "syscall"

func umask(mask int) int { return syscall.Umask(mask) }
