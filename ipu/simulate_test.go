package ipu

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// simulatingBackend makes simulated devices whose architecture has 1472 tiles.
type simulatingBackend struct {
	fakeBackend
	taken bool
	got   Simulation
}

func (b *simulatingBackend) Simulate(_ context.Context, s Simulation) (Device, error) {
	b.got = s
	tiles := s.TilesPerIPU
	if tiles == 0 {
		tiles = 1472
	}
	d := &fakeDevice{freeAt: 1, info: DeviceInfo{Backend: b.name, Kind: "ipu_model", NumIPUs: s.NumIPUs, Version: s.Version, TilesPerIPU: tiles}}
	if b.taken {
		d.freeAt = 0
	}
	return d, b.err
}

// Feature 10.
func TestSimulatedDevice(t *testing.T) {
	ctx := context.Background()
	b := &simulatingBackend{fakeBackend: fakeBackend{name: "poplar"}}
	m := &Manager{Backends: []Backend{&fakeBackend{name: "cpu"}, b}}
	model := Target{NumIPUs: 4, Version: 21, Options: []Option{{"a", "b"}}}
	tests := []struct {
		s                    Simulation
		ipus, version, tiles int
	}{
		{Simulation{}, 1, 2, 1472},
		{Simulation{NumIPUs: 2, Version: 21, TilesPerIPU: 64}, 2, 21, 64},
		{Simulation{Backend: "poplar"}, 1, 2, 1472},
		{model.Simulation(), 4, 21, 1472},
	}
	for _, tt := range tests {
		d, err := m.Simulate(ctx, tt.s)
		require.NoError(t, err)
		require.Equal(t, DeviceInfo{Backend: "poplar", Kind: "ipu_model", NumIPUs: tt.ipus, Version: tt.version, TilesPerIPU: tt.tiles}, d.Info())
		require.Equal(t, 1, d.(*fakeDevice).attempts, "it is attached")
		require.Equal(t, tt.s.Options, b.got.Options)
	}
	require.Equal(t, 0, m.HardwareVersion(ctx), "simulated devices are no hardware")
}

// Feature 11.
func TestSmallSimulatedDevice(t *testing.T) {
	m := &Manager{Backends: []Backend{&simulatingBackend{fakeBackend: fakeBackend{name: "poplar"}}}}
	for _, s := range []Simulation{Simulation{NumIPUs: 2}.Small(), Target{NumIPUs: 2}.Simulation().Small()} {
		d, err := m.Simulate(context.Background(), s)
		require.NoError(t, err)
		require.Equal(t, 4, d.Info().TilesPerIPU)
		require.Equal(t, 2, d.Info().NumIPUs)
	}
}

func TestSimulateErrors(t *testing.T) {
	plain := &fakeBackend{name: "cpu"}
	failing := &simulatingBackend{fakeBackend: fakeBackend{name: "poplar", err: errors.New("no SDK")}}
	taken := &simulatingBackend{fakeBackend: fakeBackend{name: "poplar"}, taken: true}
	tests := []struct {
		b    Backend
		s    Simulation
		want string
	}{
		{plain, Simulation{NumIPUs: -1}, "simulate a device: it asks for -1 IPUs"},
		{plain, Simulation{Version: 3}, "it asks for version 3, want 2 or 21"},
		{plain, Simulation{TilesPerIPU: -4}, "it asks for -4 tiles"},
		{plain, Simulation{Backend: "poplar"}, `unknown back end "poplar"`},
		{plain, Simulation{Backend: "cpu"}, `no device: back end "cpu" does not simulate any`},
		{plain, Simulation{}, "no device: none of 1 back ends simulates any; import _"},
		{failing, Simulation{}, `back end "poplar": no SDK`},
		{taken, Simulation{}, "it is new and yet taken"},
	}
	for _, tt := range tests {
		_, err := (&Manager{Backends: []Backend{tt.b}}).Simulate(context.Background(), tt.s)
		require.ErrorContains(t, err, tt.want)
	}
}

// TestTargetCheck: a device with too few IPUs, another version or no remote buffers is none for a model that needs them.
func TestTargetCheck(t *testing.T) {
	model := DeviceInfo{Kind: "ipu_model", ID: 3, NumIPUs: 2, Version: 2}
	for _, tt := range []struct {
		target Target
		device DeviceInfo
		want   string
	}{
		{Target{NumIPUs: 3}, model, "no device: too few IPUs: need 3, have 2"},
		{Target{NumIPUs: 2}, model, ""},
		{Target{}, model, ""},
		{Target{NumIPUs: 4}, DeviceInfo{Kind: "cpu", NumIPUs: 1}, ""},
		{Target{Version: 21}, model, "no device: another IPU: need version 21, have 2"},
		{Target{Version: 21}, DeviceInfo{Kind: "ipu", NumIPUs: 1, Version: -1}, ""},
		{Target{RemoteBuffers: true}, model, "no device: no remote buffers: the model needs them, and ipu_model 3 has none"},
		{Target{RemoteBuffers: true}, DeviceInfo{Kind: "ipu", NumIPUs: 1, RemoteBuffers: true}, ""},
	} {
		err := tt.target.Check(tt.device)
		if tt.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, ErrNoDevice)
		require.EqualError(t, err, tt.want)
	}
}
