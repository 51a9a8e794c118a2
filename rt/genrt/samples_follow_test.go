package genrt_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

// ledger observes runs: what each was, and which calls shared it.
type ledger struct {
	mu    sync.Mutex
	runs  map[uint64]rt.Run
	calls map[uint64][]any
}

func (l *ledger) ObserveRun(r rt.Run, marks []any) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs[r.ID], l.calls[r.ID] = r, slices.Clone(marks)
	return r.ID
}

// reader follows a call.
type reader struct {
	*ledger
	id   int
	runs []rt.Run
}

func (r *reader) Follow() (rt.RunObserver, any) { return r.ledger, r.id }
func (r *reader) Ran(run rt.Run)                { r.runs = append(r.runs, run) }

func newLedger() *ledger { return &ledger{runs: map[uint64]rt.Run{}, calls: map[uint64][]any{}} }

// TestFollowFamily: each member that computes a part of a call is a run of its own.
func TestFollowFamily(t *testing.T) {
	r := openDigits(t, 4, 8)
	l := newLedger()
	follow := func(n int) []rt.Run {
		one := &reader{ledger: l}
		in, out := make([]digitsImage, n), make([]digitsScores, n)
		require.NoError(t, r.samples(context.WithValue(t.Context(), rt.RunFollowerKey{}, one), in, out))
		return one.runs
	}
	ignore := cmpopts.IgnoreFields(rt.Run{}, "ID", "Came", "Begun", "Ended", "Mark")
	whole := rt.Run{Size: 8, Samples: 8, Calls: 1}
	require.Empty(t, cmp.Diff([]rt.Run{whole, whole}, follow(16), ignore))
	for n := range 12 {
		got, size := 0, 0
		for _, run := range follow(n) {
			require.Contains(t, []int{4, 8}, run.Size)
			require.Equal(t, l.runs[run.ID].Size, run.Size)
			require.False(t, run.Begun.Before(run.Came) || run.Ended.Before(run.Begun))
			got, size = got+run.Samples, size+run.Size
		}
		require.Equal(t, n, got)
		require.LessOrEqual(t, size-got, 7)
	}
	require.Len(t, slices.Compact(slices.Sorted(maps.Keys(l.runs))), len(l.runs))
}

// TestFollowCallers has callers of random sizes share batches: observer and followers tell the same story, in which every sample is in one run.
func TestFollowCallers(t *testing.T) {
	for _, sizes := range [][]int64{{1, 4, 16}, {8}} {
		// On a busy machine callers may come one by one for a while.
		shared := false
		for try := 0; !shared && try < 50; try++ {
			shared = followCallers(t, sizes) > 1
		}
		require.True(t, shared, "nobody shared a run")
	}
}

// followCallers checks which runs 8 callers followed, and returns the most that shared a run.
func followCallers(t *testing.T, sizes []int64) int {
	r, l := openDigits(t, sizes...), newLedger()
	var all sync.WaitGroup
	told := make([][]rt.Run, 8*50)
	total := make([]int, 8)
	for caller := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(caller), 1))
			for i := range 50 {
				one := &reader{ledger: l, id: caller*50 + i}
				n := 1 + random.IntN(20)
				total[caller] += n
				in, out := make([]digitsImage, n), make([]digitsScores, n)
				if err := r.samples(context.WithValue(t.Context(), rt.RunFollowerKey{}, one), in, out); err != nil {
					t.Error(err)
					return
				}
				told[one.id] = one.runs
			}
		})
	}
	all.Wait()
	shared := map[uint64][]any{}
	for id, runs := range told {
		require.NotEmpty(t, runs)
		for _, run := range runs {
			require.Equal(t, run.ID, run.Mark)
			shared[run.ID] = append(shared[run.ID], id)
		}
	}
	samples, most := 0, 0
	for id, run := range l.runs {
		require.ElementsMatch(t, l.calls[id], shared[id])
		require.Len(t, shared[id], run.Calls)
		require.LessOrEqual(t, run.Samples, run.Size)
		require.Contains(t, sizes, int64(run.Size))
		samples, most = samples+run.Samples, max(most, run.Calls)
	}
	want := 0
	for _, n := range total {
		want += n
	}
	require.Equal(t, want, samples)
	return most
}
