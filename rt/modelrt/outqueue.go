package modelrt

import (
	"context"

	"github.com/popefgen/popefgen/ipu"
)

// OutputData is memory for an output queue to fill. It must not be read until
// OnWriteComplete or OnDone is called.
type OutputData struct {
	// Data has room for one sample or several, back to back.
	Data []byte
	// OnWriteComplete, if not nil, is called when all of Data is filled.
	OnWriteComplete func()
	// OnDone, if not nil, is called once when the queue is done with Data: with
	// nil when all of it is filled, with [ErrDisconnected] when the queue is
	// reset, or the session closed, before.
	OnDone func(error)
}

// OutputQueue is the counterpart of [InputQueue]: it scatters the samples that
// an output stream of the device delivers, a batch in every transfer, to memory
// that was enqueued. Sizes must follow the same sequence, in samples, as those
// of the inputs. [NewQueueManager] makes output queues.
//
// Who may do what is the same as for an InputQueue.
type OutputQueue struct {
	ringQueue
	pendingData OutputData
}

func (d *OutputData) chunk() chunk {
	return chunk{data: d.Data, complete: d.OnWriteComplete, done: d.OnDone}
}

// Enqueue puts d at the end of the queue. If [OutputQueue.NumBuffers] pieces of
// memory are there already, it waits. It fails with a [*SampleSizeError], with
// [ErrDisconnected], or with ctx's error; then d is not used.
func (q *OutputQueue) Enqueue(ctx context.Context, d OutputData) error {
	return q.enqueue(ctx, d.chunk())
}

// TryEnqueue is Enqueue that does not wait: it fails with [rt.ErrQueueFull].
func (q *OutputQueue) TryEnqueue(d OutputData) error { return q.tryEnqueue(d.chunk()) }

// EnqueueLock waits for room and returns an empty OutputData to fill in, for
// EnqueueComplete to enqueue. Called again before that, it returns the same.
// It is for callers that are alone: meanwhile, Enqueue and flushes fail with
// [ErrEnqueueLocked].
func (q *OutputQueue) EnqueueLock(ctx context.Context) (*OutputData, error) {
	if err := q.lock(ctx); err != nil {
		return nil, err
	}
	return &q.pendingData, nil
}

// EnqueueComplete enqueues what [OutputQueue.EnqueueLock] returned. It fails
// with [ring.ErrNotLocked] without it, with [ErrDisconnected], and with a
// [*SampleSizeError], after which the OutputData is still locked.
func (q *OutputQueue) EnqueueComplete() error {
	if err := q.unlock(q.pendingData.chunk()); err != nil {
		return err
	}
	q.pendingData = OutputData{}
	return nil
}

// Flush makes room for dummy samples, which are dropped: those that complete a
// batch that is enqueued in part, or if none is, a batch of them. It is the
// counterpart of [InputQueue.Flush].
func (q *OutputQueue) Flush() error { return q.flush() }

// Reset empties the queue and connects it again, like [InputQueue.Reset].
func (q *OutputQueue) Reset() error {
	if err := q.restart(true); err != nil {
		return q.about.Errorf("reset a queue", err)
	}
	return nil
}

func (q *OutputQueue) restart(connect bool) error {
	err := q.reset(connect)
	q.pendingData = OutputData{}
	return err
}

// Memory returns the memory that the next transfer is to fill, if a single
// piece holds all of it; it waits for memory, or until ctx ends.
func (q *OutputQueue) Memory(ctx context.Context) ([]byte, error) {
	if err := q.next(ctx); err != nil {
		return nil, q.unlessDisconnected(err)
	}
	c := q.cur
	if c.samples-q.off < q.batch {
		return nil, nil
	}
	q.direct = true
	return c.data[q.off*q.sample : (q.off+q.batch)*q.sample : (q.off+q.batch)*q.sample], nil
}

// Fetch scatters one transfer; it waits for memory, or until ctx ends. A queue
// that is disconnected drops it.
func (q *OutputQueue) Fetch(ctx context.Context, buf []byte) error {
	if err := q.size(buf); err != nil {
		return err
	}
	q.direct = false
	for missing := q.batch; missing > 0; {
		if err := q.next(ctx); err != nil {
			return q.unlessDisconnected(err)
		}
		c := q.cur
		n := min(missing, c.samples-q.off)
		copy(c.data[q.off*q.sample:], buf[:n*q.sample])
		buf = buf[n*q.sample:]
		missing -= n
		q.fill(n)
	}
	return nil
}

// fill ends the use of cur if n more samples fill it up.
func (q *OutputQueue) fill(n int) {
	c := q.cur
	q.moved = true
	if q.off += n; q.off < c.samples {
		return
	}
	q.cur = nil
	q.call(c.complete)
	q.release(c)
}

// Prefetch does nothing: outputs are never prefetched.
func (q *OutputQueue) Prefetch([]byte) bool { return false }

// Complete ends a transfer.
func (q *OutputQueue) Complete() {
	if q.direct && q.Connected() {
		q.direct = false
		q.fill(q.batch)
	}
}

// InvalidatePrefetched does nothing: outputs are never prefetched.
func (q *OutputQueue) InvalidatePrefetched() {}

var (
	_ Queue      = (*OutputQueue)(nil)
	_ ipu.Direct = (*OutputQueue)(nil)
)
