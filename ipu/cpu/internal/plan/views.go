package plan

import "github.com/popefgen/popefgen/ipu/graph"

// part is where a value lies within another's memory.
type part struct {
	root int   // value
	at   int64 // bytes from where that value begins
}

// joinParts decides which operands of Concat steps are computed where the
// result wants them: those that lie contiguously in it and that one kernel
// writes, in the same loop or branch. Later steps come first, so that parts of
// parts find the outermost result.
func (f *flow) joinParts() {
	f.parts = map[int]part{}
	if !f.c.opts.Alias {
		return
	}
	shares := map[int]int{} // the operand that a value shows in another shape
	for i := range f.steps {
		if v := f.out[i]; f.steps[i].Kind == Share && v[0] >= 0 && f.in[i][0] >= 0 {
			shares[v[0]] = f.in[i][0]
		}
	}
	roots := map[int]bool{}
	for i := len(f.steps) - 1; i >= 0; i-- {
		s := &f.steps[i]
		if s.Kind != Compute || len(f.out[i]) == 0 || !f.concatenates(s) {
			continue
		}
		u := f.out[i][0]
		if u < 0 || f.values[u].multi || f.values[u].bytes == 0 || len(f.values[u].writes) != 1 {
			continue
		}
		to, ok := f.parts[u]
		if !ok {
			to = part{root: u}
		}
		for k, v := range f.in[i] {
			for b, ok := v, true; ok; b, ok = shares[v] {
				v = b
			}
			if _, taken := f.parts[v]; v >= 0 && !taken && !roots[v] && v != to.root && f.computed(v, s.Loop) {
				f.parts[v] = to
				roots[to.root] = true
			}
			to.at += f.tensor(s.In[k].Tensor).Type.Bytes()
		}
	}
}

// computed reports whether a value is written once, by a kernel, in a given
// loop or branch.
func (f *flow) computed(v, loop int) bool {
	u := &f.values[v]
	if u.multi || u.bytes == 0 || len(u.writes) != 1 {
		return false
	}
	w := &f.steps[u.writes[0]]
	return w.Kind == Compute && w.Loop == loop
}

// concatenates reports whether a step is a Concat whose operands lie one after
// the other in the result.
func (f *flow) concatenates(s *Step) bool {
	n := &f.c.exe.Graphs[s.Graph].Nodes[s.Node]
	op, ok := n.Op.(*graph.Concat)
	if !ok || len(n.Inputs) < 2 {
		return false
	}
	for _, d := range f.c.exe.Tensors[n.Outputs[0]].Type.Shape[:op.Axis] {
		if d != 1 {
			return false
		}
	}
	return true
}

// window returns where the result of a Slice or Field step begins in its operand, if it
// lies there in one piece.
func (f *flow) window(s *Step) (at int64, ok bool) {
	n := &f.c.exe.Graphs[s.Graph].Nodes[s.Node]
	x := f.c.exe.Tensors[n.Inputs[0]].Type
	if op, ok := n.Op.(*graph.Field); ok {
		// Host memory that stands in for x is only as aligned as x's own elements.
		return op.Offset, op.To.Size() <= x.DType.Size()
	}
	op, ok := n.Op.(*graph.Slice)
	if !ok {
		return 0, false
	}
	stride, whole := int64(x.DType.Size()), true
	for i := x.Rank() - 1; i >= 0; i-- {
		// All axes before one that is not whole must be single places.
		if !whole && op.Size[i] != 1 || op.Size[i] > 1 && op.Step[i] != 1 {
			return 0, false
		}
		whole = whole && op.Size[i] == x.Shape[i]
		at += op.Start[i] * stride
		stride *= x.Shape[i]
	}
	return at, true
}

// viewed finds the storage within which the result u of a Slice or Field step i may
// lie, and where. Nothing may write that memory while u is needed.
func (f *flow) viewed(i int, u *value, all []storage) (p part, ok bool) {
	s := &f.steps[i]
	if s.Kind != Compute || u.bytes == 0 || !f.c.opts.Alias {
		return p, false
	}
	a := f.in[i][0]
	if a < 0 {
		return p, false
	}
	if p.at, ok = f.window(s); !ok {
		return p, false
	}
	st := &all[f.values[a].storage]
	if st.place != InBuffer {
		return p, false
	}
	p.root = f.values[a].storage
	if st.parent >= 0 {
		p.root = st.parent
		p.at += st.at
	}
	for _, k := range append([]int{p.root}, all[p.root].parts...) {
		for _, v := range all[k].values {
			if writtenWithin(f.values[v].writes, i, u.last) {
				return p, false
			}
		}
	}
	return p, true
}

// inPlaceAlready reports whether all operands of a Concat step were computed
// within its result.
func (f *flow) inPlaceAlready(i int, all []storage) bool {
	s := &f.steps[i]
	if s.Kind != Compute || len(f.out[i]) == 0 || f.out[i][0] < 0 || !f.concatenates(s) {
		return false
	}
	root := f.values[f.out[i][0]].storage
	at := int64(0)
	if all[root].parent >= 0 {
		root, at = all[root].parent, all[root].at
	}
	for k, v := range f.in[i] {
		if v < 0 {
			return false
		}
		if st := &all[f.values[v].storage]; st.parent != root || st.at != at {
			return false
		}
		at += f.tensor(s.In[k].Tensor).Type.Bytes()
	}
	return true
}
