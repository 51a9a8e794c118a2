package budget

import (
	"math"
	"runtime/debug"
	"sync/atomic"
)

// share of the memory there is that a budget gets by default, in quarters: the
// rest is for what nobody counts (the program, garbage, the system's cache).
const share = 3

// unknownMachine stands for a machine whose memory can't be asked for.
const unknownMachine = 16 << 30

// chosen is what [SetDefault] was given last.
var chosen atomic.Int64

// SetDefault makes [Default] return n from now on, for the whole process; 0 takes
// that back. It is for a command whose user says how much there is.
func SetDefault(n int64) { chosen.Store(max(0, n)) }

// Default returns the bytes that a job may allocate unless somebody says
// otherwise: three quarters of the least of the machine's memory, what the
// process's control groups (version 1 or 2) allow, what is left of its limits of
// address space and data (ulimit -v, -d), and Go's own limit (GOMEMLIMIT).
func Default() int64 {
	if n := chosen.Load(); n > 0 {
		return n
	}
	least := min(machine(), debug.SetMemoryLimit(-1))
	return max(1, min(least, math.MaxInt/2)/4*share)
}
