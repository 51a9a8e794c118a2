package cpu

import (
	"context"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
)

// packAhead is after how many bytes of tensors that wait to be packed
// concurrently no more are waited for: nobody asks meanwhile whether the engine
// was stopped. Their memory is read only when they are packed.
const packAhead = 128 << 20

// setTask packs what transfers brought concurrently.
type setTask struct {
	jobs  []setJob
	bytes int64
}

// setJob is one transfer whose memory is to be packed.
type setJob struct {
	transfer *transfer
	src      []byte
}

// Do packs what one transfer brought.
func (t *setTask) Do(i int) {
	j := &t.jobs[i]
	for _, k := range j.transfer.persistent.packed {
		k.set(j.src)
	}
	if s := j.transfer.stream; j.transfer.persistent.lender != s {
		s.release()
	}
}

// forget drops what has not been packed.
func (t *setTask) forget() {
	clear(t.jobs)
	t.jobs, t.bytes = t.jobs[:0], 0
}

// packAll packs what waits for it, and completes its transfers.
func (e *Engine) packAll() {
	t := &e.later
	if len(t.jobs) > 1 && e.pool.Pays(int(t.bytes)) {
		e.pool.Run(t, len(t.jobs))
	} else {
		for i := range t.jobs {
			t.Do(i)
		}
	}
	for i := range t.jobs {
		t.jobs[i].transfer.persistent.defined = true
		t.jobs[i].transfer.done()
	}
	t.forget()
}

// set moves one transfer into a persistent tensor: into its memory, unless
// all its readers use packed copies or a constant stream lends its own, and
// into every packed copy. If more follow then a copy that is packed from
// constant memory may wait for them, to be packed concurrently.
func (e *Engine) set(ctx context.Context, t *transfer, more bool) error {
	p, s := t.persistent, t.stream
	var src []byte
	if s.direct != nil {
		var err error
		if s.constant != nil {
			if src = s.constant.Constant(); src != nil {
				err = s.check(src)
			}
		} else {
			src, err = t.hostMemory(ctx)
		}
		if err != nil {
			return err
		}
	}
	usable := src != nil && align.To(src, s.elem)
	switch {
	case usable && s.constant != nil && p.plan.Borrowed:
		p.memory.bind(src)
		p.lender = s
		if u := e.beingSet(p); u != nil {
			u.Lent = true
		}
	case usable && !p.plan.Stored:
	default:
		dst := e.target(p)
		if src != nil {
			copy(dst, src)
		} else if err := s.fetch(ctx, dst); err != nil {
			return err
		}
		src = dst
	}
	if usable && s.constant != nil && len(p.packed) > 0 && e.pool.Workers() > 1 {
		e.later.jobs = append(e.later.jobs, setJob{t, src})
		e.later.bytes += p.plan.Bytes
	} else {
		for _, k := range p.packed {
			k.set(src)
		}
		p.defined = true
		t.done()
		if p.lender != s {
			s.release()
		}
	}
	if !more || e.later.bytes >= packAhead {
		e.packAll()
	}
	return nil
}

// release tells a stream that its memory is not needed until its next transfer.
func (s *stream) release() {
	if s.releaser != nil {
		s.releaser.Release()
	}
}

// keep gives a persistent tensor a value that a node computed.
func (e *Engine) keep(p *persistent, value []byte) {
	if p.plan.Stored {
		copy(e.target(p), value)
	}
	for _, k := range p.packed {
		k.set(value)
	}
	p.defined = true
}

// target returns memory for the row-major value of a persistent tensor: its
// own or its version's, allocated at the first use, or for one that is only kept
// packed memory that lasts until the end of the run.
func (e *Engine) target(p *persistent) []byte {
	if !p.plan.Stored {
		if int64(len(e.staging)) < p.plan.Bytes || e.staging == nil {
			e.staging = align.Bytes(p.plan.Bytes)
		}
		return e.staging[:p.plan.Bytes]
	}
	own := &p.memory.own
	if u := e.beingSet(p); u != nil {
		u.Lent = false
		own = &u.Own
	}
	if *own == nil {
		*own = align.Bytes(p.plan.Bytes)
	}
	p.memory.bind(*own)
	p.lender = nil
	return *own
}

// beingSet returns the value of a tensor that engines may have in common while it
// is being set, or nil.
func (e *Engine) beingSet(p *persistent) *weights.RowMajor {
	if p.loader == nil || p.loader != e.filling {
		return nil
	}
	return e.lease.Version(p.loader.setIndex).Value(p.member)
}

// define gives the value zero to the persistent tensors of a program that
// nothing has set since the engine was loaded.
func (e *Engine) define(prog *program) {
	for _, p := range prog.persistent {
		if p.defined {
			continue
		}
		if p.loader != nil {
			e.empty(p.loader)
		}
		m := e.target(p)
		clear(m)
		for _, k := range p.packed {
			k.set(m)
		}
		p.defined = true
		e.filling = nil
	}
}

// returnBorrowed stops using the memory of a stream that is being replaced,
// unless next lends the very same.
func (e *Engine) returnBorrowed(s *stream, next ipu.Constant) {
	for _, p := range e.persistent {
		if p.lender != s {
			continue
		}
		lent := p.memory.cur
		if next != nil {
			if m := next.Constant(); len(m) == len(lent) && unsafe.SliceData(m) == unsafe.SliceData(lent) {
				continue
			}
		}
		copy(e.target(p), lent)
	}
}
