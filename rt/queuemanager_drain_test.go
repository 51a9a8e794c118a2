package rt_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// heldShift is the model "shift" with a main program that tells when it has begun
// and goes on when it may, to end with an error if it is given one.
func heldShift(t *testing.T) (s rt.Session, m *modelrt.QueueManager, begun chan struct{}, goOn chan error) {
	begun, goOn = make(chan struct{}), make(chan error)
	script := shiftScript()
	once := script.programs[mainProgram]
	script.programs[mainProgram] = func(ctx context.Context, e *engine) error {
		begun <- struct{}{}
		if err := <-goOn; err != nil {
			return err
		}
		return once(ctx, e)
	}
	s = shiftSession(t, fakeName, register(t, script))
	m, err := modelrt.NewQueueManager(context.Background(), s, modelrt.QueueConfig{RingSize: func(modelrt.Anchor) int { return 1 }})
	require.NoError(t, err)
	b, err := m.InputQueue("b")
	require.NoError(t, err)
	require.NoError(t, b.TryEnqueue(modelrt.InputData{Data: floats(10, 20, 30)}))
	require.NoError(t, s.Load(context.Background()))
	return s, m, begun, goOn
}

// TestShutdownWhileComputing shuts a session down while its queues compute. Who
// enqueues from then on is refused at once, and so is who waits for room; what was
// enqueued before is computed, and a failure is reported.
func TestShutdownWhileComputing(t *testing.T) {
	ctx := context.Background()
	failed := errors.New("failed")
	for _, failure := range []error{nil, failed} {
		s, m, begun, goOn := heldShift(t)
		x, y := shiftQueues(t, m)
		g := shiftGroup(t, m)
		r, rest, late := newShiftRequest(1, shiftBatch), newShiftRequest(9, 1), newShiftRequest(99, 1)
		ended := runLoop(m)
		require.NoError(t, r.enqueue(ctx, x, y))
		<-begun
		for range shiftBatch - 1 { // so that both are full
			require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: rest.in}))
			require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: rest.out}))
		}
		waits := make(chan error, 2)
		go func() { waits <- x.Enqueue(ctx, modelrt.InputData{Data: late.in}) }()
		go func() {
			_, err := g.Enqueue(ctx, late.in, late.out)
			waits <- err
		}()
		rttest.Eventually(t, func() bool {
			return waitingToEnqueue(x) == 2 && strings.Contains(x.State("")+y.State(""), "producer waits")
		}, "they wait")
		shut := make(chan error, 1)
		go func() { shut <- s.Shutdown(ctx) }()
		for range 2 {
			err := <-waits
			require.ErrorIs(t, err, modelrt.ErrDisconnected)
			require.ErrorIs(t, err, rt.ErrClosed)
		}
		rttest.Eventually(t, func() bool { return drains(m) }, "the queues drain")
		for _, err := range []error{
			x.TryEnqueue(modelrt.InputData{Data: late.in}), y.TryEnqueue(modelrt.OutputData{Data: late.out}),
			second(g.TryEnqueue(late.in, late.out)), late.enqueue(ctx, x, y),
		} {
			require.ErrorIs(t, err, modelrt.ErrDisconnected)
			require.ErrorIs(t, err, rt.ErrClosed)
		}
		goOn <- failure
		if failure == nil {
			<-begun
			goOn <- nil // what was enqueued then
		}
		require.NoError(t, <-shut)
		err := <-ended
		require.ErrorIs(t, err, failure)
		if failure == nil {
			require.NoError(t, err)
			require.NoError(t, <-r.ended)
			require.NoError(t, errors.Join(r.check(), rest.check()))
		} else {
			require.ErrorIs(t, <-r.ended, failed)
		}
	}
}

// TestQueuesRunEndsWhileItWaits ends the context of a loop that waits for the engine, which
// a program has that waits for data.
func TestQueuesRunEndsWhileItWaits(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		ran := make(chan error, 1)
		go func() { ran <- s.Run(context.Background()) }()
		rttest.Eventually(t, func() bool { return strings.Contains(x.State(""), "consumer waits") }, "the program waits")
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- m.Run(ctx) }()
		rttest.Eventually(t, func() bool { return waiting(s) == 1 }, "the loop waits for the engine")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.NoError(t, <-ran, "on dummy data")
		require.False(t, x.Connected() || y.Connected())
	})
}

// TestQueuesRunLeavesOthers ends a loop while memory for the save program waits in
// a queue: that is not the loop's, and all queues of the main program are
// disconnected.
func TestQueuesRunLeavesOthers(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		saved, err := m.OutputQueue("b")
		require.NoError(t, err)
		data := make([]byte, 12)
		done := make(chan error, 1)
		require.NoError(t, saved.TryEnqueue(modelrt.OutputData{Data: data, OnDone: func(err error) { done <- err }}))
		load, err := m.InputQueue("b")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		require.ErrorIs(t, m.Run(ctx), context.Canceled)
		r := newShiftRequest(1, 1)
		require.ErrorIs(t, x.TryEnqueue(modelrt.InputData{Data: r.in}), modelrt.ErrDisconnected)
		require.ErrorIs(t, y.TryEnqueue(modelrt.OutputData{Data: r.out}), modelrt.ErrDisconnected)
		require.True(t, load.Connected())
		require.EqualValues(t, 1, saved.Enqueued())
		require.NoError(t, s.Save(context.Background()))
		require.NoError(t, <-done)
		require.Equal(t, floats(10, 20, 30), data)
	})
}

// TestQueueGroupInOrder has a group in another order than the queues': it locks
// them in the order in which all do, or two would wait for each other.
func TestQueueGroupInOrder(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		backwards, err := m.Group(y, x)
		require.NoError(t, err)
		r := newShiftRequest(1, 1)
		unlock := lockQueue(x)
		done := make(chan error, 1)
		go func() { done <- second(backwards.TryEnqueue(r.out, r.in)) }()
		for range 1000 {
			require.False(t, isLocked(y), "it has y and waits for x, as another has x and waits for y")
			time.Sleep(10 * time.Microsecond)
		}
		unlock()
		require.NoError(t, <-done)
	})
}

// TestQueueGroupGivesUp ends contexts of requests before they are enqueued: one
// for which there is room, and one that waits behind others.
func TestQueueGroupGivesUp(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		g := shiftGroup(t, m)
		r := newShiftRequest(1, 1)
		ctx, cancel := context.WithCancel(context.Background())
		defer holdTurn(x)()
		for x.TryEnqueue(modelrt.InputData{Data: r.in}) == nil {
		}
		full := x.Enqueued()
		ended := make(chan error, 1)
		go func() { ended <- second(g.Enqueue(ctx, r.in, r.out)) }()
		rttest.Eventually(t, func() bool { return waitingToEnqueue(x) == 1 }, "it waits")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled, "though it is not its turn")
		require.Zero(t, waitingToEnqueue(x))
		require.Equal(t, full, x.Enqueued())
		require.NoError(t, x.Reset())
		_, err := g.Enqueue(ctx, r.in, r.out)
		require.ErrorIs(t, err, context.Canceled, "though there is room")
		require.Zero(t, x.Enqueued()+y.Enqueued())
	})
}

// TestQueueGroupFailsInPart hands one part of a request back and computes on the
// other: the request failed, and only ends with its last part.
func TestQueueGroupFailsInPart(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		_, y := shiftQueues(t, m)
		r, other := newShiftRequest(1, shiftBatch), newShiftRequest(1, shiftBatch)
		ticket, err := shiftGroup(t, m).Enqueue(ctx, r.in, r.out)
		require.NoError(t, err)
		require.NoError(t, y.Reset())
		require.False(t, isDone(ticket), "x still needs its part")
		require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: other.out}))
		require.NoError(t, s.Run(ctx))
		require.NoError(t, other.check())
		require.True(t, isDone(ticket))
		require.ErrorIs(t, ticket.Wait(ctx), modelrt.ErrDisconnected)
	})
}
