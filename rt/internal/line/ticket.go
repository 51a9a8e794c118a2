package line

import (
	"context"
	"sync"
	"time"

	"github.com/popefgen/popefgen/rt/internal/errs"
)

// Ticket is what rt.Ticket is made of.
type Ticket struct {
	pending    *pending
	generation uint64
}

// pending is a submitted request as its ticket sees it. It is also the context
// that the request runs with, which ends with the context that it was submitted
// with or when it is cancelled.
type pending struct {
	pool  *Tickets      // takes it back; nil if nobody does
	queue *Queue        // whose place it has; nil if it has none
	group *parted       // that this is a part of; nil if it is none
	turn  turn          // in the line for the engine
	ended chan struct{} // capacity 1: tells who waits that the request has ended
	next  *pending      // that can be used again

	mu         sync.Mutex
	generation uint64 // changes when a ticket is used up, so that an old one can't take a new request for its own
	lane       *Lane
	parent     context.Context
	phase      phase
	claimed    bool // somebody waits
	cancelled  bool
	err        error         // the request's result
	done       chan struct{} // made by Done; closed at the end
	undo       func() bool   // ends what Done has asked the parent for

	stop    chan struct{} // what the context's Done returns; made when it is asked for
	stopped bool          // it is closed
	lent    bool          // others may have the context, or one derived from it, for longer than the request
	unhook  func() bool   // ends what stop has asked the parent for
}

// Tickets keeps requests whose tickets are used up, for others.
type Tickets struct {
	mu     sync.Mutex
	unused *pending // guarded by mu
}

// get returns a request that can be used again, nil if there is none.
func (k *Tickets) get() *pending {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.unused
	if p != nil {
		k.unused = p.next
	}
	return p
}

func (k *Tickets) put(p *pending) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.next, k.unused = k.unused, p
}

// Ended returns the ticket of a request that has ended with err.
func Ended(err error) Ticket {
	p := &pending{ended: make(chan struct{}, 1), parent: context.Background(), phase: hasDone, err: err}
	p.ended <- struct{}{}
	return Ticket{pending: p}
}

// phase is how far a request has come.
type phase uint8

const (
	waits   phase = iota // it may be taken out of the line
	runs                 // it has the engine, or waits for it with its samples
	hasDone              // it has ended
)

// ever is a channel that is closed.
var ever = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// begin makes a request of p.
func (p *pending) begin(ctx context.Context, l *Lane) Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lane, p.parent, p.phase = l, ctx, waits
	return Ticket{pending: p, generation: p.generation}
}

// start marks a request as one that computes, unless its context has ended,
// which it returns.
func (p *pending) start() error {
	if err := p.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	p.phase = runs
	p.mu.Unlock()
	return nil
}

// finish ends a request. free is called before the waiters are woken.
func (p *pending) finish(err error, free func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phase, p.err = hasDone, err
	for _, undo := range []func() bool{p.undo, p.unhook} {
		if undo != nil {
			undo()
		}
	}
	if p.unhook != nil || p.stopped {
		p.stop, p.stopped = nil, false
	}
	p.undo, p.unhook = nil, nil
	free()
	p.ended <- struct{}{}
	if p.done != nil {
		close(p.done)
	}
}

// use returns the result of a request that has ended, and makes p one for
// another request. Who calls it has received from ended.
func (p *pending) use() error {
	p.mu.Lock()
	err := p.err
	p.generation++
	p.claimed, p.cancelled, p.err, p.done = false, false, nil, nil
	p.lane, p.parent = nil, context.Background()
	lent := p.lent
	p.mu.Unlock()
	if !lent && p.pool != nil { // lent, it must not become the context of another request
		p.pool.put(p)
	}
	return err
}

// Wait is rt.Ticket.Wait.
func (t Ticket) Wait(ctx context.Context) error {
	p := t.pending
	if p == nil {
		return errs.ErrTicketUsed
	}
	p.mu.Lock()
	if p.generation != t.generation || p.claimed {
		p.mu.Unlock()
		return p.used("wait for a request")
	}
	p.claimed = true
	own := p.parent.Done()
	p.mu.Unlock()
	over := ctx.Done()
	if own == nil && over == nil { // a receive is cheaper than a select
		<-p.ended
		return p.use()
	}
	for {
		select {
		case <-p.ended:
			return p.use()
		case <-own: // in line it ends at once, and else as soon as the engine notices
			own = nil
			t.withdraw(false)
			continue
		case <-over:
		}
		t.withdraw(false) // ctx may well be the request's
		p.mu.Lock()
		ended := p.phase == hasDone
		p.claimed = ended
		p.mu.Unlock()
		if ended {
			<-p.ended
			return p.use()
		}
		return ctx.Err() // as it is, to tell it apart from the request's
	}
}

// used is [errs.ErrTicketUsed] for a ticket of a request that p was.
func (p *pending) used(doing string) error {
	if p.queue == nil { // see rt.Ended
		return errs.ErrTicketUsed
	}
	return p.queue.about.Errorf(doing, errs.ErrTicketUsed)
}

// Done is rt.Ticket.Done.
func (t Ticket) Done() <-chan struct{} {
	p := t.pending
	if p == nil {
		return ever
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.generation != t.generation || p.phase == hasDone:
		return ever
	case p.done == nil:
		p.done = make(chan struct{})
		if p.parent.Done() != nil {
			p.undo = context.AfterFunc(p.parent, func() { t.withdraw(false) })
		}
	}
	return p.done
}

// Err is rt.Ticket.Err.
func (t Ticket) Err() error {
	p := t.pending
	if p == nil {
		return errs.ErrTicketUsed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.generation != t.generation {
		return p.used("read the error of a request")
	}
	return p.err
}

// Cancel is rt.Ticket.Cancel.
func (t Ticket) Cancel() { t.withdraw(true) }

// withdraw takes a request whose context has ended out of the line, or one that
// it cancels.
func (t Ticket) withdraw(cancel bool) {
	p := t.pending
	if p == nil {
		return
	}
	p.mu.Lock()
	if p.generation != t.generation || p.phase == hasDone || !cancel && p.parent.Err() == nil {
		p.mu.Unlock()
		return
	}
	if cancel {
		p.cancelled = true
		p.halt()
	}
	l, waiting := p.lane, p.phase == waits
	p.mu.Unlock()
	if waiting && l.Gate.withdraw(&p.turn, t.generation) {
		l.turnDown([]*pending{p})
	}
}

// halt makes the request's context end. mu is held.
func (p *pending) halt() {
	if p.stop != nil && !p.stopped {
		p.stopped = true
		close(p.stop)
	}
}

// Deadline is that of the context that the request was submitted with.
func (p *pending) Deadline() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.parent.Deadline()
}

// Done returns a channel that is closed when the request should end. Engines
// that look at Err instead spare some allocations.
func (p *pending) Done() <-chan struct{} { return p.over(true) }

// DoneOf is ctx.Done for who is done with it before the request ends.
func DoneOf(ctx context.Context) <-chan struct{} {
	if p, ok := ctx.(*pending); ok {
		return p.over(false)
	}
	return ctx.Done()
}

func (p *pending) over(lent bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lent = p.lent || lent
	switch {
	case p.phase == hasDone: // somebody asks late, of what was derived from it
		return ever
	case p.stop == nil:
		stop := make(chan struct{})
		p.stop = stop
		if p.parent.Done() != nil {
			p.unhook = context.AfterFunc(p.parent, func() {
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.stop == stop {
					p.halt()
				}
			})
		}
		if p.cancelled {
			p.halt()
		}
	}
	return p.stop
}

// Err says why the request should end, or that it has ended.
func (p *pending) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancelled || p.phase == hasDone {
		return context.Canceled
	}
	return p.parent.Err()
}

// Value is that of the context that the request was submitted with.
func (p *pending) Value(key any) any {
	p.mu.Lock()
	parent := p.parent
	p.mu.Unlock()
	return parent.Value(key)
}
