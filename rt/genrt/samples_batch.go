package genrt

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/runs"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// batch is one run's worth of samples, the unit of dynamic batching. Fields are guarded by batcher.mu, and
// mem by who copies, runs or reads its part of it.
type batch struct {
	next    *batch
	replica int       // that it was asked to run on, or LeastBusy
	mem     [][]byte  // of each tensor
	all     []Samples // the same, of a family
	count   int       // samples that have a place in it
	copying int       // calls that are still copying theirs
	users   int       // calls that have not left
	first   int64     // when the first and the last sample came
	last    int64
	late    bool    // it could run but for those that are copying
	calls   []*call // that have samples in it and have not left
	leader  *call   // of these, the one that runs it when it is time
	ended   bool    // err is the result
	err     error
	follow  bool // somebody wants to know of its runs
	record  runs.Record
}

// call is one call of RunSamples with its part of one batch or of two.
type call struct {
	next    *call
	parts   [2]part
	n       int           // parts
	wake    chan struct{} // capacity 1: look what became of them
	timer   *time.Timer
	busy    *batch     // that it runs, or waits for an engine for
	follows *following // nil: nobody learns of its runs
}

// part is the part of a call in a batch.
type part struct {
	batch *batch
	from  int // first sample in the batch
	start int // first sample of the caller's
	n     int // samples
	ran   int // and once the batch has ended
}

// signal makes a call look what became of its parts.
func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// rest computes the samples from start to end, which are fewer than a batch, in
// the batch that takes samples and, if it has not enough room, the next one.
func (b *batcher) rest(ctx context.Context, replica int, samples []Samples, start, end int, f *following) error {
	b.mu.Lock()
	if b.most >= 0 && b.waiting >= b.most+len(b.core.replicas) && !b.fills(replica, end-start) {
		b.mu.Unlock()
		return rt.ErrOverloaded
	}
	if o := b.open[replica+1]; o == nil || o.count+end-start > b.group {
		if err := b.provide(); err != nil {
			b.mu.Unlock()
			return err
		}
	}
	b.waiting++
	c := b.newCall()
	c.follows = f
	for start < end {
		start += b.join(c, replica, start, end-start)
	}
	b.mu.Unlock()
	for i := range c.parts[:c.n] {
		p := &c.parts[i]
		b.copyIn(p.batch, samples, p.start, p.from, p.n)
	}
	b.mu.Lock()
	b.arrived(c)
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.waiting--
		b.mu.Unlock()
	}()
	return b.attend(ctx, c, samples)
}

// arrived notes that a call has copied its samples. mu is held.
func (b *batcher) arrived(c *call) {
	for i := range c.parts[:c.n] {
		o := c.parts[i].batch
		if o.copying--; o.copying > 0 {
			continue
		}
		b.copied.Broadcast()
		if (o.late || o.count == b.group) && o.leader != c {
			o.leader.signal()
		}
	}
}

// fills reports whether so many samples make the open batch full: nobody waits
// longer for them. mu is held.
func (b *batcher) fills(replica, n int) bool {
	o := b.open[replica+1]
	return o != nil && o.count+n >= b.group
}

// join makes room for up to n samples from start on in the open batch, and
// returns for how many. mu is held.
func (b *batcher) join(c *call, replica, start, n int) int {
	open := &b.open[replica+1]
	at := line.Now()
	o := *open
	if o == nil {
		o = b.takeBatch()
		*open = o
		o.replica, o.leader, o.first = replica, c, at
	}
	n = min(n, b.group-o.count)
	c.parts[c.n] = part{batch: o, from: o.count, start: start, n: n}
	c.n++
	o.count += n
	o.copying++
	o.users++
	o.last = at
	o.calls = append(o.calls, c)
	if c.follows != nil {
		o.follow = true
	}
	if o.count == b.group {
		*open = nil
	}
	if busy := o.leader.busy; busy != nil && busy != o {
		o.leader = c // who can run it at once
	}
	return n
}

// attend waits until every part of a call has ended, and runs those batches that
// the call leads.
func (b *batcher) attend(ctx context.Context, c *call, samples []Samples) error {
	var failed error
	running := false
	defer func() {
		if running { // code of the caller has ended this goroutine
			b.mu.Lock()
			b.part(c)
			b.mu.Unlock()
		}
	}()
	for {
		b.mu.Lock()
		ready, wait, forever := b.look(c)
		if ready == nil && b.finished(c) {
			break
		}
		c.busy = ready
		if ready != nil { // its other batch, if it leads that too, must not wait for this one
			for i := range c.parts[:c.n] {
				if o := c.parts[i].batch; o != ready && o.leader == c && !o.ended {
					b.passOn(o, c)
				}
			}
		}
		b.mu.Unlock()
		var err error
		if ready != nil {
			running = true
			err = b.run(ctx, c, ready)
			running = false
		} else {
			err = b.await(ctx, c, wait, forever)
		}
		if err != nil {
			failed = err
			b.mu.Lock()
			break
		}
	}
	// mu is held. What has not ended goes on without this call.
	c.busy = nil
	for i := range c.parts[:c.n] {
		p := &c.parts[i]
		if p.batch.ended {
			p.ran = p.n
		}
		switch {
		case p.batch.ended && p.batch.err == nil:
			continue
		case p.batch.ended && failed == nil:
			failed = p.batch.err
		}
		p.n = 0
	}
	b.mu.Unlock()
	for i := range c.parts[:c.n] {
		if p := &c.parts[i]; p.n > 0 {
			b.copyOut(p.batch, samples, p.start, p.from, p.n)
		}
	}
	if c.follows != nil {
		failed = c.learn(failed)
	}
	b.mu.Lock()
	b.part(c)
	b.mu.Unlock()
	return failed
}

// part ends a call's part in all its batches. mu is held.
func (b *batcher) part(c *call) {
	for i := range c.parts[:c.n] {
		b.leave(c, c.parts[i].batch)
	}
	b.recycleCall(c)
}

// look returns a batch that c leads and that may run now, or how long c can wait
// until there may be one. mu is held.
func (b *batcher) look(c *call) (ready *batch, wait time.Duration, forever bool) {
	forever = true
	for i := range c.parts[:c.n] {
		o := c.parts[i].batch
		if o.ended || o.leader != c {
			continue
		}
		w, never := b.lingers(o)
		switch {
		case never:
		case w <= 0 && o.copying > 0:
			o.late = true
		case w <= 0:
			return o, 0, false
		case forever || w < wait:
			wait, forever = w, false
		}
	}
	return nil, wait, forever
}

// finished reports whether every part of c has ended. mu is held.
func (b *batcher) finished(c *call) bool {
	for i := range c.parts[:c.n] {
		if !c.parts[i].batch.ended {
			return false
		}
	}
	return true
}

// lingers returns how long a batch still waits for samples. mu is held.
func (b *batcher) lingers(o *batch) (wait time.Duration, forever bool) {
	if o.count == b.group || b.draining {
		return 0, false
	}
	at := line.Now()
	wait, forever = b.policy.Linger-time.Duration(at-o.first), b.policy.Linger == rt.Forever
	if q := b.policy.Quiet; q > 0 {
		quiet := q - time.Duration(at-o.last)
		if forever || quiet < wait {
			wait = quiet
		}
		forever = false
	}
	return wait, forever
}

// await waits until somebody wakes c, or wait is over.
func (b *batcher) await(ctx context.Context, c *call, wait time.Duration, forever bool) error {
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
	case <-b.core.done:
		return rt.ErrClosed
	}
	return nil
}

// run runs a batch for its leader. It returns an error if the leader gives up
// before the batch has got an engine.
func (b *batcher) run(ctx context.Context, c *call, o *batch) error {
	replica, err := b.core.visit(ctx, o.replica, line.Leader)
	b.mu.Lock()
	if err != nil && ctx.Err() != nil && b.passOn(o, c) {
		b.mu.Unlock()
		return err
	}
	if open := &b.open[o.replica+1]; *open == o {
		*open = nil
	}
	for o.copying > 0 { // of who came while this one waited for the engine
		b.copied.Wait()
	}
	count := o.count
	if o.follow && err == nil {
		o.gather()
	}
	if o.users > 1 {
		ctx = context.Background() // others' samples are in it too: one caller's context must not end it
	}
	b.mu.Unlock()
	over := false
	defer func() {
		if !over { // code of the caller has ended this goroutine
			b.end(o, c, ipu.NewExitError())
		}
	}()
	if err == nil {
		var panicked error
		if b.family != nil {
			panicked = b.padPieces(o, count, replica)
		} else if count < b.group {
			s := b.core.replicas[replica].session
			panicked = s.Observe(rt.Event{Kind: rt.EventFlushed, Samples: count})
			b.pad(o, count)
		}
		var r *runs.Record
		if o.follow {
			r = &o.record
		}
		err = callerr.Also(b.runOn(ctx, o, replica, 0, r), panicked)
		if r != nil {
			err = callerr.Also(err, r.Observe(&b.runs))
		}
	}
	over = true
	b.end(o, c, err)
	return nil
}

// end tells the calls of a batch, but for its leader, what came of it.
func (b *batcher) end(o *batch, leader *call, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o.ended, o.err = true, err
	for _, m := range o.calls {
		if m != leader {
			m.signal()
		}
	}
}

// passOn makes another call lead a batch, one that runs no other batch if there
// is such a one, and reports whether there is another at all. mu is held.
func (b *batcher) passOn(o *batch, from *call) bool {
	var to *call
	for _, m := range o.calls {
		if m != from && (to == nil || to.busy != nil && m.busy == nil) {
			to = m
		}
	}
	if to == nil {
		return false
	}
	o.leader = to
	to.signal()
	return true
}

// leave ends a call's part in a batch. mu is held.
func (b *batcher) leave(c *call, o *batch) {
	for i, m := range o.calls {
		if m == c {
			o.calls = append(o.calls[:i], o.calls[i+1:]...)
			break
		}
	}
	if o.leader == c && !o.ended {
		b.passOn(o, c) // if nobody is left then nobody wants its results
	}
	if o.users--; o.users == 0 {
		if open := &b.open[o.replica+1]; *open == o {
			*open = nil
		}
		b.recycle(o)
	}
}

// runOn runs a batch on a replica, whose engine the caller has. Its first sample is from in the record.
func (b *batcher) runOn(ctx context.Context, o *batch, replica, from int, r *runs.Record) error {
	if b.family != nil {
		return b.inPieces(ctx, replica, o.all, 0, o.count, false, r)
	}
	for i, w := range b.core.replicas[replica].run {
		if w != nil {
			w.Over(o.mem[i])
		}
	}
	return b.main(ctx, replica, from, o.count, r)
}

// enter counts a call of RunSamples, unless no more are let in.
func (b *batcher) enter() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.draining {
		return rt.ErrClosed
	}
	b.active++
	return nil
}

// exit is the end of a call that entered.
func (b *batcher) exit() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active--; b.active == 0 && b.empty != nil {
		close(b.empty)
		b.empty = nil
	}
}

// drain lets nobody in any more, and batches run without waiting for more
// samples. The channel is closed once nobody is inside.
func (b *batcher) drain() <-chan error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.draining = true
	for _, o := range b.open {
		if o != nil && o.leader != nil {
			o.leader.signal()
		}
	}
	if b.empty != nil {
		return b.empty
	}
	empty := make(chan error)
	if b.active == 0 {
		close(empty)
	} else {
		b.empty = empty
	}
	return empty
}

// batcherState is what a batcher's mutex guards.
type batcherState struct {
	mu       sync.Mutex
	copied   sync.Cond // of mu: somebody has copied samples
	open     []*batch  // that take samples: of any replica, and of each; nil where there is none
	batches  *batch    // that can be used again
	calls    *call
	waiting  int           // calls with samples in batches
	active   int           // calls of RunSamples
	draining bool          // no call is let in any more
	pieces   *sizes.Pieces // of a family
	follows  *following    // that can be used again
	runs     atomic.Uint64 // that somebody learnt of; it needs no mutex
	empty    chan error    // made by drain: closed once nobody is inside
}
