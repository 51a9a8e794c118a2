//go:build poplar && poplarfake && linux && cgo

package poplar

import (
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
