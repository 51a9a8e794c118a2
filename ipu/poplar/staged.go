//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// Slots is how many runs an engine can have begun ahead of those that ask for them.
const Slots = C.PLR_SLOTS - 1

var _ ipu.Stager = (*Engine)(nil)

// Slots returns [Slots].
func (e *Engine) Slots() int { return Slots }

// Stage begins one run of a program: the engine's thread comes to it after those that were begun before, without Go.
// It fails if the program moves a stream that Go would have to be called for, or one whose memory is not given.
func (e *Engine) Stage(ctx context.Context, index, slot int, in, out []ipu.Staged) error {
	fail := func(err error) error { return fmt.Errorf("stage a run of program %d: %w", index, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := checkSlot(slot); err != nil {
		return fail(err)
	}
	p, err := e.program(index)
	if err != nil {
		return fail(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r := &e.slots[slot]
	switch err := e.refusal(); {
	case err != nil:
		return fail(err)
	case e.still > 0 || e.away:
		return fail(fmt.Errorf("%w: the engine is being loaded or connected, or its device is another's", ipu.ErrBusy))
	case r.out:
		return fail(fmt.Errorf("%w: slot %d has a run", ipu.ErrBusy, slot))
	}
	if err := e.connected(p); err != nil {
		return fail(err)
	}
	for _, i := range p.moves {
		if _, err := e.staged(i, in, out); err != nil {
			return fail(err)
		}
	}
	if err := e.seats[slot+1].open(); err != nil {
		return fail(err)
	}
	r.begin(e, slot+1, context.Background(), p, "")
	for _, i := range p.moves {
		if s, is := e.streams[i].end.(*ringed); is {
			mem, _ := e.staged(i, in, out)
			n := s.window.Count
			if s.window.Size > 0 {
				n = len(mem) / s.window.Size
			}
			s.lie(r, mem, n)
		}
	}
	r.send(C.PLR_RUN)
	return nil
}

func checkSlot(slot int) error {
	if slot < 0 || slot >= Slots {
		return fmt.Errorf("slot %d, want 0 to %d", slot, Slots-1)
	}
	return nil
}

// staged returns the memory that is given for a stream, nil for one that needs none.
func (e *Engine) staged(i int, in, out []ipu.Staged) ([]byte, error) {
	switch e.streams[i].end.(type) {
	case *called:
		return nil, fmt.Errorf("stream %q is called during runs", e.streams[i].info.Handle)
	case *ringed:
		is := func(s ipu.Staged) bool { return s.Stream == i }
		if k := slices.IndexFunc(in, is); k >= 0 {
			return in[k].Data, nil
		}
		if k := slices.IndexFunc(out, is); k >= 0 {
			return out[k].Data, nil
		}
		return nil, fmt.Errorf("stream %q has no memory", e.streams[i].info.Handle)
	}
	return nil, nil
}

// RunStaged waits for the end of a run that Stage began.
func (e *Engine) RunStaged(ctx context.Context, index, slot int) error {
	fail := func(err error) error { return fmt.Errorf("run program %d staged: %w", index, err) }
	if err := checkSlot(slot); err != nil {
		return fail(err)
	}
	if err := e.enter(); err != nil {
		return fail(err)
	}
	defer e.busy.Store(false)
	r := &e.slots[slot]
	e.mu.Lock()
	p, held := r.p, r.held && r.p.Index == index
	r.held = false
	e.mu.Unlock()
	if !held {
		return fail(ipu.ErrNotStaged)
	}
	if err := ctx.Err(); err != nil {
		return p.failed(err)
	}
	if err := e.device.begin(e, false); err != nil {
		return p.failed(err)
	}
	e.mu.Lock()
	r.ctx = ctx
	e.active, e.direct = true, r
	out := r.out // it may have been looked at for another one
	e.mu.Unlock()
	if out {
		r.wait()
	}
	err := r.over()
	switch {
	case errors.Is(err, errSkipped):
		return fail(ipu.ErrNotStaged)
	case err != nil:
		return p.failed(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r.ran = true
	return nil
}

// Unstage gives a slot's memory back. A run that nobody asked for ends without effect first, if it can.
func (e *Engine) Unstage(_ context.Context, index, slot int) error {
	fail := func(err error) error { return fmt.Errorf("end a run of program %d: %w", index, err) }
	if err := checkSlot(slot); err != nil {
		return fail(err)
	}
	r := &e.slots[slot]
	e.mu.Lock()
	defer e.mu.Unlock()
	r.held = false
	if r.out {
		r.left = true
		r.ctx = context.Background()
		r.end(context.Canceled)
		e.mu.Unlock()
		r.wait()
		e.mu.Lock()
		r.left = false
		_ = e.settle(r) // of a run that nobody asked for
	}
	ran := r.ran
	r.ran = false
	if !ran {
		return fail(ipu.ErrNotStaged)
	}
	return nil
}

// quiet sees to it that no run that was staged is under way, until resume.
func (e *Engine) quiet() {
	e.mu.Lock()
	e.still++
	e.mu.Unlock()
	e.drain()
}

func (e *Engine) resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.still--
}

// leave has the engine leave its device to somebody else.
func (e *Engine) leave() {
	e.mu.Lock()
	e.away = true
	e.mu.Unlock()
	e.drain()
}

// drain takes what was staged back: runs that have not begun do not, others end soon.
func (e *Engine) drain() {
	for late, forced := time.Now().Add(patience), false; ; time.Sleep(50 * time.Microsecond) {
		left := false
		e.mu.Lock()
		for i := range e.slots {
			r := &e.slots[i]
			r.held = false
			if !r.out {
				continue
			}
			atomic.StoreUint32(r.seat.failed, 1)
			if r.left || !r.seat.ready() {
				left = true
				continue
			}
			if r.cause == nil {
				r.cause = ipu.ErrNotStaged
			}
			_ = e.settle(r)
		}
		e.mu.Unlock()
		if !left {
			return
		}
		if !forced && time.Now().After(late) {
			forced = true
			e.halt() // what is under way has had its time to end
		}
	}
}

// stop tells a run that the engine is stopped.
func (r *run) stop() {
	r.stopped.Store(true)
	r.seat.kick()
}
