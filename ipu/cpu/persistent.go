package cpu

import (
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
)

// set moves one transfer into a persistent tensor: into its memory, unless
// all its readers use packed copies or a constant stream lends its own, and
// into every packed copy.
func (e *Engine) set(t *transfer) error {
	p, s := t.persistent, t.stream
	var src []byte
	if s.direct != nil {
		var err error
		if s.constant != nil {
			if src = s.constant.Constant(); src != nil {
				err = s.check(src)
			}
		} else {
			src, err = t.hostMemory()
		}
		if err != nil {
			return err
		}
	}
	usable := src != nil && alignedTo(src, s.elem)
	switch {
	case usable && s.constant != nil && p.plan.Borrowed:
		p.memory.bind(src)
		p.lender = s
	case usable && !p.plan.Stored:
	default:
		dst := e.target(p)
		if src != nil {
			copy(dst, src)
		} else if err := s.fetch(dst); err != nil {
			return err
		}
		src = dst
	}
	for i := range p.packed {
		p.packed[i].pack(src)
	}
	p.defined = true
	t.done()
	if p.lender != s {
		s.release()
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
	for i := range p.packed {
		p.packed[i].pack(value)
	}
	p.defined = true
}

// target returns memory for the row-major value of a persistent tensor: its
// own, allocated at the first use, or for one that is only kept packed memory
// that lasts until the end of the run.
func (e *Engine) target(p *persistent) []byte {
	if !p.plan.Stored {
		if int64(len(e.staging)) < p.plan.Bytes || e.staging == nil {
			e.staging = alignedBytes(p.plan.Bytes)
		}
		return e.staging[:p.plan.Bytes]
	}
	if p.memory.own == nil {
		p.memory.own = alignedBytes(p.plan.Bytes)
	}
	p.memory.bind(p.memory.own)
	p.lender = nil
	return p.memory.own
}

// define gives the value zero to the persistent tensors of a program that
// nothing has set since the engine was loaded.
func (e *Engine) define(prog *program) {
	for _, p := range prog.persistent {
		if p.defined {
			continue
		}
		m := e.target(p)
		clear(m)
		for i := range p.packed {
			p.packed[i].pack(m)
		}
		p.defined = true
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
