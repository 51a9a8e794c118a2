package rt_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/genrt"
)

// results are where samples' results go, filled with something that no run
// computes.
func results(n int) []YSample {
	y := make([]YSample, n)
	for i := range y {
		y[i].Data = -99
	}
	return y
}

// samples runs n samples in another goroutine.
func (g *gated) samples(ctx context.Context, n int, y []YSample) <-chan error {
	result := make(chan error, 1)
	x, _ := someSamples(1, n)
	go func() { result <- g.RunSamples(ctx, x, y) }()
	synctest.Wait()
	return result
}

// TestSamplesWait tells when a batch that is not full runs, to the moment.
func TestSamplesWait(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		policy rt.BatchPolicy
		want   time.Duration // the second caller comes after 6 ms
	}{
		"linger counts from the first":    {rt.BatchPolicy{Linger: 10 * ms}, 10 * ms},
		"quiet counts from the last":      {rt.BatchPolicy{Linger: rt.Forever, Quiet: 8 * ms}, 14 * ms},
		"whichever is over first, quiet":  {rt.BatchPolicy{Linger: 30 * ms, Quiet: 8 * ms}, 14 * ms},
		"whichever is over first, linger": {rt.BatchPolicy{Linger: 12 * ms, Quiet: 8 * ms}, 12 * ms},
	} {
		for _, leaves := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := openGated(t, rt.WithBatching(c.policy))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					began := time.Now()
					first := g.samples(ctx, 1, results(1))
					time.Sleep(6 * ms)
					second := g.samples(t.Context(), 1, results(1))
					if leaves {
						cancel()
						require.ErrorIs(t, <-first, context.Canceled)
					}
					<-g.started
					require.Equal(t, c.want, time.Since(began))
					g.proceed <- nil
					require.NoError(t, <-second)
					if !leaves {
						require.NoError(t, <-first)
					}
				})
			})
		}
	}
}

// TestSamplesOfFailures leaves results alone that were not computed: those of a
// batch that failed, and those of a caller that gave up.
func TestSamplesOfFailures(t *testing.T) {
	failure := errors.New("no")
	for _, indirect := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			g := openGated(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
			if indirect {
				copyBatches(&g.core)
			}
			one, two := g.samples(ctx, 1, results(1)), g.samples(ctx, 3, results(3))
			<-g.started
			g.proceed <- nil // the batch's memory has results of it from now on
			require.NoError(t, <-one)
			require.NoError(t, <-two)

			y, z := results(1), results(3)
			one, two = g.samples(ctx, 1, y), g.samples(ctx, 3, z)
			<-g.started
			g.proceed <- failure
			require.ErrorIs(t, <-one, failure)
			require.ErrorIs(t, <-two, failure)
			require.Equal(t, results(1), y)
			require.Equal(t, results(3), z)

			over, cancel := context.WithCancel(ctx)
			one = g.samples(over, 1, y)
			cancel()
			require.ErrorIs(t, <-one, context.Canceled)
			require.Equal(t, results(1), y)

			whole := results(2 * group)
			all := g.samples(ctx, 2*group, whole)
			<-g.started
			g.proceed <- failure
			require.ErrorIs(t, <-all, failure)
			require.Equal(t, results(2*group), whole, "nor does it go on")
		})
	}
}

// TestSamplesContext ends contexts while a batch computes: that of its only caller
// ends it, that of one of several does not.
func TestSamplesContext(t *testing.T) {
	for _, several := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := openGated(t, rt.WithBatching(rt.BatchPolicy{Linger: time.Millisecond}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leads := g.samples(ctx, 1, results(1))
			var other <-chan error
			if several {
				other = g.samples(t.Context(), 1, results(1))
			}
			<-g.started
			cancel()
			if several {
				synctest.Wait()
				g.proceed <- nil
				require.NoError(t, <-other)
				require.NoError(t, <-leads)
				return
			}
			require.ErrorIs(t, <-leads, context.Canceled)
		})
	}
}

// TestSamplesBound refuses callers with samples that would be too many, but for
// those who make the batch full.
func TestSamplesBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		g := openGated(t, rt.WithMaxWaiting(1), rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
		for range 2 { // the second time nothing of the first counts
			one, two := g.samples(ctx, 1, results(1)), g.samples(ctx, 1, results(1))
			require.ErrorIs(t, <-g.samples(ctx, 1, results(1)), rt.ErrOverloaded)
			full := g.samples(ctx, 2, results(2))
			<-g.started
			g.proceed <- nil
			require.NoError(t, <-one)
			require.NoError(t, <-two)
			require.NoError(t, <-full)
		}
	})
}

// TestSamplesLeaders has a caller that spans two batches wait for the engine with
// the first: whoever is in the second runs it when it is time.
func TestSamplesLeaders(t *testing.T) {
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			g := openGated(t, rt.WithBatching(rt.BatchPolicy{Linger: time.Millisecond}))
			first := g.run(t.Context(), 1)
			<-g.started
			ctx, cancel := context.WithCancel(t.Context())
			leads := g.samples(ctx, 2, results(2))
			spans := g.samples(t.Context(), 3, results(3))
			var other <-chan error
			if before {
				other = g.samples(t.Context(), 1, results(1))
			}
			cancel()
			require.ErrorIs(t, <-leads, context.Canceled)
			synctest.Wait()
			if !before {
				other = g.samples(t.Context(), 1, results(1))
			}
			time.Sleep(time.Second)
			synctest.Wait()
			require.Equal(t, 2, waiting(g.Session()), "both wait for the engine")
			g.proceed <- nil
			require.NoError(t, <-first)
			for range 2 {
				<-g.started
				g.proceed <- nil
			}
			require.NoError(t, <-spans)
			require.NoError(t, <-other)
		})
	}
}

// TestSamplesArguments refuses samples that do not fit together.
func TestSamplesArguments(t *testing.T) {
	ctx := t.Context()
	r := variants(t)[2].open(t)
	x, y := someSamples(0, 2)
	require.ErrorIs(t, r.RunSamples(ctx, x[:1], y), rt.ErrSamples)
	require.ErrorIs(t, r.RunSamples(ctx, x, y[:1]), rt.ErrSamples)
	require.ErrorIs(t, r.core.RunSamples(ctx, 1), rt.ErrReplica)
	require.ErrorIs(t, r.core.RunSamples(ctx, rt.LeastBusy, genrt.SamplesOf(x), genrt.SamplesOf(y), genrt.SamplesOf(y)), rt.ErrGenerated)
	var none genrt.Core
	require.ErrorIs(t, none.RunSamples(ctx, rt.LeastBusy, genrt.SamplesOf(x)), rt.ErrClosed)
	_, err := none.SubmitSamples(ctx, rt.LeastBusy, genrt.SamplesOf(x))
	require.ErrorIs(t, err, rt.ErrClosed)

	list := []genrt.Samples{genrt.SamplesOf(x), genrt.SamplesOf(y)}
	for range 2 { // what callers give stays theirs
		ticket, err := r.core.SubmitSamples(ctx, rt.LeastBusy, list...)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(ctx))
	}
	frozen := variants(t)[2].open(t, rt.WithData("h2d_x", floats(1, 2)))
	require.NoError(t, frozen.RunSamples(ctx, nil, y))
	require.ErrorIs(t, frozen.RunSamples(ctx, x[:1], y), rt.ErrSamples)
}

// TestSubmittedSamplesAreForgotten looks at what a runner keeps of submitted
// samples that have been computed.
func TestSubmittedSamplesAreForgotten(t *testing.T) {
	for _, v := range variants(t) {
		r := v.open(t)
		x, y := someSamples(0, group+1)
		ticket, err := r.SubmitSamples(context.Background(), x, y)
		require.NoError(t, err)
		require.NoError(t, ticket.Wait(context.Background()))
		slots := reflect.ValueOf(&r.core).Elem().FieldByName("submitted")
		used := 0
		for i := range slots.Len() {
			samples := slots.Index(i).FieldByName("samples")
			for k := range samples.Len() {
				used++
				require.True(t, samples.Index(k).FieldByName("Data").IsNil(), "slot %d", i)
			}
		}
		require.Equal(t, 2, used, "one slot had x and y")
		require.NoError(t, r.Close())
	}
}
