package state_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	state "github.com/popefgen/popefgen/golden/internal/family_state/want"
	samples "github.com/popefgen/popefgen/golden/internal/family_state_samples/want"
	"github.com/popefgen/popefgen/rt"
)

var ctx = context.Background()

func open(t *testing.T, opts ...rt.RunnerOption) *state.Runner {
	t.Helper()
	r, err := state.Open(ctx, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func streamOf(t *testing.T, r *state.Runner) *state.Stream {
	t.Helper()
	s, err := r.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// chunk returns a request of n positions that stream k makes as number i.
func chunk(k, i, n int) *state.StreamInputs {
	draw := rand.New(rand.NewPCG(uint64(k), uint64(i)))
	in := state.NewStreamInputs(n)
	for j := range n {
		for c := range 2 {
			in.X.At(0, j)[c] = draw.Float32() - 0.5
		}
		*in.Gain.At(0, 0, j) = draw.Float32()
	}
	return in
}

// TestChunks gives chunks of every length to two streams of one runner: each goes on from where it was, whatever
// size computed it before.
func TestChunks(t *testing.T) {
	r := open(t)
	streams := [2]*state.Stream{streamOf(t, r), streamOf(t, r)}
	var totals [2][2]float32
	out := state.NewStreamOutputs()
	for i, n := range []int{1, 8, 4, 3, 5, 8, 7, 2, 4} {
		for k, s := range streams {
			in := chunk(k, i, n)
			for j := range n {
				for c := range 2 {
					totals[k][c] += in.X.At(0, j)[c] * *in.Gain.At(0, 0, j)
				}
			}
			require.NoError(t, s.Run(ctx, in, out))
			require.Equal(t, []int{1, n}, []int{out.Y.Batch, out.Y.Len})
			for j := range n {
				for c := range 2 {
					require.InDelta(t, in.X.At(0, j)[c]+totals[k][c], out.Y.At(0, j)[c], 1e-5)
				}
			}
		}
	}
	saved := state.NewState()
	require.NoError(t, streams[0].State(saved))
	require.InDelta(t, totals[0][1], saved.Total.At(0)[0][1], 1e-5)
	require.NoError(t, streams[1].SetState(saved))
	require.NoError(t, streams[1].Run(ctx, state.NewStreamInputs(2), out))
	require.InDelta(t, totals[0][1], out.Y.At(0, 1)[1], 1e-5)
	require.NoError(t, streams[1].Reset())
	require.NoError(t, streams[1].Run(ctx, state.NewStreamInputs(2), out))
	require.Zero(t, out.Y.At(0, 1)[1])
}

// TestManyStreams has 64 streams make requests of all lengths at the same time: every result is, bit for bit, what
// the stream gets that is alone.
func TestManyStreams(t *testing.T) {
	const streams, steps = 64, 12
	want := make([][]*state.StreamOutputs, streams)
	alone := open(t)
	for k := range want {
		s := streamOf(t, alone)
		for i := range steps {
			out := state.NewStreamOutputs()
			require.NoError(t, s.Run(ctx, chunk(k, i, 1+(k+i)%8), out))
			want[k] = append(want[k], out)
		}
	}
	for _, c := range []struct {
		replicas int
		policy   rt.BatchPolicy
	}{{1, rt.BatchPolicy{}}, {1, rt.BatchPolicy{Linger: time.Millisecond}}, {2, rt.BatchPolicy{}}} {
		r := open(t, rt.WithReplicas(c.replicas), rt.WithBatching(c.policy))
		var all sync.WaitGroup
		for k := range streams {
			s := streamOf(t, r)
			all.Go(func() {
				out := state.NewStreamOutputs()
				for i := range steps {
					if err := s.Run(ctx, chunk(k, i, 1+(k+i)%8), out); err != nil {
						t.Error(err)
						return
					}
					if fmt.Sprint(out.Y.Flat()) != fmt.Sprint(want[k][i].Y.Flat()) {
						t.Errorf("stream %d, request %d: %v, want %v", k, i, out.Y.Flat(), want[k][i].Y.Flat())
					}
				}
			})
		}
		all.Wait()
		runs := uint64(0)
		for i := range c.replicas {
			runs += r.Replica(i).Stats().Requests
		}
		if c.policy.Linger > 0 {
			require.Less(t, runs, uint64(streams*steps*3/4), "streams that wait at the same time share runs")
		}
	}
}

// TestShared has four streams with chunks of different lengths wait for each other: one run computes them.
func TestShared(t *testing.T) {
	r := open(t, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	var all sync.WaitGroup
	for k := range 4 {
		s := streamOf(t, r)
		all.Go(func() {
			for i := range 10 {
				if err := s.Run(ctx, chunk(k, i, 5+k%3), state.NewStreamOutputs()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(10), r.Session().Stats().Requests)

	// A caller whose context ends leaves the others.
	late, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	first, others := streamOf(t, r), make([]*state.Stream, 4)
	go func() { ended <- first.Run(late, chunk(9, 0, 8), state.NewStreamOutputs()) }()
	for k := range others {
		others[k] = streamOf(t, r)
	}
	time.Sleep(10 * time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	for k, s := range others {
		all.Go(func() {
			if err := s.Run(ctx, chunk(k, 0, 8), state.NewStreamOutputs()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(11), r.Session().Stats().Requests)

	// Shutdown computes who waits, and lets nobody in any more.
	go func() { ended <- first.Run(ctx, chunk(9, 0, 8), state.NewStreamOutputs()) }()
	time.Sleep(10 * time.Millisecond)
	require.NoError(t, r.Shutdown(ctx))
	require.NoError(t, <-ended)
	require.ErrorIs(t, first.Run(ctx, chunk(9, 0, 8), state.NewStreamOutputs()), rt.ErrClosed)
}

// TestRefused gives streams what they can't take: the state stays as it was.
func TestRefused(t *testing.T) {
	r := open(t)
	s := streamOf(t, r)
	in, out := chunk(1, 0, 4), state.NewStreamOutputs()
	require.NoError(t, s.Run(ctx, in, out))
	before, after := state.NewState(), state.NewState()
	require.NoError(t, s.State(before))
	two := &state.StreamInputs{X: state.NewX(2, 4), Gain: state.NewGain(2, 4)}
	over, cancel := context.WithCancel(ctx)
	cancel()
	wrong := &state.State{Total: state.NewTotal(2)}
	for _, c := range []struct {
		err, want error
		text      string
	}{
		{s.Run(ctx, two, out), rt.ErrSize, "Inputs.X.Batch is 2, and a stream is one of them: give 1, and open a stream for each"},
		{s.Run(ctx, chunk(1, 1, 9), out), rt.ErrSize, `dimension "len" has the sizes 4 and 8`},
		{s.Run(ctx, &state.StreamInputs{X: state.NewX(1, 4), Gain: state.NewGain(1, 5)}, out), rt.ErrSize, `both are the dimension "len"`},
		{s.Run(over, in, out), context.Canceled, "run a stream"},
		{s.Run(ctx, nil, out), rt.ErrNilAnchor, "StreamInputs is nil"},
		{s.Run(ctx, in, nil), rt.ErrNilAnchor, "StreamOutputs is nil"},
		{s.Run(ctx, &state.StreamInputs{X: in.X}, out), rt.ErrNilAnchor, `StreamInputs.Gain is nil: anchor "gain"`},
		{s.State(nil), rt.ErrNilAnchor, "State is nil"},
		{s.SetState(&state.State{}), rt.ErrNilAnchor, "State.Total is nil"},
		{s.SetState(wrong), rt.ErrSize, "State.Total.Batch is 2, and that of a state is 1"},
		{new(state.Stream).Run(ctx, in, out), rt.ErrClosed, "NewStream makes one"},
		{new(state.Stream).Reset(), rt.ErrClosed, "NewStream makes one"},
	} {
		require.ErrorIs(t, c.err, c.want, c.text)
		require.ErrorContains(t, c.err, c.text)
	}
	require.NoError(t, s.State(after))
	require.Equal(t, before, after)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	for _, err := range []error{s.Run(ctx, in, out), s.Reset(), s.State(after), s.SetState(before)} {
		require.ErrorIs(t, err, rt.ErrClosed)
	}
}

// TestTwoCallers has a stream used by two callers at once: the second call fails.
func TestTwoCallers(t *testing.T) {
	var s *state.Stream
	errs := make(chan error, 5)
	r := open(t, rt.WithObserver(func(e rt.Event) {
		if e.Kind == rt.EventRequestBegun { // the first call is using it
			errs <- s.Run(ctx, chunk(0, 0, 4), state.NewStreamOutputs())
			errs <- s.Reset()
			errs <- s.State(state.NewState())
			errs <- s.SetState(state.NewState())
			errs <- s.Close()
		}
	}))
	s = streamOf(t, r)
	require.NoError(t, s.Run(ctx, chunk(0, 0, 4), state.NewStreamOutputs()))
	for range cap(errs) {
		require.ErrorIs(t, <-errs, rt.ErrConcurrent)
	}
	require.NoError(t, s.Reset(), "it is free again")
}

// TestSamples has streams that are samples, where the batch is all that is open.
func TestSamples(t *testing.T) {
	r, err := samples.Open(ctx, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	require.NoError(t, err)
	defer r.Close()
	var all sync.WaitGroup
	for k := range samples.BatchSize {
		s, err := r.NewStream()
		require.NoError(t, err)
		all.Go(func() {
			in, out := samples.NewStreamInputs(), samples.NewStreamOutputs()
			for i := range 20 {
				in.X.Data[1] = float32(k)
				if err := s.Run(ctx, in, out); err != nil {
					t.Error(err)
				}
				if want := float32(k * (i + 2)); out.Y.Data[1] != want {
					t.Errorf("stream %d, request %d: %v, want %v", k, i, out.Y.Data[1], want)
				}
			}
		})
	}
	all.Wait()
}
