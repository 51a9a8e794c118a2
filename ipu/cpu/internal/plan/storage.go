package plan

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// storage is memory that one or more values share.
type storage struct {
	place       Place // InConstant, InPersistent or InBuffer
	index       int   // the tensor, or the index into Program.Buffers
	bytes       int64
	first, last int
	values      []int
	streamed    bool  // a stream writes it
	parent      int   // the storage that it is a part of, or -1
	at          int64 // where in that
	parts       []int // its own parts
}

// program plans one program.
func (c *compiler) program(p *graph.Program) (*Program, error) {
	f := &flow{c: c, seen: map[graph.TensorID]graph.TensorID{}, joined: map[graph.TensorID]bool{}}
	if err := f.flatten(p.Steps, -1, 0); err != nil {
		return nil, err
	}
	if err := f.evaluate(); err != nil {
		return nil, err
	}
	g := &Program{Index: p.Index, Name: p.Name}
	all := f.assign()
	for i := range all {
		s := &all[i]
		if s.place != InBuffer || s.values == nil {
			continue
		}
		s.index = len(g.Buffers)
		b := Buffer{Bytes: s.bytes, First: s.first, Last: s.last, Input: f.input(s), Output: f.output(s)}
		if s.parent >= 0 {
			b.Part, b.Within, b.Offset = true, all[s.parent].index, s.at
		}
		for _, v := range s.values {
			t := f.values[v].tensor
			b.Tensors = append(b.Tensors, t)
			b.Names = append(b.Names, f.tensor(t).Name)
		}
		g.Buffers = append(g.Buffers, b)
	}
	for i := range f.steps {
		s := &f.steps[i]
		f.place(i, s, all)
		if s.Kind != Compute {
			continue
		}
		if n := c.kernels[c.bound[NodeKey{s.Graph, s.Node}]].Scratch(); n > 0 {
			s.Scratch = len(g.Buffers)
			g.Buffers = append(g.Buffers, Buffer{Bytes: int64(n), First: i, Last: i, Input: -1, Output: -1})
		}
	}
	g.Steps = slices.Clone(f.steps) // without the room to grow: an executable may have many programs
	var err error
	if g.ArenaBytes, err = layOut(c.ctx, g.Buffers, placeEffort); err != nil {
		return nil, err
	}
	return g, nil
}

// place fills in where the operands of step i lie.
func (f *flow) place(i int, s *Step, all []storage) {
	one := func(o *Operand, k, v int, read bool) {
		switch {
		case o.Tensor == graph.None:
		case read && f.c.isPacked(s, k):
			o.Place, o.Index = InPacked, f.c.packs[packKey{f.c.bound[NodeKey{s.Graph, s.Node}], k}]
		case v >= 0:
			o.Place, o.Index = all[f.values[v].storage].place, all[f.values[v].storage].index
		case f.c.exe.Tensors[o.Tensor].Const:
			o.Place, o.Index = InConstant, int(o.Tensor)
		default:
			o.Place, o.Index = InPersistent, int(o.Tensor)
		}
	}
	for k := range s.In {
		one(&s.In[k], k, f.in[i][k], true)
	}
	for k := range s.Out {
		one(&s.Out[k], k, f.out[i][k], false)
	}
}

// assign gives every value a storage, shared where a Reshape moves no data
// and where a kernel may write over an operand that nobody needs any more.
// A reshaped tensor that can't share memory is copied.
func (f *flow) assign() []storage {
	var all []storage
	join := func(v, s int) {
		u := &f.values[v]
		u.storage = s
		all[s].values = append(all[s].values, v)
		for ; s >= 0; s = all[s].parent {
			all[s].first, all[s].last = min(all[s].first, u.first), max(all[s].last, u.last)
		}
	}
	add := func(s storage) int {
		all = append(all, s)
		if s.parent >= 0 {
			all[s.parent].parts = append(all[s.parent].parts, len(all)-1)
		}
		return len(all) - 1
	}
	f.joinParts()
	roots := map[int]int{} // the storage of a value that others are parts of
	var views []int
	for i := range f.steps {
		s := &f.steps[i]
		for k := range s.Out {
			v := f.out[i][k]
			if v < 0 || f.values[v].storage >= 0 {
				continue
			}
			u := &f.values[v]
			if to, ok := roots[v]; ok {
				join(v, to)
				continue
			}
			if p, ok := f.parts[v]; ok {
				to, ok := roots[p.root]
				if !ok {
					to = add(storage{place: InBuffer, bytes: f.values[p.root].bytes, first: u.first, last: u.last, parent: -1})
					roots[p.root] = to
				}
				join(v, add(storage{place: InBuffer, bytes: u.bytes, first: u.first, last: u.last, parent: to, at: p.at}))
				continue
			}
			if k == 0 && !u.multi {
				if p, ok := f.viewed(i, u, all); ok {
					join(v, add(storage{place: InBuffer, bytes: u.bytes, first: u.first, last: u.last, parent: p.root, at: p.at}))
					views = append(views, i)
					continue
				}
				if s.Kind == Share && f.c.opts.Alias {
					if to, fresh, ok := f.shared(i, u, all); ok {
						if fresh != nil {
							to = add(*fresh)
						}
						join(v, to)
						continue
					}
				}
				if to := f.overwritten(i, u, all); to >= 0 {
					join(v, to)
					continue
				}
			}
			join(v, add(storage{place: InBuffer, bytes: u.bytes, first: u.first, last: u.last, streamed: s.Kind == CopyIn, parent: -1}))
		}
		if s.Kind == Share && !f.sharesMemory(i, all) {
			s.Kind = Move
		}
	}
	for i := range f.steps {
		if f.inPlaceAlready(i, all) {
			views = append(views, i)
		}
	}
	for _, i := range views {
		f.steps[i].Kind = Share
	}
	return all
}

// sharesMemory reports whether the result of a Share step lies where its
// operand does.
func (f *flow) sharesMemory(i int, all []storage) bool {
	v := f.out[i][0]
	if v < 0 {
		return false
	}
	s := &all[f.values[v].storage]
	if a := f.in[i][0]; a >= 0 {
		return f.values[a].storage == f.values[v].storage
	}
	return s.place != InBuffer
}

// shared finds the storage that the result u of a reshaping step i may share:
// an existing one, or a fresh one that stands for a constant or persistent
// tensor. Nothing may write that memory while u is needed.
func (f *flow) shared(i int, u *value, all []storage) (to int, fresh *storage, ok bool) {
	a := f.in[i][0]
	if a < 0 {
		t := f.steps[i].In[0].Tensor
		st := storage{place: InConstant, index: int(t), bytes: u.bytes, first: u.first, last: u.last, parent: -1}
		if f.c.exe.Tensors[t].Persistent {
			st.place = InPersistent
			ok = !writtenWithin(f.writes[t], i, u.last)
		} else {
			ok = true
		}
		return 0, &st, ok
	}
	to = f.values[a].storage
	st := &all[to]
	if st.place == InPersistent && writtenWithin(f.writes[graph.TensorID(st.index)], i, u.last) {
		return 0, nil, false
	}
	for _, v := range st.values {
		if writtenWithin(f.values[v].writes, i, u.last) {
			return 0, nil, false
		}
	}
	return to, nil, true
}

// overwritten finds the storage of an operand of step i that its kernel may
// write the result u over, or returns -1.
func (f *flow) overwritten(i int, u *value, all []storage) int {
	s := &f.steps[i]
	if s.Kind != Compute || u.bytes == 0 {
		return -1
	}
	k := f.c.bound[NodeKey{s.Graph, s.Node}]
	for operand, a := range f.in[i] {
		if a < 0 || !f.c.inPlace(k, operand) {
			continue
		}
		to := f.values[a].storage
		st := &all[to]
		if st.place != InBuffer || st.parent >= 0 || st.bytes != u.bytes || st.streamed && f.c.opts.Alias || !f.diesAt(i, to, st) {
			continue
		}
		if !slices.ContainsFunc(st.parts, func(p int) bool { return all[p].last >= i }) {
			return to
		}
	}
	return -1
}

// diesAt reports whether step i reads a storage once and nobody needs it
// afterwards.
func (f *flow) diesAt(i, to int, st *storage) bool {
	for _, v := range st.values {
		if f.values[v].last > i {
			return false
		}
	}
	reads := 0
	for _, a := range f.in[i] {
		if a >= 0 && f.values[a].storage == to {
			reads++
		}
	}
	return reads == 1
}

// input returns the CopyIn step whose stream's memory may stand in for a
// storage, or -1. The memory must be done with before the stream's next
// transfer, and before any output arrives at the host, which might share
// that memory.
func (f *flow) input(st *storage) int {
	if !st.streamed || !f.c.opts.Alias || st.bytes == 0 || st.parent >= 0 {
		return -1
	}
	first := f.values[st.values[0]].writes[0]
	if f.steps[first].Kind != CopyIn || f.writesOf(st) != 1 {
		return -1
	}
	if l := f.steps[first].Loop; l >= 0 && st.last >= f.steps[l].Match {
		return -1
	}
	for i := first + 1; i <= st.last; i++ {
		s := &f.steps[i]
		if s.Kind == CopyIn && s.Stream == f.steps[first].Stream || s.Kind == CopyOut && i < st.last {
			return -1
		}
	}
	return first
}

// writesOf counts the steps that write a storage.
func (f *flow) writesOf(st *storage) int {
	n := 0
	for _, v := range st.values {
		for _, w := range f.values[v].writes {
			if f.steps[w].Kind != Share {
				n++
			}
		}
	}
	return n
}

// output returns the CopyOut step whose stream's memory may stand in for a
// storage, or -1. That step must be the storage's last use, in the same
// iteration as its first, and no input may arrive in between: it might come
// from the same memory.
func (f *flow) output(st *storage) int {
	last := &f.steps[st.last]
	if last.Kind != CopyOut || st.parent >= 0 || !slices.Contains(st.values, f.in[st.last][0]) || st.streamed || !f.c.opts.Alias || st.bytes == 0 || last.Loop != f.steps[st.first].Loop {
		return -1
	}
	for _, v := range st.values {
		if f.values[v].multi {
			return -1
		}
	}
	for i := st.first; i < st.last; i++ {
		s := &f.steps[i]
		if s.Kind == CopyIn || s.Kind == CopyOut && s.Stream == last.Stream {
			return -1
		}
	}
	return st.last
}
