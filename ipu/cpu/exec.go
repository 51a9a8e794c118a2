package cpu

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/workers"
)

// opcode says what an instruction does.
type opcode uint8

// The first three are where a run looks at its context: what takes time or
// may go on without end.
const (
	opCompute   opcode = iota // run a kernel
	opSet                     // stream to persistent tensor
	opLoopEnd                 // next iteration
	opCopyIn                  // stream to buffer
	opCopyOut                 // tensor to stream
	opClaim                   // take the host's memory for an output, ahead of its CopyOut
	opComplete                // complete an input that was used in place
	opMove                    // copy in[0] to out[0]
	opLoopStart               // count iterations; to target, the loop's end, if there are none
	opCollect                 // copy in[0] to a place in out[0]
	opIf                      // to what follows target, the jump between the branches, if in[0] is false
	opJump                    // to what follows target
	opKeep                    // copy in[0] to a persistent tensor and its packed copies
	opRelease                 // release the memory of a stream that was last looked at
	opPass                    // let a transfer of a stream pass that is not needed
	opNothing                 // of a step that is not needed
)

// instruction is one step of a program, bound to memory.
type instruction struct {
	op       opcode
	step     int // index into the plan's steps
	kernel   tensor.Kernel
	in, out  [][]byte
	scratch  []byte
	transfer *transfer
	kept     *persistent // opKeep
	more     bool        // opSet: the next instruction is one too, of another stream and tensor than those before
	work     int64       // opLoopEnd: operations of one iteration, 0 if all of them were counted before
	count    int64       // opLoopStart: iterations; negative if in says
	left     int64       // opLoopStart: iterations to go
	target   int         // an instruction, by op
}

// transfer is one copy between a stream and a tensor.
type transfer struct {
	step       int // its step in the plan
	stream     *stream
	window     *ipu.Window // of stream, if it has one
	memory     *memory     // the buffer; nil for an output of a constant or persistent tensor
	persistent *persistent // an input's target, if it is not a buffer
	ahead      *ahead      // of the stream, if the device looks ahead
	inPlace    bool        // the host's memory may stand in for the buffer
	unread     bool        // nothing reads the input

	// What the current run is doing.
	claimed []byte // the host's memory of an output that has been asked for
	active  bool   // the host's memory stands in for the buffer
}

// Run implements [ipu.Prepared]: whoever calls it sees to it that nothing else
// drives the engine. A panic becomes an error.
func (p *program) Run(ctx context.Context) (err error) {
	e := p.engine
	e.pool.Begin()
	e.pool.Watch(ctx)
	returned := false // if not, what was called ended the goroutine
	defer func() {
		e.pool.End()
		e.pool.Unwatch()
		v := recover()
		e.wear(ctx, nil)
		if v == (workers.Interrupted{}) {
			err = e.failed(p, len(p.code), ctx.Err())
		} else if v != nil {
			err = e.failed(p, e.at, ipu.NewPanicError(v))
		} else if !returned && err == nil {
			err = e.failed(p, e.at, ipu.NewExitError()) // for the next run
		}
		if e.staging != nil {
			e.staging = nil
		}
		e.later.forget()
		if e.filling != nil {
			e.endFilling(ctx, err == nil && returned)
		}
		if p.ahead != nil {
			if late := p.endAhead(); err == nil {
				err = late
			}
		}
	}()
	if e.simulated != nil {
		if err := e.displaced(p); err != nil {
			returned = true
			return err
		}
	}
	if !p.ready {
		if err := e.makeReady(p); err != nil {
			return err
		}
	}
	if p.ahead != nil {
		p.beginAhead()
	}
	if p.set != nil {
		err = e.runLoad(ctx, p)
	} else {
		err = e.exec(ctx, p, p.code)
	}
	returned = true
	return err
}

// makeReady sees to it that a program can run until the engine is loaded again
// or a stream is connected.
func (e *Engine) makeReady(p *program) error {
	if e.state.Load() != loaded { // exec says so
		return nil
	}
	for _, s := range p.streams {
		if e.streams[s].host == nil {
			return e.unconnected(p)
		}
	}
	e.at = len(p.code)
	e.define(p)
	for i := range p.code {
		if t := p.code[i].transfer; t != nil {
			t.window = t.stream.window
		}
	}
	e.lookAhead(p)
	p.ready = true
	return nil
}

// exec runs instructions of a program.
func (e *Engine) exec(ctx context.Context, p *program, code []instruction) error {
	prof := e.profile.Load()
	var start time.Time
	e.spent = 0
	if s := e.state.Load(); s != loaded {
		return e.notLoaded(s, p.plan.Index)
	}
	for pc := 0; pc < len(code); pc++ {
		if e.state.Load() != loaded {
			return e.failed(p, len(code), ipu.ErrStopped)
		}
		e.at = pc
		in := &code[pc]
		if in.op <= opLoopEnd && ctx.Err() != nil {
			return e.failed(p, len(code), ctx.Err())
		}
		if p.labels != nil {
			e.wear(ctx, p.labels[in.step])
		}
		if prof != nil {
			start = time.Now()
		}
		var err error
		switch in.op {
		case opCompute:
			err = in.kernel.Run(e.pool, in.in, in.out, in.scratch)
			e.pool.Interrupt() // it may have left out what is not done in parts
		case opCopyIn:
			err = in.transfer.copyIn(ctx)
		case opSet:
			err = e.set(ctx, in.transfer, in.more)
		case opCopyOut:
			err = in.transfer.copyOut(ctx, in.in[0])
		case opClaim:
			err = in.transfer.claim(ctx, p)
		case opComplete:
			in.transfer.complete()
		case opMove:
			copy(in.out[0], in.in[0])
		case opLoopStart:
			if in.left = in.iterations(); in.left <= 0 {
				pc = in.target
				break
			}
			in.setIteration(0)
		case opLoopEnd:
			if l := &code[in.target]; l.left > 1 && in.holds(0) {
				if in.work > 0 {
					if err = e.spend(in); err != nil {
						break
					}
				}
				l.left--
				in.nextIteration()
				pc = in.target
			}
		case opCollect:
			in.collect()
		case opIf:
			if !in.holds(0) {
				pc = in.target
			}
		case opJump:
			pc = in.target
		case opKeep:
			e.keep(in.kept, in.in[0])
		case opRelease:
			in.transfer.stream.release()
		case opPass:
			in.transfer.done()
		}
		if err != nil {
			return e.failed(p, e.at, err)
		}
		if prof != nil {
			prof.steps[p.number][in.step].add(start, in.op)
		}
	}
	return nil
}

// hostMemory returns the host's memory of the next transfer, nil if it has none.
func (t *transfer) hostMemory(ctx context.Context) ([]byte, error) {
	if t.window != nil {
		if m := t.window.Next(); m != nil {
			return m, nil
		}
	}
	return t.stream.ask(ctx)
}

// ask asks a direct stream for its memory.
func (s *stream) ask(ctx context.Context) (m []byte, err error) {
	if s.direct == nil {
		return nil, nil
	}
	m, err = s.direct.Memory(ctx)
	if err != nil || m == nil {
		return nil, err
	}
	return m, s.check(m)
}

// fetch lets the stream move a transfer.
func (s *stream) fetch(ctx context.Context, buf []byte) error { return s.host.Fetch(ctx, buf) }

// check checks the size of memory that the host gave.
func (s *stream) check(m []byte) error {
	if len(m) != s.info.Bytes {
		return fmt.Errorf("its memory has %d bytes, want %d", len(m), s.info.Bytes)
	}
	return nil
}

// done tells the stream that its transfer has ended.
func (t *transfer) done() {
	if t.window != nil {
		t.window.Complete()
	} else {
		t.stream.host.Complete()
	}
}

// copyIn moves one transfer into the buffer, or makes the host's memory stand
// in for it until [transfer.complete].
func (t *transfer) copyIn(ctx context.Context) error {
	if t.ahead != nil {
		return t.copyAhead(ctx)
	}
	m, err := t.hostMemory(ctx)
	if err != nil {
		return err
	}
	if m != nil && t.unread {
		t.done()
		return nil
	}
	if m != nil && t.inPlace && align.To(m, t.stream.elem) {
		t.memory.bind(m)
		t.active = true
		return nil
	}
	t.memory.bind(t.memory.own)
	if m != nil {
		copy(t.memory.own, m)
	} else if err := t.stream.fetch(ctx, t.memory.own); err != nil {
		return err
	}
	t.done()
	return nil
}

// complete ends the use of the host's memory for an input.
func (t *transfer) complete() {
	if t.active {
		t.active = false
		t.done()
	}
}

// claim asks for the memory of an output before it is computed and makes it
// stand in for the buffer if it is fit for that.
func (t *transfer) claim(ctx context.Context, p *program) error {
	t.claimed, t.active = nil, false
	m, err := t.hostMemory(ctx)
	if err != nil {
		return err
	}
	t.claimed = m
	if m != nil && align.To(m, t.stream.elem) && !p.usesHost(m) {
		t.memory.bind(m)
		t.active = true
		return nil
	}
	t.memory.bind(t.memory.own)
	return nil
}

// usesHost reports whether a transfer under way uses memory that overlaps m.
func (p *program) usesHost(m []byte) bool {
	for _, t := range p.inputs {
		if t.active && overlaps(t.memory.cur, m) {
			return true
		}
	}
	for _, t := range p.outputs {
		if t.active && overlaps(t.memory.cur, m) {
			return true
		}
	}
	return false
}

// copyOut delivers one transfer.
func (t *transfer) copyOut(ctx context.Context, data []byte) error {
	if t.inPlace {
		m := t.claimed
		t.claimed = nil
		if t.active {
			t.active = false
			t.done()
			return nil
		}
		return t.give(ctx, m, data)
	}
	m, err := t.hostMemory(ctx)
	if err != nil {
		return err
	}
	return t.give(ctx, m, data)
}

// give copies data to the host's memory m, if there is some.
func (t *transfer) give(ctx context.Context, m, data []byte) error {
	if m != nil {
		copy(m, data)
	} else if err := t.stream.fetch(ctx, data); err != nil {
		return err
	}
	t.done()
	return nil
}

// abandon forgets the transfers of a run that failed.
func (p *program) abandon() {
	for _, t := range p.inputs {
		t.active = false
	}
	for _, t := range p.outputs {
		t.claimed, t.active = nil, false
	}
}

// overlaps reports whether a and b have a byte in common.
func overlaps(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	pa, pb := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return pa < pb+uintptr(len(b)) && pb < pa+uintptr(len(a))
}
