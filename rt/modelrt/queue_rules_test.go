package modelrt

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/session"
	"github.com/popefgen/popefgen/rt/ring"
)

// pair returns an input and an output queue of batches of four bytes, with room
// for two batches, and their manager.
func pair(t *testing.T) (*InputQueue, *OutputQueue, *QueueManager) {
	t.Helper()
	in, err := NewInputQueue(4, 1, 2, nil, ring.Config[struct{}]{})
	require.NoError(t, err)
	out, err := NewOutputQueue(4, 1, 2)
	require.NoError(t, err)
	both := []*ringQueue{&in.ringQueue, &out.ringQueue}
	return in, out, &QueueManager{session: &session.Session{}, inputs: []*InputQueue{in}, outputs: []*OutputQueue{out}, all: both, main: both}
}

// put enqueues under the lock that the caller holds.
func (q *ringQueue) putLocked(t *testing.T, data []byte) {
	b, err := q.write()
	require.NoError(t, err)
	q.put(b, chunk{data: data, samples: len(data) / q.sample})
}

// TestFlushLooksAgain has data come between the moment at which a device is found
// to starve and that at which the queues are locked.
func TestFlushLooksAgain(t *testing.T) {
	in, _, m := pair(t)
	require.NoError(t, m.FlushStarved(in), "it starves")
	require.EqualValues(t, 4, in.Enqueued())
	in, out, m := pair(t)
	in.mu.Lock()
	flushed := make(chan error)
	go func() { flushed <- m.FlushStarved(in) }()
	time.Sleep(10 * time.Millisecond) // whatever it looks at before it has the lock
	in.putLocked(t, make([]byte, 4))
	require.NoError(t, out.TryEnqueue(OutputData{Data: make([]byte, 4)}))
	in.mu.Unlock()
	require.NoError(t, <-flushed)
	require.EqualValues(t, 4, in.Enqueued(), "there was data by then")
	require.EqualValues(t, 4, out.Enqueued())
}

// TestFlushWaitsForEnqueue has a request that is enqueued to one of its queues
// while the other is locked for it.
func TestFlushWaitsForEnqueue(t *testing.T) {
	in, out, m := pair(t)
	out.mu.Lock()
	require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 3)}))
	flushed := make(chan error)
	go func() { flushed <- m.FlushAll() }()
	time.Sleep(10 * time.Millisecond)
	out.putLocked(t, make([]byte, 3))
	out.mu.Unlock()
	require.NoError(t, <-flushed)
	require.EqualValues(t, 4, in.Enqueued())
	require.EqualValues(t, 4, out.Enqueued())
}

// TestFlushNeedsBalance refuses queues that have different numbers of samples,
// though of as many batches.
func TestFlushNeedsBalance(t *testing.T) {
	for _, samples := range [][2]int{{3, 2}, {2, 3}, {4, 3}, {0, 1}, {5, 4}} {
		in, out, m := pair(t)
		if samples[0] > 0 {
			require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, samples[0])}))
		}
		require.NoError(t, out.TryEnqueue(OutputData{Data: make([]byte, samples[1])}))
		require.ErrorIs(t, m.FlushAll(), ErrUnbalanced, "%v", samples)
		require.EqualValues(t, samples[0], in.Enqueued())
		require.EqualValues(t, samples[1], out.Enqueued())
	}
}

// TestDisconnectOrder disconnects outputs before inputs, so that nothing that dummy
// data led to counts as a result.
func TestDisconnectOrder(t *testing.T) {
	in, out, m := pair(t)
	require.Equal(t, []*ringQueue{&out.ringQueue, &in.ringQueue}, m.backwards())
	m.DisconnectAll()
	require.False(t, in.Connected() || out.Connected())
}

// TestStopOfQueues closes a session: what save programs deliver can still be
// delivered to what is enqueued, and nothing else goes on.
func TestStopOfQueues(t *testing.T) {
	in, out, m := pair(t)
	m.main = nil
	m.inputs[0].info.Direction, m.outputs[0].info.Direction = ipu.HostToDevice, ipu.DeviceToHost
	require.NoError(t, out.TryEnqueue(OutputData{Data: make([]byte, 4)}))
	require.NoError(t, m.stop())
	require.False(t, in.Connected(), "no program loads any more")
	require.True(t, out.Connected())
	require.NoError(t, out.Fetch(t.Context(), make([]byte, 4)))
	require.NoError(t, out.Fetch(t.Context(), make([]byte, 4)), "dropped: it waits for nothing")
	in, out, m = pair(t)
	require.NoError(t, m.stop())
	require.False(t, in.Connected() || out.Connected())
}

// TestDummyResults has a queue that is disconnected while a transfer is under way:
// what ends then was none of the user's.
func TestDummyResults(t *testing.T) {
	ctx := t.Context()
	t.Run("input", func(t *testing.T) {
		in, _, _ := pair(t)
		require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 4), OnDone: func(err error) { t.Error("reported as done:", err) }}))
		require.NoError(t, in.Fetch(ctx, make([]byte, 4)))
		in.Disconnect()
		in.Complete()
	})
	t.Run("output", func(t *testing.T) {
		_, out, _ := pair(t)
		report := func() { t.Error("reported as filled") }
		require.NoError(t, out.TryEnqueue(OutputData{Data: make([]byte, 4), OnWriteComplete: report, OnDone: func(error) { report() }}))
		memory, err := out.Memory(ctx)
		require.NoError(t, err)
		require.Len(t, memory, 4)
		out.Disconnect()
		out.Complete()
	})
	t.Run("prefetched", func(t *testing.T) {
		in, _, _ := pair(t)
		require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 4), OnReadStart: in.Disconnect}))
		require.False(t, in.Prefetch(make([]byte, 4)))
		require.False(t, in.Prefetch(make([]byte, 4)))
	})
	t.Run("too far ahead", func(t *testing.T) {
		for _, disconnected := range []bool{false, true} {
			in, _, _ := pair(t)
			for range in.NumBuffers() / 4 {
				for range 4 {
					require.NoError(t, in.TryEnqueue(InputData{Data: []byte{1}}))
				}
				require.NoError(t, in.Fetch(ctx, make([]byte, 4)))
			}
			if !disconnected {
				require.ErrorIs(t, in.Fetch(ctx, make([]byte, 4)), ErrLookAhead)
				continue
			}
			in.Disconnect()
			require.NoError(t, in.Fetch(ctx, make([]byte, 4)), "zeros need no room")
		}
	})
	t.Run("not too far ahead", func(t *testing.T) {
		in, _, _ := pair(t)
		for i := range in.NumBuffers() - 1 {
			require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 1+i/6)}))
		}
		require.NoError(t, in.Fetch(ctx, make([]byte, 4)))
		require.NoError(t, in.Fetch(ctx, make([]byte, 4)))
		over, cancel := context.WithCancel(ctx)
		cancel()
		require.ErrorIs(t, in.Fetch(over, make([]byte, 4)), context.Canceled, "there is room for more")
	})
}

// TestPrefetchAfterDiscard asks ahead for a transfer of which some is there, after
// what was prefetched has been thrown away: it must not wait for the rest.
func TestPrefetchAfterDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, _, _ := pair(t)
		require.NoError(t, in.TryEnqueue(InputData{Data: []byte{1, 2, 3, 4, 5, 6}}))
		buf := make([]byte, 4)
		require.True(t, in.Prefetch(buf))
		require.True(t, in.ReadAvailable(), "two samples")
		in.Complete()
		in.InvalidatePrefetched()
		require.False(t, in.Prefetch(buf))
		require.NoError(t, in.TryEnqueue(InputData{Data: []byte{7, 8}}))
		require.True(t, in.Prefetch(buf))
		require.Equal(t, []byte{5, 6, 7, 8}, buf)
	})
}

// TestNobodyOvertakes has goroutines wait for room: who comes later comes later,
// also if there is room by then.
func TestNobodyOvertakes(t *testing.T) {
	fill := func(t *testing.T, in *InputQueue) {
		for range in.NumBuffers() {
			require.NoError(t, in.TryEnqueue(InputData{Data: []byte{0}}))
		}
	}
	t.Run("there is room", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			in, _, _ := pair(t)
			in.turn <- struct{}{} // one waits, and has not been woken yet
			in.waiting++
			require.ErrorIs(t, in.TryEnqueue(InputData{Data: []byte{2}}), rt.ErrQueueFull)
			enqueued := make(chan error, 1)
			go func() { enqueued <- in.Enqueue(t.Context(), InputData{Data: []byte{2}}) }()
			synctest.Wait()
			require.Zero(t, in.Enqueued())
			<-in.turn
			in.mu.Lock()
			in.waiting--
			in.putLocked(t, []byte{1})
			in.mu.Unlock()
			require.NoError(t, <-enqueued)
			require.EqualValues(t, 2, in.Enqueued())
		})
	})
	t.Run("who gives up", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			in, _, _ := pair(t)
			fill(t, in)
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			go func() { first <- in.Enqueue(t.Context(), InputData{Data: []byte{1}}) }()
			synctest.Wait()
			go func() { second <- in.Enqueue(ctx, InputData{Data: []byte{2}}) }()
			synctest.Wait()
			cancel()
			require.ErrorIs(t, <-second, context.Canceled)
			buf := make([]byte, 4)
			require.NoError(t, in.Fetch(t.Context(), buf))
			in.Complete()
			require.NoError(t, <-first)
			require.NoError(t, in.TryEnqueue(InputData{Data: []byte{3}}), "nobody waits any more")
		})
	})
}

// TestDoneMakesRoom enqueues from OnDone: the place of what is done is free.
func TestDoneMakesRoom(t *testing.T) {
	in, _, _ := pair(t)
	again := 0
	for range in.NumBuffers() {
		require.NoError(t, in.TryEnqueue(InputData{Data: []byte{1}, OnDone: func(error) {
			again++
			require.NoError(t, in.TryEnqueue(InputData{Data: []byte{2}}))
		}}))
	}
	require.NoError(t, in.Fetch(t.Context(), make([]byte, 4)))
	require.True(t, in.moved == false)
	in.Complete()
	require.Equal(t, 4, again)
	require.True(t, in.moved)
}

// TestQueuesForget looks at what a queue keeps of data that it is done with.
func TestQueuesForget(t *testing.T) {
	kept := func(q *ringQueue) (n int) {
		slots := reflect.ValueOf(q.ring).Elem().FieldByName("slots")
		for i := range slots.Len() {
			c := slots.Index(i).FieldByName("value")
			if !c.FieldByName("data").IsNil() || !c.FieldByName("done").IsNil() {
				n++
			}
		}
		return n
	}
	in, out, _ := pair(t)
	require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 4), OnDone: func(error) {}}))
	require.NoError(t, in.Fetch(t.Context(), make([]byte, 4)))
	in.Complete()
	require.Zero(t, kept(&in.ringQueue))
	require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 6)}))
	require.NoError(t, in.Fetch(t.Context(), make([]byte, 4)))
	require.NoError(t, in.Reset())
	require.Zero(t, in.ahead)
	require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 6)}))
	in.InvalidatePrefetched()
	require.NoError(t, in.Reset())
	require.False(t, in.resume)
	require.NoError(t, in.TryEnqueue(InputData{Data: make([]byte, 8)}))
	memory, err := in.Memory(t.Context())
	require.NoError(t, err)
	require.Len(t, memory, 4)
	require.NoError(t, in.Reset())
	require.False(t, in.direct)
	require.NoError(t, out.TryEnqueue(OutputData{Data: make([]byte, 6)}))
	require.NoError(t, out.Fetch(t.Context(), make([]byte, 4)))
	require.True(t, out.moved, "a run that fails now has delivered in part")
	for range 2 {
		d, err := out.EnqueueLock(t.Context())
		require.NoError(t, err)
		require.Nil(t, d.Data, "it is empty")
		d.Data = make([]byte, 4)
		require.NoError(t, out.EnqueueComplete())
	}
	d, err := out.EnqueueLock(t.Context())
	require.NoError(t, err)
	d.Data = make([]byte, 4)
	require.NoError(t, out.Reset())
	require.Zero(t, kept(&out.ringQueue))
	require.Nil(t, out.pendingData.Data)
	require.False(t, out.moved || out.pending || out.direct)
	require.Zero(t, out.off)
	require.Zero(t, out.Enqueued())
}

// TestQueueSizes refuses rings whose number of buffers overflows.
func TestQueueSizes(t *testing.T) {
	for _, batches := range []int{0, -1, ring.MaxSize, 1 << 62} {
		_, err := NewInputQueue(4, 1, batches, nil, ring.Config[struct{}]{})
		require.ErrorIs(t, err, rt.ErrOption, "%d", batches)
	}
}
