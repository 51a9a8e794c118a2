package rt

import (
	"context"
	"sync"
	"sync/atomic"
)

// gate lets one party at a time drive an engine: a caller that runs inline or
// the worker that serves submitted requests. Free, it is taken by one atomic
// operation and left by a plain store. Busy, it serves callers and submitted
// requests in the order in which they came, whichever of the two they are.
//
// Two words say how things stand. The state is that of who holds the gate, and
// nobody else changes it until it is free. The notice is that of the others, who
// want something of who holds it: mu guards it. Who leaves makes the state free
// and then looks at the notice; who puts one up does so and then looks at the
// state. So that at least one sees what the other did, there must be a fence
// between the two steps on both sides. A fence costs as much as all else that a
// short request does, so a caller leaves without one while nobody comes in its
// way: it says so by the flag quiet, and then whoever puts up a notice makes it
// pass one, see fence. That in turn costs microseconds, so after it a number
// of requests leave with fences of their own.
type gate struct {
	state   atomic.Uint64
	manner  atomic.Uint64 // how the next caller leaves: quiet, or 0
	notice  atomic.Uint32 // queued, closed
	loud    int           // callers that are still to leave with a fence; its holder's
	queuing bool          // callers may wait for callers: see Concurrent

	mu      sync.Mutex // guards the notice and the queue
	head    *turn
	tail    *turn
	callers int          // turns of callers in the queue
	length  atomic.Int32 // turns in the queue
	spare   *turn        // turns of callers and guests that can be used again
	idle    chan error   // made by close: closed once nobody holds the gate
	idled   bool         // it is closed
	grant   chan int     // tells the worker which slot's turn it is; capacity 1
}

// The flags of a gate's state. Above them it has the number of requests served,
// which costs nothing there.
const (
	held     = 1 << iota // somebody drives the engine
	byWorker             // and it is the worker, or a guest
	quiet                // and it is a caller who leaves without a fence
	flagBits = iota
	flags    = 1<<flagBits - 1
	served   = 1 << flagBits // one request
)

// The flags of a gate's notice.
const (
	queued uint32 = 1 << iota // the queue may have entries
	closed                    // nobody gets in any more
)

// loudFor is the number of callers that leave with fences of their own after
// somebody has come in the way of one that did not.
const loudFor = 64

// turn is a place in the queue.
type turn struct {
	next *turn
	slot int           // of a submitted request; -1 for a caller or guest
	wake chan struct{} // of a caller or guest; capacity 1
	err  error         // why there is no turn after all
	// guest marks another session that wants the device, or a batch of
	// several callers' samples. It is no caller, so it is never in a caller's
	// way: it has the flag of the worker.
	guest bool
	stays bool // a guest who is not turned away when the device fails
}

// acquire takes the gate for a caller. It fails with [ErrClosed], with
// [ErrConcurrent] if another caller has or awaits the gate and callers may not
// queue, and with ctx's error if it ends before the caller's turn.
func (g *gate) acquire(ctx context.Context) error {
	if g.take() {
		return nil
	}
	t, err := g.line(false, false)
	if t == nil {
		return err
	}
	return g.await(ctx, t)
}

// take takes the gate for a caller if it is free and nobody else wants it.
func (g *gate) take() bool {
	if !g.grab() {
		return false
	}
	if g.notice.Load() != 0 { // they came first
		g.release(0)
		return false
	}
	return true
}

// grab takes the gate for a caller if it is free, whoever else wants it.
func (g *gate) grab() bool {
	s := g.state.Load()
	return s&flags == 0 && g.state.CompareAndSwap(s, s|held|g.manner.Load())
}

// visit takes the gate for a guest, who leaves it with depart. It fails like
// acquire, but never with [ErrConcurrent].
func (g *gate) visit(ctx context.Context, stays bool) error {
	t, err := g.line(true, stays)
	if t == nil {
		return err
	}
	return g.await(ctx, t)
}

// depart leaves the gate that a guest took, having served n requests.
func (g *gate) depart(n uint64) {
	if slot := g.pass(n); slot >= 0 {
		g.grant <- slot
	}
}

// await waits for a turn in the queue.
func (g *gate) await(ctx context.Context, t *turn) error {
	select {
	case <-t.wake:
	case <-ctx.Done():
		if g.giveUp(t) {
			return ctx.Err()
		}
		<-t.wake // the turn came at the same time
		if t.err == nil {
			if t.guest {
				g.depart(0)
			} else {
				g.release(0)
			}
			g.recycle(t)
			return ctx.Err()
		}
	}
	err := t.err
	g.recycle(t)
	return err
}

// line takes the gate if it has become free, or puts a caller or guest in the
// queue and returns its turn.
func (g *gate) line(guest, stays bool) (*turn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	take := uint64(held)
	if guest {
		take |= byWorker
	}
	for {
		s := g.state.Load()
		switch {
		case g.notice.Load()&closed != 0:
			return nil, ErrClosed
		case g.seize(take):
			return nil, nil
		case !guest && !g.queuing && (s&(held|byWorker) == held || g.callers > 0):
			return nil, ErrConcurrent
		case g.put(queued)&held == 0 && g.head == nil:
			continue // whoever held it may have left before it saw the notice
		}
		t := g.spare
		if t == nil {
			t = &turn{slot: -1, wake: make(chan struct{}, 1)}
		} else {
			g.spare = t.next
		}
		t.guest, t.stays = guest, stays
		g.push(t)
		if !guest {
			g.callers++
		}
		return t, nil
	}
}

// seize takes the gate if it is free and it is nobody else's turn. mu is held.
func (g *gate) seize(take uint64) bool {
	s := g.state.Load()
	if g.head != nil || s&held != 0 || !g.state.CompareAndSwap(s, s|take) {
		return false
	}
	g.notice.Store(0)
	return true
}

// put puts up a notice, which whoever holds the gate by the state that it
// returns sees in leaving. mu is held.
func (g *gate) put(notice uint32) uint64 {
	was := g.notice.Load()
	g.notice.Store(was | notice)
	s := g.state.Load()
	if was == 0 && s&quiet != 0 {
		g.manner.Store(0)
		fence()
		s = g.state.Load()
	}
	return s
}

// submit gives t, the turn of a submitted request, its place.
func (g *gate) submit(t *turn) error {
	if s := g.state.Load(); s&flags == 0 && g.state.CompareAndSwap(s, s|held|byWorker) {
		if g.notice.Load() == 0 {
			g.grant <- t.slot
			return nil
		}
		g.depart(0) // others came first
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		switch {
		case g.notice.Load()&closed != 0:
			return ErrClosed
		case g.seize(held | byWorker):
			g.grant <- t.slot
			return nil
		case g.put(queued)&held != 0 || g.head != nil:
			g.push(t)
			return nil
		}
	}
}

// release leaves the gate to whoever is next, having served n requests.
func (g *gate) release(n uint64) {
	if !g.slip(n) {
		if g.loud--; g.loud < 0 {
			g.loud = loudFor
			if canFence() {
				g.manner.Store(quiet)
			}
		}
		g.state.Store(g.state.Load()&^flags + n*served)
	}
	if g.notice.Load() != 0 {
		g.wakeNext()
	}
}

// slip makes the state free if who holds the gate leaves quietly, and reports
// that. The notice is still to be looked at.
func (g *gate) slip(n uint64) bool {
	s := g.state.Load()
	if s&quiet == 0 {
		return false
	}
	storeQuietly(&g.state, s&^flags+n*served)
	return true
}

// wakeNext is release when others are there.
func (g *gate) wakeNext() {
	if slot := g.handOn(); slot >= 0 {
		g.grant <- slot
	}
}

// pass is release for the worker: it returns the slot if the next turn is the
// worker's, else -1.
func (g *gate) pass(n uint64) int {
	g.state.Store(g.state.Load()&^flags + n*served)
	if g.notice.Load() == 0 {
		return -1
	}
	return g.handOn()
}

// handOn gives the gate that somebody has left to whoever is next, unless
// somebody has taken it meanwhile, who sees the notice and calls it again.
func (g *gate) handOn() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state.Load()
	if g.notice.Load()&closed != 0 {
		if s&held == 0 && !g.idled {
			g.idled = true
			close(g.idle)
		}
		return -1
	}
	t := g.head
	if t == nil { // whoever queued has given up, or has the gate
		g.notice.Store(0)
		return -1
	}
	take := uint64(held)
	if t.slot >= 0 || t.guest {
		take |= byWorker
	}
	if s&held != 0 || !g.state.CompareAndSwap(s, s|take) {
		return -1
	}
	g.head = t.next
	g.length.Add(-1)
	if take&byWorker == 0 {
		g.callers--
	}
	if g.head == nil {
		g.tail = nil
		g.notice.Store(0)
	}
	t.next = nil
	if t.slot < 0 {
		t.wake <- struct{}{}
	}
	return t.slot
}

func (g *gate) push(t *turn) {
	t.next = nil
	g.length.Add(1)
	if g.head == nil {
		g.head = t
	} else {
		g.tail.next = t
	}
	g.tail = t
}

// giveUp takes a caller's turn out of the queue and reports whether it was
// still there.
func (g *gate) giveUp(t *turn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	var before *turn
	for u := g.head; u != nil; before, u = u, u.next {
		if u != t {
			continue
		}
		if before == nil {
			g.head = t.next
		} else {
			before.next = t.next
		}
		if g.tail == t {
			g.tail = before
		}
		g.length.Add(-1)
		if !t.guest {
			g.callers--
		}
		t.next, g.spare = g.spare, t
		return true
	}
	return false
}

func (g *gate) recycle(t *turn) {
	g.mu.Lock()
	t.err = nil
	t.next, g.spare = g.spare, t
	g.mu.Unlock()
}

// turnAway empties the queue, for who holds the gate, except for who stays. why
// is called for each turn in order with its slot, -1 for a caller or guest, and
// tells these why. All count as served.
func (g *gate) turnAway(why func(slot int) error) {
	g.mu.Lock()
	t := g.head
	g.head, g.tail, g.callers = nil, nil, 0
	n := uint64(0)
	for t != nil {
		next := t.next
		if t.stays {
			g.push(t)
		} else {
			n++
			err := why(t.slot)
			if t.slot < 0 {
				t.err = err
				t.wake <- struct{}{}
			}
		}
		t = next
	}
	g.length.Store(0)
	for t := g.head; t != nil; t = t.next {
		g.length.Add(1)
	}
	g.state.Add(n * served)
	g.mu.Unlock()
}

// load returns how many are served or wait, at about this moment.
func (g *gate) load() int {
	n := int(g.length.Load())
	if g.state.Load()&held != 0 {
		n++
	}
	return n
}

// close keeps everybody out: callers in the queue fail, and the slots of
// requests in the queue are returned for their tickets to fail. The channel
// is closed once nobody holds the gate; busy says whether somebody does.
// close must be called once.
func (g *gate) close() (slots []int, idle <-chan error, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = make(chan error)
	busy = g.put(closed)&held != 0
	for t := g.head; t != nil; {
		next := t.next
		if t.slot >= 0 {
			slots = append(slots, t.slot)
		} else {
			t.err = ErrClosed
			t.wake <- struct{}{}
		}
		t = next
	}
	g.head, g.tail, g.callers = nil, nil, 0
	g.length.Store(0)
	if !busy {
		g.idled = true
		close(g.idle)
	}
	return slots, g.idle, busy
}

// shut reports whether the gate was closed.
func (g *gate) shut() bool { return g.notice.Load()&closed != 0 }

// requests returns the number of requests served.
func (g *gate) requests() uint64 { return g.state.Load() >> flagBits }
