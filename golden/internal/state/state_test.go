package state_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	state "github.com/popefgen/popefgen/golden/internal/state/want"
	samples "github.com/popefgen/popefgen/golden/internal/state_samples/want"
	"github.com/popefgen/popefgen/rt"
)

// TestStreams lets two streams of one runner take turns: each goes on from where it was, and
// what a caller saved goes on in another one.
func TestStreams(t *testing.T) {
	ctx := context.Background()
	r, err := state.Open(ctx, rt.WithReplicas(2))
	require.NoError(t, err)
	defer r.Close()
	a, err := r.NewStream()
	require.NoError(t, err)
	b, err := r.NewStream()
	require.NoError(t, err)
	in, out := state.NewStreamInputs(), state.NewStreamOutputs()
	step := func(s *state.Stream, x float32) float32 {
		t.Helper()
		in.X.Data[1][2] = x
		require.NoError(t, s.Run(ctx, in, out))
		return out.Y.Data[1][2]
	}
	require.Equal(t, float32(2), step(a, 1))
	require.Equal(t, float32(20), step(b, 10))
	require.Equal(t, float32(6), step(a, 2))
	require.Equal(t, float32(60), step(b, 20))

	saved := state.NewState()
	require.NoError(t, a.State(saved))
	require.Equal(t, float32(3), saved.Total.Data[1][2])
	require.Equal(t, float32(12), step(a, 3))
	require.Equal(t, float32(3), saved.Total.Data[1][2], "it is a copy")
	saved.Steps.Data = 1
	require.NoError(t, b.SetState(saved))
	require.Equal(t, float32(12), step(b, 3))
	require.NoError(t, b.State(saved))
	require.Equal(t, float32(2), saved.Steps.Data)
	require.NoError(t, a.Reset())
	require.Equal(t, float32(2), step(a, 1))

	// A request of one's own, whose state the caller keeps: the types are the same.
	one, two := state.NewInputs(), state.NewOutputs()
	two.Total = one.Total // in place
	one.X.Data[0][0] = 5
	require.NoError(t, r.Run(ctx, one, two))
	require.Equal(t, float32(5), one.Total.Data[0][0])

	require.NoError(t, a.Close())
	require.NoError(t, a.Close())
	require.ErrorIs(t, a.Run(ctx, in, out), rt.ErrClosed)
	require.ErrorIs(t, a.Reset(), rt.ErrClosed)
	require.NoError(t, r.Close())
	require.ErrorIs(t, b.Run(ctx, in, out), rt.ErrClosed)
	_, err = r.NewStream()
	require.ErrorIs(t, err, rt.ErrClosed)
	require.ErrorIs(t, new(state.Stream).Run(ctx, in, out), rt.ErrClosed)
}

// TestStreamThatFails makes requests that fail: the state stays as it was.
func TestStreamThatFails(t *testing.T) {
	ctx := context.Background()
	r, err := state.Open(ctx)
	require.NoError(t, err)
	defer r.Close()
	s, err := r.NewStream()
	require.NoError(t, err)
	in, out := state.NewStreamInputs(), state.NewStreamOutputs()
	in.X.Data[0][0] = 1
	require.NoError(t, s.Run(ctx, in, out))
	over, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.Run(over, in, out), context.Canceled)
	require.ErrorIs(t, s.Run(ctx, nil, out), rt.ErrNilAnchor)
	require.ErrorIs(t, s.Run(ctx, in, nil), rt.ErrNilAnchor)
	require.ErrorIs(t, s.Run(ctx, &state.StreamInputs{}, out), rt.ErrNilAnchor)
	require.ErrorIs(t, s.State(nil), rt.ErrNilAnchor)
	require.ErrorIs(t, s.SetState(&state.State{Total: new(state.Total)}), rt.ErrNilAnchor)
	require.NoError(t, s.Run(ctx, in, out))
	require.Equal(t, float32(4), out.Y.Data[0][0])

	frozen, err := state.Open(ctx, state.FreezeTotal(new(state.Total)))
	require.NoError(t, err)
	defer frozen.Close()
	_, err = frozen.NewStream()
	require.ErrorIs(t, err, rt.ErrOption)
}

// TestStreamOfTwoCallers has a stream used by two callers at once: the second call fails.
func TestStreamOfTwoCallers(t *testing.T) {
	ctx := context.Background()
	var s *state.Stream
	errs := make(chan error, 3)
	r, err := state.Open(ctx, rt.WithObserver(func(e rt.Event) {
		if e.Kind == rt.EventRequestBegun { // the first call is using it
			errs <- s.Run(ctx, state.NewStreamInputs(), state.NewStreamOutputs())
			errs <- s.Reset()
			errs <- s.Close()
		}
	}))
	require.NoError(t, err)
	defer r.Close()
	s, err = r.NewStream()
	require.NoError(t, err)
	require.NoError(t, s.Run(ctx, state.NewStreamInputs(), state.NewStreamOutputs()))
	for range 3 {
		err := <-errs
		require.ErrorIs(t, err, rt.ErrConcurrent)
		require.ErrorContains(t, err, "use a stream")
	}
	require.NoError(t, s.Reset(), "it is free again")
}

// TestStreamsShareBatches has four streams wait at the same time: one run computes the next
// request of each.
func TestStreamsShareBatches(t *testing.T) {
	ctx := context.Background()
	r, err := samples.Open(ctx, rt.WithBatching(rt.BatchPolicy{Linger: rt.Forever}))
	require.NoError(t, err)
	defer r.Close()
	const steps = 20
	var all sync.WaitGroup
	for k := range samples.BatchSize {
		s, err := r.NewStream()
		require.NoError(t, err)
		all.Go(func() {
			in, out := samples.NewStreamInputs(), samples.NewStreamOutputs()
			for i := range steps {
				in.X.Data[1] = float32(k)
				if err := s.Run(ctx, in, out); err != nil {
					t.Error(err)
				}
				if want := float32(2 * k * (i + 1)); out.Y.Data[1] != want {
					t.Errorf("stream %d, request %d: %v, want %v", k, i, out.Y.Data[1], want)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, uint64(steps), r.Session().Stats().Requests)
}
