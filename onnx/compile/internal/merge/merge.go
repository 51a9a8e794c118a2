// Package merge joins optimised executables into one: a load program for all of them, and
// programs for each. What is equal is kept once: weights, constants, what the load
// program computes from weights, and programs that do no more than move what all share.
package merge

import (
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Merger is an executable to which others are added.
//
// An executable that is added has a load program, which copies weights in and then calls
// graphs that prepare them, programs of its own, and programs that copy alone. Nothing of it is
// computed differently afterwards: its nodes stay as they are, in their order, so that
// each program gives the same bits as before. What a program of its own changes of what is copied in, a weight that
// learns, it changes for all.
type Merger struct {
	exe     *graph.Executable
	load    int                         // the load program's index
	weights map[string]graph.TensorID   // by the stream that sets them
	consts  map[constKey]graph.TensorID // the first with such contents
	seed    maphash.Seed
	derived map[string]int // place in prepare, by what a node computes
	prepare []graph.Node   // what the load program computes from weights
	reports []graph.PassReport
}

// constKey finds constants that may be equal.
type constKey struct {
	typ  string
	hash uint64
}

// New returns an empty executable of a name and a producer, with a load program of the
// given index and name.
func New(name, producer string, load int, loadName string) *Merger {
	return &Merger{
		exe:  &graph.Executable{Name: name, Producer: producer, Programs: []graph.Program{{Index: load, Name: loadName}}},
		load: load, seed: maphash.MakeSeed(),
		weights: map[string]graph.TensorID{}, consts: map[constKey]graph.TensorID{}, derived: map[string]int{},
	}
}

// Program is a program of an executable that is added, and what it becomes.
type Program struct {
	From int           // its index in the executable
	As   graph.Program // the index and the name that it gets
}

// Add adds e, whose program load is the merger's load program and whose programs own become programs
// of their own. Every other program of e has to copy alone: it is in the result once, as in the first executable. handle renames
// streams: those that set the same tensor outside own programs, by which executables share it, get the same handle, and all others have
// to differ. What e consists of is used, not copied: it is good for nothing else any more.
func (m *Merger) Add(e *graph.Executable, load int, own []Program, handle func(string) string) error {
	a := &addition{Merger: m, from: e, handle: handle, tensor: slices.Repeat([]graph.TensorID{graph.None}, len(e.Tensors)), graph: slices.Repeat([]graph.GraphID{-1}, len(e.Graphs)), moved: map[graph.StreamID]graph.StreamID{}}
	for i := range e.Tensors {
		if e.Tensors[i].Const {
			a.tensor[i] = m.constant(e.Tensors[i])
		}
	}
	for i := range e.Programs {
		if e.Programs[i].Index == load {
			if err := a.loads(e.Programs[i].Steps); err != nil {
				return err
			}
		}
	}
	isOwn := func(p *graph.Program) bool {
		return slices.ContainsFunc(own, func(o Program) bool { return o.From == p.Index })
	}
	for _, dir := range []graph.StepKind{graph.CopyIn, graph.CopyOut} { // what is copied in is known once, whatever copies it out
		for i := range e.Programs {
			if p := &e.Programs[i]; p.Index != load && !isOwn(p) {
				if err := a.moves(p, dir); err != nil {
					return err
				}
			}
		}
	}
	for _, o := range own {
		for i := range e.Programs {
			if e.Programs[i].Index == o.From {
				o.As.Steps = a.steps(e.Programs[i].Steps)
				m.exe.Programs = append(m.exe.Programs, o.As)
			}
		}
	}
	m.report(e.Passes)
	return nil
}

// Executable returns what was added up, with what the passes did, summed. The merger is
// good for nothing else any more.
func (m *Merger) Executable() *graph.Executable {
	if len(m.prepare) > 0 {
		m.exe.Graphs = append(m.exe.Graphs, graph.Graph{Name: "prepare weights", Nodes: m.prepare})
		load := &m.exe.Programs[0]
		load.Steps = append(load.Steps, graph.Step{Kind: graph.Call, Graph: graph.GraphID(len(m.exe.Graphs) - 1)})
	}
	m.exe.Passes = m.reports
	slices.SortStableFunc(m.exe.Programs, func(a, b graph.Program) int { return a.Index - b.Index })
	return m.exe
}

// addition is an executable that is being added.
type addition struct {
	*Merger
	from   *graph.Executable
	handle func(string) string
	tensor []graph.TensorID                  // what a tensor of from is in the merger, None while it is nothing yet
	graph  []graph.GraphID                   // likewise for graphs, -1
	moved  map[graph.StreamID]graph.StreamID // likewise for streams of programs of its own
}

// constant returns the tensor that holds a constant.
func (m *Merger) constant(t graph.Tensor) graph.TensorID {
	k := constKey{t.Type.String(), maphash.Bytes(m.seed, t.Data)}
	first, ok := m.consts[k]
	if ok && string(m.exe.Tensors[first].Data) == string(t.Data) {
		return first
	}
	id := m.add(t)
	if !ok {
		m.consts[k] = id
	}
	return id
}

func (m *Merger) add(t graph.Tensor) graph.TensorID {
	m.exe.Tensors = append(m.exe.Tensors, t)
	return graph.TensorID(len(m.exe.Tensors) - 1)
}

// loads adds what a load program does, unless the merger's does it already.
func (a *addition) loads(steps []graph.Step) error {
	for _, s := range steps {
		switch s.Kind {
		case graph.CopyIn:
			if err := a.weight(&s, a.load); err != nil {
				return err
			}
		case graph.Call:
			for _, n := range a.from.Graphs[s.Graph].Nodes {
				if err := a.prepared(n); err != nil {
					return err
				}
			}
		default:
			return fmt.Errorf("merge executable %q: its load program has a step %s, want copies of weights and calls of graphs", a.from.Name, s.Kind)
		}
	}
	return nil
}

// moves adds the steps of one direction of a program that copies alone.
func (a *addition) moves(p *graph.Program, dir graph.StepKind) error {
	known := slices.ContainsFunc(a.exe.Programs, func(q graph.Program) bool { return q.Index == p.Index })
	if !known {
		a.exe.Programs = append(a.exe.Programs, graph.Program{Index: p.Index, Name: p.Name})
	}
	for _, s := range p.Steps {
		switch {
		case s.Kind != graph.CopyIn && s.Kind != graph.CopyOut:
			return fmt.Errorf("merge executable %q: program %d %q has a step %s, want copies alone", a.from.Name, p.Index, p.Name, s.Kind)
		case s.Kind != dir:
		case dir == graph.CopyIn:
			if err := a.weight(&s, p.Index); err != nil {
				return err
			}
		default:
			a.saved(&s, p.Index)
		}
	}
	return nil
}

// saved adds a copy of what all share to a program, unless an executable before had it.
func (a *addition) saved(s *graph.Step, program int) {
	stream := a.from.Streams[s.Stream]
	stream.Handle = a.handle(stream.Handle)
	if slices.ContainsFunc(a.exe.Streams, func(x graph.Stream) bool { return x.Handle == stream.Handle }) {
		return
	}
	a.append(program, graph.Step{Kind: graph.CopyOut, Stream: a.stream(stream), Tensor: a.ref(s.Tensor)})
}

// append appends a step to a program of the merger.
func (a *addition) append(program int, s graph.Step) {
	i := slices.IndexFunc(a.exe.Programs, func(p graph.Program) bool { return p.Index == program })
	a.exe.Programs[i].Steps = append(a.exe.Programs[i].Steps, s)
}

// weight adds a tensor that a program copies in for all.
func (a *addition) weight(s *graph.Step, program int) error {
	stream := a.from.Streams[s.Stream]
	stream.Handle = a.handle(stream.Handle)
	if id, ok := a.weights[stream.Handle]; ok {
		if have := a.exe.Tensors[id].Type; !have.Equal(stream.Type) {
			return fmt.Errorf("merge executable %q: stream %q is %v, but %v in one before", a.from.Name, stream.Handle, stream.Type, have)
		}
		a.tensor[s.Tensor] = id
		return nil
	}
	id := a.add(a.from.Tensors[s.Tensor])
	a.tensor[s.Tensor], a.weights[stream.Handle] = id, id
	a.append(program, graph.Step{Kind: graph.CopyIn, Stream: a.stream(stream), Tensor: id})
	return nil
}

func (a *addition) stream(s graph.Stream) graph.StreamID {
	a.exe.Streams = append(a.exe.Streams, s)
	return graph.StreamID(len(a.exe.Streams) - 1)
}

// prepared adds a node of a load program, or lets one that computes the same have its results.
func (a *addition) prepared(n graph.Node) error {
	if len(graph.Subgraphs(n.Op)) > 0 || graph.HasEffect(n.Op) {
		return fmt.Errorf("merge executable %q: its load program computes %s, which can't be merged", a.from.Name, n.Op.Kind())
	}
	n.Inputs = a.refs(n.Inputs)
	key := fmt.Sprint(graph.OpString(n.Op), n.Inputs)
	at, ok := a.derived[key]
	if !ok {
		n.Outputs = a.refs(n.Outputs)
		a.derived[key] = len(a.prepare)
		a.prepare = append(a.prepare, n)
		return nil
	}
	first := &a.prepare[at]
	for k, t := range n.Outputs {
		if t == graph.None {
			continue
		}
		for len(first.Outputs) <= k {
			first.Outputs = append(first.Outputs, graph.None)
		}
		if first.Outputs[k] == graph.None {
			first.Outputs[k] = a.ref(t)
			continue
		}
		a.tensor[t] = first.Outputs[k]
		if a.from.Tensors[t].Persistent {
			a.exe.Tensors[first.Outputs[k]].Persistent = true
		}
	}
	return nil
}

// ref returns what a tensor is in the merger.
func (a *addition) ref(t graph.TensorID) graph.TensorID {
	if t == graph.None {
		return t
	}
	if a.tensor[t] == graph.None {
		a.tensor[t] = a.add(a.from.Tensors[t])
	}
	return a.tensor[t]
}

func (a *addition) refs(ids []graph.TensorID) []graph.TensorID {
	if len(ids) == 0 {
		return nil
	}
	out := make([]graph.TensorID, len(ids))
	for i, t := range ids {
		out[i] = a.ref(t)
	}
	return out
}

// steps adds the steps of a program of its own.
func (a *addition) steps(from []graph.Step) []graph.Step {
	steps := make([]graph.Step, len(from))
	for i, s := range from {
		switch s.Kind {
		case graph.CopyIn, graph.CopyOut:
			to, ok := a.moved[s.Stream]
			if !ok {
				stream := a.from.Streams[s.Stream]
				stream.Handle = a.handle(stream.Handle)
				to = a.stream(stream)
				a.moved[s.Stream] = to
			}
			s.Stream, s.Tensor = to, a.ref(s.Tensor)
		case graph.Call:
			s.Graph = a.called(s.Graph)
		case graph.Repeat:
			s.Body = a.steps(s.Body)
		}
		steps[i] = s
	}
	return steps
}

// called adds a graph and those that its nodes run.
func (a *addition) called(g graph.GraphID) graph.GraphID {
	if a.graph[g] >= 0 {
		return a.graph[g]
	}
	id := graph.GraphID(len(a.exe.Graphs))
	a.graph[g] = id
	from := a.from.Graphs[g]
	a.exe.Graphs = append(a.exe.Graphs, graph.Graph{Name: from.Name})
	to := graph.Graph{Name: from.Name, Params: a.refs(from.Params), Nodes: make([]graph.Node, len(from.Nodes))}
	for i, n := range from.Nodes {
		n.Op = a.op(n.Op)
		n.Inputs, n.Outputs = a.refs(n.Inputs), a.refs(n.Outputs)
		to.Nodes[i] = n
	}
	to.Results = a.refs(from.Results)
	a.exe.Graphs[id] = to
	return id
}

// op returns an operator that runs the merger's graphs in place of those that it comes from.
func (a *addition) op(op graph.Op) graph.Op {
	if len(graph.Subgraphs(op)) == 0 {
		return op
	}
	from := reflect.ValueOf(op).Elem()
	to := reflect.New(from.Type())
	to.Elem().Set(from)
	for i := range from.NumField() {
		if g, ok := from.Field(i).Interface().(graph.GraphID); ok {
			to.Elem().Field(i).Set(reflect.ValueOf(a.called(g)))
		}
	}
	return to.Interface().(graph.Op)
}

// report adds what passes did to an executable.
func (m *Merger) report(passes []graph.PassReport) {
	for _, p := range passes {
		i := slices.IndexFunc(m.reports, func(r graph.PassReport) bool { return r.Name == p.Name })
		if i < 0 {
			i = len(m.reports)
			m.reports = append(m.reports, graph.PassReport{Name: p.Name})
		}
		r := &m.reports[i]
		r.Before, r.After = r.Before+p.Before, r.After+p.After
		for _, w := range p.Rewrites {
			k := slices.IndexFunc(r.Rewrites, func(x graph.Rewrite) bool { return x.What == w.What })
			if k < 0 {
				r.Rewrites = append(r.Rewrites, w)
			} else {
				r.Rewrites[k].Count += w.Count
			}
		}
	}
}

// Pool keeps equal constants of several executables in the same memory.
type Pool struct {
	seed  maphash.Seed
	first map[uint64][]byte
}

// NewPool returns an empty pool.
func NewPool() *Pool { return &Pool{maphash.MakeSeed(), map[uint64][]byte{}} }

// Share lets constants of e be those that the pool has, and adds the others to it. It
// returns the bytes of those that it added.
func (p *Pool) Share(e *graph.Executable) (added int64) {
	for i := range e.Tensors {
		t := &e.Tensors[i]
		if !t.Const || len(t.Data) == 0 {
			continue
		}
		h := maphash.Bytes(p.seed, t.Data)
		first, ok := p.first[h]
		switch {
		case !ok:
			p.first[h] = t.Data
			added += int64(len(t.Data))
		case string(first) == string(t.Data):
			t.Data = first
		default:
			added += int64(len(t.Data))
		}
	}
	return added
}
