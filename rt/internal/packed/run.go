package packed

import (
	"context"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
)

// Compute computes a call of n sequences, and ends it: nobody may use c afterwards. ctx is honoured
// while it waits, and while runs go on that nobody else has sequences in.
func (p *Packer) Compute(ctx context.Context, c *Call, n int) error {
	err := p.measure(c, n)
	if err == nil {
		err = p.compute(ctx, c)
	}
	p.recycleCall(c)
	return err
}

// compute computes the sequences of a call, pack by pack: in each as many as fit.
func (p *Packer) compute(ctx context.Context, c *Call) error {
	for start := 0; start < len(c.sequences); {
		p.mu.Lock()
		if start == 0 && p.most >= 0 && p.waiting >= p.most+p.engine.Replicas() {
			p.mu.Unlock()
			return rt.ErrOverloaded
		}
		p.waiting++
		o, n := p.join(c, c.sequences[start:])
		places := o.places[c.from:][:n:n] // which move with the pack, and stay the same
		p.mu.Unlock()
		for i, at := range places {
			p.copyIn(o, c.of(p, start+i), c.sequences[start+i], at)
		}
		p.mu.Lock()
		if o.copying--; o.copying == 0 {
			p.copied.Broadcast()
			if (o.late || o.shut) && o.leader != nil && o.leader != c {
				o.leader.signal()
			}
		}
		p.mu.Unlock()
		err := p.attend(ctx, c, o)
		if err == nil {
			for i, at := range places {
				p.copyOut(o, c.of(p, start+i), c.sequences[start+i], at, c.from+i)
			}
		}
		p.mu.Lock()
		p.leave(c, o)
		p.waiting--
		p.mu.Unlock()
		if err != nil {
			return err
		}
		start += n
	}
	return nil
}

// join puts sequences into the open pack, as many as fit and at least one: if the
// first does not fit it begins another pack. mu is held.
func (p *Packer) join(c *Call, sequences []sequence) (o *pack, n int) {
	for {
		if o = p.open; o == nil {
			o = p.newPack()
			p.open, o.leader, o.first = o, c, line.Now()
		}
		c.from = len(o.places)
		for n < len(sequences) {
			at, ok := o.layout.Add(sequences[n].n)
			if !ok {
				break
			}
			o.places = append(o.places, at)
			n++
		}
		if n < len(sequences) || o.layout.Full() {
			p.shut(o)
		}
		if n > 0 {
			o.copying++
			o.calls = append(o.calls, c)
			return o, n
		}
	}
}

// shut makes a pack take no more sequences. mu is held.
func (p *Packer) shut(o *pack) {
	if p.open == o {
		p.open = nil
	}
	if !o.shut {
		o.shut = true
		if o.leader != nil {
			o.leader.signal()
		}
	}
}

// attend waits until a pack has ended, and runs it if the call leads it.
func (p *Packer) attend(ctx context.Context, c *Call, o *pack) error {
	running := false
	defer func() {
		if running { // code of the caller has ended this goroutine
			p.mu.Lock()
			p.leave(c, o)
			p.waiting--
			p.mu.Unlock()
		}
	}()
	for {
		p.mu.Lock()
		ready, wait, forever := false, time.Duration(0), true
		switch {
		case o.ended:
			err := o.err
			p.mu.Unlock()
			return err
		case o.leader != c:
		default:
			wait = p.lingers(o)
			forever = wait <= 0
			ready, o.late = forever && o.copying == 0, forever && o.copying > 0
		}
		p.mu.Unlock()
		var err error
		if ready {
			running = true
			err = p.run(ctx, c, o)
			running = false
		} else {
			err = p.await(ctx, c, wait, forever)
		}
		if err != nil {
			return err
		}
	}
}

// lingers returns how long a pack still waits for sequences. mu is held.
func (p *Packer) lingers(o *pack) time.Duration {
	if o.shut || p.draining {
		return 0
	}
	return p.policy.Timeout - time.Duration(line.Now()-o.first)
}

// await waits until somebody wakes c, or wait is over.
func (p *Packer) await(ctx context.Context, c *Call, wait time.Duration, forever bool) error {
	var timeout <-chan time.Time
	if !forever {
		if c.timer == nil {
			c.timer = time.NewTimer(wait)
		} else {
			c.timer.Reset(wait)
		}
		defer c.timer.Stop()
		timeout = c.timer.C
	}
	select {
	case <-c.wake:
	case <-timeout:
	case <-line.DoneOf(ctx):
		return ctx.Err()
	case <-p.engine.Done():
		return rt.ErrClosed
	}
	return nil
}

// run runs a pack for its leader. It returns an error if the leader gives up before
// the pack has got an engine.
func (p *Packer) run(ctx context.Context, c *Call, o *pack) error {
	replica, err := p.engine.Visit(ctx)
	p.mu.Lock()
	if err != nil && ctx.Err() != nil && p.passOn(o, c) {
		p.mu.Unlock()
		return err
	}
	if p.open == o {
		p.open = nil
	}
	for o.copying > 0 { // of who came while this one waited for the engine
		p.copied.Wait()
	}
	if len(o.calls) > 1 {
		ctx = context.Background() // others' sequences are in it too: one caller's context must not end it
	}
	full := o.shut
	o.shut = true
	p.mu.Unlock()
	over := false
	defer func() {
		if !over { // code of the caller has ended this goroutine
			p.end(o, c, ipu.NewExitError())
		}
	}()
	if err == nil {
		flushed := 0
		if !full {
			flushed = len(o.places)
		}
		p.complete(o)
		err = p.engine.Run(ctx, replica, o.mem, flushed)
	}
	over = true
	p.end(o, c, err)
	return nil
}

// end tells the calls of a pack, but for its leader, what came of it.
func (p *Packer) end(o *pack, leader *Call, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o.ended, o.err = true, err
	for _, m := range o.calls {
		if m != leader {
			m.signal()
		}
	}
}

// passOn makes another call lead a pack, and reports whether there is another at
// all. mu is held.
func (p *Packer) passOn(o *pack, from *Call) bool {
	for _, m := range o.calls {
		if m != from {
			o.leader = m
			m.signal()
			return true
		}
	}
	return false
}

// leave ends a call's part in a pack. mu is held.
func (p *Packer) leave(c *Call, o *pack) {
	for i, m := range o.calls {
		if m == c {
			o.calls = append(o.calls[:i], o.calls[i+1:]...)
			break
		}
	}
	if o.leader == c && !o.ended {
		p.passOn(o, c) // if nobody is left then nobody wants its results
	}
	if len(o.calls) == 0 {
		if p.open == o {
			p.open = nil
		}
		p.recycle(o)
	}
}
