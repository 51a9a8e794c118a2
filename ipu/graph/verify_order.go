package graph

import (
	"errors"
	"fmt"
	"math"
)

// begin starts a walk in which no local tensor is defined.
func (v *verifier) begin() {
	if v.mark == nil {
		v.mark = make([]int32, len(v.e.Tensors))
	}
	v.walk++
}

func (v *verifier) defined(id TensorID) bool { return v.mark[id] == v.walk }
func (v *verifier) define(id TensorID)       { v.mark[id] = v.walk }

// nesting checks that no graph uses itself and summarises every graph.
func (v *verifier) nesting() error {
	v.summary = make([]graphSummary, len(v.e.Graphs))
	for i := range v.e.Graphs {
		if err := v.summarise(GraphID(i), 1); err != nil {
			return err
		}
	}
	return nil
}

// summarise fills in the summary of a graph, after those it uses.
func (v *verifier) summarise(id GraphID, depth int) error {
	s, g := &v.summary[id], &v.e.Graphs[id]
	switch s.state {
	case 1:
		return fmt.Errorf("%s uses itself", v.graphName(id))
	case 2:
		return nil
	}
	if depth > MaxNesting {
		return fmt.Errorf("%s is nested deeper than %d", v.graphName(id), MaxNesting)
	}
	s.state, s.depth = 1, 1
	for i := range g.Nodes {
		for _, sub := range Subgraphs(g.Nodes[i].Op) {
			if err := v.summarise(sub, depth+1); err != nil {
				return err
			}
			if s.depth = max(s.depth, v.summary[sub].depth+1); s.depth > MaxNesting {
				return fmt.Errorf("%s nests graphs deeper than %d", v.graphName(id), MaxNesting)
			}
		}
	}
	s.state = 2

	// A tensor that is read here before it is written here must come from
	// outside. Marking it defined lists it once.
	v.begin()
	need := func(ids []TensorID) error {
		for _, t := range ids {
			if t != None && v.local(t) && !v.defined(t) {
				v.define(t)
				s.reads = append(s.reads, t)
			}
		}
		return v.count(len(ids))
	}
	for _, p := range g.Params {
		v.define(p)
	}
	used := map[GraphID]bool{}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		if err := need(n.Inputs); err != nil {
			return err
		}
		for _, sub := range Subgraphs(n.Op) {
			if used[sub] {
				continue
			}
			used[sub] = true
			if err := need(v.summary[sub].reads); err != nil {
				return err
			}
		}
		for _, t := range n.Outputs {
			if t == None || !v.local(t) {
				continue
			}
			if v.defined(t) {
				return v.nodeError(id, i, fmt.Errorf("%s is read before it is written", v.tensorName(t)))
			}
			v.define(t)
			s.writes = append(s.writes, t)
		}
	}
	return need(g.Results)
}

// programs checks indices and that along every program local tensors are
// written before they are read. One pass through a Repeat body is enough: what
// is missing is missing in its first iteration.
func (v *verifier) programs() error {
	called := make([]int32, len(v.e.Graphs)) // last walk that called a graph
	for i := range v.e.Programs {
		p := &v.e.Programs[i]
		if p.Index < 0 || p.Index > math.MaxInt32 || i > 0 && p.Index <= v.e.Programs[i-1].Index {
			return v.programError(i, errors.New("its index is not between 0 and 2^31-1 and above that of the program before it"))
		}
		v.begin()
		err := v.steps(p.Steps, 0, func(s *Step) error {
			switch s.Kind {
			case CopyIn:
				v.define(s.Tensor)
			case CopyOut:
				if v.local(s.Tensor) && !v.defined(s.Tensor) {
					return fmt.Errorf("%s is read, but nothing has written it yet", v.tensorName(s.Tensor))
				}
			case Call:
				// What was defined stays so: a second call finds no less.
				if called[s.Graph] == v.walk {
					return nil
				}
				called[s.Graph] = v.walk
				return v.call(s.Graph)
			}
			return nil
		})
		if err != nil {
			return v.programError(i, err)
		}
	}
	return nil
}

// call checks that a graph finds defined what it reads.
func (v *verifier) call(g GraphID) error {
	s := &v.summary[g]
	if err := v.count(len(s.reads) + len(s.writes)); err != nil {
		return err
	}
	for _, t := range s.reads {
		if !v.defined(t) {
			return fmt.Errorf("%s reads %s, but nothing has written it yet", v.graphName(g), v.tensorName(t))
		}
	}
	for _, t := range s.writes {
		v.define(t)
	}
	return nil
}
