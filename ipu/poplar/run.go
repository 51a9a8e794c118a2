//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// patience is how long a program may go on that has to end and reads zeros, before Engine::stop ends it, after
// which it has to be loaded again. Tests change it.
var patience = 2 * time.Second

// soon is how long a command is under way before its context is listened to: contexts make the channel for that when they
// are asked, which a short request need not pay for.
const soon = time.Millisecond

// run is one command that is under way.
type run struct {
	e     *Engine
	p     *program // nil while the engine is loaded
	ctx   context.Context
	doing string // for messages of Poplar

	cause  error                 // why it has to end; nil if it has not
	forced bool                  // Engine::stop was called
	err    atomic.Pointer[error] // the first of a stream
	cancel context.CancelCauseFunc
}

// Run runs a program on the engine's thread, and waits for it.
func (e *Engine) Run(ctx context.Context, index int) error {
	fail := func(err error) error { return fmt.Errorf("run program %d: %w", index, err) }
	if err := e.enter(); err != nil {
		return fail(err)
	}
	defer e.busy.Store(false)
	if err := e.runnable(); err != nil {
		return fail(err)
	}
	at := slices.IndexFunc(e.programs, func(p program) bool { return p.Index == index })
	if at < 0 {
		return fail(fmt.Errorf("%w, want one of %v", ipu.ErrUnknownProgram, e.indices()))
	}
	p := &e.programs[at]
	if err := e.connected(p); err != nil {
		return fail(err)
	}
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if err := e.device.begin(e, false); err != nil {
		return fail(err)
	}
	if err := e.execute(ctx, p); err != nil {
		return fail(err)
	}
	return nil
}

func (e *Engine) indices() []int {
	out := make([]int, len(e.programs))
	for i, p := range e.programs {
		out[i] = p.Index
	}
	return out
}

// runnable returns why the engine can't run.
func (e *Engine) runnable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch e.state {
	case created:
		return ipu.ErrNotLoaded
	case lost:
		return fmt.Errorf("%w: it failed with %v: load it again", ipu.ErrNotLoaded, e.failure)
	case stopped:
		return fmt.Errorf("%w: load it again", ipu.ErrStopped)
	}
	return nil
}

// connected returns an error if streams that the program moves have no host.
func (e *Engine) connected(p *program) error {
	var open []string
	for _, i := range p.moves {
		if e.streams[i].end == nil {
			open = append(open, fmt.Sprintf("%q", e.streams[i].info.Handle))
		}
	}
	if open == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ipu.ErrUnconnected, strings.Join(open, ", "))
}

// execute runs a program that can run.
func (e *Engine) execute(ctx context.Context, p *program) (err error) {
	e.start()
	r := &e.spare
	if slices.ContainsFunc(p.moves, func(i int) bool { _, is := e.streams[i].end.(*called); return is }) {
		r = &run{} // its streams may have it for longer than it lasts
	}
	r.e, r.p, r.ctx, r.cause, r.forced = e, p, ctx, nil, false
	r.err.Store(nil)
	atomic.StoreUint32(e.mail.failed, 0)
	if r != &e.spare {
		r.ctx, r.cancel = context.WithCancelCause(ctx)
		e.current.Store(r)
	}
	sent, returned := false, false
	defer func() {
		if !returned { // a stream has ended the goroutine: what it runs has to end too
			r.end(ipu.NewExitError())
			if sent {
				r.drain()
			}
			_ = r.over(ipu.NewExitError())
		}
	}()
	for _, i := range p.moves {
		e.streams[i].end.begin(r)
	}
	if err = r.pump(); err == nil {
		e.mail.send(C.PLR_RUN, uint32(p.Index))
		sent = true
		err = r.await()
	}
	returned = true
	return r.over(err)
}

// fail ends the run because of a stream, whose inputs are zeros from now on.
func (r *run) fail(handle string, err error) {
	err = fmt.Errorf("stream %q: %w: %w", handle, ipu.ErrCallback, err)
	r.err.CompareAndSwap(nil, &err)
	r.zero()
	select {
	case r.e.wake <- struct{}{}: // who waits gives the program some time from now on
	default:
	}
}

// zero makes what the engine waits for come at once.
func (r *run) zero() {
	atomic.StoreUint32(r.e.mail.failed, 1)
	if r.p == nil {
		return
	}
	for _, i := range r.p.moves {
		if s, ok := r.e.streams[i].end.(*ringed); ok {
			wake(s.cWaits)
		}
	}
}

// end tells the run to end.
func (r *run) end(cause error) {
	if r.cause != nil {
		return
	}
	r.cause = cause
	if r.cancel != nil {
		r.cancel(cause)
	}
	r.zero()
}

// pump moves what the streams have.
func (r *run) pump() (err error) {
	defer ipu.Guard(&err)
	if r.p == nil {
		return nil
	}
	for _, i := range r.p.moves {
		s := &r.e.streams[i]
		if err := s.end.pump(r); err != nil {
			r.fail(s.info.Handle, err)
			return nil // the engine says when the run has ended
		}
	}
	return nil
}

// waits reports whether there is something for pump to do.
func (r *run) waits() bool {
	if r.p == nil || atomic.LoadUint32(r.e.mail.failed) != 0 {
		return false
	}
	for _, i := range r.p.moves {
		if r.e.streams[i].end.waits() {
			return true
		}
	}
	return false
}

// await waits until the command has ended, and returns what became of it.
func (r *run) await() error {
	m := &r.e.mail
	var late <-chan time.Time
	var done <-chan struct{}
	r.e.soon.Reset(soon)
	defer r.e.soon.Stop()
	for !m.ready() {
		if atomic.LoadUint32(m.failed) == 0 {
			if err := r.pump(); err != nil { // a stream panicked
				r.fail("", err)
			}
		}
		atomic.StoreUint32(m.goWaits, 1)
		if m.ready() {
			break
		}
		if r.waits() {
			continue
		}
		if late == nil && atomic.LoadUint32(m.failed) != 0 {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			late = timer.C
		}
		select {
		case <-r.e.wake:
		case <-r.e.soon.C:
			done = r.ctx.Done()
		case <-done:
			done = nil
			r.end(r.ctx.Err())
		case <-r.e.halt:
			r.end(ipu.ErrStopped)
		case <-late:
			r.forced = true
			C.plr_engine_stop(r.e.c)
		}
	}
	if atomic.LoadUint32(m.failed) == 0 && atomic.LoadUint32(m.result) == 0 {
		if err := r.pump(); err != nil {
			r.fail("", err)
		}
	}
	select {
	case <-r.e.halt: // it ended before it noticed
		if r.cause == nil {
			r.cause = ipu.ErrStopped
		}
	default:
	}
	return r.outcome()
}

// drain waits for the end of a command that has to end, when nobody waits for what becomes of it.
func (r *run) drain() {
	for end := time.Now().Add(patience); !r.e.mail.ready(); time.Sleep(time.Millisecond) {
		if !r.forced && time.Now().After(end) {
			r.forced = true
			C.plr_engine_stop(r.e.c)
		}
	}
}

// outcome returns the error of a command that has ended: why it had to end, else that of a stream, else Poplar's.
func (r *run) outcome() error {
	var theirs error
	if atomic.LoadUint32(r.e.mail.result) != 0 {
		var err C.plr_err
		doing := r.doing
		if r.p != nil {
			doing = fmt.Sprintf("program %q", r.p.Name)
		}
		theirs = failure(C.plr_engine_error(r.e.c, &err), &err, doing)
	}
	var streams error
	if p := r.err.Load(); p != nil {
		streams = *p
	}
	what := "the program"
	if r.p == nil {
		what = "it"
	}
	if r.forced { // whatever Poplar says of it
		theirs = &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset,
			Message: fmt.Sprintf("%s did not end within %v of being told to, and was stopped: load the engine again", what, patience)}
	}
	switch {
	case r.cause == nil && streams == nil:
		return theirs
	case r.cause == nil:
		if r.forced {
			return fmt.Errorf("%w: %w", streams, theirs)
		}
		return streams
	case streams != nil && errors.Is(streams, r.cause) && !r.forced:
		return streams
	case streams != nil:
		return fmt.Errorf("%w: %w", r.cause, streams)
	case r.forced:
		return fmt.Errorf("%w: %w", r.cause, theirs)
	}
	return r.cause
}

// over ends a run with an error or nil, and returns that.
func (r *run) over(err error) error {
	e := r.e
	if err == nil {
		if p := r.err.Load(); p != nil {
			err = *p
		}
	}
	if r.cancel != nil {
		r.cancel(nil)
	}
	for _, i := range r.p.moves {
		s := &e.streams[i]
		if ferr := finished(s.end, r, err); ferr != nil && err == nil {
			err = fmt.Errorf("stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, ferr)
		}
	}
	if r != &e.spare {
		e.current.Store(nil)
	}
	e.device.end()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.active = false
	if err != nil && ofDevice(err) {
		e.failure = err
		if e.state == loaded {
			e.state = lost
		}
	}
	return err
}

// ofDevice reports whether err is the device's, which loses what was loaded.
func ofDevice(err error) bool {
	var device *ipu.Error
	return errors.As(err, &device)
}

// finished has an end finish, whose host may panic.
func finished(s end, r *run, failed error) (err error) {
	defer ipu.Guard(&err)
	return s.finish(r, failed == nil)
}
