package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
)

// GradGraph is the graph that computes gradients of a [Graph], with what it takes: PopXL's GradGraphInfo.
type GradGraph struct {
	g        *Graph
	info     *autodiff.Info // nil if there was a mistake, which has been kept
	provided []int          // results
	required []int          // parameters
}

// AnyResult is a [Result] of any element type.
type AnyResult interface{ result() (*Graph, int) }

func (r Result[T]) result() (*Graph, int) { return r.g, r.at }

// GradOptions say which gradients [Graph.Autodiff] takes and gives.
type GradOptions struct {
	Provided []AnyResult // results whose gradients a call gives: PopXL's grads_provided; nil for all of floats
	Required []AnyParam  // parameters whose gradients are wanted: PopXL's grads_required; nil for all of floats
}

// ConnectionKind says what a tensor of a gradient graph is to the graph of which it has the gradients.
type ConnectionKind uint8

// The kinds of [Connection], with PopXL's names.
const (
	Fwd     ConnectionKind = iota // a tensor of the graph
	FwdGrad                       // the gradient of one
)

// String returns "Fwd" or "FwdGrad".
func (k ConnectionKind) String() string { return autodiff.LinkKind(k).String() }

// Connection is a tensor that a gradient graph takes or gives: PopXL's ExpectedConnection.
type Connection struct {
	Kind ConnectionKind
	Name string // of the graph's tensor
}

// Autodiff makes the graph that computes gradients of g, PopXL's autodiff, once: [GradGraph.Call] calls it for any call of g. A parameter that has no influence, and an operator without a gradient on the way, are mistakes, which
// name what is in the way.
func (g *Graph) Autodiff(o GradOptions) *GradGraph {
	const call = "popxl.Graph.Autodiff"
	out := &GradGraph{g: g}
	if g == nil || !g.ir.usable() || g.state == broken {
		return out
	}
	if err := g.differentiate(o, out); err != nil {
		g.ir.fail(call, fmt.Errorf("graph %q: %w", g.name, err))
	}
	return out
}

func (g *Graph) differentiate(o GradOptions, out *GradGraph) error {
	ir := g.ir
	switch {
	case ir.taken:
		return ErrTaken
	case g.state == building || len(ir.nest) > 0:
		return errNested
	case o.Provided == nil:
		for i, r := range g.out {
			if _, id := r.operand(); floating(ir.b.Type(id).DType) {
				out.provided = append(out.provided, i)
			}
		}
	}
	if o.Required == nil {
		for i, p := range g.params {
			if floating(ir.b.Type(p.id).DType) {
				out.required = append(out.required, i)
			}
		}
	}
	for _, r := range o.Provided {
		of, at := (*Graph)(nil), -1
		if r != nil {
			of, at = r.result()
		}
		if of != g || at < 0 {
			return errors.New("a provided result is of another graph, or none")
		}
		out.provided = append(out.provided, at)
	}
	for _, p := range o.Required {
		of, at := (*Graph)(nil), -1
		if p != nil {
			of, at = p.parameter()
		}
		if of != g || at < 0 {
			return errors.New("a required parameter is of another graph, or none")
		}
		out.required = append(out.required, at)
	}
	options := autodiff.Options{Detached: ir.detached, Name: g.name + ": gradients"}
	for _, at := range out.provided {
		_, id := g.out[at].operand()
		options.Provided = append(options.Provided, id)
	}
	for _, at := range out.required {
		options.Required = append(options.Required, g.params[at].id)
	}
	info, err := ir.appended(func(exe *graph.Executable) (*autodiff.Info, error) { return autodiff.Backward(exe, g.body.id, options) })
	if err != nil {
		return err
	}
	out.info = info
	return nil
}

func floating(t graph.DType) bool { return t.IsFloat() && t.Size() > 1 }

// appended lets f append to the executable so far.
func (ir *Ir) appended(f func(*graph.Executable) (*autodiff.Info, error)) (*autodiff.Info, error) {
	current := ir.b.CurrentGraph()
	exe, err := ir.b.Finish()
	if err != nil {
		return nil, err
	}
	info, err := f(exe)
	ir.b = graph.Continue(exe)
	ir.b.SetGraph(current)
	return info, err
}

// Inputs returns what the gradient graph takes: the gradients of the provided results, then the tensors of the graph that it reads, parameters included; nil if there was a mistake.
func (gg *GradGraph) Inputs() []Connection {
	return gg.connections(func(i *autodiff.Info) []autodiff.Link { return i.Inputs })
}

// Outputs returns what the gradient graph gives: the gradients of the required parameters, in their order; nil if there was a mistake.
func (gg *GradGraph) Outputs() []Connection {
	return gg.connections(func(i *autodiff.Info) []autodiff.Link { return i.Outputs })
}

func (gg *GradGraph) connections(of func(*autodiff.Info) []autodiff.Link) []Connection {
	if gg == nil || gg.info == nil {
		return nil
	}
	var all []Connection
	for _, l := range of(gg.info) {
		all = append(all, Connection{ConnectionKind(l.Kind), gg.g.ir.b.Tensor(l.Forward).Name})
	}
	return all
}

// Seed is the gradient of a result, with which [GradGraph.Call] begins.
type Seed struct {
	g     *Graph
	at    int
	value Operand
}

// Gradient returns that the gradient of the result is dy, of its shape.
func (r Result[T]) Gradient(dy Tensor[T]) Seed { return Seed{r.g, r.at, dy} }

// GradCall is a call of a gradient graph; [GradientOf] returns one of the gradients.
type GradCall struct {
	gg    *GradGraph
	grads []Operand // by required parameter; nil if the call failed
}

// Call adds a call of the gradient graph for a call of the graph, with the gradients of the provided results. What the graph's call has computed is used, not computed again: both stand in the same function, or both in none.
func (gg *GradGraph) Call(forward *CallInfo, seeds ...Seed) *GradCall {
	const call = "popxl.GradGraph.Call"
	out := &GradCall{gg: gg}
	if gg == nil || gg.info == nil || forward == nil {
		return out
	}
	if forward.out == nil {
		return out
	}
	grads, err := gg.call(forward, seeds)
	if err != nil {
		gg.g.ir.fail(call, fmt.Errorf("graph %q: %w", gg.g.name, inner(err)))
		return out
	}
	out.grads = grads
	return out
}

func (gg *GradGraph) call(forward *CallInfo, seeds []Seed) ([]Operand, error) {
	g, ir := gg.g, gg.g.ir
	switch {
	case ir.taken:
		return nil, ErrTaken
	case forward.names == nil || forward.graphs[0] != g:
		return nil, errors.New("the call is not one of this graph, made with Graph.Call: gradients of loops and choices come from popxl.Gradients")
	case forward.frame != ir.frame():
		return nil, errors.New("the graph is called in another function than the gradient graph: call both in the same")
	}
	names := map[graph.TensorID]graph.TensorID{}
	for t, c := range forward.names {
		names[t] = c
	}
	given := make([]Operand, len(gg.provided))
	for _, s := range seeds {
		i := slices.Index(gg.provided, s.at)
		if s.g != g || i < 0 || given[i] != nil {
			return nil, errors.New("a gradient is given twice, or of a result that is not provided")
		}
		given[i] = s.value
	}
	if i := slices.Index(given, nil); i >= 0 {
		return nil, fmt.Errorf("the gradient of result %d is not given", gg.provided[i])
	}
	of, ids, err := resolve(given)
	switch {
	case err != nil:
		return nil, err
	case ids == nil:
		return nil, nil
	case of != ir:
		return nil, errors.New("a gradient is of another Ir")
	}
	for i, id := range ids {
		in := gg.info.Inputs[i]
		if got, want := ir.b.Type(id), ir.b.Type(in.Tensor); !got.Equal(want) {
			return nil, fmt.Errorf("the gradient of result %d is %v, want %v", gg.provided[i], got, want)
		}
		names[in.Tensor] = id
	}
	if len(ir.nest) == 0 {
		ir.enter(backward)
	}
	if err := ir.copied(ir.b.Graph(gg.info.Graph).Nodes, names); err != nil {
		return nil, err
	}
	ir.held = append(ir.held, substituted(slices.DeleteFunc(slices.Clone(gg.info.Held), func(t graph.TensorID) bool { _, ok := names[t]; return !ok }), names)...)
	grads := make([]Operand, len(gg.required))
	for i, l := range gg.info.Outputs {
		grads[i] = ir.renamed(g.params[gg.required[i]].of.with(ir, l.Tensor), names)
	}
	return grads, nil
}

// ParamOf is a [Param] or a [Ref] with elements of type T.
type ParamOf[T Element] interface {
	AnyParam
	Tensor() Tensor[T]
}

// GradientOf returns the gradient of a parameter, which was required: of its shape and type.
func GradientOf[T Float](c *GradCall, x ParamOf[T]) Tensor[T] {
	const call = "popxl.GradientOf"
	if c == nil || c.gg == nil || c.gg.g == nil {
		return Tensor[T]{}
	}
	var g *Graph
	at := -1
	if x != nil {
		g, at = x.parameter()
	}
	i := slices.Index(c.gg.required, at)
	switch {
	case c.grads == nil:
		return Failed[T](c.gg.g.ir)
	case g != c.gg.g || i < 0:
		return Fail[T](c.gg.g.ir, call, errors.New("this gradient was not required: name the parameter in GradOptions"))
	}
	return As[T](c.grads[i])
}
