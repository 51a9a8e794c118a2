package pass

import "github.com/popefgen/popefgen/ipu/graph"

// forSteps visits every step of every program, bodies included.
func forSteps(e *graph.Executable, visit func(program int, s *graph.Step)) {
	for i := range e.Programs {
		graph.Walk(e.Programs[i].Steps, func(s *graph.Step) { visit(i, s) })
	}
}

// remap replaces tensor references by to. It makes new lists: a program that
// built the executable may have used one list twice.
func remap(ids []graph.TensorID, to func(graph.TensorID) graph.TensorID) []graph.TensorID {
	if len(ids) == 0 {
		return nil
	}
	out := make([]graph.TensorID, len(ids))
	for i, id := range ids {
		if out[i] = id; id != graph.None {
			out[i] = to(id)
		}
	}
	return out
}

// writes says who writes each tensor.
type writes struct {
	graph  []graph.GraphID // the graph whose node writes it or whose parameter it is; -1 if none
	copied []bool          // a CopyIn step writes it
	often  []bool          // more than one CopyIn step of one program does
	mixed  []bool          // a CopyIn step of a program that calls graphs does
}

func findWrites(e *graph.Executable) *writes {
	n := len(e.Tensors)
	w := &writes{make([]graph.GraphID, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	for i := range w.graph {
		w.graph[i] = -1
	}
	for g := range e.Graphs {
		for _, t := range e.Graphs[g].Params {
			w.graph[t] = graph.GraphID(g)
		}
		for i := range e.Graphs[g].Nodes {
			for _, t := range e.Graphs[g].Nodes[i].Outputs {
				if t != graph.None {
					w.graph[t] = graph.GraphID(g)
				}
			}
		}
	}
	calls := make([]bool, len(e.Programs))
	forSteps(e, func(p int, s *graph.Step) { calls[p] = calls[p] || s.Kind == graph.Call })
	last := make([]int, n) // the last program that filled a tensor, plus 1
	forSteps(e, func(p int, s *graph.Step) {
		if s.Kind != graph.CopyIn {
			return
		}
		t := s.Tensor
		w.copied[t] = true
		w.often[t] = w.often[t] || last[t] == p+1
		w.mixed[t] = w.mixed[t] || calls[p]
		last[t] = p + 1
	})
	return w
}

// steady reports whether x keeps the value that a node of graph g reads for as
// long as the node's result is read.
func (w *writes) steady(e *graph.Executable, x graph.TensorID, g graph.GraphID) bool {
	switch t := &e.Tensors[x]; {
	case t.Const:
		return true
	case t.Persistent:
		return w.graph[x] < 0 && !w.mixed[x]
	case w.copied[x]:
		return !w.often[x]
	default:
		return w.graph[x] == g
	}
}
