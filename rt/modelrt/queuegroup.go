package modelrt

import (
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/ring"
)

// QueueGroup enqueues requests to several queues at once: to all of them or to
// none. Nothing that others enqueue comes between the parts of a request, and a
// flush sees all of it or nothing. Any goroutine may use it, together with
// whatever else enqueues. [QueueManager.Group] makes one; a request looks
// nothing up and allocates nothing.
type QueueGroup struct {
	queues   []*ringQueue // in the order of a request's parts
	ordered  []*ringQueue // in the order in which everybody locks them
	base     int          // index of the first queue whose tensor has elements, -1 if none has
	iterated int          // transfers in a run
	tickets  line.Tickets
}

// Group returns a group of these queues, in this order, or without arguments of
// all that main programs move: inputs, then outputs, in the contract's order. It
// fails with [rt.ErrOption] if one is not a queue of m or is named twice.
func (m *QueueManager) Group(queues ...Queue) (*QueueGroup, error) {
	g := &QueueGroup{base: -1, iterated: m.session.DeviceIterations()}
	for i, q := range queues {
		var r *ringQueue
		switch q := q.(type) {
		case *InputQueue:
			r = &q.ringQueue
		case *OutputQueue:
			r = &q.ringQueue
		}
		if r == nil || r.manager != m || slices.Contains(g.queues, r) {
			return nil, m.session.Errorf("group queues", fmt.Errorf("%w: queue %d of %d is none of the session's, or is there twice", rt.ErrOption, i, len(queues)))
		}
		g.queues = append(g.queues, r)
	}
	if len(queues) == 0 {
		g.queues = slices.Clone(m.main)
	}
	if len(g.queues) == 0 {
		return nil, m.session.Errorf("group queues", fmt.Errorf("%w: no queue belongs to a main program", rt.ErrOption))
	}
	for _, q := range m.all {
		if slices.Contains(g.queues, q) {
			g.ordered = append(g.ordered, q)
		}
	}
	g.base = slices.IndexFunc(g.queues, func(q *ringQueue) bool { return q.sample > 0 })
	return g, nil
}

// Enqueue puts a request at the end of every queue: parts are its memory, one for
// each queue of the group in its order, each with the same number of samples.
// Inputs are read, and outputs filled, in place: they belong to the queues until
// the request has ended, which the ticket tells. While a queue has no room,
// Enqueue waits, and puts nothing anywhere; it fails with ctx's error if that ends
// first. Once enqueued a request does not end with ctx, and cancelling the ticket
// does nothing. Other errors: a [*SampleSizeError], [ErrUnbalanced] if parts have
// different numbers of samples (of batches, where batches differ),
// [ErrDisconnected], [ErrEnqueueLocked].
func (g *QueueGroup) Enqueue(ctx context.Context, parts ...[]byte) (rt.Ticket, error) {
	if err := g.check(parts); err != nil {
		return rt.Ticket{}, g.queues[0].about.Errorf("enqueue", err)
	}
	if err := ctx.Err(); err != nil {
		return rt.Ticket{}, g.queues[0].errorf(err)
	}
	if ok, err := g.tryRoom(); err != nil {
		return rt.Ticket{}, err
	} else if !ok {
		if err := g.awaitRoom(ctx); err != nil {
			return rt.Ticket{}, err
		}
	}
	return g.put(parts), nil
}

// TryEnqueue is Enqueue that does not wait: it fails with [rt.ErrQueueFull].
func (g *QueueGroup) TryEnqueue(parts ...[]byte) (rt.Ticket, error) {
	if err := g.check(parts); err != nil {
		return rt.Ticket{}, g.queues[0].about.Errorf("enqueue", err)
	}
	if ok, err := g.tryRoom(); err != nil {
		return rt.Ticket{}, err
	} else if !ok {
		return rt.Ticket{}, g.errFull()
	}
	return g.put(parts), nil
}

// check returns why parts are no request.
func (g *QueueGroup) check(parts [][]byte) error {
	if len(parts) != len(g.queues) {
		return fmt.Errorf("%w: %d pieces of memory for %d queues", ErrUnbalanced, len(parts), len(g.queues))
	}
	for i, q := range g.queues {
		if n := len(parts[i]); n > 0 && q.sample == 0 || q.sample > 0 && (n == 0 || n%q.sample != 0) {
			return &SampleSizeError{Anchor: q.anchor.Name, Bytes: n, Sample: q.sample}
		}
	}
	if g.base < 0 {
		return nil
	}
	base, of := g.queues[g.base], g.samples(g.base, parts)
	for i, q := range g.queues {
		if n := g.samples(i, parts); n*base.batch != of*q.batch {
			return fmt.Errorf("%w: %d samples for %q in batches of %d, %d for %q in batches of %d",
				ErrUnbalanced, of, base.anchor.Name, base.batch, n, q.anchor.Name, q.batch)
		}
	}
	return nil
}

// samples returns how many samples part i has. Where the tensor has no elements,
// it has as many transfers as others, or as a run.
func (g *QueueGroup) samples(i int, parts [][]byte) int {
	q := g.queues[i]
	switch {
	case q.sample > 0:
		return len(parts[i]) / q.sample
	case g.base < 0:
		return g.iterated * q.batch
	}
	base := g.queues[g.base]
	return len(parts[g.base]) / base.sample / base.batch * q.batch
}

func (g *QueueGroup) lock() {
	for _, q := range g.ordered {
		q.mu.Lock()
	}
}

func (g *QueueGroup) unlock() {
	for _, q := range g.ordered {
		q.mu.Unlock()
	}
}

// tryRoom locks the queues if all have room. Those that wait came first.
func (g *QueueGroup) tryRoom() (bool, error) {
	g.lock()
	q, err := g.lacking(true)
	if q == nil && err == nil {
		return true, nil
	}
	g.unlock()
	return false, err
}

// lacking returns a queue without room, if there is one: for a newcomer also one
// that others wait for. The queues are locked.
func (g *QueueGroup) lacking(newcomer bool) (*ringQueue, error) {
	var without *ringQueue
	for _, q := range g.ordered {
		if err := q.closed(); err != nil {
			return nil, err
		}
		if newcomer && q.waiting > 0 || q.ring.Ahead(flushReserve).Full() {
			without = q
		}
	}
	return without, nil
}

// awaitRoom locks the queues when all have room. Whoever waits takes the turn of
// every queue, in the order in which all do, and so nobody overtakes it there.
func (g *QueueGroup) awaitRoom(ctx context.Context) error {
	g.lock()
	epoch := 0 // of all: none ever goes back
	for _, q := range g.ordered {
		q.waiting++
		epoch += q.epoch
	}
	g.unlock()

	turns, err := g.takeTurns(ctx)
	if err == nil {
		err = g.awaitAll(ctx)
	}
	if err != nil {
		g.lock()
	}
	for _, q := range g.ordered {
		q.waiting--
		epoch -= q.epoch
	}
	if err == nil && epoch != 0 {
		err = g.queues[0].errorf(g.queues[0].disconnected())
	}
	if err != nil {
		g.unlock()
	}
	for _, q := range g.ordered[:turns] {
		<-q.turn
	}
	return err
}

// takeTurns takes the turn of every queue, and returns of how many it has.
func (g *QueueGroup) takeTurns(ctx context.Context) (int, error) {
	for i, q := range g.ordered {
		select {
		case q.turn <- struct{}{}:
		case <-ctx.Done():
			return i, q.errorf(ctx.Err())
		}
	}
	return len(g.ordered), nil
}

// awaitAll locks the queues when all have room, for who has the turn of each.
func (g *QueueGroup) awaitAll(ctx context.Context) error {
	for {
		g.lock()
		q, err := g.lacking(false)
		if q == nil && err == nil {
			return nil
		}
		var last ring.Place
		if q != nil {
			last = q.ring.Ahead(flushReserve)
		}
		g.unlock()
		if err == nil {
			if err = q.ring.AwaitFree(ctx, last); err == nil {
				continue
			}
			err = q.errorf(err)
		}
		return err
	}
}

// errFull says which queue is full, or was.
func (g *QueueGroup) errFull() error {
	g.lock()
	defer g.unlock()
	if q, _ := g.lacking(true); q != nil {
		return q.errFull()
	}
	return g.queues[0].errFull()
}

// put enqueues the parts of a request and unlocks the queues, all of which have
// room. One that is disconnected meanwhile hands its part back like any other.
func (g *QueueGroup) put(parts [][]byte) rt.Ticket {
	r := g.tickets.Parted()
	t := rt.Ticket(r.Begin(len(parts)))
	for i := range g.queues {
		i = len(g.queues) - 1 - i // inputs, which make a run begin, at last
		q := g.queues[i]
		q.put(q.ring.NextFree(), chunk{data: parts[i], samples: g.samples(i, parts), done: r.Part})
	}
	g.unlock()
	return t
}
