package page

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// source is where a weight comes from: the weights of the file that it is
// computed of, and by which operators.
type source struct{ names, ops []string }

// maxSources of a weight are named.
const maxSources = 8

func (s *source) add(o *source) {
	for _, n := range o.names {
		if len(s.names) < maxSources && !slices.Contains(s.names, n) {
			s.names = append(s.names, n)
		}
	}
	for _, n := range o.ops {
		if len(s.ops) < maxSources && !slices.Contains(s.ops, n) {
			s.ops = append(s.ops, n)
		}
	}
}

// weights tells what of an executable does not depend on what a caller sends:
// a drawing shows it inside of the operators that read it.
type weights struct {
	of   map[graph.TensorID]*source
	into map[node]node // nodes that compute weights alone: the first that reads their results
}

func (w *weights) isWeight(t graph.TensorID) bool { return w.of[t] != nil }

// mainPrograms are the programs that compute something for a caller: those
// that call graphs and send results, or, where none sends any, all that call.
func mainPrograms(e *graph.Executable) (all []*graph.Program) {
	var calling []*graph.Program
	for i := range e.Programs {
		p := &e.Programs[i]
		if !has(p.Steps, graph.Call) {
			continue // it only moves weights
		}
		calling = append(calling, p)
		if has(p.Steps, graph.CopyOut) {
			all = append(all, p)
		}
	}
	if all == nil {
		return calling
	}
	return all
}

func has(steps []graph.Step, kind graph.StepKind) bool {
	return slices.ContainsFunc(steps, func(s graph.Step) bool { return s.Kind == kind || has(s.Body, kind) })
}

// weightsIn finds the weights of an executable: constants, what programs that
// are not shown have put into persistent tensors, and what is computed of
// these alone. name tells what a stream is called.
func weightsIn(e *graph.Executable, main []*graph.Program, name func(graph.StreamID) string) weights {
	w := weights{of: map[graph.TensorID]*source{}, into: map[node]node{}}
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Const {
			s := &source{}
			if t.Type.Elements() > 1 { // a number is known by its value
				s.names = []string{clip(t.Name)}
			}
			w.of[graph.TensorID(i)] = s
		}
	}
	writes := map[graph.TensorID]bool{} // of the programs that are shown
	graphs := map[graph.GraphID]bool{}
	for _, p := range main {
		visit(e, p.Steps, graphs, func(t graph.TensorID) { writes[t] = true })
	}
	for i := range e.Tensors {
		if t := &e.Tensors[i]; t.Persistent && !writes[graph.TensorID(i)] {
			w.of[graph.TensorID(i)] = &source{names: []string{clip(t.Name)}}
		}
	}
	for i := range e.Programs {
		if p := &e.Programs[i]; !slices.Contains(main, p) {
			w.load(e, p.Steps, writes, name)
		}
	}
	uses := usesIn(e)
	for id := range graphs {
		w.fold(e, id, uses)
	}
	return w
}

// visit tells of everything that steps write, with the graphs that they run.
func visit(e *graph.Executable, steps []graph.Step, seen map[graph.GraphID]bool, write func(graph.TensorID)) {
	var run func(graph.GraphID)
	run = func(id graph.GraphID) {
		if seen[id] {
			return
		}
		seen[id] = true
		for i := range e.Graphs[id].Nodes {
			n := &e.Graphs[id].Nodes[i]
			for _, t := range n.Outputs {
				write(t)
			}
			for _, s := range graphsOf(n.Op) {
				run(s.id)
			}
		}
	}
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case graph.CopyIn:
			write(s.Tensor)
		case graph.Call:
			run(s.Graph)
		case graph.Repeat:
			visit(e, s.Body, seen, write)
		}
	}
}

// load follows a program that only prepares weights.
func (w *weights) load(e *graph.Executable, steps []graph.Step, writes map[graph.TensorID]bool, name func(graph.StreamID) string) {
	put := func(t graph.TensorID, s *source) {
		if t != graph.None && !writes[t] { // else it is state, which begins with this
			w.of[t] = s
		}
	}
	for i := range steps {
		switch s := &steps[i]; s.Kind {
		case graph.CopyIn:
			put(s.Tensor, &source{names: []string{clip(name(s.Stream))}})
		case graph.Repeat:
			w.load(e, s.Body, writes, name)
		case graph.Call:
			for k := range e.Graphs[s.Graph].Nodes {
				n := &e.Graphs[s.Graph].Nodes[k]
				from := w.computed(n)
				for _, t := range n.Outputs {
					put(t, from)
				}
			}
		}
	}
}

// computed is where the results of a node come from.
func (w *weights) computed(n *graph.Node) *source {
	s := &source{}
	for _, t := range n.Inputs {
		if o := w.of[t]; o != nil {
			s.add(o)
		}
	}
	s.add(&source{ops: []string{titleOf(n.Op)}})
	return s
}

// elsewhere is the reader of a tensor that leaves its graph.
var elsewhere = node{-1, -1}

// usesIn lists what reads every tensor.
func usesIn(e *graph.Executable) map[graph.TensorID][]node {
	uses := map[graph.TensorID][]node{}
	for g := range e.Graphs {
		for i := range e.Graphs[g].Nodes {
			for _, t := range e.Graphs[g].Nodes[i].Inputs {
				if t != graph.None {
					uses[t] = append(uses[t], node{graph.GraphID(g), i})
				}
			}
		}
		for _, t := range e.Graphs[g].Results {
			uses[t] = append(uses[t], elsewhere)
		}
	}
	var sent func([]graph.Step)
	sent = func(steps []graph.Step) {
		for i := range steps {
			if steps[i].Kind == graph.CopyOut {
				uses[steps[i].Tensor] = append(uses[steps[i].Tensor], elsewhere)
			}
			sent(steps[i].Body)
		}
	}
	for i := range e.Programs {
		sent(e.Programs[i].Steps)
	}
	return uses
}

// fold finds the nodes of a graph that compute weights for other nodes of it.
func (w *weights) fold(e *graph.Executable, id graph.GraphID, uses map[graph.TensorID][]node) {
	nodes := e.Graphs[id].Nodes
	for i := range nodes {
		n := &nodes[i]
		if !w.foldable(e, id, n, uses) {
			continue
		}
		from := w.computed(n)
		first := len(nodes)
		for _, t := range n.Outputs {
			if t != graph.None {
				w.of[t] = from
				for _, u := range uses[t] {
					first = min(first, u.index)
				}
			}
		}
		w.into[node{id, i}] = node{id, first}
	}
	for i := len(nodes) - 1; i >= 0; i-- { // to the reader that is drawn
		if r, ok := w.into[node{id, i}]; ok {
			if further, ok := w.into[r]; ok {
				w.into[node{id, i}] = further
			}
		}
	}
}

func (w *weights) foldable(e *graph.Executable, id graph.GraphID, n *graph.Node, uses map[graph.TensorID][]node) bool {
	read := 0
	for _, t := range n.Inputs {
		if t == graph.None {
			continue
		}
		if !w.isWeight(t) {
			return false
		}
		read++
	}
	if read == 0 || len(graphsOf(n.Op)) > 0 {
		return false
	}
	used := false
	for _, t := range n.Outputs {
		if t == graph.None {
			continue
		}
		if e.Tensors[t].Persistent {
			return false
		}
		for _, u := range uses[t] {
			if u.graph != id {
				return false
			}
			used = true
		}
	}
	return used
}
