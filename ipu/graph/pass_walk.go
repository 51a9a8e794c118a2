package graph

// forSteps visits every step of every program, bodies included.
func forSteps(e *Executable, visit func(program int, s *Step)) {
	for i := range e.Programs {
		visitSteps(e.Programs[i].Steps, func(s *Step) { visit(i, s) })
	}
}

func visitSteps(steps []Step, visit func(*Step)) {
	for i := range steps {
		visit(&steps[i])
		visitSteps(steps[i].Body, visit)
	}
}

// remap replaces tensor references by to. It makes new lists: a program that
// built the executable may have used one list twice.
func remap(ids []TensorID, to func(TensorID) TensorID) []TensorID {
	if len(ids) == 0 {
		return nil
	}
	out := make([]TensorID, len(ids))
	for i, id := range ids {
		if out[i] = id; id != None {
			out[i] = to(id)
		}
	}
	return out
}

// writes says who writes each tensor.
type writes struct {
	graph  []GraphID // the graph whose node writes it or whose parameter it is; -1 if none
	copied []bool    // a CopyIn step writes it
	often  []bool    // more than one CopyIn step of one program does
	mixed  []bool    // a CopyIn step of a program that calls graphs does
}

func findWrites(e *Executable) *writes {
	n := len(e.Tensors)
	w := &writes{make([]GraphID, n), make([]bool, n), make([]bool, n), make([]bool, n)}
	for i := range w.graph {
		w.graph[i] = -1
	}
	for g := range e.Graphs {
		for _, t := range e.Graphs[g].Params {
			w.graph[t] = GraphID(g)
		}
		for i := range e.Graphs[g].Nodes {
			for _, t := range e.Graphs[g].Nodes[i].Outputs {
				if t != None {
					w.graph[t] = GraphID(g)
				}
			}
		}
	}
	calls := make([]bool, len(e.Programs))
	forSteps(e, func(p int, s *Step) { calls[p] = calls[p] || s.Kind == Call })
	last := make([]int, n) // the last program that filled a tensor, plus 1
	forSteps(e, func(p int, s *Step) {
		if s.Kind != CopyIn {
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
func (w *writes) steady(e *Executable, x TensorID, g GraphID) bool {
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
