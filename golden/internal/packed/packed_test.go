package packed_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	packed "github.com/popefgen/popefgen/golden/internal/packed/want"
	"github.com/popefgen/popefgen/rt"
)

// some returns a sequence of n positions whose values begin with seed, between so many
// positions of padding, and memory for its results, which holds -1.
func some(seed, n, before, behind int) (packed.Sequence, packed.SequenceOut) {
	all := before + n + behind
	in := packed.Sequence{X: make([][2]float32, all), Mask: make([]int32, all)}
	for i := range all {
		in.X[i] = [2]float32{float32(seed + i - before), -float32(seed)}
		if i >= before && i < before+n {
			in.Mask[i] = int32(1 + i - before)
		} else {
			in.X[i] = [2]float32{1e9, 1e9}
		}
	}
	out := packed.SequenceOut{Sum: make([][2]float32, all), Seen: make([]int32, all), Numbered: make([]int32, all), Place: new(int32)}
	for i := range all {
		out.Sum[i], out.Seen[i], out.Numbered[i] = [2]float32{-1, -1}, -1, -1
	}
	*out.Place = -1
	return in, out
}

// wrong returns what is wrong with the results of a sequence that some made, or "". Its
// number in the run and its place are not looked at.
func wrong(seed, n, before int, out packed.SequenceOut) string {
	sum := [2]float32{float32(n*seed + n*(n-1)/2), float32(-n * seed)}
	first := int32(0)
	for i := range out.Sum {
		if k := i - before; k < 0 || k >= n {
			if out.Sum[i] != [2]float32{-1, -1} || out.Seen[i] != -1 || out.Numbered[i] != -1 {
				return fmt.Sprintf("padding at %d was written: %v", i, out.Sum[i])
			}
			continue
		} else if k == 0 {
			first = out.Numbered[i]
		} else if out.Numbered[i] != first+int32(k) {
			return fmt.Sprintf("index at %d: %d behind %d", i, out.Numbered[i], first)
		}
		if out.Sum[i] != sum || out.Seen[i] != int32(2*(1+i-before)) {
			return fmt.Sprintf("position %d of %d: got %v and %d, want %v", i, n, out.Sum[i], out.Seen[i], sum)
		}
	}
	if *out.Place < 0 {
		return "its first position is missing"
	}
	return ""
}

func open(t testing.TB, opts ...rt.RunnerOption) *packed.Runner {
	t.Helper()
	r, err := packed.Open(context.Background(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}

// policy returns a policy of an algorithm.
func policy(a rt.PackAlgorithm) rt.PackPolicy {
	return rt.PackPolicy{Algorithm: a, Timeout: time.Millisecond}
}

// TestPlacesAndNumbers packs seven sequences by one caller: the model says where they lay,
// and which number they had. The last one does not fit by next fit, and is the
// first of another run.
// Feature 89.
func TestPlacesAndNumbers(t *testing.T) {
	lengths := []int{3, 5, 2, 8, 1, 4}
	for _, c := range []struct {
		policy  rt.PackPolicy
		places  []int32
		numbers []int32
	}{
		{policy(rt.PackNextFit), []int32{0, 3, 8, 16, 24, 25}, []int32{1, 2, 3, 4, 5, 6}},
		{policy(rt.PackFirstFit), []int32{0, 3, 8, 16, 10, 11}, []int32{1, 2, 3, 4, 5, 6}},
		{rt.PackPolicy{Separator: 1, Timeout: time.Millisecond}, []int32{0, 8, 14, 16, 24, 26}, []int32{1, 2, 3, 4, 5, 6}},
		{rt.PackPolicy{MaxEntries: 4, Timeout: time.Millisecond}, []int32{0, 3, 8, 16, 0, 1}, []int32{1, 2, 3, 4, 1, 2}},
	} {
		t.Run(fmt.Sprintf("%+v", c.policy), func(t *testing.T) {
			r := open(t, rt.WithPacking(c.policy))
			for range 2 { // the second time in memory that was used
				var in []packed.Sequence
				var out []packed.SequenceOut
				for i, n := range lengths {
					a, b := some(10*i, n, i%3, i%2)
					in, out = append(in, a), append(out, b)
				}
				require.NoError(t, r.RunPacked(context.Background(), in, out))
				for i, n := range lengths {
					require.Empty(t, wrong(10*i, n, i%3, out[i]), "sequence %d", i)
					require.Equal(t, 2*c.places[i], *out[i].Place, "sequence %d", i)
					require.Equal(t, c.numbers[i], out[i].Numbered[i%3], "sequence %d", i)
				}
			}
		})
	}
}

// TestPackedCallers has 64 callers make a thousand requests each, of one sequence or
// more: each gets its own.
// Feature 89.
func TestPackedCallers(t *testing.T) {
	requests := 1000
	if testing.Short() {
		requests = 50
	}
	for _, p := range []rt.PackPolicy{{Timeout: 200 * time.Microsecond}, {Algorithm: rt.PackFirstFit, Timeout: 50 * time.Microsecond, Separator: 1, MaxEntries: 5}} {
		r := open(t, rt.WithPacking(p), rt.WithReplicas(2))
		var all sync.WaitGroup
		for caller := range 64 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(caller), 1))
				for k := 0; k < requests; {
					var in []packed.Sequence
					var out []packed.SequenceOut
					var about [][3]int
					for range 1 + rng.IntN(3) {
						seed, n, before := caller*100+k%100, 1+rng.IntN(8), rng.IntN(3)
						a, b := some(seed, n, before, rng.IntN(3))
						in, out, about = append(in, a), append(out, b), append(about, [3]int{seed, n, before})
						k++
					}
					if err := r.RunPacked(context.Background(), in, out); err != nil {
						t.Error(err)
						return
					}
					for i, a := range about {
						if s := wrong(a[0], a[1], a[2], out[i]); s != "" {
							t.Errorf("caller %d: %s", caller, s)
							return
						}
					}
				}
			})
		}
		all.Wait()
		if runs := r.Session().Stats().Requests + r.Replica(1).Stats().Requests; runs >= uint64(64*requests) {
			t.Errorf("%d runs of %d requests: nothing was packed", runs, 64*requests)
		}
	}
}

// TestPackWaits shows when a pack runs: when MaxEntries are in it, when the next would not
// fit, or when Timeout has passed since the first came.
// Feature 89.
func TestPackWaits(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		policy rt.PackPolicy
		length int // of three sequences
		waits  bool
	}{
		"timeout":     {rt.PackPolicy{Timeout: time.Hour}, 2, true},
		"max entries": {rt.PackPolicy{Timeout: time.Hour, MaxEntries: 3}, 2, false},
		"no room":     {rt.PackPolicy{Timeout: time.Hour, Separator: 14}, 8, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := packed.Open(ctx, rt.WithPacking(c.policy))
				require.NoError(t, err)
				defer r.Close()
				start := time.Now()
				var all sync.WaitGroup
				for i := range 3 {
					all.Go(func() {
						in, out := some(i, c.length, 0, 0)
						if err := r.RunPacked(ctx, []packed.Sequence{in}, []packed.SequenceOut{out}); err != nil {
							t.Error(err)
						}
						if s := wrong(i, c.length, 0, out); s != "" {
							t.Error(s)
						}
					})
				}
				all.Wait()
				if took := time.Since(start); c.waits != (took >= time.Hour) {
					t.Errorf("it took %v", took)
				}
				require.Equal(t, uint64(1), r.Session().Stats().Requests)
			})
		})
	}
	t.Run("the next does not fit", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, err := packed.Open(ctx, rt.WithPacking(rt.PackPolicy{Timeout: time.Hour}))
			require.NoError(t, err)
			var all sync.WaitGroup
			start := time.Now()
			done := make([]time.Duration, 5)
			for i := range done { // four rows of eight, and one more
				all.Go(func() {
					in, out := some(i, 8, 0, 0)
					if err := r.RunPacked(ctx, []packed.Sequence{in}, []packed.SequenceOut{out}); err != nil {
						t.Error(err)
					}
					done[i] = time.Since(start)
				})
				synctest.Wait()
			}
			require.Equal(t, make([]time.Duration, 4), done[:4], "they are full and wait for nobody")
			require.NoError(t, r.Shutdown(ctx)) // and the last one for no timeout
			all.Wait()
			require.Less(t, done[4], time.Hour)
			require.ErrorIs(t, r.RunPacked(ctx, nil, nil), rt.ErrClosed)
		})
	})
	t.Run("the leader gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r, err := packed.Open(ctx, rt.WithPacking(rt.PackPolicy{Timeout: time.Hour}))
			require.NoError(t, err)
			defer r.Close()
			first, cancel := context.WithCancel(ctx)
			var all sync.WaitGroup
			all.Go(func() {
				in, out := some(1, 4, 0, 0)
				if err := r.RunPacked(first, []packed.Sequence{in}, []packed.SequenceOut{out}); err == nil || *out.Place != -1 {
					t.Error("it gave up and has results:", err)
				}
			})
			synctest.Wait()
			all.Go(func() {
				in, out := some(2, 4, 0, 0)
				if err := r.RunPacked(ctx, []packed.Sequence{in}, []packed.SequenceOut{out}); err != nil {
					t.Error(err)
				}
				if s := wrong(2, 4, 0, out); s != "" || *out.Place != 2*4 {
					t.Error(s, *out.Place)
				}
			})
			synctest.Wait()
			cancel()
			all.Wait()
		})
	})
}

// TestPackRefuses shows what RunPacked and WithPacking refuse, and that nothing is
// half done.
// Feature 89.
func TestPackRefuses(t *testing.T) {
	ctx := context.Background()
	for name, p := range map[string]rt.PackPolicy{
		"no timeout":       {},
		"negative timeout": {Timeout: -1},
		"end to end":       {Algorithm: rt.PackEndToEnd, Timeout: 1},
		"its separator":    {Algorithm: rt.PackEndToEnd, Timeout: 1, Separator: 1},
		"separator":        {Timeout: 1, Separator: -1},
		"entries":          {Timeout: 1, MaxEntries: -1},
		"more entries":     {Timeout: 1, MaxEntries: 7},
		"algorithm":        {Timeout: 1, Algorithm: 9},
	} {
		_, err := packed.Open(ctx, rt.WithPacking(p))
		require.ErrorIs(t, err, rt.ErrOption, name)
		require.ErrorContains(t, err, "WithPacking: ", name)
	}
	r := open(t)
	good, memory := some(1, 2, 0, 0)
	run := func(change func(in *packed.Sequence, out *packed.SequenceOut)) error {
		in, out := some(1, 2, 0, 0)
		change(&in, &out)
		return r.RunPacked(ctx, []packed.Sequence{good, in}, []packed.SequenceOut{memory, out})
	}
	for want, change := range map[string]func(in *packed.Sequence, out *packed.SequenceOut){
		`sequence 1: sequence does not fit: 1 of "x", but 2 of "mask"`: func(in *packed.Sequence, _ *packed.SequenceOut) { in.X = in.X[:1] },
		`2 of "x", but 0 of "seen"`:                                    func(_ *packed.Sequence, out *packed.SequenceOut) { out.Seen = nil },
		`the result "place" has no memory`:                             func(_ *packed.Sequence, out *packed.SequenceOut) { out.Place = nil },
		`"mask" says that all its 2 elements are padding`:              func(in *packed.Sequence, _ *packed.SequenceOut) { clear(in.Mask) },
		`it has no elements`:                                           func(in *packed.Sequence, out *packed.SequenceOut) { *in, *out = some(1, 0, 0, 0) },
		`9 elements, and a row holds 8`:                                func(in *packed.Sequence, out *packed.SequenceOut) { *in, *out = some(1, 9, 1, 0) },
	} {
		err := run(change)
		require.ErrorIs(t, err, rt.ErrSequence, want)
		require.ErrorContains(t, err, want)
		require.Equal(t, int32(-1), *memory.Place, "nothing is half done")
	}
	require.ErrorIs(t, r.RunPacked(ctx, []packed.Sequence{good}, nil), rt.ErrSamples)
	require.NoError(t, r.RunPacked(ctx, nil, nil))
	require.ErrorIs(t, new(packed.Runner).RunPacked(ctx, nil, nil), rt.ErrClosed)
	require.NoError(t, run(func(*packed.Sequence, *packed.SequenceOut) {}))
	require.Empty(t, wrong(1, 2, 0, memory))
}
