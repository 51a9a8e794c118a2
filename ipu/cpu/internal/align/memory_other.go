//go:build !linux

package align

// mapBlock returns nil: only Linux is asked for large pages.
func mapBlock(int64, int64) (b []byte, release func()) { return nil, nil }
