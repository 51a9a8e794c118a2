package genrt

import (
	"context"
	"time"

	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/callerr"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/runs"
)

// following is who learns of the runs of a call.
type following struct {
	next     *following
	batcher  *batcher
	follower rt.RunFollower
	observer rt.RunObserver
	mark     any
	record   runs.Record // of the runs that it shares with nobody
	from, n  int         // their samples
}

// followed is compute for a call that has something under rt.RunFollowerKey.
func (b *batcher) followed(ctx context.Context, value any, replica int, samples []Samples, n int) error {
	by, ok := value.(rt.RunFollower)
	if !ok {
		return b.inParts(ctx, replica, samples, n, nil)
	}
	observer, mark, err := runs.Ask(by)
	if err != nil {
		return err
	}
	if observer == nil {
		return b.inParts(ctx, replica, samples, n, nil)
	}
	b.mu.Lock()
	f := b.follows
	if f == nil {
		f = &following{batcher: b}
	} else {
		b.follows, f.next = f.next, nil
	}
	b.mu.Unlock()
	f.follower, f.observer, f.mark = by, observer, mark
	err = b.inParts(ctx, replica, samples, n, f)
	f.follower, f.observer, f.mark = nil, nil, nil
	b.mu.Lock()
	f.next, b.follows = b.follows, f
	b.mu.Unlock()
	return err
}

// inParts is compute for a call that f follows, or nobody.
func (b *batcher) inParts(ctx context.Context, replica int, samples []Samples, n int, f *following) error {
	start := 0
	for n-start >= b.group {
		var err error
		if r := f.alone(start, b.group); b.family != nil {
			err = b.tight(ctx, replica, samples, start, r)
		} else {
			err = b.whole(ctx, replica, samples, start, r)
		}
		if err = f.conclude(err); err != nil {
			return err
		}
		start += b.group
	}
	if start == n {
		return nil
	}
	if b.family != nil {
		done, err := b.now(ctx, replica, samples, start, n, f.alone(start, n-start))
		if err = f.conclude(err); done || err != nil {
			return err
		}
	}
	return b.rest(ctx, replica, samples, start, n, f)
}

// alone returns the record of runs of n samples that the call shares with nobody, until conclude.
func (f *following) alone(start, n int) *runs.Record {
	if f == nil {
		return nil
	}
	f.record.Observer, f.record.Came = f.observer, time.Now()
	f.record.Ride(f.mark, start, n)
	f.from, f.n = start, n
	return &f.record
}

// conclude tells of these runs, and returns what came of them.
func (f *following) conclude(err error) error {
	if f == nil {
		return err
	}
	r := &f.record
	err = callerr.Also(err, r.Observe(&f.batcher.runs))
	err = callerr.Also(err, r.Tell(f.follower, f.from, f.n))
	r.Clear()
	return err
}

// gather notes who is in a batch that is about to run. mu is held.
func (o *batch) gather() {
	r := &o.record
	for _, c := range o.calls {
		var mark any
		if f := c.follows; f != nil {
			if mark = f.mark; r.Observer == nil {
				r.Observer = f.observer
			}
		}
		for _, p := range c.parts[:c.n] {
			if p.batch == o {
				r.Ride(mark, p.from, p.n)
			}
		}
	}
	r.Came = time.Now().Add(time.Duration(o.first - line.Now()))
}

// main runs the main program of a replica, whose engine the caller has, over so many samples from one on.
func (b *batcher) main(ctx context.Context, replica, from, samples int, r *runs.Record) error {
	if r == nil {
		return b.core.mainVisit(ctx, replica)
	}
	begun := time.Now()
	err := b.core.mainVisit(ctx, replica)
	r.Ran(replica, from, samples, b.group, begun, err)
	return err
}

// request runs the program of that size, which was chosen, over so many samples from one on.
func (b *batcher) request(ctx context.Context, replica, from, samples, size int, r *runs.Record) error {
	begun := time.Now()
	err := b.core.replicas[replica].session.Request(ctx)
	r.Ran(replica, from, samples, size, begun, err)
	return err
}

// learn tells the follower of a call what computed the samples of its batches that have ended, and returns what came of the call.
func (c *call) learn(err error) error {
	for i := range c.parts[:c.n] {
		if p := &c.parts[i]; p.ran > 0 {
			err = callerr.Also(err, p.batch.record.Tell(c.follows.follower, p.from, p.ran))
		}
	}
	return err
}
