package cache_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	cache "github.com/popefgen/popefgen/golden/internal/family_cache/want"
	"github.com/popefgen/popefgen/rt"
)

var ctx = context.Background()

func open(t testing.TB, opts ...rt.RunnerOption) *cache.Runner {
	t.Helper()
	r, err := cache.Open(ctx, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

func streamOf(t testing.TB, r *cache.Runner) *cache.Stream {
	t.Helper()
	s, err := r.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// token is what stream k gives as number i.
func token(k, i int) *cache.StreamInputs {
	draw := rand.New(rand.NewPCG(uint64(k), uint64(i)))
	in := cache.NewStreamInputs()
	for c := range 3 {
		in.X.At(0)[0][c] = draw.Float32() - 0.5
		in.K.At(0)[c][0] = draw.Float32() - 0.5
	}
	return in
}

// without computes what the model says to the last of so many tokens, of all of them anew.
func without(k, n int) (y [3]float64) {
	var h [][3]float64
	for i := range n {
		var v [3]float64
		for c, x := range token(k, i).X.At(0)[0] {
			v[c] = float64(x + float32(i)) // the position is added
		}
		h = append(h, v)
	}
	weights, sum := make([]float64, n), 0.0
	for i := range n {
		score := 0.0
		for c, key := range token(k, i).K.At(0) {
			score += h[n-1][c] * float64(key[0])
		}
		weights[i] = math.Exp(score)
		sum += weights[i]
	}
	for i := range n {
		for c := range 3 {
			y[c] += weights[i] / sum * h[i][c]
		}
	}
	return y
}

func near(t require.TestingT, k, n int, y *cache.Y) {
	for c, want := range without(k, n) {
		require.InDelta(t, want, float64(y.At(0)[0][c]), 1e-5*math.Max(1, math.Abs(want)), "token %d of stream %d", n-1, k)
	}
}

// TestCacheGrows steps through all sizes: every answer is that of computing all tokens anew. What would be more than the
// largest size holds is refused, and what there is stays.
func TestCacheGrows(t *testing.T) {
	r := open(t)
	s, out := streamOf(t, r), cache.NewStreamOutputs()
	for turn := range 2 {
		for i := range 16 {
			require.Equal(t, i, s.Len())
			require.NoError(t, s.Run(ctx, token(turn, i), out))
			near(t, turn, i+1, out.Y)
		}
		before, after := cache.NewState(), cache.NewState()
		require.NoError(t, s.State(before))
		require.Equal(t, 16, before.Key.Past)
		err := s.Run(ctx, token(turn, 16), out)
		require.ErrorIs(t, err, rt.ErrSize)
		require.EqualError(t, err, `family_cache.popef: run a stream: Stream has 16 positions and would have 17: the largest size of dimension "past" is 16: Reset the stream, or compile the model with --dim past=…,17`)
		require.NoError(t, s.State(after))
		require.Equal(t, before, after)
		require.ErrorIs(t, s.Reserve(17), rt.ErrSize)
		require.NoError(t, s.Reset())
		require.Zero(t, s.Len())
	}
}

// TestCacheMoves saves the state in every length, and goes on with it in another stream, in which another one was.
func TestCacheMoves(t *testing.T) {
	r := open(t)
	s, other, out := streamOf(t, r), streamOf(t, r), cache.NewStreamOutputs()
	for i := range 5 {
		require.NoError(t, other.Run(ctx, token(8, i), out))
	}
	state := cache.NewState()
	for i := range 15 {
		require.NoError(t, s.Run(ctx, token(3, i), out))
		require.NoError(t, s.State(state))
		require.Equal(t, []int{1, i + 1, 1, i + 1}, []int{state.Key.Batch, state.Key.Past, state.Value.Batch, state.Value.Past})
		require.NoError(t, other.SetState(state))
		require.NoError(t, other.Run(ctx, token(3, i+1), out))
		near(t, 3, i+2, out.Y)
	}
	for _, c := range []struct {
		state *cache.State
		want  string
	}{
		{&cache.State{Key: cache.NewKey(1, 2), Value: cache.NewValue(1, 3)}, "State.Value.Past is 3, and that of a state is 2"},
		{&cache.State{Key: cache.NewKey(2, 2), Value: cache.NewValue(1, 2)}, "State.Key.Batch is 2, and that of a state is 1"},
		{&cache.State{Key: cache.NewKey(1, 17), Value: cache.NewValue(1, 17)}, `would have 17: the largest size of dimension "past" is 16`},
		{&cache.State{Key: &cache.Key{Batch: 1, Past: 3}, Value: cache.NewValue(1, 3)}, "has 0 elements, and its sizes make 9"},
	} {
		err := s.SetState(c.state)
		require.ErrorIs(t, err, rt.ErrSize)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, 15, s.Len())
	}
	require.NoError(t, s.Run(ctx, token(3, 15), out))
	near(t, 3, 16, out.Y)
}

// TestCachesShareRuns has 64 streams of different lengths step at the same time: every answer is, bit for bit, that which
// the stream gets alone.
func TestCachesShareRuns(t *testing.T) {
	const streams = 64
	alone, want := open(t), [streams][16][3]float32{}
	for k := range streams {
		s, out := streamOf(t, alone), cache.NewStreamOutputs()
		for i := range 16 {
			require.NoError(t, s.Run(ctx, token(k, i), out))
			want[k][i] = out.Y.At(0)[0]
		}
	}
	for _, linger := range []time.Duration{0, time.Millisecond} {
		r := open(t, rt.WithBatching(rt.BatchPolicy{Linger: linger}))
		var all sync.WaitGroup
		for k := range streams {
			s := streamOf(t, r)
			all.Go(func() {
				out := cache.NewStreamOutputs()
				for i := range 8 + k%9 {
					if err := s.Run(ctx, token(k, i), out); err != nil {
						t.Error(err)
						return
					}
					if out.Y.At(0)[0] != want[k][i] {
						t.Errorf("stream %d, token %d: %v, want %v", k, i, out.Y.At(0)[0], want[k][i])
					}
				}
			})
		}
		all.Wait()
		if linger > 0 {
			require.Less(t, r.Session().Stats().Requests, uint64(streams*12*3/4))
		}
	}
}

// TestCacheAllocatesNothing grows through all sizes in memory that was reserved.
func TestCacheAllocatesNothing(t *testing.T) {
	r := open(t)
	s, in, out := streamOf(t, r), token(1, 1), cache.NewStreamOutputs()
	require.NoError(t, s.Reserve(16))
	turn := func() {
		for range 16 {
			if err := s.Run(ctx, in, out); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(5, turn))
}

// TestCacheAfterClose uses a stream whose runner was closed, and then one that was closed itself.
func TestCacheAfterClose(t *testing.T) {
	r := open(t)
	s := streamOf(t, r)
	require.NoError(t, s.Run(ctx, token(0, 0), cache.NewStreamOutputs()))
	require.NoError(t, r.Close())
	require.ErrorIs(t, s.Run(ctx, token(0, 1), cache.NewStreamOutputs()), rt.ErrClosed)
	require.ErrorIs(t, s.Reserve(16), rt.ErrClosed)
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Reserve(16), rt.ErrClosed)
	require.Zero(t, s.Len())
}
