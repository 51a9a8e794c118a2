//go:build poplar && linux && cgo

package poplar

import (
	"context"
	"sync"
)

// hostContext is the context that the streams of a run are called with. It is used for run after run, which then allocate
// nothing, unless a stream asks to be told of its end.
type hostContext struct {
	context.Context // of the run's caller

	mu    sync.Mutex
	cause error // why it has ended; nil if only the caller's may have
	told  context.Context
	end_  context.CancelCauseFunc // of told
}

// begin makes it the context of another run.
func (c *hostContext) begin(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Context, c.cause = ctx, nil
}

// end ends it, if it has not ended, because of cause.
func (c *hostContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
	if c.told != nil {
		c.end_(cause)
	}
}

// lent reports whether a stream has something that ends with the context.
func (c *hostContext) lent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told != nil
}

// telling returns a context that tells of the end.
func (c *hostContext) telling() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told, c.end_ = context.WithCancelCause(c.Context)
		if c.cause != nil {
			c.end_(c.cause)
		}
	}
	return c.told
}

// Done returns a channel that is closed when the run should end.
func (c *hostContext) Done() <-chan struct{} { return c.telling().Done() }

// Err says whether the run should end.
func (c *hostContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause != nil {
		return context.Canceled
	}
	return c.Context.Err()
}

// Value returns a value of the caller's context; [context.Cause] finds why the run should end.
func (c *hostContext) Value(key any) any {
	c.mu.Lock()
	ended := c.cause != nil
	c.mu.Unlock()
	if ended {
		return c.telling().Value(key)
	}
	return c.Context.Value(key)
}
