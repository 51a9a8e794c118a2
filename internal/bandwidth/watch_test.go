package bandwidth

import (
	"testing"
	"time"
)

// TestWatch checks what is called slow: what takes longer than it did before.
func TestWatch(t *testing.T) {
	w := NewWatch()
	var pause time.Duration
	w.read = func(*byte, int) { time.Sleep(pause) }
	pause = time.Millisecond
	if w.Slow() {
		t.Error("the first measurement is slow, though there is none to compare it with")
	}
	pause = 20 * time.Millisecond
	if !w.Slow() {
		t.Error("reading takes twenty times as long and isn't slow")
	}
	w.read = nil
	if w.Slow() {
		t.Error("a machine without a loop for reading is slow")
	}
}
