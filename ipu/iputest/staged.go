package iputest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// Staging describes devices that move the data of some requests while they compute
// another: their engines are of use as [ipu.Stager].
type Staging struct {
	Slots int // requests in flight
	// What each step takes, by the system's clock.
	Load, Compute, Store time.Duration
}

// slot is the memory of one request in flight.
type slot struct {
	held bool           // it has inputs
	ran  bool           // it has the outputs of a run
	data map[int][]byte // of streams, by index: all transfers of the run
	out  []ipu.Staged   // where outputs go
	at   map[int]int    // transfers of the run under way that were made
}

var _ ipu.Stager = (*Engine)(nil)

// Slots returns how many requests the device can have in flight.
func (e *Engine) Slots() int { return len(e.slots) }

// Stage moves inputs to a slot.
func (e *Engine) Stage(ctx context.Context, program, n int, in, out []ipu.Staged) error {
	fail := func(err error) error { return fmt.Errorf("stage a run of program %d: %w", program, err) }
	if err := e.runnable(); err != nil {
		return fail(err)
	}
	if err := e.linger(ctx, e.sys.staging.Load); err != nil {
		return fail(err)
	}
	s := slot{held: true, data: map[int][]byte{}, at: map[int]int{}, out: slices.Clone(out)}
	for _, d := range in {
		s.data[d.Stream] = slices.Clone(d.Data)
	}
	for _, d := range out {
		s.data[d.Stream] = make([]byte, len(d.Data))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.slots[n] = s
	return nil
}

// RunStaged runs a program with the data of a slot.
func (e *Engine) RunStaged(ctx context.Context, program, n int) error {
	e.mu.Lock()
	s := e.slots[n]
	e.slots[n].held = false
	e.mu.Unlock()
	if !s.held {
		return fmt.Errorf("run program %d staged: %w", program, ipu.ErrNotStaged)
	}
	e.staged = &s // Run is for one caller at a time
	defer func() { e.staged = nil }()
	if err := e.linger(ctx, e.sys.staging.Compute); err != nil {
		return fmt.Errorf("run program %d staged: %w", program, err)
	}
	if err := e.Run(ctx, program); err != nil {
		return err
	}
	e.mu.Lock()
	e.slots[n].ran = true
	e.mu.Unlock()
	return nil
}

// Unstage moves outputs out of a slot.
func (e *Engine) Unstage(ctx context.Context, program, n int) error {
	fail := func(err error) error { return fmt.Errorf("fetch the outputs of program %d: %w", program, err) }
	e.mu.Lock()
	ran := e.slots[n].ran
	e.slots[n].held = false
	e.mu.Unlock()
	if ran {
		if err := e.linger(ctx, e.sys.staging.Store); err != nil {
			return fail(err)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.slots[n].ran {
		return fail(ipu.ErrNotStaged)
	}
	for _, d := range e.slots[n].out {
		copy(d.Data, e.slots[n].data[d.Stream])
	}
	return nil
}

// linger takes as long as a step takes, unless the engine is stopped or closed first.
func (e *Engine) linger(ctx context.Context, d time.Duration) error {
	e.mu.Lock()
	steps := e.steps
	e.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(steps, func() { cancel(ipu.ErrStopped) })()
	if err := e.sys.clock.Sleep(ctx, d); err != nil {
		return ended(ctx)
	}
	return nil
}

// restage empties the slots, when the engine is loaded, and makes its steps ones that end
// with the engine. mu is held.
func (e *Engine) restage() {
	for i := range e.slots {
		e.slots[i].held, e.slots[i].ran = false, false
	}
	if e.endSteps != nil {
		e.endSteps()
	}
	e.steps, e.endSteps = context.WithCancel(context.Background())
}

// moveStaged makes one transfer between a stream's tensor and the slot, and reports whether
// the slot has the stream.
func (r *run) moveStaged(i int) bool {
	s := r.e.staged
	if s == nil || s.data[i] == nil {
		return false
	}
	t := r.e.streams[i].tensor
	at := s.data[i][s.at[i]*len(t):][:len(t)]
	s.at[i]++
	if r.e.streams[i].info.Direction == ipu.DeviceToHost {
		copy(at, t)
	} else {
		copy(t, at)
	}
	return true
}
