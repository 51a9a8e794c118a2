package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/serve/oip"
)

// gate says who computes and who waits. Whoever waits is in one of two lines, each in order of arrival: requests of the
// priority 1 go before all others. It allocates nothing: a line links the calls themselves.
type gate struct {
	computing, waiting int // at most

	mu    sync.Mutex
	lines [2]line // 0: priority 1
	busy  atomic.Int64
	queue atomic.Int64
}

// line is a list of calls that wait.
type line struct{ first, last *Call }

func (l *line) push(c *Call) {
	if c.before = l.last; l.last == nil {
		l.first = c
	} else {
		l.last.after = c
	}
	l.last = c
}

func (l *line) remove(c *Call) {
	if c.before == nil {
		l.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		l.last = c.before
	} else {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
}

// full reports whether a request that came now would be refused. It is a look, not a promise.
func (g *gate) full() bool {
	return int(g.busy.Load()) >= g.computing && int(g.queue.Load()) >= g.waiting
}

// take gives the call a place or one in a line. It reports whether there was room at all, and whether the call has to wait.
func (g *gate) take(c *Call) (room, wait bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if int(g.busy.Load()) < g.computing && g.queue.Load() == 0 {
		g.busy.Add(1)
		return true, false
	}
	if int(g.queue.Load()) >= g.waiting {
		return false, false
	}
	g.queue.Add(1)
	c.queued = true
	c.lineOf(g).push(c)
	return true, true
}

func (c *Call) lineOf(g *gate) *line {
	if c.Priority == 1 {
		return &g.lines[0]
	}
	return &g.lines[1]
}

// await waits for the place of a call that is in a line, until its time is over or the caller is gone. If it returns an
// error the call is in no line and has no place.
func (g *gate) await(ctx context.Context, c *Call) error {
	var over <-chan time.Time
	if !c.until.IsZero() {
		left := time.Until(c.until)
		if c.timer == nil {
			c.timer = time.NewTimer(left)
		} else {
			c.timer.Reset(left)
		}
		defer c.timer.Stop()
		over = c.timer.C
	}
	var err error
	select {
	case <-c.place:
		return nil
	case <-over:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	g.mu.Lock()
	if c.queued {
		g.leaveLine(c)
		g.mu.Unlock()
		return err
	}
	g.mu.Unlock()
	<-c.place // it was given a place at the same moment
	g.leave()
	return err
}

func (g *gate) leaveLine(c *Call) {
	c.lineOf(g).remove(c)
	c.queued = false
	g.queue.Add(-1)
}

// leave gives a place to who waits, or back.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.lines {
		if c := g.lines[i].first; c != nil {
			g.leaveLine(c)
			c.place <- struct{}{} // has room for one
			return
		}
	}
	g.busy.Add(-1)
}

// exhausted is the error of a request for which there is no room.
func (v *Version) exhausted() error {
	busy, queue := v.gate.busy.Load(), v.gate.queue.Load()
	e := oip.Errorf(oip.Exhausted, "Exceeds maximum queue size: model '%s' computes %d requests and %d wait, which is its limit; try again later", v.Spec.Name, busy, queue)
	// When half of those that wait now are done there is room again, most likely also for whoever retries.
	e.RetryAfter = max(time.Duration(v.counts.typical.Load())*time.Duration(queue/2+1)/time.Duration(v.gate.computing), time.Millisecond)
	return e
}
