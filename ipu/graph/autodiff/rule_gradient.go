package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// jointly goes back through a node by one operator, [graph.Gradient], which reads the gradient of the node's first result and in. It
// reports whether it did; else the node's rule has to make the gradients of other operators.
func (p *pull) jointly(n *graph.Node, in ...graph.TensorID) bool {
	o := graph.GradientOf(n.Op)
	if o == nil || p.plain || repeats(in) {
		return false
	}
	read := append([]graph.TensorID{p.dy(n, 0)}, in...)
	types := make([]graph.TensorType, len(read))
	for i, t := range read {
		types[i] = p.typ(t)
	}
	if _, err := o.Infer(types); err != nil {
		return false // not of these shapes
	}
	out := p.ops(o, read...)
	nodes := p.emitted()
	results := nodes[len(nodes)-1].Outputs
	for i := range out {
		d := out[i]
		if p.wants(n, i) {
			p.accumulate(n.Inputs[i], d)
		} else {
			results[i] = graph.None
		}
	}
	return true
}

// repeats reports whether a tensor is there twice.
func repeats(ids []graph.TensorID) bool {
	for i, t := range ids {
		if t != graph.None && slices.Contains(ids[:i], t) {
			return true
		}
	}
	return false
}

// backGradient goes back through the operators that the rule of the operator that it is the gradient of makes otherwise.
func backGradient(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Gradient)
	if repeats(n.Inputs[1:]) {
		refuse("one tensor is several operands of the operator that it is the gradient of (%s): copy it", o.Of)
	}
	p.through(n, func() []graph.TensorID {
		around := p.plain
		p.plain = true
		defer func() { p.plain = around }()
		forward := graph.Node{Op: o.Forward(), Name: n.Name, Inputs: slices.Clone(n.Inputs[1:])}
		y := p.local(n.Name, p.typ(n.Inputs[0])) // which no other of the rules reads
		if o.Of == "Softmax" {
			y, forward.Inputs[0] = n.Inputs[1], y
		}
		forward.Outputs = []graph.TensorID{y}
		s := p.within()
		s.grads[y] = n.Inputs[0]
		for i, t := range forward.Inputs {
			if p.dy(n, i) != graph.None {
				s.active[t] = true
			}
		}
		rules[o.Of].back(s, &forward)
		out := make([]graph.TensorID, len(forward.Inputs))
		for i, t := range forward.Inputs {
			out[i] = graph.None
			if s.active[t] {
				out[i] = s.grads[t]
			}
		}
		return out
	})
}
