package core

import (
	"context"
	"sync"
	"time"

	"github.com/popefgen/popefgen/rt"
)

// callContext is the context that a model computes with: that of the transport, with the request's deadline. The next request of
// its call uses it again, so it allocates nothing, unless somebody asked for Done: then it ends with its request for good, as
// contexts may have been derived from it. A model does not keep it after Run.
type callContext struct {
	parent context.Context
	until  time.Time // zero: the parent's deadline alone
	runs   *follower // of the request

	mu    sync.Mutex
	asked bool          // for Done: contexts may have been derived, which read parent and until whenever they end
	done  chan struct{} // nil until somebody asks, and where the parent's says all
	err   error
	timer *time.Timer
	stop  func() bool // ends listening to the parent
}

// begin makes x the context of a request.
func (x *callContext) begin(parent context.Context, until time.Time, runs *follower) {
	if d, ok := parent.Deadline(); ok && !until.IsZero() && !until.Before(d) {
		until = time.Time{} // the parent knows sooner
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.parent, x.until, x.err = parent, until, nil
	x.runs, runs.muted = runs, false
}

// end ends what was derived from x. It reports whether x may be used again.
func (x *callContext) end() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.finish(context.Canceled)
	if x.asked {
		return false
	}
	x.parent, x.until = context.Background(), time.Time{}
	return true
}

func (x *callContext) finish(err error) {
	if x.err != nil {
		return
	}
	x.err = err
	if x.done == nil {
		return
	}
	close(x.done)
	x.timer.Stop()
	if x.stop != nil {
		x.stop()
	}
}

// Deadline returns the earlier of the request's and the transport's.
func (x *callContext) Deadline() (time.Time, bool) {
	if !x.until.IsZero() {
		return x.until, true
	}
	return x.parent.Deadline()
}

// Done returns a channel that is closed once the request's time is over, its caller is gone, or it ended.
func (x *callContext) Done() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = true
	switch {
	case x.done != nil:
		return x.done
	case x.err != nil:
		return closed
	}
	if x.until.IsZero() {
		return x.parent.Done()
	}
	x.done = make(chan struct{})
	x.timer = time.AfterFunc(time.Until(x.until), x.look)
	if x.parent.Done() != nil {
		x.stop = context.AfterFunc(x.parent, x.look)
	}
	return x.done
}

// closed is what Done returns that was asked for too late to be made.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// look closes Done if there is a reason to.
func (x *callContext) look() { _ = x.Err() }

// Err returns why the request ended, nil if it did not.
func (x *callContext) Err() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	err := x.parent.Err()
	if err == nil && !x.until.IsZero() && !time.Now().Before(x.until) {
		err = context.DeadlineExceeded
	}
	if err != nil {
		x.finish(err)
	}
	return err
}

// Value returns that of the transport's context, and what the runtime follows the request by.
func (x *callContext) Value(key any) any {
	if _, ok := key.(rt.RunFollowerKey); ok {
		if x.runs.muted {
			return nil
		}
		return x.runs
	}
	return x.parent.Value(key)
}
