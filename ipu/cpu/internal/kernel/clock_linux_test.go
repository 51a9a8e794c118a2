package kernel

import (
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of the current thread, which other
// work on the machine does not add to.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
