package reduce

import (
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// bypass takes nodes out whose readers can read an operand of theirs instead.
func (r *reducer) bypass() {
	for i := 0; i < len(r.best.Model.Graph.Nodes) && !r.stopped(); {
		if !r.bypassNode(i) {
			i++
		}
	}
}

func (r *reducer) bypassNode(i int) bool {
	g := r.best.Model.Graph
	n := g.Nodes[i]
	at := producers(g)
	for _, operand := range slices.Compact(slices.Clone(n.Inputs)) {
		if operand == "" {
			continue
		}
		c := r.best.clone()
		to := c.Model.Graph
		to.Nodes = slices.Delete(to.Nodes, i, i+1)
		for k, other := range to.Nodes {
			to.Nodes[k] = renamed(other, n.Outputs, operand)
		}
		_, computed := at[operand]
		for k := len(to.Outputs) - 1; k >= 0; k-- {
			if !slices.Contains(n.Outputs, to.Outputs[k].Name) {
				continue
			}
			if !computed || slices.Contains(outputNames(to), operand) {
				to.Outputs = slices.Delete(to.Outputs, k, k+1)
				continue
			}
			to.Outputs[k] = onnx.ValueInfo{Name: operand, Elem: elemOf(r, operand)}
		}
		if r.change(c) {
			return true
		}
	}
	return false
}

// elemOf returns the element type of a value, Undefined if it is not known.
func elemOf(r *reducer, name string) onnx.ElemType {
	if t := r.values[name]; t != nil {
		return t.Elem
	}
	return onnx.Undefined
}

// renamed returns the node with other operands in place of some, also where its
// subgraphs read them.
func renamed(n *onnx.Node, from []string, to string) *onnx.Node {
	touched := slices.ContainsFunc(reads(n), func(name string) bool { return slices.Contains(from, name) })
	if !touched {
		return n
	}
	change := func(names []string) []string {
		names = slices.Clone(names)
		for i, name := range names {
			if name != "" && slices.Contains(from, name) {
				names[i] = to
			}
		}
		return names
	}
	graphOf := func(g *onnx.Graph) *onnx.Graph {
		h := *g
		h.Nodes, h.Outputs = slices.Clone(g.Nodes), slices.Clone(g.Outputs)
		for i, n := range h.Nodes {
			h.Nodes[i] = renamed(n, from, to)
		}
		for i, name := range change(outputNames(g)) {
			h.Outputs[i].Name = name
		}
		return &h
	}
	m := *n
	m.Inputs = change(n.Inputs)
	m.Attributes = slices.Clone(n.Attributes)
	for i, a := range m.Attributes {
		b := *a
		if b.Graph != nil {
			b.Graph = graphOf(b.Graph)
		}
		b.Graphs = slices.Clone(b.Graphs)
		for k := range b.Graphs {
			b.Graphs[k] = graphOf(b.Graphs[k])
		}
		m.Attributes[i] = &b
	}
	return &m
}

// edited returns the best case with a copy of node i for edit to change.
func (r *reducer) edited(i int, edit func(n *onnx.Node)) *Case {
	c := r.best.clone()
	n := *c.Model.Graph.Nodes[i]
	n.Inputs, n.Attributes = slices.Clone(n.Inputs), slices.Clone(n.Attributes)
	edit(&n)
	c.Model.Graph.Nodes[i] = &n
	return c
}

// fewerOperands leaves operands out, the last one of each node first.
func (r *reducer) fewerOperands() {
	for i := 0; i < len(r.best.Model.Graph.Nodes); i++ {
		for k := len(r.best.Model.Graph.Nodes[i].Inputs) - 1; k >= 0; k-- {
			if inputs := r.best.Model.Graph.Nodes[i].Inputs; k >= len(inputs) || inputs[k] == "" {
				continue
			}
			nodes := len(r.best.Model.Graph.Nodes)
			r.change(r.edited(i, func(n *onnx.Node) {
				n.Inputs[k] = ""
				for len(n.Inputs) > 0 && n.Inputs[len(n.Inputs)-1] == "" {
					n.Inputs = n.Inputs[:len(n.Inputs)-1]
				}
			}))
			if len(r.best.Model.Graph.Nodes) != nodes { // what computed the operand is gone, and the places changed
				i = -1
				break
			}
			if r.stopped() {
				return
			}
		}
	}
}

// fewerAttributes leaves attributes out, which have their defaults then.
func (r *reducer) fewerAttributes() {
	for i := range r.best.Model.Graph.Nodes {
		for k := len(r.best.Model.Graph.Nodes[i].Attributes) - 1; k >= 0; k-- {
			nodes := len(r.best.Model.Graph.Nodes)
			r.change(r.edited(i, func(n *onnx.Node) { n.Attributes = slices.Delete(n.Attributes, k, k+1) }))
			if r.stopped() || len(r.best.Model.Graph.Nodes) != nodes { // a subgraph needed other nodes; the next round sees to the rest
				return
			}
		}
	}
}

// tensors are all tensors whose elements the case gives: initializers and inputs.
func (c *Case) tensors() []*onnx.Tensor {
	all := slices.Clone(c.Model.Graph.Initializers)
	for _, v := range c.Model.Graph.Inputs {
		if t := c.Inputs[v.Name]; t != nil {
			all = append(all, t)
		}
	}
	return all
}

// replace puts a tensor where the one of the name is.
func (c *Case) replace(name string, t *onnx.Tensor) {
	g := c.Model.Graph
	named := *t
	named.Name = name
	for i, old := range g.Initializers {
		if old.Name == name {
			g.Initializers[i] = &named
		}
	}
	for i, v := range g.Inputs {
		if v.Name == name {
			g.Inputs[i] = onnx.Declare(name, named.Elem, named.Dims)
			if c.Inputs[name] != nil {
				c.Inputs[name] = &named
			}
		}
	}
}

// plainerNumbers makes tensors zeros, ones or whole numbers.
func (r *reducer) plainerNumbers() {
	for _, old := range r.best.tensors() {
		if r.stopped() {
			return
		}
		for _, f := range []func(float64) float64{
			func(float64) float64 { return 0 },
			func(float64) float64 { return 1 },
			round,
		} {
			t := mapped(old, f)
			if t == nil {
				continue
			}
			c := r.best.clone()
			c.replace(old.Name, t)
			if r.change(c) {
				break
			}
		}
	}
}
