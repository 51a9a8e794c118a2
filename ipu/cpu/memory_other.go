//go:build !linux

package cpu

import "math"

// machineMemory returns a bound on what can be allocated at all: there is no
// portable way to ask for the machine's memory.
func machineMemory() int64 { return min(1<<36, math.MaxInt/2) }

// mapBlock returns nil: only Linux is asked for large pages.
func mapBlock(int64, int64) (b []byte, release func()) { return nil, nil }
