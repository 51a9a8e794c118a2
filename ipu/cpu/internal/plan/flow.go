package plan

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// maxSteps bounds all programs with their calls inlined, so that a small file
// can't ask for an endless plan.
const maxSteps = 1 << 17

// maxLoopDepth bounds nested loops.
const maxLoopDepth = 64

// value is what one write gives a local tensor, up to its last read. Giving
// every write a value of its own lets a tensor that a graph writes at each of
// several calls lie in several places.
type value struct {
	tensor      graph.TensorID
	bytes       int64
	writes      []int // steps, ascending
	first, last int   // steps between which it must be kept
	multi       bool  // one value for all writes: a loop carries it from one iteration to the next, or the tensor is joined
	storage     int
}

// flow is one program while it is planned: its steps in order and the values
// they read and write.
type flow struct {
	c       *compiler
	steps   []Step
	values  []value
	in, out [][]int // per step and operand: the value, or -1 if it is not local
	// results are the targets of tensors beyond the executable's own.
	results []graph.TensorID
	// seen is, while steps are added, the tensor that a reshaped tensor
	// shows.
	seen map[graph.TensorID]graph.TensorID
	// joined are the tensors whose writes give one value, as [flow.join] says.
	joined map[graph.TensorID]bool
	// parts are the values that are computed within another's memory.
	parts map[int]part
	// writes are the steps that write a persistent tensor.
	writes map[graph.TensorID][]int
}

// flatten appends steps with their calls inlined.
func (f *flow) flatten(steps []graph.Step, loop, depth int) error {
	for i := range steps {
		s := &steps[i]
		var err error
		switch s.Kind {
		case graph.CopyIn:
			err = f.add(Step{Kind: CopyIn, Stream: s.Stream, Name: f.c.exe.Streams[s.Stream].Handle, Out: tensors(s.Tensor), Loop: loop})
			delete(f.seen, s.Tensor)
		case graph.CopyOut:
			err = f.add(Step{Kind: CopyOut, Stream: s.Stream, Name: f.c.exe.Streams[s.Stream].Handle, In: tensors(s.Tensor), Loop: loop})
		case graph.Call:
			err = f.nodes(s.Graph, loop)
		case graph.Repeat:
			if depth == maxLoopDepth {
				return fmt.Errorf("more than %d loops inside each other", maxLoopDepth)
			}
			start := len(f.steps)
			if err = f.add(Step{Kind: LoopStart, Count: s.Count, Loop: loop}); err != nil {
				return err
			}
			if err = f.flatten(s.Body, start, depth+1); err != nil {
				return err
			}
			f.steps[start].Match = len(f.steps)
			err = f.add(Step{Kind: LoopEnd, Match: start, Loop: loop})
		default:
			err = fmt.Errorf("step kind %d is unknown", s.Kind)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) add(s Step) error {
	if f.c.steps.Add(1) > maxSteps {
		return fmt.Errorf("the programs up to here have more than %d steps, calls inlined", maxSteps)
	}
	s.Scratch = -1
	if s.Op != "" {
		s.Source = f.c.from.Of(s.Graph, s.Node)
	}
	f.steps = append(f.steps, s)
	return nil
}

// addNode appends the steps of one node: none if nobody wants its results, one,
// or more where it can't write a result while it reads the tensor that the
// result replaces, or where it runs graphs.
func (f *flow) addNode(g graph.GraphID, n, loop int) error {
	node := &f.c.exe.Graphs[g].Nodes[n]
	if len(graph.Subgraphs(node.Op)) > 0 {
		return f.control(g, n, loop)
	}
	s := Step{Kind: Compute, Graph: g, Node: n, Name: node.Name, Op: node.Op.Kind(),
		In: tensors(node.Inputs...), Out: tensors(node.Outputs...), Loop: loop}
	if unwanted(node) {
		return nil
	}
	if _, ok := node.Op.(*graph.Reshape); ok {
		s.Kind = Share
		f.seen[node.Outputs[0]] = f.shows(node.Inputs[0])
		return f.add(s)
	}
	k, err := f.c.kernel(g, n)
	if err != nil {
		return err
	}
	for len(s.Out) < f.c.results[k] {
		s.Out = append(s.Out, Operand{Tensor: graph.None})
	}
	var moves []Step
	for i, o := range node.Outputs {
		keep := o != graph.None && f.c.kept[o]
		if o == graph.None || !keep && !f.readsItself(k, node, i) {
			continue
		}
		result := graph.TensorID(len(f.c.exe.Tensors) + len(f.results))
		f.results = append(f.results, o)
		s.Out[i].Tensor = result
		kind := Move
		if keep {
			kind = Keep
		}
		moves = append(moves, Step{Kind: kind, Graph: g, Node: n, Name: node.Name, Op: s.Op,
			In: tensors(result), Out: tensors(o), Loop: loop})
	}
	for _, o := range node.Outputs {
		delete(f.seen, o)
	}
	if err := f.add(s); err != nil {
		return err
	}
	for _, m := range moves {
		if err := f.add(m); err != nil {
			return err
		}
	}
	return nil
}

// shows returns the tensor whose memory t may share.
func (f *flow) shows(t graph.TensorID) graph.TensorID {
	if s, ok := f.seen[t]; ok {
		return s
	}
	return t
}

// readsItself reports whether a node's result i replaces a tensor that the
// node reads, in a way its kernel does not allow.
func (f *flow) readsItself(k int, node *graph.Node, i int) bool {
	reads, operand := 0, 0
	for j, in := range node.Inputs {
		if in != graph.None && f.shows(in) == node.Outputs[i] {
			reads++
			operand = j
		}
	}
	return reads > 1 || reads == 1 && !f.c.overwrites(k, i, operand)
}

// tensors makes operands of tensors, without a place yet.
func tensors(all ...graph.TensorID) []Operand {
	out := make([]Operand, len(all))
	for i, t := range all {
		out[i] = Operand{Tensor: t}
	}
	return out
}

// tensor returns the tensor table's entry of t or, for a result that waits
// to replace its target, the target's.
func (f *flow) tensor(t graph.TensorID) *graph.Tensor {
	if own := len(f.c.exe.Tensors); int(t) >= own {
		t = f.results[int(t)-own]
	}
	return &f.c.exe.Tensors[t]
}

func (f *flow) isLocal(t graph.TensorID) bool {
	if int(t) >= len(f.c.exe.Tensors) {
		return true
	}
	e := &f.c.exe.Tensors[t]
	return !e.Const && !e.Persistent
}

// carried finds the local tensors that some loop carries from one iteration
// to the next: the loop's body reads them before it writes them.
func (f *flow) carried() []bool {
	n := len(f.c.exe.Tensors) + len(f.results)
	carried := make([]bool, n)
	if !slices.ContainsFunc(f.steps, func(s Step) bool { return s.Kind == LoopStart }) {
		return carried
	}
	in := make([]int, n) // the last loop that the tensor was seen in, plus 1
	readFirst := make([]bool, n)
	for start := range f.steps {
		if f.steps[start].Kind != LoopStart {
			continue
		}
		mark := start + 1
		for _, s := range f.steps[start+1 : f.steps[start].Match] {
			for _, o := range s.In {
				if o.Tensor != graph.None && in[o.Tensor] != mark {
					in[o.Tensor], readFirst[o.Tensor] = mark, true
				}
			}
			for _, o := range s.Out {
				switch {
				case o.Tensor == graph.None:
				case in[o.Tensor] != mark:
					in[o.Tensor], readFirst[o.Tensor] = mark, false
				case readFirst[o.Tensor]:
					carried[o.Tensor] = true
				}
			}
		}
	}
	return carried
}

// evaluate finds the values that every step reads and writes, and how long
// each must be kept.
func (f *flow) evaluate() error {
	carried := f.carried()
	current := map[graph.TensorID]int{}
	f.writes = map[graph.TensorID][]int{}
	f.in, f.out = make([][]int, len(f.steps)), make([][]int, len(f.steps))
	for i := range f.steps {
		s := &f.steps[i]
		f.in[i], f.out[i] = make([]int, len(s.In)), make([]int, len(s.Out))
		for k, o := range s.In {
			f.in[i][k] = -1
			if o.Tensor == graph.None || !f.isLocal(o.Tensor) || f.c.isPacked(s, k) {
				continue
			}
			v, ok := current[o.Tensor]
			if !ok {
				return fmt.Errorf("step %d reads tensor %d (%q) before anything writes it", i, o.Tensor, f.tensor(o.Tensor).Name)
			}
			f.in[i][k] = v
			f.touch(v, i)
		}
		for k, o := range s.Out {
			f.out[i][k] = -1
			if o.Tensor == graph.None {
				continue
			}
			if !f.isLocal(o.Tensor) {
				f.writes[o.Tensor] = append(f.writes[o.Tensor], i)
				continue
			}
			v, ok := current[o.Tensor]
			multi := carried[o.Tensor] || f.joined[o.Tensor]
			if !ok || !multi {
				v = len(f.values)
				f.values = append(f.values, value{tensor: o.Tensor, bytes: f.tensor(o.Tensor).Type.Bytes(),
					first: i, last: i, multi: multi, storage: -1})
				current[o.Tensor] = v
			}
			f.out[i][k] = v
			f.values[v].writes = append(f.values[v].writes, i)
			f.touch(v, i)
		}
	}
	return nil
}

// touch keeps v up to step i or, if i lies in a loop or a branch that v was
// written before, up to the end of that loop or of both branches. That covers
// what a loop carries too: it is first written before the loop.
func (f *flow) touch(v, i int) {
	u := &f.values[v]
	u.last = max(u.last, i)
	for l := f.steps[i].Loop; l >= 0; l = f.steps[l].Loop {
		if u.writes[0] < l {
			u.last = max(u.last, f.steps[l].Match)
		}
	}
}

// writtenWithin reports whether one of the steps of writes lies in [from, to).
func writtenWithin(writes []int, from, to int) bool {
	i, _ := slices.BinarySearch(writes, from)
	return i < len(writes) && writes[i] < to
}
