package rt_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/modelrt"
)

// Feature 62.
func TestQueueManager(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		require.Same(t, m, modelrt.Queues(s))
		_, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
		require.ErrorIs(t, err, modelrt.ErrQueueManager)

		names := func() (all []string) {
			for _, q := range m.Inputs() {
				all = append(all, fmt.Sprint("in ", q.Name(), q.Info(), q.Batch(), q.NumBuffers()))
			}
			for _, q := range m.Outputs() {
				all = append(all, fmt.Sprint("out ", q.Name(), q.Info(), q.Batch(), q.NumBuffers()))
			}
			return all
		}()
		require.Equal(t, []string{"in bF32 [3] 1 1", "in xF32 [4 3] 4 8", "out bF32 [3] 1 1", "out yF32 [4 3] 4 8"}, names)
		x, y := shiftQueues(t, m)
		byHandle, err := m.InputQueue("h2d_x")
		require.NoError(t, err)
		require.Same(t, x, byHandle)
		_, err = m.InputQueue("y")
		var unknown *modelrt.UnknownQueueError
		require.ErrorAs(t, err, &unknown)
		require.ErrorIs(t, err, modelrt.ErrUnknownQueue)
		require.EqualError(t, err, `shift.popef: find a queue: input queue "y": no such queue; there are ["b" "x"]`)
		_, err = m.OutputQueue("x")
		require.EqualError(t, err, `shift.popef: find a queue: output queue "x": no such queue; there are ["b" "y"]`)

		var requests []*shiftRequest
		for _, n := range []int{1, 2, 5} {
			r := newShiftRequest(100*n, n)
			require.NoError(t, r.enqueue(ctx, x, y))
			requests = append(requests, r)
		}
		require.NoError(t, s.Run(ctx))
		require.True(t, requests[1].isEnded())
		require.False(t, requests[2].isEnded())
		require.NoError(t, s.Run(ctx))
		for _, r := range requests {
			require.NoError(t, <-r.ended)
			require.NoError(t, r.check())
		}

		saved := make([]byte, 12)
		b, err := m.OutputQueue("b")
		require.NoError(t, err)
		require.NoError(t, b.TryEnqueue(modelrt.OutputData{Data: saved}))
		require.NoError(t, s.Save(ctx))
		require.Equal(t, floats(10, 20, 30), saved)
		require.Contains(t, m.State("> "), "> ring \"x\": 0 of 8 buffers full, 8 samples enqueued in batches of 4 (in)\n")

		left := newShiftRequest(0, 2)
		require.NoError(t, left.enqueue(ctx, x, y))
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-left.ended, modelrt.ErrDisconnected)
		require.ErrorIs(t, newShiftRequest(0, 1).enqueue(ctx, x, y), modelrt.ErrDisconnected)
		require.ErrorIs(t, m.FlushAll(), modelrt.ErrDisconnected)
		require.ErrorIs(t, m.ResetAll(ctx), rt.ErrClosed)
	})
}

// Feature 62.
func TestQueuePredicates(t *testing.T) {
	ctx := context.Background()
	flow := shiftMetadata().ProgramFlow
	s := shiftSession(t, portable, shiftPortable())
	require.NoError(t, s.ConnectData(ctx, "h2d_b", floats(1, 2, 3)))
	m, err := modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{
		Inputs:  modelrt.InMain(flow, modelrt.BindUser, modelrt.SkipBind),
		Outputs: modelrt.InMain(flow, modelrt.BindUser, modelrt.BindEmpty),
	})
	require.NoError(t, err)
	require.Len(t, m.Inputs(), 1)
	require.Len(t, m.Outputs(), 1)
	x, y := shiftQueues(t, m)
	in, out := floats(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), make([]byte, 48)
	require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: in}))
	require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: out}))
	require.NoError(t, s.Run(ctx))
	require.Equal(t, floats(1, 2, 3, 2, 3, 4, 3, 4, 5, 4, 5, 6), out)
	require.NoError(t, s.Save(ctx), "into the empty end")

	s = shiftSession(t, portable, shiftPortable())
	for name, c := range map[string]modelrt.QueueConfig{
		"policy":    {Inputs: func(modelrt.Anchor) modelrt.CallbackPolicy { return 9 }},
		"ring size": {RingSize: func(modelrt.Anchor) int { return 0 }},
		"huge":      {RingSize: func(modelrt.Anchor) int { return 1 << 50 }},
		"batch":     {Batch: func(modelrt.Anchor) int { return 5 }},
		"no batch":  {Batch: func(modelrt.Anchor) int { return -1 }},
		"timeout":   {Timeout: -1, OnTimeout: modelrt.FlushOnTimeout},
	} {
		_, err := modelrt.NewQueueManager(ctx, s, c)
		require.ErrorIs(t, err, rt.ErrOption, name)
	}
	_, err = modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{Batch: func(modelrt.Anchor) int { return 1 }})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = modelrt.NewQueueManager(ctx, s, modelrt.QueueConfig{})
	require.ErrorIs(t, err, rt.ErrClosed)
}

// Feature 64.
func TestRingSizes(t *testing.T) {
	c := contract.Contract{Flow: popef.ProgramFlow{Load: []uint32{0, 1}, Main: []uint32{2, 3}, Save: []uint32{4}}}
	weight, image := modelrt.Anchor{Programs: []uint32{1}, Role: contract.LoadInput}, modelrt.Anchor{Programs: []uint32{3}, Role: contract.RunInput}
	both, unknown := modelrt.Anchor{Programs: []uint32{0, 2}, Role: contract.LoadInput}, modelrt.Anchor{Role: contract.RunOutput}
	saved := modelrt.Anchor{Programs: []uint32{4}, Role: contract.SaveOutput}
	for _, row := range []struct {
		name string
		size modelrt.RingSize
		want []int
	}{
		{"main", modelrt.RingSizeForMain(c, 5, 1), []int{1, 5, 5, 5, 1}},
		{"programs", modelrt.RingSizeForPrograms([]uint32{1, 2}, 7, 2), []int{7, 2, 7, 2, 2}},
		{"no programs", modelrt.RingSizeForPrograms(nil, 7, 2), []int{2, 2, 2, 2, 2}},
	} {
		var got []int
		for _, a := range []modelrt.Anchor{weight, image, both, unknown, saved} {
			got = append(got, row.size(a))
		}
		require.Equal(t, row.want, got, row.name)
	}
	onShift(t, modelrt.QueueConfig{RingSize: modelrt.RingSizeForPrograms([]uint32{mainProgram}, 3, 2)}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		var got []int
		for _, q := range m.Inputs() {
			got = append(got, q.NumBuffers())
		}
		require.Equal(t, []int{2, 12}, got)
	})
}

// Feature 59.
func TestFlushAll(t *testing.T) {
	onShift(t, modelrt.QueueConfig{}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		ctx := context.Background()
		x, y := shiftQueues(t, m)
		r := newShiftRequest(5, 3)
		require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: r.in}))
		err := m.FlushAll()
		require.ErrorIs(t, err, modelrt.ErrUnbalanced, "the output is not there yet")
		require.ErrorContains(t, err, `"x" has 3 samples in batches of 4; "y" has 0 samples in batches of 4`)
		require.EqualValues(t, 3, x.Enqueued())
		require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: r.out}))
		require.NoError(t, m.FlushAll())
		require.NoError(t, s.Run(ctx))
		require.NoError(t, r.check())

		require.NoError(t, m.FlushAll()) // a batch of dummies
		r = newShiftRequest(50, 4)
		require.NoError(t, r.enqueue(ctx, x, y))
		require.NoError(t, s.Run(ctx))
		require.False(t, r.isEnded())
		require.NoError(t, s.Run(ctx))
		require.NoError(t, <-r.ended)
		require.NoError(t, r.check())
		for _, q := range m.Inputs() {
			want := map[string]int64{"b": 1, "x": 12}[q.Name()]
			require.Equal(t, want, q.Enqueued(), "%s: weights are not flushed", q.Name())
		}

		_, err = y.EnqueueLock(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, m.FlushAll(), modelrt.ErrEnqueueLocked)
		require.EqualValues(t, 12, x.Enqueued(), "all or nothing")
		require.NoError(t, m.ResetAll(ctx))
		for m.FlushAll() == nil {
		}
		require.ErrorIs(t, m.FlushAll(), rt.ErrQueueFull)
		require.Equal(t, x.Enqueued(), y.Enqueued())
	})
}

// TestFlushAllMixedBatches has an output that does not take part in
// the batch, as a loss.
//
// Feature 59.
func TestFlushAllMixedBatches(t *testing.T) {
	batch := func(a modelrt.Anchor) int { return map[string]int{"x": shiftBatch, "y": 1, "b": 1}[a.Name] }
	onShift(t, modelrt.QueueConfig{Batch: batch}, func(t *testing.T, s rt.Session, m *modelrt.QueueManager) {
		x, y := shiftQueues(t, m)
		r := newShiftRequest(5, 4)
		require.NoError(t, x.TryEnqueue(modelrt.InputData{Data: r.in[:2*shiftSample]}))
		require.ErrorIs(t, m.FlushAll(), modelrt.ErrUnbalanced)
		require.NoError(t, y.TryEnqueue(modelrt.OutputData{Data: r.out}))
		require.NoError(t, m.FlushAll())
		require.EqualValues(t, 4, x.Enqueued())
		require.EqualValues(t, 1, y.Enqueued(), "it lacked nothing")
		require.NoError(t, s.Run(context.Background()))
		require.Equal(t, r.in[:4], floats(f32s(r.out, 0)-10))
		require.NoError(t, m.FlushAll())
		require.EqualValues(t, 8, x.Enqueued())
		require.EqualValues(t, 2, y.Enqueued())
	})
}
