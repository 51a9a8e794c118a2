package rt

import (
	"context"
	"time"
)

// batch is one run's worth of samples. Fields are guarded by batcher.mu, and
// mem by who fills, runs or empties it.
type batch struct {
	next  *batch
	mem   [][]byte // of each tensor
	count int      // samples in it
	users int      // members that have not left
	first int64    // when the first and the last sample came
	last  int64
	line  *member // members that wait for the result
	ended bool    // err is the result
	err   error
	full  chan struct{} // tells the leader that there is no room any more; capacity 1
	timer *time.Timer
}

// member is one caller's part of a batch.
type member struct {
	next  *member
	batch *batch
	from  int           // first sample in the batch
	start int           // first sample of the caller's
	n     int           // samples
	lead  bool          // has to run the batch
	wake  chan struct{} // the batch ended, or the member has to lead it; capacity 1
}

// rest computes the samples from start to end, which are fewer than a batch, in
// the batch that takes samples and, if it has not enough room, the next one.
func (b *batcher) rest(ctx context.Context, samples []Samples, start, end int) error {
	var mine [2]*member
	var leads [2]bool // from the beginning; others may make it lead later
	parts := 0
	b.mu.Lock()
	for start < end {
		m := b.join(end - start)
		m.start = start
		b.copyIn(m.batch, samples, m.start, m.from, m.n)
		b.settle(m)
		start += m.n
		mine[parts], leads[parts] = m, m.lead
		parts++
	}
	b.mu.Unlock()
	// First what nobody else does, then wait for the others.
	var failed error
	for _, leading := range []bool{true, false} {
		for i, m := range mine[:parts] {
			if leads[i] != leading {
				continue
			}
			err := b.finish(ctx, m, leading)
			if err == nil {
				b.copyOut(m.batch, samples, m.start, m.from, m.n)
			}
			b.leave(m)
			if failed == nil {
				failed = err
			}
		}
	}
	return failed
}

// join makes room for up to n samples in the open batch.
func (b *batcher) join(n int) *member {
	m := b.newMember()
	if b.open == nil {
		b.open = b.newBatch()
		b.open.first = now()
		m.lead = true
	}
	o := b.open
	m.batch, m.from, m.n = o, o.count, min(n, b.group-o.count)
	o.users++
	return m
}

// settle makes a member's samples, which were copied, part of its batch.
func (b *batcher) settle(m *member) {
	o := m.batch
	o.count += m.n
	o.last = now()
	if !m.lead {
		m.next, o.line = o.line, m
	}
	if o.count == b.group {
		b.open = nil
		select {
		case o.full <- struct{}{}:
		default:
		}
	}
}

// finish waits until the member's batch has ended, and runs it if the member
// leads it or has to lead it after another one gave up.
func (b *batcher) finish(ctx context.Context, m *member, leads bool) error {
	if !leads {
		select {
		case <-m.wake:
		case <-ctx.Done():
			b.mu.Lock()
			if b.unline(m) {
				b.mu.Unlock()
				return ctx.Err()
			}
			b.mu.Unlock()
			<-m.wake // it was woken at the same time
		}
		if !m.lead {
			return m.batch.err
		}
	}
	return b.run(ctx, m.batch)
}

// run waits until a batch may run, and runs it.
func (b *batcher) run(ctx context.Context, o *batch) error {
	err := b.linger(ctx, o)
	replica := 0
	if err == nil {
		replica, err = b.core.visit(ctx)
	}
	b.mu.Lock()
	if err != nil && ctx.Err() != nil && b.passOn(o) {
		b.mu.Unlock()
		return err
	}
	if b.open == o {
		b.open = nil
	}
	count := o.count
	b.mu.Unlock()
	if err == nil {
		var panicked error
		if count < b.group {
			s := b.core.replicas[replica].session
			panicked = s.observe(Event{Kind: EventFlushed, Samples: count})
			b.pad(o, count)
		}
		// Others' samples are in it too: one caller's context must not end it.
		err = also(b.runOn(context.Background(), o, replica), panicked)
	}
	b.mu.Lock()
	o.ended, o.err = true, err
	for m := o.line; m != nil; {
		next := m.next
		m.next = nil
		m.wake <- struct{}{}
		m = next
	}
	o.line = nil
	b.mu.Unlock()
	return err
}

// linger waits as the policy says for more samples.
func (b *batcher) linger(ctx context.Context, o *batch) error {
	for {
		wait, forever := b.patience(o)
		if wait <= 0 && !forever {
			return ctx.Err()
		}
		var timeout <-chan time.Time
		if !forever {
			if o.timer == nil {
				o.timer = time.NewTimer(wait)
			} else {
				o.timer.Reset(wait)
			}
			timeout = o.timer.C
		}
		select {
		case <-o.full:
			o.stopTimer()
			return ctx.Err()
		case <-timeout:
		case <-ctx.Done():
			o.stopTimer()
			return ctx.Err()
		case <-b.core.done:
			o.stopTimer()
			return b.core.replicas[0].session.errorf("run samples", ErrClosed)
		}
	}
}

func (o *batch) stopTimer() {
	if o.timer != nil {
		o.timer.Stop()
	}
}

// patience returns how long a batch still waits for samples.
func (b *batcher) patience(o *batch) (wait time.Duration, forever bool) {
	b.mu.Lock()
	full, first, last := o.count == b.group, o.first, o.last
	b.mu.Unlock()
	if full {
		return 0, false
	}
	at := now()
	wait, forever = b.policy.Linger-time.Duration(at-first), b.policy.Linger == Forever
	if q := b.policy.Quiet; q > 0 {
		quiet := q - time.Duration(at-last)
		if forever || quiet < wait {
			wait = quiet
		}
		forever = false
	}
	return wait, forever
}

// passOn makes another member of a batch lead it, and reports whether there is
// one. Otherwise nobody wants the batch's results any more.
func (b *batcher) passOn(o *batch) bool {
	m := o.line
	if m == nil {
		return false
	}
	o.line, m.next = m.next, nil
	m.lead = true
	m.wake <- struct{}{}
	return true
}

// unline takes a member out of its batch's line and reports whether it was
// still there.
func (b *batcher) unline(m *member) bool {
	for p := &m.batch.line; *p != nil; p = &(*p).next {
		if *p == m {
			*p, m.next = m.next, nil
			return true
		}
	}
	return false
}

// runOn runs a batch on a replica, whose engine the caller has.
func (b *batcher) runOn(ctx context.Context, o *batch, replica int) error {
	for i, w := range b.core.replicas[replica].run {
		if w != nil {
			w.bind(o.mem[i])
		}
	}
	return b.core.mainVisit(ctx, replica)
}

// newBatch returns an empty batch.
func (b *batcher) newBatch() *batch {
	if o := b.batches; o != nil {
		b.batches, o.next = o.next, nil
		return o
	}
	o := &batch{full: make(chan struct{}, 1), mem: make([][]byte, len(b.tensors))}
	for i, t := range b.tensors {
		if !t.frozen {
			o.mem[i] = make([]byte, t.bytes)
		}
	}
	return o
}

// recycle keeps a batch that nobody uses any more.
func (b *batcher) recycle(o *batch) {
	select {
	case <-o.full:
	default:
	}
	o.count, o.ended, o.err = 0, false, nil
	o.next, b.batches = b.batches, o
}

func (b *batcher) newMember() *member {
	if m := b.members; m != nil {
		b.members, m.next = m.next, nil
		return m
	}
	return &member{wake: make(chan struct{}, 1)}
}

// leave ends a member's part in its batch.
func (b *batcher) leave(m *member) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := m.batch
	if o.users--; o.users == 0 {
		if b.open == o {
			b.open = nil
		}
		b.recycle(o)
	}
	m.batch, m.lead = nil, false
	m.next, b.members = b.members, m
}

// visit takes the engine of the least busy replica. Samples of several callers
// share a run, so it never fails with [ErrConcurrent].
func (c *Core) visit(ctx context.Context) (int, error) {
	i, err := c.choose(LeastBusy)
	if err != nil {
		return 0, err
	}
	s := c.replicas[i].session
	asked := int64(0)
	if s.count.times != nil {
		asked = now()
	}
	if err := ctx.Err(); err != nil {
		return 0, s.errorf("run samples", s.refused(err))
	}
	if err := s.gate.visit(ctx, false); err != nil {
		return 0, s.errorf("run samples", s.refused(err))
	}
	if t := s.count.times; t != nil {
		t.begin(asked)
	}
	return i, nil
}

// mainVisit is Main after visit.
func (c *Core) mainVisit(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.endVisit()
	return r.session.request(ctx)
}

func (r *replica) endVisit() {
	forget(r.run)
	r.session.gate.depart(1)
}
