//go:build !linux

package bench

import "time"

// PeakResident returns 0: it is not known how much memory the process has had
// in use.
func PeakResident() int64 { return 0 }

// processorTime returns 0: it is not known how long the process has computed.
func processorTime() time.Duration { return 0 }
