package iputest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
)

func TestDevices(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{Devices: []ipu.DeviceInfo{{}, {NumIPUs: 4, Version: 21, RemoteBuffers: true, TilesPerIPU: 8, Description: "mine"}, {Version: -1}, {Kind: "cpu"}}})
	all, err := sys.Devices(ctx)
	require.NoError(t, err)
	var infos []ipu.DeviceInfo
	for _, d := range all {
		infos = append(infos, d.Info())
	}
	require.Equal(t, []ipu.DeviceInfo{
		{ID: 0, Backend: "iputest", Kind: "ipu", NumIPUs: 1, Version: 2, TilesPerIPU: 1472, Description: "test device, 1 IPUs of 1472 tiles"},
		{ID: 1, Backend: "iputest", Kind: "ipu", NumIPUs: 4, Version: 21, TilesPerIPU: 8, RemoteBuffers: true, Description: "mine"},
		{ID: 2, Backend: "iputest", Kind: "ipu", NumIPUs: 1, Version: -1, TilesPerIPU: 1472, Description: "test device, 1 IPUs of 1472 tiles"},
		{ID: 3, Backend: "iputest", Kind: "cpu", NumIPUs: 1, Version: 2, TilesPerIPU: 1472, Description: "test device, 1 IPUs of 1472 tiles"},
	}, infos)
	require.Equal(t, 21, New(Config{Devices: []ipu.DeviceInfo{{ID: 7, Version: -1}, {Version: 21}}}).Manager().HardwareVersion(ctx))
	require.Panics(t, func() { sys.Device(4) })

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = sys.Devices(cancelled)
	require.ErrorIs(t, err, context.Canceled)
	_, err = sys.Simulate(cancelled, ipu.Simulation{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, sys.Accepts(ipu.FormatPoplar), ipu.ErrWrongBackend)
}

// Feature 12.
func TestManagersShareDevices(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	a, err := sys.Manager().Get(ctx, ipu.Request{Options: []ipu.Option{{Name: "sync", Value: "full"}}})
	require.NoError(t, err)
	require.Equal(t, []ipu.Option{{Name: "sync", Value: "full"}}, a.(*Device).Options())
	b, err := sys.Manager().TryGet(ctx, ipu.Request{})
	require.NoError(t, err)
	require.Nil(t, b, "another manager does not hand it out again")
	require.True(t, sys.Attached(0))

	ok, err := a.Attach()
	require.NoError(t, err)
	require.True(t, ok, "its holder may attach it again")
	require.NoError(t, sys.Device(0).Detach(), "who does not hold it changes nothing")
	require.True(t, sys.Attached(0))
	require.NoError(t, a.Detach())
	require.NoError(t, a.Detach())
	require.False(t, sys.Attached(0))
	require.Equal(t, []string{"device 0: attach", "device 0: attach: busy", "device 0: detach"}, sys.Trace())
}

// Feature 8.
func TestGetsDeviceFreedByAnother(t *testing.T) {
	sys := New(Config{})
	sys.OccupyFor(0, 7*time.Second)
	get := func(ctx context.Context, w ipu.Wait) (ipu.Device, error) {
		return sys.Manager().Get(ctx, ipu.Request{Wait: w})
	}
	ctx := context.Background()
	_, err := get(ctx, ipu.Wait{})
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	_, err = get(ctx, ipu.Wait{Strategy: ipu.WaitWithTimeout, Timeout: 5 * time.Second, Sleep: time.Second})
	require.ErrorIs(t, err, ipu.ErrNoDevice)
	require.Len(t, sys.Clock().Slept(), 5)
	d, err := get(ctx, ipu.Wait{Strategy: ipu.WaitForever, Sleep: time.Second})
	require.NoError(t, err)
	require.Len(t, sys.Clock().Slept(), 7)
	require.NoError(t, d.Detach())

	// With a clock that the test moves.
	clock := NewClock()
	sys = New(Config{Clock: clock})
	sys.Occupy(0)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := sys.Manager().Get(ctx, ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever}})
		done <- err
	}()
	require.NoError(t, clock.AwaitSleepers(ctx, 1))
	clock.Advance(ipu.DefaultSleep)
	require.NoError(t, clock.AwaitSleepers(ctx, 1))
	sys.Vacate(0)
	require.Empty(t, done)
	clock.Advance(ipu.DefaultSleep)
	require.NoError(t, <-done)
	require.Len(t, sys.Events(EventAttach), 3)

	sys.Occupy(0)
	go func() {
		_, err := sys.Manager().Get(ctx, ipu.Request{Wait: ipu.Wait{Strategy: ipu.WaitForever}})
		done <- err
	}()
	require.NoError(t, clock.AwaitSleepers(ctx, 1))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

// Feature 10.
func TestSimulatedTestDevice(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{Devices: []ipu.DeviceInfo{}})
	d, err := sys.Manager().Simulate(ctx, ipu.Simulation{NumIPUs: 2, Version: 21})
	require.NoError(t, err)
	require.Equal(t, ipu.DeviceInfo{ID: 0, Backend: "iputest", Kind: "ipu_model", NumIPUs: 2, Version: 21, TilesPerIPU: 1472,
		Description: "test device, 2 IPUs of 1472 tiles"}, d.Info())
	all, err := sys.Devices(ctx)
	require.NoError(t, err)
	require.Empty(t, all, "it is nobody else's")
	RunEngineSuite(t, Suite{Backend: sys, Executable: SuiteScript().Executable(), Device: func(t testing.TB) ipu.Device {
		d, err := sys.Simulate(ctx, ipu.Simulation{NumIPUs: 1, Version: 2})
		require.NoError(t, err)
		return d
	}})
}

// Feature 11.
func TestProgramTooBigForSmallDevice(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{})
	small, err := sys.Manager().Simulate(ctx, ipu.Simulation{}.Small())
	require.NoError(t, err)
	require.Equal(t, 4, small.Info().TilesPerIPU)
	script := SuiteScript()
	for tiles, fits := range map[int]bool{4: true, 5: false} {
		script.Tiles = tiles
		e := newEngine(t, sys, script)
		err := e.Load(ctx, small)
		if fits {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ipu.ErrMemory)
		require.ErrorContains(t, err, "needs 5 tiles of each IPU, the device has 4")
	}
}

func TestDeviceMustSuitScript(t *testing.T) {
	sys := New(Config{Devices: []ipu.DeviceInfo{{}, {}}})
	d := attached(t, sys, 0)
	for want, change := range map[string]func(*Script){
		"needs 2 IPUs, the device has 1":            func(s *Script) { s.NumIPUs = 2 },
		"compiled for version 21, the device has 2": func(s *Script) { s.Version = 21 },
		"remote buffers, which the device does not": func(s *Script) { s.RemoteBuffers = true },
		"device 0: out of memory: the progr":        func(s *Script) { s.Tiles = 1473 },
	} {
		s := SuiteScript()
		change(&s)
		require.ErrorContains(t, newEngine(t, sys, s).Load(context.Background(), d), want)
	}
	other := attached(t, New(Config{}), 0)
	require.ErrorIs(t, newEngine(t, sys, SuiteScript()).Load(context.Background(), other), ipu.ErrWrongBackend)
}

// Feature 13.
func TestLoadingDisplaces(t *testing.T) {
	ctx := context.Background()
	sys := New(Config{Devices: []ipu.DeviceInfo{{}, {}}})
	d, d2 := attached(t, sys, 0), attached(t, sys, 1)
	a, b := newEngine(t, sys, script1()), newEngine(t, sys, script1())
	connectAll(t, a)
	connectAll(t, b)
	require.NoError(t, a.Load(ctx, d))
	require.NoError(t, b.Load(ctx, d))
	err := a.Run(ctx, 1)
	require.ErrorIs(t, err, ipu.ErrNotLoaded)
	require.ErrorContains(t, err, "model#2 was loaded onto device 0 since")
	require.NoError(t, b.Run(ctx, 1))
	require.NoError(t, b.Load(ctx, d2))
	require.NoError(t, a.Load(ctx, d))
	require.NoError(t, a.Run(ctx, 1))
	require.NoError(t, b.Run(ctx, 1))
	require.NoError(t, d2.Detach())
	require.ErrorIs(t, b.Run(ctx, 1), ipu.ErrNotLoaded)
	ok, err := d2.Attach()
	require.NoError(t, err)
	require.True(t, ok)
	require.ErrorContains(t, b.Run(ctx, 1), "something else was loaded onto device 1 since")
}

// newEngine makes an engine that is closed when the test ends.
func newEngine(t testing.TB, sys *System, s Script, options ...ipu.Option) *Engine {
	t.Helper()
	e, err := sys.NewEngine(ipu.EngineConfig{Name: "model", Executable: s.Executable(), Options: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e.(*Engine)
}

func attached(t testing.TB, sys *System, id int) *Device {
	t.Helper()
	d := sys.Device(id)
	ok, err := d.Attach()
	require.NoError(t, err)
	require.True(t, ok)
	return d
}

// script1 copies x to y in program 1.
func script1() Script {
	return Script{
		Streams:  []Stream{In("x", "u8", 4), Out("y", "u8", 4)},
		Programs: []Program{{Index: 1, Steps: []Step{Read("x"), Call("copy", []string{"x"}, []string{"y"}), Write("y")}}},
	}
}

// feed is a host's side of an input that has items, which it can give ahead of
// time, or of an output.
type feed struct {
	items       [][]byte
	ahead, done int
	got         [][]byte
	lent        []byte // the buffer of the last call
	onFetch     func(buf []byte) error
}

func (f *feed) Fetch(ctx context.Context, buf []byte) error {
	f.lent = buf
	if f.onFetch != nil {
		if err := f.onFetch(buf); err != nil {
			return err
		}
	}
	if f.items == nil {
		f.got = append(f.got, append([]byte(nil), buf...))
	} else {
		copy(buf, f.items[(f.done+f.ahead)%len(f.items)])
	}
	f.ahead++
	return nil
}

func (f *feed) Prefetch(buf []byte) bool {
	f.lent = buf
	if f.done+f.ahead >= len(f.items) {
		return false
	}
	copy(buf, f.items[f.done+f.ahead])
	f.ahead++
	return true
}

func (f *feed) Complete()             { f.ahead--; f.done++ }
func (f *feed) InvalidatePrefetched() { f.ahead = 0 }

// connectAll connects x and y of script1.
func connectAll(t testing.TB, e *Engine, items ...string) (x, y *feed) {
	t.Helper()
	x, y = &feed{}, &feed{}
	for _, i := range items {
		x.items = append(x.items, []byte(i))
	}
	if items == nil {
		x.items = [][]byte{[]byte("abcd")}
	}
	require.NoError(t, e.Connect("x", x))
	require.NoError(t, e.Connect("y", y))
	return x, y
}
