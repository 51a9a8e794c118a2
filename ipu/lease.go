package ipu

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
)

// Lease is the right of one user, such as a session, to have its engine loaded
// on a device. A device has one holder at a time, whichever Manager it came
// from; who acquires it makes the holder leave first.
//
// A user makes one Lease per device it is bound to, acquires it before it
// loads its engine, and looks at Held before every run: after it lost the
// device it acquires it again and loads again. A device that is
// [DeviceInfo.Shared] has any number of holders, and nobody ever has to leave.
//
// The rules that keep users from waiting for each other in a circle: a user
// releases the lease it holds before it acquires one of another device, and
// does not acquire a lease inside a callback of a run of its own.
type Lease struct {
	device   Device
	handOver func(context.Context) error
	held     atomic.Bool // written under seats
}

// NewLease returns a lease of d, which is not acquired yet.
//
// handOver is called, in the goroutine of who wants the device, while this
// lease is held. It must wait for the run under way, do what has to be done
// before leaving (such as run save programs), call Release while still nobody
// else can start a run, and return. Its error fails the other's Acquire, and
// unless Release was called this lease stays held. ctx is that of the other's
// Acquire.
func NewLease(d Device, handOver func(ctx context.Context) error) *Lease {
	return &Lease{device: d, handOver: handOver}
}

// seat is a device's place for one holder. It exists while somebody holds or
// wants it.
type seat struct {
	turn   chan struct{} // held by who acquires; capacity 1
	holder *Lease        // guarded by seats
	wanted int           // who acquires or waits to; guarded by seats
}

// seats holds the seat of every device that is held or wanted.
var seats = struct {
	sync.Mutex
	of map[Device]*seat
}{of: map[Device]*seat{}}

// Device returns the device.
func (l *Lease) Device() Device { return l.device }

// Held reports whether the lease holds its device. It costs one atomic load.
func (l *Lease) Held() bool { return l.held.Load() }

// Acquire takes the device, after its holder, if another, has released it.
// fresh tells that the lease did not hold it before, so that whatever was on
// the device is gone and the engine must be loaded. If ctx ends while Acquire
// waits, it returns ctx's error and the lease is not held. One goroutine at a
// time may acquire one lease.
func (l *Lease) Acquire(ctx context.Context) (fresh bool, err error) {
	if l.held.Load() {
		return false, nil
	}
	switch {
	case l.device == nil:
		return false, fmt.Errorf("acquire a device: %w: it is nil", ErrNoDevice)
	case l.device.Info().Shared:
		seats.Lock()
		l.held.Store(true)
		seats.Unlock()
		return true, nil
	case !reflect.ValueOf(l.device).Comparable():
		return false, fmt.Errorf("acquire device %d: its type %T can't be compared; it should be a pointer", l.device.Info().ID, l.device)
	}
	s := l.want()
	defer l.leave(s)
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	seats.Lock()
	old := s.holder
	seats.Unlock()
	if old != nil { // not l: who holds a seat has returned above
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := old.handOver(ctx); err != nil {
			info := l.device.Info()
			return false, fmt.Errorf("acquire device %d of back end %q: its holder did not hand it over: %w", info.ID, info.Backend, err)
		}
		old.Release()
	}
	seats.Lock()
	s.holder = l
	l.held.Store(true)
	seats.Unlock()
	return true, nil
}

// want returns the device's seat, which stays until leave.
func (l *Lease) want() *seat {
	seats.Lock()
	defer seats.Unlock()
	s := seats.of[l.device]
	if s == nil {
		s = &seat{turn: make(chan struct{}, 1)}
		seats.of[l.device] = s
	}
	s.wanted++
	return s
}

func (l *Lease) leave(s *seat) {
	seats.Lock()
	defer seats.Unlock()
	s.wanted--
	l.drop(s)
}

// drop removes a seat that nobody holds or wants.
func (l *Lease) drop(s *seat) {
	if s.holder == nil && s.wanted == 0 {
		delete(seats.of, l.device)
	}
}

// Release leaves the device to whoever wants it. Releasing a lease that is not
// held does nothing. It never waits, and may be called by handOver.
func (l *Lease) Release() {
	seats.Lock()
	defer seats.Unlock()
	l.held.Store(false)
	if s := seats.of[l.device]; s != nil && s.holder == l {
		s.holder = nil
		l.drop(s)
	}
}
