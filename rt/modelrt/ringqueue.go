package modelrt

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/ring"
)

// The errors of queues, for errors.Is.
var (
	// ErrDisconnected: the queue was disconnected, by itself or because its
	// session stopped, closed, or failed in the middle. [QueueManager.ResetAll] connects it again once
	// no program runs. Data that was not used up by then is returned with
	// this error.
	ErrDisconnected = errors.New("queue is disconnected")
	// ErrSampleSize: memory to be enqueued is not a whole number of samples.
	// The error is a [*SampleSizeError].
	ErrSampleSize = errors.New("not a whole number of samples")
	// ErrEnqueueLocked: a buffer is locked by EnqueueLock, and another call
	// came before EnqueueComplete.
	ErrEnqueueLocked = errors.New("a buffer is locked for enqueueing")
	// ErrLookAhead: the device asked for more transfers before it completed
	// earlier ones than the ring can hold. Make the ring larger, see
	// QueueConfig.RingSize.
	ErrLookAhead = errors.New("device looks further ahead than the ring is long")
)

// SampleSizeError says what size of memory a queue does not take.
type SampleSizeError struct {
	Anchor string
	Bytes  int // size of the memory
	Sample int // size of one sample
}

// Error names the anchor and both sizes.
func (e *SampleSizeError) Error() string {
	return fmt.Sprintf("anchor %q: %v: %d bytes, want a positive multiple of %d", e.Anchor, ErrSampleSize, e.Bytes, e.Sample)
}

// Is reports whether target is [ErrSampleSize].
func (e *SampleSizeError) Is(target error) bool { return target == ErrSampleSize }

// Queue is what an [*InputQueue] and an [*OutputQueue] have in common.
type Queue interface {
	// Name returns the name of the anchor.
	Name() string
	// Info returns the type and shape of one transfer.
	Info() popef.TensorInfo
	// NumBuffers returns how many pieces of memory can be enqueued.
	NumBuffers() int
	// Disconnect makes the device side run on dummy data, and every call that
	// enqueues fail with [ErrDisconnected].
	Disconnect()
	// Reset empties the queue and connects it again. It fails with [rt.ErrPanic]
	// if a function panics that it calls.
	Reset() error
}

// flushReserve is the number of buffers that a queue's ring has for dummy data
// alone. A device that looks ahead waits for an input while earlier outputs are
// not delivered yet: dummy data must then find room although user data fills
// the ring, or nobody would get any further.
const flushReserve = 4

// ringQueue is what input and output queues share: pieces of host memory, in
// the order in which the device is to read or fill them.
//
// The user's side may be used by any number of goroutines; mu orders them, and
// makes a flush see no half of anything. The device side belongs to the engine,
// which uses it from one goroutine at a time.
type ringQueue struct {
	about  callerr.Subject // of errors, but for those that the device side returns: these are the run's
	anchor Anchor
	info   ipu.StreamInfo
	batch  int // samples in one transfer, at least 1
	sample int // bytes of one sample
	ring   *ring.Ring[chunk]
	spin   *ring.Spinner // of the device side

	manager *QueueManager // nil if there is none
	begins  bool          // what is enqueued makes the manager's Run begin

	mu       sync.Mutex // guards the ring's producer side and what follows
	samples  int64      // enqueued since the last reset, dummies included
	pending  bool       // between EnqueueLock and EnqueueComplete
	draining bool       // nothing is enqueued any more
	epoch    int        // counts resets
	filler   []byte     // dummy data, or where it goes; as much as was needed at a time
	waiting  int        // goroutines that wait for room

	turn chan struct{} // holds a token while the first of those waits

	// The device side's.
	cur    *chunk // read-locked and not used up; nil if there is none
	off    int    // samples of cur that were handed out
	direct bool   // the next transfer was handed out in place
	moved  bool   // data was used up or filled in since programs began to run
}

// chunk is a piece of host memory.
type chunk struct {
	data            []byte
	samples         int
	start, complete func()
	done            func(error)
}

// init makes the ring. batch must divide the size of a transfer.
func (q *ringQueue) init(about callerr.Subject, a Anchor, info ipu.StreamInfo, batch int, c ring.Config[chunk]) error {
	if info.Bytes == 0 {
		batch = 1 // whatever the shape: there is nothing to split
	}
	if batch < 1 || info.Bytes%batch != 0 {
		return fmt.Errorf("anchor %q: %w: %d samples in a transfer of %d bytes", a.Name, rt.ErrOption, batch, info.Bytes)
	}
	if c.Size < 1 || c.Size > ring.MaxSize/batch {
		return fmt.Errorf("anchor %q: %w: a ring of %d times %d buffers", a.Name, rt.ErrOption, c.Size, batch)
	}
	c.Size = c.Size*batch + flushReserve
	ring, err := ring.New(c)
	if err != nil {
		return fmt.Errorf("anchor %q: %w", a.Name, err)
	}
	q.about, q.anchor, q.info, q.batch, q.sample = about, a, info, batch, info.Bytes/batch
	q.ring, q.spin, q.turn = ring, c.Consumer, make(chan struct{}, 1)
	return nil
}

// Name returns the name of the anchor.
func (q *ringQueue) Name() string { return q.anchor.Name }

// Anchor returns the anchor that the queue serves.
func (q *ringQueue) Anchor() Anchor { return q.anchor }

// Info returns the type and shape of one transfer.
func (q *ringQueue) Info() popef.TensorInfo { return q.anchor.Info }

// Batch returns how many samples one transfer has.
func (q *ringQueue) Batch() int { return q.batch }

// SampleBytes returns the size of one sample.
func (q *ringQueue) SampleBytes() int { return q.sample }

// TransferBytes returns the size of one transfer: Batch samples.
func (q *ringQueue) TransferBytes() int { return q.info.Bytes }

// NumBuffers returns how many pieces of memory can be enqueued and not used up
// yet; then enqueueing waits. Each may hold any number of samples.
func (q *ringQueue) NumBuffers() int { return q.ring.NumBuffers() - flushReserve }

// Enqueued returns how many samples were enqueued since the queue was made or
// reset, dummy ones included.
func (q *ringQueue) Enqueued() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.samples
}

// Disconnect makes the device side go on with dummy data without ever waiting:
// inputs read as zeros, outputs are dropped. So a program that waits for a
// queue comes to its end. Whatever waits to enqueue, and every later try, fails
// with [ErrDisconnected], until Reset. Any goroutine may call it. An output must
// be disconnected before the inputs that it depends on, as
// [QueueManager.DisconnectAll] does, or dummy results get into its memory.
func (q *ringQueue) Disconnect() {
	q.ring.Invalidate()
	if q.manager != nil {
		q.manager.loop.wake()
	}
}

// Connected reports whether the queue was not disconnected.
func (q *ringQueue) Connected() bool { return q.ring.Valid() }

// State describes the queue for people, after prefix.
func (q *ringQueue) State(prefix string) string {
	return fmt.Sprintf("%s, %d samples enqueued in batches of %d", q.ring.StateOf(prefix, q.NumBuffers()), q.Enqueued(), q.batch)
}

// reset empties the queue, and connects it again if connect says so.
func (q *ringQueue) reset(connect bool) error {
	q.ring.Invalidate() // whoever waits must look
	q.mu.Lock()
	var dropped []func(error)
	q.ring.Drain(func(c *chunk) {
		if c.done != nil {
			dropped = append(dropped, c.done)
		}
		*c = chunk{}
	})
	q.samples, q.pending, q.cur, q.off, q.direct, q.moved = 0, false, nil, 0, false, false
	q.epoch++
	q.ring.Reset()
	if !connect {
		q.ring.Invalidate()
	}
	q.mu.Unlock()
	var errs []error
	for _, done := range dropped {
		errs = append(errs, callerr.Sheltered(func() error {
			done(q.about.Errorf("return memory", fmt.Errorf("anchor %q: before it was used up: %w", q.anchor.Name, q.disconnected())))
			return nil
		}))
	}
	return callerr.Join(errs...)
}

// measure counts a chunk's samples.
func (q *ringQueue) measure(c *chunk) error {
	switch {
	case q.sample == 0 && len(c.data) == 0:
		c.samples = 1
	case q.sample == 0 || len(c.data) == 0 || len(c.data)%q.sample != 0:
		return q.about.Errorf("enqueue", &SampleSizeError{Anchor: q.anchor.Name, Bytes: len(c.data), Sample: q.sample})
	default:
		c.samples = len(c.data) / q.sample
	}
	return nil
}

// enqueue puts c at the end, and waits for room if need be.
func (q *ringQueue) enqueue(ctx context.Context, c chunk) error {
	if err := q.measure(&c); err != nil {
		return err
	}
	b, err := q.lockRoom(ctx)
	if err != nil {
		return err
	}
	q.put(b, c)
	q.mu.Unlock()
	return nil
}

// tryEnqueue is enqueue that fails with [rt.ErrQueueFull] rather than wait.
func (q *ringQueue) tryEnqueue(c chunk) error {
	if err := q.measure(&c); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	b, err := q.tryRoom()
	switch {
	case err != nil:
		return err
	case b == nil || q.waiting > 0: // those that wait came first
		return q.errFull()
	}
	q.put(b, c)
	return nil
}

// put fills a buffer that was locked for writing. mu is held.
func (q *ringQueue) put(b *chunk, c chunk) {
	*b = c
	q.samples += int64(c.samples)
	if err := q.ring.WriteComplete(); err != nil {
		panic(err) // it is locked
	}
	if q.begins {
		q.manager.loop.wake()
	}
}

// lockRoom waits for a buffer to write and returns with mu locked.
func (q *ringQueue) lockRoom(ctx context.Context) (*chunk, error) {
	q.mu.Lock()
	if q.waiting == 0 {
		b, err := q.tryRoom()
		if err != nil {
			q.mu.Unlock()
		}
		if b != nil || err != nil {
			return b, err
		}
	}
	epoch := q.epoch
	q.waiting++
	q.mu.Unlock()

	b, err := q.awaitRoom(ctx, epoch)
	q.waiting--
	if err != nil {
		q.mu.Unlock()
	}
	return b, err
}

// awaitRoom is lockRoom for those that have to wait, in the order in which
// they came. It returns with mu locked, also with an error.
func (q *ringQueue) awaitRoom(ctx context.Context, epoch int) (*chunk, error) {
	select {
	case q.turn <- struct{}{}:
		defer func() { <-q.turn }()
	case <-ctx.Done():
		q.mu.Lock()
		return nil, q.errorf(ctx.Err())
	}
	for {
		q.mu.Lock()
		if q.epoch != epoch {
			return nil, q.errorf(q.disconnected())
		}
		if b, err := q.tryRoom(); b != nil || err != nil {
			return b, err
		}
		last := q.ring.Ahead(flushReserve)
		q.mu.Unlock()
		if err := q.ring.AwaitFree(ctx, last); err != nil {
			q.mu.Lock()
			return nil, q.errorf(ctx.Err())
		}
	}
}

// tryRoom locks a buffer for writing if there is one. mu is held.
func (q *ringQueue) tryRoom() (*chunk, error) {
	if err := q.closed(); err != nil {
		return nil, err
	}
	if q.ring.Ahead(flushReserve).Full() {
		return nil, nil
	}
	return q.write()
}

// closed returns why nothing can be enqueued now, room or not. mu is held.
func (q *ringQueue) closed() error {
	switch {
	case q.draining:
		return q.errorf(fmt.Errorf("%w: %w", ErrDisconnected, rt.ErrClosed))
	case !q.Connected():
		return q.errorf(q.disconnected())
	case q.pending:
		return q.errorf(ErrEnqueueLocked)
	}
	return nil
}

// write locks the next buffer for writing, which is free. mu is held.
func (q *ringQueue) write() (*chunk, error) {
	b, err := q.ring.TryWriteLock()
	if err != nil {
		return nil, q.errorf(q.disconnected())
	}
	return b, nil
}

// lock reserves a buffer for EnqueueLock.
func (q *ringQueue) lock(ctx context.Context) error {
	q.mu.Lock()
	pending := q.pending
	q.mu.Unlock()
	if pending {
		if !q.Connected() {
			return q.errorf(q.disconnected())
		}
		return nil
	}
	_, err := q.lockRoom(ctx)
	if err != nil {
		return err
	}
	q.pending = true
	q.mu.Unlock()
	return nil
}

// unlock enqueues c in the buffer that lock reserved.
func (q *ringQueue) unlock(c chunk) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.pending {
		return q.errorf(ring.ErrNotLocked)
	}
	if err := q.measure(&c); err != nil {
		return err
	}
	q.pending = false
	b, err := q.write() // the buffer that is locked
	if err != nil {
		return err
	}
	q.put(b, c)
	return nil
}

// flush completes a partial batch with dummy samples, or adds a batch of them
// if none is partial.
func (q *ringQueue) flush() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.flushable(); err != nil {
		return err
	}
	q.pad(q.batch - int(q.samples%int64(q.batch)))
	return nil
}

// flushable returns why no dummy data can be added now. mu is held.
func (q *ringQueue) flushable() error {
	switch {
	case !q.Connected():
		return q.errorf(q.disconnected())
	case q.pending:
		return q.errorf(ErrEnqueueLocked)
	case q.ring.Ahead(0).Full():
		return q.errFull()
	}
	return nil
}

// pad adds dummy samples. mu is held, and flushable.
func (q *ringQueue) pad(samples int) {
	if len(q.filler) < samples*q.sample {
		q.filler = make([]byte, max(samples*q.sample, q.info.Bytes))
	}
	b, err := q.write()
	if err != nil {
		return // it was disconnected just now
	}
	q.put(b, chunk{data: q.filler[:samples*q.sample], samples: samples})
}

func (q *ringQueue) errFull() error {
	return q.errorf(fmt.Errorf("%w: %d pieces of memory wait for the device", rt.ErrQueueFull, q.NumBuffers()))
}

// disconnected is [ErrDisconnected], with the reason if it is known.
func (q *ringQueue) disconnected() error {
	if q.manager == nil {
		return ErrDisconnected
	}
	return q.manager.disconnected()
}

func (q *ringQueue) errorf(err error) error {
	return q.about.Errorf("enqueue", fmt.Errorf("anchor %q: %w", q.anchor.Name, err))
}

// ReadAvailable reports whether data is there that the device has not read
// yet. It is for functions that the device side calls, such as
// QueueConfig.OnTimeout.
func (q *ringQueue) ReadAvailable() bool { return q.cur != nil || q.ring.ReadAvailable() }

// next makes cur the chunk that the next sample belongs to, and waits for it
// if need be, until ctx ends. It fails with [ring.ErrInvalidated] if the queue is disconnected.
func (q *ringQueue) next(ctx context.Context) error {
	switch {
	case !q.Connected():
		return ring.ErrInvalidated
	case q.cur != nil:
		return nil
	}
	c, err := q.ring.ReadLock(ctx)
	if err != nil {
		return err
	}
	q.cur, q.off = c, 0
	return nil
}

// release is done with the oldest chunk, which the device has used up.
func (q *ringQueue) release(c *chunk) {
	done := c.done
	*c = chunk{}
	if err := q.ring.ReadComplete(); err != nil {
		panic(err) // it was read-locked
	}
	if done != nil {
		done(nil)
		q.spin.Note()
	}
}

// call calls a function of the user, which may well wake somebody.
func (q *ringQueue) call(f func()) {
	if f != nil {
		f()
		q.spin.Note()
	}
}

// unlessDisconnected returns nil if err is only that the queue is
// disconnected: the device then goes on with dummy data.
func (q *ringQueue) unlessDisconnected(err error) error {
	if errors.Is(err, ring.ErrInvalidated) {
		return nil
	}
	return err
}

// size checks the size of a transfer.
func (q *ringQueue) size(buf []byte) error {
	if len(buf) != q.info.Bytes {
		return fmt.Errorf("anchor %q: %w: a transfer of %d bytes, want %d", q.anchor.Name, rt.ErrData, len(buf), q.info.Bytes)
	}
	return nil
}
