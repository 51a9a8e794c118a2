package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Graph is a graph that is called, any number of times, with tensors in place of its parameters: what PopXL's create_graph returns. It is built, and checked, once. Make it with [NewGraph].
type Graph struct {
	ir     *Ir
	name   string
	body   *frame
	params []parameter
	out    []Operand // results, in the order in which they were added
	stored []stored
	state  graphState
}

type graphState uint8

const (
	building graphState = iota
	built
	broken // a mistake in it has been kept
)

// parameter is one of a graph's parameters.
type parameter struct {
	name string
	of   Operand
	id   graph.TensorID
	ref  bool
	last Operand // of a reference: its value at the end of a call; nil if it does not change
}

var (
	errUnbuilt  = errors.New("the graph is still being built: call it behind NewGraph")
	errFinished = errors.New("the graph has been built: add parameters and results in the function that NewGraph calls")
)

// NewGraph makes a graph of what build adds to it, which is called once: parameters ([NewParam], [NewRef]), operators, loads and stores of streams, and results ([NewResult]). Operators may use variables, constants and other
// tensors from outside as they are; PopXL wants them as parameters. Variables are changed through references. name is for people.
func NewGraph(ir *Ir, name string, build func(g *Graph)) *Graph {
	const call = "popxl.NewGraph"
	g := &Graph{ir: ir, name: name, state: broken}
	switch {
	case !ir.usable():
		return g
	case ir.taken:
		ir.fail(call, ErrTaken)
		return g
	case build == nil:
		ir.fail(call, fmt.Errorf("%q: the function is nil", name))
		return g
	case len(ir.nest) > 0:
		ir.fail(call, fmt.Errorf("%q: %w", name, errNested))
		return g
	}
	before := len(ir.errs)
	g.state, g.body = building, newFrame(ir.subgraph(name), nil)
	g.body.called = true
	scopes := ir.scopes
	ir.scopes = []string{name}
	defer func() {
		ir.scopes = scopes
		if g.state == building {
			g.state = broken // it panicked
		}
	}()
	ir.inside(g.body, func() { build(g) })
	g.state = broken
	if len(ir.errs) > before || ir.taken {
		return g
	}
	var err error
	if g.stored, err = ir.gathered(g.body); err != nil {
		ir.fail(call, fmt.Errorf("%q: %w", name, inner(err)))
		return g
	}
	g.state = built
	return g
}

// Name returns the name for people.
func (g *Graph) Name() string {
	if g == nil {
		return ""
	}
	return g.name
}

// add checks that something can be added to a graph.
func (g *Graph) add(call, name string) bool {
	switch {
	case g == nil || !g.ir.usable():
		return false
	case g.state == built || g.state == building && g.ir.frame() != g.body:
		g.ir.fail(call, fmt.Errorf("%q: %w", name, errFinished))
		return false
	}
	return g.state == building
}

// Param is a parameter of a [Graph]: every call gives it a tensor.
type Param[T Element] struct {
	g  *Graph
	t  Tensor[T]
	at int // among the graph's parameters
}

// AnyParam is a [Param] or a [Ref] of any element type.
type AnyParam interface{ parameter() (*Graph, int) }

func (p Param[T]) parameter() (*Graph, int) { return p.g, p.at }

// NewParam adds a parameter to the graph that is being built: PopXL's graph_input. Without sizes it is a scalar.
func NewParam[T Element](g *Graph, name string, shape ...int64) Param[T] {
	return newParam[T]("popxl.NewParam", g, name, shape, false)
}

func newParam[T Element](call string, g *Graph, name string, shape []int64, ref bool) Param[T] {
	none := Param[T]{at: -1}
	if !g.add(call, name) {
		if g != nil {
			none.g, none.t.ir = g, g.ir
		}
		none.t.id = graph.None
		return none
	}
	none.g, none.t = g, Tensor[T]{g.ir, graph.None}
	if _, err := elements(shape, TypeOf[T]().Size()); err != nil {
		g.ir.fail(call, fmt.Errorf("%q: %w", name, err))
		return none
	}
	if slices.ContainsFunc(g.params, func(p parameter) bool { return p.name == name }) {
		g.ir.fail(call, fmt.Errorf("graph %q has a parameter %q already", g.name, name))
		return none
	}
	t := Tensor[T]{g.ir, g.ir.parameter(name, typed[T](shape))}
	g.params = append(g.params, parameter{name: name, of: t, id: t.id, ref: ref})
	return Param[T]{g, t, len(g.params) - 1}
}

// Tensor returns what a call gives, within the graph.
func (p Param[T]) Tensor() Tensor[T] { return p.t }

// Ref is a parameter of a [Graph] for which every call gives a variable, which the graph may change: PopXL's graph_input with by_ref.
type Ref[T Element] struct{ p Param[T] }

func (r Ref[T]) parameter() (*Graph, int) { return r.p.g, r.p.at }

// NewRef adds a reference to the graph that is being built. Without sizes it is a scalar.
func NewRef[T Element](g *Graph, name string, shape ...int64) Ref[T] {
	return Ref[T]{newParam[T]("popxl.NewRef", g, name, shape, true)}
}

// Tensor returns the variable's value: that at the beginning of the call, or what [Ref.Assign] has given it so far.
func (r Ref[T]) Tensor() Tensor[T] {
	if r.p.g == nil || r.p.at < 0 || r.p.g.params[r.p.at].last == nil {
		return r.p.t
	}
	return As[T](r.p.g.params[r.p.at].last)
}

// Assign gives the variable another value, x of its shape, which it has when the call ends.
func (r Ref[T]) Assign(x Tensor[T]) {
	const call = "popxl.Ref.Assign"
	g := r.p.g
	if g == nil || r.p.at < 0 {
		return
	}
	_, ids, err := resolve([]Operand{x})
	p := &g.params[r.p.at]
	switch {
	case err == nil && ids == nil:
		return
	case err != nil:
	case x.ir != g.ir:
		err = errors.New("the tensor is of another Ir")
	case g.state != building || g.ir.frame() != g.body:
		err = errFinished
	case !slices.Equal(x.Shape(), r.p.t.Shape()):
		err = fmt.Errorf("the value has shape %s, want that of the reference, %s", graph.ShapeString(x.Shape()), graph.ShapeString(r.p.t.Shape()))
	}
	if err != nil {
		g.ir.fail(call, fmt.Errorf("%q: %w", p.name, err))
		return
	}
	p.last = x
}

// Result is a result of a [Graph]: a tensor for each call, which [Result.Of] returns.
type Result[T Element] struct {
	g  *Graph
	t  Tensor[T]
	at int // among the graph's results
}

// NewResult adds x to the results of the graph that is being built: PopXL's graph_output.
func NewResult[T Element](g *Graph, x Tensor[T]) Result[T] {
	const call = "popxl.NewResult"
	if !g.add(call, "") {
		return Result[T]{g, Tensor[T]{}, -1}
	}
	_, ids, err := resolve([]Operand{x})
	if err == nil && ids != nil && x.ir != g.ir {
		err = errors.New("the tensor is of another Ir")
	}
	if err != nil {
		g.ir.fail(call, err)
	}
	if err != nil || ids == nil {
		return Result[T]{g, Tensor[T]{}, -1}
	}
	g.out = append(g.out, x)
	return Result[T]{g, x, len(g.out) - 1}
}

// Of returns the result of a call, of the last iteration of [Graph.Repeat], or of the branch of [Choose] that was computed.
func (r Result[T]) Of(call *CallInfo) Tensor[T] {
	const name = "popxl.Result.Of"
	switch {
	case call == nil || !call.ir.usable():
		return Tensor[T]{}
	case call.out == nil || r.at < 0 && r.g != nil:
		return Failed[T](call.ir)
	case !slices.Contains(call.graphs, r.g):
		return Fail[T](call.ir, name, errors.New("the result is of another graph than the call"))
	}
	return As[T](call.out[r.at])
}
