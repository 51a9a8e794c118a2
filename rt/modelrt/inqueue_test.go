package modelrt_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
	"github.com/popefgen/popefgen/rt/ring"
)

// inputQueue makes a queue of batches of four samples of two bytes.
func inputQueue(t testing.TB, batches int) *modelrt.InputQueue {
	t.Helper()
	q, err := modelrt.NewInputQueue(4, 2, batches, nil, ring.Config[struct{}]{})
	require.NoError(t, err)
	return q
}

// samples returns the samples first, first+1 and so on.
func samples(first, n int) []byte {
	var b []byte
	for i := first; i < first+n; i++ {
		b = append(b, byte(i), byte(i>>8))
	}
	return b
}

func enqueue(t testing.TB, q *modelrt.InputQueue, pieces ...[]byte) {
	t.Helper()
	for _, p := range pieces {
		require.NoError(t, q.TryEnqueue(modelrt.InputData{Data: p}))
	}
}

// fetch plays a device that makes one transfer and completes it.
func fetch(t testing.TB, q *modelrt.InputQueue) []byte {
	t.Helper()
	buf := make([]byte, q.TransferBytes())
	require.NoError(t, q.Fetch(context.Background(), buf))
	q.Complete()
	return buf
}

// Feature 54.
func TestZeroCopyEnqueue(t *testing.T) {
	ctx := context.Background()
	q := inputQueue(t, 2)
	data := samples(1, 4)
	ended := 0
	require.NoError(t, q.Enqueue(ctx, modelrt.InputData{Data: data, OnDone: func(err error) {
		require.NoError(t, err)
		ended++
	}}))
	mem, err := q.Memory(ctx)
	require.NoError(t, err)
	require.Same(t, &data[0], &mem[0], "read where it is")
	require.Len(t, mem, 8)
	again, err := q.Memory(ctx)
	require.NoError(t, err)
	require.Same(t, &mem[0], &again[0], "the same until Complete")
	require.Zero(t, ended)
	q.Complete()
	require.Equal(t, 1, ended)

	if rttest.RaceEnabled {
		return // the race detector allocates
	}
	buf := make([]byte, 8)
	done := func(error) { ended++ }
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		for range 2 {
			if q.Enqueue(ctx, modelrt.InputData{Data: data[:4], OnDone: done}) != nil {
				t.Fatal()
			}
		}
		if q.Fetch(ctx, buf) != nil {
			t.Fatal()
		}
		q.Complete()
	}))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		d, err := q.EnqueueLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		d.Data = data
		if q.EnqueueComplete() != nil || q.Flush() != nil {
			t.Fatal()
		}
		for range 2 {
			if _, err := q.Memory(ctx); err != nil {
				t.Fatal(err)
			}
			q.Complete()
		}
	}))
}

// Feature 54.
func TestEnqueueErrors(t *testing.T) {
	q := inputQueue(t, 1)
	for _, n := range []int{0, 1, 3, 9} {
		err := q.TryEnqueue(modelrt.InputData{Data: make([]byte, n)})
		var size *modelrt.SampleSizeError
		require.ErrorAs(t, err, &size)
		require.Equal(t, modelrt.SampleSizeError{Anchor: "x", Bytes: n, Sample: 2}, *size)
		require.ErrorIs(t, err, modelrt.ErrSampleSize)
	}
	require.Zero(t, q.Enqueued())

	enqueue(t, q, samples(0, 1), samples(1, 1), samples(2, 1), samples(3, 1))
	require.ErrorIs(t, q.TryEnqueue(modelrt.InputData{Data: samples(4, 1)}), rt.ErrQueueFull)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, q.Enqueue(short, modelrt.InputData{Data: samples(4, 1)}), context.DeadlineExceeded)
	require.Equal(t, samples(0, 4), fetch(t, q))
	enqueue(t, q, samples(4, 1))
	require.EqualValues(t, 5, q.Enqueued())
	require.ErrorIs(t, q.Fetch(context.Background(), make([]byte, 3)), rt.ErrData)

	for _, bad := range [][3]int{{0, 1, 1}, {-1, 1, 1}, {1, 1, 0}, {1, 1, -1}, {1 << 20, 1, 1 << 40}} {
		_, err := modelrt.NewInputQueue(bad[0], bad[1], bad[2], nil, ring.Config[struct{}]{})
		if bad[0] != 0 { // no samples: a transfer of nothing
			require.ErrorIs(t, err, rt.ErrOption, "%v", bad)
		}
	}
}

// Feature 54.
func TestEnqueueLock(t *testing.T) {
	ctx := context.Background()
	q := inputQueue(t, 1)
	require.ErrorIs(t, q.EnqueueComplete(), ring.ErrNotLocked)
	d, err := q.EnqueueLock(ctx)
	require.NoError(t, err)
	again, err := q.EnqueueLock(ctx)
	require.NoError(t, err)
	require.Same(t, d, again)
	require.ErrorIs(t, q.TryEnqueue(modelrt.InputData{Data: samples(9, 1)}), modelrt.ErrEnqueueLocked)
	require.ErrorIs(t, q.Enqueue(ctx, modelrt.InputData{Data: samples(9, 1)}), modelrt.ErrEnqueueLocked)
	require.ErrorIs(t, q.Flush(), modelrt.ErrEnqueueLocked)
	d.Data = make([]byte, 3)
	require.ErrorIs(t, q.EnqueueComplete(), modelrt.ErrSampleSize)
	d.Data = samples(1, 4)
	require.NoError(t, q.EnqueueComplete())
	require.ErrorIs(t, q.EnqueueComplete(), ring.ErrNotLocked)
	require.Nil(t, d.Data, "the queue keeps nothing there")
	require.Equal(t, samples(1, 4), fetch(t, q))

	_, err = q.EnqueueLock(ctx)
	require.NoError(t, err)
	q.Disconnect()
	_, err = q.EnqueueLock(ctx)
	require.ErrorIs(t, err, modelrt.ErrDisconnected)
	q.Reset()
	require.ErrorIs(t, q.EnqueueComplete(), ring.ErrNotLocked)
	enqueue(t, q, samples(3, 4))
	require.Equal(t, samples(3, 4), fetch(t, q))
}

// TestZeroSized is about tensors without elements: every piece of no memory is
// a transfer.
func TestZeroSized(t *testing.T) {
	for _, shape := range [][2]int{{0, 2}, {4, 0}} {
		in, err := modelrt.NewInputQueue(shape[0], shape[1], 2, nil, ring.Config[struct{}]{})
		require.NoError(t, err)
		out, err := modelrt.NewOutputQueue(shape[0], shape[1], 2)
		require.NoError(t, err)
		require.False(t, in.Prefetch(nil))
		require.ErrorIs(t, in.TryEnqueue(modelrt.InputData{Data: []byte{1}}), modelrt.ErrSampleSize)
		for range 3 {
			ended := 0
			require.NoError(t, in.TryEnqueue(modelrt.InputData{OnDone: func(error) { ended++ }}))
			require.NoError(t, out.TryEnqueue(modelrt.OutputData{OnWriteComplete: func() { ended++ }}))
			require.True(t, in.Prefetch(nil))
			in.Complete()
			require.NoError(t, out.Fetch(context.Background(), nil))
			out.Complete()
			require.Equal(t, 2, ended)
		}
	}
}

// Feature 55.
func TestRegroupSmallRequests(t *testing.T) {
	q := inputQueue(t, 2)
	enqueue(t, q, samples(0, 1), samples(1, 2), samples(3, 5))
	require.Equal(t, samples(0, 4), fetch(t, q), "one and two and the first of five")
	mem, err := q.Memory(context.Background())
	require.NoError(t, err)
	require.Equal(t, samples(4, 4), mem, "the rest, in place")
	q.Complete()
	require.False(t, q.Prefetch(make([]byte, 8)))

	enqueue(t, q, samples(8, 1))
	mem, err = q.Memory(context.Background())
	require.NoError(t, err)
	require.Nil(t, mem, "no piece holds a whole batch")
	enqueue(t, q, samples(9, 3))
	require.Equal(t, samples(8, 4), fetch(t, q))
}

// Feature 56.
func TestSplitLargeRequests(t *testing.T) {
	q := inputQueue(t, 1)
	ended := 0
	require.NoError(t, q.TryEnqueue(modelrt.InputData{Data: samples(0, 11), OnDone: func(error) { ended++ }}))
	for i := range 2 {
		require.Equal(t, samples(4*i, 4), fetch(t, q))
	}
	require.False(t, q.Prefetch(make([]byte, 8)), "three of four")
	enqueue(t, q, samples(11, 5))
	require.Zero(t, ended, "the memory is still in use")
	require.Equal(t, samples(8, 4), fetch(t, q))
	require.Equal(t, 1, ended)
	require.Equal(t, samples(12, 4), fetch(t, q))
}

// Feature 57.
func TestReadCallbacks(t *testing.T) {
	var log []string
	note := func(s string) func() { return func() { log = append(log, s) } }
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, log); diff != "" {
			t.Fatal(diff)
		}
		log = nil
	}
	q := inputQueue(t, 4)
	for i, n := range []int{1, 6, 1, 4} { // a | bbb; bbb c; dddd
		name := string(rune('a' + i))
		require.NoError(t, q.TryEnqueue(modelrt.InputData{
			Data: samples(i, n), OnReadStart: note(name + " start"), OnReadComplete: note(name + " complete"),
			OnDone: func(error) { note(name + " done")() },
		}))
	}
	buf := make([]byte, 8)
	require.True(t, q.Prefetch(buf))
	expect("a start", "b start", "a complete")
	require.True(t, q.Prefetch(buf))
	expect("c start", "b complete", "c complete")
	q.InvalidatePrefetched()
	expect()
	require.NoError(t, q.Fetch(context.Background(), buf))
	expect("a start", "b start", "a complete")
	q.Complete()
	expect("a done")
	require.True(t, q.Prefetch(buf))
	expect("c start", "b complete", "c complete")
	q.InvalidatePrefetched()
	require.True(t, q.Prefetch(buf))
	expect("c start", "b complete", "c complete") // b's start was consumed
	q.Complete()
	expect("b done", "c done")

	_, err := q.Memory(context.Background())
	require.NoError(t, err)
	expect("d start", "d complete")
	q.InvalidatePrefetched()
	_, err = q.Memory(context.Background())
	require.NoError(t, err)
	expect("d start", "d complete")
	q.Complete()
	expect("d done")
}

// TestLookAheadCounter is the reference script: prefetch three,
// throw them away, and the first comes again.
//
// Feature 47.
func TestLookAheadCounter(t *testing.T) {
	q := inputQueue(t, 4)
	enqueue(t, q, samples(0, 4), samples(4, 4), samples(8, 2), samples(10, 2))
	buf := make([]byte, 8)
	prefetch := func(first int) {
		t.Helper()
		require.True(t, q.Prefetch(buf))
		require.Equal(t, samples(first, 4), buf)
	}
	prefetch(0)
	prefetch(4)
	prefetch(8)
	require.False(t, q.Prefetch(buf))
	q.InvalidatePrefetched()
	prefetch(0)
	q.Complete()
	prefetch(4)
	prefetch(8)
	q.Complete()
	q.InvalidatePrefetched()
	q.Complete() // of nothing
	prefetch(8)
	q.Complete()
	require.False(t, q.Prefetch(buf))
	require.Equal(t, 16, q.NumBuffers())
	require.Contains(t, q.State("> "), `> ring "x": 0 of 16 buffers full, 12 samples enqueued in batches of 4`)
}

// TestLookAheadTooFar is a device that would wait for itself.
func TestLookAheadTooFar(t *testing.T) {
	q := inputQueue(t, 1)
	for i := range 4 {
		enqueue(t, q, samples(i, 1))
	}
	buf := make([]byte, 8)
	require.NoError(t, q.Fetch(context.Background(), buf))
	require.ErrorIs(t, q.Fetch(context.Background(), buf), modelrt.ErrLookAhead)
	require.NoError(t, q.Fetch(context.Background(), buf), "a program that failed starts anew")
	require.Equal(t, samples(0, 4), buf)
}

// Feature 59.
func TestFlushInput(t *testing.T) {
	zeros := make([]byte, 8)
	q := inputQueue(t, 2)
	require.NoError(t, q.Flush())
	require.Equal(t, zeros, fetch(t, q), "a batch of dummies")
	enqueue(t, q, samples(1, 3))
	require.NoError(t, q.Flush())
	require.Equal(t, slices.Concat(samples(1, 3), zeros[:2]), fetch(t, q), "three of four, completed")
	enqueue(t, q, samples(1, 4))
	require.NoError(t, q.Flush())
	require.Equal(t, samples(1, 4), fetch(t, q))
	require.Equal(t, zeros, fetch(t, q))

	for i := range 8 {
		enqueue(t, q, samples(i, 1))
	}
	require.ErrorIs(t, q.TryEnqueue(modelrt.InputData{Data: samples(0, 1)}), rt.ErrQueueFull)
	flushes := 0
	for ; q.Flush() == nil; flushes++ {
	}
	require.Equal(t, 4, flushes, "dummies have room of their own")
	require.ErrorIs(t, q.Flush(), rt.ErrQueueFull)
	require.Equal(t, samples(0, 4), fetch(t, q))
	require.Equal(t, samples(4, 4), fetch(t, q))
	for range flushes {
		require.Equal(t, zeros, fetch(t, q))
	}
	q.Disconnect()
	require.ErrorIs(t, q.Flush(), modelrt.ErrDisconnected)
}

// TestInputQueueTimeout lets the device's wait end with a flush.
//
// Feature 51.
func TestInputQueueTimeout(t *testing.T) {
	calls := 0
	q, err := modelrt.NewInputQueue(4, 2, 2, func(q *modelrt.InputQueue) {
		if calls++; calls == 3 {
			require.False(t, q.ReadAvailable())
			require.NoError(t, q.Flush())
		}
	}, ring.Config[struct{}]{Timeout: time.Millisecond})
	require.NoError(t, err)
	enqueue(t, q, samples(1, 1))
	require.Equal(t, slices.Concat(samples(1, 1), make([]byte, 6)), fetch(t, q))
	require.Equal(t, 3, calls)
}

// Feature 60.
func TestDisconnectInput(t *testing.T) {
	ctx := context.Background()
	q := inputQueue(t, 1)
	var ends []error
	done := func(err error) { ends = append(ends, err) }
	require.NoError(t, q.Enqueue(ctx, modelrt.InputData{Data: samples(1, 2), OnDone: done}))
	read := make(chan error)
	buf := samples(100, 4)
	go func() { read <- q.Fetch(ctx, buf) }()
	rttest.Eventually(t, func() bool { return contains(q.State(""), "consumer waits") }, "the device waits")
	q.Disconnect()
	require.NoError(t, <-read, "the program goes on")
	require.Equal(t, make([]byte, 8), buf, "on dummy data")
	require.False(t, q.Connected())
	q.Complete()
	require.Equal(t, make([]byte, 8), fetch(t, q), "and does not wait any more")
	require.False(t, q.Prefetch(buf))
	mem, err := q.Memory(ctx)
	require.NoError(t, err)
	require.Nil(t, mem)
	require.ErrorIs(t, q.Enqueue(ctx, modelrt.InputData{Data: samples(1, 2)}), modelrt.ErrDisconnected)
	require.ErrorIs(t, q.TryEnqueue(modelrt.InputData{Data: samples(1, 2)}), modelrt.ErrDisconnected)
	require.Empty(t, ends, "the device may still use the memory")

	q.Reset()
	require.Len(t, ends, 1)
	require.ErrorIs(t, ends[0], modelrt.ErrDisconnected)
	require.True(t, q.Connected())
	enqueue(t, q, samples(5, 4))
	require.Equal(t, samples(5, 4), fetch(t, q))
}

// TestQueuesResetWakesWaiters fails those that wait for room, in the order
// in which they came or not.
//
// Feature 61.
func TestQueuesResetWakesWaiters(t *testing.T) {
	ctx := context.Background()
	q := inputQueue(t, 1)
	for i := range 4 {
		enqueue(t, q, samples(i, 1))
	}
	const n = 5
	ends := make(chan error, n)
	for range n {
		go func() { ends <- q.Enqueue(ctx, modelrt.InputData{Data: samples(9, 1)}) }()
	}
	rttest.Eventually(t, func() bool { return contains(q.State(""), "producer waits") }, "somebody waits")
	time.Sleep(2 * time.Millisecond)
	q.Reset()
	for range n {
		if err := <-ends; err != nil { // it may have come after the reset
			require.ErrorIs(t, err, modelrt.ErrDisconnected)
		}
	}
	require.False(t, errors.Is(q.TryEnqueue(modelrt.InputData{Data: samples(9, 1)}), modelrt.ErrDisconnected))
}

// TestEnqueueOrder fills a queue from goroutines that have to wait: one after
// the other they get their turn, and nothing is lost.
func TestEnqueueOrder(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	q := inputQueue(t, 1)
	const writers, each = 8, 200
	for w := range writers {
		go func() {
			for i := range each {
				if err := q.Enqueue(ctx, modelrt.InputData{Data: samples(w*each+i, 1)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	next := make([]int, writers)
	for range writers * each / 4 {
		buf := fetch(t, q)
		for i := range 4 {
			v := int(buf[2*i]) + int(buf[2*i+1])<<8
			require.Equal(t, next[v/each], v%each, "of writer %d", v/each)
			next[v/each]++
		}
	}
}
