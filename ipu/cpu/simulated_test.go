package cpu

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// simulate returns a simulated device that is attached.
func simulate(t testing.TB, s ipu.Simulation) ipu.Device {
	d, err := (&ipu.Manager{Backends: []ipu.Backend{backend{}}}).Simulate(context.Background(), s)
	require.NoError(t, err)
	return d
}

// TestSimulatedIPU: kind, count, version, tiles and memory are those asked for, or the architecture's; no simulated device is among those that there are.
//
// Feature 10.
func TestSimulatedIPU(t *testing.T) {
	ctx := context.Background()
	m := &ipu.Manager{Backends: []ipu.Backend{backend{}}}
	info := func(ipus, version, tiles int, bytes int64) ipu.DeviceInfo {
		return ipu.DeviceInfo{Backend: "cpu", Kind: "ipu_model", NumIPUs: ipus, Version: version, TilesPerIPU: tiles, BytesPerTile: bytes,
			Description: fmt.Sprintf("simulated on the CPU, IPUs %d × tiles %d × bytes %d", ipus, tiles, bytes)}
	}
	ids := map[int]bool{0: true}
	for _, tt := range []struct {
		s    ipu.Simulation
		want ipu.DeviceInfo
	}{
		{ipu.Simulation{}, info(1, 2, 1472, 638976)},
		{ipu.Simulation{NumIPUs: 4, Version: 21, TilesPerIPU: 64, BytesPerTile: 1000}, info(4, 21, 64, 1000)},
		{ipu.Target{NumIPUs: 2, Version: 21}.Simulation().Small(), info(2, 21, 4, 638976)},
	} {
		got := simulate(t, tt.s).Info()
		require.False(t, ids[got.ID], "an id of its own")
		ids[got.ID] = true
		got.ID = 0
		require.Equal(t, tt.want, got)
	}
	all, err := m.Devices(ctx)
	require.NoError(t, err)
	require.Len(t, all, 1, "the CPU")
	require.Equal(t, 0, m.HardwareVersion(ctx))
	for want, s := range map[string]ipu.Simulation{
		`back end "cpu": invalid option: a="b": simulated devices of the cpu back end take no options`: {Options: opt("a", "b")},
		"it asks for -1 bytes for each tile": {BytesPerTile: -1},
	} {
		_, err := m.Simulate(ctx, s)
		require.ErrorContains(t, err, want)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = m.Simulate(cancelled, ipu.Simulation{})
	require.ErrorIs(t, err, context.Canceled)
}

// dense is y = x·w + c, with a weight of 64 × 64.
func dense(t testing.TB) *graph.Builder {
	b := graph.NewBuilder("dense")
	x, w := b.AddLocal("x", f32(8, 64)), b.AddPersistent("w", f32(64, 64))
	c := b.AddConst("c", f32(64), bytesOf(make([]float32, 64)))
	g := b.BeginGraph("main")
	y := node(t, b, &graph.Binary{Fn: graph.Add}, "add", node(t, b, &graph.MatMul{}, "product", x, w), c)
	b.AddProgram(0, "load", b.CopyIn("w", w))
	b.AddProgram(5, "main", b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y))
	return b
}

// TestProgramTooLargeForSimulatedIPU: to the byte, and the refused engine is not on the device.
//
// Feature 11.
func TestProgramTooLargeForSimulatedIPU(t *testing.T) {
	ctx := context.Background()
	const need = 64*64*4 + 64*4 + 2*8*64*4
	e, err := New(ipu.EngineConfig{Executable: executable(t, dense(t))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })

	d := simulate(t, ipu.Simulation{NumIPUs: 2, TilesPerIPU: 4, BytesPerTile: need / 8})
	require.NoError(t, e.Load(ctx, d))
	small := simulate(t, ipu.Simulation{BytesPerTile: need/4 - 1}.Small())
	err = e.Load(ctx, small)
	require.ErrorIs(t, err, ipu.ErrMemory)
	require.EqualError(t, err, `load the engine: out of memory: the program needs 20736 bytes (16384 of weights, 256 of constants, 4096 of activations where they are most, `+
		`in program 5 "main" at node "product" (MatMul)), and the device has 20732: IPUs 1 × tiles 4 × bytes 5183; the largest: weight "w" (f32[64,64], 16384 bytes), `+
		`activation "x" (f32[8,64], 2048 bytes), activation "product" (f32[8,64], 2048 bytes); take a device of more IPUs or tiles, or compile the model for a smaller batch`)
	require.ErrorIs(t, e.Run(ctx, 5), ipu.ErrNotLoaded)
	require.NoError(t, e.Load(ctx, simulate(t, ipu.Simulation{BytesPerTile: need / 4}.Small())), "it fits to the byte")
	require.NoError(t, e.Load(ctx, simulate(t, ipu.Simulation{})))
	load(t, e) // a CPU has no such limit
}

// TestSimulatedIPUHoldsOneEngine: another engine takes its place, detaching empties it.
func TestSimulatedIPUHoldsOneEngine(t *testing.T) {
	ctx := context.Background()
	d := simulate(t, ipu.Simulation{})
	var both [2]*Engine
	for i := range both {
		both[i] = newLoaded(t, dense(t))
		connect(t, both[i], map[string]ipu.Stream{"x": in(t, make([]float32, 8*64)), "y": out(t, make([]float32, 8*64)), "w": in(t, make([]float32, 64*64))})
		require.NoError(t, both[i].Load(ctx, d))
	}
	id := d.Info().ID
	require.EqualError(t, both[0].Run(ctx, 5), fmt.Sprintf("run program 5: engine not loaded: another engine was loaded onto device %d since", id))
	run(t, both[1], 5)
	require.NoError(t, d.Detach())
	require.EqualError(t, both[1].Run(ctx, 5), fmt.Sprintf("run program 5: engine not loaded: device %d was detached", id))
	require.ErrorIs(t, both[0].Load(ctx, d), ipu.ErrNotAttached)
	_, err := d.Attach()
	require.NoError(t, err)
	require.NoError(t, both[0].Load(ctx, d))
	run(t, both[0], 5)
	load(t, both[0])
	require.Nil(t, d.(*device).simulated.loaded.Load(), "it is on the CPU now")
	run(t, both[0], 5)
}

// lookingHost is a stream of numbers that counts how far a device looks ahead.
type lookingHost struct {
	next, complete int
	most           int // transfers beyond the one that is needed
	given          int // how many there are ahead of what has been answered
	calls          []string
	fail           error
}

func (h *lookingHost) give(buf []byte) {
	copy(buf, bytesOf([]float32{float32(h.next)}))
	h.next++
}

func (h *lookingHost) Fetch(_ context.Context, buf []byte) error {
	h.calls = append(h.calls, "fetch")
	h.give(buf)
	return h.fail
}

func (h *lookingHost) Prefetch(buf []byte) bool {
	if h.next >= h.given {
		h.calls = append(h.calls, "refused")
		return false
	}
	h.calls = append(h.calls, "prefetch")
	h.give(buf)
	h.most = max(h.most, h.next-h.complete)
	return true
}

func (h *lookingHost) Complete() { h.complete++ }

func (h *lookingHost) InvalidatePrefetched() {
	h.calls = append(h.calls, "invalidate")
	h.next = h.complete
}

// TestSimulatedLookAhead: a simulated device moves as many transfers ahead as the option says and the run will make, and no more; a caller who has the next input only
// when he has the output before it is not waited for. A CPU looks nowhere ahead.
//
// Feature 32.
func TestSimulatedLookAhead(t *testing.T) {
	const runs, transfers = 2, 6
	model := func(t testing.TB) *graph.Builder {
		b := graph.NewBuilder("negate")
		x := b.AddLocal("x", f32(1))
		g := b.BeginGraph("main")
		y := node(t, b, &graph.Unary{Fn: graph.Neg}, "neg", x)
		b.AddProgram(0, "main", b.Repeat(transfers, b.CopyIn("x", x), b.Call(g), b.CopyOut("y", y)))
		return b
	}
	for _, tt := range []struct {
		option    string
		simulated bool
		given     int
		most      int
	}{
		{"0", true, 100, 0},
		{"1", true, 100, 1},
		{"3", true, 100, 3},
		{"unlimited", true, 100, transfers - 1},
		{"100", true, 100, transfers - 1},
		{"unlimited", true, 4, 3},
		{"unlimited", true, 0, 0},
		{"unlimited", false, 100, 0},
	} {
		t.Run(fmt.Sprintf("%s of %d, simulated %v", tt.option, tt.given, tt.simulated), func(t *testing.T) {
			e := newLoaded(t, model(t), opt("streamCallbacks.maxLookahead", tt.option)...)
			if tt.simulated {
				require.NoError(t, e.Load(context.Background(), simulate(t, ipu.Simulation{})))
			}
			x := &lookingHost{given: tt.given}
			y, got := make([]float32, 1), []float32(nil)
			h := newHost(t, bytesOf(y))
			connect(t, e, map[string]ipu.Stream{"x": x, "y": drain{h}})
			h.onFetch = func() { got = append(got, y[0]) } // what the one before it left
			for range runs {
				run(t, e, 0)
			}
			got = append(got[1:], y[0])
			for i, v := range got {
				require.Equal(t, float32(-i), v)
			}
			require.Len(t, got, runs*transfers)
			require.Equal(t, tt.most, x.most)
			require.Equal(t, runs*transfers, x.complete)
			require.NotContains(t, x.calls, "invalidate")
			if tt.most == transfers-1 {
				require.Zero(t, testing.AllocsPerRun(3, func() {
					x.calls, got, x.given = x.calls[:0], got[:0], 1<<20
					_ = e.Run(context.Background(), 0)
				}))
			}
		})
	}
	t.Run("a run that fails", func(t *testing.T) {
		e := newLoaded(t, model(t))
		require.NoError(t, e.Load(context.Background(), simulate(t, ipu.Simulation{})))
		x, h := &lookingHost{given: 100}, newHost(t, make([]byte, 4))
		connect(t, e, map[string]ipu.Stream{"x": x, "y": drain{h}})
		h.err = fmt.Errorf("no room")
		require.ErrorContains(t, e.Run(context.Background(), 0), "no room")
		require.Equal(t, "invalidate", x.calls[len(x.calls)-1], "what was moved ahead comes again")
		require.Equal(t, 1, x.next)
		h.err, h.open = nil, false
		run(t, e, 0)
		require.Equal(t, 1+transfers, x.complete)
	})
	for _, bad := range []string{"", "-1", "all", "4294967296"} {
		_, err := parseOptions(opt("streamCallbacks.maxLookahead", bad))
		require.ErrorIs(t, err, ipu.ErrInvalidOption)
		require.ErrorContains(t, err, fmt.Sprintf(`streamCallbacks.maxLookahead=%q: want "unlimited" or how many transfers, 0 to 4294967295`, bad))
	}
}
