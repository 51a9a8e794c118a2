package core

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
)

// Mark and Ran make seen an observer of traces.
func (s *seen) Mark(ctx context.Context) any { return ctx.Value(seenKey{}) }

func (s *seen) Ran(v *Version, r rt.Run, marks []any) any {
	return fmt.Sprint(v.Spec.Name, " ", r.ID, " ", marks)
}

// TestRuns has a model tell which runs computed its requests: these are counted, each once, and not the requests; what waits for a run is queue.
func TestRuns(t *testing.T) {
	c := New()
	var s seen
	c.ObserveTraces(&s)
	at := func(d time.Duration) time.Time { return time.Now().Add(d) }
	var batches []any
	failing := error(nil)
	v := load(t, c, script(1, func(ctx context.Context) error {
		f, ok := ctx.Value(rt.RunFollowerKey{}).(rt.RunFollower)
		if !ok {
			return nil // it warms up
		}
		f.(interface{ Mute(on bool) }).Mute(true)
		require.Nil(t, ctx.Value(rt.RunFollowerKey{}), "a hook computes another model")
		f.(interface{ Mute(on bool) }).Mute(false)
		require.Equal(t, f, ctx.Value(rt.RunFollowerKey{}))
		o, mark := f.Follow()
		if s.begun == 1 { // it shares a run of 4 with 3 samples of another request, which counts it, and computes the rest in one of its own
			f.Ran(rt.Run{ID: 1, Samples: 4, Size: 4, Begun: at(20 * time.Millisecond), Ended: at(21 * time.Millisecond), Mark: "shared"})
		}
		r := rt.Run{ID: 2, Samples: 1, Size: 4, Begun: at(21 * time.Millisecond), Ended: at(25 * time.Millisecond), Err: failing}
		r.Mark = o.ObserveRun(r, []any{mark})
		f.Ran(r)
		time.Sleep(30 * time.Millisecond)
		batches = append([]any(nil), f.(*follower).call.Batches...)
		return failing
	}), Load{})
	require.NoError(t, ask(t.Context(), c, 1, nil))
	require.Equal(t, []any{"shared", "script 2 [trace]"}, batches)
	st := v.Statistics()
	require.Equal(t, []uint64{1, 1, 3, 1}, []uint64{st.Runs.Count, st.Computed, st.Padding, st.Samples})
	require.Equal(t, 4*time.Millisecond, st.Runs.Time.Round(time.Millisecond))
	require.Equal(t, []Batch{{1, st.Runs.Total}}, st.Batches)
	require.Equal(t, []Batch{{1, st.Compute.Total}}, st.Requests)
	require.GreaterOrEqual(t, st.Queue.Time, 20*time.Millisecond)
	require.Less(t, st.Compute.Time, st.Latency.Time-20*time.Millisecond+1)

	failing = context.Canceled
	require.Error(t, ask(t.Context(), c, 1, nil))
	require.Equal(t, []any{"script 2 [trace]"}, batches, "of this request alone")
	require.EqualValues(t, 1, v.Statistics().Runs.Count, "a run that failed")
}
