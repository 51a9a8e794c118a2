// Package line has those that wait for an engine: the gate that one request at a time
// passes, the places of submitted requests, and their tickets.
package line

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt/internal/errs"
)

// Gate is the lock of an engine. Free, it is taken and left by one atomic
// operation each. Busy, it has a list of those that wait, guarded by mu.
//
// It is fair within bounds, as sync.Mutex is. Who leaves wakes the first that
// waits, but a newcomer may take the gate before that one has a processor, so
// that short requests of many callers need not wait for the scheduler between
// any two. Two things put an end to overtaking:
//
//   - while submitted requests wait, everything is served in the order in which
//     it came, so that a goroutine that submits a request and then makes another
//     one sees them served in this order;
//   - who has waited for longer than patience gets the gate handed over, and so
//     does everybody behind it who has, too.
//
// Where the list is not empty and the gate free, somebody is on the way to mu:
// who has left, or the one that was woken.
type Gate struct {
	state      atomic.Uint64
	Single     bool // callers may not wait for callers: see SingleCaller
	MaxWaiting int  // callers and guests that may wait; negative: any number

	mu       sync.Mutex
	head     *turn // those that wait, in the order in which they came
	tail     *turn
	callers  int          // turns of callers in the list
	guests   int          // turns of guests in the list that do not stay
	slots    int          // turns of submitted requests in the list
	starving bool         // the first has waited for longer than patience
	length   atomic.Int32 // turns in the list
	spare    *turn        // turns of callers and guests that can be used again
	idle     chan error   // made by close: closed once nobody holds the gate
	idled    bool         // it is closed
	drained  chan error   // made by drain: closed once nobody holds the gate or waits
	Grant    chan int     // tells the worker which slot's turn it is; capacity 1
}

// The flags of a gate's state. Above them it has the number of requests served,
// which costs nothing there. Who holds the gate leaves it by one addition;
// waiting, strict, draining and closed change with mu held.
const (
	Held     = 1 << iota // somebody drives the engine
	byWorker             // and it is the worker, or a guest
	woken                // the first that waits was woken, and has not looked yet
	waiting              // the list may have entries
	strict               // nobody may overtake those that wait
	draining             // no caller and no submitted request gets in any more
	closed               // nobody gets in any more
	flagBits = iota
	served   = 1 << flagBits // one request
)

// patience is how long others may overtake one that waits.
const patience = time.Millisecond

// turn is a place in the list of those that wait. Its fields are guarded by the
// gate's mu.
type turn struct {
	next *turn
	slot int // of a submitted request; -1 for a caller or guest
	// request and id are whose turn it is, of a submitted request, and which of
	// the requests that it has been, while it is in the list.
	request *pending
	id      uint64
	wake    chan struct{} // of a caller or guest; capacity 1: look what became of the turn
	since   int64         // when a caller or guest began to wait
	ended   bool          // it is out of the list, and has the gate unless there is an err
	err     error         // why there is no turn after all
	first   bool          // it was woken to take the gate
	// A guest is no caller, so it is never in a caller's way: it has the flag of
	// the worker.
	kind Kind
}

// Kind says who wants the gate.
type Kind uint8

const (
	caller Kind = iota
	Guest       // the samples of one caller
	Leader      // a batch of several callers' samples, or the loop that runs queues: they were let in before
	Stayer      // another session that wants the device, or who returns what is left in queues: not turned away when the device fails
)

// Acquire takes the gate for a caller, who leaves it with release. It fails with
// [ipu.ErrClosed], with [errs.ErrConcurrent] if another caller has or awaits the gate and
// callers may not wait, with [errs.ErrOverloaded] if too many do, and with ctx's
// error if it ends before the caller's turn.
func (g *Gate) Acquire(ctx context.Context) error {
	if g.Take(Held) {
		return nil
	}
	return g.line(ctx, caller)
}

// Visit takes the gate for a guest, who leaves it with depart. It fails like
// acquire, but never with [errs.ErrConcurrent].
func (g *Gate) Visit(ctx context.Context, as Kind) error {
	if g.Take(Held | byWorker) {
		return nil
	}
	return g.line(ctx, as)
}

// TryVisit is Visit that never waits: it reports whether the gate was free.
func (g *Gate) TryVisit() bool { return g.Take(Held | byWorker) }

// Take takes the gate if it is free and nobody has to come first. as is held, and
// byWorker unless it is for a caller.
func (g *Gate) Take(as uint64) bool {
	s := g.state.Load()
	return s&(Held|strict|draining|closed) == 0 && g.state.CompareAndSwap(s, s|as)
}

// Release leaves the gate that a caller took, having served n requests.
func (g *Gate) Release(n uint64) {
	if s := g.state.Add(n*served - Held); s&(waiting|draining|closed) != 0 && s&woken == 0 {
		g.next()
	}
}

// Depart leaves the gate that a guest took, having served n requests.
func (g *Gate) Depart(n uint64) {
	if slot := g.pass(n); slot >= 0 {
		g.Grant <- slot
	}
}

// pass leaves the gate for the worker, having served n requests: it returns the
// slot if the next turn is the worker's, else -1.
func (g *Gate) pass(n uint64) int {
	if s := g.state.Add(n*served - Held - byWorker); s&(waiting|draining|closed) == 0 || s&woken != 0 {
		return -1
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.handOn()
}

// next is the end of release where others are there.
func (g *Gate) next() {
	g.mu.Lock()
	slot := g.handOn()
	g.mu.Unlock()
	if slot >= 0 {
		g.Grant <- slot
	}
}

// line waits for the gate, for a caller or guest.
func (g *Gate) line(ctx context.Context, who Kind) error {
	t, err := g.Enlist(who)
	if t == nil {
		return err
	}
	for {
		over := false
		select {
		case <-t.wake:
		case <-DoneOf(ctx):
			over = true
		}
		g.mu.Lock()
		slot, done := -1, true
		switch {
		case t.ended && over && t.err == nil: // the turn came at the same time
			g.state.Add(-t.as())
			err = ctx.Err()
		case t.ended:
			err = t.err
		case over:
			err = ctx.Err()
			g.unlink(t)
		case t.first && g.seize(t):
		default:
			done = false
		}
		if done {
			g.recycle(t)
			slot = g.handOn()
		}
		g.mu.Unlock()
		if slot >= 0 {
			g.Grant <- slot
		}
		if done {
			return err
		}
	}
}

// as returns the flags of who takes its turn.
func (t *turn) as() uint64 {
	if t.slot >= 0 || t.kind != caller {
		return Held | byWorker
	}
	return Held
}

// Enlist takes the gate if it has become free, or puts a caller or guest in the
// list and returns its turn.
func (g *Gate) Enlist(who Kind) (*turn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	as := uint64(Held)
	if who != caller {
		as |= byWorker
	}
	for {
		s := g.state.Load()
		switch {
		case s&closed != 0, s&draining != 0 && who == caller:
			return nil, ipu.ErrClosed
		case s&Held == 0 && g.head == nil || s&(Held|strict) == 0:
			if g.state.CompareAndSwap(s, s|as) {
				return nil, nil
			}
			continue
		case who == caller && g.Single && (s&(Held|byWorker) == Held || g.callers > 0):
			return nil, errs.ErrConcurrent
		case who <= Guest && g.MaxWaiting >= 0 && g.callers+g.guests >= g.MaxWaiting:
			return nil, errs.ErrOverloaded
		}
		if g.state.CompareAndSwap(s, s|waiting) { // who holds the gate sees it in leaving
			break
		}
	}
	t := g.spare
	if t == nil {
		t = &turn{slot: -1, wake: make(chan struct{}, 1)}
	} else {
		g.spare = t.next
	}
	t.kind, t.since = who, Now()
	g.push(t)
	return t, nil
}

// seize takes the gate for the turn that was woken. If somebody was faster, the
// turn waits on, and nobody may overtake it any more if it has done so for long.
// mu is held.
func (g *Gate) seize(t *turn) bool {
	t.first = false
	late := Now()-t.since > int64(patience)
	for {
		s := g.state.Load()
		switch {
		case s&Held == 0:
			if g.state.CompareAndSwap(s, s&^woken|t.as()) {
				g.unlink(t)
				return true
			}
		case g.state.CompareAndSwap(s, s&^woken): // who holds the gate wakes again
			if late {
				g.starving = true
				g.mark()
			}
			return false
		}
	}
}

// submit gives t, the turn of a submitted request, its place. withdraw takes it
// out again by that id.
func (g *Gate) submit(t *turn, id uint64) error {
	if g.Take(Held | byWorker) {
		g.Grant <- t.slot
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		s := g.state.Load()
		switch {
		case s&(draining|closed) != 0:
			return ipu.ErrClosed
		case s&Held == 0 && g.head == nil || s&(Held|strict) == 0:
			if g.state.CompareAndSwap(s, s|Held|byWorker) {
				g.Grant <- t.slot
				return nil
			}
		case g.state.CompareAndSwap(s, s|waiting|strict):
			t.id = id
			g.push(t)
			return nil
		}
	}
}

// handOn gives the gate, if it is free, to whoever is next, or wakes that one to
// take it. It returns the slot of a submitted request whose turn it is, else -1.
// mu is held.
func (g *Gate) handOn() int {
	for {
		s := g.state.Load()
		t := g.head
		switch {
		case s&Held != 0: // its holder comes here in leaving
			return -1
		case s&closed != 0:
			if !g.idled {
				g.idled = true
				close(g.idle)
			}
			return -1
		case t == nil:
			if s&draining != 0 && g.drained != nil {
				close(g.drained)
				g.drained = nil
			}
			return -1
		case s&woken != 0: // who was woken comes here
			return -1
		case s&strict == 0:
			if g.state.CompareAndSwap(s, s|woken) {
				t.first = true
				t.call()
				return -1
			}
		case g.state.CompareAndSwap(s, s|t.as()):
			g.starving = t.slot < 0 && Now()-t.since > int64(patience)
			g.unlink(t)
			if t.slot < 0 {
				t.ended = true
				t.call()
			}
			return t.slot
		}
	}
}

// call makes a caller or guest look what became of its turn.
func (t *turn) call() {
	select {
	case t.wake <- struct{}{}:
	default: // it has yet to look
	}
}

// push puts a turn at the end of the list. mu is held.
func (g *Gate) push(t *turn) {
	t.next = nil
	if g.head == nil {
		g.head = t
	} else {
		g.tail.next = t
	}
	g.tail = t
	g.count(t, 1)
}

// count counts a turn in the list. mu is held.
func (g *Gate) count(t *turn, by int) {
	g.length.Add(int32(by))
	switch {
	case t.slot >= 0:
		g.slots += by
	case t.kind == caller:
		g.callers += by
	case t.kind == Guest:
		g.guests += by
	}
}

// unlink takes a turn out of the list and reports whether it was there. mu is
// held.
func (g *Gate) unlink(t *turn) bool {
	var before *turn
	for u := g.head; u != t; before, u = u, u.next {
		if u == nil {
			return false
		}
	}
	if before == nil {
		g.head = t.next
	} else {
		before.next = t.next
	}
	if g.tail == t {
		g.tail = before
	}
	t.next = nil
	if t.first {
		t.first = false
		g.state.And(^uint64(woken))
	}
	g.count(t, -1)
	g.mark()
	return true
}

// mark makes the state say what is so of the list. mu is held.
func (g *Gate) mark() {
	var want uint64
	if g.head != nil {
		want = waiting
	} else {
		g.starving = false
	}
	if g.starving || g.slots > 0 {
		want |= strict
	}
	for {
		s := g.state.Load()
		if g.state.CompareAndSwap(s, s&^(waiting|strict)|want) {
			return
		}
	}
}

// withdraw takes the turn of a submitted request out of the list, and reports
// whether it was still there, by that id.
func (g *Gate) withdraw(t *turn, id uint64) bool {
	g.mu.Lock()
	u := g.head
	for u != nil && u != t {
		u = u.next
	}
	there := u != nil && u.id == id
	if there {
		g.unlink(t)
	}
	slot := g.handOn()
	g.mu.Unlock()
	if slot >= 0 {
		g.Grant <- slot
	}
	return there
}

// expired takes the submitted requests out of the list whose context has ended,
// and returns them.
func (g *Gate) expired() (over []*pending) {
	g.mu.Lock()
	for t := g.head; t != nil; {
		next := t.next
		if t.request != nil && t.request.Err() != nil {
			over = append(over, t.request)
			g.unlink(t)
		}
		t = next
	}
	slot := g.handOn()
	g.mu.Unlock()
	if slot >= 0 {
		g.Grant <- slot
	}
	return over
}

// recycle keeps a caller's or guest's turn for another one. mu is held.
func (g *Gate) recycle(t *turn) {
	select {
	case <-t.wake:
	default:
	}
	t.ended, t.err = false, nil
	t.next, g.spare = g.spare, t
}

// TurnAway empties the list, for who holds the gate, except for who stays. why
// is called for each turn in order with its slot, -1 for a caller or guest, and
// tells these why. All count as served.
func (g *Gate) TurnAway(why func(slot int) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := uint64(0)
	for t := g.head; t != nil; {
		next := t.next
		if t.kind != Stayer {
			n++
			g.unlink(t) // before its request can be another one's
			if slot := t.slot; slot >= 0 {
				why(slot)
			} else {
				g.dismiss(t, why(slot))
			}
		}
		t = next
	}
	g.state.Add(n * served)
}

// dismiss tells a caller or guest whose turn is out of the list that it is because
// of err. mu is held.
func (g *Gate) dismiss(t *turn, err error) {
	t.ended, t.err = true, err
	t.call()
}

// Load returns how many are served or wait, at about this moment.
func (g *Gate) Load() int {
	n := int(g.length.Load())
	if g.state.Load()&Held != 0 {
		n++
	}
	return n
}

// Drain keeps callers and submitted requests out that are not in the list. The
// channel is closed once nobody holds the gate or waits; guests may come later.
func (g *Gate) Drain() <-chan error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Or(draining)
	drained := make(chan error)
	if g.drained != nil { // somebody else drains it
		return g.drained
	}
	g.drained = drained
	g.handOn()
	return drained
}

// Close keeps everybody out: callers in the list fail, and the slots of
// requests in the list are returned for their tickets to fail. The channel
// is closed once nobody holds the gate; busy says whether somebody does.
// close must be called once.
func (g *Gate) Close() (slots []int, idle <-chan error, busy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.idle = make(chan error)
	busy = g.state.Or(closed)&Held != 0
	for g.head != nil {
		t := g.head
		g.unlink(t)
		if t.slot >= 0 {
			slots = append(slots, t.slot)
		} else {
			g.dismiss(t, ipu.ErrClosed)
		}
	}
	if !busy {
		g.handOn()
	}
	return slots, g.idle, busy
}

// Shut reports whether the gate was closed.
func (g *Gate) Shut() bool { return g.state.Load()&closed != 0 }

// Requests returns the number of requests served.
func (g *Gate) Requests() uint64 { return g.state.Load() >> flagBits }

// Counted returns how many turns are in the list, and panics if they were counted
// wrongly. It is for tests.
func (g *Gate) Counted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, stay := 0, 0
	for t := g.head; t != nil; t = t.next {
		if n++; t.kind > Guest {
			stay++
		}
	}
	if n != int(g.length.Load()) || n != g.callers+g.guests+g.slots+stay {
		panic("the list of those that wait is counted wrongly")
	}
	return n
}

// Drains reports whether no caller and no submitted request gets in any more. It
// is for tests.
func (g *Gate) Drains() bool { return g.state.Load()&draining != 0 }
