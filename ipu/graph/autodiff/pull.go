package autodiff

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// pull carries gradients from the results of a list of nodes back to what they read.
type pull struct {
	*emitter
	active map[graph.TensorID]bool // tensors that depend on one whose gradient is wanted, and these
	grads  map[graph.TensorID]graph.TensorID
	zeroed map[graph.TensorID]string // tensors read by nodes whose gradient is zero, and such a node
}

func (b *emitter) newPull() *pull {
	return &pull{b, map[graph.TensorID]bool{}, map[graph.TensorID]graph.TensorID{}, map[graph.TensorID]string{}}
}

// within returns a pull within a rule: of the nodes of a branch or body, or of an operator's definition.
func (p *pull) within() *pull {
	s := p.newPull()
	s.zeroed = p.zeroed
	return s
}

// reads calls f for every tensor that a node reads, those of the graphs that it runs included.
func (b *emitter) reads(n *graph.Node, f func(graph.TensorID)) {
	b.visit(1 + len(n.Inputs))
	for _, t := range n.Inputs {
		if t != graph.None {
			f(t)
		}
	}
	for _, g := range graph.Subgraphs(n.Op) {
		for _, t := range b.outside(g).reads {
			f(t)
		}
	}
}

// spread marks what depends on active tensors.
func (p *pull) spread(nodes []graph.Node) {
	for i := range nodes {
		n := &nodes[i]
		depends := false
		p.reads(n, func(t graph.TensorID) { depends = depends || p.active[t] })
		if !depends {
			continue
		}
		if r := rules[n.Op.Kind()]; r.zero != nil && r.zero(n.Op) {
			p.reads(n, func(t graph.TensorID) { p.zeroed[t] = fmt.Sprintf("node %q (%s)", n.Name, n.Op.Kind()) })
			continue
		}
		for _, t := range n.Outputs {
			if t != graph.None && differentiable(p.dtype(t)) && !p.detached[t] {
				p.active[t] = true
			}
		}
	}
}

// matter marks in set what it depends on, going back through nodes.
func (p *pull) matter(nodes []graph.Node, set map[graph.TensorID]bool) {
	for _, n := range slices.Backward(nodes) {
		hit := false
		for _, t := range n.Outputs {
			hit = hit || t != graph.None && set[t]
		}
		if hit {
			p.reads(&n, func(t graph.TensorID) { set[t] = true })
		}
	}
}

// reverse carries p.grads back through nodes.
func (p *pull) reverse(nodes []graph.Node) {
	p.spread(nodes)
	for _, n := range slices.Backward(nodes) {
		if p.given(&n) && p.reached(&n) {
			p.back(&n)
		}
	}
}

// given reports whether there is a gradient of one of a node's results.
func (p *pull) given(n *graph.Node) bool {
	p.visit(1 + len(n.Outputs))
	for _, t := range n.Outputs {
		if _, ok := p.grads[t]; ok && t != graph.None && !p.detached[t] {
			return true
		}
	}
	return false
}

// reached reports whether a node reads something whose gradient is wanted.
func (p *pull) reached(n *graph.Node) bool {
	hit := false
	p.reads(n, func(t graph.TensorID) { hit = hit || p.active[t] })
	return hit
}

// back applies the rule of a node's operator.
func (p *pull) back(n *graph.Node) {
	r, ok := rules[n.Op.Kind()]
	switch {
	case !ok:
		p.stop(n, "there is no rule for its gradient")
	case r.zero != nil && r.zero(n.Op):
	case r.why != "":
		p.stop(n, r.why)
	case p.persists(n):
		p.stop(n, "it writes a persistent tensor on the way to what gradients are provided of: let it write a local one, and copy that afterwards")
	default:
		around := p.name
		p.name = "grad/" + n.Name
		if err := attempt(func() { r.back(p, n) }); err != nil {
			p.stop(n, err.Error())
		}
		p.name = around
	}
}

// persists reports whether a node writes a persistent tensor whose gradient there is.
func (p *pull) persists(n *graph.Node) bool {
	for i, t := range n.Outputs {
		if p.dy(n, i) != graph.None && p.e.Tensors[t].Persistent {
			return true
		}
	}
	return false
}

// stop notes that a node has no gradient and goes on as if it had, so that all obstacles are found.
func (p *pull) stop(n *graph.Node, why string) {
	p.block(Obstacle{Operator: n.Op.Kind(), Node: n.Name, Why: why})
	p.reads(n, func(t graph.TensorID) {
		if _, ok := p.grads[t]; p.active[t] && !ok {
			p.grads[t] = p.local("blocked", graph.TensorType{DType: p.dtype(t), Shape: p.shape(t)})
		}
	})
}

// dy returns the gradient of result i of a node, None if there is none.
func (p *pull) dy(n *graph.Node, i int) graph.TensorID {
	if i >= len(n.Outputs) || n.Outputs[i] == graph.None || p.detached[n.Outputs[i]] {
		return graph.None
	}
	if d, ok := p.grads[n.Outputs[i]]; ok {
		return d
	}
	return graph.None
}

// in returns operand i of a node, None if it is left out.
func in(n *graph.Node, i int) graph.TensorID {
	if i >= len(n.Inputs) {
		return graph.None
	}
	return n.Inputs[i]
}

// wants reports whether the gradient of operand i is wanted.
func (p *pull) wants(n *graph.Node, i int) bool { return in(n, i) != graph.None && p.active[in(n, i)] }

// give adds d to the gradient of operand i of a node, if it is wanted.
func (p *pull) give(n *graph.Node, i int, d func() graph.TensorID) {
	if p.wants(n, i) {
		p.accumulate(n.Inputs[i], d())
	}
}

// accumulate adds d to the gradient of t.
func (p *pull) accumulate(t, d graph.TensorID) {
	if got, want := p.typ(d), p.typ(t); !got.Equal(want) {
		panic(fmt.Sprintf("autodiff: gradient of type %v of a tensor of type %v", got, want))
	}
	if old, ok := p.grads[t]; ok {
		d = p.add(old, d)
	}
	p.grads[t] = d
}

// through differentiates a node by a definition of its operator: nodes that compute its results again,
// which define emits.
func (p *pull) through(n *graph.Node, define func() []graph.TensorID) {
	before := len(p.emitted())
	out := define()
	nodes := slices.Clone(p.emitted()[before:])
	s := p.within()
	for i := range n.Inputs {
		if p.wants(n, i) {
			s.active[n.Inputs[i]] = true
		}
	}
	for i, t := range out {
		if d := p.dy(n, i); d != graph.None && t != graph.None {
			if old, ok := s.grads[t]; ok {
				d = p.add(old, d)
			}
			s.grads[t] = d
		}
	}
	s.reverse(nodes)
	done := map[graph.TensorID]bool{}
	for i, t := range n.Inputs {
		if d, ok := s.grads[t]; ok && p.wants(n, i) && !done[t] {
			done[t] = true
			p.accumulate(t, d)
		}
	}
}

// again computes the gradients of all operands of a node, None for those without, by a rule from given gradients of its
// results. The node is not in a graph: it stands for one whose gradients an operator has computed.
func (p *pull) again(n *graph.Node, given []graph.TensorID, rule func(*pull, *graph.Node)) []graph.TensorID {
	s := p.within()
	apart := *n
	apart.Inputs, apart.Outputs = slices.Clone(n.Inputs), nil
	for i, t := range apart.Inputs {
		if t == graph.None || !differentiable(p.dtype(t)) {
			continue
		}
		if slices.Contains(apart.Inputs[:i], t) { // operands that are one tensor have gradients of their own
			apart.Inputs[i] = p.op(&graph.Reshape{Shape: p.shape(t)}, t)
		}
		s.active[apart.Inputs[i]] = true
	}
	types := make([]graph.TensorType, len(n.Inputs))
	for i, t := range n.Inputs {
		types[i] = p.typ(t)
	}
	results, err := p.e.Infer(n.Op, types)
	if err != nil {
		refuse("its gradient can't be computed: %s: %w", n.Op.Kind(), err)
	}
	for i, t := range results {
		out := graph.None
		if i < len(given) && given[i] != graph.None {
			out = p.local(p.name, t)
			s.grads[out] = given[i]
		}
		apart.Outputs = append(apart.Outputs, out)
	}
	rule(s, &apart)
	out := make([]graph.TensorID, len(n.Inputs))
	for i, t := range apart.Inputs {
		out[i] = graph.None
		if d, ok := s.grads[t]; ok && t != graph.None {
			out[i] = d
		}
	}
	return out
}
