//go:build poplar && poplarfake && linux && cgo

package poplar

import (
	"sync/atomic"
	"testing"
	"time"
)

// SetPatience changes how long a program may go on that has to end, until the test ends.
func SetPatience(t *testing.T, d time.Duration) {
	before := patience
	patience = d
	t.Cleanup(func() { patience = before })
}

// SetLooks changes how often who waits for a run looks at its context, until the test ends. Where that is seldom, a run whose
// wake-up was lost hangs; otherwise it is only late.
func SetLooks(t *testing.T, d time.Duration) {
	first, others := soonest, latest
	soonest, latest = d, d
	t.Cleanup(func() { soonest, latest = first, others })
}

// Runs reports whether a run has begun and not ended.
func (e *Engine) Runs() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.active
}

// Skipped sends n commands that end at once, each a moment after the end of the one before: among them moments when the
// engine's thread is about to park. It returns how many have ended, which is fewer if one does not within three seconds. Nothing
// else may use the engine meanwhile.
func (e *Engine) Skipped(n int) int {
	s := &e.seats[1]
	for k := range n {
		atomic.StoreUint32(s.failed, 1)
		atomic.StoreUint32(s.ended, 0)
		e.mail.send(1)
		for sent := time.Now(); !s.ready(); {
			if time.Since(sent) > 3*time.Second {
				return k
			}
		}
		for range k % 97 { // a few nanoseconds each
			s.ready()
		}
	}
	return n
}

// Touches reports whether a timer that comes now would write to the memory of the engine's mail, of an engine that nothing else uses.
func (e *Engine) Touches() bool {
	s, memory := &e.seats[0], uint32(7)
	to := func(at *uint32) (before *uint32) {
		s.mu.Lock() // a timer of the last run may come at this moment
		defer s.mu.Unlock()
		before, s.goWaits = s.goWaits, at
		return before
	}
	theirs := to(&memory)
	s.kick()
	to(theirs)
	return atomic.LoadUint32(&memory) != 7
}
