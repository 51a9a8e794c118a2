package cpu

import (
	"context"
	"errors"
	"slices"
	"unsafe"

	"github.com/popefgen/popefgen/ipu"
	"github.com/popefgen/popefgen/ipu/cpu/internal/align"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// group is a weight set: the persistent tensors that one program gives their values and that
// nothing changes afterwards: weights, what is computed from them, and what
// kernels make of both. The values depend on nothing but the executable and on
// what the program's streams deliver. Where each of these streams lends memory
// that does not change (ipu.Constant), engines that were lent the same memory
// have the values in common.
type group struct {
	program int              // index into Plan.Programs
	streams []graph.StreamID // that decide the values
	tensors []member
	packs   []int  // into Plan.Packed
	bytes   int64  // of packs, aligned
	skip    []bool // by step of the program: its results are values of the group and what only they are made of

	versions []*version // that engines may join; guarded by image.weights
}

// member is one tensor of a group.
type member struct {
	tensor graph.TensorID
	stream graph.StreamID // that it is copied from; -1 for one that is computed
	stored bool           // a node writes it row-major
}

// version is a weight version: one state of the values of a group. Engines hold it until they get
// another, and only a single holder changes it.
type version struct {
	sources []*byte // memory of the group's streams; nil if some stream lends none
	users   int     // engines that hold it or wait for it; guarded, like current, by image.weights
	current int     // of them, those whose streams have lent the same memory ever since

	filling bool          // a program is setting the values; guarded, like filled, by image.weights
	filled  chan struct{} // for those who wait: closed when it has set all values, or failed to
	failure *failure      // of that

	packed  []byte
	packs   [][]byte   // parts of packed, by group.packs
	release func()     // gives back packed
	values  []rowMajor // by group.tensors
}

// rowMajor is a tensor's row-major value.
type rowMajor struct {
	own  []byte // nil if it needed none
	lent bool   // a stream's memory stands in for it
}

// failure is why a program could not set the values.
type failure struct {
	at  int // index into the program's code
	err error
	// passing says that it had to do with who ran the program, so that
	// another may succeed.
	passing bool
}

// held is the version of a group that an engine holds.
type held struct {
	version *version
	current bool    // counted in version.current
	sources []*byte // memory to list them in
	// forgotten says that the engine was loaded since: what it holds are no
	// values before a program sets them again.
	forgotten bool
}

// errNotFinished is what waiters get from work that ended without a result.
var errNotFinished = errors.New("it was given up")

// groupsOf finds the groups of a plan, one a program at most. It takes programs
// that only load: without loops, branches and outputs.
func groupsOf(p *plan.Plan) []group {
	writers := map[graph.TensorID]int{}
	for i := range p.Programs {
		for _, s := range p.Programs[i].Steps {
			for _, o := range s.Out {
				if o.Place == plan.InPersistent {
					writers[graph.TensorID(o.Index)]++
				}
			}
		}
	}
	var all []group
	for i := range p.Programs {
		if g := groupOf(p, i, writers); g != nil {
			all = append(all, *g)
		}
	}
	return all
}

// groupOf finds the group of a program: tensors that nothing else writes, and
// the program once, before it reads them, with what follows from its streams
// and constants.
func groupOf(p *plan.Plan, n int, writers map[graph.TensorID]int) *group {
	prog := &p.Programs[n]
	g := &group{program: n, skip: make([]bool, len(prog.Steps))}
	members, read := map[graph.TensorID]bool{}, map[graph.TensorID]bool{}
	foreign := make([]bool, len(prog.Buffers)) // depends on other persistent tensors
	whole := func(buffer int) int {
		for prog.Buffers[buffer].Part {
			buffer = prog.Buffers[buffer].Within
		}
		return buffer
	}
	for i := range prog.Steps {
		s := &prog.Steps[i]
		switch s.Kind {
		case plan.CopyIn, plan.Compute, plan.Move, plan.Keep, plan.Share, plan.Begin:
		default:
			return nil
		}
		strange := false
		for _, o := range s.In {
			switch o.Place {
			case plan.InBuffer:
				strange = strange || foreign[whole(o.Index)]
			case plan.InPersistent, plan.InPacked:
				t := graph.TensorID(o.Index)
				if o.Place == plan.InPacked {
					if t = p.Packed[o.Index].Tensor; !p.IsPersistent(t) {
						continue
					}
				}
				read[t] = true
				strange = strange || !members[t]
			}
		}
		for _, o := range s.Out {
			switch o.Place {
			case plan.InBuffer:
				b := whole(o.Index)
				foreign[b] = foreign[b] || strange
				if s.Kind == plan.CopyIn {
					g.streams = append(g.streams, s.Stream)
				}
			case plan.InPersistent:
				t := graph.TensorID(o.Index)
				if writers[t] != 1 || strange || read[t] {
					continue
				}
				members[t] = true
				m := member{tensor: t, stream: -1, stored: s.Kind != plan.CopyIn && s.Kind != plan.Keep}
				if s.Kind == plan.CopyIn {
					m.stream = s.Stream
					g.streams = append(g.streams, s.Stream)
				}
				g.tensors = append(g.tensors, m)
			}
		}
	}
	if len(g.tensors) == 0 {
		return nil
	}
	slices.Sort(g.streams)
	g.streams = slices.Compact(g.streams)
	for i, k := range p.Packed {
		if members[k.Tensor] {
			g.packs = append(g.packs, i)
			g.bytes += align.Up(k.Bytes)
		}
	}
	// Steps that set other tensors, and what these are made of, are not skipped.
	needed := make([]bool, len(prog.Buffers))
	for i := len(prog.Steps) - 1; i >= 0; i-- {
		s := &prog.Steps[i]
		g.skip[i] = true
		both := false
		for _, o := range s.Out {
			switch {
			case o.Place == plan.InPersistent && members[graph.TensorID(o.Index)]:
				both = true
			case o.Place == plan.InPersistent, o.Place == plan.InBuffer && needed[whole(o.Index)]:
				g.skip[i] = false
			}
		}
		if g.skip[i] {
			continue
		}
		if both {
			return nil // to compute the one again would be to write the other
		}
		for _, o := range s.In {
			if o.Place == plan.InBuffer {
				needed[whole(o.Index)] = true
			}
		}
	}
	return g
}

// newVersion allocates a version for one engine.
func (g *group) newVersion(p *plan.Plan) *version {
	v := &version{users: 1, values: make([]rowMajor, len(g.tensors)), packs: make([][]byte, len(g.packs))}
	v.packed, v.release = align.Block(g.bytes, g.bytes)
	mem := v.packed
	for i, k := range g.packs {
		n := p.Packed[k].Bytes
		v.packs[i] = mem[:n:n]
		mem = mem[align.Up(n):]
	}
	return v
}

// find returns the version of what these streams lend, nil if there is none.
func (g *group) find(sources []*byte) *version {
	for _, v := range g.versions {
		if slices.Equal(v.sources, sources) {
			return v
		}
	}
	return nil
}

// withdraw keeps further engines from joining a version.
func (g *group) withdraw(v *version) {
	g.versions = slices.DeleteFunc(g.versions, func(o *version) bool { return o == v })
}

// outdate tells that the memory that h was made from is not lent any more.
func (g *group) outdate(h *held) {
	if h.current {
		h.current = false
		if h.version.current--; h.version.current == 0 {
			g.withdraw(h.version)
		}
	}
}

// drop ends the use of a version.
func (g *group) drop(h *held) {
	if h.version != nil {
		g.outdate(h)
		g.abandon(h.version)
		h.version = nil
	}
}

// abandon ends the use of a version that an engine has but waited for.
func (g *group) abandon(v *version) {
	if v.users--; v.users == 0 {
		g.withdraw(v)
		v.release()
	}
}

// take gives h another version, for which it was counted as a user.
func (g *group) take(h *held, v *version) {
	if h.version != v {
		g.drop(h)
	}
	h.version, h.forgotten = v, false
	if !h.current && v.sources != nil {
		h.current = true
		v.current++
	}
}

// sources returns the memory that the streams of a group lend, nil if one of
// them lends none. It is valid until the next call for that group.
func (e *Engine) sources(g *group, h *held) []*byte {
	h.sources = h.sources[:0]
	for _, s := range g.streams {
		m := e.streams[s].lends()
		if m == nil {
			return nil
		}
		h.sources = append(h.sources, m)
	}
	return h.sources
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

// disconnected tells the groups that a stream is about to be another.
func (e *Engine) disconnected(id graph.StreamID, next *stream) {
	for i := range e.image.groups {
		g := &e.image.groups[i]
		if slices.Contains(g.streams, id) && e.streams[id].lends() != next.lends() {
			e.image.weights.Lock()
			g.outdate(&e.tenancy.held[i])
			e.image.weights.Unlock()
		}
	}
}

// runLoad runs a program that has a group: all of it, or what is left to do
// where another engine has the values that it would set.
func (e *Engine) runLoad(ctx context.Context, p *program) error {
	for {
		v, mine := e.claim(p)
		if mine {
			return e.exec(ctx, p, p.code)
		}
		if err := e.await(ctx, v); err != nil {
			e.leaveVersion(p, v)
			return e.failed(p, len(p.code), err)
		}
		f := v.failure
		if f == nil {
			e.adopt(p, v)
			return e.exec(ctx, p, p.rest)
		}
		e.leaveVersion(p, v)
		if !f.passing {
			return e.failed(p, f.at, f.err)
		}
	}
}

// claim finds the version for a program to run with. It is e's to fill, or
// else e was added to its users.
func (e *Engine) claim(p *program) (v *version, mine bool) {
	g, h := p.group, p.held
	sources := e.sources(g, h)
	lock := &e.image.weights
	lock.Lock()
	defer lock.Unlock()
	if sources != nil {
		w := g.find(sources)
		// Who runs the program again without a reason wants it run: values of
		// its own are computed anew. After a load they are as good as others'.
		if w != nil && (w != h.version || h.forgotten && w.users > 1) {
			w.users++
			if w.filling && w.filled == nil {
				w.filled = make(chan struct{})
			}
			return w, false
		}
	}
	v = e.single(p)
	v.filling, v.filled, v.failure = true, nil, nil
	if sources == nil || !slices.Equal(sources, v.sources) {
		v.sources = slices.Clone(sources)
	}
	if sources != nil {
		if w := g.find(sources); w != nil {
			g.withdraw(w)
		}
		g.versions = append(g.versions, v)
	}
	g.take(h, v)
	e.filling, e.fault = p, failure{at: len(p.code), err: errNotFinished}
	for i := range g.tensors {
		if m := &g.tensors[i]; m.stored {
			t := e.persistent[m.tensor]
			e.target(t)
			t.defined = true
		}
	}
	return v, true
}

// single returns a version that no other engine has and none can join, the one
// that e holds if possible. The lock must be held.
func (e *Engine) single(p *program) *version {
	g, h := p.group, p.held
	v := h.version
	if v != nil && v.users == 1 {
		g.outdate(h)
		g.withdraw(v)
		return v
	}
	v = g.newVersion(e.plan)
	e.bindVersion(p, v)
	for i := range g.tensors {
		e.persistent[g.tensors[i].tensor].defined = false
	}
	g.take(h, v)
	return v
}

// bindVersion makes operands point to the values of a version.
func (e *Engine) bindVersion(p *program, v *version) {
	g := p.group
	for i, k := range g.packs {
		e.packs[k].bind(v.packs[i])
	}
	for i := range g.tensors {
		t := e.persistent[g.tensors[i].tensor]
		t.memory.own, t.lender = nil, nil
		switch u := &v.values[i]; {
		case u.lent:
			t.lender = &e.streams[g.tensors[i].stream]
			t.memory.bind(t.lender.constant.Constant())
		case u.own != nil:
			t.memory.bind(u.own)
		}
	}
}

// await waits until a version is filled, or filling it has failed.
func (e *Engine) await(ctx context.Context, v *version) error {
	e.image.weights.Lock()
	filled := v.filled // nil if nobody had to wait
	e.image.weights.Unlock()
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
	g := p.group
	e.bindVersion(p, v)
	for i := range g.tensors {
		e.persistent[g.tensors[i].tensor].defined = true
	}
	e.image.weights.Lock()
	defer e.image.weights.Unlock()
	if p.held.version == v {
		v.users-- // it is counted already
	}
	g.take(p.held, v)
}

// leaveVersion ends waiting for a version.
func (e *Engine) leaveVersion(p *program, v *version) {
	e.image.weights.Lock()
	defer e.image.weights.Unlock()
	p.group.abandon(v)
}

// empty makes a program's version one of this engine alone, for zeros in place
// of what the program has not set. It is being filled then.
func (e *Engine) empty(p *program) {
	e.image.weights.Lock()
	defer e.image.weights.Unlock()
	v := e.single(p)
	v.sources = nil
	e.filling = p
}

// endFilling ends the filling of a version that e began: others may use it, or
// learn why not.
func (e *Engine) endFilling(ctx context.Context, finished bool) {
	p := e.filling
	e.filling = nil
	v := p.held.version
	e.image.weights.Lock()
	defer e.image.weights.Unlock()
	if finished {
		for i := range p.group.tensors {
			e.persistent[p.group.tensors[i].tensor].memory.own = nil // which others read now
		}
	} else {
		f := e.fault
		f.passing = ctx.Err() != nil || e.state.Load() != loaded
		v.failure, v.sources = &f, nil
		p.group.outdate(p.held)
		p.group.withdraw(v)
	}
	v.filling = false
	if v.filled != nil {
		close(v.filled)
		v.filled = nil
	}
}

// Sharing says what an engine has in common with others.
type Sharing struct {
	// Engines is how many engines of the same executable with equal options
	// are open, this one included.
	Engines int
	// PackedBytes is the memory of the constants and weights that the engine
	// keeps in its kernels' own layouts, as far as programs have set them, and
	// SharedBytes the part of it that other engines compute with too.
	PackedBytes, SharedBytes int64
}

// Sharing returns what the engine has in common with others now. It may be
// called at any time before Close.
func (e *Engine) Sharing() Sharing {
	m := e.image
	s := Sharing{Engines: m.engines()}
	m.packing.Lock()
	for _, b := range m.packs {
		s.PackedBytes += int64(len(b))
	}
	m.packing.Unlock()
	if s.Engines > 1 {
		s.SharedBytes = s.PackedBytes
	}
	m.weights.Lock()
	defer m.weights.Unlock()
	for i := range m.groups {
		v := e.tenancy.held[i].version
		if v == nil {
			continue
		}
		for _, b := range v.packs {
			s.PackedBytes += int64(len(b))
			if v.users > 1 {
				s.SharedBytes += int64(len(b))
			}
		}
	}
	return s
}
