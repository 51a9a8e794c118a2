package modelrt_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/rt/internal/rttest"
	"github.com/popefgen/popefgen/rt/modelrt"
)

var errWrong = errors.New("wrong result")

// TestNoAllocations goes through everything that is done again and again with a
// queue or a pool, and fails for a method that is not in the table.
func TestNoAllocations(t *testing.T) {
	const others = `
	InputQueue.Anchor InputQueue.Batch InputQueue.Connected InputQueue.Disconnect InputQueue.Enqueued
	InputQueue.Info InputQueue.Name InputQueue.NumBuffers InputQueue.Reset InputQueue.SampleBytes InputQueue.State
	InputQueue.TransferBytes OutputQueue.Anchor OutputQueue.Batch OutputQueue.Connected OutputQueue.Disconnect
	OutputQueue.Enqueued OutputQueue.Info OutputQueue.Name OutputQueue.NumBuffers OutputQueue.Reset
	OutputQueue.SampleBytes OutputQueue.State OutputQueue.TransferBytes OutputQueue.Prefetch
	OutputQueue.InvalidatePrefetched RingPool.BlobSize RingPool.NumBlobs`
	ctx := context.Background()
	done, call := func(error) {}, func() {}
	data, buf := make([]byte, 8), make([]byte, 8)
	in := func(t *testing.T, f func(q *modelrt.InputQueue) error) func() error {
		q := inputQueue(t, 2)
		return func() error { return f(q) }
	}
	out := func(t *testing.T, f func(q *modelrt.OutputQueue) error) func() error {
		q := outputQueue(t, 2)
		return func() error { return f(q) }
	}
	rttest.NoAllocations(t, others, []rttest.Steady{
		{Name: "input queue/regrouped", Of: "InputQueue.Enqueue InputQueue.Fetch InputQueue.Complete InputQueue.ReadAvailable", Make: func(t *testing.T) func() error {
			return in(t, func(q *modelrt.InputQueue) error {
				for range 2 {
					if err := q.Enqueue(ctx, modelrt.InputData{Data: data[:4], OnReadStart: call, OnReadComplete: call, OnDone: done}); err != nil {
						return err
					}
				}
				if !q.ReadAvailable() {
					return errWrong
				}
				err := q.Fetch(ctx, buf)
				q.Complete()
				return err
			})
		}},
		{Name: "input queue/prefetched twice", Of: "InputQueue.TryEnqueue InputQueue.Prefetch InputQueue.InvalidatePrefetched", Make: func(t *testing.T) func() error {
			return in(t, func(q *modelrt.InputQueue) error {
				if err := q.TryEnqueue(modelrt.InputData{Data: data, OnDone: done}); err != nil {
					return err
				}
				q.Prefetch(buf)
				q.InvalidatePrefetched()
				q.Prefetch(buf)
				q.Complete()
				return nil
			})
		}},
		{Name: "input queue/in place, flushed", Of: "InputQueue.EnqueueLock InputQueue.EnqueueComplete InputQueue.Flush InputQueue.Memory", Make: func(t *testing.T) func() error {
			return in(t, func(q *modelrt.InputQueue) error {
				d, err := q.EnqueueLock(ctx)
				if err != nil {
					return err
				}
				d.Data = data
				if err = q.EnqueueComplete(); err == nil {
					err = q.Flush()
				}
				for range 2 {
					if err == nil {
						_, err = q.Memory(ctx)
						q.Complete()
					}
				}
				return err
			})
		}},
		{Name: "output queue/scattered", Of: "OutputQueue.Enqueue OutputQueue.Fetch OutputQueue.Complete OutputQueue.ReadAvailable", Make: func(t *testing.T) func() error {
			return out(t, func(q *modelrt.OutputQueue) error {
				for range 2 {
					if err := q.Enqueue(ctx, modelrt.OutputData{Data: data[:4], OnWriteComplete: call, OnDone: done}); err != nil {
						return err
					}
				}
				if !q.ReadAvailable() {
					return errWrong
				}
				err := q.Fetch(ctx, buf)
				q.Complete()
				return err
			})
		}},
		{Name: "output queue/in place, flushed", Of: "OutputQueue.TryEnqueue OutputQueue.EnqueueLock OutputQueue.EnqueueComplete OutputQueue.Flush OutputQueue.Memory", Make: func(t *testing.T) func() error {
			return out(t, func(q *modelrt.OutputQueue) error {
				err := q.TryEnqueue(modelrt.OutputData{Data: data, OnDone: done})
				if err != nil {
					return err
				}
				d, err := q.EnqueueLock(ctx)
				if err != nil {
					return err
				}
				d.Data = data
				if err = q.EnqueueComplete(); err == nil {
					err = q.Flush()
				}
				for range 3 {
					if err == nil {
						_, err = q.Memory(ctx)
						q.Complete()
					}
				}
				return err
			})
		}},
		{Name: "a pool", Of: "RingPool.Get Blob.Bytes Blob.Done Blob.Release", Make: func(t *testing.T) func() error {
			pool, err := modelrt.NewRingPool(8, 2)
			require.NoError(t, err)
			return func() error {
				a, err := pool.Get()
				if err != nil {
					return err
				}
				b, err := pool.Get()
				if err != nil {
					return err
				}
				copy(a.Bytes(), b.Bytes())
				a.Done()(nil)
				return b.Release()
			}
		}},
	}, &modelrt.InputQueue{}, &modelrt.OutputQueue{}, &modelrt.RingPool{}, &modelrt.Blob{})
}
