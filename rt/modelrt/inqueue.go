package modelrt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/ipu"
)

// InputData is memory for an input queue to read. Nothing is copied: it must
// not change until OnDone is called, or if there is none, until the results of
// its samples have arrived.
type InputData struct {
	// Data is one sample or several, back to back.
	Data []byte
	// OnReadStart, if not nil, is called before the first of Data is moved to
	// the device, again if the device throws away what it prefetched.
	OnReadStart func()
	// OnReadComplete, if not nil, is called when the transfer that takes the
	// last of Data is assembled and about to be consumed by the device, again
	// if the device throws away what it prefetched.
	OnReadComplete func()
	// OnDone, if not nil, is called once when the queue is done with Data: with
	// nil when the device has consumed it, with [ErrDisconnected] when the
	// queue is reset, or the session closed, before.
	OnDone func(error)
}

// InputQueue hands samples to an input stream of the device, which takes a
// batch of them in every transfer: what is enqueued is joined or split as
// batches need it. [NewQueueManager] makes input queues.
//
// Enqueueing, flushing and disconnecting may be done by any goroutine. Samples
// are read in the order in which they were enqueued; a [QueueGroup] enqueues
// requests to several queues so that none comes in between. Functions in [InputData] are called by the device side: they must
// not block, nor wait for room in a queue.
//
// The methods of [ipu.Direct] are for the engine.
type InputQueue struct {
	ringQueue
	pendingData InputData

	// The device side's: transfers that were read and are not complete, samples
	// of the oldest read-locked chunk that complete transfers have used, and,
	// after what was prefetched was thrown away, whether to start there again.
	ahead  int
	lead   int
	resume bool
	ended  []*chunk // chunks that end in a transfer; kept to allocate once
}

func (d *InputData) chunk() chunk {
	return chunk{data: d.Data, start: d.OnReadStart, complete: d.OnReadComplete, done: d.OnDone}
}

// Enqueue puts d at the end of the queue. If [InputQueue.NumBuffers] pieces of
// memory are there already, it waits. It fails with a [*SampleSizeError], with
// [ErrDisconnected], or with ctx's error; then d is not used.
func (q *InputQueue) Enqueue(ctx context.Context, d InputData) error {
	return q.enqueue(ctx, d.chunk())
}

// TryEnqueue is Enqueue that does not wait: it fails with [rt.ErrQueueFull].
func (q *InputQueue) TryEnqueue(d InputData) error { return q.tryEnqueue(d.chunk()) }

// EnqueueLock waits for room and returns an empty InputData to fill in, for
// EnqueueComplete to enqueue. Called again before that, it returns the same.
// It is for callers that are alone: meanwhile, Enqueue and flushes fail with
// [ErrEnqueueLocked].
func (q *InputQueue) EnqueueLock(ctx context.Context) (*InputData, error) {
	if err := q.lock(ctx); err != nil {
		return nil, err
	}
	return &q.pendingData, nil
}

// EnqueueComplete enqueues what [InputQueue.EnqueueLock] returned. It fails
// with [ring.ErrNotLocked] without it, with [ErrDisconnected], and with a
// [*SampleSizeError], after which the InputData is still locked.
func (q *InputQueue) EnqueueComplete() error {
	if err := q.unlock(q.pendingData.chunk()); err != nil {
		return err
	}
	q.pendingData = InputData{}
	return nil
}

// Flush completes a batch that is enqueued in part with samples of zeros; if
// none is, it enqueues a batch of them. The device then need not wait. Outputs
// have to be flushed alike, see [QueueManager.FlushAll]. It fails with
// [rt.ErrQueueFull] if the device is several flushes behind.
func (q *InputQueue) Flush() error { return q.flush() }

// Reset empties the queue and connects it again, as is needed after the
// session was stopped. OnDone of what was not used up is called with
// [ErrDisconnected]; what waits to be enqueued fails with it. No program that
// moves the stream may be running: [QueueManager.ResetAll] sees to that.
func (q *InputQueue) Reset() error {
	if err := q.restart(true); err != nil {
		return q.about.Errorf("reset a queue", err)
	}
	return nil
}

func (q *InputQueue) restart(connect bool) error {
	err := q.reset(connect)
	q.pendingData = InputData{}
	q.ahead, q.lead, q.resume = 0, 0, false
	clear(q.ended[:cap(q.ended)])
	return err
}

// Memory returns the memory of the next transfer, if a single piece holds all
// of it; it waits for data, or until ctx ends.
func (q *InputQueue) Memory(ctx context.Context) ([]byte, error) {
	if q.ahead > 0 { // such an engine fetches
		return nil, nil
	}
	if err := q.nextInput(ctx); err != nil {
		return nil, q.unlessDisconnected(err)
	}
	c := q.cur
	if c.samples-q.off < q.batch {
		return nil, nil
	}
	if q.off == 0 {
		q.call(c.start)
	}
	if q.off+q.batch == c.samples {
		q.call(c.complete)
	}
	q.direct = true
	return c.data[q.off*q.sample : (q.off+q.batch)*q.sample : (q.off+q.batch)*q.sample], nil
}

// Fetch copies the next transfer into buf; it waits for data, or until ctx ends.
// A queue that is disconnected gives zeros.
func (q *InputQueue) Fetch(ctx context.Context, buf []byte) error {
	if err := q.size(buf); err != nil {
		return err
	}
	q.direct = false
	q.ended = q.ended[:0]
	rest := buf
	for missing := q.batch; missing > 0; {
		if err := q.nextInput(ctx); err != nil {
			q.InvalidatePrefetched() // the program fails, and another starts anew
			clear(buf)
			return q.unlessDisconnected(err)
		}
		c := q.cur
		if q.off == 0 {
			q.call(c.start)
		}
		n := min(missing, c.samples-q.off)
		copy(rest, c.data[q.off*q.sample:(q.off+n)*q.sample])
		rest = rest[n*q.sample:]
		missing -= n
		q.off += n
		if q.off == c.samples {
			q.ended = append(q.ended, c)
			q.cur = nil
		}
	}
	q.ahead++
	for i, c := range q.ended {
		q.call(c.complete)
		q.ended[i] = nil
	}
	return nil
}

// Prefetch is Fetch if there is data for a whole transfer, and else does
// nothing.
func (q *InputQueue) Prefetch(buf []byte) bool {
	if !q.Connected() || q.direct {
		return false
	}
	there := 0
	switch {
	case q.cur != nil:
		there = q.cur.samples - q.off
	case q.resume:
		there = -q.lead
	}
	for i := 0; there < q.batch; i++ {
		c := q.ring.Peek(i)
		if c == nil {
			return false
		}
		there += c.samples
	}
	return q.Fetch(context.Background(), buf) == nil && q.Connected() // all of it is there
}

// Complete ends the oldest transfer: the memory that it was read from is
// returned.
func (q *InputQueue) Complete() {
	if !q.Connected() || q.ahead == 0 && !q.direct {
		return
	}
	q.moved = true
	for used := q.batch; used > 0; {
		c := q.ring.Oldest()
		if c == nil { // disconnected and reset meanwhile
			return
		}
		n := min(used, c.samples-q.lead)
		used -= n
		q.lead += n
		if q.lead == c.samples {
			if c == q.cur {
				q.cur = nil
			}
			q.lead = 0
			q.release(c)
		}
	}
	if q.direct {
		q.direct = false
		q.off = q.lead
		return
	}
	q.ahead--
}

// InvalidatePrefetched makes the next transfer start at the oldest one that is
// not complete.
func (q *InputQueue) InvalidatePrefetched() {
	q.ring.ReadReset()
	q.ahead, q.direct, q.cur, q.resume = 0, false, nil, true
}

// nextInput is next that knows how far complete transfers have come in the
// oldest chunk, and that a device which holds the whole ring would wait for
// itself.
func (q *InputQueue) nextInput(ctx context.Context) error {
	if q.cur == nil && q.ahead > 0 && q.ring.Held() >= q.NumBuffers() && !q.ring.ReadAvailable() && q.Connected() {
		return fmt.Errorf("anchor %q: %w: %d transfers are not complete and hold all of %d buffers",
			q.anchor.Name, ErrLookAhead, q.ahead, q.NumBuffers())
	}
	if err := q.next(ctx); err != nil {
		return err
	}
	if q.resume { // it is the oldest chunk
		q.resume = false
		q.off = q.lead
	}
	return nil
}

var (
	_ Queue      = (*InputQueue)(nil)
	_ ipu.Direct = (*InputQueue)(nil)
)
