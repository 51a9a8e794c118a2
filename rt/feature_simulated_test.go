package rt_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// onCPU is the affine model with other metadata, for the cpu back end.
func onCPU(t *testing.T, change func(*popef.Metadata)) variant {
	meta := affineMetadata()
	change(&meta)
	return variant{"cpu", "cpu", file(t, meta, affinePortable(t), affineData), nil}
}

// TestSimulatedRunner: each replica of a runner has a simulated device of its own, which computes what the CPU does; IPUs and version
// are the model's unless the option says others.
//
// Feature 10.
func TestSimulatedRunner(t *testing.T) {
	v := onCPU(t, func(m *popef.Metadata) { m.NumIPUs = 4 })
	r := v.open(t, rt.WithReplicas(2), rt.WithSimulation(ipu.Simulation{Version: 21}.Small()))
	compute(t, r, 1)
	ids := map[int]bool{}
	for i := range 2 {
		info := r.Replica(i).Device().Info()
		ids[info.ID] = true
		require.Equal(t, "ipu_model", info.Kind)
		require.Equal(t, []int{4, 21, 4}, []int{info.NumIPUs, info.Version, info.TilesPerIPU})
	}
	require.Len(t, ids, 2)
	require.Equal(t, ipu.Simulation{Version: 21, TilesPerIPU: 4}, *r.Config().Simulation)
	r.Config().Simulation.TilesPerIPU = 7
	require.Equal(t, 4, r.Config().Simulation.TilesPerIPU, "it is a copy")
	require.Nil(t, v.open(t).Config().Simulation)
}

// TestSimulationRefused: what a simulated device can't run, and options that contradict each other.
//
// Feature 11.
func TestSimulationRefused(t *testing.T) {
	plain := onCPU(t, func(*popef.Metadata) {})
	remote := onCPU(t, func(m *popef.Metadata) { m.Anchors[3].RemoteBuffer = true })
	open := func(v variant, opts ...modelrt.SessionOption) error {
		m, err := popef.LoadBytes("affine.popef", v.model)
		require.NoError(t, err)
		s, err := modelrt.NewSession(context.Background(), m, append(opts, rt.WithBackend("cpu"))...)
		if err == nil {
			err = s.Close()
		}
		return errors.Join(err, m.Close())
	}
	for _, tt := range []struct {
		v    variant
		opts []modelrt.SessionOption
		is   error
		want string
	}{
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{BytesPerTile: 7}.Small())}, ipu.ErrMemory,
			`affine.popef: open: load the engine: out of memory: the program needs 32 bytes (16 of weights, 0 of constants, 16 of activations where they are most, ` +
				`in program 5 "Program" at node "wx" (Binary)), and the device has 28: IPUs 1 × tiles 4 × bytes 7; the largest: weight "w" (f32[2], 8 bytes), ` +
				`weight "b" (f32[2], 8 bytes), activation`},
		{onCPU(t, func(m *popef.Metadata) { m.NumIPUs = 4 }), []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{NumIPUs: 2})}, ipu.ErrNoDevice,
			"affine.popef: open: no device: too few IPUs: need 4, have 2"},
		{remote, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{})}, ipu.ErrNoDevice, "no device: no remote buffers: the model needs them, and ipu_model"},
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{}), rt.WithDevice(mine())}, rt.ErrOption, "WithSimulation: bad option: no device is looked for"},
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{}), rt.WithDeviceID(3)}, rt.ErrOption, "WithDeviceID and WithWait have no meaning"},
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{}), rt.WithDeviceOption("a", "b")}, ipu.ErrInvalidOption, "take no options"},
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{Version: 3})}, nil, "it asks for version 3, want 2 or 21"},
		{plain, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{Backend: fakeName})}, ipu.ErrNoDevice, `back end "rt-fake" does not simulate any`},
	} {
		err := open(tt.v, tt.opts...)
		require.ErrorContains(t, err, tt.want)
		if tt.is != nil {
			require.ErrorIs(t, err, tt.is)
		}
	}
	require.NoError(t, open(remote), "a CPU has remote buffers")
}

// late is an input of a caller who has the next item only when the output of the one before it is there, and who makes the device wait for it.
type late struct {
	items chan []byte
	stuck bool
}

func (s *late) Fetch(_ context.Context, buf []byte) error {
	select {
	case item := <-s.items:
		copy(buf, item)
		return nil
	case <-time.After(20 * time.Millisecond):
		s.stuck = true
		return errors.New("deadlock")
	}
}

func (s *late) Prefetch(buf []byte) bool { return s.Fetch(context.Background(), buf) == nil }
func (s *late) Complete()                {}
func (s *late) InvalidatePrefetched()    {}

// TestLookAheadOfSimulation: the deadlock of a caller whose inputs wait for outputs, on a device that looks ahead, and how 0 avoids it, as a CPU does.
//
// Feature 32.
func TestLookAheadOfSimulation(t *testing.T) {
	for _, tt := range []struct {
		name  string
		opts  []modelrt.SessionOption
		stuck bool
	}{
		{"simulated", []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{})}, true},
		{"1", []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{}), rt.WithLookAhead(1)}, true},
		{"0", []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{}), rt.WithLookAhead(0)}, false},
		{"CPU", []modelrt.SessionOption{rt.WithLookAhead(1)}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := onCPU(t, func(*popef.Metadata) {}).session(t, tt.opts...)
			buffers(t, s)
			x := &late{items: make(chan []byte, 2)}
			x.items <- floats(1, 2)
			require.NoError(t, s.Connect(context.Background(), "h2d_x", x))
			require.NoError(t, modelrt.SetCallback(context.Background(), s, "anchor_d2h_y", func(context.Context, []byte) error {
				x.items <- floats(3, 4)
				return nil
			}))
			require.NoError(t, s.Run(context.Background()))
			require.Equal(t, tt.stuck, x.stuck)
		})
	}
}
