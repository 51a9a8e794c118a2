// Package ring hands values from one goroutine to another through a fixed number
// of buffers, without a lock. [New] makes a [Ring]; the producer locks a buffer,
// fills it and completes it, the consumer locks, reads and completes them in the
// same order, several at a time if it likes. A full ring blocks the producer, an
// empty one the consumer; a [Spinner] makes a side watch before it parks. The
// queues of package modelrt are built on it: the methods from [Ring.Ahead] on
// that look at single buffers are for them.
package ring

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/rt/internal/errs"
)

// The errors of rings, for errors.Is.
var (
	// ErrInvalidated: the ring was invalidated. [Ring.Reset] makes it usable
	// again.
	ErrInvalidated = errors.New("ring was invalidated")
	// ErrNotLocked: a buffer was to be unlocked, and none was locked.
	ErrNotLocked = errors.New("no buffer is locked")
)

// Config says how a [Ring] is to be made.
type Config[T any] struct {
	Size      int            // number of buffers, at least 1
	Label     string         // names the ring in messages and in [Ring.State]
	Timeout   time.Duration  // how long a read waits before OnTimeout is called; 0 = it is never called
	OnTimeout func(*Ring[T]) // called by the goroutine that waits to read, again after every Timeout, until there is a buffer
	Producer  *Spinner       // patience of the goroutine that writes; nil: it parks at once
	Consumer  *Spinner       // patience of the goroutine that reads; nil: it parks at once
}

// MaxSize bounds a ring, whose size may come from a file.
const MaxSize = 1 << 24

// Ring is a fixed number of buffers through which one goroutine, the producer,
// hands values to another, the consumer, without a lock: [Ring.WriteLock] and
// [Ring.WriteComplete] are the producer's, [Ring.ReadLock] and
// [Ring.ReadComplete] the consumer's. Either side may move from one goroutine
// to another if something else orders them. The other methods say who may call
// them.
//
// The producer locks one buffer at a time, the consumer as many as there are:
// buffers that were read-locked return to the producer one after the other
// with ReadComplete, or to the front of what is to be read with ReadReset.
//
// Who has to wait parks: waiting costs no processor time. A [Spinner] makes a
// side watch for a while before it parks.
//
// A ring must not be copied.
type Ring[T any] struct {
	_ noCopy

	// These do not change, except for signals, which rarely do.
	slots          []ringSlot[T]
	label          string
	timeout        time.Duration
	onTimeout      func(*Ring[T])
	writer, reader parker
	signals        atomic.Uint32 // invalid, rewind, finished

	// The two sides lie far enough apart that neither disturbs the other's
	// cache lines: 128 bytes, since lines are fetched in pairs.
	_        [128]byte
	producer struct {
		head   int // next buffer to write
		locked bool
		spin   *Spinner
	}
	_ [128]byte
	// The oldest read-locked buffer is tail; next is held buffers ahead.
	consumer struct {
		tail, next, held int
		spin             *Spinner
		timer            *time.Timer
	}
	_ [128]byte
}

// ringSlot is one buffer. It belongs to the producer while it is free and to
// the consumer while it is full, so that one cache line moves from one side to
// the other, not one for the value and one for an index.
type ringSlot[T any] struct {
	state atomic.Uint32
	value T
}

// The state of a buffer: who hands it over learns by the same instruction
// whether the other side waits for it.
const (
	full    uint32 = 1 << iota // else free
	awaited                    // the side that it does not belong to waits for it
)

// The signals of a ring.
const (
	invalid  uint32 = 1 << iota // Invalidate was called
	rewind                      // ReadReset was called and has not had its effect yet
	finished                    // finish was called
	stuck                       // the consumer holds every buffer and waits for ReadReset
)

// noCopy makes go vet complain about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// New makes a ring. A size that is out of range or a negative timeout is an
// rt.ErrOption.
func New[T any](c Config[T]) (*Ring[T], error) {
	if c.Size < 1 || c.Size > MaxSize || c.Timeout < 0 {
		return nil, fmt.Errorf("ring %q: %w: %d buffers, want 1 to %d; timeout %v, want 0 or more", c.Label, errs.ErrOption, c.Size, MaxSize, c.Timeout)
	}
	if c.OnTimeout == nil {
		c.Timeout = 0
	}
	r := &Ring[T]{
		slots: make([]ringSlot[T], c.Size), label: c.Label, timeout: c.Timeout, onTimeout: c.OnTimeout,
		writer: make(parker, 1), reader: make(parker, 1),
	}
	r.producer.spin, r.consumer.spin = c.Producer, c.Consumer
	return r, nil
}

// WriteLock locks a buffer for writing and returns it, with what was last
// written to it. If one is locked already, it returns that. If every buffer is
// full or read-locked, it waits; it fails with [ErrInvalidated], or with ctx's
// error if that ends first.
func (r *Ring[T]) WriteLock(ctx context.Context) (*T, error) {
	p := &r.producer
	s := &r.slots[p.head]
	if s.state.Load()&full != 0 || r.signals.Load() != 0 {
		return r.waitToWrite(ctx)
	}
	p.locked = true
	return &s.value, nil
}

func (r *Ring[T]) waitToWrite(ctx context.Context) (*T, error) {
	for {
		if v, err := r.TryWriteLock(); v != nil || err != nil {
			return v, err
		}
		if err := r.AwaitFree(ctx, r.Ahead(0)); err != nil {
			return nil, err
		}
	}
}

// TryWriteLock is WriteLock that does not wait: it returns nil if there is no
// buffer.
func (r *Ring[T]) TryWriteLock() (*T, error) {
	p := &r.producer
	s := &r.slots[p.head]
	switch {
	case !r.Valid():
		return nil, r.invalidated()
	case s.state.Load()&full != 0:
		return nil, nil
	}
	p.locked = true
	return &s.value, nil
}

// NextFree locks the next buffer, which is free, for writing, whether the ring is
// valid or not: what is then written can be drained. It is for the producer.
func (r *Ring[T]) NextFree() *T {
	p := &r.producer
	p.locked = true
	return &r.slots[p.head].value
}

// WriteComplete hands the write-locked buffer to the consumer. The next
// WriteLock returns another one. It fails with [ErrNotLocked] if none is
// locked.
func (r *Ring[T]) WriteComplete() error {
	p := &r.producer
	if !p.locked {
		return r.notLocked("write")
	}
	p.locked = false
	s := &r.slots[p.head]
	if p.head++; p.head == len(r.slots) {
		p.head = 0
	}
	if s.state.Swap(full)&awaited != 0 {
		r.reader.wake(p.spin)
	}
	return nil
}

// Write locks a buffer, writes v to it and hands it over.
func (r *Ring[T]) Write(ctx context.Context, v T) error {
	b, err := r.WriteLock(ctx)
	if err != nil {
		return err
	}
	*b = v
	return r.WriteComplete()
}

// ReadLock locks the next buffer for reading and returns it. It may be called
// again before [Ring.ReadComplete], and then returns the one after. If there is
// none it waits, for a write or for a ReadReset that gives read-locked buffers
// back; it fails with [ErrInvalidated], or with ctx's error if that ends first.
func (r *Ring[T]) ReadLock(ctx context.Context) (*T, error) {
	c := &r.consumer
	s := &r.slots[c.next]
	if s.state.Load()&full == 0 || r.signals.Load() != 0 || c.held == len(r.slots) {
		return r.waitToRead(ctx)
	}
	c.held++
	if c.next++; c.next == len(r.slots) {
		c.next = 0
	}
	return &s.value, nil
}

// TryReadLock is ReadLock that does not wait: it returns nil if there is no
// buffer.
func (r *Ring[T]) TryReadLock() (*T, error) {
	if !r.Valid() {
		return nil, r.invalidated()
	}
	r.settle()
	c := &r.consumer
	s := &r.slots[c.next]
	if s.state.Load()&full == 0 || c.held == len(r.slots) {
		return nil, nil
	}
	c.held++
	if c.next++; c.next == len(r.slots) {
		c.next = 0
	}
	return &s.value, nil
}

// settle gives a ReadReset its effect.
func (r *Ring[T]) settle() {
	if r.signals.Load()&rewind != 0 {
		r.signals.And(^rewind)
		r.consumer.next, r.consumer.held = r.consumer.tail, 0
	}
}

// ReadComplete gives the oldest read-locked buffer back to the producer. It
// fails with [ErrNotLocked] if none is locked.
func (r *Ring[T]) ReadComplete() error {
	if r.signals.Load() != 0 {
		r.settle()
	}
	c := &r.consumer
	if c.held == 0 {
		return r.notLocked("read")
	}
	s := &r.slots[c.tail]
	c.held--
	if c.tail++; c.tail == len(r.slots) {
		c.tail = 0
	}
	if s.state.Swap(0)&awaited != 0 {
		r.writer.wake(c.spin)
	}
	return nil
}

// ReadReset puts every read-locked buffer back to the front of what is to be
// read, in its order. Any goroutine may call it: a ReadLock that waits returns
// the oldest of them.
func (r *Ring[T]) ReadReset() {
	r.signals.Or(rewind)
	r.reader.wake(nil)
}

// ReadAvailable reports whether ReadLock would not have to wait. It is for the
// consumer, and so for RingConfig.OnTimeout.
func (r *Ring[T]) ReadAvailable() bool { return r.Valid() && r.Peek(0) != nil }

// Peek returns the buffer that the i-th ReadLock from now would return, nil if
// it is not there yet. It is for the consumer.
func (r *Ring[T]) Peek(i int) *T {
	if r.Held()+i >= len(r.slots) {
		return nil
	}
	s := &r.slots[(r.consumer.next+i)%len(r.slots)]
	if s.state.Load()&full == 0 {
		return nil
	}
	return &s.value
}

// Place is a place for a buffer in a ring.
type Place struct{ state *atomic.Uint32 }

// Full reports whether the place holds a buffer that was written and not given
// back. Any goroutine may call it.
func (p Place) Full() bool { return p.state.Load()&full != 0 }

// Ahead returns the place of the i-th buffer that the producer writes from now,
// counted from 0. It is for the producer.
func (r *Ring[T]) Ahead(i int) Place {
	return Place{&r.slots[(r.producer.head+i)%len(r.slots)].state}
}

// Drain calls f with every buffer that was written and not given back, oldest
// first. Neither producer nor consumer may be using the ring.
func (r *Ring[T]) Drain(f func(*T)) {
	for i := range r.slots {
		if s := &r.slots[(r.consumer.tail+i)%len(r.slots)]; s.state.Load()&full != 0 {
			f(&s.value)
		}
	}
}

// Held returns how many buffers are read-locked. It is for the consumer.
func (r *Ring[T]) Held() int {
	r.settle()
	return r.consumer.held
}

// Oldest returns the oldest read-locked buffer, nil if none is. It is for the
// consumer.
func (r *Ring[T]) Oldest() *T {
	if r.Held() == 0 {
		return nil
	}
	return &r.slots[r.consumer.tail].value
}

// Unfinished reports whether a buffer was written and not given back. It is for
// the consumer.
func (r *Ring[T]) Unfinished() bool {
	return r.slots[r.consumer.tail].state.Load()&full != 0
}

// Invalidate makes every call that waits, and every lock from now on, fail
// with [ErrInvalidated]. What buffers that are locked hold means nothing any
// more. Any goroutine may call it.
func (r *Ring[T]) Invalidate() {
	r.signals.Or(invalid)
	r.writer.wake(nil)
	r.reader.wake(nil)
}

// WakeWriter makes a goroutine in AwaitFree look again. Any goroutine may call
// it.
func (r *Ring[T]) WakeWriter() { r.writer.wake(nil) }

// Finish makes a ReadLock that would wait, or waits, fail with
// [ErrInvalidated]: what was written can still be read. Any goroutine may call
// it.
func (r *Ring[T]) Finish() {
	r.signals.Or(finished)
	r.reader.wake(nil)
}

// Reset empties the ring and makes it valid: it is as it was when it was made.
// Neither producer nor consumer may be using it.
func (r *Ring[T]) Reset() {
	for i := range r.slots {
		r.slots[i].state.Store(0)
	}
	p, c := &r.producer, &r.consumer
	p.head, p.locked = 0, false
	c.tail, c.next, c.held = 0, 0, 0
	r.signals.Store(0)
}

// Valid reports whether the ring was not invalidated. Any goroutine may call
// it.
func (r *Ring[T]) Valid() bool { return r.signals.Load()&invalid == 0 }

// NumBuffers returns how many values the ring can hold.
func (r *Ring[T]) NumBuffers() int { return len(r.slots) }

// Label returns the ring's label.
func (r *Ring[T]) Label() string { return r.label }

// State describes the ring for people, after prefix: its label, how many
// buffers are full (those that are read-locked included), who waits, whether
// it is valid. Any goroutine may call it; it counts while others go on.
func (r *Ring[T]) State(prefix string) string { return r.StateOf(prefix, r.NumBuffers()) }

// StateOf is State for a ring of which only so many buffers are for users.
func (r *Ring[T]) StateOf(prefix string, buffers int) string {
	s, n := "", 0
	for i := range r.slots {
		switch state := r.slots[i].state.Load(); state {
		case awaited:
			s += ", consumer waits"
		case full | awaited:
			s += ", producer waits"
			fallthrough
		case full:
			n++
		}
	}
	if r.signals.Load()&stuck != 0 {
		s += ", consumer waits"
	}
	if !r.Valid() {
		s += ", invalid"
	}
	return fmt.Sprintf("%sring %q: %d of %d buffers full%s", prefix, r.label, n, buffers, s)
}

func (r *Ring[T]) invalidated() error { return fmt.Errorf("ring %q: %w", r.label, ErrInvalidated) }

func (r *Ring[T]) notLocked(how string) error {
	return fmt.Errorf("ring %q: %s complete: %w", r.label, how, ErrNotLocked)
}
