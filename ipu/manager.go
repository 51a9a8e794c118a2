package ipu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// WaitStrategy is what to do while every device that fits is taken.
type WaitStrategy uint8

// The wait strategies.
const (
	NoWait          WaitStrategy = iota // one attempt
	WaitWithTimeout                     // attempt, sleep and repeat until the time is spent
	WaitForever                         // repeat until the context ends
)

// DefaultSleep is the time between two attempts unless [Wait.Sleep] says
// another.
const DefaultSleep = 15 * time.Second

// Wait says how long to wait for a device. The zero Wait is one attempt.
type Wait struct {
	Strategy WaitStrategy
	Timeout  time.Duration // for WaitWithTimeout; the last attempt is when it is spent
	Sleep    time.Duration // between attempts; 0 is [DefaultSleep]
}

// WaitFor waits up to timeout, with the default time between attempts.
func WaitFor(timeout time.Duration) Wait {
	return Wait{Strategy: WaitWithTimeout, Timeout: timeout}
}

// Request says which device is wanted. The zero Request is any device.
type Request struct {
	Backend       string   // name of the back end; empty for any
	Kind          string   // see [DeviceInfo.Kind]; empty for any
	NumIPUs       int      // IPUs in the group; 0 for any number; a CPU stands for any number of IPUs
	Version       int      // IPU hardware version; 0 for any; a device that does not tell its version fits
	ID            *int     // this device and no other; needs Backend if there are several
	RemoteBuffers bool     // it must support remote buffers
	Options       []Option // device options in the back end's own words
	Wait          Wait
}

// Specific returns the same request for the device with that id and no other.
func (r Request) Specific(id int) Request {
	r.ID = &id
	return r
}

// String returns the request as in `back end "poplar", 4 IPUs, remote buffers`.
func (r Request) String() string {
	var parts []string
	if r.Backend != "" {
		parts = append(parts, fmt.Sprintf("back end %q", r.Backend))
	}
	if r.Kind != "" {
		parts = append(parts, fmt.Sprintf("kind %q", r.Kind))
	}
	if r.ID != nil {
		parts = append(parts, fmt.Sprintf("id %d", *r.ID))
	}
	if r.NumIPUs != 0 {
		parts = append(parts, fmt.Sprintf("%d IPUs", r.NumIPUs))
	}
	if r.Version != 0 {
		parts = append(parts, fmt.Sprintf("version %d", r.Version))
	}
	if r.RemoteBuffers {
		parts = append(parts, "remote buffers")
	}
	if len(parts) == 0 {
		return "any device"
	}
	return strings.Join(parts, ", ")
}

// Fits reports whether a device is what the request asks for, attached or not.
func (r Request) Fits(d DeviceInfo) bool {
	return (r.Backend == "" || d.Backend == r.Backend) &&
		(r.Kind == "" || d.Kind == r.Kind) &&
		(r.ID == nil || d.ID == *r.ID) &&
		(r.Version == 0 || d.Version == r.Version || d.Version <= 0) &&
		(r.NumIPUs == 0 || d.NumIPUs == r.NumIPUs || d.Kind == "cpu") &&
		(!r.RemoteBuffers || d.RemoteBuffers)
}

func (r Request) check() error {
	switch {
	case r.Version < 0:
		return fmt.Errorf("it asks for version %d, want 2 or 21, or 0 for any", r.Version)
	case r.NumIPUs < 0:
		return fmt.Errorf("it asks for %d IPUs, want 1 or more, or 0 for any number", r.NumIPUs)
	case r.ID != nil && *r.ID < 0:
		return fmt.Errorf("it asks for id %d, want 0 or more", *r.ID)
	case r.Wait.Strategy > WaitForever:
		return fmt.Errorf("there is no wait strategy %d", r.Wait.Strategy)
	case r.Wait.Timeout < 0 || r.Wait.Sleep < 0:
		return fmt.Errorf("it waits %v in steps of %v, want durations of 0 or more", r.Wait.Timeout, r.Wait.Sleep)
	}
	return nil
}

// DeviceLister is a [Backend] that takes device options. A request with
// options finds no device in other back ends.
type DeviceLister interface {
	Backend
	// DevicesWith is like Devices, for devices with the given options, which
	// are in the back end's own words. An option that it does not know is an
	// error that wraps [ErrInvalidOption].
	DevicesWith(ctx context.Context, options []Option) ([]Device, error)
}

// Clock is the time, and what sleeps by it.
type Clock interface {
	Now() time.Time
	// Sleep returns when d has passed, or ctx's error as soon as it ends.
	Sleep(ctx context.Context, d time.Duration) error
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Manager finds and attaches devices of the registered back ends. It owns none
// of them: a device outlives the manager that found it. The zero Manager is
// ready for use, by any number of goroutines.
type Manager struct {
	Backends []Backend // instead of the registered ones, if not nil
	Clock    Clock     // instead of the system's, if not nil
}

// all returns the back ends by name.
func (m *Manager) all() []Backend {
	if m.Backends != nil {
		return m.Backends
	}
	return registered.all()
}

// named returns the back ends that a request allows.
func (m *Manager) named(name string) ([]Backend, error) {
	all := m.all()
	if name == "" {
		if len(all) == 0 {
			return nil, fmt.Errorf("%w: no back end is registered; %s", ErrNoDevice, providers["cpu"])
		}
		return all, nil
	}
	if at := slices.IndexFunc(all, func(b Backend) bool { return b.Name() == name }); at >= 0 {
		return all[at : at+1], nil
	}
	return nil, unknownBackend(name, all)
}

// Devices returns every device of every back end, attached or not, in the
// order of the back ends' names.
func (m *Manager) Devices(ctx context.Context) ([]Device, error) {
	return devices(ctx, m.all(), nil)
}

// devices enumerates the devices of some back ends.
func devices(ctx context.Context, backends []Backend, options []Option) ([]Device, error) {
	var all []Device
	for _, b := range backends {
		var found []Device
		var err error
		if l, ok := b.(DeviceLister); ok && len(options) > 0 {
			found, err = l.DevicesWith(ctx, options)
		} else if len(options) == 0 {
			found, err = b.Devices(ctx)
		}
		if err != nil {
			return nil, fmt.Errorf("enumerate devices of back end %q: %w", b.Name(), err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// HardwareVersion returns the version of the IPUs of the registered back ends:
// 2 (GC200, Bow), 21 (C600), -1 for IPUs that don't tell, and 0 if there are
// none. Back ends that can't enumerate their devices have none.
func (m *Manager) HardwareVersion(ctx context.Context) int {
	version := 0
	for _, b := range m.all() {
		found, err := b.Devices(ctx)
		if err != nil {
			continue
		}
		for _, d := range found {
			info := d.Info()
			switch {
			case info.Kind != "ipu":
			case info.Version > 0:
				return info.Version
			default:
				version = -1
			}
		}
	}
	return version
}

// Get finds a device that fits r and attaches it. If all that fit are taken it
// waits as r.Wait says. The error wraps [ErrNoDevice] if none fits, at once, or
// if none became free in time, and ctx.Err() if ctx ended first. A device that
// can't be attached for another reason is passed over for the next that fits;
// its error is part of Get's.
func (m *Manager) Get(ctx context.Context, r Request) (Device, error) {
	d, err := m.get(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("get a device (%v): %w", r, err)
	}
	return d, nil
}

// TryGet is like Get, but returns nil without an error where Get fails for
// want of a device.
func (m *Manager) TryGet(ctx context.Context, r Request) (Device, error) {
	d, err := m.Get(ctx, r)
	if errors.Is(err, ErrNoDevice) {
		return nil, nil
	}
	return d, err
}

func (m *Manager) get(ctx context.Context, r Request) (Device, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	backends, err := m.named(r.Backend)
	if err != nil {
		return nil, err
	}
	if r.ID != nil && len(backends) > 1 {
		return nil, fmt.Errorf("an id needs the name of its back end, because there are %d", len(backends))
	}
	clock := m.Clock
	if clock == nil {
		clock = systemClock{}
	}
	sleep := r.Wait.Sleep
	if sleep == 0 {
		sleep = DefaultSleep
	}
	end := clock.Now().Add(r.Wait.Timeout)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d, busy, err := attempt(ctx, backends, r)
		if !busy {
			return d, err
		}
		next := sleep
		if r.Wait.Strategy != WaitForever {
			left := end.Sub(clock.Now())
			if r.Wait.Strategy == NoWait || left <= 0 {
				return nil, err
			}
			next = min(next, left)
		}
		if err := clock.Sleep(ctx, next); err != nil {
			return nil, err
		}
	}
}

// attempt attaches the first device that fits and is free. If there is none,
// busy tells whether waiting can help.
func attempt(ctx context.Context, backends []Backend, r Request) (d Device, busy bool, err error) {
	all, err := devices(ctx, backends, r.Options)
	if err != nil {
		return nil, false, err
	}
	taken := 0
	var failed []error
	for _, d := range all {
		info := d.Info()
		if !r.Fits(info) {
			continue
		}
		ok, err := d.Attach()
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("attach device %d of back end %q: %w", info.ID, info.Backend, err))
		case ok:
			return d, false, nil
		default:
			taken++
		}
	}
	switch {
	case taken > 0:
		err = fmt.Errorf("%w: of %s, %d fit and are taken", ErrNoDevice, listDevices(all), taken)
	case len(failed) > 0:
		return nil, false, errors.Join(failed...)
	default:
		err = fmt.Errorf("%w: of %s, none fits", ErrNoDevice, listDevices(all))
	}
	return nil, taken > 0, errors.Join(append([]error{err}, failed...)...)
}

// listDevices counts devices and names the first few.
func listDevices(all []Device) string {
	const most = 8
	var b strings.Builder
	fmt.Fprintf(&b, "%d devices", len(all))
	for i, d := range all {
		info := d.Info()
		switch i {
		case 0:
			b.WriteString(" (")
		case most:
			b.WriteString("; …)")
			return b.String()
		default:
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "%s %d: %s, %d IPUs", info.Backend, info.ID, info.Kind, info.NumIPUs)
		if info.RemoteBuffers {
			b.WriteString(", remote buffers")
		}
	}
	if len(all) > 0 {
		b.WriteByte(')')
	}
	return b.String()
}
