package genrt

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/popefgen/popefgen/rt"
)

// Turns says which of a generated Stream's two states is which: the one that the next
// request reads, and the one that it fills. One caller at a time has them.
type Turns struct {
	core *Core

	mu     sync.Mutex
	now    int
	busy   bool
	closed bool
}

// Open begins with the first state. inputs are those of c, in the order of the
// generated Inputs, that read the state: none may be frozen.
func (t *Turns) Open(c *Core, inputs ...int) error {
	err := c.checkReplica(rt.LeastBusy)
	select {
	case <-c.done: // nil before Open, when there is no replica
		err = rt.ErrClosed
	default:
	}
	for _, i := range inputs {
		if err == nil && c.Frozen(i) {
			err = fmt.Errorf("%w: input %d of the state is the same in every request", rt.ErrOption, i)
		}
	}
	if err != nil {
		return c.errorf("open a stream", err)
	}
	t.core = c
	return nil
}

// Begin returns which state a request reads and which it fills. It fails with
// [rt.ErrConcurrent] while another call has them, and with [rt.ErrClosed] after Close.
func (t *Turns) Begin() (now, next int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed || t.core == nil:
		return 0, 0, t.errorf(rt.ErrClosed)
	case t.busy:
		return 0, 0, t.errorf(rt.ErrConcurrent)
	}
	t.busy = true
	return t.now, 1 - t.now, nil
}

// Swap makes the state that was filled the one that the next request reads.
func (t *Turns) Swap() { t.now = 1 - t.now }

// End lets the next call begin.
func (t *Turns) End() {
	t.mu.Lock()
	t.busy = false
	t.mu.Unlock()
}

// Close lets no call begin any more. It fails with [rt.ErrConcurrent] while one has the
// states.
func (t *Turns) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy {
		return t.errorf(rt.ErrConcurrent)
	}
	t.closed = true
	return nil
}

func (t *Turns) errorf(err error) error {
	if t.core == nil {
		return fmt.Errorf("stream: %w: NewStream makes one", err)
	}
	if errors.Is(err, rt.ErrConcurrent) {
		err = fmt.Errorf("%w: another call has its state; wait until that returns, or make a stream for each caller with NewStream", err)
	}
	return t.core.errorf("use a stream", err)
}

// NilAnchor is [Core.NilAnchor] of the runner that the stream belongs to.
func (t *Turns) NilAnchor(err error) error {
	if t.core == nil {
		return err
	}
	return t.core.NilAnchor(err)
}

// SliceOf views one value as a slice of it; nil is none.
func SliceOf[S any](s *S) []S {
	if s == nil {
		return nil
	}
	return unsafe.Slice(s, 1)
}
