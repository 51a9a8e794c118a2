package cpu

import (
	"context"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// sources returns the memory that the streams of a program's weight set lend, nil if
// one of them lends none. It is valid until the next call for that program.
func (e *Engine) sources(p *program) []*byte {
	p.sources = p.sources[:0]
	for _, s := range p.set.streams {
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
	for i := range e.shared.sets {
		if slices.Contains(e.shared.sets[i].streams, id) && e.streams[id].lends() != next.lends() {
			e.lease.outdate(i)
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
			e.lease.release(p.setIndex, v)
			return e.failed(p, len(p.code), err)
		}
		f := v.failed()
		if f == nil {
			e.adopt(p, v)
			return e.exec(ctx, p, p.rest)
		}
		e.lease.release(p.setIndex, v)
		if !f.passing {
			return e.failed(p, f.at, f.err)
		}
	}
}

// claim finds the version for a program to run with. It is e's to fill, or
// else e was added to its users.
func (e *Engine) claim(p *program) (v *version, mine bool) {
	v, mine, fresh := e.lease.claim(p.setIndex, e.sources(p))
	if !mine {
		return v, false
	}
	e.fill(p, v, fresh)
	e.fault = failure{at: len(p.code), err: errNotFinished}
	for _, m := range p.set.tensors {
		if m.stored {
			t := e.persistent[m.tensor]
			e.target(t)
			t.defined = true
		}
	}
	return v, true
}

// fill begins to set the values of a version that is p's alone. A fresh one has
// none yet.
func (e *Engine) fill(p *program, v *version, fresh bool) {
	e.filling = p
	if !fresh {
		return
	}
	e.bindVersion(p, v)
	for _, m := range p.set.tensors {
		e.persistent[m.tensor].defined = false
	}
}

// bindVersion makes operands point to the values of a version.
func (e *Engine) bindVersion(p *program, v *version) {
	for i, k := range p.set.packs {
		e.packs[k].bind(v.pack(i))
	}
	for i, m := range p.set.tensors {
		t := e.persistent[m.tensor]
		t.memory.own, t.lender = nil, nil
		switch u := v.value(i); {
		case u.lent:
			t.lender = &e.streams[m.stream]
			t.memory.bind(t.lender.constant.Constant())
		case u.own != nil:
			t.memory.bind(u.own)
		}
	}
}

// await waits until a version is filled, or filling it has failed.
func (e *Engine) await(ctx context.Context, v *version) error {
	filled := e.lease.filled(v)
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
func (e *Engine) adopt(p *program, v *version) {
	e.bindVersion(p, v)
	for _, m := range p.set.tensors {
		e.persistent[m.tensor].defined = true
	}
	e.lease.adopt(p.setIndex, v)
}

// empty makes a program's version one of this engine alone, for zeros in place
// of what the program has not set. It is being filled then.
func (e *Engine) empty(p *program) {
	v, fresh := e.lease.alone(p.setIndex)
	e.fill(p, v, fresh)
}

// endFilling ends the filling of a version that e began: others may use it, or
// learn why not.
func (e *Engine) endFilling(ctx context.Context, finished bool) {
	p := e.filling
	e.filling = nil
	if !finished {
		f := e.fault
		f.passing = ctx.Err() != nil || e.state.Load() != loaded
		e.lease.finish(p.setIndex, &f)
		return
	}
	for _, m := range p.set.tensors {
		e.persistent[m.tensor].memory.own = nil // which others read now
	}
	e.lease.finish(p.setIndex, nil)
}
