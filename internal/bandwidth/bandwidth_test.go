package bandwidth

import (
	"math"
	"testing"
)

// TestRead checks that a speed is measured for blocks of every size, odd ones
// too.
func TestRead(t *testing.T) {
	if reader() == nil {
		t.Skip("no vectors of 256 bits on this machine")
	}
	for _, bytes := range []int{1, block, 4<<10 + 1, 256 << 10, 8 << 20} {
		got := min(Read(bytes), Together(2*bytes, 2))
		t.Logf("%d bytes: %.1f GB/s", bytes, got/1e9)
		if !(got > 0) || math.IsInf(got, 0) {
			t.Errorf("reading %d bytes over and over: measured %g bytes a second", bytes, got)
		}
	}
}
