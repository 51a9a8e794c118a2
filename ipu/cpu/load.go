package cpu

import (
	"context"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
	"github.com/popefgen/popefgen/ipu/graph"
)

// sources returns the memory that the streams of a program's weight set lend, nil if
// one of them lends none. It is valid until the next call for that program.
func (e *Engine) sources(p *program) []*byte {
	p.sources = p.sources[:0]
	for _, s := range p.set.Streams {
		m := e.streams[s].lends()
		if m == nil {
			return nil
		}
		p.sources = append(p.sources, m)
	}
	return p.sources
}

// lends returns the memory that a stream lends for good, nil if it does not.
func (s *stream) lends() *byte {
	if s.constant == nil {
		return nil
	}
	m := s.constant.Constant()
	switch {
	case len(m) != s.info.Bytes:
		return nil
	case len(m) == 0:
		return &nothing
	}
	return unsafe.SliceData(m)
}

// nothing stands for all memory of no bytes.
var nothing byte

// disconnected outdates the weights that a stream decides which is about to be
// another.
func (e *Engine) disconnected(id graph.StreamID, next *stream) {
	for i := range e.shared.Sets {
		if slices.Contains(e.shared.Sets[i].Streams, id) && e.streams[id].lends() != next.lends() {
			e.lease.Outdate(i)
		}
	}
}

// runLoad runs a program that has a weight set: all of it, or what is left to do
// where another engine has the values that it would set.
func (e *Engine) runLoad(ctx context.Context, p *program) error {
	for {
		v, mine := e.claim(p)
		if mine {
			return e.exec(ctx, p, p.code)
		}
		if err := e.await(ctx, v); err != nil {
			e.lease.Release(p.setIndex, v)
			return e.failed(p, len(p.code), err)
		}
		f := v.Failed()
		if f == nil {
			e.adopt(p, v)
			return e.exec(ctx, p, p.rest)
		}
		e.lease.Release(p.setIndex, v)
		if !f.Passing {
			return e.failed(p, f.At, f.Err)
		}
	}
}

// claim finds the version for a program to run with. It is e's to fill, or
// else e was added to its users.
func (e *Engine) claim(p *program) (v *weights.Version, mine bool) {
	v, mine, fresh := e.lease.Claim(p.setIndex, e.sources(p))
	if !mine {
		return v, false
	}
	e.fill(p, v, fresh)
	e.fault = weights.Failure{At: len(p.code), Err: weights.ErrNotFinished}
	for _, m := range p.set.Tensors {
		if m.Stored {
			t := e.persistent[m.Tensor]
			e.target(t)
			t.defined = true
		}
	}
	return v, true
}

// fill begins to set the values of a version that is p's alone. A fresh one has
// none yet.
func (e *Engine) fill(p *program, v *weights.Version, fresh bool) {
	e.filling = p
	if !fresh {
		return
	}
	e.bindVersion(p, v)
	for _, m := range p.set.Tensors {
		e.persistent[m.Tensor].defined = false
	}
}

// bindVersion makes operands point to the values of a version.
func (e *Engine) bindVersion(p *program, v *weights.Version) {
	for i, k := range p.set.Packs {
		e.packs[k].bind(v.Pack(i))
	}
	for i, m := range p.set.Tensors {
		t := e.persistent[m.Tensor]
		t.memory.own, t.lender = nil, nil
		switch u := v.Value(i); {
		case u.Lent:
			t.lender = &e.streams[m.Stream]
			t.memory.bind(t.lender.constant.Constant())
		case u.Own != nil:
			t.memory.bind(u.Own)
		}
	}
}

// await waits until a version is filled, or filling it has failed.
func (e *Engine) await(ctx context.Context, v *weights.Version) error {
	filled := e.lease.Filled(v)
	for filled != nil {
		if e.state.Load() != loaded {
			return ipu.ErrStopped
		}
		select {
		case <-filled:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-e.wake:
		}
	}
	return nil
}

// adopt makes a filled version, which e was counted as a user of, the one that
// it computes with.
func (e *Engine) adopt(p *program, v *weights.Version) {
	e.bindVersion(p, v)
	for _, m := range p.set.Tensors {
		e.persistent[m.Tensor].defined = true
	}
	e.lease.Adopt(p.setIndex, v)
}

// empty makes a program's version one of this engine alone, for zeros in place
// of what the program has not set. It is being filled then.
func (e *Engine) empty(p *program) {
	v, fresh := e.lease.Alone(p.setIndex)
	e.fill(p, v, fresh)
}

// endFilling ends the filling of a version that e began: others may use it, or
// learn why not.
func (e *Engine) endFilling(ctx context.Context, finished bool) {
	p := e.filling
	e.filling = nil
	if !finished {
		f := e.fault
		f.Passing = ctx.Err() != nil || e.state.Load() != loaded
		e.lease.Finish(p.setIndex, &f)
		return
	}
	for _, m := range p.set.Tensors {
		e.persistent[m.Tensor].memory.own = nil // which others read now
	}
	e.lease.Finish(p.setIndex, nil)
}
