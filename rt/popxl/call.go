package popxl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// CallInfo is a call of a [Graph], a loop of it, or a choice between two: what PopXL's call_with_info, repeat_with_info and conditional_with_info return.
type CallInfo struct {
	ir     *Ir
	graphs []*Graph  // of which the results are
	out    []Operand // by result; nil if the call failed
	in     []Operand // by parameter of the one graph, of a loop the first values
	count  int64
	names  map[graph.TensorID]graph.TensorID // of a plain call: what stands for the graph's tensors
	frame  *frame                            // of a plain call: where it is
}

// Graph returns the graph that is called, of a choice the one of the first branch; nil if there is none.
func (c *CallInfo) Graph() *Graph {
	if c == nil || len(c.graphs) == 0 {
		return nil
	}
	return c.graphs[0]
}

// Count returns how often the graph is computed: 1, or the iterations of [Graph.Repeat].
func (c *CallInfo) Count() int64 {
	if c == nil {
		return 0
	}
	return c.count
}

// Outputs returns the tensors of the results in their order, nil if the call failed.
func (c *CallInfo) Outputs() []Operand {
	if c == nil {
		return nil
	}
	return slices.Clone(c.out)
}

// Inputs returns the tensors that the call gives to the parameters, in their order, of a loop those with which it begins; nil of a choice, or if the call failed.
func (c *CallInfo) Inputs() []Operand {
	if c == nil {
		return nil
	}
	return slices.Clone(c.in)
}

// InCall returns what stands for a tensor of the graph in a call that [Graph.Call] has made: PopXL's graph_to_parent.
func InCall[T Element](c *CallInfo, x Tensor[T]) Tensor[T] {
	const call = "popxl.InCall"
	if c == nil || !c.ir.usable() {
		return Tensor[T]{}
	}
	if c.out == nil || !x.Valid() {
		return Failed[T](c.ir)
	}
	id, ok := c.names[x.id]
	if x.ir != c.ir || !ok {
		return Fail[T](c.ir, call, errors.New("the tensor is not one of the graph that is called, or the call is a loop or a choice"))
	}
	return Tensor[T]{c.ir, id}
}

// Argument is what a call gives to a parameter.
type Argument struct {
	g     *Graph
	at    int
	value Operand
	to    assigned // of a reference: what gets its value
	from  int      // of a loop: the result that is the parameter of the next iteration; -1 if it is value in all of them
}

// assigned is what a call of a graph assigns to: a variable, or the value that a loop goes on with.
type assigned interface{ assign(Operand) }

func (v Variable[T]) assign(x Operand) { v.Assign(As[T](x)) }

type carriedOn struct{ value *Operand }

func (c carriedOn) assign(x Operand) { *c.value = x }

// Is returns that the parameter is x in a call, in a loop in all iterations.
func (p Param[T]) Is(x Tensor[T]) Argument { return Argument{p.g, p.at, x, nil, -1} }

// From returns that the parameter is first in the first iteration of [Graph.Repeat], and then what the iteration before gave as a result.
func (p Param[T]) From(first Tensor[T], result Result[T]) Argument {
	a := Argument{p.g, p.at, first, nil, result.at}
	if result.g != p.g || result.at < 0 {
		a.at = -1
	}
	return a
}

// Is returns that the reference is v in a call.
func (r Ref[T]) Is(v Variable[T]) Argument {
	return Argument{r.p.g, r.p.at, v.t, v, -1}
}

// ready returns the arguments in the order of the parameters, and what they stand for. It is not ok if the call failed.
func (g *Graph) ready(call string, args []Argument) (in []Argument, ids []graph.TensorID, ok bool) {
	if g == nil || !g.ir.usable() || g.state == broken {
		return nil, nil, false
	}
	fail := func(err error) ([]Argument, []graph.TensorID, bool) {
		g.ir.fail(call, fmt.Errorf("graph %q: %w", g.name, err))
		return nil, nil, false
	}
	if g.ir.taken {
		return fail(ErrTaken)
	}
	if g.state == building {
		return fail(errUnbuilt)
	}
	in = make([]Argument, len(g.params))
	given := make([]bool, len(g.params))
	for i, a := range args {
		switch {
		case a.g != g || a.at < 0:
			return fail(fmt.Errorf("argument %d is for a parameter, or from a result, of another graph or one that could not be added", i))
		case given[a.at]:
			return fail(fmt.Errorf("parameter %q is given twice", g.params[a.at].name))
		}
		in[a.at], given[a.at] = a, true
	}
	operands := make([]Operand, len(in))
	for i, p := range g.params {
		if !given[i] {
			return fail(fmt.Errorf("parameter %q is not given", p.name))
		}
		operands[i] = in[i].value
	}
	of, ids, err := resolve(operands)
	switch {
	case err != nil:
		return fail(err)
	case len(operands) > 0 && ids == nil:
		return nil, nil, false
	case of != nil && of != g.ir:
		return fail(errors.New("an argument is of another Ir"))
	}
	for i, id := range ids {
		if got, want := g.ir.b.Type(id), g.ir.b.Type(g.params[i].id); !got.Equal(want) {
			return fail(fmt.Errorf("parameter %q is %v, want %v", g.params[i].name, got, want))
		}
	}
	return in, ids, true
}

// Call adds a call of the graph, which gives every parameter a tensor and every reference a variable: PopXL's call. [Result.Of] returns a result. Gradients go back through calls, and calls may stand in the functions of
// loops, choices and other graphs; those that change a variable may not.
func (g *Graph) Call(args ...Argument) *CallInfo { return g.call("popxl.Graph.Call", args) }

func (g *Graph) call(call string, args []Argument) *CallInfo {
	info := &CallInfo{graphs: []*Graph{g}, count: 1}
	if g != nil {
		info.ir = g.ir
	}
	in, ids, ok := g.ready(call, args)
	if !ok {
		return info
	}
	for i, a := range in {
		if a.from >= 0 {
			g.ir.fail(call, fmt.Errorf("graph %q: parameter %q comes from a result, which Graph.Repeat alone has", g.name, g.params[i].name))
			return info
		}
	}
	names, err := g.inlined(ids)
	if err != nil {
		g.ir.fail(call, fmt.Errorf("graph %q: %w", g.name, inner(err)))
		return info
	}
	info.names, info.frame, info.out = names, g.ir.frame(), make([]Operand, len(g.out))
	if err := g.results(info, in); err != nil {
		info.out = nil
		g.ir.fail(call, fmt.Errorf("graph %q: %w", g.name, inner(err)))
	}
	return info
}

// results fills in the results of a call, and assigns to references. What is the value of a reference before it changes is copied first.
func (g *Graph) results(info *CallInfo, in []Argument) error {
	changing := map[graph.TensorID]bool{}
	for _, p := range g.params {
		if p.last != nil {
			changing[info.names[p.id]] = true
		}
	}
	value := func(o Operand) (Operand, error) {
		o = g.ir.renamed(o, info.names)
		_, id := o.operand()
		if !changing[id] {
			return o, nil
		}
		c, err := g.ir.one(&graph.Reshape{Shape: g.ir.b.Type(id).Shape}, g.ir.scoped("before"), id)
		return o.with(g.ir, c), err
	}
	last := make([]Operand, len(in))
	var err error
	for i, o := range g.out {
		if info.out[i], err = value(o); err != nil {
			return err
		}
	}
	for i, p := range g.params {
		info.in = append(info.in, in[i].value)
		if p.last != nil {
			if last[i], err = value(p.last); err != nil {
				return err
			}
		}
	}
	for i, o := range last {
		if o != nil {
			in[i].to.assign(o)
		}
	}
	return nil
}

// renamed returns an operand of a graph as what stands for it in a call.
func (ir *Ir) renamed(o Operand, names map[graph.TensorID]graph.TensorID) Operand {
	_, id := o.operand()
	if c, ok := names[id]; ok {
		id = c
	}
	return o.with(ir, id)
}

// inlined appends copies of the graph's operators with tensors in place of its parameters, and returns what stands for each of its tensors.
func (g *Graph) inlined(ids []graph.TensorID) (map[graph.TensorID]graph.TensorID, error) {
	ir, f := g.ir, g.ir.frame()
	names := map[graph.TensorID]graph.TensorID{}
	for i, p := range g.params {
		names[p.id] = ids[i]
	}
	for input, n := range g.body.loads {
		p, err := ir.first(f, input)
		if err != nil {
			return nil, err
		}
		if at, used := g.body.begins[input]; used {
			if names[at.tensor], err = ir.number(p, f.loads[input]); err != nil {
				return nil, err
			}
		}
		f.loads[input] = saturated(f.loads[input], n, 1)
	}
	if err := ir.copied(ir.b.Graph(g.body.id).Nodes, names); err != nil {
		return nil, err
	}
	for _, s := range g.stored {
		s.rows = names[s.rows]
		ir.keepRows(s)
	}
	return names, nil
}

// copied appends copies of nodes, and notes what stands for the tensors that they write.
func (ir *Ir) copied(nodes []graph.Node, names map[graph.TensorID]graph.TensorID) error {
	for i := range nodes {
		n := &nodes[i]
		op, err := ir.copiedOp(n.Op, names)
		if err != nil {
			return err
		}
		outputs := slices.Clone(n.Outputs)
		for k, t := range n.Outputs {
			if t == graph.None {
				continue
			}
			outputs[k] = ir.copyOf(t, names)
		}
		if err := ir.b.NodeTo(op, ir.scoped(n.Name), outputs, substituted(n.Inputs, names)...); err != nil {
			return err
		}
	}
	return nil
}

// copyOf adds a tensor that stands for one of a graph.
func (ir *Ir) copyOf(t graph.TensorID, names map[graph.TensorID]graph.TensorID) graph.TensorID {
	of := ir.b.Tensor(t)
	c := ir.b.AddLocal(ir.scoped(of.Name), of.Type)
	names[t] = c
	ir.own(c)
	if slices.Contains(ir.detached, t) {
		ir.detached = append(ir.detached, c)
	}
	return c
}

func substituted(ids []graph.TensorID, names map[graph.TensorID]graph.TensorID) []graph.TensorID {
	out := slices.Clone(ids)
	for i, t := range out {
		if c, ok := names[t]; ok {
			out[i] = c
		}
	}
	return out
}

// copiedOp returns op, or where it runs graphs one that runs copies of them.
func (ir *Ir) copiedOp(op graph.Op, names map[graph.TensorID]graph.TensorID) (graph.Op, error) {
	switch o := op.(type) {
	case *graph.If:
		then, err := ir.copiedGraph(o.Then, names)
		if err != nil {
			return nil, err
		}
		otherwise, err := ir.copiedGraph(o.Else, names)
		return &graph.If{Then: then, Else: otherwise}, err
	case *graph.Loop:
		c := *o
		var err error
		c.Body, err = ir.copiedGraph(o.Body, names)
		return &c, err
	}
	return op, nil
}

// copiedGraph returns a copy of a graph that an operator runs.
func (ir *Ir) copiedGraph(g graph.GraphID, names map[graph.TensorID]graph.TensorID) (graph.GraphID, error) {
	f := ir.b.Graph(g)
	own := newFrame(ir.subgraph(ir.scoped(f.Name)), ir.frame())
	var err error
	ir.inside(own, func() {
		params := make([]graph.TensorID, len(f.Params))
		for i, t := range f.Params {
			params[i] = ir.copyOf(t, names)
		}
		err = ir.copied(f.Nodes, names)
		ir.b.SetParams(own.id, params, substituted(f.Results, names))
	})
	return own.id, err
}

// Repeat adds a loop that computes the graph count times, at least 0: PopXL's repeat. Parameters that are given with [Param.From] are the result of the iteration before, others are the same in all iterations, and a reference has
// in each what the one before has assigned to it; the variable gets the last of these. A result is that of the last iteration; of none, what its parameter began with, or zeros.
func (g *Graph) Repeat(count int64, args ...Argument) *CallInfo {
	const call = "popxl.Graph.Repeat"
	info := &CallInfo{graphs: []*Graph{g}, count: count}
	if g != nil {
		info.ir = g.ir
	}
	in, _, ok := g.ready(call, args)
	if !ok {
		return info
	}
	// What is carried: every result, begun with the parameter that it becomes or with zeros, and every reference that changes.
	firsts, set, err := g.firsts(in)
	if err != nil {
		g.ir.fail(call, fmt.Errorf("graph %q: %w", g.name, inner(err)))
		return info
	}
	var idle []Operand
	if len(firsts) == 0 { // a loop carries something
		idle = []Operand{Constant(g.ir, []bool{false})}
	}
	before := len(g.ir.errs)
	last := Loop(call, count, func(_ Tensor[int64], carried []Operand) []Operand {
		now := slices.Clone(in)
		for i := range now {
			if r := now[i].from; r >= 0 {
				now[i].value, now[i].from = carried[r], -1
			}
		}
		values := make([]Operand, len(set))
		for k, at := range set {
			now[at].value, now[at].to = carried[len(g.out)+k], carriedOn{&values[k]}
		}
		c := g.call(call, now)
		if c.out == nil {
			return failures(g.ir, carried)
		}
		return slices.Concat(c.out, values, carried[len(firsts):])
	}, append(firsts, idle...)...)
	if len(g.ir.errs) > before {
		return info
	}
	info.out = last[:len(g.out)]
	for _, a := range in {
		info.in = append(info.in, a.value)
	}
	for k, at := range set {
		in[at].to.assign(last[len(g.out)+k])
	}
	return info
}

// firsts returns what a loop carries in its first iteration: of every result, then of those references that change, whose parameters it returns too.
func (g *Graph) firsts(in []Argument) (all []Operand, set []int, err error) {
	all = make([]Operand, len(g.out))
	for i, a := range in {
		if a.from >= 0 {
			if all[a.from] != nil {
				return nil, nil, fmt.Errorf("parameter %q comes from a result from which another one comes, too: add a result of its own", g.params[i].name)
			}
			all[a.from] = a.value
		}
		if g.params[i].last != nil {
			set = append(set, i)
		}
	}
	for r, o := range g.out {
		if all[r] != nil {
			continue
		}
		_, id := o.operand()
		t := g.ir.b.Type(id)
		zero := g.ir.b.AddConst("constant", graph.TensorType{DType: t.DType}, make([]byte, t.DType.Size()))
		zeros, err := g.ir.one(&graph.Expand{Shape: t.Shape}, g.ir.scoped("zeros"), zero)
		if err != nil {
			return nil, nil, err
		}
		all[r] = o.with(g.ir, zeros)
	}
	for _, i := range set {
		all = append(all, in[i].value)
	}
	return all, set, nil
}

// Choose adds a choice: the calls that then makes are computed if cond, of one element, is true, else those that otherwise makes. Each function is called once, and returns a call, of one graph or of two with results of the same types:
// PopXL's conditional. [Result.Of] takes the results of either graph.
func Choose(cond Tensor[bool], then, otherwise func() *CallInfo) *CallInfo {
	const call = "popxl.Choose"
	info := &CallInfo{ir: cond.ir, count: 1}
	branch := func(f func() *CallInfo) func() []Operand {
		if f == nil {
			return nil
		}
		return func() []Operand {
			c := f()
			if c == nil || c.out == nil {
				return []Operand{Failed[bool](cond.ir)}
			}
			info.graphs = append(info.graphs, c.graphs...)
			return c.out
		}
	}
	info.out = If(call, cond, branch(then), branch(otherwise))
	return info
}
