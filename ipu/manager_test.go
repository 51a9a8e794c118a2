package ipu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeClock passes time by sleeping only.
type fakeClock struct {
	now    time.Time
	slept  []time.Duration
	cancel func() // called by the third sleep
}

func (c *fakeClock) Now() time.Time { return c.now }
func (c *fakeClock) Sleep(ctx context.Context, d time.Duration) error {
	c.now = c.now.Add(d)
	if c.slept = append(c.slept, d); len(c.slept) == 3 && c.cancel != nil {
		c.cancel()
	}
	return ctx.Err()
}

// ipuDevice is a group of n IPUs.
func ipuDevice(id, n, freeAt int) *fakeDevice {
	return &fakeDevice{info: DeviceInfo{ID: id, Backend: "poplar", Kind: "ipu", NumIPUs: n, Version: 2}, freeAt: freeAt}
}

func manager(devices ...*fakeDevice) (*Manager, *fakeClock) {
	clock := &fakeClock{now: time.Unix(1000, 0)}
	return &Manager{Backends: []Backend{&fakeBackend{name: "poplar", devices: devices}}, Clock: clock}, clock
}

func TestGet(t *testing.T) {
	ctx := context.Background()
	capable := ipuDevice(3, 1, 1)
	capable.info.RemoteBuffers = true
	c600, untold := ipuDevice(4, 1, 1), ipuDevice(5, 1, 1)
	c600.info.Version, untold.info.Version = 21, -1
	cpu := &fakeDevice{info: DeviceInfo{ID: 9, Backend: "poplar", Kind: "cpu", NumIPUs: 1}, freeAt: 1}
	broken := ipuDevice(7, 8, 1)
	broken.err = errors.New("driver says no")
	tests := []struct {
		name    string
		devices []*fakeDevice
		r       Request
		want    int // id
		err     string
	}{
		{"first that fits", []*fakeDevice{ipuDevice(0, 2, 1), ipuDevice(1, 1, 1), ipuDevice(2, 1, 1)}, Request{NumIPUs: 1}, 1, ""},
		{"any", []*fakeDevice{ipuDevice(0, 2, 1)}, Request{}, 0, ""},
		{"next when taken", []*fakeDevice{ipuDevice(0, 1, 0), ipuDevice(1, 1, 1)}, Request{NumIPUs: 1}, 1, ""},
		{"too few IPUs", []*fakeDevice{ipuDevice(0, 1, 1)}, Request{NumIPUs: 2}, 0,
			"get a device (2 IPUs): no device: of 1 devices (poplar 0: ipu, 1 IPUs), none fits"},
		{"a CPU is any number", []*fakeDevice{cpu}, Request{NumIPUs: 2}, 9, ""},
		{"version", []*fakeDevice{ipuDevice(0, 1, 1), c600}, Request{Version: 21}, 4, ""},
		{"other version", []*fakeDevice{ipuDevice(0, 1, 1)}, Request{Version: 21}, 0, "get a device (version 21): no device"},
		{"unknown version", []*fakeDevice{untold}, Request{Version: 21}, 5, ""},
		{"a CPU is any version", []*fakeDevice{cpu}, Request{Version: 21}, 9, ""},
		{"kind", []*fakeDevice{ipuDevice(0, 1, 1), cpu}, Request{Kind: "cpu"}, 9, ""},
		{"no substitution", []*fakeDevice{ipuDevice(0, 1, 0), ipuDevice(1, 1, 1)}, Request{ID: new(0)}, 0,
			"get a device (id 0): no device: of 2 devices (poplar 0: ipu, 1 IPUs; poplar 1: ipu, 1 IPUs), 1 fit and are taken"},
		{"specific", []*fakeDevice{ipuDevice(0, 1, 1), ipuDevice(1, 1, 1)}, Request{ID: new(1)}, 1, ""},
		{"absent id", []*fakeDevice{ipuDevice(0, 1, 1)}, Request{ID: new(5)}, 0, "none fits"},
		{"remote buffers", []*fakeDevice{ipuDevice(0, 1, 1), capable}, Request{RemoteBuffers: true}, 3, ""},
		{"no remote buffers", []*fakeDevice{ipuDevice(0, 1, 1)}, Request{RemoteBuffers: true}, 0, "(remote buffers): no device"},
		{"passes over a broken one", []*fakeDevice{broken, ipuDevice(1, 8, 1)}, Request{NumIPUs: 8}, 1, ""},
		{"names a broken one", []*fakeDevice{broken, ipuDevice(1, 8, 0)}, Request{NumIPUs: 8}, 0,
			`attach device 7 of back end "poplar": driver says no`},
		{"back end", []*fakeDevice{ipuDevice(0, 1, 1)}, Request{Backend: "poplar"}, 0, ""},
		{"no devices", nil, Request{}, 0, "get a device (any device): no device: of 0 devices, none fits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, clock := manager(tt.devices...)
			d, err := m.Get(ctx, tt.r)
			require.Empty(t, clock.slept)
			for _, d := range tt.devices {
				d.attempts = 0
			}
			twin, twinErr := m.TryGet(ctx, tt.r)
			if tt.err != "" {
				require.ErrorIs(t, err, ErrNoDevice)
				require.ErrorContains(t, err, tt.err)
				require.Nil(t, d)
				require.NoError(t, twinErr)
				require.Nil(t, twin)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, d.Info().ID)
			require.NoError(t, twinErr)
			require.Equal(t, d, twin)
		})
	}
}

func TestGetBadRequests(t *testing.T) {
	ctx := context.Background()
	failing := &fakeBackend{name: "b", err: errors.New("no driver")}
	broken := ipuDevice(0, 1, 1)
	broken.err = errors.New("driver says no")
	tests := []struct {
		name string
		m    Manager
		r    Request
		want string
	}{
		{"count", Manager{}, Request{NumIPUs: -1}, "it asks for -1 IPUs"},
		{"version", Manager{}, Request{Version: -1}, "it asks for version -1"},
		{"id", Manager{}, Request{ID: new(-1)}, "it asks for id -1"},
		{"strategy", Manager{}, Request{Wait: Wait{Strategy: 7}}, "there is no wait strategy 7"},
		{"durations", Manager{}, Request{Wait: Wait{Sleep: -1}}, "want durations of 0 or more"},
		{"back end", Manager{Backends: []Backend{failing}}, Request{Backend: "cpu"},
			`unknown back end "cpu" (registered: b); import _ "github.com/popefgen/popefgen/ipu/cpu"`},
		{"id without back end", Manager{Backends: []Backend{failing, failing}}, Request{ID: new(0)},
			"get a device (id 0): an id needs the name of its back end, because there are 2"},
		{"enumeration", Manager{Backends: []Backend{failing}}, Request{}, `enumerate devices of back end "b": no driver`},
		{"attaching", Manager{Backends: []Backend{&fakeBackend{name: "b", devices: []*fakeDevice{broken}}}}, Request{}, "driver says no"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.m.Get(ctx, tt.r)
			require.ErrorContains(t, err, tt.want)
			_, err = tt.m.TryGet(ctx, tt.r)
			require.ErrorContains(t, err, tt.want, "TryGet too")
		})
	}
	_, err := (&Manager{}).Get(ctx, Request{})
	require.ErrorContains(t, err, "no device: no back end is registered; import _")
}

// waitTest counts the attempts and sleeps of a wait for a device.
type waitTest struct {
	name     string
	wait     Wait
	freeAt   int
	attempts int
	slept    []time.Duration
	ok       bool
}

func testWaits(t *testing.T, tests []waitTest) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := ipuDevice(0, 1, tt.freeAt)
			m, clock := manager(d)
			got, err := m.Get(context.Background(), Request{Wait: tt.wait})
			require.Equal(t, tt.attempts, d.attempts)
			require.Equal(t, tt.slept, clock.slept)
			if tt.ok {
				require.NoError(t, err)
				require.Same(t, d, got)
			} else {
				require.ErrorIs(t, err, ErrNoDevice)
			}
		})
	}
}

const second = time.Second

// Feature 6.
func TestGetDoesNotWait(t *testing.T) {
	testWaits(t, []waitTest{
		{"free", Wait{}, 1, 1, nil, true},
		{"taken", Wait{}, 2, 1, nil, false},
		{"sleep means nothing", Wait{Sleep: second}, 2, 1, nil, false},
	})
}

// Feature 7.
func TestGetWaitsUntilTimeout(t *testing.T) {
	const s = second
	testWaits(t, []waitTest{
		{"5 s in steps of 1 s", Wait{WaitWithTimeout, 5 * s, s}, 0, 6, []time.Duration{s, s, s, s, s}, false},
		{"freed in time", Wait{WaitWithTimeout, 5 * s, s}, 3, 3, []time.Duration{s, s}, true},
		{"never past the timeout", Wait{WaitWithTimeout, s, 6 * s}, 0, 2, []time.Duration{s}, false},
		{"default sleep", WaitFor(20 * s), 0, 3, []time.Duration{15 * s, 5 * s}, false},
		{"no time", WaitFor(0), 0, 1, nil, false},
	})
}

// Feature 8.
func TestGetWaitsForever(t *testing.T) {
	const s = second
	testWaits(t, []waitTest{
		{"freed on the seventh attempt", Wait{Strategy: WaitForever, Sleep: s}, 7, 7, []time.Duration{s, s, s, s, s, s}, true},
		{"default sleep", Wait{Strategy: WaitForever}, 2, 2, []time.Duration{15 * s}, true},
	})
	t.Run("nothing that waiting could free", func(t *testing.T) {
		m, clock := manager(ipuDevice(0, 1, 0))
		_, err := m.Get(context.Background(), Request{NumIPUs: 2, Wait: Wait{Strategy: WaitForever}})
		require.ErrorIs(t, err, ErrNoDevice)
		require.Empty(t, clock.slept)
	})
}

// Feature 8.
func TestGetWaitsUntilCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	d := ipuDevice(0, 1, 0)
	m, clock := manager(d)
	clock.cancel = cancel
	_, err := m.TryGet(ctx, Request{Wait: Wait{Strategy: WaitForever}})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, d.attempts)
	_, err = m.Get(ctx, Request{})
	require.ErrorIs(t, err, context.Canceled, "before the first attempt")
	require.Equal(t, 3, d.attempts)

	// The system's clock sleeps, and wakes when the context ends.
	d = ipuDevice(0, 1, 3)
	m, _ = manager(d)
	m.Clock = nil
	_, err = m.Get(context.Background(), Request{Wait: Wait{Strategy: WaitForever, Sleep: time.Millisecond}})
	require.NoError(t, err)
	d.freeAt = 0
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	_, err = m.Get(ctx, Request{Wait: Wait{Strategy: WaitForever, Sleep: time.Hour}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// Feature 3.
func TestDeviceByCountWithOptions(t *testing.T) {
	ctx := context.Background()
	b := &optionBackend{fakeBackend: fakeBackend{name: "poplar", devices: []*fakeDevice{ipuDevice(0, 1, 1)}}}
	plain := &fakeBackend{name: "cpu", devices: []*fakeDevice{{info: DeviceInfo{Backend: "cpu"}, freeAt: 1}}}
	m := &Manager{Backends: []Backend{plain, b}}
	options := []Option{{"syncConfiguration", "ipuAndAll"}, {"b", ""}}
	d, err := m.Get(ctx, Request{NumIPUs: 1, Options: options})
	require.NoError(t, err)
	require.Equal(t, "poplar", d.Info().Backend, "the other takes no options")
	require.Equal(t, options, b.got)

	b.got = nil
	_, err = m.Get(ctx, Request{Backend: "poplar"})
	require.NoError(t, err)
	require.Nil(t, b.got)
}

// Feature 12.
func TestDeviceOutlivesManager(t *testing.T) {
	get := func() Device { // nothing keeps the manager
		m, _ := manager(ipuDevice(4, 1, 1))
		d, err := m.Get(context.Background(), Request{})
		require.NoError(t, err)
		return d
	}
	d := get()
	runtime.GC()
	require.Equal(t, 4, d.Info().ID)
	require.Equal(t, 2, d.Info().Version)
	ok, err := d.Attach()
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, d.Detach())
}

// Feature 2.
func TestDeviceForModel(t *testing.T) {
	ctx := context.Background()
	pair := ipuDevice(1, 2, 1)
	pair.info.RemoteBuffers = true
	b := &optionBackend{fakeBackend: fakeBackend{name: "poplar", devices: []*fakeDevice{ipuDevice(0, 1, 1)}}}
	m := &Manager{Backends: []Backend{b}}
	model := Target{NumIPUs: 2, Version: 2, RemoteBuffers: true, Options: []Option{{"ipuLinkDomainSize", "2"}}}
	require.Equal(t, NoWait, model.Request().Wait.Strategy)

	_, err := m.Get(ctx, model.Request())
	require.ErrorIs(t, err, ErrNoDevice)
	require.EqualError(t, err, "get a device (2 IPUs, version 2, remote buffers): no device: of 1 devices (poplar 0: ipu, 1 IPUs), none fits")

	b.devices = append(b.devices, pair)
	d, err := m.Get(ctx, model.Request())
	require.NoError(t, err)
	require.Same(t, pair, d)
	require.Equal(t, model.Options, b.got)
	require.NoError(t, d.Detach())

	require.Equal(t, Request{NumIPUs: 1}, Target{}.Request(), "a model needs one IPU at least")
}

// Feature 4.
func TestSpecificDevice(t *testing.T) {
	busy, free := ipuDevice(0, 1, 0), ipuDevice(1, 1, 1)
	for _, r := range []Request{{ID: new(0)}, Target{}.Request().Specific(0), {ID: new(0), Options: []Option{{"a", "b"}}}} {
		b := &optionBackend{fakeBackend: fakeBackend{name: "poplar", devices: []*fakeDevice{busy, free}}}
		m := &Manager{Backends: []Backend{b}}
		_, err := m.Get(context.Background(), r)
		require.ErrorIs(t, err, ErrNoDevice)
		require.Zero(t, free.attempts, "another is no substitute")
		require.Equal(t, r.Options, b.got)
	}
	require.Equal(t, 3, busy.attempts)
	m, _ := manager(busy, free)
	_, err := m.Get(context.Background(), Request{}.Specific(2))
	require.ErrorIs(t, err, ErrNoDevice)
	require.ErrorContains(t, err, "none fits", "there is no such device")
	d, err := m.Get(context.Background(), Request{}.Specific(1))
	require.NoError(t, err)
	require.Same(t, free, d)
}

// Feature 5.
func TestTryGetOfNoDevice(t *testing.T) {
	ctx := context.Background()
	m, clock := manager(ipuDevice(0, 1, 0))
	for _, r := range []Request{{}, {NumIPUs: 1}, Target{}.Request(), Request{}.Specific(0), {NumIPUs: 64}, {Wait: Wait{WaitWithTimeout, 2 * second, second}}} {
		d, err := m.TryGet(ctx, r)
		require.NoError(t, err)
		require.Nil(t, d)
	}
	require.Len(t, clock.slept, 2, "it waits as Get does")
	_, err := m.TryGet(ctx, Request{NumIPUs: -1})
	require.Error(t, err, "a bad request is an error")
}

// Feature 9.
func TestRemoteBufferConstraint(t *testing.T) {
	plain, capable := ipuDevice(0, 1, 1), ipuDevice(1, 1, 1)
	capable.info.RemoteBuffers = true
	m, _ := manager(plain, capable)
	d, err := m.Get(context.Background(), Request{RemoteBuffers: true})
	require.NoError(t, err)
	require.Same(t, capable, d)
	require.Zero(t, plain.attempts)
	m, _ = manager(plain)
	_, err = m.Get(context.Background(), Request{RemoteBuffers: true})
	require.ErrorIs(t, err, ErrNoDevice)
}

// Feature 1.
func TestHardwareVersionCodes(t *testing.T) {
	of := func(kind string, version int) *fakeDevice {
		return &fakeDevice{info: DeviceInfo{Kind: kind, Version: version}}
	}
	tests := []struct {
		devices []*fakeDevice
		want    int
	}{
		{nil, 0},
		{[]*fakeDevice{of("cpu", 0), of("ipu_model", 2)}, 0},
		{[]*fakeDevice{of("cpu", 0), of("ipu", 2)}, 2},
		{[]*fakeDevice{of("ipu", 21)}, 21},
		{[]*fakeDevice{of("ipu", 0)}, -1},
		{[]*fakeDevice{of("ipu", 0), of("ipu", 21)}, 21},
	}
	for i, tt := range tests {
		m, _ := manager(tt.devices...)
		m.Backends = append([]Backend{&fakeBackend{name: "broken", err: errors.New("no driver")}}, m.Backends...)
		require.Equal(t, tt.want, m.HardwareVersion(context.Background()), i)
	}
}

func TestDevices(t *testing.T) {
	m, _ := manager(ipuDevice(0, 1, 0), ipuDevice(1, 2, 0))
	all, err := m.Devices(context.Background())
	require.NoError(t, err)
	require.Len(t, all, 2)

	var many []*fakeDevice
	for i := range 12 {
		many = append(many, ipuDevice(i, 1, 0))
	}
	m, _ = manager(many...)
	_, err = m.Get(context.Background(), Request{Backend: "poplar", Kind: "ipu", NumIPUs: 1, ID: new(3), RemoteBuffers: true})
	require.ErrorContains(t, err, `get a device (back end "poplar", kind "ipu", id 3, 1 IPUs, remote buffers): no device: of 12 devices (poplar 0: ipu, 1 IPUs;`)
	require.ErrorContains(t, err, fmt.Sprintf("poplar %d: ipu, 1 IPUs; …), none fits", 7))
}
