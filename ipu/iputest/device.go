package iputest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/popefgen/popefgen/ipu"
)

// unit is a device itself. What changes is guarded by System.mu.
type unit struct {
	sys       *System
	info      ipu.DeviceInfo
	simulated bool

	holder  *Device // that is attached
	outside bool    // somebody outside the test holds it
	until   time.Time
	broken  *ipu.Error // what must be repaired
	loaded  *Engine
	running *Engine
}

// Device is one [ipu.Device] of a [System]. Each enumeration gives new ones
// for the same devices, of which one at a time can be attached.
type Device struct {
	unit    *unit
	options []ipu.Option
}

// Info describes the device.
func (d *Device) Info() ipu.DeviceInfo { return d.unit.info }

// Options returns the device options that the device was enumerated with.
func (d *Device) Options() []ipu.Option { return slices.Clone(d.options) }

// Attach attaches to the device unless another Device, or somebody outside, holds it.
func (d *Device) Attach() (bool, error) {
	u, s := d.unit, d.unit.sys
	event := Event{Device: u.info.ID, Program: -1}
	if err := s.strike(context.Background(), atAttach, u.info.ID, event, fmt.Sprintf("attach device %d", u.info.ID)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	event.Kind = EventAttach
	if u.holder == d {
		return true, nil
	}
	if u.taken() {
		event.Detail = "busy"
		s.record(event)
		return false, nil
	}
	u.holder = d
	s.record(event)
	return true, nil
}

// taken reports whether somebody has the device.
func (u *unit) taken() bool {
	return u.holder != nil || u.outside || u.sys.clock.Now().Before(u.until)
}

// Detach releases the device, and what was loaded is gone. The error wraps
// [ipu.ErrBusy] while a program runs on it.
func (d *Device) Detach() error {
	u, s := d.unit, d.unit.sys
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.holder != d {
		return nil
	}
	if u.running != nil {
		return fmt.Errorf("detach device %d: %w: %s runs a program on it", u.info.ID, ipu.ErrBusy, u.running.label)
	}
	u.holder, u.loaded = nil, nil
	s.record(Event{Kind: EventDetach, Device: u.info.ID, Program: -1})
	return nil
}

// Device returns a new Device for the device with that id, not attached. It
// panics if there is none.
func (s *System) Device(id int) *Device { return &Device{unit: s.unit(id)} }

func (s *System) unit(id int) *unit {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.units {
		if u.info.ID == id {
			return u
		}
	}
	panic(fmt.Sprintf("iputest: there is no device %d", id))
}

// Occupy makes a device busy, as if another process had attached it, until
// Vacate.
func (s *System) Occupy(id int) { s.setOutside(id, true, time.Time{}) }

// OccupyFor makes a device busy until the system's clock has advanced by d.
func (s *System) OccupyFor(id int, d time.Duration) {
	s.setOutside(id, false, s.clock.Now().Add(d))
}

// Vacate ends what Occupy and OccupyFor did.
func (s *System) Vacate(id int) { s.setOutside(id, false, time.Time{}) }

func (s *System) setOutside(id int, outside bool, until time.Time) {
	u := s.unit(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	u.outside, u.until = outside, until
}

// Attached reports whether a Device for the device with that id is attached.
func (s *System) Attached(id int) bool {
	u := s.unit(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return u.holder != nil
}

// Broken returns the error that keeps engines off the device with that id
// until it is repaired, or nil.
func (s *System) Broken(id int) error {
	u := s.unit(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.broken == nil {
		return nil
	}
	return u.broken
}

// Repair repairs a device as its last error asks for, whatever it is.
func (s *System) Repair(id int) {
	u := s.unit(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	u.broken = nil
}

// suffer gives an error of the device its effects: what was loaded is lost,
// and if loading again is no remedy the device is broken. It reports whether
// err is such an error. The caller holds System.mu.
func (u *unit) suffer(err error) bool {
	var e *ipu.Error
	if !errors.As(err, &e) {
		return false
	}
	u.loaded = nil
	if errors.Is(e, ipu.ErrSystem) && !ipu.Reloadable(e) {
		u.broken = e
	}
	return true
}
