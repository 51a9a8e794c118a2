package genrt

import (
	"context"
	"sync"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/packing"
)

// pack is one run's worth of sequences. Fields are guarded by packer.mu, and mem by
// who copies, runs or reads its part of it.
type pack struct {
	next    *pack
	layout  *packing.Layout
	places  []packing.Place // of its sequences, in the order in which they came
	numbers []int32         // of the sequence at each position, for blocks
	mem     [][]byte        // of each tensor
	copying int             // calls that are still copying theirs
	first   int64           // when the first sequence came
	shut    bool            // it takes no more: it is full, or the next did not fit
	late    bool            // it could run but for those that are copying
	calls   []*packCall     // that have sequences in it and have not left
	leader  *packCall       // of these, the one that runs it when it is time
	ended   bool            // err is the result
	err     error
}

// packCall is one call of RunPacked.
type packCall struct {
	next      *packCall
	parts     []Samples  // of each sequence, of each tensor
	sequences []sequence // what of each is computed
	from      int        // index in the pack of the first of those that are in it
	wake      chan struct{}
	timer     *time.Timer
}

// of returns the parts of sequence i.
func (c *packCall) of(p *packer, i int) []Samples {
	return c.parts[i*len(p.tensors):][:len(p.tensors)]
}

// signal makes a call look what became of its pack.
func (c *packCall) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// packerState is what a packer's mutex guards.
type packerState struct {
	mu       sync.Mutex
	copied   sync.Cond // of mu: somebody has copied sequences
	open     *pack     // that takes sequences
	packs    *pack     // that can be used again
	calls    *packCall
	waiting  int        // calls with sequences in packs
	active   int        // calls of RunPacked
	draining bool       // no call is let in any more
	empty    chan error // made by drain: closed once nobody is inside
}

// compute computes the sequences of a call, pack by pack: in each as many as fit.
func (p *packer) compute(ctx context.Context, c *packCall) error {
	for start := 0; start < len(c.sequences); {
		p.mu.Lock()
		if start == 0 && p.most >= 0 && p.waiting >= p.most+len(p.core.replicas) {
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
func (p *packer) join(c *packCall, sequences []sequence) (o *pack, n int) {
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
func (p *packer) shut(o *pack) {
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
func (p *packer) attend(ctx context.Context, c *packCall, o *pack) error {
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
func (p *packer) lingers(o *pack) time.Duration {
	if o.shut || p.draining {
		return 0
	}
	return p.policy.Timeout - time.Duration(line.Now()-o.first)
}

// await waits until somebody wakes c, or wait is over.
func (p *packer) await(ctx context.Context, c *packCall, wait time.Duration, forever bool) error {
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
	case <-p.core.done:
		return rt.ErrClosed
	}
	return nil
}

// run runs a pack for its leader. It returns an error if the leader gives up before
// the pack has got an engine.
func (p *packer) run(ctx context.Context, c *packCall, o *pack) error {
	replica, err := p.core.visit(ctx, rt.LeastBusy, line.Leader)
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
		r := p.core.replicas[replica]
		var panicked error
		if !full {
			panicked = r.session.Observe(rt.Event{Kind: rt.EventFlushed, Samples: len(o.places)})
		}
		p.complete(o)
		for i, w := range r.run {
			if w != nil {
				w.Over(o.mem[i])
			}
		}
		err = callerr.Also(p.core.mainVisit(ctx, replica), panicked)
	}
	over = true
	p.end(o, c, err)
	return nil
}

// end tells the calls of a pack, but for its leader, what came of it.
func (p *packer) end(o *pack, leader *packCall, err error) {
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
func (p *packer) passOn(o *pack, from *packCall) bool {
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
func (p *packer) leave(c *packCall, o *pack) {
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

// newPack returns an empty pack. mu is held.
func (p *packer) newPack() *pack {
	if o := p.packs; o != nil {
		p.packs, o.next = o.next, nil
		return o
	}
	k := p.spec
	o := &pack{layout: packing.New(k.Rows, k.Length, k.Entries, p.policy), mem: make([][]byte, len(p.tensors)), numbers: make([]int32, k.Rows*k.Length)}
	for i, t := range p.tensors {
		if !t.frozen {
			o.mem[i] = make([]byte, t.bytes)
		}
	}
	return o
}

// recycle keeps a pack that nobody uses any more. mu is held.
func (p *packer) recycle(o *pack) {
	clear(o.calls[:cap(o.calls)])
	o.layout.Reset()
	o.calls, o.places, o.leader = o.calls[:0], o.places[:0], nil
	o.shut, o.late, o.ended, o.err = false, false, false, nil
	o.next, p.packs = p.packs, o
}

// newCall returns a call without sequences.
func (p *packer) newCall() *packCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls; c != nil {
		p.calls, c.next = c.next, nil
		return c
	}
	return &packCall{wake: make(chan struct{}, 1)}
}

// recycleCall keeps a call that has ended, without the caller's memory.
func (p *packer) recycleCall(c *packCall) {
	select {
	case <-c.wake:
	default:
	}
	clear(c.parts)
	c.parts, c.sequences = c.parts[:0], c.sequences[:0]
	p.mu.Lock()
	defer p.mu.Unlock()
	c.next, p.calls = p.calls, c
}

// enter counts a call of RunPacked, unless no more are let in.
func (p *packer) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return rt.ErrClosed
	}
	p.active++
	return nil
}

// exit is the end of a call that entered.
func (p *packer) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.active--; p.active == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// drain lets nobody in any more, and packs run without waiting for more sequences. The
// channel is closed once nobody is inside.
func (p *packer) drain() <-chan error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draining = true
	if o := p.open; o != nil && o.leader != nil {
		o.leader.signal()
	}
	if p.empty != nil {
		return p.empty
	}
	empty := make(chan error)
	if p.active == 0 {
		close(empty)
	} else {
		p.empty = empty
	}
	return empty
}
