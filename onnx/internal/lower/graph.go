package lower

import (
	"fmt"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// Bounds on what is written out in place of a loop, and on the work of trying.
const (
	maxUnrolledNodes = 4096    // nodes of the executable
	maxUnrolledWork  = 1 << 16 // nodes of the model, folded ones included
	maxTriedWork     = 1 << 14 // nodes of the model in all attempts that came to nothing
)

// subgraph is a graph that a node has as attribute, ready to be lowered once
// or, as the body of a loop, several times.
type subgraph struct {
	*onnx.Graph
	c     *Call
	what  string
	scope *scope // holds the initialisers
	env   environment
}

// Subgraph returns the graph that an attribute holds.
func (c *Call) Subgraph(name string) *subgraph {
	a := c.must(name)
	if a.Graph == nil {
		c.Fail("attribute %q is missing", name)
	}
	if c.env.depth >= onnx.MaxDepth {
		c.Fail("%w", onnx.ErrDepth)
	}
	s := &subgraph{Graph: a.Graph, c: c, what: name, scope: newScope(c.sc), env: *c.env}
	if err := c.l.initializers(s.scope, s.Graph); err != nil {
		c.Fail("%s: %w", name, err)
	}
	s.env.caller, s.env.node, s.env.what, s.env.depth = c.env, step{c.node, c.index}, name, c.env.depth+1
	return s
}

// Inline lowers the nodes of a subgraph at this place, with the given values
// for its inputs, and returns its outputs.
func (s *subgraph) Inline(inputs ...*Value) []*Value {
	c := s.c
	if len(inputs) != len(s.Inputs) {
		c.Fail("%s has %d inputs, want %d", s.what, len(s.Inputs), len(inputs))
	}
	sc := newScope(s.scope)
	for i, in := range s.Inputs {
		if sc.values[in.Name] != nil {
			c.Fail("%s: input %q is declared twice", s.what, in.Name)
		}
		if in.Elem != onnx.Undefined && in.Elem.DType() != inputs[i].Type.DType {
			c.Fail("%s: input %q is declared as %v, but its value is %v", s.what, in.Name, in.Elem, inputs[i].Type)
		}
		sc.values[in.Name] = inputs[i]
	}
	names := s.Graph.OutputNames()
	order, err := schedule(s.Nodes, names, sc)
	if err != nil {
		c.Fail("%s: %w", s.what, err)
	}
	c.inside = true
	c.l.nodes(sc, &s.env, order)
	out := make([]*Value, len(names))
	for i, n := range names {
		if out[i] = sc.lookup(n); out[i].why != nil {
			panic(failure{out[i].why})
		}
		if out[i].bad {
			panic(failure{errPoisoned})
		}
	}
	return out
}

// outline makes f's nodes those of a graph of their own.
func (c *Call) outline(name string, f func()) graph.GraphID {
	l := c.l
	around := l.current
	id := graph.GraphID(len(l.exe.Graphs))
	l.exe.Graphs = append(l.exe.Graphs, graph.Graph{Name: c.base() + "/" + name})
	l.current = id
	defer func() { l.current = around }()
	f()
	return id
}

// results makes values the results of a graph.
func (c *Call) results(g graph.GraphID, values []*Value) {
	ids := make([]graph.TensorID, len(values))
	for i, v := range values {
		ids[i] = c.l.materialise(v)
	}
	c.l.exe.Graphs[g].Results = ids
}

// emitGraphs applies an operator that runs graphs; deps are the values that
// these graphs' results depend on. It returns all results.
func (c *Call) emitGraphs(op graph.GraphOp, deps []*Value, in ...*Value) []*Value {
	node := graph.Node{Op: op, Name: c.name()}
	types := make([]graph.TensorType, len(in))
	for i, v := range in {
		id := graph.None
		if v != nil {
			id, types[i] = c.l.materialise(v), v.Type
			deps = append(deps, v)
		}
		node.Inputs = append(node.Inputs, id)
	}
	results, err := c.l.exe.Infer(op, types)
	if err != nil {
		panic(failure{err})
	}
	out := make([]*Value, len(results))
	for i, t := range results {
		id := c.l.tensor(graph.Tensor{Name: c.base() + "/" + op.Kind(), Type: t})
		out[i] = &Value{Type: t, tensor: id, deps: deps}
		node.Outputs = append(node.Outputs, id)
	}
	g := c.l.graph()
	g.Nodes = append(g.Nodes, node)
	return out
}

// attempt is the state of a lowering to which it can go back.
type attempt struct {
	l                                                   *lowerer
	tensors, graphs, nodes, mainNodes                   int
	weights, warnings, obstacles, needs, errs, journals int
	count, problems                                     int
}

// try starts an attempt. Until it is kept or undone, whatever changes in what
// was there before is noted in the journal.
func (l *lowerer) try() *attempt {
	l.attempts++
	return &attempt{l, len(l.exe.Tensors), len(l.exe.Graphs), len(l.graph().Nodes), len(l.exe.Graphs[l.root].Nodes),
		len(l.weights), len(l.warnings), len(l.obstacles), len(l.needs), len(l.errs), len(l.journal), l.count, l.problems}
}

// note keeps how to undo a change to what an attempt may have found.
func (l *lowerer) note(undo func()) {
	if l.attempts > 0 {
		l.journal = append(l.journal, undo)
	}
}

// try runs f, which may fail in the ways in which a node can, and reports
// whether it did its work. If not, all is as before.
func (c *Call) try(f func(a *attempt) bool) bool { return c.attempt(f) == nil }

// attempt is try that says what was in the way.
func (c *Call) attempt(f func(a *attempt) bool) (why error) {
	a := c.l.try()
	ok := false
	defer func() {
		if r := recover(); r != nil {
			f, failed := r.(failure)
			if !failed {
				panic(r)
			}
			why = f.err
		}
		if ok && !a.failed() {
			a.keep()
			return
		}
		if err := a.reported(); err != nil {
			why = err
		}
		if why == nil {
			why = errPoisoned
		}
		a.undo()
	}()
	ok = f(a)
	return nil
}

// reported returns the first problem that was reported since, nil if none was.
func (a *attempt) reported() error {
	l := a.l
	switch {
	case len(l.errs) > a.errs:
		return l.errs[a.errs]
	case len(l.obstacles) > a.obstacles:
		o := l.obstacles[a.obstacles]
		return fmt.Errorf("%s is not supported: %s", o.What, strings.Join(o.Nodes, ", "))
	case len(l.needs) > a.needs:
		n := l.needs[a.needs]
		return fmt.Errorf("%s: %w", n.Node, &need{n.Operand, n.Inputs, n.Max})
	}
	return nil
}

// failed reports whether something was reported since.
func (a *attempt) failed() bool { return a.l.problems > a.problems }

// added returns how many nodes the executable got since.
func (a *attempt) added() int { return len(a.l.graph().Nodes) - a.nodes }

// keep ends the attempt with what it did.
func (a *attempt) keep() {
	if a.l.attempts--; a.l.attempts == 0 {
		a.l.journal = nil
	}
}

// undo ends the attempt as if it had never been.
func (a *attempt) undo() {
	l := a.l
	for len(l.journal) > a.journals {
		last := len(l.journal) - 1
		l.journal[last]()
		l.journal = l.journal[:last]
	}
	l.exe.Tensors, l.exe.Graphs = l.exe.Tensors[:a.tensors], l.exe.Graphs[:a.graphs]
	l.graph().Nodes = l.graph().Nodes[:a.nodes]
	l.exe.Graphs[l.root].Nodes = l.exe.Graphs[l.root].Nodes[:a.mainNodes]
	l.weights, l.warnings, l.obstacles = l.weights[:a.weights], l.warnings[:a.warnings], l.obstacles[:a.obstacles]
	l.needs, l.errs = l.needs[:a.needs], l.errs[:a.errs]
	l.tried += l.count - a.count
	l.count, l.problems = a.count, a.problems
	a.keep()
}
