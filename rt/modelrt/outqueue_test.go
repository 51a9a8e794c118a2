package modelrt_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/ring"
)

func contains(s, part string) bool { return strings.Contains(s, part) }

// outputQueue makes a queue of batches of four samples of two bytes.
func outputQueue(t testing.TB, batches int) *modelrt.OutputQueue {
	t.Helper()
	q, err := modelrt.NewOutputQueue(4, 2, batches)
	require.NoError(t, err)
	return q
}

// deliver plays a device that delivers one transfer.
func deliver(t testing.TB, q *modelrt.OutputQueue, data []byte) {
	t.Helper()
	require.NoError(t, q.Fetch(context.Background(), data))
	q.Complete()
}

// Feature 58.
func TestOutputScatter(t *testing.T) {
	q := outputQueue(t, 2)
	var log []string
	var got [3][]byte
	for i, n := range []int{1, 2, 5} { // the same as the inputs
		got[i] = make([]byte, 2*n)
		name := string(rune('a' + i))
		require.NoError(t, q.TryEnqueue(modelrt.OutputData{
			Data: got[i], OnWriteComplete: func() { log = append(log, name+" complete") },
			OnDone: func(err error) {
				require.NoError(t, err)
				log = append(log, name+" done")
			},
		}))
	}
	require.False(t, q.Prefetch(nil))
	q.InvalidatePrefetched()
	deliver(t, q, samples(0, 4))
	require.Equal(t, samples(0, 1), got[0])
	require.Equal(t, samples(1, 2), got[1])
	require.Equal(t, samples(3, 1), got[2][:2])
	require.Empty(t, cmp.Diff([]string{"a complete", "a done", "b complete", "b done"}, log))

	mem, err := q.Memory(context.Background())
	require.NoError(t, err)
	require.Same(t, &got[2][2], &mem[0], "the rest can be written in place")
	copy(mem, samples(4, 4))
	require.Len(t, log, 4)
	q.Complete()
	q.Complete() // of nothing
	require.Equal(t, samples(3, 5), got[2])
	require.Empty(t, cmp.Diff([]string{"c complete", "c done"}, log[4:]))

	half := make([]byte, 4)
	require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: half}))
	mem, err = q.Memory(context.Background())
	require.NoError(t, err)
	require.Nil(t, mem, "no piece has room for a whole batch")
	require.ErrorIs(t, q.TryEnqueue(modelrt.OutputData{Data: make([]byte, 3)}), modelrt.ErrSampleSize)
	require.ErrorIs(t, q.Fetch(context.Background(), make([]byte, 6)), rt.ErrData)
}

// Feature 58.
func TestOutputEnqueueLock(t *testing.T) {
	ctx := context.Background()
	q := outputQueue(t, 2)
	d, err := q.EnqueueLock(ctx)
	require.NoError(t, err)
	again, err := q.EnqueueLock(ctx)
	require.NoError(t, err)
	require.Same(t, d, again)
	require.ErrorIs(t, q.Flush(), modelrt.ErrEnqueueLocked)
	require.ErrorIs(t, q.EnqueueComplete(), modelrt.ErrSampleSize)
	got := make([]byte, 8)
	d.Data = got
	require.NoError(t, q.EnqueueComplete())
	require.ErrorIs(t, q.EnqueueComplete(), ring.ErrNotLocked)
	deliver(t, q, samples(7, 4))
	require.Equal(t, samples(7, 4), got)

	if rttest.RaceEnabled {
		return // the race detector allocates
	}
	data, done := samples(1, 4), func(error) {}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for range 2 {
			if q.Enqueue(ctx, modelrt.OutputData{Data: got[:4], OnDone: done}) != nil {
				t.Fatal()
			}
		}
		if q.Fetch(ctx, data) != nil {
			t.Fatal()
		}
		q.Complete()
	}))
}

// TestOutputWaits lets the device wait until there is memory.
//
// Feature 58.
func TestOutputWaits(t *testing.T) {
	q := outputQueue(t, 1)
	written := make(chan error)
	go func() { written <- q.Fetch(context.Background(), samples(1, 4)) }()
	got := make([]byte, 8)
	for i := range 4 {
		rttest.Eventually(t, func() bool { return contains(q.State(""), "consumer waits") }, "the device waits")
		require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: got[2*i : 2*i+2]}))
	}
	require.NoError(t, <-written)
	require.Equal(t, samples(1, 4), got)
}

// Feature 59.
func TestFlushOutput(t *testing.T) {
	q := outputQueue(t, 2)
	require.NoError(t, q.Flush())
	got := make([]byte, 6)
	require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: got}))
	require.NoError(t, q.Flush())
	last := make([]byte, 8)
	require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: last}))
	deliver(t, q, samples(100, 4)) // dropped
	deliver(t, q, samples(1, 4))   // the last of them dropped
	deliver(t, q, samples(5, 4))
	require.Equal(t, samples(1, 3), got)
	require.Equal(t, samples(5, 4), last)
}

// Feature 60.
func TestDisconnectOutput(t *testing.T) {
	q := outputQueue(t, 1)
	written := make(chan error)
	go func() { written <- q.Fetch(context.Background(), samples(1, 4)) }()
	rttest.Eventually(t, func() bool { return contains(q.State(""), "consumer waits") }, "the device waits")
	q.Disconnect()
	require.NoError(t, <-written, "dropped")
	q.Complete()
	mem, err := q.Memory(context.Background())
	require.NoError(t, err)
	require.Nil(t, mem)
	deliver(t, q, samples(1, 4))
	require.ErrorIs(t, q.TryEnqueue(modelrt.OutputData{Data: make([]byte, 2)}), modelrt.ErrDisconnected)

	q.Reset()
	var end error
	got := make([]byte, 12)
	require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: got, OnDone: func(err error) { end = err }}))
	deliver(t, q, samples(1, 4))
	q.Disconnect()
	deliver(t, q, samples(100, 4))
	require.Equal(t, slices.Concat(samples(1, 4), make([]byte, 4)), got, "no dummy result in the rest")
	require.NoError(t, end)
	q.Reset()
	require.ErrorIs(t, end, modelrt.ErrDisconnected, "not filled")
	require.NoError(t, q.TryEnqueue(modelrt.OutputData{Data: got[:8]}))
	deliver(t, q, samples(9, 4))
	require.Equal(t, samples(9, 4), got[:8])
}
