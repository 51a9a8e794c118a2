//go:build poplar && linux && cgo

package poplar

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// patience is how long a program may go on that has to end and reads zeros, before Engine::stop ends it, after
// which it has to be loaded again. Tests change it.
var patience = 2 * time.Second

// How long a command is under way before its context is looked at for the first time, and how often it is later on. A
// context makes the channel that tells of its end when it is asked for that, which no request need pay for. Tests change them.
var (
	soonest = time.Millisecond
	latest  = 8 * time.Millisecond
)

// run is one command, from when it is laid out in its slot until its end was seen.
type run struct {
	e      *Engine
	p      *program // nil while the engine is loaded
	ctx    context.Context
	doing  string // for messages of Poplar; a program's name is in its run's error
	slot   int
	seat   *seat
	number uint32           // another one for each
	epoch  uint32           // of the engine
	staged bool             // it was begun by Stage
	pins   []runtime.Pinner // of the memory that the engine may touch
	pinned int              // pointers that are pinned

	cause   error                 // why it has to end; nil if it has not
	forced  bool                  // Engine::stop was called
	blocked string                // handle of a stream whose host had not returned from a call by then; empty if none
	stopped atomic.Bool           // Stop was called
	overdue atomic.Uint32         // the number of a run that had its time to end
	err     atomic.Pointer[error] // the first of a stream
	host    *hostContext          // of streams that are called; nil if none is

	// Guarded by the engine's mu.
	out    bool  // it is under way, or its end was not looked at
	result error // once that was looked at
	held   bool  // of one that was staged: RunStaged may have it
	left   bool  // Unstage waits for its end
	ran    bool  // it has succeeded
}

// begin makes r another run.
func (r *run) begin(e *Engine, slot int, ctx context.Context, p *program, doing string) {
	if r.seat == nil { // it stays the same: callbacks of an earlier run looked at it, which the race detector does not know to be over
		r.e, r.slot, r.seat = e, slot, &e.seats[slot]
	}
	r.ctx, r.p, r.doing = ctx, p, doing
	r.number = e.numbers.Add(1)
	r.staged, r.cause, r.forced, r.blocked = slot > 0, nil, false, ""
	r.stopped.Store(false)
	r.err.Store(nil)
	c := r.seat.c
	c.number = C.uint32_t(r.number)
	atomic.StoreUint32(r.seat.failed, 0)
	atomic.StoreUint32(r.seat.ended, 0)
}

// send has the engine's thread carry it out. The engine's mu is held.
func (r *run) send(command uint32) {
	c := r.seat.c
	c.command, c.epoch = C.uint32_t(command), C.uint32_t(r.e.epoch)
	if r.p != nil {
		c.program = C.uint32_t(r.p.Index)
	}
	r.epoch, r.out, r.result, r.held, r.left, r.ran = r.e.epoch, true, nil, r.staged, false, false
	if !r.staged {
		r.e.direct = r
	}
	r.e.mail.send(r.slot)
}

// perPinner is how many pointers a runtime.Pinner has room for without allocating.
const perPinner = 5

// pin keeps memory of Go where it is until unpin; to what is not Go's it does nothing.
func (r *run) pin(at *byte) {
	k := r.pinned / perPinner
	if k == len(r.pins) {
		r.pins = append(r.pins, runtime.Pinner{})
	}
	r.pins[k].Pin(at)
	r.pinned++
}

func (r *run) unpin() {
	for k := range (r.pinned + perPinner - 1) / perPinner {
		r.pins[k].Unpin()
	}
	r.pinned = 0
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
	p, err := e.program(index)
	if err != nil {
		return fail(err)
	}
	if err := e.connected(p); err != nil {
		return p.failed(err)
	}
	if err := ctx.Err(); err != nil {
		return p.failed(err)
	}
	if err := e.device.begin(e, false); err != nil {
		return p.failed(err)
	}
	if err := e.execute(ctx, p); err != nil {
		return p.failed(err)
	}
	return nil
}

// failed says of which program's run err is, in the words of the cpu back end.
func (p *program) failed(err error) error {
	return fmt.Errorf("run program %d %q: %w", p.Index, p.Name, err)
}

// program returns the program with an index.
func (e *Engine) program(index int) (*program, error) {
	for i := range e.programs {
		if e.programs[i].Index == index {
			return &e.programs[i], nil
		}
	}
	out := make([]int, len(e.programs))
	for i, p := range e.programs {
		out[i] = p.Index
	}
	return nil, fmt.Errorf("%w, want one of %v", ipu.ErrUnknownProgram, out)
}

// runnable returns why the engine can't run.
func (e *Engine) runnable() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refusal()
}

// refusal is runnable for who holds mu.
func (e *Engine) refusal() error {
	switch e.state {
	case closed:
		return ipu.ErrClosed
	case created:
		return ipu.ErrNotLoaded
	case lost:
		if e.failure == errHalted {
			return fmt.Errorf("%w: %w", ipu.ErrNotLoaded, errHalted)
		}
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
func (e *Engine) execute(ctx context.Context, p *program) error {
	r := &e.spare
	if slices.ContainsFunc(p.moves, func(i int) bool { _, is := e.streams[i].end.(*called); return is }) {
		if e.calling == nil {
			e.calling = &run{host: &hostContext{}}
		}
		r = e.calling
		r.host.begin(ctx)
		ctx = r.host
		e.current.Store(r)
	}
	r.begin(e, 0, ctx, p, "")
	e.mu.Lock()
	err := e.refusal() // Stop may have come since that was looked at, and will not come again
	if err == nil {
		e.active, e.direct = true, r
	}
	e.mu.Unlock()
	for k := 0; err == nil && k < len(p.moves); k++ {
		s := &e.streams[p.moves[k]]
		if berr := guarded(func() error { s.end.begin(r); return nil }); berr != nil {
			err = fmt.Errorf("stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, berr)
		}
	}
	if err != nil {
		r.unpin()
		if r.host != nil {
			r.host.end(err)
			e.current.Store(nil)
		}
		e.device.end()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.active = false
		return err
	}
	e.mu.Lock()
	r.send(C.PLR_RUN)
	e.mu.Unlock()
	r.wait()
	if err := r.over(); !errors.Is(err, errSkipped) {
		return err
	}
	return e.broken()
}

// broken returns what a run was skipped for: the error of one that was staged, which RunStaged returns too.
func (e *Engine) broken() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.slots {
		if r := &e.slots[i]; r.out && r.seat.ready() && !r.left {
			_ = e.settle(r)
		}
	}
	if e.failure != nil {
		return e.failure
	}
	return errSkipped
}

// fail ends the run because of a stream that Go calls. Inputs are zeros from now on.
func (r *run) fail(handle string, err error) {
	r.failed(handle, err)
	atomic.StoreUint32(r.seat.failed, 1)
	r.seat.kick() // who waits gives the program some time from now on
}

// failed notes the error of a stream, if it is the first.
func (r *run) failed(handle string, err error) {
	err = fmt.Errorf("stream %q: %w: %w", handle, ipu.ErrCallback, err)
	r.err.CompareAndSwap(nil, &err)
}

// end tells the run to end.
func (r *run) end(cause error) {
	if r.cause != nil {
		return
	}
	r.cause = cause
	if r.host != nil {
		r.host.end(cause)
	}
	atomic.StoreUint32(r.seat.failed, 1)
}

// wait waits until the command has ended, and does what has to be done for that.
func (r *run) wait() {
	s := r.seat
	if s.ready() || r.e.rests && r.host == nil && s.rest() {
		return
	}
	look := soonest
	defer s.soon.Stop()
	var late *time.Timer
	var lateFor uint32 // the number of the run that late gives its time to
	defer func() {
		if late != nil {
			late.Stop()
		}
	}()
	for listens := false; ; {
		publish(s.goWaits, C.PLR_AT_EVENT)
		switch ending := r.ending(); {
		case s.ready():
			return
		case r.cause == nil && r.stopped.Load():
			r.end(ipu.ErrStopped)
		case r.cause == nil && listens && r.ctx.Err() != nil:
			r.end(r.ctx.Err())
		case ending != 0 && ending != lateFor:
			lateFor = ending
			if late != nil {
				late.Stop()
			}
			late = time.AfterFunc(patience, func() {
				r.overdue.Store(ending)
				s.kick()
			})
		case ending != 0 && r.overdue.CompareAndSwap(ending, 0):
			if ending == r.number {
				r.forced = true
				r.blocked = r.callback()
			}
			r.e.halt()
		default:
			s.soon.Reset(look) // not before: it wakes only who has said that he waits
			s.park()
			listens = true
			look = min(2*look, latest)
		}
	}
}

// ending returns, if r has to end, the number of the run under way that has to: r, or one before it in the queue. It is 0 if that may go on, as r is not begun
// then.
func (r *run) ending() uint32 {
	if atomic.LoadUint32(r.seat.failed) == 0 {
		return 0
	}
	if r.p == nil { // nothing is beside it
		return r.number
	}
	slot := atomic.LoadUint32(r.e.mail.now)
	if slot >= C.PLR_SLOTS || atomic.LoadUint32(r.e.seats[slot].failed) == 0 {
		return 0
	}
	return uint32(r.e.seats[slot].c.number)
}

// halt ends what is under way by Engine::stop, after which nothing runs before the engine was loaded.
func (e *Engine) halt() {
	e.halted.Store(true)
	C.plr_engine_stop(e.c)
}

// callback returns the handle of a stream of the run whose host is being called; empty if there is none.
func (r *run) callback() string {
	if r.host != nil {
		for _, i := range r.p.moves {
			if s, is := r.e.streams[i].end.(*called); is && s.inside.Load() {
				return s.info.Handle
			}
		}
	}
	return ""
}

// outcome returns the error of a command that has ended: why it had to end, else that of a stream, else Poplar's.
func (r *run) outcome() error {
	if r.cause == nil && r.stopped.Load() { // it ended before it noticed
		r.cause = ipu.ErrStopped
	}
	var theirs error
	switch code := r.seat.c.result; {
	case code == C.PLR_SKIPPED && r.cause == nil:
		return errSkipped
	case code == C.PLR_SKIPPED:
		return r.cause
	case code != 0:
		var err C.plr_err
		theirs = failure(C.plr_engine_error(r.e.c, C.uint32_t(r.slot), &err), &err, r.doing)
		if r.e.halted.Load() && !r.forced { // it was begun just then
			theirs = errHalted
		}
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
		if r.blocked != "" {
			what = fmt.Sprintf("the callback of stream %q did not return, so that %s", r.blocked, what)
		}
		theirs = &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset,
			Message: fmt.Sprintf("%s did not end within %v of being told to, and was stopped: load the engine again", what, patience)}
	}
	switch {
	case r.cause == nil && streams == nil && theirs == nil && atomic.LoadUint32(r.seat.failed) != 0:
		return errStray
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

// errHalted: another run had to be ended by Engine::stop.
var errHalted = &ipu.Error{Kind: ipu.KindRecoverable, Recovery: ipu.IPUReset, Message: "a program did not end in time, and the engine was stopped: load it again"}

var (
	// errSkipped: a run was not begun, since one before it has failed.
	errSkipped = errors.New("a run before it has failed")
	// errStray: the engine moved a stream in a run that has no memory for it.
	errStray = errors.New("the program moves a stream that, by the model's metadata, belongs to other programs")
)

// over is the end of a run that has the engine: it tells the hosts, and returns what became of it.
func (r *run) over() (err error) {
	e := r.e
	defer func() { // whatever a host does
		if r.host != nil {
			r.host.end(context.Canceled)
			e.current.Store(nil)
			if r.forced || r.host.lent() { // somebody may have it for longer than it lasts
				e.calling = nil
			}
		}
		e.device.end()
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = e.settle(r)
		e.active = false
	}()
	for _, i := range r.p.moves {
		s := &e.streams[i]
		if ring, is := s.end.(*ringed); is {
			if err := guarded(func() error { return ring.moved(r) }); err != nil {
				r.failed(s.info.Handle, err)
			}
		}
	}
	e.mu.Lock()
	err = e.settle(r)
	e.mu.Unlock()
	if errors.Is(err, errSkipped) {
		return err
	}
	if r.host != nil {
		r.host.end(context.Canceled)
	}
	for _, i := range r.p.moves {
		s := &e.streams[i]
		if ferr := guarded(func() error { return s.end.finish(r, err == nil) }); ferr != nil && err == nil {
			err = fmt.Errorf("stream %q: %w: %w", s.info.Handle, ipu.ErrCallback, ferr)
		}
	}
	return err
}

// settle looks at the end of a command, once, and returns what became of it. The engine's mu is held.
func (e *Engine) settle(r *run) error {
	if !r.out {
		return r.result
	}
	r.out = false
	r.unpin()
	r.result = r.outcome()
	if code := r.seat.c.result; code != 0 && code != C.PLR_SKIPPED && r.epoch == e.epoch {
		e.epoch++ // runs that are begun from now on are not skipped because of it
	}
	switch {
	case r.result != nil && ofDevice(r.result):
		e.failure = r.result
	case e.halted.Load() && e.state == loaded:
		e.failure = errHalted
	default:
		return r.result
	}
	if e.state == loaded {
		e.state = lost
	}
	return r.result
}

// ofDevice reports whether err is the device's, which loses what was loaded.
func ofDevice(err error) bool {
	var device *ipu.Error
	return errors.As(err, &device)
}

// guarded calls a function of a host, which may panic.
func guarded(f func() error) (err error) {
	defer ipu.Guard(&err)
	return f()
}
