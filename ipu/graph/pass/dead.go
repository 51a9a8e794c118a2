package pass

import "github.com/popefgen/popefgen/ipu/graph"

// removeDead removes nodes whose results nobody reads, what graphs that nothing
// runs hold, and tensors that are left without a reference. CopyIn steps stay,
// with their tensors: which streams a program moves is its contract with the
// host.
func removeDead(e *graph.Executable) {
	l := findLive(e)
	for g := range e.Graphs {
		gr := &e.Graphs[g]
		if !l.runs[g] {
			*gr = graph.Graph{Name: gr.Name}
			continue
		}
		kept := make([]graph.Node, 0, len(gr.Nodes))
		for _, n := range gr.Nodes {
			if !l.node(&n) {
				continue
			}
			n.Outputs = remap(n.Outputs, func(id graph.TensorID) graph.TensorID {
				if !l.tensor[id] {
					return graph.None
				}
				return id
			})
			for len(n.Outputs) > 0 && n.Outputs[len(n.Outputs)-1] == graph.None {
				n.Outputs = n.Outputs[:len(n.Outputs)-1]
			}
			kept = append(kept, n)
		}
		gr.Nodes = kept
	}
	removeTensors(e)
}

// liveness says what of an executable matters.
type liveness struct {
	runs   []bool // per graph: a program runs it, directly or through an operator
	tensor []bool // per tensor: something that matters reads it
}

// node reports whether a node of a graph that runs matters. One that has an
// effect always does.
func (l *liveness) node(n *graph.Node) bool {
	if graph.HasEffect(n.Op) {
		return true
	}
	for _, t := range n.Outputs {
		if t != graph.None && l.tensor[t] {
			return true
		}
	}
	return false
}

func findLive(e *graph.Executable) *liveness {
	l := &liveness{make([]bool, len(e.Graphs)), make([]bool, len(e.Tensors))}
	var todo []graph.TensorID
	read := func(ids ...graph.TensorID) {
		for _, id := range ids {
			if id != graph.None && !l.tensor[id] {
				l.tensor[id] = true
				todo = append(todo, id)
			}
		}
	}
	// writers[t] are the nodes, of graphs that run, that write t.
	writers := make([][]*graph.Node, len(e.Tensors))
	var run func(g graph.GraphID)
	run = func(g graph.GraphID) {
		if l.runs[g] {
			return
		}
		l.runs[g] = true
		read(e.Graphs[g].Results...)
		for i := range e.Graphs[g].Nodes {
			n := &e.Graphs[g].Nodes[i]
			for _, t := range n.Outputs {
				if t != graph.None {
					writers[t] = append(writers[t], n)
				}
			}
			if graph.HasEffect(n.Op) {
				read(n.Inputs...)
			}
			for _, sub := range graph.Subgraphs(n.Op) {
				run(sub)
			}
		}
	}
	forSteps(e, func(_ int, s *graph.Step) {
		switch s.Kind {
		case graph.Call:
			run(s.Graph)
		case graph.CopyOut:
			read(s.Tensor)
		}
	})
	for len(todo) > 0 {
		t := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range writers[t] {
			read(n.Inputs...)
		}
		writers[t] = nil
	}
	return l
}

// removeTensors removes tensors that nothing refers to and renumbers the rest.
func removeTensors(e *graph.Executable) {
	used := make([]bool, len(e.Tensors))
	mark := func(id graph.TensorID) graph.TensorID { used[id] = true; return id }
	everyReference(e, mark)
	number := make([]graph.TensorID, len(e.Tensors))
	kept := make([]graph.Tensor, 0, len(e.Tensors))
	for i, t := range e.Tensors {
		if used[i] {
			number[i] = graph.TensorID(len(kept))
			kept = append(kept, t)
		}
	}
	e.Tensors = kept
	everyReference(e, func(id graph.TensorID) graph.TensorID { return number[id] })
}

// everyReference replaces every reference to a tensor by to.
func everyReference(e *graph.Executable, to func(graph.TensorID) graph.TensorID) {
	for g := range e.Graphs {
		gr := &e.Graphs[g]
		gr.Params, gr.Results = remap(gr.Params, to), remap(gr.Results, to)
		for i := range gr.Nodes {
			gr.Nodes[i].Inputs = remap(gr.Nodes[i].Inputs, to)
			gr.Nodes[i].Outputs = remap(gr.Nodes[i].Outputs, to)
		}
	}
	forSteps(e, func(_ int, s *graph.Step) {
		if s.Kind == graph.CopyIn || s.Kind == graph.CopyOut {
			s.Tensor = to(s.Tensor)
		}
	})
}
