package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// controlOps run subgraphs.
var controlOps = map[string][]since{
	"If": {{1, branch}},
}

// branch writes the nodes of one branch of an If in its place, which takes a
// condition that is known now.
func branch(c *call) []*value {
	cond := c.in(0)
	if cond.typ.DType != graph.Bool || cond.typ.Elements() != 1 {
		c.fail("operand 0 (cond) is %v, want one bool", cond.typ)
	}
	name := "else_branch"
	other := "then_branch"
	if !cond.known {
		c.unsupported("a condition that depends on input %s", quoted(inputsOf(cond)))
	}
	if cond.data[0] != 0 {
		name, other = other, name
	}
	c.attr(other, AttrGraph)
	a := c.attr(name, AttrGraph)
	if a == nil || a.Graph == nil {
		c.fail("attribute %q is missing", name)
	}
	g := a.Graph
	if len(g.Inputs) > 0 {
		c.fail("attribute %q has %d inputs, want none", name, len(g.Inputs))
	}
	if c.env.depth >= maxDepth {
		c.fail("%w", errDepth)
	}
	sc := newScope(c.sc)
	if err := c.l.initializers(sc, g); err != nil {
		c.fail("%s: %w", name, err)
	}
	names := outputNames(g)
	order, err := schedule(g.Nodes, names, sc)
	if err != nil {
		c.fail("%s: %w", name, err)
	}
	env := *c.env
	env.caller, env.node, env.what, env.depth = c.env, step{c.node, c.index}, name, env.depth+1
	c.l.nodes(sc, &env, order)
	out := make([]*value, len(names))
	for i, n := range names {
		out[i] = sc.lookup(n)
	}
	return out
}
