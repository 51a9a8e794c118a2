package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// environment is what nodes of one list of nodes have in common.
type environment struct {
	opsets   map[string]int64 // version by domain
	function *onnx.Function   // the function whose body this is, or nil
	attrs    map[string]*onnx.Attribute
	depth    int // of subgraphs and functions

	// The node whose function or branch this is, nil for the main graph.
	caller *environment
	node   step
	what   string // "in function f"
}

// where names a node and the nodes around it, for messages.
func (e *environment) where(s step) string {
	if e.caller == nil {
		return label(s.node, s.index)
	}
	return e.caller.where(e.node) + ": " + e.what + ": " + label(s.node, s.index)
}

// canonicalDomain returns "" for both names of ONNX's own operators.
func canonicalDomain(d string) string {
	if d == "ai.onnx" {
		return ""
	}
	return d
}

func opsetsOf(imports []onnx.Opset) map[string]int64 {
	m := make(map[string]int64, len(imports))
	for _, o := range imports {
		d := canonicalDomain(o.Domain)
		m[d] = max(m[d], o.Version)
	}
	return m
}

// scan records the operators among steps that are not supported at all, so
// that they are listed even if nothing can be lowered for other reasons.
func (l *lowerer) scan(env *environment, steps []step) {
	for _, s := range steps {
		if l.functionOf(s.node) != nil {
			continue
		}
		if _, err := l.operator(env, s.node); err != nil {
			l.report(env.where(s), err)
		}
	}
}

func (l *lowerer) functionOf(n *onnx.Node) *onnx.Function {
	return l.functions[functionKey{canonicalDomain(n.Domain), n.OpType, n.Overload}]
}

// operator returns the form that a node's operator has in the operator set of
// the model.
func (l *lowerer) operator(env *environment, n *onnx.Node) (*Form, error) {
	domain := canonicalDomain(n.Domain)
	name := n.OpType
	if domain != "" {
		name = domain + "." + name
	}
	opset, imported := env.opsets[domain]
	def := l.ops[name]
	name = printable.Line(name) // for messages: it is anybody's
	if def == nil {
		if !imported {
			return nil, &obstacle{reason: fmt.Sprintf("operator %s (whose operator set the model does not import)", name), hint: hintFor(domain, n.OpType)}
		}
		return nil, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d", name, opset), hint: hintFor(domain, n.OpType)}
	}
	if !imported {
		return nil, fmt.Errorf("the model imports no operator set of domain %q", n.Domain)
	}
	// The newest form that is not newer than the operator set.
	for i := len(def.Forms) - 1; i >= 0; i-- {
		f := &def.Forms[i]
		if f.Version > opset {
			continue
		}
		if f.Lower == nil {
			return nil, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d (ONNX dropped it in %d)", name, opset, f.Version)}
		}
		return f, nil
	}
	return nil, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d (the oldest known is of %d)", name, opset, def.Forms[0].Version)}
}

// standIns notes the types that the model declares for values of its main
// graph, with sizes for the symbols that inputs bind; static are the inputs with
// all sizes.
func (l *lowerer) standIns(g *onnx.Graph, static []onnx.ValueInfo) {
	sizes := make(map[string]int64)
	shapes := make(map[string][]int64, len(static))
	for _, in := range static {
		if in.NotDense == "" {
			shapes[in.Name] = staticShape(in)
		}
	}
	for _, in := range g.Inputs {
		for axis, n := range shapes[in.Name] {
			if axis < len(in.Dims) && in.Dims[axis].Free() && in.Dims[axis].Symbol != "" {
				sizes[in.Dims[axis].Symbol] = n
			}
		}
	}
	l.types = make(map[string]graph.TensorType)
	for _, v := range slices.Concat(g.Values, g.Outputs) {
		t := graph.TensorType{DType: v.Elem.DType(), Shape: make([]int64, len(v.Dims))}
		known := v.HasShape
		for axis, d := range v.Dims {
			n, ok := sizes[d.Symbol]
			if !d.Free() {
				n, ok = d.Value, true
			}
			t.Shape[axis] = n
			known = known && ok
		}
		if known && t.Check() == nil {
			l.types[v.Name] = t
		}
	}
}

// standIn returns what stands for a value that could not be lowered: nothing,
// or a tensor of the type that the model declares.
func (l *lowerer) standIn(env *environment, name string) *Value {
	t, ok := l.types[name]
	if env.caller != nil || !ok {
		return &Value{Name: name, tensor: graph.None, bad: true}
	}
	return &Value{Name: name, Type: t, tensor: l.tensor(graph.Tensor{Name: name, Type: t}), standIn: true}
}

// scanInside lists the operators that are not supported at all in the graphs
// and the function that a node runs, when the node itself can't be lowered.
func (l *lowerer) scanInside(env *environment, s step) {
	if env.depth >= onnx.MaxDepth {
		return
	}
	inside := environment{opsets: env.opsets, caller: env, node: s, depth: env.depth + 1}
	visit := func(nodes []*onnx.Node) {
		steps := make([]step, len(nodes))
		for i, n := range nodes {
			steps[i] = step{n, i}
		}
		l.scan(&inside, steps)
		for _, s := range steps {
			l.scanInside(&inside, s)
		}
	}
	for _, a := range s.node.Attributes {
		for _, g := range append(slices.Clip(a.Graphs), a.Graph) {
			if g != nil && !l.scanned[g] {
				l.scanned[g] = true
				inside.what = a.Name
				visit(g.Nodes)
			}
		}
	}
	if f := l.functionOf(s.node); f != nil && !l.scanned[f] {
		l.scanned[f] = true
		inside.opsets, inside.what = functionOpsets(f, env), "in function "+f.Name
		visit(f.Nodes)
	}
}

// nodes lowers steps in order. Nodes that can't be lowered are reported and
// give bad values, so that whatever does not depend on them is still seen.
func (l *lowerer) nodes(sc *scope, env *environment, steps []step) {
	for _, s := range steps {
		out, err := l.node(sc, env, s)
		if err != nil && !errors.Is(err, errPoisoned) {
			l.report(env.where(s), err)
		}
		for i, name := range s.node.Outputs {
			if name == "" {
				continue
			}
			if err != nil {
				sc.values[name] = l.standIn(env, name)
				continue
			}
			sc.values[name] = out[i]
			if v := out[i]; v.Name == "" && !v.bad {
				v.Name = name
				if v.tensor != graph.None {
					l.exe.Tensors[v.tensor].Name = name
				}
			}
		}
	}
}

// node lowers one node and returns a value for each of its named results.
func (l *lowerer) node(sc *scope, env *environment, s step) (out []*Value, err error) {
	n := s.node
	if l.ctx.Err() != nil {
		return nil, errPoisoned // LowerContext says so
	}
	if l.count >= maxNodes {
		if l.count == maxNodes {
			l.count++
			return nil, fmt.Errorf("the model has more than %d nodes with its functions written out", maxNodes)
		}
		return nil, errPoisoned
	}
	l.count++
	c := &Call{l: l, sc: sc, env: env, node: n, index: s.index}
	defer func() {
		if errors.Is(err, errPoisoned) && !c.inside {
			l.scanInside(env, s)
		}
	}()
	if err := c.bind(); err != nil {
		return nil, err
	}
	if f := l.functionOf(n); f != nil {
		return l.inline(c, f)
	}
	c.form, err = l.operator(env, n)
	if err != nil {
		if env.depth == 0 {
			err = errPoisoned // scan has reported it
		}
		return nil, err
	}
	if err := c.checkAttributes(); err != nil {
		return nil, err
	}
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			out, err = nil, f.err
		}
	}()
	c.checkOperands()
	c.checkCounted()
	out = c.form.Lower(c)
	if err := c.finish(len(out)); err != nil {
		return nil, err
	}
	for i := range n.Outputs {
		if c.Wants(i) && (out[i] == nil || out[i].bad) {
			return nil, errPoisoned
		}
	}
	return out, nil
}

// bind looks up a node's operands and attributes.
func (c *Call) bind() error {
	n := c.node
	c.attrs = make(map[string]*onnx.Attribute, len(n.Attributes))
	for _, a := range n.Attributes {
		if c.attrs[a.Name] != nil {
			return fmt.Errorf("attribute %q is given twice", a.Name)
		}
		if a.Ref == "" {
			c.attrs[a.Name] = a
			continue
		}
		if c.env.function == nil {
			return fmt.Errorf("attribute %q refers to attribute %q of a function, but the node is in none", a.Name, a.Ref)
		}
		if r := c.env.attrs[a.Ref]; r != nil {
			bound := *r
			bound.Name = a.Name
			c.attrs[a.Name] = &bound
		}
	}
	c.inputs = make([]*Value, len(n.Inputs))
	for i, name := range n.Inputs {
		if name == "" {
			continue
		}
		v := c.sc.lookup(name)
		switch {
		case v == nil:
			return fmt.Errorf("operand %d, %q, is not defined", i, name)
		}
		c.inputs[i] = v
	}
	return nil
}

// inline lowers the body of a model-local function in place of a node.
func (l *lowerer) inline(c *Call, f *onnx.Function) ([]*Value, error) {
	for e := c.env; e != nil; e = e.caller {
		if e.function == f {
			return nil, fmt.Errorf("function %s calls itself", printable.Line(f.Name))
		}
	}
	if c.env.depth >= onnx.MaxDepth {
		return nil, onnx.ErrDepth
	}
	for _, v := range c.inputs {
		if v != nil && v.why != nil {
			return nil, v.why
		}
		if v != nil && v.bad {
			return nil, errPoisoned
		}
	}
	if len(c.inputs) > len(f.Inputs) || len(c.node.Outputs) > len(f.Outputs) {
		return nil, fmt.Errorf("it has %d operands and %d results, but function %s takes %d and gives %d",
			len(c.inputs), len(c.node.Outputs), printable.Line(f.Name), len(f.Inputs), len(f.Outputs))
	}
	env := &environment{
		opsets: functionOpsets(f, c.env), function: f, attrs: make(map[string]*onnx.Attribute), depth: c.env.depth + 1,
		caller: c.env, node: step{c.node, c.index}, what: "in function " + printable.Line(f.Name),
	}
	for _, a := range f.Defaults {
		env.attrs[a.Name] = a
	}
	for name, a := range c.attrs {
		if env.attrs[name] == nil && !slices.Contains(f.Attributes, name) {
			return nil, fmt.Errorf("function %s has no attribute %q", printable.Line(f.Name), name)
		}
		env.attrs[name] = a
	}
	for _, name := range f.Attributes {
		if env.attrs[name] == nil {
			return nil, fmt.Errorf("function %s needs the attribute %q", printable.Line(f.Name), name)
		}
	}
	sc := newScope(nil)
	left := make(map[string]bool) // parameters without a value
	for i, name := range f.Inputs {
		if sc.values[name] != nil || left[name] {
			return nil, fmt.Errorf("function %s: input %q is declared twice", printable.Line(f.Name), name)
		}
		if i < len(c.inputs) && c.inputs[i] != nil {
			sc.values[name] = c.inputs[i]
		} else {
			left[name] = true
		}
	}
	nodes := f.Nodes
	if len(left) > 0 {
		nodes = without(nodes, left)
	}
	// Only the results that the caller names are computed.
	var wanted []string
	for i := range c.node.Outputs {
		if c.Wants(i) {
			wanted = append(wanted, f.Outputs[i])
		}
	}
	order, err := schedule(nodes, wanted, sc)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", printable.Line(f.Name), err)
	}
	c.inside = true
	l.nodes(sc, env, order)
	out := make([]*Value, len(c.node.Outputs))
	for i := range out {
		if c.Wants(i) {
			if out[i] = sc.lookup(f.Outputs[i]); out[i] == nil || out[i].bad {
				return nil, errPoisoned
			}
		}
	}
	return out, nil
}

// functionOpsets returns the operator sets of a function's body: those that it
// imports, and its caller's for other domains.
func functionOpsets(f *onnx.Function, caller *environment) map[string]int64 {
	opsets := opsetsOf(f.Opsets)
	for domain, v := range caller.opsets {
		if _, ok := opsets[domain]; !ok {
			opsets[domain] = v
		}
	}
	return opsets
}

// without returns nodes with the given names left out as operands: parameters
// of a function that its caller leaves out.
func without(nodes []*onnx.Node, left map[string]bool) []*onnx.Node {
	out := make([]*onnx.Node, len(nodes))
	for i, n := range nodes {
		out[i] = n
		if slices.ContainsFunc(n.Inputs, func(name string) bool { return left[name] }) {
			m := *n
			m.Inputs = slices.Clone(n.Inputs)
			for j, name := range m.Inputs {
				if left[name] {
					m.Inputs[j] = ""
				}
			}
			out[i] = &m
		}
	}
	return out
}
