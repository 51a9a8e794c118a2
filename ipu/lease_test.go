package ipu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// user is a party that uses a device as a session does: it takes its gate for
// every run, and acquires and loads when it lost the device.
type user struct {
	name  string
	gate  sync.Mutex
	lease *Lease
	log   func(format string, args ...any)
	err   error // of releasing the device
}

func newUser(name string, d Device, log func(string, ...any)) *user {
	u := &user{name: name, log: log}
	u.lease = NewLease(d, func(context.Context) error {
		u.gate.Lock()
		defer u.gate.Unlock()
		u.log("%s saves", u.name)
		if u.err == nil {
			u.lease.Release()
		}
		return u.err
	})
	return u
}

func (u *user) run(ctx context.Context) error {
	u.gate.Lock()
	defer u.gate.Unlock()
	if !u.lease.Held() {
		fresh, err := u.lease.Acquire(ctx)
		if err != nil {
			return err
		}
		if fresh {
			u.log("%s loads", u.name)
		}
	}
	u.log("%s runs", u.name)
	return nil
}

// Feature 13.
func TestOneHolderPerDevice(t *testing.T) {
	ctx := context.Background()
	var log []string
	logf := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	d := ipuDevice(0, 1, 1)
	a, b := newUser("a", d, logf), newUser("b", d, logf)
	require.False(t, a.lease.Held())
	require.Same(t, d, a.lease.Device())
	for _, u := range []*user{a, a, b, a, a} {
		require.NoError(t, u.run(ctx))
		require.True(t, u.lease.Held())
	}
	require.False(t, b.lease.Held())
	require.Equal(t, []string{
		"a loads", "a runs", "a runs",
		"a saves", "b loads", "b runs",
		"b saves", "a loads", "a runs", "a runs",
	}, log)
	fresh, err := a.lease.Acquire(ctx)
	require.NoError(t, err)
	require.False(t, fresh, "it holds the device")

	// Who left is not asked to.
	log = nil
	a.lease.Release()
	a.lease.Release()
	b.lease.Release()
	require.NoError(t, b.run(ctx))
	require.Equal(t, []string{"b loads", "b runs"}, log)

	// A holder that does not leave stays the holder.
	b.err = errors.New("save failed")
	require.EqualError(t, a.run(ctx), `acquire device 0 of back end "poplar": its holder did not hand it over: save failed`)
	require.True(t, b.lease.Held())
	require.False(t, a.lease.Held())

	// Another device is another matter.
	other := newUser("other", ipuDevice(0, 1, 1), logf)
	require.NoError(t, other.run(ctx))
	require.True(t, b.lease.Held())

	b.lease.Release()
	other.lease.Release()
	require.Empty(t, seats.of, "nothing is kept of devices that nobody holds")
}

func TestLeaseSharedDevice(t *testing.T) {
	d := &fakeDevice{info: DeviceInfo{Kind: "cpu", Shared: true}}
	never := func(context.Context) error { panic("a shared device is not released for another") }
	a, b := NewLease(d, never), NewLease(d, never)
	for _, l := range []*Lease{a, b} {
		fresh, err := l.Acquire(context.Background())
		require.NoError(t, err)
		require.True(t, fresh)
	}
	require.True(t, a.Held() && b.Held())
	a.Release()
	require.False(t, a.Held())
	require.True(t, b.Held())
	require.Empty(t, seats.of)
}

type sliceDevice struct {
	fakeDevice
	ids []int
}

func (d sliceDevice) Info() DeviceInfo      { return d.info }
func (d sliceDevice) Attach() (bool, error) { return true, nil }
func (d sliceDevice) Detach() error         { return nil }

func TestLeaseBadDevice(t *testing.T) {
	_, err := NewLease(nil, nil).Acquire(context.Background())
	require.ErrorIs(t, err, ErrNoDevice)
	_, err = NewLease(sliceDevice{ids: []int{1}}, nil).Acquire(context.Background())
	require.ErrorContains(t, err, "can't be compared")
}

func TestLeaseCancelled(t *testing.T) {
	d := ipuDevice(0, 1, 1)
	ctx, cancel := context.WithCancel(context.Background())
	asked := make(chan struct{})
	holder := NewLease(d, func(ctx context.Context) error {
		close(asked)
		<-ctx.Done() // a run that does not end
		return ctx.Err()
	})
	_, err := holder.Acquire(ctx)
	require.NoError(t, err)

	first, second := make(chan error), make(chan error)
	go func() {
		_, err := NewLease(d, nil).Acquire(ctx)
		first <- err
	}()
	<-asked
	short, stop := context.WithTimeout(ctx, time.Millisecond)
	defer stop()
	go func() {
		_, err := NewLease(d, nil).Acquire(short)
		second <- err
	}()
	require.ErrorIs(t, <-second, context.DeadlineExceeded, "while another waits for the holder")
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	require.True(t, holder.Held())
	_, err = NewLease(d, nil).Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled, "the holder is not even asked")
	holder.Release()
	require.Empty(t, seats.of)
}

func TestLeaseConcurrently(t *testing.T) {
	d := ipuDevice(0, 1, 1)
	var device sync.Mutex // held by who uses the device
	var done sync.WaitGroup
	users := make([]*user, 4)
	for i := range users {
		users[i] = newUser(fmt.Sprint(i), d, nil)
		users[i].log = func(string, ...any) {
			if !device.TryLock() {
				t.Errorf("user %d uses the device while another does", i)
				return
			}
			runtime.Gosched()
			device.Unlock()
		}
	}
	for _, u := range users {
		for range 2 { // goroutines for each user
			done.Go(func() {
				for range 200 {
					if err := u.run(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	done.Wait()
	for _, u := range users {
		u.lease.Release()
	}
	require.Empty(t, seats.of)
}
