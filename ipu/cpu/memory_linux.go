package cpu

import (
	"math"

	"golang.org/x/sys/unix"
)

// machineMemory returns the bytes of memory of this machine. An executable
// that needs more is refused instead of ending the process.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return math.MaxInt / 2
	}
	return int64(min(uint64(info.Totalram)*uint64(info.Unit), math.MaxInt/2))
}
