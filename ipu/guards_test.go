package ipu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOptionsNeedALister asks for a device with options where one back end takes
// none: none of its devices may stand for one with options.
func TestOptionsNeedALister(t *testing.T) {
	m := &Manager{Backends: []Backend{&fakeBackend{name: "plain", devices: []*fakeDevice{ipuDevice(0, 1, 1)}}}}
	_, err := m.Get(t.Context(), Request{Options: []Option{{"a", "b"}}})
	require.ErrorIs(t, err, ErrNoDevice)
	_, err = m.Get(t.Context(), Request{})
	require.NoError(t, err)
}

// TestHardwareVersionOfTheFirst has IPUs of two versions, and one that does not
// tell its version between them.
func TestHardwareVersionOfTheFirst(t *testing.T) {
	first, silent, last := ipuDevice(0, 1, 1), ipuDevice(1, 1, 1), ipuDevice(2, 1, 1)
	first.info.Version, silent.info.Version, last.info.Version = 21, -1, 2
	m, _ := manager(first, silent, last)
	require.Equal(t, 21, m.HardwareVersion(t.Context()))
	m, _ = manager(silent, last)
	require.Equal(t, 2, m.HardwareVersion(t.Context()))
	m, _ = manager(silent)
	require.Equal(t, -1, m.HardwareVersion(t.Context()))
}

// TestHolderThatForgetsToRelease acquires a device from a holder whose handOver
// returns without Release: the device has one holder all the same.
func TestHolderThatForgetsToRelease(t *testing.T) {
	d := ipuDevice(0, 1, 1)
	forgetful := NewLease(d, func(context.Context) error { return nil })
	next := NewLease(d, func(context.Context) error { return nil })
	for _, l := range []*Lease{forgetful, next} {
		fresh, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, fresh)
	}
	require.False(t, forgetful.Held())
	require.True(t, next.Held())
	next.Release()
}

// TestReleaseOfWhoDoesNotHold releases a lease that lost its device: its holder
// must still be asked to hand it over.
func TestReleaseOfWhoDoesNotHold(t *testing.T) {
	d := ipuDevice(0, 1, 1)
	asked := 0
	holder := NewLease(d, func(context.Context) error { asked++; return nil })
	other := NewLease(d, nil)
	_, err := holder.Acquire(t.Context())
	require.NoError(t, err)
	other.Release()
	require.True(t, holder.Held())
	_, err = other.Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, asked)
	other.Release()
}

// TestAcquireAfterItsContext acquires a device that is held with a context that
// has ended: its holder must not be made to leave.
func TestAcquireAfterItsContext(t *testing.T) {
	d := ipuDevice(0, 1, 1)
	holder := NewLease(d, func(context.Context) error { t.Error("released"); return nil })
	_, err := holder.Acquire(t.Context())
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // the device's turn and the end of the context are a toss-up
		_, err := NewLease(d, nil).Acquire(ended)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.True(t, holder.Held())
	holder.Release()
}

// incomparable is a device that no map can hold.
type incomparable struct {
	*fakeDevice
	_ []int
}

// TestIncomparableDevice acquires a device that is not distinguishable from others.
func TestIncomparableDevice(t *testing.T) {
	_, err := NewLease(incomparable{fakeDevice: ipuDevice(3, 1, 1)}, nil).Acquire(t.Context())
	require.ErrorContains(t, err, "acquire device 3: its type ipu.incomparable can't be compared")
}

// TestTargetKeepsOptions passes a model's device options on, to a request and to
// a simulation.
func TestTargetKeepsOptions(t *testing.T) {
	target := Target{NumIPUs: 2, Version: 21, RemoteBuffers: true, Options: []Option{{"a", "b"}}}
	require.Equal(t, Request{NumIPUs: 2, Version: 21, RemoteBuffers: true, Options: target.Options}, target.Request())
	require.Equal(t, Simulation{NumIPUs: 2, Version: 21, Options: target.Options}, target.Simulation())
	require.Equal(t, 1, Target{}.Request().NumIPUs)
}

// TestMagicsStandAtTheBeginning has the magics of executables inside others.
func TestMagicsStandAtTheBeginning(t *testing.T) {
	for _, magic := range []string{PortableMagic, poplarMagic, TestMagic} {
		require.Equal(t, FormatUnknown, Identify([]byte("x"+magic)), magic)
		require.Equal(t, FormatPortable, Identify([]byte(PortableMagic+magic)), magic)
	}
}
