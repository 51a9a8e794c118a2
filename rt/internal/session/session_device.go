package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
)

// Bind puts the session on a device: it leaves the one that it is on, if any,
// attaches d, makes another session that is on it leave, and loads the
// executable, also if d is the device that the session is on already. The load
// programs run again before the next run. The device stays the caller's, who
// detaches it.
//
// With [rt.SaveOnUnbind], leaving runs the save programs; if they fail the session
// stays where it is. If loading fails the session is unbound.
func (s *Session) Bind(ctx context.Context, d ipu.Device) error {
	const doing = "bind"
	if d == nil {
		return s.Errorf(doing, fmt.Errorf("%w: nil device", rt.ErrOption))
	}
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	if err := s.saveIfAsked(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	if s.device != d {
		if err := s.leave(); err != nil {
			return s.Errorf(doing, err)
		}
		s.setDevice(d)
		s.given = true
	}
	if err := s.place(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	return nil
}

// Unload takes the session off its device, which it remembers: see
// [Session.Reload]. It fails with [rt.ErrUnbound] if the session is on none. With
// [rt.SaveOnUnbind] the save programs run first; if they fail the session stays
// where it is. A device that the session found for itself is detached.
func (s *Session) Unload(ctx context.Context) error {
	const doing = "unload"
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	if !s.bound.Load() {
		return s.Errorf(doing, rt.ErrUnbound)
	}
	if err := s.saveIfAsked(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	if err := s.leave(); err != nil {
		return s.Errorf(doing, err)
	}
	return nil
}

// Reload puts the executable onto the remembered device again: what was on the
// device is lost, and the load programs run before the next run. It is how a
// session that was stopped or unloaded, or whose program failed for good, runs
// again. Without a device it fails with [rt.ErrUnbound].
func (s *Session) Reload(ctx context.Context) error {
	const doing = "reload"
	if err := s.Begin(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	defer s.Gate.Release(0)
	if s.device == nil {
		return s.Errorf(doing, rt.ErrUnbound)
	}
	if err := s.place(ctx); err != nil {
		return s.Errorf(doing, err)
	}
	return nil
}

// Stop makes a run that is under way, if any, fail with [rt.ErrStopped], and
// every later one until [Session.Reload]. It may be called from any goroutine
// at any time, also while Close waits for a run that is to be saved. Stopping a
// session that is stopped fails with [rt.ErrStopped], one that is on no device
// with [rt.ErrUnbound].
func (s *Session) Stop() error {
	select {
	case <-s.Closed:
		return s.Errorf("stop", rt.ErrClosed)
	default:
	}
	switch {
	case !s.bound.Load():
		return s.Errorf("stop", rt.ErrUnbound)
	case !s.Halted.CompareAndSwap(false, true):
		return s.Errorf("stop", rt.ErrStopped)
	}
	err := callerr.Join(s.stopEngine(), s.call(&s.onStop))
	err = callerr.Also(err, s.Observe(rt.Event{Kind: rt.EventStopped, Err: err}))
	if err != nil {
		return s.Errorf("stop", err)
	}
	return nil
}

// Stopped reports whether the session was stopped and not reloaded since.
func (s *Session) Stopped() bool { return s.Halted.Load() }

// Bound reports whether the session is on a device. It stays bound while
// another session uses that device, and takes it back for its next run.
func (s *Session) Bound() bool { return s.bound.Load() }

// Active reports whether the session holds its device now: it is bound, and no
// other session has taken the device since. Of a device that any number of
// sessions share nobody is ever displaced.
func (s *Session) Active() bool {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.bound.Load() && s.lease.Held()
}

// Config returns every option of the session, as it was given or by default.
func (s *Session) Config() rt.Config { return CloneConfig(&s.config) }

// setDevice remembers the device to be placed on.
func (s *Session) setDevice(d ipu.Device) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.device, s.lease = d, ipu.NewLease(d, s.handOver)
}

// place attaches the remembered device, makes whoever is on it leave, and
// loads the executable, for who holds the gate.
func (s *Session) place(ctx context.Context) error {
	err := s.tryPlace(ctx)
	return callerr.Also(err, s.Observe(rt.Event{Kind: rt.EventBound, Err: err}))
}

func (s *Session) tryPlace(ctx context.Context) error {
	s.bound.Store(false)
	s.placed, s.loaded, s.Ready = false, false, false
	if err := s.Target().Check(s.device.Info()); err != nil {
		return err
	}
	ok, err := s.device.Attach()
	if err == nil && !ok {
		err = fmt.Errorf("%w: %s is held by somebody else", ipu.ErrNoDevice, DescribeDevice(s.device))
	}
	if err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		s.lease.Release()
		return err
	}
	s.Halted.Store(false)
	s.bound.Store(true)
	return nil
}

// take makes whoever is on the device leave and loads the executable. Close
// ends its waiting.
func (s *Session) take(ctx context.Context) (err error) {
	defer ipu.Guard(&err)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life, cancel)()
	if _, err := s.lease.Acquire(ctx); err != nil {
		return s.Cause(err)
	}
	if err := s.engine.Load(ctx, s.device); err != nil {
		return s.Cause(err)
	}
	for _, f := range s.feeds {
		f.Reload()
	}
	s.Failed.Store(nil)
	s.placed = true
	return nil
}

// Activate makes the session the one that its device works for, or says why
// that is impossible: for the request of that number or, if it is 0, for none.
func (s *Session) Activate(ctx context.Context, request uint64) error {
	switch {
	case !s.bound.Load():
		return rt.ErrUnbound
	case s.Halted.Load():
		return rt.ErrStopped
	}
	if err := s.repair(ctx, request); err != nil || s.placed {
		return err
	}
	err := s.take(ctx)
	panicked := s.Observe(rt.Event{Kind: rt.EventTookBack, Err: err})
	if err != nil {
		err = fmt.Errorf("take the device back from another session: %w", err)
	}
	return callerr.Also(err, panicked)
}

// handOver leaves the device to another session, in whose goroutine it runs.
// The session stays bound, and takes the device back for its next run.
func (s *Session) handOver(ctx context.Context) error {
	if err := s.Gate.Visit(ctx, line.Stayer); err != nil {
		if !errors.Is(err, rt.ErrClosed) {
			return err
		}
		select {
		case <-s.Closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer s.Gate.Depart(0)
	err := s.saveIfAsked(ctx)
	if err == nil {
		s.placed, s.loaded, s.Ready = false, false, false
		s.lease.Release()
	}
	s.astray(s.Observe(rt.Event{Kind: rt.EventHandedOver, Err: err})) // no business of the other session
	return err
}

// saveIfAsked runs the save programs before the session leaves its device, if
// that was asked for and there is something to save.
func (s *Session) saveIfAsked(ctx context.Context) error {
	if !s.saving || !s.placed || !s.loaded || s.Halted.Load() || len(s.save) == 0 {
		return nil
	}
	return s.RunSave(ctx)
}

// leave gives up the device, which stays remembered.
func (s *Session) leave() error {
	was := s.bound.Swap(false)
	s.placed, s.loaded, s.Ready = false, false, false
	if s.lease != nil {
		s.lease.Release()
	}
	var err error
	if s.device != nil && !s.given {
		err = callerr.Sheltered(s.device.Detach)
	}
	if was {
		err = callerr.Also(err, s.Observe(rt.Event{Kind: rt.EventUnbound, Err: err}))
	}
	return err
}

// call calls functions that somebody left, all of them.
func (s *Session) call(list *[]func() error) error {
	s.Mu.Lock()
	fs := *list
	s.Mu.Unlock()
	var errs []error
	for _, f := range fs {
		errs = append(errs, callerr.Sheltered(f))
	}
	return callerr.Join(errs...)
}

// WhenStopped makes Stop and Close call f, which must not block: what the
// session's streams wait for ends then.
func (s *Session) WhenStopped(f func() error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.onStop = append(s.onStop, f)
}

// WhenClosed makes Close call f, once nothing runs any more.
func (s *Session) WhenClosed(f func() error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.onClose = append(s.onClose, f)
}
