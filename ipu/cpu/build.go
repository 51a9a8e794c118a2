package cpu

import (
	"fmt"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/kernel"
	"github.com/popefgen/popefgen/ipu/graph"
)

// memory is a block that operands point to. The host's memory can stand in
// for it.
type memory struct {
	own  []byte    // nil for a persistent tensor that has not needed any yet
	cur  []byte    // what the operands point to
	refs []*[]byte // the operands

	parts []*memory // that lie within it
	at    int64     // where in the memory that it is a part of
}

// bind makes the operands point to b, if they do not already.
func (m *memory) bind(b []byte) {
	if unsafe.SliceData(m.cur) != unsafe.SliceData(b) {
		m.rebind(b)
	}
}

func (m *memory) rebind(b []byte) {
	m.cur = b
	for _, r := range m.refs {
		*r = b
	}
	for _, p := range m.parts {
		p.bind(b[p.at:][:len(p.own):len(p.own)])
	}
}

// persistent is a persistent tensor as it is kept.
type persistent struct {
	plan    *Persistent
	memory  memory
	packed  []packed
	defined bool
	lender  *stream // whose memory the operands point to
}

// packed is one operand in a kernel's own layout.
type packed struct {
	kernel  kernel.Packer
	operand int
	data    []byte
}

// pack fills the packed memory from row-major data.
func (p *packed) pack(src []byte) { p.kernel.Pack(p.operand, p.data, src) }

// builder binds the plan to memory.
type builder struct {
	e         *Engine
	arena     []byte
	constants map[int][]byte // constants whose data in the executable is not aligned
	packs     []packed       // in the order of Plan.Packed

	readers map[graph.TensorID]reader // of persistent tensors that are not packed
}

// reader is where a persistent tensor is read row-major.
type reader struct {
	program int // index into Plan.Programs; -1 if several read it
	last    int // the last step that does; of a loop its end
}

// survey fills in the readers.
func (b *builder) survey() {
	b.readers = map[graph.TensorID]reader{}
	for n := range b.e.plan.Programs {
		steps := b.e.plan.Programs[n].Steps
		for i := range steps {
			for _, o := range steps[i].In {
				if o.Place != InPersistent {
					continue
				}
				r := reader{n, i}
				for l := steps[i].Loop; l >= 0; l = steps[l].Loop {
					r.last = steps[l].Match
				}
				t := graph.TensorID(o.Index)
				if was, ok := b.readers[t]; ok {
					if r.last = max(r.last, was.last); was.program != n {
						r.program = -1
					}
				}
				b.readers[t] = r
			}
		}
	}
}

// build allocates the engine's memory, packs constants and makes the
// programs' instructions. Persistent tensors that only streams write get
// memory of their own when it turns out that they need it.
func (e *Engine) build() error {
	need := e.plan.ArenaBytes + e.plan.PersistentBytes + e.plan.PackedBytes
	if need > e.opts.memory {
		return &ipu.Error{Kind: ipu.KindMemory, Message: fmt.Sprintf(
			"it needs %d bytes (%d for local tensors, %d for persistent ones, %d for packed weights), more than the %d allowed; see the option \"memory\"",
			need, e.plan.ArenaBytes, e.plan.PersistentBytes, e.plan.PackedBytes, e.opts.memory)}
	}
	mem := e.allocate(e.plan.PackedBytes+e.plan.ArenaBytes, e.plan.PackedBytes+e.plan.touched())
	b := &builder{e: e, arena: mem[e.plan.PackedBytes:], packs: make([]packed, 0, len(e.plan.Packed)), constants: map[int][]byte{}}
	e.persistent = map[graph.TensorID]*persistent{}
	for i := range e.plan.Persistent {
		p := &e.plan.Persistent[i]
		e.persistent[p.Tensor] = &persistent{plan: p}
	}
	b.pack(mem[:e.plan.PackedBytes])
	b.survey()
	for i := range e.programs {
		b.program(&e.programs[i])
	}
	return nil
}

// pack gives packed operands their places in mem and fills those that are
// constants.
func (b *builder) pack(mem []byte) {
	var constants packTask
	for i := range b.e.plan.Packed {
		k := &b.e.plan.Packed[i]
		p := packed{
			kernel:  b.e.kernels[b.e.bound[nodeKey{k.Graph, k.Node}]].(kernel.Packer),
			operand: k.Operand,
			data:    mem[:k.Bytes:k.Bytes],
		}
		mem = mem[alignUp(k.Bytes):]
		b.packs = append(b.packs, p)
		if t := b.e.persistent[k.Tensor]; t != nil {
			t.packed = append(t.packed, p)
		} else {
			constants.packs = append(constants.packs, p)
			constants.data = append(constants.data, b.constant(int(k.Tensor)))
		}
	}
	b.e.pool.Run(&constants, len(constants.packs))
}

// packTask packs constants concurrently.
type packTask struct {
	packs []packed
	data  [][]byte
}

// Do packs one operand.
func (t *packTask) Do(i int) { t.packs[i].pack(t.data[i]) }

// constant returns the data of a constant, aligned to its elements.
func (b *builder) constant(i int) []byte {
	t := &b.e.exe.Tensors[i]
	data := t.Data
	if data != nil && alignedTo(data, t.Type.DType.Size()) {
		return data
	}
	if c, ok := b.constants[i]; ok {
		return c
	}
	c := alignedBytes(int64(len(data)))
	copy(c, data)
	b.constants[i] = c
	return c
}

// program makes the instructions of one program. A transfer that may use the
// host's memory gets a second instruction: the one that asks for the memory
// of an output before it is computed, or that completes an input after its
// last use.
func (b *builder) program(p *program) {
	buffers := make([]memory, len(p.plan.Buffers))
	claims, completes, releases := map[int][]*transfer{}, map[int][]*transfer{}, map[int][]*transfer{} // by the step before and after which
	for i := range p.plan.Buffers {
		u := &p.plan.Buffers[i]
		buffers[i].own = b.arena[u.Offset : u.Offset+u.Bytes : u.Offset+u.Bytes]
		if u.Part {
			whole := &buffers[u.Within]
			buffers[i].at = u.Offset - p.plan.Buffers[u.Within].Offset
			whole.parts = append(whole.parts, &buffers[i])
		}
	}
	transfers := make([]*transfer, len(p.plan.Steps))
	for i := range p.plan.Steps {
		s := &p.plan.Steps[i]
		switch s.Kind {
		case CopyIn:
			transfers[i] = &transfer{step: i, stream: &b.e.streams[s.Stream]}
			if o := s.Out[0]; o.Place == InPersistent {
				transfers[i].persistent = b.e.persistent[o.Tensor]
				if r, ok := b.readers[o.Tensor]; ok && r.program == p.number && r.last > i {
					releases[r.last] = append(releases[r.last], transfers[i])
				}
			} else {
				transfers[i].memory = &buffers[o.Index]
			}
		case CopyOut:
			transfers[i] = &transfer{step: i, stream: &b.e.streams[s.Stream]}
			if o := s.In[0]; o.Place == InBuffer {
				transfers[i].memory = &buffers[o.Index]
			}
		}
	}
	for i := range p.plan.Buffers {
		u := &p.plan.Buffers[i]
		if u.Input >= 0 {
			t := transfers[u.Input]
			t.inPlace = true
			p.inputs = append(p.inputs, t)
			if t.unread = u.Last == u.Input; !t.unread {
				completes[u.Last] = append(completes[u.Last], t)
			}
		}
		if u.Output >= 0 {
			t := transfers[u.Output]
			t.inPlace = true
			p.outputs = append(p.outputs, t)
			claims[u.First] = append(claims[u.First], t)
		}
	}
	// What the program itself sets before it is used needs no value from before.
	used := map[*persistent]bool{}
	use := func(t *persistent) {
		if t != nil && !used[t] {
			used[t] = true
			p.persistent = append(p.persistent, t)
		}
	}
	starts := map[int]int{} // instruction of a LoopStart, IfStart or Else step
	elses := map[int]int{}  // instruction of the Else step of an IfStart step
	for i := range p.plan.Steps {
		s := &p.plan.Steps[i]
		for _, t := range claims[i] {
			p.code = append(p.code, instruction{op: opClaim, step: t.step, transfer: t})
		}
		in := instruction{step: i, transfer: transfers[i]}
		if (s.Kind == CopyIn || s.Kind == Keep) && s.Loop < 0 && s.Out[0].Place == InPersistent {
			used[b.e.persistent[s.Out[0].Tensor]] = true
		}
		emit := true
		switch s.Kind {
		case CopyIn:
			in.op = opCopyIn
			if in.transfer.persistent != nil {
				in.op = opSet
			}
		case CopyOut:
			in.op = opCopyOut
		case Compute:
			in.op = opCompute
			in.kernel = b.e.kernels[b.e.bound[nodeKey{s.Graph, s.Node}]]
		case Move:
			in.op = opMove
		case Keep:
			in.op = opKeep
			in.kept = b.e.persistent[s.Out[0].Tensor]
		case Share, Begin:
			emit = false
		case Collect:
			in.op = opCollect
		case IfStart:
			in.op = opIf
			starts[i] = len(p.code)
		case Else:
			in.op = opJump
			p.code[starts[s.Match]].target = len(p.code)
			elses[s.Match] = len(p.code)
		case IfEnd:
			emit = false
			p.code[elses[s.Match]].target = len(p.code) - 1
		case LoopStart:
			in.op, in.count = opLoopStart, s.Count
			starts[i] = len(p.code)
		case LoopEnd:
			in.op, in.target = opLoopEnd, starts[s.Match]
			p.code[in.target].target = len(p.code)
		}
		if s.Scratch >= 0 {
			in.scratch = buffers[s.Scratch].own
		}
		if emit {
			if s.Kind != CopyIn {
				in.in, in.out = b.operands(s.In, buffers, use), b.operands(s.Out, buffers, use)
			}
			p.code = append(p.code, in)
		}
		for _, t := range completes[i] {
			p.code = append(p.code, instruction{op: opComplete, step: t.step, transfer: t})
		}
		for _, t := range releases[i] {
			p.code = append(p.code, instruction{op: opRelease, step: t.step, transfer: t})
		}
	}
	for i := range buffers {
		buffers[i].bind(buffers[i].own)
	}
}

// operands makes the slices that an instruction works on and registers them
// with the memory they point to.
func (b *builder) operands(all []Operand, buffers []memory, use func(*persistent)) [][]byte {
	out := make([][]byte, len(all))
	for i, o := range all {
		switch o.Place {
		case InConstant:
			out[i] = b.constant(o.Index)
		case InPersistent:
			t := b.e.persistent[graph.TensorID(o.Index)]
			use(t)
			t.memory.refs = append(t.memory.refs, &out[i])
		case InBuffer:
			buffers[o.Index].refs = append(buffers[o.Index].refs, &out[i])
		case InPacked:
			out[i] = b.packs[o.Index].data
			use(b.e.persistent[b.e.plan.Packed[o.Index].Tensor])
		}
	}
	return out
}
