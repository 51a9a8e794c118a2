package bandwidth

import (
	"slices"
	"time"
	"unsafe"
)

// watched is the block that a [Watch] reads, in bytes: it lies in the
// second-level cache and not in the first.
const watched = 512 << 10

// slower is how much longer than at best reading takes when a [Watch] calls it
// slow.
const slower = 1.25

// Watch measures whether a processor reads its second-level cache as fast as it
// can. What else computes on the same core, on a rented machine for somebody
// else, may halve that and make everything slow that works on memory, for
// seconds, while multiply-adds in registers run as fast as before.
type Watch struct {
	read func(p *byte, bytes int)
	mem  []byte
	best time.Duration
}

// NewWatch returns a Watch that compares with what is fastest from now on.
func NewWatch() *Watch {
	w := &Watch{read: reader(), mem: make([]byte, watched+64)}
	for i := range w.mem {
		w.mem[i] = byte(i)
	}
	return w
}

// Slow reports whether the processor that runs the caller is slow now. It takes
// less than a tenth of a millisecond, on a fast one.
func (w *Watch) Slow() bool {
	if w.read == nil {
		return false
	}
	from := unsafe.SliceData(w.mem[-uintptr(unsafe.Pointer(unsafe.SliceData(w.mem)))&63:])
	var times [15]time.Duration
	for i := range times {
		start := time.Now()
		w.read(from, watched)
		times[i] = time.Since(start)
	}
	slices.Sort(times[:])
	took := times[len(times)/2]
	if w.best == 0 || took < w.best {
		w.best = took
	}
	return float64(took) > slower*float64(w.best)
}
