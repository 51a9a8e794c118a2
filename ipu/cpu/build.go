package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/cpu/internal/weights"
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
	plan    *plan.Persistent
	memory  memory
	packed  []*packed
	defined bool
	lender  *stream  // whose memory the operands point to
	loader  *program // whose weight set it belongs to, or nil
	member  int      // index into the set's tensors
}

// packed is one operand in a kernel's own layout.
type packed struct {
	weights.Packer
	data []byte
	refs []*[]byte // the operands
}

// set fills the packed memory from row-major data.
func (p *packed) set(src []byte) { p.Pack(p.data, src) }

// bind makes the operands point to b.
func (p *packed) bind(b []byte) {
	p.data = b
	for _, r := range p.refs {
		*r = b
	}
}

// builder binds the plan to memory.
type builder struct {
	e     *Engine
	arena []byte

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
				if o.Place != plan.InPersistent {
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
	if err := e.lease.Charge(); err != nil {
		return err
	}
	if err := e.shared.PackConstants(e.kernels, e.pool, e.unused); err != nil {
		return fmt.Errorf("pack constants: %w", err)
	}
	e.persistent = map[graph.TensorID]*persistent{}
	for i := range e.plan.Persistent {
		p := &e.plan.Persistent[i]
		e.persistent[p.Tensor] = &persistent{plan: p}
	}
	for i := range e.shared.Sets {
		g := &e.shared.Sets[i]
		p := &e.programs[g.Program]
		p.set, p.setIndex = g, i
		for k := range g.Tensors {
			t := e.persistent[g.Tensors[k].Tensor]
			t.loader, t.member = p, k
		}
	}
	var own int64 // what is packed here and belongs to no weight set
	for i := range e.plan.Packed {
		if t := e.persistent[e.plan.Packed[i].Tensor]; t != nil && t.loader == nil {
			own += align.Up(e.plan.Packed[i].Bytes)
		}
	}
	mem := e.allocate(own+e.plan.ArenaBytes, own+e.plan.Touched())
	b := &builder{e: e, arena: mem[own:]}
	b.pack(mem[:own])
	b.survey()
	for i := range e.programs {
		b.program(&e.programs[i])
	}
	if e.opts.labels {
		e.labelSteps()
	}
	return nil
}

// pack gives packed operands their places: in mem where they belong to the
// engine alone. Those of weight sets get theirs with a version.
func (b *builder) pack(mem []byte) {
	e := b.e
	e.packs = make([]packed, len(e.plan.Packed))
	for i := range e.plan.Packed {
		k, p := &e.plan.Packed[i], &e.packs[i]
		p.Packer = e.shared.Packer(e.kernels, i)
		t := e.persistent[k.Tensor]
		if t == nil {
			p.data = e.shared.PackedConstant(i)
			continue
		}
		t.packed = append(t.packed, p)
		if t.loader == nil {
			p.data = mem[:k.Bytes:k.Bytes]
			mem = mem[align.Up(k.Bytes):]
		}
	}
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
		case plan.CopyIn:
			transfers[i] = &transfer{step: i, stream: &b.e.streams[s.Stream]}
			if o := s.Out[0]; o.Place == plan.InPersistent {
				transfers[i].persistent = b.e.persistent[o.Tensor]
				if r, ok := b.readers[o.Tensor]; ok && r.program == p.number && r.last > i {
					releases[r.last] = append(releases[r.last], transfers[i])
				}
			} else {
				transfers[i].memory = &buffers[o.Index]
			}
		case plan.CopyOut:
			transfers[i] = &transfer{step: i, stream: &b.e.streams[s.Stream]}
			if o := s.In[0]; o.Place == plan.InBuffer {
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
	if p.set != nil {
		for _, m := range p.set.Tensors {
			used[b.e.persistent[m.Tensor]] = true
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
		if (s.Kind == plan.CopyIn || s.Kind == plan.Keep) && s.Loop < 0 && s.Out[0].Place == plan.InPersistent {
			used[b.e.persistent[s.Out[0].Tensor]] = true
		}
		emit := true
		switch s.Kind {
		case plan.CopyIn:
			in.op = opCopyIn
			if in.transfer.persistent != nil {
				in.op = opSet
			}
		case plan.CopyOut:
			in.op = opCopyOut
		case plan.Compute:
			in.op = opCompute
			in.kernel = b.e.kernels[b.e.bound[plan.NodeKey{Graph: s.Graph, Node: s.Node}]]
		case plan.Move:
			in.op = opMove
		case plan.Keep:
			in.op = opKeep
			in.kept = b.e.persistent[s.Out[0].Tensor]
		case plan.Share, plan.Begin:
			emit = false
		case plan.Collect:
			in.op = opCollect
		case plan.IfStart:
			in.op = opIf
			starts[i] = len(p.code)
		case plan.Else:
			in.op = opJump
			p.code[starts[s.Match]].target = len(p.code)
			elses[s.Match] = len(p.code)
		case plan.IfEnd:
			emit = false
			p.code[elses[s.Match]].target = len(p.code) - 1
		case plan.LoopStart:
			in.op, in.count = opLoopStart, s.Count
			starts[i] = len(p.code)
		case plan.LoopEnd:
			in.op, in.target, in.work = opLoopEnd, starts[s.Match], s.Work
			p.code[in.target].target = len(p.code)
		}
		if s.Scratch >= 0 {
			in.scratch = buffers[s.Scratch].own
		}
		if emit {
			if s.Kind != plan.CopyIn {
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
	p.code = slices.Clone(p.code) // without the room to grow
	joinSets(p.code)
	if p.set != nil {
		p.rest = remainder(p.code, p.set.Skip)
	}
}

// joinSets finds the instructions that set persistent tensors one after the
// other.
func joinSets(code []instruction) {
	streams, tensors := map[*stream]bool{}, map[*persistent]bool{}
	for i := range code {
		in := &code[i]
		in.more = false
		if in.op != opSet {
			continue
		}
		streams[in.transfer.stream], tensors[in.transfer.persistent] = true, true
		if i+1 < len(code) && code[i+1].op == opSet {
			next := code[i+1].transfer
			in.more = !streams[next.stream] && !tensors[next.persistent]
		}
		if !in.more {
			clear(streams)
			clear(tensors)
		}
	}
}

// remainder is the code of a program without the steps to skip. Streams are
// called for their transfers all the same.
func remainder(code []instruction, skip []bool) []instruction {
	rest := slices.Clone(code)
	computes := false
	for i := range rest {
		switch in := &rest[i]; {
		case !skip[in.step]:
			computes = computes || in.op == opCompute || in.op == opMove
		case in.op == opCopyIn, in.op == opSet:
			in.op = opPass
		case in.op != opRelease:
			in.op = opNothing
		}
	}
	for i := range rest {
		if rest[i].op == opRelease && !computes { // nobody has looked at the memory
			rest[i].op = opNothing
		}
	}
	joinSets(rest)
	return rest
}

// operands makes the slices that an instruction works on and registers them
// with the memory they point to.
func (b *builder) operands(all []plan.Operand, buffers []memory, use func(*persistent)) [][]byte {
	out := make([][]byte, len(all))
	for i, o := range all {
		switch o.Place {
		case plan.InConstant:
			out[i] = b.e.shared.Constant(o.Index)
		case plan.InPersistent:
			t := b.e.persistent[graph.TensorID(o.Index)]
			use(t)
			t.memory.refs = append(t.memory.refs, &out[i])
		case plan.InBuffer:
			buffers[o.Index].refs = append(buffers[o.Index].refs, &out[i])
		case plan.InPacked:
			p := &b.e.packs[o.Index]
			p.refs = append(p.refs, &out[i])
			out[i] = p.data
			use(b.e.persistent[b.e.plan.Packed[o.Index].Tensor])
		}
	}
	return out
}

// allocate returns n zero bytes for as long as the engine is open, like
// [align.Bytes]. The first of them, used many, are sure to be used.
func (e *Engine) allocate(n, used int64) []byte {
	b, release := align.Block(n, used)
	c := runtime.AddCleanup(e, func(release func()) { release() }, release)
	e.release = append(e.release, func() { c.Stop(); release() })
	return b
}
