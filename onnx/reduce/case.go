// Package reduce makes a failing ONNX model small: delta debugging. Given a model
// with the values of its inputs and a [Predicate] that says whether a model
// still fails, it looks for a smaller one that does: fewer outputs, fewer nodes,
// fewer attributes, smaller tensors, plainer numbers.
package reduce

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"slices"

	"github.com/popefgen/popefgen/onnx"
)

// Case is a model with the values of its inputs. Reductions share what they do
// not change, so nobody may change what a case points to.
type Case struct {
	Model *onnx.Model
	// Inputs has a value for each input of the graph that has no initializer.
	Inputs map[string]*onnx.Tensor
}

// Size says how large a case is. Cases are compared field by field, the first
// one first: a node less is worth any number of elements.
type Size struct {
	Nodes      int // those of subgraphs included
	Outputs    int
	Attributes int
	Operands   int
	Elements   int64 // of inputs, initializers and constants
	Plainness  int   // sum over inputs and initializers: 0 of zeros, 1 of ones, 2 of small whole numbers, 3 of others
}

// Compare returns -1 if s is smaller than t, 0 if they are equal, else 1.
func (s Size) Compare(t Size) int {
	return cmp.Or(cmp.Compare(s.Nodes, t.Nodes), cmp.Compare(s.Outputs, t.Outputs), cmp.Compare(s.Attributes, t.Attributes),
		cmp.Compare(s.Operands, t.Operands), cmp.Compare(s.Elements, t.Elements), cmp.Compare(s.Plainness, t.Plainness))
}

// Size measures the case.
func (c *Case) Size() Size {
	var s Size
	s.addGraph(c.Model.Graph)
	s.Outputs = len(c.Model.Graph.Outputs)
	for _, t := range c.Model.Graph.Initializers {
		s.Plainness += plainness(t)
	}
	for _, t := range c.Inputs {
		s.Elements += elements(t)
		s.Plainness += plainness(t)
	}
	return s
}

func (s *Size) addGraph(g *onnx.Graph) {
	for _, t := range g.Initializers {
		s.Elements += elements(t)
	}
	for _, n := range g.Nodes {
		s.Nodes++
		s.Attributes += len(n.Attributes)
		for _, name := range n.Inputs {
			if name != "" {
				s.Operands++
			}
		}
		for _, a := range n.Attributes {
			if a.Tensor != nil {
				s.Elements += elements(a.Tensor)
			}
			for _, t := range a.Tensors {
				s.Elements += elements(t)
			}
			for _, g := range subgraphs(a) {
				s.addGraph(g)
			}
		}
	}
}

func subgraphs(a *onnx.Attribute) []*onnx.Graph {
	if a.Graph != nil {
		return append(slices.Clip(a.Graphs), a.Graph)
	}
	return a.Graphs
}

// clone returns a copy whose lists may be changed. Nodes and tensors are shared.
func (c *Case) clone() *Case {
	m, g := *c.Model, *c.Model.Graph
	g.Nodes, g.Initializers = slices.Clone(g.Nodes), slices.Clone(g.Initializers)
	g.Inputs, g.Outputs, g.Values = slices.Clone(g.Inputs), slices.Clone(g.Outputs), slices.Clone(g.Values)
	m.Graph = &g
	return &Case{&m, maps.Clone(c.Inputs)}
}

// key identifies the case among those of one reduction; ok is false for one that
// has no file.
func (c *Case) key() (key [sha256.Size]byte, ok bool) {
	h := sha256.New()
	b, err := onnx.Encode(c.Model)
	if err != nil {
		return key, false
	}
	h.Write(b)
	for _, name := range slices.Sorted(maps.Keys(c.Inputs)) {
		t := *c.Inputs[name]
		t.Name = name
		if b, err = onnx.EncodeTensor(&t); err != nil {
			return key, false
		}
		h.Write(b)
	}
	h.Sum(key[:0])
	return key, true
}

// producers returns the place of the node that computes each value.
func producers(g *onnx.Graph) map[string]int {
	at := make(map[string]int, len(g.Nodes))
	for i, n := range g.Nodes {
		for _, name := range n.Outputs {
			if name != "" {
				at[name] = i
			}
		}
	}
	return at
}

// reads is [onnx.Node.Reads] of a graph that was read from a file, whose
// subgraphs are not nested too deeply.
func reads(n *onnx.Node) []string {
	names, err := n.Reads()
	if err != nil {
		return n.Inputs
	}
	return names
}

// ancestors returns which nodes are needed to compute values of the graph.
func ancestors(g *onnx.Graph, values []string) []bool {
	at, needed := producers(g), make([]bool, len(g.Nodes))
	for todo := slices.Clone(values); len(todo) > 0; {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i, ok := at[name]; ok && !needed[i] {
			needed[i] = true
			todo = append(todo, reads(g.Nodes[i])...)
		}
	}
	return needed
}

// outputNames returns the names of the graph's outputs.
func outputNames(g *onnx.Graph) []string {
	names := make([]string, len(g.Outputs))
	for i, o := range g.Outputs {
		names[i] = o.Name
	}
	return names
}

// tidied returns the case without what no output needs: nodes, initializers,
// inputs, declared values, functions and operator sets.
func (c *Case) tidied() *Case {
	c = c.clone()
	g := c.Model.Graph
	needed := ancestors(g, outputNames(g))
	nodes := g.Nodes[:0]
	for i, n := range g.Nodes {
		if needed[i] {
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
	used := map[string]bool{}
	for _, name := range outputNames(g) {
		used[name] = true
	}
	for _, n := range g.Nodes {
		for _, name := range reads(n) {
			used[name] = true
		}
	}
	g.Initializers = slices.DeleteFunc(g.Initializers, func(t *onnx.Tensor) bool { return !used[t.Name] })
	g.Inputs = slices.DeleteFunc(g.Inputs, func(v onnx.ValueInfo) bool { return !used[v.Name] })
	for name, t := range c.Inputs {
		switch {
		case !used[name]:
			delete(c.Inputs, name)
		case t.Name != name:
			named := *t
			named.Name = name
			c.Inputs[name] = &named
		}
	}
	at := producers(g)
	g.Values = slices.DeleteFunc(g.Values, func(v onnx.ValueInfo) bool { _, ok := at[v.Name]; return !ok || v.NotDense != "" })
	c.dropUncalled()
	return c
}

// dropUncalled leaves out functions that nothing calls, and operator sets of
// which nothing is left.
func (c *Case) dropUncalled() {
	called, domains := map[[2]string]bool{}, map[string]bool{"": true}
	var walk func(nodes []*onnx.Node)
	walk = func(nodes []*onnx.Node) {
		for _, n := range nodes {
			domains[n.Domain] = true
			if k := [2]string{n.Domain, n.OpType}; !called[k] {
				called[k] = true
				for _, f := range c.Model.Functions {
					if f.Domain == n.Domain && f.Name == n.OpType {
						walk(f.Nodes)
					}
				}
			}
			for _, a := range n.Attributes {
				for _, g := range subgraphs(a) {
					walk(g.Nodes)
				}
			}
		}
	}
	walk(c.Model.Graph.Nodes)
	var functions []*onnx.Function
	for _, f := range c.Model.Functions {
		if called[[2]string{f.Domain, f.Name}] {
			functions = append(functions, f)
		}
	}
	c.Model.Functions = functions
	c.Model.Opsets = slices.DeleteFunc(slices.Clone(c.Model.Opsets), func(o onnx.Opset) bool { return !domains[o.Domain] })
}
