package genrt

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/popef/family"
	"github.com/popefgen/popefgen/rt"
	"github.com/popefgen/popefgen/rt/internal/line"
	"github.com/popefgen/popefgen/rt/internal/runs"
	"github.com/popefgen/popefgen/rt/internal/sizes"
)

// maxBatch bounds the tables of which members compute how many samples, in which a member of
// tensors without elements would take more memory than there is.
const maxBatch = 1 << 20

// initFamily is init for a family whose only dimension counts samples: batches hold as many as
// the largest member takes, and are computed by the members that take the least time.
func (b *batcher) initFamily(f *Family, spec *Spec) error {
	of := f.fit.family
	if len(of.Dims) != 1 || !of.Dims[0].Rows || f.fit.counted {
		return fmt.Errorf("package %s: %w: its samples are no rows that are independent of each other", spec.Package, rt.ErrGenerated)
	}
	most := slices.MaxFunc(of.Members, func(a, b family.Member) int { return cmp.Compare(a.Sizes[0], b.Sizes[0]) }).Sizes[0]
	if most > maxBatch {
		return fmt.Errorf("package %s: %w: its largest member takes %d samples, want at most %d", spec.Package, rt.ErrGenerated, most, maxBatch)
	}
	pieces := sizes.NewPieces(of)
	b.family, b.direct, b.pieces, b.group = f, true, pieces, pieces.Most()
	for i := range f.fit.tensors {
		t := &f.fit.tensors[i]
		if len(t.fields) != 1 || !t.fields[0].axis.Same() || t.fixed != 1 || len(t.axes) != 1 {
			return fmt.Errorf("package %s: anchor %q: %w: its samples do not lie one after the other", spec.Package, t.spec.Name, rt.ErrGenerated)
		}
		// A member that is padded may take more than there is room for behind the others.
		b.tensors = append(b.tensors, batchTensor{name: t.spec.Name, input: i < f.fit.inputs, bytes: 2 * b.group * t.elem, blocks: 1, part: t.elem, batch: b.group})
	}
	if b.group == 0 {
		return fmt.Errorf("package %s: %w: no member takes samples", spec.Package, rt.ErrGenerated)
	}
	return nil
}

// tight computes as many samples as the largest member takes, in the caller's memory.
func (b *batcher) tight(ctx context.Context, on int, samples []Samples, start int, r *runs.Record) error {
	replica, err := b.core.visit(ctx, on, line.Guest)
	if err != nil {
		return err
	}
	return b.inPieces(ctx, replica, samples, start, b.group, true, r)
}

// now computes the samples from start to end at once, in the caller's memory, if nobody else waits and nothing
// has to be padded. It reports whether it did.
func (b *batcher) now(ctx context.Context, on int, samples []Samples, start, end int, r *runs.Record) (bool, error) {
	if b.policy.Linger != 0 {
		return false, nil
	}
	b.mu.Lock()
	alone := b.open[on+1] == nil && b.pieces.Over(end-start) == 0
	b.mu.Unlock()
	if !alone || ctx.Err() != nil {
		return false, nil
	}
	replica, err := b.core.choose(on)
	if err != nil {
		return true, err
	}
	s := b.core.replicas[replica].session
	if s.Count.Times != nil || !s.Gate.TryVisit() {
		return false, nil
	}
	return true, b.inPieces(ctx, replica, samples, start, end-start, true, r)
}

// inPieces computes n samples from index from on, on a replica whose engine the caller has, and leaves
// it. Without tight the memory has room for what the last member pads.
func (b *batcher) inPieces(ctx context.Context, replica int, mem []Samples, from, n int, tight bool, told *runs.Record) error {
	r := b.core.replicas[replica]
	runs := uint64(0)
	defer func() {
		forget(r.run)
		r.session.Gate.Depart(runs)
	}()
	for n > 0 {
		b.mu.Lock()
		m := b.pieces.First(n)
		if tight {
			m = b.pieces.Tight(n)
		}
		due := m >= 0 && b.pieces.Due(m)
		b.mu.Unlock()
		if m < 0 { // what was measured meanwhile made it so
			return fmt.Errorf("%w: no members take %d samples", rt.ErrGenerated, n)
		}
		r.choose(b.family, m)
		size := b.pieces.Size(m)
		for i, w := range r.run {
			sample := b.tensors[i].part
			w.Over(mem[i].Data[from*sample:][: size*sample : size*sample])
		}
		begun := int64(0)
		if due {
			begun = line.Now()
		}
		runs++
		var err error
		if told == nil {
			err = r.session.Request(ctx)
		} else {
			err = b.request(ctx, replica, from, min(size, n), size, told)
		}
		if err != nil {
			return err
		}
		if due {
			b.mu.Lock()
			b.pieces.Took(m, float64(line.Now()-begun))
			b.mu.Unlock()
		}
		from, n = from+size, n-size
	}
	return nil
}

// padPieces clears the inputs of a batch that its last member computes beyond the first count samples.
func (b *batcher) padPieces(o *batch, count, replica int) error {
	b.mu.Lock()
	over := b.pieces.Over(count)
	b.mu.Unlock()
	for i := range b.tensors {
		if t := &b.tensors[i]; t.input {
			clear(o.mem[i][count*t.part : (count+over)*t.part])
		}
	}
	if over == 0 {
		return nil
	}
	return b.core.replicas[replica].session.Observe(rt.Event{Kind: rt.EventFlushed, Samples: count})
}
