package ring

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Spinner is the patience of one goroutine: how long it watches for what it
// waits for before it parks. Watching costs a processor all along, and gains
// something only if another processor is there for the other side and the
// wait is short: a reply then takes a tenth of a microsecond instead of
// several. Rings that the same goroutine waits for share its Spinner.
//
// A goroutine that has just woken another one does not watch, but parks at
// once: the woken one may be lined up behind it on the same processor, and
// would wait as long as it watches. Two that answer each other therefore park
// in turn once one of them had to wait for longer than it watches: give them
// more patience than a pause between requests is long.
type Spinner struct {
	limit int
	woke  atomic.Bool // this goroutine has woken another one since it last waited
}

// NewSpinner makes a Spinner that watches for the given number of rounds, of a
// nanosecond or so each, at least 0. Less than some ten thousand rarely pay.
func NewSpinner(rounds int) *Spinner { return &Spinner{limit: max(0, rounds)} }

// Note records that this goroutine has, or may have, woken another one.
func (s *Spinner) Note() {
	if s != nil {
		s.woke.Store(true)
	}
}

// rounds returns how long to watch, for once.
func (s *Spinner) rounds() int {
	switch {
	case s == nil:
		return 0
	case s.woke.Load():
		s.woke.Store(false)
		return 0
	}
	return s.limit
}

// Watch watches flag until it is false, as long as the Spinner's patience
// lasts, and reports whether it became so.
func (s *Spinner) Watch(flag *atomic.Bool) bool {
	for i := range s.rounds() {
		if !flag.Load() {
			return true
		}
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
	}
	return false
}

// yieldEvery is the number of rounds after which who watches lets others run:
// there may be no other processor for them.
const yieldEvery = 1024

// parker is where one goroutine waits for others. A token that is there
// already is enough for whoever else wakes it: it looks again at all that it may
// wait for.
type parker chan struct{} // capacity 1

// wake makes the goroutine that waits, or the next to wait, look again, on
// behalf of the one that by belongs to.
func (p parker) wake(by *Spinner) {
	select {
	case p <- struct{}{}:
	default:
	}
	by.Note()
}

// AwaitFree waits until a place is free or the ring is invalid. It may return
// early: the caller looks again. It fails with ctx's error. It is for the
// producer.
func (r *Ring[T]) AwaitFree(ctx context.Context, p Place) error {
	state := p.state
	if watch(r.producer.spin, state, 0, &r.signals) || !mark(state, full) {
		return nil
	}
	done := ctx.Done()
	if done == nil { // a receive is cheaper than a select
		<-r.writer
		return nil
	}
	select {
	case <-r.writer:
		return nil
	case <-done:
		state.CompareAndSwap(full|awaited, full)
		return fmt.Errorf("ring %q: wait for a free buffer: %w", r.label, ctx.Err())
	}
}

// waitToRead is ReadLock for who may have to wait. It parks here rather than in
// a function of its own: who resumes another goroutine predicts none of the
// returns on its stack.
func (r *Ring[T]) waitToRead(ctx context.Context) (*T, error) {
	c := &r.consumer
	for timedOut := false; ; {
		last := r.signals.Load()&finished != 0 // what was written before can be read
		if v, err := r.TryReadLock(); v != nil || err != nil {
			return v, err
		}
		if last {
			return nil, r.invalidated()
		}
		if timedOut {
			r.onTimeout(r)
			c.spin.Note()
		}
		state, all := &r.slots[c.next].state, c.held == len(r.slots)
		switch {
		case all: // only ReadReset helps
			r.signals.Or(stuck)
		case watch(c.spin, state, full, &r.signals) || !mark(state, 0):
			timedOut = false
			continue
		}
		over := false
		if done := ctx.Done(); done == nil && r.timeout == 0 { // a receive is cheaper than a select
			<-r.reader
		} else {
			timedOut, over = r.awaitToken(done)
		}
		if all {
			r.signals.And(^stuck)
		}
		if timedOut || over {
			state.CompareAndSwap(awaited, 0)
		}
		if over {
			return nil, fmt.Errorf("ring %q: wait for a buffer to read: %w", r.label, ctx.Err())
		}
	}
}

// awaitToken waits until somebody wakes the consumer, or done is closed, which
// over tells, or the timeout is over.
func (r *Ring[T]) awaitToken(done <-chan struct{}) (timedOut, over bool) {
	var timeout <-chan time.Time
	if r.timeout > 0 {
		c := &r.consumer
		if c.timer == nil {
			c.timer = time.NewTimer(r.timeout)
		} else {
			c.timer.Reset(r.timeout)
		}
		defer c.timer.Stop()
		timeout = c.timer.C
	}
	select {
	case <-r.reader:
	case <-timeout:
		timedOut = true
	case <-done:
		over = true
	}
	return timedOut, over
}

// mark says that a buffer is awaited, and reports whether it still has to be:
// whether it is in the state that it was in.
func mark(state *atomic.Uint32, was uint32) bool {
	return state.CompareAndSwap(was, was|awaited) || state.Load() == was|awaited
}

// watch looks at a buffer as long as s has patience, and reports whether it
// became full or free, as wanted, or somebody called.
func watch(s *Spinner, state *atomic.Uint32, want uint32, signals *atomic.Uint32) bool {
	for i := range s.rounds() {
		if state.Load()&full == want || signals.Load() != 0 {
			return true
		}
		if i%yieldEvery == yieldEvery-1 {
			runtime.Gosched()
		}
	}
	return false
}
