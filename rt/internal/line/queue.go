package line

import (
	"context"
	"sync"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

// Queue is a fixed number of places for submitted requests, and a lane for each
// replica, in which they wait and are served. A place is free again as soon as
// its request has ended, whether somebody waits for that or not.
type Queue struct {
	about callerr.Subject // of errors
	Lanes []*Lane
	Drop  func(slot int) // forgets the memory of a request that will not run
	most  int            // callers that may wait for room; negative: any number

	Slots   []slot // each is who reserved it's, then who serves it's
	tickets Tickets

	mu      sync.Mutex
	free    []int // slots that nobody has
	closed  bool  // nobody gets a place any more
	head    *room // those that wait for a place, in the order in which they came
	tail    *room
	waiting int
	spare   *room      // that can be used again
	empty   chan error // made by drain: closed once nobody has a slot

	jobs    chan int // slots of submitted samples; closed at the end
	helpers int      // goroutines that serve those
	idle    int      // of these, how many have nothing to do
	ended   bool     // jobs is closed
	helping sync.WaitGroup
	Samples func(ctx context.Context, slot int) error // computes the submitted samples of a slot
}

// room is the turn of one that waits for a place.
type room struct {
	next *room
	slot int           // the place; -1 as long as there is none
	err  error         // why there will be none
	wake chan struct{} // capacity 1
}

// Lane is the worker that serves what was submitted to one replica. It starts
// with the first request to any of them; without one it parks.
type Lane struct {
	Queue   *Queue
	Gate    *Gate
	Serve   func(ctx context.Context, slot int) error // computes the request of a slot
	Refused func(error) error                         // tells that a request never got the engine
	stopped chan struct{}                             // closed when the worker has ended; nil before it starts; guarded by queue.mu
}

// slot is one place for a submitted request.
type slot struct {
	request *pending
	Asked   int64 // when it was submitted, if requests are timed
}

func NewQueue(about callerr.Subject, depth, most int) *Queue {
	q := &Queue{about: about, Slots: make([]slot, depth), most: most, jobs: make(chan int, depth)}
	for i := range q.Slots {
		q.free = append(q.free, depth-1-i)
	}
	return q
}

// Reserve takes a free place. If there is none it fails with [errs.ErrQueueFull], or
// waits for one until ctx ends.
func (q *Queue) Reserve(ctx context.Context, wait bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for swept := false; ; swept = true {
		q.mu.Lock()
		n := len(q.free)
		switch {
		case q.closed:
			q.mu.Unlock()
			return 0, ipu.ErrClosed
		case n > 0: // then nobody waits
			i := q.free[n-1]
			q.free = q.free[:n-1]
			q.startLanes()
			q.mu.Unlock()
			return i, nil
		case !swept:
			q.mu.Unlock()
			q.sweep()
			continue
		case !wait:
			q.mu.Unlock()
			return 0, errs.ErrQueueFull
		case q.most >= 0 && q.waiting >= q.most:
			q.mu.Unlock()
			return 0, errs.ErrOverloaded
		}
		return q.await(ctx)
	}
}

// await waits for a place. mu is held, and released.
func (q *Queue) await(ctx context.Context) (int, error) {
	r := q.spare
	if r == nil {
		r = &room{wake: make(chan struct{}, 1)}
	} else {
		q.spare = r.next
	}
	r.next, r.slot, r.err = nil, -1, nil
	if q.head == nil {
		q.head = r
	} else {
		q.tail.next = r
	}
	q.tail = r
	q.waiting++
	q.mu.Unlock()
	var err error
	select {
	case <-r.wake:
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	slot := r.slot
	switch {
	case err == nil:
		err = r.err
	case slot >= 0: // it came at the same time
		<-r.wake
		q.pass(slot)
	case r.err != nil:
		<-r.wake
	default:
		q.leave(r)
	}
	r.next, q.spare = q.spare, r
	return slot, err
}

// leave takes r out of the line. mu is held.
func (q *Queue) leave(r *room) {
	var before *room
	for u := q.head; u != r; u = u.next {
		before = u
	}
	if before == nil {
		q.head = r.next
	} else {
		before.next = r.next
	}
	if q.tail == r {
		q.tail = before
	}
	q.waiting--
}

// pass gives a place to whoever waits for one, or frees it. mu is held.
func (q *Queue) pass(slot int) {
	if r := q.head; r != nil { // after shut there is none
		q.leave(r)
		r.slot = slot
		r.wake <- struct{}{}
		return
	}
	q.free = append(q.free, slot)
	if q.empty != nil && len(q.free) == len(q.Slots) {
		close(q.empty)
		q.empty = nil
	}
}

// Shut refuses new requests, those that wait for room included.
func (q *Queue) Shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for r := q.head; r != nil; r = q.head {
		q.leave(r)
		r.err = ipu.ErrClosed
		r.wake <- struct{}{}
	}
}

// Drain is shut; the channel is closed once every request has ended.
func (q *Queue) Drain() <-chan error {
	q.Shut()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.empty != nil {
		return q.empty
	}
	empty := make(chan error)
	if len(q.free) == len(q.Slots) {
		close(empty)
	} else {
		q.empty = empty
	}
	return empty
}

// sweep ends the requests in line whose context has ended.
func (q *Queue) sweep() {
	for _, l := range q.Lanes {
		l.turnDown(l.Gate.expired())
	}
}

// turnDown ends requests that were in line and whose context has ended, also if
// an observer ends the goroutine that reports to it.
func (l *Lane) turnDown(over []*pending) {
	if len(over) == 0 {
		return
	}
	defer l.turnDown(over[1:])
	p := over[0]
	err := p.Err()
	defer func() { l.Queue.Complete(p.turn.slot, err) }()
	err = l.Refused(err)
}

// ticket makes the request of a reserved slot.
func (q *Queue) ticket(ctx context.Context, slot int, l *Lane) (Ticket, *pending) {
	p := q.tickets.get()
	if p == nil {
		p = &pending{pool: &q.tickets, queue: q, ended: make(chan struct{}, 1)}
		p.turn.request = p
	}
	p.turn.slot = slot
	q.Slots[slot].request = p
	return p.begin(ctx, l), p
}

// Enqueue lines a reserved slot up.
func (l *Lane) Enqueue(ctx context.Context, slot int) Ticket {
	t, p := l.Queue.ticket(ctx, slot, l)
	if err := l.Gate.submit(&p.turn, t.generation); err != nil {
		l.Queue.Complete(slot, l.Refused(err))
	}
	return t
}

// work serves slots until the gate is closed, first the one that is given unless
// it is negative. If code of the caller ends the goroutine, which nothing can
// prevent, that is the error of its request, and another goroutine goes on.
func (l *Lane) work(stopped chan struct{}, slot int) {
	defer func() {
		if slot < 0 {
			close(stopped)
			return
		}
		next := l.Gate.pass(1)
		l.Queue.Complete(slot, l.Queue.about.Errorf("run", ipu.NewExitError()))
		go l.work(stopped, next)
	}()
	for ok := true; ok; {
		for slot >= 0 {
			served, err := l.compute(slot)
			next := l.Gate.pass(served)
			l.Queue.Complete(slot, err)
			slot = next
		}
		if slot, ok = <-l.Gate.Grant; !ok {
			slot = -1
		}
	}
}

// compute serves a slot and returns the number of requests that have got the
// engine. A panic here would end the whole process; so it becomes the ticket's
// error.
func (l *Lane) compute(slot int) (served uint64, err error) {
	defer ipu.Guard(&err)
	p := l.Queue.Slots[slot].request
	if err := p.start(); err != nil {
		return 0, l.Refused(err)
	}
	served = 1
	return served, l.Serve(p, slot)
}

// Complete ends a request.
func (q *Queue) Complete(slot int, err error) {
	s := &q.Slots[slot]
	p := s.request
	s.request, s.Asked = nil, 0
	if q.Drop != nil {
		q.Drop(slot)
	}
	p.finish(err, func() {
		q.mu.Lock()
		q.pass(slot)
		q.mu.Unlock()
	})
}

// startLanes starts the workers of lanes. mu is held.
func (q *Queue) startLanes() {
	for _, l := range q.Lanes {
		if l.stopped == nil {
			l.stopped = make(chan struct{})
			go l.work(l.stopped, -1)
		}
	}
}

// EnqueueSamples gives the samples of a reserved slot to a goroutine that does
// for them what a caller of RunSamples does.
func (q *Queue) EnqueueSamples(ctx context.Context, slot int, l *Lane) Ticket {
	t, _ := q.ticket(ctx, slot, l)
	q.mu.Lock()
	ended := q.ended
	if !ended {
		if q.idle == 0 {
			q.helpers++
			q.helping.Go(q.help)
		} else {
			q.idle--
		}
		q.jobs <- slot // it has room for all slots
	}
	q.mu.Unlock()
	if ended {
		q.Complete(slot, l.Refused(ipu.ErrClosed))
	}
	return t
}

// help serves submitted samples.
func (q *Queue) help() {
	slot := -1
	done := func(err error) {
		q.Complete(slot, err)
		slot = -1
		q.mu.Lock()
		q.idle++
		q.mu.Unlock()
	}
	defer func() {
		if slot >= 0 { // as in work
			q.helping.Go(q.help)
			done(q.about.Errorf("run samples", ipu.NewExitError()))
		}
	}()
	for slot = range q.jobs {
		done(q.sample(slot))
	}
}

// sample is [lane.compute] for submitted samples.
func (q *Queue) sample(slot int) (err error) {
	defer ipu.Guard(&err)
	s := &q.Slots[slot]
	if err := s.request.start(); err != nil {
		return s.request.lane.Refused(err)
	}
	return q.Samples(s.request, slot)
}

// Close ends the goroutines that serve samples, none of which computes for long
// any more.
func (q *Queue) Close() {
	q.mu.Lock()
	if !q.ended {
		q.ended = true
		close(q.jobs)
	}
	q.mu.Unlock()
	q.helping.Wait()
}

// Close ends the worker. The gate is closed and nobody holds it.
func (l *Lane) Close() {
	l.Queue.mu.Lock()
	stopped := l.stopped
	if stopped == nil { // none shall start
		l.stopped = make(chan struct{})
	}
	l.Queue.mu.Unlock()
	if stopped != nil {
		close(l.Gate.Grant)
		<-stopped
	}
}

// Crowd returns how many callers wait for a place. It is for tests.
func (q *Queue) Crowd() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting
}
