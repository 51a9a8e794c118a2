package lower

import (
	"errors"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/ipu/graph/autodiff"
	"github.com/popefgen/popefgen/onnx"
)

// Bounds on gradients of gradients, each of which is of a graph that holds all before it.
const (
	maxGradientDepth = 8
	maxGradientNodes = 1 << 18 // of all gradients of a model
)

// gradient lowers Gradient of ONNX's preview of training: the derivatives of a tensor y by tensors xs, of the graph that leads
// from xs and zs to y, at the values that the operands give these. The nodes of that graph are lowered again with the operands in
// the place of xs and zs (the optimisation of graphs shares what is then computed twice), and differentiated by package autodiff; random
// operators among them draw what they drew. Where y is no scalar, it is the sum of its elements that is differentiated.
func gradient(c *Call) []*Value {
	xs, zs, y := c.texts("xs"), c.texts("zs"), c.Str("y")
	all := c.All()
	names := slices.Concat(xs, zs)
	if len(all) != len(names) {
		c.Fail("it has %d operands, want one for each name in attributes xs (%d) and zs (%d)", len(all), len(xs), len(zs))
	}
	l := c.l
	switch {
	case slices.Contains(l.differentiated, c.node):
		c.Fail("attribute y is %q, which depends on this gradient", y)
	case len(l.differentiated) >= maxGradientDepth:
		c.Fail("it is the gradient of a gradient of a gradient …, of which at most %d are lowered", maxGradientDepth)
	}
	l.differentiated = append(l.differentiated, c.node)
	defer func(n int) { l.differentiated = l.differentiated[:n] }(len(l.differentiated) - 1)
	defer func(again map[string]int) { l.draws.again = again }(l.draws.again)
	l.draws.again = map[string]int{}

	sc := newScope(c.sc)
	for i, name := range names {
		if sc.values[name] != nil {
			c.Fail("attributes xs and zs name %q twice", name)
		}
		sc.values[name] = all[i]
		if i < len(xs) {
			if t := all[i].Type.DType; !floating(t) {
				c.Fail("operand %d is %v, want a float to differentiate by", i, all[i].Type)
			}
			sc.values[name] = c.independent(name, all[i])
		}
	}
	before := len(l.graph().Nodes)
	target := c.between(sc, y)
	if t := target.Type.DType; !floating(t) {
		c.Fail("attribute y is %q, %v, want a float to differentiate", y, target.Type)
	}
	return c.differentiate(slices.Clone(l.graph().Nodes[before:]), target, xs, sc)
}

func floating(t graph.DType) bool {
	return t == graph.F16 || t == graph.BF16 || t == graph.F32 || t == graph.F64
}

// texts returns an attribute that is a list of strings, nil if it is left out.
func (c *Call) texts(name string) []string {
	a := c.Attr(name)
	if a == nil {
		return nil
	}
	out := make([]string, len(a.Strings))
	for i, s := range a.Strings {
		out[i] = string(s)
	}
	return out
}

// independent returns a copy of v of which nothing is known.
func (c *Call) independent(name string, v *Value) *Value {
	x := &Value{Name: name, Type: v.Type, deps: []*Value{v}}
	x.tensor = c.l.tensor(graph.Tensor{Name: name, Type: v.Type})
	g := c.l.graph()
	from := c.l.materialise(v)
	g.Nodes = append(g.Nodes, graph.Node{Op: &graph.Reshape{Shape: v.Type.Shape}, Name: c.name(), Inputs: []graph.TensorID{from}, Outputs: []graph.TensorID{x.tensor}})
	return x
}

// between lowers what leads from the values in sc to the value of a name, which it returns.
func (c *Call) between(sc *scope, y string) *Value {
	if sc.values[y] != nil {
		return sc.values[y]
	}
	var nodes []*onnx.Node
	defined := map[string]bool{}
	for s := c.sc; s != nil; s = s.parent {
		from := len(nodes)
		for _, n := range s.nodes {
			if n == c.node {
				continue
			}
			out := slices.Clone(n.Outputs)
			left := false
			for i, name := range out {
				if sc.values[name] != nil || defined[name] {
					out[i] = ""
				}
				left = left || out[i] != ""
			}
			switch {
			case !left:
			case slices.Equal(out, n.Outputs):
				nodes = append(nodes, n)
			default:
				m := *n
				m.Outputs = out
				nodes = append(nodes, &m)
			}
		}
		for _, n := range nodes[from:] {
			for _, name := range n.Outputs {
				defined[name] = defined[name] || name != ""
			}
		}
	}
	order, err := schedule(nodes, []string{y}, sc)
	if err != nil {
		c.Fail("attribute y is %q: %w", y, err)
	}
	c.inside = true
	c.l.nodes(sc, c.env, order)
	v := sc.lookup(y)
	if v.bad || v.why != nil || v.standIn {
		panic(failure{errPoisoned})
	}
	return v
}

// differentiate appends the nodes that compute the gradients of a value that nodes lead to, by the values that sc has for xs.
func (c *Call) differentiate(nodes []graph.Node, y *Value, xs []string, sc *scope) []*Value {
	l := c.l
	var required []graph.TensorID
	for i, name := range xs {
		if c.Wants(i) {
			required = append(required, sc.values[name].tensor)
		}
	}
	e := *l.exe
	main := graph.GraphID(len(e.Graphs))
	e.Graphs = append(slices.Clip(e.Graphs), graph.Graph{Name: c.base(), Nodes: nodes})
	from := l.materialise(y)
	e.Tensors = l.exe.Tensors
	info, err := autodiff.Backward(&e, main, autodiff.Options{Provided: []graph.TensorID{from}, Required: required})
	var blocked *autodiff.Blocked
	switch {
	case errors.As(err, &blocked):
		for _, o := range blocked.Obstacles {
			if o.Operator != "" {
				c.Unsupported("", "%s", o)
			}
		}
		c.Fail("%s", blocked.Obstacles[0])
	case err != nil:
		c.Fail("%w", err)
	}
	made := e.Graphs[info.Graph].Nodes
	if l.gradients += len(made); l.gradients > maxGradientNodes {
		c.Fail("the gradients of the model take more than %d nodes", maxGradientNodes)
	}
	// Both graphs have done their service; those behind them are run by nodes, and keep their numbers.
	e.Graphs[main], e.Graphs[info.Graph] = graph.Graph{Name: e.Graphs[main].Name}, graph.Graph{Name: e.Graphs[info.Graph].Name}
	if len(e.Graphs) == int(info.Graph)+1 {
		e.Graphs = e.Graphs[:main]
	}
	l.exe.Tensors, l.exe.Graphs = e.Tensors, e.Graphs
	one := l.materialise(Scalar(y.Type.DType, 1))
	g := l.graph()
	g.Nodes = append(g.Nodes, graph.Node{Op: &graph.Expand{Shape: y.Type.Shape}, Name: c.name(), Inputs: []graph.TensorID{one}, Outputs: []graph.TensorID{info.Inputs[0].Tensor}})
	g.Nodes = append(g.Nodes, made...)
	out := make([]*Value, len(xs))
	k := 0
	for i, name := range xs {
		if c.Wants(i) {
			out[i] = &Value{Type: sc.values[name].Type, tensor: info.Outputs[k].Tensor, deps: []*Value{y, sc.values[name]}}
			k++
		}
	}
	return out
}
