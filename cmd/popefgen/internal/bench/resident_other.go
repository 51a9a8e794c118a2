//go:build !linux

package bench

// PeakResident returns 0: it is not known how much memory the process has had
// in use.
func PeakResident() int64 { return 0 }
