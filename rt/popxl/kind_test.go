package popxl_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/popxl"
	"github.com/popefgen/popefgen/rt/popxl/ops"
)

// doubling is y = 2·x in that many replicas.
func doubling(replicas int) (ir *popxl.Ir, x popxl.Input[float32], y popxl.Output[float32]) {
	ir = popxl.New("doubling")
	if replicas > 0 {
		ir.SetReplicas(replicas)
	}
	x = popxl.NewInput[float32](ir, "x", 2)
	y = popxl.NewOutput("y", ops.Mul(x.Load(), popxl.Constant(ir, []float32{2})))
	return ir, x, y
}

// TestKinds: each kind runs a model, on as many IPUs as it has replicas, rounded up to a power of two; devices of a back end are given back.
//
// Row 102.
func TestKinds(t *testing.T) {
	sys := iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, 4)})
	for _, tt := range []struct {
		name     string
		replicas int
		opts     []modelrt.SessionOption
	}{
		{"cpu", 0, []modelrt.SessionOption{popxl.CPU}},
		{"cpu 1", 1, []modelrt.SessionOption{popxl.CPU, rt.WithThreads(1)}},
		{"model", 1, []modelrt.SessionOption{popxl.IPUModel}},
		{"model 3", 3, []modelrt.SessionOption{popxl.IPUModel, rt.WithSimulation(ipu.Simulation{NumIPUs: 4}.Small())}},
		{"simulation", 2, []modelrt.SessionOption{rt.WithSimulation(ipu.Simulation{})}},
		{"hardware", 1, []modelrt.SessionOption{rt.WithManager(sys.Manager()), popxl.Hardware, rt.WithBackend(sys.Name()), rt.WithDeviceID(2)}},
		{"hardware 3", 3, []modelrt.SessionOption{popxl.Hardware, rt.WithManager(sys.Manager()), rt.WithBackend(sys.Name())}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ir, x, y := doubling(tt.replicas)
			s, err := popxl.NewSession(t.Context(), ir, tt.opts...)
			require.NoError(t, err)
			n := 2 * max(1, tt.replicas)
			in, out := make([]float32, n), y.Make()
			require.Len(t, out, n)
			want := make([]float32, n)
			for i := range in {
				in[i], want[i] = float32(i), float32(2*i)
			}
			require.NoError(t, s.In(t.Context(), func() error { return s.Run(t.Context(), x.Feed(in), y.Into(out)) }))
			require.Equal(t, want, out)
			require.NoError(t, s.Close())
			require.NoError(t, s.Close())
			for id := range 4 {
				require.False(t, sys.Attached(id))
			}
		})
	}
	require.Empty(t, sys.Violations())
}

// TestLimitsOfKinds: the texts of what each kind can't do.
//
// Row 102.
func TestLimitsOfKinds(t *testing.T) {
	sys := iputest.New(iputest.Config{Devices: make([]ipu.DeviceInfo, 2)})
	given, err := (&ipu.Manager{}).Get(context.Background(), ipu.Request{Backend: cpu.Name})
	require.NoError(t, err)
	hardware := []modelrt.SessionOption{popxl.Hardware, rt.WithManager(sys.Manager()), rt.WithBackend(sys.Name())}
	for _, tt := range []struct {
		replicas int
		opts     []modelrt.SessionOption
		is       error
		want     string
	}{
		{2, nil, nil, "doubling: the Ir asks for 2 replicas: take popxl.IPUModel or popxl.Hardware, which have them"},
		{2, []modelrt.SessionOption{popxl.CPU}, nil, "doubling: a CPU has no replicas, and the Ir asks for 2: take popxl.IPUModel"},
		{3, []modelrt.SessionOption{popxl.IPUModel, rt.WithSimulation(ipu.Simulation{NumIPUs: 2})}, ipu.ErrNoDevice, "doubling: no device: too few IPUs: need 4, have 2"},
		{1, []modelrt.SessionOption{popxl.IPUModel, rt.WithSimulation(ipu.Simulation{TilesPerIPU: 1, BytesPerTile: 19})}, ipu.ErrMemory,
			"out of memory: the program needs 20 bytes (0 of weights, 4 of constants, 16 of activations where they are most"},
		{3, hardware, ipu.ErrNoDevice, "doubling: no device: too few IPUs: need 4, have 2"},
		{2, append(hardware, rt.WithDeviceID(0)), rt.ErrOption, "doubling: bad option: WithDeviceID, and 2 replicas, each of which takes a device"},
		{1, append(hardware, rt.WithDeviceID(7)), ipu.ErrNoDevice, "id 7"},
		{1, []modelrt.SessionOption{popxl.Hardware}, ipu.ErrNoDevice, "doubling: no device: too few IPUs: need 1, have 0"},
		{1, []modelrt.SessionOption{popxl.Kind(9)}, rt.ErrOption, "doubling: bad option: there is no kind(9), want CPU, IPUModel or Hardware"},
		{1, []modelrt.SessionOption{popxl.IPUModel, rt.WithDevice(given)}, rt.ErrOption, "doubling: bad option: ipu_model, and WithDevice: take one of them"},
		{1, []modelrt.SessionOption{popxl.CPU, rt.WithSimulation(ipu.Simulation{})}, rt.ErrOption, "doubling: bad option: cpu, and WithSimulation, which goes with ipu_model"},
		{1, []modelrt.SessionOption{popxl.CPU, rt.WithThreads(0)}, rt.ErrOption, "doubling: WithThreads: bad option: 0 threads"},
	} {
		ir, _, _ := doubling(tt.replicas)
		_, err := popxl.NewSession(t.Context(), ir, tt.opts...)
		require.ErrorContains(t, err, tt.want)
		if tt.is != nil {
			require.ErrorIs(t, err, tt.is)
		}
	}
	for id := range 2 {
		require.False(t, sys.Attached(id))
	}
	for _, n := range []int{0, -1, 1025} {
		ir, _, _ := doubling(1)
		ir.SetReplicas(n)
		require.ErrorContains(t, ir.Err(), "replicas, want 1 to 1024")
	}

	ir, _, _ := doubling(1)
	m, err := ir.Export(t.Context())
	require.NoError(t, err)
	model, err := m.Load(t.Context(), "doubling")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, model.Close()) })
	require.Equal(t, uint32(1), model.Metadata.ReplicationFactor)
	_, err = modelrt.NewSession(t.Context(), model, popxl.IPUModel)
	require.ErrorIs(t, err, rt.ErrOption)
	require.ErrorContains(t, err, "popxl kind ipu_model: bad option: it is an option of popxl.NewSession alone")
}
