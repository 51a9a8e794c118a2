package rt

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/popefgen/popefgen/ipu"
)

// queue is a fixed number of slots for submitted requests, and a lane for each
// replica, in which they wait and are served.
type queue struct {
	slots []slot
	lanes []*lane

	mu     sync.Mutex
	free   []int // slots that nobody has
	closed bool
}

// lane is the worker that serves what was submitted to one replica. It starts
// with the first request to any of them; without one it parks.
type lane struct {
	queue   *queue
	gate    *gate
	serve   func(slot int) error // computes the request of a slot
	refused func(error) error    // tells that a request never got the engine
	stopped chan struct{}        // closed when the worker has ended; nil before it starts; guarded by queue.mu
}

// slot is one place for a submitted request.
type slot struct {
	word  atomic.Uint64 // flags, and above them the generation
	asked int64         // when it was submitted, if requests are timed
	turn  turn
	err   error         // the request's result, once it has ended
	ended chan struct{} // capacity 1: tells the waiter
}

// The flags of a slot. The generation above them changes with every use, so
// that an old ticket can't take a new request for its own.
const (
	done       = 1 << iota // the request has ended
	claimed                // somebody waits or has waited for it
	abandoned              // who waited has left
	slotBits   = iota
	generation = 1 << slotBits
)

func newQueue(depth int) *queue {
	q := &queue{slots: make([]slot, depth)}
	for i := range q.slots {
		q.slots[i].turn.slot = i
		q.slots[i].ended = make(chan struct{}, 1)
		q.slots[i].word.Store(generation)
		q.free = append(q.free, depth-1-i)
	}
	return q
}

// reserve takes a free slot.
func (q *queue) reserve() (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.free)
	switch {
	case q.closed:
		return 0, ErrClosed
	case n == 0:
		return 0, ErrQueueFull
	}
	for _, l := range q.lanes {
		if l.stopped == nil {
			l.stopped = make(chan struct{})
			go l.work(l.stopped)
		}
	}
	i := q.free[n-1]
	q.free = q.free[:n-1]
	return i, nil
}

// enqueue lines a reserved slot up.
func (l *lane) enqueue(i int) Ticket {
	q := l.queue
	t := Ticket{queue: q, slot: i, generation: q.slots[i].word.Load() / generation}
	if err := l.gate.submit(&q.slots[i].turn); err != nil {
		q.complete(i, l.refused(err))
	}
	return t
}

func (l *lane) work(stopped chan struct{}) {
	defer close(stopped)
	for slot := range l.gate.grant {
		for slot >= 0 {
			err := l.compute(slot)
			next := l.gate.pass(1)
			l.queue.complete(slot, err)
			slot = next
		}
	}
}

// compute serves a slot. A panic here would end the whole process; so it becomes
// the ticket's error.
func (l *lane) compute(slot int) (err error) {
	defer ipu.Guard(&err)
	return l.serve(slot)
}

// complete hands a request's result to its ticket.
func (q *queue) complete(i int, err error) {
	s := &q.slots[i]
	s.err = err
	if s.word.Or(done)&abandoned != 0 {
		q.recycle(i)
		return
	}
	s.ended <- struct{}{}
}

// recycle frees a slot.
func (q *queue) recycle(i int) {
	s := &q.slots[i]
	s.err = nil
	s.word.Store((s.word.Load()/generation + 1) * generation)
	q.mu.Lock()
	q.free = append(q.free, i)
	q.mu.Unlock()
}

// close ends the worker. The gate is closed and nobody holds it.
func (l *lane) close() {
	l.queue.mu.Lock()
	stopped := l.stopped
	if stopped == nil { // none shall start
		l.stopped = make(chan struct{})
	}
	l.queue.mu.Unlock()
	if stopped != nil {
		close(l.gate.grant)
		<-stopped
	}
}

// shut refuses new requests.
func (q *queue) shut() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// Ticket stands for a submitted request. It is a plain value: copy it at will.
// Every ticket must be waited for, once: only that frees its place in the
// queue.
type Ticket struct {
	queue      *queue
	slot       int
	generation uint64
}

// Wait blocks until the request has ended and returns its error. If ctx ends
// first, Wait returns ctx's error; the request goes on, using its inputs and
// outputs until it ends, which nobody is told, and frees its place then. Either
// way the ticket is used up: another Wait fails with [ErrTicketUsed].
func (t Ticket) Wait(ctx context.Context) error {
	if t.queue == nil {
		return ErrTicketUsed
	}
	s := &t.queue.slots[t.slot]
	for {
		w := s.word.Load()
		if w/generation != t.generation || w&claimed != 0 {
			return ErrTicketUsed
		}
		if s.word.CompareAndSwap(w, w|claimed) {
			break
		}
	}
	if over := ctx.Done(); over == nil { // a receive is cheaper than a select
		<-s.ended
	} else {
		select {
		case <-s.ended:
		case <-over:
			if s.word.Or(abandoned)&done == 0 {
				return ctx.Err()
			}
			<-s.ended // it ended at the same time
		}
	}
	err := s.err
	t.queue.recycle(t.slot)
	return err
}

// Done reports whether the request has ended, so that Wait would not block.
// It is true for a ticket that was waited for to the end, and for the zero
// Ticket.
func (t Ticket) Done() bool {
	if t.queue == nil {
		return true
	}
	w := t.queue.slots[t.slot].word.Load()
	return w/generation != t.generation || w&done != 0
}
