package rt_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/iputest"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// tested is a system of n test devices and the test model's portable
// executable.
func tested(t *testing.T, n int) (*testSystem, variant) {
	t.Helper()
	sys := newSystem(iputest.Config{Devices: make([]ipu.DeviceInfo, n)})
	t.Cleanup(func() { require.Empty(t, sys.Violations()) })
	return sys, variant{"device", "", file(t, affineMetadata(), affinePortable(t), affineData), nil}
}

// compute makes one request and checks its result.
func compute(t *testing.T, r *Runner, seed float32) {
	t.Helper()
	in, out := NewInputs(), NewOutputs()
	fill(in, seed)
	require.NoError(t, r.Run(context.Background(), in, out))
	require.Equal(t, want(seed), out.Y)
}

// Feature 66.
func TestOpenFindsDeviceAndLoads(t *testing.T) {
	sys, v := tested(t, 1)
	compute(t, v.open(t, rt.WithManager(sys.Manager())), 1)

	// From a path, from several, and from another model of the same contract.
	dir := t.TempDir()
	path := filepath.Join(dir, "whole.popef")
	require.NoError(t, os.WriteFile(path, v.model, 0o644))
	program, weights := writeParts(t, dir)
	for _, from := range []struct {
		source genrt.Source
		opts   []rt.RunnerOption
	}{
		{genrt.Source{Path: path}, nil},
		{genrt.Source{Path: filepath.Join(dir, "absent")}, []rt.RunnerOption{rt.WithModelFile(program, weights)}},
		{genrt.Source{Path: filepath.Join(dir, "absent")}, []rt.RunnerOption{rt.WithModelBytes(v.model)}},
	} {
		r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: &B{[2]float32{10, 20}}}, from.source, append(from.opts, rt.WithBackend(portable))...)
		require.NoError(t, err)
		compute(t, r, 2)
		require.NoError(t, r.Close())
	}

	// Waiting and the hash check are forwarded.
	sys, v = tested(t, 1)
	sys.OccupyFor(0, 30*time.Second)
	open := func(opts ...rt.RunnerOption) error {
		r, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model},
			append(opts, rt.WithManager(sys.Manager()))...)
		if err == nil {
			err = r.Close()
		}
		return err
	}
	require.ErrorIs(t, open(), ipu.ErrNoDevice)
	require.NoError(t, open(rt.WithWait(ipu.Wait{Strategy: ipu.WaitForever})))
	require.Len(t, sys.Clock().Slept(), 2)
	script := affineScript()
	script.hash = true
	hashed := fakeAffine(t, "hashed", script)
	_, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: hashed.model}, rt.WithBackend(fakeName))
	require.ErrorIs(t, err, ipu.ErrPackageHash)
	hashed.open(t, rt.SkipHashCheck())
}

// Feature 67.
func TestReplicas(t *testing.T) {
	ctx := context.Background()
	sys, v := tested(t, 3)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(3))
	for i := range 3 {
		require.Equal(t, i, r.Replica(i).Device().Info().ID, "a device for each")
		in, out := NewInputs(), NewOutputs()
		fill(in, float32(i))
		require.NoError(t, r.RunOn(ctx, i, in, out))
		require.Equal(t, want(float32(i)), out.Y)
		ticket, err := r.SubmitOn(ctx, i, in, out)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
		require.EqualValues(t, 2, r.Replica(i).Stats().Requests)
	}
	require.Nil(t, r.Replica(3))
	for _, i := range []int{3, -2} {
		require.ErrorIs(t, r.RunOn(ctx, i, NewInputs(), NewOutputs()), rt.ErrReplica)
		_, err := r.SubmitOn(ctx, i, NewInputs(), NewOutputs())
		require.ErrorIs(t, err, rt.ErrReplica)
		require.ErrorIs(t, r.SaveOn(ctx, i, &SaveOutputs{W: new(W)}), rt.ErrReplica)
	}
	// A state belongs to its replica.
	require.NoError(t, r.Replica(1).UpdateWeights(ctx, rt.Weight{Anchor: "h2d_w", Data: floats(7, 7)}))
	for i, want := range [][2]float32{{2, 3}, {7, 7}, {2, 3}} {
		var w W
		require.NoError(t, r.SaveOn(ctx, i, &SaveOutputs{W: &w}))
		require.Equal(t, want, w.Data)
	}
	require.NoError(t, r.Close())
	for i := range 3 {
		require.False(t, sys.Attached(i))
	}
	_, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model},
		rt.WithManager(sys.Manager()), rt.WithReplicas(4))
	require.ErrorIs(t, err, ipu.ErrNoDevice, "three devices")
	for i := range 3 {
		require.False(t, sys.Attached(i), "all or none")
	}
}

// TestLeastBusy blocks replicas one after the other: each request
// goes to one that is free.
//
// Feature 67.
func TestLeastBusy(t *testing.T) {
	ctx := context.Background()
	const n = 3
	script := affineScript()
	started, proceed := make(chan *engine, n+1), make(chan struct{})
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		started <- e
		<-proceed
		return main(ctx, e)
	}
	devices := map[int]ipu.Device{0: mine(), 1: mine(), 2: mine()}
	r := fakeAffine(t, "busy", script).open(t, rt.WithReplicas(n), rt.WithReplicaDevices(devices))
	var tickets []rt.Ticket
	engines := map[*engine]bool{}
	for range n {
		ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
		require.NoError(t, err)
		tickets = append(tickets, ticket)
		engines[<-started] = true
	}
	require.Len(t, engines, n, "no request waits while a replica is free")
	ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
	require.NoError(t, err)
	close(proceed)
	for _, ticket := range append(tickets, ticket) {
		require.NoError(t, ticket.Wait(ctx))
	}
}

// Feature 68.
func TestReplicaDevices(t *testing.T) {
	sys, v := tested(t, 3)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(3), rt.WithReplicaDevices(map[int]ipu.Device{0: sys.Device(2), 2: sys.Device(0)}))
	for i, id := range []int{2, 1, 0} {
		require.Equal(t, id, r.Replica(i).Device().Info().ID)
	}
	require.NoError(t, r.Close())
	require.True(t, sys.Attached(2), "a chosen device is the caller's")
	require.False(t, sys.Attached(1))
	d := mine()
	for _, opts := range [][]rt.RunnerOption{
		{rt.WithReplicas(0)}, {rt.WithReplicas(1 << 20)}, {rt.WithReplicas(2), rt.SingleCaller()}, {rt.WithMaxWaiting(-1)},
		{rt.WithReplicas(2), rt.WithReplicaDevices(map[int]ipu.Device{2: d})},
		{rt.WithReplicas(2), rt.WithReplicaDevices(map[int]ipu.Device{0: nil})},
		{rt.WithReplicas(2), rt.WithDevice(d)},
		{rt.WithReplicas(2), rt.WithDeviceID(1)},
	} {
		_, err := Open(context.Background(), affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model}, opts...)
		require.ErrorIs(t, err, rt.ErrOption)
	}
}

// Feature 69.
func TestThreadSafety(t *testing.T) {
	for _, opts := range [][]rt.RunnerOption{{}, {rt.WithReplicas(2)}} {
		sys, v := tested(t, 2)
		r := v.open(t, append(opts, rt.WithManager(sys.Manager()))...)
		var group sync.WaitGroup
		for id := range 64 {
			group.Go(func() {
				in, out := NewInputs(), NewOutputs()
				for round := range 20 {
					seed := float32(100*id + round)
					fill(in, seed)
					if err := r.Run(context.Background(), in, out); err != nil {
						t.Error(err)
						return
					}
					if *out.Y != *want(seed) {
						t.Errorf("got %v, want %v", *out.Y, *want(seed))
					}
				}
			})
		}
		group.Wait()
		require.NoError(t, r.Close())
	}
	// Off, overlapping calls are refused: see TestConcurrentIsRefused.
}

// Feature 70.
func TestFrozenInputs(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		r := v.open(t, rt.WithData("h2d_w", floats(-1, 1)), FreezeX(&X{[2]float32{4, 5}}))
		out := NewOutputs()
		both := [2]Y{{[2]float32{6, 25}}, {[2]float32{6, 25}}}
		require.NoError(t, r.Run(ctx, &Inputs{}, out), "Inputs.X may be nil")
		require.Equal(t, both, *out.Y, "frozen values override the file's and the request's")
		*out = *NewOutputs()
		ticket, err := r.Submit(ctx, NewInputs(), out)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
		require.Equal(t, both, *out.Y)
		y := make([]YSample, 3)
		require.NoError(t, r.RunSamples(ctx, nil, y))
		require.Equal(t, []YSample{{6}, {25}, {6}}, y)
		for range 2 { // it stays a frozen input
			require.NoError(t, r.UpdateWeights(ctx, rt.Weight{Anchor: "x", Data: floats(1, 1)}))
			require.NoError(t, r.Run(ctx, &Inputs{}, out))
			require.Equal(t, [2]Y{{[2]float32{9, 21}}, {[2]float32{9, 21}}}, *out.Y)
		}
	}
	v := variants(t)[2]
	for _, c := range []struct {
		opt  rt.Option
		is   error
		text string
	}{
		{rt.WithData("nothing", floats(1, 2)), rt.ErrUnknownStream, `"nothing"`},
		{rt.WithData("y", floats(1, 2)), rt.ErrUnknownStream, `"y"`},
		{rt.WithData("w", floats(1)), rt.ErrData, "4 bytes, want 8"},
	} {
		_, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model}, rt.WithBackend(portable), c.opt)
		require.ErrorIs(t, err, c.is)
		require.ErrorContains(t, err, c.text)
	}
}

// Feature 71.
func TestSaveAtClose(t *testing.T) {
	sys, v := tested(t, 2)
	r := v.open(t, rt.WithManager(sys.Manager()), rt.WithReplicas(2))
	var w [2]W
	for i := range w {
		require.NoError(t, r.SaveAtClose(context.Background(), i, &SaveOutputs{W: &w[i]}))
	}
	require.ErrorIs(t, r.SaveAtClose(context.Background(), 2, &SaveOutputs{W: new(W)}), rt.ErrReplica)
	require.ErrorIs(t, r.SaveAtClose(context.Background(), 0, &SaveOutputs{}), rt.ErrNilAnchor)
	require.NoError(t, r.Replica(1).UpdateWeights(context.Background(), rt.Weight{Anchor: "w", Data: floats(8, 9)}))
	require.NoError(t, r.Close())
	require.Equal(t, [2]W{{[2]float32{2, 3}}, {[2]float32{8, 9}}}, w)

	// Without it nothing is saved.
	sys, v = tested(t, 1)
	r = v.open(t, rt.WithManager(sys.Manager()))
	compute(t, r, 1)
	require.NoError(t, r.Close())
	for _, e := range sys.Events(iputest.EventRun) {
		require.NotEqual(t, saveProgram, e.Program)
	}

	// What can't be saved is reported.
	r = variants(t)[2].open(t)
	require.NoError(t, r.SaveAtClose(context.Background(), 0, &SaveOutputs{W: new(W)}))
	require.NoError(t, r.Session().Stop())
	err := r.core.Close()
	require.ErrorIs(t, err, rt.ErrStopped)
	r.core = genrt.Core{}
}

// Feature 73.
func TestCallsCheckInputs(t *testing.T) {
	// Names, types and sizes are Go's to check. What is left is nil memory, in
	// TestNilAnchors, and slices of any length:
	_, err := XFrom(make([]float32, 3))
	require.ErrorIs(t, err, rt.ErrLength)
	r := variants(t)[2].open(t)
	err = r.RunSamples(context.Background(), make([]XSample, 3), make([]YSample, 2))
	require.ErrorIs(t, err, rt.ErrSamples)
	require.ErrorContains(t, err, `3 of "x", but 2 of "y"`)
}

// Feature 76.
func TestBackPressure(t *testing.T) {
	g := openGated(t)
	for i := range QueueDepth {
		g.submit(t, float32(i))
	}
	_, err := g.TrySubmit(NewInputs(), NewOutputs())
	require.ErrorIs(t, err, rt.ErrQueueFull, "at the depth that the package was generated with")
	<-g.started
	require.NoError(t, g.Close())
}

// Feature 80.
func TestFlavoursOfRequest(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		r := v.open(t)
		in := NewInputs()
		fill(in, 3)
		own := [2]Y{}
		outs := []*Outputs{NewOutputs(), {Y: &own}, NewOutputs(), {Y: new([2]Y)}}
		require.NoError(t, r.Run(ctx, in, outs[0]))
		require.NoError(t, r.Run(ctx, in, outs[1]))
		for _, out := range outs[2:] {
			ticket, err := r.Submit(ctx, in, out)
			require.NoError(t, err)
			require.NoError(t, ticket.Wait(ctx))
		}
		for _, out := range outs {
			require.Equal(t, want(3), out.Y)
		}
	}
}

// Feature 81.
func TestAnchorDescriptions(t *testing.T) {
	r := variants(t)[2].open(t)
	var got []string
	for _, a := range r.Session().Contract().Anchors {
		size, err := a.Info.SizeInBytes()
		require.NoError(t, err)
		require.EqualValues(t, 8, size)
		got = append(got, a.Name+" "+a.Role.String()+" "+a.Info.String()+map[bool]string{true: " in file"}[a.HasData])
	}
	slices.Sort(got)
	require.Equal(t, []string{"b load input F32 [2]", "w load data F32 [2] in file", "w save output F32 [2]",
		"x run input F32 [2]", "y run output F32 [2]"}, got)
	require.Equal(t, contract.RunInput, genrt.RunInput)
}

// Feature 82.
func TestMemoryViews(t *testing.T) {
	mem := []float32{1, 2}
	x, err := XFrom(mem)
	require.NoError(t, err)
	x.Flat()[1] = 9
	require.Equal(t, []float32{1, 9}, mem, "a view of the same memory")
	copied := *x
	x.Data[0] = 5
	require.Equal(t, [2]float32{1, 9}, copied.Data, "a value of its own outlives what it came from")
}

// Feature 83.
func TestTimeTrace(t *testing.T) {
	script := affineScript()
	const slow = 5 * time.Millisecond
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		time.Sleep(slow)
		return main(ctx, e)
	}
	ctx := context.Background()
	r := fakeAffine(t, "trace", script).open(t, rt.Timed())
	var tickets []rt.Ticket
	for range 3 {
		ticket, err := r.Submit(ctx, NewInputs(), NewOutputs())
		require.NoError(t, err)
		tickets = append(tickets, ticket)
	}
	for _, ticket := range tickets {
		require.NoError(t, ticket.Wait(ctx))
	}
	require.NoError(t, r.Session().Reload(ctx))
	compute(t, r, 1)
	traces := r.Session().Traces()
	require.Len(t, traces, 4)
	for i, trace := range traces {
		require.EqualValues(t, i+1, trace.Request)
		require.Equal(t, trace.Total, trace.Queue+trace.Preparation+trace.Computation)
		require.GreaterOrEqual(t, trace.Computation, slow)
	}
	require.GreaterOrEqual(t, traces[2].Queue, slow, "two requests were before it")
	require.Greater(t, traces[3].Preparation, time.Duration(0), "the load programs ran")
	for range 300 {
		script.programs[mainProgram] = main
		compute(t, r, 1)
	}
	traces = r.Session().Traces()
	require.Len(t, traces, 256, "memory is fixed")
	require.EqualValues(t, 304, traces[255].Request)
	require.Empty(t, variants(t)[2].open(t).Session().Traces(), "nothing without Timed")
}

// Feature 84.
func TestPercentiles(t *testing.T) {
	var d [1000]time.Duration
	for i := range d {
		d[i] = time.Duration(i+1) * time.Microsecond
	}
	got := describe(d[:]...)
	require.EqualValues(t, 1000, got.Count)
	require.Equal(t, 500500*time.Nanosecond, got.Mean)
	require.Equal(t, time.Microsecond, got.Min)
	require.Equal(t, time.Millisecond, got.Max)
	for q, want := range map[float64]time.Duration{0.5: 500, 0.9: 900, 0.99: 990, 0: 1, 1: 1000} {
		require.InEpsilon(t, want*time.Microsecond, got.Percentile(q), 0.016, "%v", q)
	}
	require.Equal(t, got.P90, got.Percentile(0.9))
	require.Equal(t, rt.Distribution{}.Count, describe().Count)
	for _, one := range []time.Duration{0, 1, 31, 32, 33, 63, 64, 1 << 40, 1<<62 - 1} {
		got := describe(one)
		require.Equal(t, one, got.P50, "exact at the ends")
		require.Equal(t, one, got.Mean)
	}

	r := variants(t)[0].open(t, rt.Timed())
	for range 10 {
		compute(t, r, 1)
	}
	s := r.Session().Stats()
	for _, d := range []rt.Distribution{s.Request, s.Queue, s.Preparation, s.Computation} {
		require.EqualValues(t, 10, d.Count)
	}
	require.InDelta(t, s.Request.Mean, s.Queue.Mean+s.Preparation.Mean+s.Computation.Mean, 4)
}
