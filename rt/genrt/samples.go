package genrt

import (
	"context"
	"fmt"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/runs"
	"github.com/popefgen/popefgen/rt/internal/view"
)

// Samples views consecutive samples of one tensor.
type Samples = view.Samples

// SamplesOf views s, whose elements generated code declares.
func SamplesOf[S any](s []S) Samples {
	return view.SamplesOf(s)
}

// batcher makes batches of samples and runs them.
type batcher struct {
	core    *Core
	policy  rt.BatchPolicy
	group   int // samples in one run; 0 if the model's samples are not told apart
	tensors []batchTensor
	direct  bool           // samples lie behind each other in a run's memory, so that it can be the caller's
	most    int            // calls that may wait for batches; negative: any number
	room    *budget.Budget // that batches count on
	family  *Family        // whose members compute parts of a batch; nil for a model of one size

	batcherState
}

// batchTensor is a run input or output: in each of its transfers lie blocks, in
// each block a part of every sample.
type batchTensor struct {
	name   string
	input  bool
	frozen bool
	bytes  int // of a run; of a family what a batch takes
	blocks int // in a transfer
	part   int // bytes of a sample in a block
	batch  int // samples in a transfer
}

func (b *batcher) init(c *Core, spec *Spec, policy rt.BatchPolicy, room *budget.Budget) error {
	b.core, b.policy, b.room = c, policy, room
	b.copied.L = &b.mu
	b.open = make([]*batch, len(c.replicas)+1)
	if spec.Batch == 0 {
		return nil
	}
	if c.family != nil {
		return b.initFamily(c.family, spec)
	}
	b.group, b.direct = spec.Batch*spec.Iterations, true
	for _, role := range []Role{RunInput, RunOutput} {
		for _, a := range spec.Anchors {
			if a.Role != role {
				continue
			}
			t := batchTensor{name: a.Name, input: role == RunInput, bytes: a.Bytes * spec.Iterations, blocks: a.Blocks, batch: spec.Batch}
			if a.Blocks < 1 || spec.Batch < 0 || a.Bytes%(a.Blocks*spec.Batch) != 0 {
				return fmt.Errorf("package %s: anchor %q: %w: %d bytes of %d samples in %d blocks", spec.Package, a.Name, rt.ErrGenerated, a.Bytes, spec.Batch, a.Blocks)
			}
			t.part = a.Bytes / (a.Blocks * spec.Batch)
			t.frozen = t.input && c.Frozen(len(b.tensors))
			b.direct = b.direct && (a.Blocks == 1 || t.frozen)
			b.tensors = append(b.tensors, t)
		}
	}
	return nil
}

// sampleRequest has the samples of a submitted request.
type sampleRequest struct {
	replica int
	samples []Samples
}

// RunSamples computes any number of samples on a replica, or on whichever is
// the least busy, given for every run input and then for every run output in
// the order of the generated Inputs and Outputs; an input that is frozen is
// empty. All have the same length.
//
// Whole batches run in the caller's goroutine, over the caller's memory where
// its layout is that of the model. The rest shares a batch with those of other
// callers that ask for the same replica, or for none, see [rt.BatchPolicy]. ctx is
// honoured while the call waits for other samples and for the engine, and while
// batches run that nobody else has samples in. If it ends, outputs that were not
// computed yet are not written.
func (c *Core) RunSamples(ctx context.Context, replica int, samples ...Samples) error {
	if err := c.runSamples(ctx, replica, samples); err != nil {
		return c.errorf("run samples", err)
	}
	return nil
}

func (c *Core) runSamples(ctx context.Context, replica int, samples []Samples) error {
	if err := c.checkReplica(replica); err != nil {
		return err
	}
	b := &c.batcher
	n, err := b.count(samples)
	if err == nil {
		err = b.enter()
	}
	if err != nil {
		return err
	}
	defer b.exit()
	return b.compute(ctx, replica, samples, n)
}

// SubmitSamples is RunSamples in another goroutine: it waits for a place in the
// queue as Reserve does, and the ticket tells the end.
func (c *Core) SubmitSamples(ctx context.Context, replica int, samples ...Samples) (rt.Ticket, error) {
	err := c.checkReplica(replica)
	if err == nil {
		_, err = c.batcher.count(samples)
	}
	slot := -1
	if err == nil {
		slot, err = c.Reserve(ctx, replica)
	}
	if err != nil {
		return rt.Ticket{}, c.errorf("submit samples", err)
	}
	s := &c.submitted[slot]
	s.replica, s.samples = replica, append(s.samples[:0], samples...)
	i, _ := c.choose(replica)
	return rt.Ticket(c.queue.EnqueueSamples(ctx, slot, c.replicas[i].session.Lane)), nil
}

// compute computes n samples for a call that was let in. What it does for one that is followed stands apart, so that
// others pay for no more than the question.
func (b *batcher) compute(ctx context.Context, replica int, samples []Samples, n int) error {
	if follower := ctx.Value(rt.RunFollowerKey{}); follower != nil {
		return b.followed(ctx, follower, replica, samples, n)
	}
	start := 0
	for n-start >= b.group && b.family != nil {
		if err := b.tight(ctx, replica, samples, start, nil); err != nil {
			return err
		}
		start += b.group
	}
	for n-start >= b.group {
		if err := b.whole(ctx, replica, samples, start, nil); err != nil {
			return err
		}
		start += b.group
	}
	if start == n {
		return nil
	}
	if b.family != nil {
		if done, err := b.now(ctx, replica, samples, start, n, nil); done {
			return err
		}
	}
	return b.rest(ctx, replica, samples, start, n, nil)
}

// count returns the number of samples.
func (b *batcher) count(samples []Samples) (int, error) {
	if b.group == 0 || len(samples) != len(b.tensors) {
		return 0, fmt.Errorf("%w: %d slices of samples for %d tensors", rt.ErrGenerated, len(samples), len(b.tensors))
	}
	n, of := -1, 0
	for i := range b.tensors {
		t := &b.tensors[i]
		switch {
		case t.frozen && samples[i].N == 0:
		case n < 0:
			n, of = samples[i].N, i
		case samples[i].N != n:
			return 0, fmt.Errorf("%w: %d of %q, but %d of %q", rt.ErrSamples, n, b.tensors[of].name, samples[i].N, t.name)
		}
	}
	n = max(n, 0)
	if b.policy.Fixed && n%b.group != 0 {
		return 0, fmt.Errorf("%w: %d, want a multiple of %d", rt.ErrSamples, n, b.group)
	}
	return n, nil
}

// whole runs the samples of one batch from start on.
func (b *batcher) whole(ctx context.Context, on int, samples []Samples, start int, r *runs.Record) error {
	if b.direct {
		replica, err := b.core.visit(ctx, on, line.Guest)
		if err != nil {
			return err
		}
		for i, w := range b.core.replicas[replica].run {
			if t := &b.tensors[i]; w != nil {
				sample := t.part * t.blocks
				w.Over(samples[i].Data[start*sample:][:t.bytes:t.bytes])
			}
		}
		return b.main(ctx, replica, start, b.group, r)
	}
	b.mu.Lock()
	if err := b.provide(); err != nil {
		b.mu.Unlock()
		return err
	}
	batch := b.takeBatch()
	b.mu.Unlock()
	b.copyIn(batch, samples, start, 0, b.group)
	replica, err := b.core.visit(ctx, on, line.Guest)
	if err == nil {
		batch.count = b.group
		err = b.runOn(ctx, batch, replica, start, r)
	}
	if err == nil {
		b.copyOut(batch, samples, start, 0, b.group)
	}
	b.mu.Lock()
	b.recycle(batch)
	b.mu.Unlock()
	return err
}

// copyIn copies n input samples from start on into a batch, from sample at on.
func (b *batcher) copyIn(o *batch, samples []Samples, start, at, n int) {
	for i := range b.tensors {
		if t := &b.tensors[i]; t.input && !t.frozen {
			t.each(at, n, func(mem, sample int) {
				copy(o.mem[i][mem:][:t.part], samples[i].Data[start*t.part*t.blocks+sample:])
			})
		}
	}
}

// copyOut is copyIn for outputs, the other way.
func (b *batcher) copyOut(o *batch, samples []Samples, start, at, n int) {
	for i := range b.tensors {
		if t := &b.tensors[i]; !t.input {
			t.each(at, n, func(mem, sample int) {
				copy(samples[i].Data[start*t.part*t.blocks+sample:][:t.part], o.mem[i][mem:])
			})
		}
	}
}

// pad clears the inputs of a batch behind its first count samples.
func (b *batcher) pad(o *batch, count int) {
	for i := range b.tensors {
		if t := &b.tensors[i]; t.input && !t.frozen {
			t.each(count, b.group-count, func(mem, _ int) { clear(o.mem[i][mem:][:t.part]) })
		}
	}
}

// each calls f for every part of n samples from at on: with its place in a
// run's memory, and that in memory that has one sample behind the other,
// beginning with the first of the n.
func (t *batchTensor) each(at, n int, f func(mem, sample int)) {
	transfer := t.blocks * t.batch * t.part
	for k := range n {
		base := (at+k)/t.batch*transfer + (at+k)%t.batch*t.part
		for j := range t.blocks {
			f(base+j*t.batch*t.part, (k*t.blocks+j)*t.part)
		}
	}
}

// visit takes the engine of a replica, of the least busy one unless it is asked
// for. Samples of several callers share a run, so it never fails with
// [rt.ErrConcurrent].
func (c *Core) visit(ctx context.Context, asked int, as line.Kind) (int, error) {
	i, err := c.choose(asked)
	if err != nil {
		return 0, err
	}
	s := c.replicas[i].session
	since := int64(0)
	if s.Count.Times != nil {
		since = line.Now()
	}
	if err := ctx.Err(); err != nil {
		return 0, s.Errorf("run samples", s.Refused(err))
	}
	if err := s.Gate.Visit(ctx, as); err != nil {
		return 0, s.Errorf("run samples", s.Refused(err))
	}
	if t := s.Count.Times; t != nil {
		t.Begin(since)
	}
	return i, nil
}

// mainVisit is Main after visit.
func (c *Core) mainVisit(ctx context.Context, replica int) error {
	r := c.replicas[replica]
	defer r.endVisit()
	return r.session.Request(ctx)
}

func (r *replica) endVisit() {
	forget(r.run)
	r.session.Gate.Depart(1)
}
