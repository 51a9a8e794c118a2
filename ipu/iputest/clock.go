package iputest

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Clock is a clock that a test moves. It implements [ipu.Clock].
type Clock struct {
	mu       sync.Mutex
	now      time.Time
	auto     bool
	sleepers []*sleeper // by the time at which they wake
	changed  chan struct{}
	slept    []time.Duration
}

// sleeper is one call of Sleep or After.
type sleeper struct {
	at   time.Time
	wake chan time.Time // capacity 1
}

// epoch is when every clock starts.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// NewClock returns a clock that stands at the start of the year 2000 UTC until
// it is advanced.
func NewClock() *Clock { return &Clock{now: epoch, changed: make(chan struct{})} }

// NewAutoClock returns a clock that also advances by itself, at once, to the
// end of every Sleep: whoever sleeps never waits.
func NewAutoClock() *Clock {
	c := NewClock()
	c.auto = true
	return c
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep returns when the clock has advanced by d, or ctx's error when it ends.
func (c *Clock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.mu.Lock()
	c.slept = append(c.slept, d)
	if c.auto {
		c.advance(d)
		c.mu.Unlock()
		return nil
	}
	s := c.add(d)
	c.mu.Unlock()
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.sleepers, s); i >= 0 {
			c.sleepers = slices.Delete(c.sleepers, i, i+1)
			c.tell()
		}
		return ctx.Err()
	}
}

// After returns a channel that gets the time when the clock has advanced by d.
// A clock made by NewAutoClock does not advance for it.
func (c *Clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.add(d).wake
}

// add makes a sleeper, which wakes at once if d is not positive.
func (c *Clock) add(d time.Duration) *sleeper {
	s := &sleeper{at: c.now.Add(d), wake: make(chan time.Time, 1)}
	if d <= 0 {
		s.wake <- c.now
		return s
	}
	at, _ := slices.BinarySearchFunc(c.sleepers, s, func(a, b *sleeper) int {
		if a.at.After(b.at) {
			return 1
		}
		return -1 // equal times wake in the order in which they came
	})
	c.sleepers = slices.Insert(c.sleepers, at, s)
	c.tell()
	return s
}

// Advance moves the clock forward by d and wakes whoever slept until then, in
// the order of their times.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(d)
}

func (c *Clock) advance(d time.Duration) {
	end := c.now.Add(max(0, d))
	for len(c.sleepers) > 0 && !c.sleepers[0].at.After(end) {
		s := c.sleepers[0]
		c.sleepers = slices.Delete(c.sleepers, 0, 1)
		c.now = s.at
		s.wake <- s.at
	}
	c.now = end
	c.tell()
}

// tell wakes who awaits sleepers.
func (c *Clock) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// AwaitSleepers returns when at least n calls of Sleep and After wait for the
// clock, so that a test can advance it past all of them, or ctx's error when
// it ends.
func (c *Clock) AwaitSleepers(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		have, changed := len(c.sleepers), c.changed
		c.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Slept returns the durations of all calls of Sleep so far, in order.
func (c *Clock) Slept() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.slept)
}
