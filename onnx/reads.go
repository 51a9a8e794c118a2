package onnx

import (
	"errors"
	"slices"
)

// ErrDepth is wrapped by the error about a model whose subgraphs and functions are nested
// more than [MaxDepth] deep.
var ErrDepth = errors.New("subgraphs and functions are nested too deeply")

// Reads returns the names of the values that the node needs: its operands, and
// what its subgraphs take from around them. Names may be repeated.
func (n *Node) Reads() ([]string, error) { return uses(n, 0) }

// Needed returns the nodes, initialisers and inputs of the graph that some of its values depend on, as a graph without outputs and without
// types of intermediate values. The error wraps [ErrDepth].
func (g *Graph) Needed(values ...string) (*Graph, error) {
	makes := map[string]*Node{}
	for _, n := range g.Nodes {
		for _, o := range n.Outputs {
			makes[o] = n
		}
	}
	read, needed := map[string]bool{}, map[*Node]bool{}
	for open := slices.Clone(values); len(open) > 0; {
		name := open[len(open)-1]
		open = open[:len(open)-1]
		if read[name] {
			continue
		}
		read[name] = true
		n := makes[name]
		if n == nil || needed[n] {
			continue
		}
		needed[n] = true
		reads, err := n.Reads()
		if err != nil {
			return nil, err
		}
		open = append(open, reads...)
	}
	part := *g
	part.Nodes = slices.DeleteFunc(slices.Clone(g.Nodes), func(n *Node) bool { return !needed[n] })
	part.Initializers = slices.DeleteFunc(slices.Clone(g.Initializers), func(t *Tensor) bool { return !read[t.Name] })
	part.Inputs = slices.DeleteFunc(slices.Clone(g.Inputs), func(v ValueInfo) bool { return !read[v.Name] })
	part.Outputs, part.Values = nil, nil
	return &part, nil
}

// uses returns the names that a node reads, including those that its
// subgraphs take from around them.
func uses(n *Node, depth int) ([]string, error) {
	var names []string
	for _, name := range n.Inputs {
		if name != "" {
			names = append(names, name)
		}
	}
	for _, a := range n.Attributes {
		graphs := a.Graphs
		if a.Graph != nil {
			graphs = append(slices.Clip(graphs), a.Graph)
		}
		for _, g := range graphs {
			free, err := captures(g, depth+1)
			if err != nil {
				return nil, err
			}
			names = append(names, free...)
		}
	}
	return names, nil
}

// captures returns the names that a subgraph uses but does not define.
func captures(g *Graph, depth int) ([]string, error) {
	if depth > MaxDepth {
		return nil, ErrDepth
	}
	defined := make(map[string]bool)
	for _, in := range g.Inputs {
		defined[in.Name] = true
	}
	for _, t := range g.Initializers {
		defined[t.Name] = true
	}
	for _, n := range g.Nodes {
		for _, name := range n.Outputs {
			defined[name] = true
		}
	}
	var free []string
	add := func(names []string) {
		for _, name := range names {
			if name != "" && !defined[name] {
				defined[name] = true
				free = append(free, name)
			}
		}
	}
	for _, n := range g.Nodes {
		names, err := uses(n, depth)
		if err != nil {
			return nil, err
		}
		add(names)
	}
	add(g.OutputNames())
	return free, nil
}

// OutputNames returns the names of the graph's outputs.
func (g *Graph) OutputNames() []string {
	names := make([]string, len(g.Outputs))
	for i, o := range g.Outputs {
		names[i] = o.Name
	}
	return names
}
