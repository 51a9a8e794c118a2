package session

import (
	"errors"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
)

// Observe tells the observer and the logger, if there are any, and returns how
// they panicked.
func (s *Session) Observe(e rt.Event) error {
	if !s.watched {
		return nil
	}
	e.Model, e.Replica = s.file, s.replica
	if s.Gate.Shut() { // whatever they do, Close goes on
		err := callerr.Sheltered(func() error { return s.tell(e) })
		if s.logger != nil {
			err = callerr.Join(err, callerr.Sheltered(func() error { return s.tellLogger(e) }))
		}
		return err
	}
	err := s.tell(e)
	if s.logger != nil {
		err = callerr.Join(err, s.tellLogger(e))
	}
	return err
}

func (s *Session) tell(e rt.Event) (err error) {
	defer ipu.Guard(&err)
	if s.observer != nil {
		s.observer(e)
	}
	return nil
}

func (s *Session) tellLogger(e rt.Event) (err error) {
	defer ipu.Guard(&err)
	s.log(e)
	return nil
}

// told tells of what came of doing something that err is the outcome of, and
// returns the outcome with the panic of an observer that was called.
func (s *Session) told(doing string, err error, e rt.Event) error {
	if !s.watched {
		return err
	}
	e.Err = err
	panicked := s.Observe(e)
	if panicked != nil && err == nil {
		return s.Errorf(doing, callerr.Also(nil, panicked))
	}
	return callerr.Also(err, panicked)
}

// astray keeps a panic that belongs to no call of the session, for Close to
// return; the first one tells enough.
func (s *Session) astray(panicked error) {
	if panicked == nil {
		return
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.stray == nil {
		s.stray = callerr.Also(nil, panicked)
	}
}

// Refused tells of a request that never got the engine, and returns why.
func (s *Session) Refused(err error) error {
	if !s.watched {
		return err
	}
	e := rt.Event{Kind: rt.EventRefused, Err: err}
	if d := (*rt.DeviceError)(nil); errors.As(err, &d) {
		e.Request = d.Request
	}
	return callerr.Also(err, s.Observe(e))
}
