package rt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu"
)

// DeviceError is why a call failed that met a device failure: the request during
// which the device failed, those that waited in the queue then, and, unless the
// session resets the device by itself, every later one until
// [Session.Reload] or [Session.Bind].
type DeviceError struct {
	Request   uint64       // number of the failed request in the session, from 1; 0 if it was another call, such as Save
	Cause     uint64       // number of the request during which the device failed; 0 if it was another program
	Replica   int          // of a runner
	Recovery  ipu.Recovery // what the device says would repair it
	AutoReset bool         // the session resets the device before its next request
	Err       error        // what the device said
}

// Error says which request failed because of which, and what to do.
func (e *DeviceError) Error() string {
	var b strings.Builder
	if e.Request != 0 {
		fmt.Fprintf(&b, "request %d: ", e.Request)
	}
	b.WriteString("the device failed")
	if e.Cause != e.Request && e.Cause != 0 {
		fmt.Fprintf(&b, " during request %d", e.Cause)
	}
	fmt.Fprintf(&b, ": %v; ", e.Err)
	switch {
	case e.AutoReset:
		b.WriteString("the next request resets it")
	case ipu.Reloadable(e.Err):
		b.WriteString("Reload resets it, and the option AutoReset does so by itself")
	case e.Recovery != ipu.RecoveryNone:
		fmt.Fprintf(&b, "it needs %v before Reload", e.Recovery)
	default:
		b.WriteString("it needs repair before Reload")
	}
	return b.String()
}

// Is reports whether target is [ErrDevice].
func (e *DeviceError) Is(target error) bool { return target == ErrDevice }

// Unwrap returns what the device said.
func (e *DeviceError) Unwrap() error { return e.Err }

// resetError is why a device that failed could not be reset. Its text leaves out
// how the device failed, which may well be the same: the request that it failed
// said so.
type resetError struct{ failure, err error }

func (e *resetError) Error() string {
	return "reset the device after it failed: " + e.err.Error()
}

func (e *resetError) Unwrap() []error { return []error{e.failure, e.err} }

// failure is what the device said when it failed, and during which request.
type failure struct {
	err     error
	request uint64
}

// fail notes that the device failed, if err says so, and fails the requests
// that wait, for who holds the gate. A device that any number of sessions share
// has no state that one of them could spoil: there an error concerns its
// request alone.
func (s *Session) fail(request uint64, err error) error {
	var device *ipu.Error
	if !errors.As(err, &device) || s.device.Info().Shared {
		return err
	}
	s.failed.Store(&failure{err: err, request: request})
	s.loaded, s.ready = false, false
	panicked := s.observe(Event{Kind: EventFailed, Request: request, Err: err})
	n := request
	if n == 0 {
		n = s.gate.requests()
	}
	var waiting []Event
	s.gate.turnAway(func(slot int) error {
		n++
		s.count.errors.Add(1)
		err := s.errorf("run", s.deviceError(n))
		if slot >= 0 {
			waiting = append(waiting, Event{Kind: EventRefused, Request: n, Err: err})
			s.lane.queue.complete(slot, err)
		}
		return err
	})
	for _, e := range waiting { // callers tell of themselves
		s.astray(s.observe(e))
	}
	return also(s.deviceError(request), panicked)
}

// deviceError is what a request fails with because the device has failed.
func (s *Session) deviceError(request uint64) error {
	f := s.failed.Load()
	e := &DeviceError{Request: request, Cause: f.request, Replica: s.replica, Err: f.err,
		AutoReset: s.autoReset && ipu.Reloadable(f.err)}
	var device *ipu.Error
	if errors.As(f.err, &device) {
		e.Recovery = device.Recovery
	}
	return e
}

// repair resets a device that failed, if that was asked for and can help.
func (s *Session) repair(ctx context.Context, request uint64) error {
	f := s.failed.Load()
	if f == nil {
		return nil
	}
	if !s.autoReset || !ipu.Reloadable(f.err) {
		return s.deviceError(request)
	}
	s.placed = false
	err := s.take(ctx)
	panicked := s.observe(Event{Kind: EventReset, Err: err})
	if err != nil {
		err = &resetError{failure: f.err, err: err}
	}
	return also(err, panicked)
}
