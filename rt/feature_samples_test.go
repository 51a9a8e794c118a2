package rt_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// The model computes group samples in one run: two in each of two transfers.
const group = 4

// someSamples returns n samples that begin with seed, and memory for their
// results.
func someSamples(seed, n int) ([]XSample, []YSample) {
	x := make([]XSample, n)
	for i := range x {
		x[i].Data = float32(seed + i)
	}
	return x, make([]YSample, n)
}

// checkSamples checks results: the weights alternate with the place in a
// transfer, so that sample i, computed as sample from of a run, is at an even
// or an odd place.
func checkSamples(t *testing.T, x []XSample, y []YSample, from int) {
	t.Helper()
	for i := range x {
		want := 2*x[i].Data + 10
		if (from+i)%2 == 1 {
			want = 3*x[i].Data + 20
		}
		if y[i].Data != want {
			t.Errorf("sample %d of %d: got %v, want %v", i, len(x), y[i].Data, want)
		}
	}
}

// Feature 75.
func TestDynamicBatch(t *testing.T) {
	ctx := context.Background()
	_, device := tested(t, 1)
	for _, v := range append(variants(t), device) {
		opts := []rt.RunnerOption{}
		if v.backend == "" {
			sys, _ := tested(t, 1)
			opts = append(opts, rt.WithManager(sys.Manager()))
		}
		var seen events
		r := v.open(t, append(opts, rt.WithObserver(seen.observe))...)
		for n, runs := range map[int]uint64{0: 0, 1: 1, 3: 1, 4: 1, 7: 2, 8: 2, 9: 3} {
			before := r.Session().Stats().Requests
			x, y := someSamples(1, n)
			require.NoError(t, r.RunSamples(ctx, x, y))
			checkSamples(t, x, y, 0)
			require.Equal(t, runs, r.Session().Stats().Requests-before, "%d samples", n)
			flushed := 0
			for _, e := range seen.all {
				if e.Kind == rt.EventFlushed {
					flushed++
					require.Equal(t, n%group, e.Samples)
				}
			}
			require.Equal(t, n%group != 0, flushed == 1)
			seen.all = nil
		}
		require.NoError(t, r.Close())
	}
}

// TestSamplesOfCallersMerge makes one run of the samples of several callers.
//
// Feature 75.
func TestSamplesOfCallersMerge(t *testing.T) {
	ctx := context.Background()
	for _, v := range variants(t) {
		r := v.open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
		var all sync.WaitGroup
		sum := 0
		for seed, n := range []int{1, 2, 1} {
			from := sum
			all.Go(func() {
				x, y := someSamples(10*seed, n)
				if err := r.RunSamples(ctx, x, y); err != nil {
					t.Error(err)
				}
				checkSamples(t, x, y, from)
			})
			sum += n
			require.Eventually(t, func() bool { return gathered(&r.core) == sum%group }, 5*time.Second, 10*time.Microsecond)
		}
		all.Wait()
		require.EqualValues(t, 1, r.Session().Stats().Requests)
		require.NoError(t, r.Close())
	}
}

// TestSamplesStress lets many callers give any number of samples at a time.
//
// Feature 75.
func TestSamplesStress(t *testing.T) {
	for name, policy := range map[string]rt.BatchPolicy{
		"at once": {},
		"linger":  {Linger: 200 * time.Microsecond},
		"quiet":   {Linger: rt.Forever, Quiet: 100 * time.Microsecond},
	} {
		for _, v := range variants(t) {
			t.Run(name+"/"+v.name, func(t *testing.T) {
				// The same weights at every place, since callers can't know theirs.
				r := v.open(t, rt.WithBatching(policy), rt.WithReplicas(2), rt.WithReplicaDevices(twoDevices(v)),
					rt.WithData("h2d_w", floats(2, 2)), rt.WithData("h2d_b", floats(1, 1)))
				var all sync.WaitGroup
				for id := range 8 {
					all.Go(func() {
						for round := range 60 {
							x, y := someSamples(1000*id+round, (id+round)%11)
							ctx, cancel := context.WithCancel(context.Background())
							if round%7 == 3 { // some give up
								ctx, cancel = context.WithTimeout(ctx, time.Duration(round)*time.Microsecond)
							}
							err := r.RunSamples(ctx, x, y)
							if ctx.Err() == nil && err != nil {
								t.Error(err)
							}
							cancel()
							if err != nil {
								continue
							}
							for i := range x {
								if y[i].Data != 2*x[i].Data+1 {
									t.Errorf("got %v for %v", y[i].Data, x[i].Data)
									return
								}
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}

// Feature 74.
func TestFixedBatch(t *testing.T) {
	ctx := context.Background()
	r := variants(t)[2].open(t, rt.WithBatching(rt.BatchPolicy{Fixed: true}))
	for n := range 3*group + 1 {
		x, y := someSamples(0, n)
		err := r.RunSamples(ctx, x, y)
		if n%group != 0 {
			require.ErrorIs(t, err, rt.ErrSamples)
			require.ErrorContains(t, err, "want a multiple of 4")
			continue
		}
		require.NoError(t, err)
		checkSamples(t, x, y, 0)
	}
	for _, p := range []rt.BatchPolicy{{Linger: -2}, {Quiet: -1}} {
		_, err := Open(ctx, affineSpec(t), &LoadInputs{B: new(B)}, genrt.Source{}, rt.WithBatching(p))
		require.ErrorIs(t, err, rt.ErrOption)
	}
}

// Feature 72.
func TestBatchLinger(t *testing.T) {
	const linger = 30 * time.Millisecond
	r := variants(t)[2].open(t, rt.WithBatching(rt.BatchPolicy{Linger: linger}))
	x, y := someSamples(5, 3)
	start := time.Now()
	require.NoError(t, r.RunSamples(context.Background(), x, y))
	require.GreaterOrEqual(t, time.Since(start), linger, "it waits for a fourth sample")
	checkSamples(t, x, y, 0)

	// Without a limit it waits until the caller gives up.
	r = variants(t)[2].open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	ctx, cancel := context.WithTimeout(context.Background(), linger)
	defer cancel()
	x, y = someSamples(5, 3)
	require.ErrorIs(t, r.RunSamples(ctx, x, y), context.DeadlineExceeded)
	require.Zero(t, r.Session().Stats().Requests)
	// What was given up has left no trace.
	x, y = someSamples(5, group)
	require.NoError(t, r.RunSamples(context.Background(), x, y), "a full batch waits for nothing")
	checkSamples(t, x, y, 0)
}

// Feature 77.
func TestIdleIsQuiet(t *testing.T) {
	r := variants(t)[2].open(t, rt.WithBatching(rt.BatchPolicy{Linger: time.Millisecond}))
	time.Sleep(20 * time.Millisecond)
	require.Zero(t, r.Session().Stats().Requests)
	x, y := someSamples(1, 1)
	require.NoError(t, r.RunSamples(context.Background(), x, y))
	time.Sleep(20 * time.Millisecond)
	require.EqualValues(t, 1, r.Session().Stats().Requests, "a batch is run for who waits for it, and no other")
}

// TestLingerAndQuiet has samples come every 10 ms: the batch ends when
// none has come for Quiet, or Linger after the first.
//
// Feature 78.
func TestLingerAndQuiet(t *testing.T) {
	const pause = 10 * time.Millisecond
	for _, c := range []struct {
		policy rt.BatchPolicy
		many   bool // several runs for four samples
	}{
		{rt.BatchPolicy{Linger: rt.Forever, Quiet: 50 * pause}, false},
		{rt.BatchPolicy{Linger: rt.Forever, Quiet: pause / 10}, true},
		{rt.BatchPolicy{Linger: 50 * pause, Quiet: pause / 10}, true},
		{rt.BatchPolicy{Linger: pause / 10, Quiet: 50 * pause}, true},
		{rt.BatchPolicy{Linger: 50 * pause}, false},
	} {
		r := variants(t)[2].open(t, rt.WithBatching(c.policy))
		var all sync.WaitGroup
		for range group {
			all.Go(func() {
				x, y := someSamples(1, 1)
				if err := r.RunSamples(context.Background(), x, y); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(pause)
		}
		all.Wait()
		require.Equal(t, c.many, r.Session().Stats().Requests > 1, "%+v", c.policy)
		require.NoError(t, r.Close())
	}
}

// TestSamplesErrors lets a run fail whose samples are of several callers.
func TestSamplesErrors(t *testing.T) {
	ctx := context.Background()
	script := affineScript()
	bad := context.DeadlineExceeded // any error
	main := script.programs[mainProgram]
	script.programs[mainProgram] = func(context.Context, *engine) error { return bad }
	r := fakeAffine(t, "failing", script).open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			x, y := someSamples(0, group/2)
			if err := r.RunSamples(ctx, x, y); err == nil {
				t.Error("no error")
			}
		})
	}
	all.Wait()
	script.programs[mainProgram] = main
	x, y := someSamples(0, 2*group)
	require.NoError(t, r.RunSamples(ctx, x, y))
	checkSamples(t, x, y, 0)

	// The one that leads gives up: another one leads.
	waiting := make(chan error)
	soon, cancel := context.WithCancel(ctx)
	go func() {
		x, y := someSamples(0, 1)
		waiting <- r.RunSamples(soon, x, y)
	}()
	require.Eventually(t, func() bool { return gathered(&r.core) == 1 }, 5*time.Second, 10*time.Microsecond)
	go func() {
		x, y := someSamples(0, 2)
		err := r.RunSamples(ctx, x, y)
		checkSamples(t, x, y, 1)
		waiting <- err
	}()
	require.Eventually(t, func() bool { return gathered(&r.core) == 3 }, 5*time.Second, 10*time.Microsecond)
	cancel()
	require.ErrorIs(t, <-waiting, context.Canceled)
	x, y = someSamples(0, 1)
	require.NoError(t, r.RunSamples(ctx, x, y))
	checkSamples(t, x, y, 3)
	require.NoError(t, <-waiting)

	// Close ends those who wait for more samples.
	go func() {
		x, y := someSamples(0, 1)
		waiting <- r.RunSamples(ctx, x, y)
	}()
	require.Eventually(t, func() bool { return gathered(&r.core) == 1 }, 5*time.Second, 10*time.Microsecond)
	require.NoError(t, r.Close())
	require.ErrorIs(t, <-waiting, rt.ErrClosed)
	require.ErrorIs(t, r.RunSamples(ctx, make([]XSample, 4), make([]YSample, 4)), rt.ErrClosed)
}

// TestSamplesLayout has samples in the second dimension: a transfer has blocks
// that each have a part of every sample.
func TestSamplesLayout(t *testing.T) {
	spec := affineSpec(t)
	spec.Batch = 1
	for i := range spec.Anchors {
		if spec.Anchors[i].Blocks > 0 {
			spec.Anchors[i].Blocks = 2 // the two elements of x are one sample's
		}
	}
	v := variants(t)[2]
	r, err := Open(context.Background(), spec, &LoadInputs{B: &B{[2]float32{10, 20}}}, genrt.Source{Name: "affine.popef", Bytes: v.model}, rt.WithBackend(portable))
	require.NoError(t, err)
	defer r.Close()
	x := []X{{[2]float32{1, 2}}, {[2]float32{3, 4}}, {[2]float32{5, 6}}}
	y := make([]Y, 3)
	require.NoError(t, r.core.RunSamples(context.Background(), rt.LeastBusy, genrt.SamplesOf(x), genrt.SamplesOf(y)))
	require.Equal(t, []Y{{[2]float32{12, 26}}, {[2]float32{16, 32}}, {[2]float32{20, 38}}}, y)

	spec.Anchors[1].Blocks = 3
	_, err = Open(context.Background(), spec, &LoadInputs{B: new(B)}, genrt.Source{Name: "affine.popef", Bytes: v.model}, rt.WithBackend(portable))
	require.ErrorIs(t, err, rt.ErrGenerated)
}

// TestFlushIsReported tells the observer once of a batch that is run
// before it is full; which tensors are padded follows from the model.
//
// Feature 79.
func TestFlushIsReported(t *testing.T) {
	var seen events
	r := variants(t)[2].open(t, rt.WithObserver(seen.observe), rt.WithBatching(rt.BatchPolicy{Linger: time.Millisecond}))
	seen.kinds()
	x, y := someSamples(1, group+3)
	require.NoError(t, r.RunSamples(context.Background(), x, y))
	checkSamples(t, x, y, 0)
	require.Equal(t, 3, seen.all[2].Samples)
	require.Equal(t, []rt.EventKind{rt.EventRequestBegun, rt.EventRequestDone, rt.EventFlushed, rt.EventRequestBegun, rt.EventRequestDone}, seen.kinds())
}
