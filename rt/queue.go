package rt

import (
	"context"
	"sync"

	"github.com/popefgen/popefgen/ipu"
)

// queue is a fixed number of places for submitted requests, and a lane for each
// replica, in which they wait and are served. A place is free again as soon as
// its request has ended, whether somebody waits for that or not.
type queue struct {
	about subject // of errors
	lanes []*lane
	drop  func(slot int) // forgets the memory of a request that will not run
	most  int            // callers that may wait for room; negative: any number

	slots   []slot // each is who reserved it's, then who serves it's
	tickets tickets

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
	samples func(ctx context.Context, replica int, samples []Samples) error
}

// room is the turn of one that waits for a place.
type room struct {
	next *room
	slot int           // the place; -1 as long as there is none
	err  error         // why there will be none
	wake chan struct{} // capacity 1
}

// lane is the worker that serves what was submitted to one replica. It starts
// with the first request to any of them; without one it parks.
type lane struct {
	queue   *queue
	gate    *gate
	serve   func(ctx context.Context, slot int) error // computes the request of a slot
	refused func(error) error                         // tells that a request never got the engine
	stopped chan struct{}                             // closed when the worker has ended; nil before it starts; guarded by queue.mu
}

// slot is one place for a submitted request.
type slot struct {
	request *pending
	asked   int64     // when it was submitted, if requests are timed
	replica int       // of submitted samples
	samples []Samples // of these
}

func newQueue(about subject, depth, most int) *queue {
	q := &queue{about: about, slots: make([]slot, depth), most: most, jobs: make(chan int, depth)}
	for i := range q.slots {
		q.free = append(q.free, depth-1-i)
	}
	return q
}

// reserve takes a free place. If there is none it fails with [ErrQueueFull], or
// waits for one until ctx ends.
func (q *queue) reserve(ctx context.Context, wait bool) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	for swept := false; ; swept = true {
		q.mu.Lock()
		n := len(q.free)
		switch {
		case q.closed:
			q.mu.Unlock()
			return 0, ErrClosed
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
			return 0, ErrQueueFull
		case q.most >= 0 && q.waiting >= q.most:
			q.mu.Unlock()
			return 0, ErrOverloaded
		}
		return q.await(ctx)
	}
}

// await waits for a place. mu is held, and released.
func (q *queue) await(ctx context.Context) (int, error) {
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
func (q *queue) leave(r *room) {
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
func (q *queue) pass(slot int) {
	if r := q.head; r != nil { // after shut there is none
		q.leave(r)
		r.slot = slot
		r.wake <- struct{}{}
		return
	}
	q.free = append(q.free, slot)
	if q.empty != nil && len(q.free) == len(q.slots) {
		close(q.empty)
		q.empty = nil
	}
}

// shut refuses new requests, those that wait for room included.
func (q *queue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for r := q.head; r != nil; r = q.head {
		q.leave(r)
		r.err = ErrClosed
		r.wake <- struct{}{}
	}
}

// drain is shut; the channel is closed once every request has ended.
func (q *queue) drain() <-chan error {
	q.shut()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.empty != nil {
		return q.empty
	}
	empty := make(chan error)
	if len(q.free) == len(q.slots) {
		close(empty)
	} else {
		q.empty = empty
	}
	return empty
}

// sweep ends the requests in line whose context has ended.
func (q *queue) sweep() {
	for _, l := range q.lanes {
		l.turnDown(l.gate.expired())
	}
}

// turnDown ends requests that were in line and whose context has ended, also if
// an observer ends the goroutine that reports to it.
func (l *lane) turnDown(over []*pending) {
	if len(over) == 0 {
		return
	}
	defer l.turnDown(over[1:])
	p := over[0]
	err := p.Err()
	defer func() { l.queue.complete(p.turn.slot, err) }()
	err = l.refused(err)
}

// ticket makes the request of a reserved slot.
func (q *queue) ticket(ctx context.Context, slot int, l *lane) (Ticket, *pending) {
	p := q.tickets.get()
	if p == nil {
		p = &pending{pool: &q.tickets, queue: q, ended: make(chan struct{}, 1)}
		p.turn.request = p
	}
	p.turn.slot = slot
	q.slots[slot].request = p
	return p.begin(ctx, l), p
}

// enqueue lines a reserved slot up.
func (l *lane) enqueue(ctx context.Context, slot int) Ticket {
	t, p := l.queue.ticket(ctx, slot, l)
	if err := l.gate.submit(&p.turn, t.generation); err != nil {
		l.queue.complete(slot, l.refused(err))
	}
	return t
}

// work serves slots until the gate is closed, first the one that is given unless
// it is negative. If code of the caller ends the goroutine, which nothing can
// prevent, that is the error of its request, and another goroutine goes on.
func (l *lane) work(stopped chan struct{}, slot int) {
	defer func() {
		if slot < 0 {
			close(stopped)
			return
		}
		next := l.gate.pass(1)
		l.queue.complete(slot, l.queue.about.errorf("run", ipu.NewExitError()))
		go l.work(stopped, next)
	}()
	for ok := true; ok; {
		for slot >= 0 {
			served, err := l.compute(slot)
			next := l.gate.pass(served)
			l.queue.complete(slot, err)
			slot = next
		}
		if slot, ok = <-l.gate.grant; !ok {
			slot = -1
		}
	}
}

// compute serves a slot and returns the number of requests that have got the
// engine. A panic here would end the whole process; so it becomes the ticket's
// error.
func (l *lane) compute(slot int) (served uint64, err error) {
	defer ipu.Guard(&err)
	p := l.queue.slots[slot].request
	if err := p.start(); err != nil {
		return 0, l.refused(err)
	}
	served = 1
	return served, l.serve(p, slot)
}

// complete ends a request.
func (q *queue) complete(slot int, err error) {
	s := &q.slots[slot]
	p := s.request
	s.request, s.asked = nil, 0
	clear(s.samples)
	if q.drop != nil {
		q.drop(slot)
	}
	p.finish(err, func() {
		q.mu.Lock()
		q.pass(slot)
		q.mu.Unlock()
	})
}

// startLanes starts the workers of lanes. mu is held.
func (q *queue) startLanes() {
	for _, l := range q.lanes {
		if l.stopped == nil {
			l.stopped = make(chan struct{})
			go l.work(l.stopped, -1)
		}
	}
}

// enqueueSamples gives the samples of a reserved slot to a goroutine that does
// for them what a caller of RunSamples does.
func (q *queue) enqueueSamples(ctx context.Context, slot int, l *lane) Ticket {
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
		q.complete(slot, l.refused(ErrClosed))
	}
	return t
}

// help serves submitted samples.
func (q *queue) help() {
	slot := -1
	done := func(err error) {
		q.complete(slot, err)
		slot = -1
		q.mu.Lock()
		q.idle++
		q.mu.Unlock()
	}
	defer func() {
		if slot >= 0 { // as in work
			q.helping.Go(q.help)
			done(q.about.errorf("run samples", ipu.NewExitError()))
		}
	}()
	for slot = range q.jobs {
		done(q.sample(slot))
	}
}

// sample is [lane.compute] for submitted samples.
func (q *queue) sample(slot int) (err error) {
	defer ipu.Guard(&err)
	s := &q.slots[slot]
	if err := s.request.start(); err != nil {
		return s.request.lane.refused(err)
	}
	return q.samples(s.request, s.replica, s.samples)
}

// close ends the goroutines that serve samples, none of which computes for long
// any more.
func (q *queue) close() {
	q.mu.Lock()
	if !q.ended {
		q.ended = true
		close(q.jobs)
	}
	q.mu.Unlock()
	q.helping.Wait()
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
