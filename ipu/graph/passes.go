package graph

import (
	"fmt"
	"slices"
	"strings"
)

// Pass is one optimisation of a verified executable. It keeps streams, programs
// and what they compute.
type Pass struct {
	Name string // what Optimize's disabled calls it
	Run  func(*Executable)
}

// Passes are the optimisations, in the order in which Optimize runs them.
var Passes = []Pass{
	{"identity", removeIdentities},
	{"dead-code", removeDead},
}

// Optimize runs all [Passes] but the disabled ones on e, in place. It verifies
// e before the first and after each.
func Optimize(e *Executable, disabled ...string) error {
	names := make([]string, len(Passes))
	for i, p := range Passes {
		names[i] = p.Name
	}
	for _, d := range disabled {
		if !slices.Contains(names, d) {
			return fmt.Errorf("optimise executable %q: there is no pass %q to disable, want one of %s", e.Name, d, strings.Join(names, ", "))
		}
	}
	if err := Verify(e); err != nil {
		return fmt.Errorf("optimise executable %q: %w", e.Name, err)
	}
	for _, p := range Passes {
		if slices.Contains(disabled, p.Name) {
			continue
		}
		p.Run(e)
		if err := Verify(e); err != nil {
			return fmt.Errorf("optimise executable %q: after pass %s: %w", e.Name, p.Name, err)
		}
	}
	return nil
}

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

// removeIdentities lets the readers of a node that changes nothing read the
// node's operand. The node itself is left to the dead-code pass.
//
// The operand must hold, wherever the result is read, the value that it held
// when the node ran. That is so for a constant, for a tensor that a node before
// this one in the same graph or the graph's caller wrote, for a tensor that no
// program fills in more than one step, and for a persistent tensor that is not
// written by nodes and not filled by programs that compute.
func removeIdentities(e *Executable) {
	w := findWrites(e)
	alias := make([]TensorID, len(e.Tensors))
	for i := range alias {
		alias[i] = TensorID(i)
	}
	to := func(id TensorID) TensorID { return alias[id] }
	for g := range e.Graphs {
		for i := range e.Graphs[g].Nodes {
			n := &e.Graphs[g].Nodes[i]
			n.Inputs = remap(n.Inputs, to)
			if len(n.Outputs) == 0 || n.Outputs[0] == None || !isIdentity(e, n) {
				continue
			}
			x, y := n.Inputs[0], n.Outputs[0]
			if !e.Tensors[y].Persistent && w.steady(e, x, GraphID(g)) {
				alias[y] = x
			}
		}
	}
	// Graphs are not in the order of their calls: readers of a result may
	// come before its node.
	for g := range e.Graphs {
		gr := &e.Graphs[g]
		gr.Results = remap(gr.Results, to)
		for i := range gr.Nodes {
			gr.Nodes[i].Inputs = remap(gr.Nodes[i].Inputs, to)
		}
	}
	forSteps(e, func(_ int, s *Step) {
		if s.Kind == CopyOut {
			s.Tensor = alias[s.Tensor]
		}
	})
}

// isIdentity reports whether a node's result is its only operand, bit for bit.
func isIdentity(e *Executable, n *Node) bool {
	if len(n.Inputs) == 0 || n.Inputs[0] == None {
		return false
	}
	in := e.Tensors[n.Inputs[0]].Type
	if !in.Equal(e.Tensors[n.Outputs[0]].Type) {
		return false
	}
	switch op := n.Op.(type) {
	case *Reshape, *Expand, *Cast:
		return true // the types say it all
	case *Transpose:
		return slices.IsSorted(op.Perm)
	case *Concat:
		return len(n.Inputs) == 1
	case *Slice:
		for i, d := range in.Shape {
			if d > 1 && op.Step[i] != 1 {
				return false
			}
		}
		return true
	case *Pad:
		isZero := func(p int64) bool { return p == 0 }
		return all(op.Before, isZero) && all(op.After, isZero)
	}
	return false
}

func all(v []int64, ok func(int64) bool) bool {
	return !slices.ContainsFunc(v, func(x int64) bool { return !ok(x) })
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
