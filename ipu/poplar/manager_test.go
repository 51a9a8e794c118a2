//go:build poplar && poplarfake && linux && cgo

package poplar_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

// sleeper is a clock that sleeps in no time, and does something after the n-th time.
type sleeper struct {
	now   time.Time
	slept []time.Duration
	then  func(n int)
}

func (c *sleeper) Now() time.Time { return c.now }

func (c *sleeper) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	c.slept = append(c.slept, d)
	if c.then != nil {
		c.then(len(c.slept))
	}
	return ctx.Err()
}

// taken is a manager of one IPU that another process has, with a clock.
func taken(t *testing.T) (*ipu.Manager, *sleeper) {
	t.Setenv("FAKE_POPLAR_IPUS", "1")
	t.Setenv("FAKE_POPLAR_BUSY", "0")
	clock := &sleeper{now: time.Unix(1000, 0)}
	m := manager(t)
	m.Clock = clock
	return m, clock
}

// works loads and runs an engine on a device, and gives it back.
func works(t *testing.T, d ipu.Device) {
	e, err := backend(t).NewEngine(adder(64, 1, 2))
	require.NoError(t, err)
	require.NoError(t, e.Load(t.Context(), d))
	_, _, y := rings(t, e, 64, 1)
	require.NoError(t, e.Run(t.Context(), 1))
	require.Equal(t, float32(0.5), y.get(0))
	require.NoError(t, e.Close())
	require.NoError(t, d.Detach())
}

// get attaches a device, which works.
func get(t *testing.T, m *ipu.Manager, r ipu.Request) ipu.DeviceInfo {
	d, err := m.Get(t.Context(), r)
	require.NoError(t, err)
	works(t, d)
	return d.Info()
}

// Feature 1.
func TestHardwareVersionCodes(t *testing.T) {
	for arch, want := range map[string]int{"ipu2": 2, "ipu21": 21, "ipu99": -1} {
		t.Setenv("FAKE_POPLAR_ARCH", arch)
		require.Equal(t, want, manager(t).HardwareVersion(t.Context()))
		get(t, manager(t), ipu.Request{})
	}
	t.Setenv("FAKE_POPLAR_IPUS", "0")
	require.Zero(t, manager(t).HardwareVersion(t.Context()))
}

// Feature 2.
func TestDeviceForModel(t *testing.T) {
	m := manager(t)
	model := ipu.Target{NumIPUs: 2, Version: 2, RemoteBuffers: true, Options: []ipu.Option{{Name: "target.syncMethod", Value: "polling"}}}
	info := get(t, m, model.Request())
	require.Equal(t, []any{2, 2, true}, []any{info.NumIPUs, info.Version, info.RemoteBuffers})
	model.Version = 21
	_, err := m.Get(t.Context(), model.Request())
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.ErrorContains(t, err, "none fits")
}

// Feature 3.
func TestDeviceByCountWithOptions(t *testing.T) {
	m := manager(t)
	info := get(t, m, ipu.Request{NumIPUs: 4, Options: []ipu.Option{{Name: "syncConfiguration", Value: "ipuAndAll"}}})
	require.Equal(t, 4, info.NumIPUs)
	_, err := m.Get(t.Context(), ipu.Request{NumIPUs: 4, Options: []ipu.Option{{Name: "b"}}})
	require.ErrorIs(t, err, ipu.ErrInvalidOption, "the options are Poplar's to judge")
}

// Feature 4.
func TestSpecificDevice(t *testing.T) {
	t.Setenv("FAKE_POPLAR_BUSY", "1")
	m := manager(t)
	_, err := m.Get(t.Context(), ipu.Request{}.Specific(1))
	require.ErrorIs(t, err, ipu.ErrNoDevice, "another is no substitute")
	require.ErrorContains(t, err, "1 fit and are taken")
	_, err = m.Get(t.Context(), ipu.Request{}.Specific(77))
	require.ErrorContains(t, err, "none fits", "there is no such device")
	require.Equal(t, 3, get(t, m, ipu.Request{}.Specific(3)).ID)
}

// Feature 5.
func TestTryGetOfNoDevice(t *testing.T) {
	m, clock := taken(t)
	for _, r := range []ipu.Request{{}, {NumIPUs: 1}, ipu.Target{}.Request(), ipu.Request{}.Specific(0), {NumIPUs: 64}, {Wait: ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 2 * time.Second, Sleep: time.Second}}} {
		d, err := m.TryGet(t.Context(), r)
		require.NoError(t, err)
		require.Nil(t, d)
	}
	require.Len(t, clock.slept, 2, "it waits as Get does")
	_, err := m.TryGet(t.Context(), ipu.Request{NumIPUs: -1})
	require.Error(t, err, "a bad request is an error")
	t.Setenv("FAKE_POPLAR_BUSY", "")
	d, err := m.TryGet(t.Context(), ipu.Request{})
	require.NoError(t, err)
	works(t, d)
}

// Feature 6.
func TestGetDoesNotWait(t *testing.T) {
	m, clock := taken(t)
	clock.then = func(int) { t.Error("it sleeps") }
	for _, w := range []ipu.Wait{{}, {Sleep: time.Second}} {
		_, err := m.Get(t.Context(), ipu.Request{Wait: w})
		require.ErrorIs(t, err, ipu.ErrNoDevice)
	}
	t.Setenv("FAKE_POPLAR_BUSY", "")
	get(t, m, ipu.Request{})
}

// Feature 7.
func TestGetWaitsUntilTimeout(t *testing.T) {
	const s = time.Second
	m, clock := taken(t)
	_, err := m.Get(t.Context(), ipu.Request{Wait: ipu.WaitFor(20 * s)})
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.Equal(t, []time.Duration{15 * s, 5 * s}, clock.slept, "15 s unless told, and never past the timeout")
	clock.slept = nil
	clock.then = func(n int) {
		if n == 2 {
			t.Setenv("FAKE_POPLAR_BUSY", "")
		}
	}
	get(t, m, ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 5 * s, Sleep: s}})
	require.Equal(t, []time.Duration{s, s}, clock.slept, "freed in time")
}

// Feature 8.
func TestGetWaitsForever(t *testing.T) {
	m, clock := taken(t)
	clock.then = func(n int) {
		if n == 6 {
			t.Setenv("FAKE_POPLAR_BUSY", "")
		}
	}
	get(t, m, ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever, Sleep: time.Second}})
	require.Len(t, clock.slept, 6)
	_, err := m.Get(t.Context(), ipu.Request{NumIPUs: 2, Wait: ipu.Wait{Strategy: ipu.WaitForever}})
	require.ErrorIs(t, err, ipu.ErrNoDevice, "nothing that waiting could free")
	require.Len(t, clock.slept, 6)
}

// Feature 8.
func TestGetWaitsUntilCancelled(t *testing.T) {
	m, clock := taken(t)
	ctx, cancel := context.WithCancel(t.Context())
	clock.then = func(n int) {
		if n == 3 {
			cancel()
		}
	}
	_, err := m.Get(ctx, ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever}})
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, clock.slept, 3)
	t.Setenv("FAKE_POPLAR_BUSY", "")
	get(t, m, ipu.Request{})
}

// Feature 8.
func TestGetsDeviceFreedByAnother(t *testing.T) {
	t.Setenv("FAKE_POPLAR_IPUS", "1")
	d, err := manager(t).Get(t.Context(), ipu.Request{})
	require.NoError(t, err)
	freed := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() { freed <- d.Detach() })
	get(t, manager(t), ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever, Sleep: time.Millisecond}})
	require.NoError(t, <-freed)
}

// TestRemoteBufferConstraint has the device itself tell, once it is attached.
//
// Feature 9.
func TestRemoteBufferConstraint(t *testing.T) {
	require.True(t, get(t, manager(t), ipu.Request{RemoteBuffers: true}).RemoteBuffers)
	t.Setenv("FAKE_POPLAR_REMOTE_BUFFERS", "false")
	require.False(t, get(t, manager(t), ipu.Request{}).RemoteBuffers)
}

// Feature 12.
func TestDeviceOutlivesManager(t *testing.T) {
	d, err := manager(t).Get(t.Context(), ipu.Request{}) // nothing keeps the manager
	require.NoError(t, err)
	runtime.GC()
	require.True(t, strings.HasPrefix(d.Info().Description, "ipu2, "))
	works(t, d)
}

// Feature 12.
func TestManagersShareDevices(t *testing.T) {
	t.Setenv("FAKE_POPLAR_IPUS", "1")
	a, b := manager(t), manager(t)
	d, err := a.Get(t.Context(), ipu.Request{})
	require.NoError(t, err)
	_, err = b.Get(t.Context(), ipu.Request{})
	require.ErrorIs(t, err, ipu.ErrNoDevice, "what the one has the other has not")
	works(t, d)
	get(t, b, ipu.Request{})
}
