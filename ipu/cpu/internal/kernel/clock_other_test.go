//go:build !linux

package kernel

import "time"

var began = time.Now()

// threadTime stands in for the processor time of the current thread.
func threadTime() time.Duration { return time.Since(began) }
