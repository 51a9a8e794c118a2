package session

import (
	"context"
	"errors"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
)

// resetError is why a device that failed could not be reset. Its text leaves out
// how the device failed, which may well be the same: the request that it failed
// said so.
type resetError struct{ failure, err error }

func (e *resetError) Error() string {
	return "reset the device after it failed: " + e.err.Error()
}

func (e *resetError) Unwrap() []error { return []error{e.failure, e.err} }

// Failure is what the device said when it failed, and during which request.
type Failure struct {
	Err     error
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
	s.Failed.Store(&Failure{Err: err, request: request})
	s.loaded, s.Ready = false, false
	panicked := s.Observe(rt.Event{Kind: rt.EventFailed, Request: request, Err: err})
	n := request
	if n == 0 {
		n = s.Gate.Requests()
	}
	var waiting []rt.Event
	s.Gate.TurnAway(func(slot int) error {
		n++
		s.Count.errors.Add(1)
		err := s.Errorf("run", s.deviceError(n))
		if slot >= 0 {
			waiting = append(waiting, rt.Event{Kind: rt.EventRefused, Request: n, Err: err})
			s.Lane.Queue.Complete(slot, err)
		}
		return err
	})
	for _, e := range waiting { // callers tell of themselves
		s.astray(s.Observe(e))
	}
	return callerr.Also(s.deviceError(request), panicked)
}

// deviceError is what a request fails with because the device has failed.
func (s *Session) deviceError(request uint64) error {
	f := s.Failed.Load()
	e := &rt.DeviceError{Request: request, Cause: f.request, Replica: s.replica, Err: f.Err,
		AutoReset: s.AutoReset && ipu.Reloadable(f.Err)}
	var device *ipu.Error
	if errors.As(f.Err, &device) {
		e.Recovery = device.Recovery
	}
	return e
}

// repair resets a device that failed, if that was asked for and can help.
func (s *Session) repair(ctx context.Context, request uint64) error {
	f := s.Failed.Load()
	if f == nil {
		return nil
	}
	if !s.AutoReset || !ipu.Reloadable(f.Err) {
		return s.deviceError(request)
	}
	s.placed = false
	err := s.take(ctx)
	panicked := s.Observe(rt.Event{Kind: rt.EventReset, Err: err})
	if err != nil {
		err = &resetError{failure: f.Err, err: err}
	}
	return callerr.Also(err, panicked)
}
