package onnx

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// environment is what nodes of one list of nodes have in common.
type environment struct {
	opsets   map[string]int64 // version by domain
	function *Function        // the function whose body this is, or nil
	attrs    map[string]*Attribute
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

func opsetsOf(imports []Opset) map[string]int64 {
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
		if _, _, err := l.operator(env, s.node); err != nil {
			l.report(env.where(s), err)
		}
	}
}

func (l *lowerer) functionOf(n *Node) *Function {
	return l.functions[functionKey{canonicalDomain(n.Domain), n.OpType, n.Overload}]
}

// operator returns how a node is lowered and the version of its operator.
func (l *lowerer) operator(env *environment, n *Node) (lowerFunc, int64, error) {
	domain := canonicalDomain(n.Domain)
	name := n.OpType
	if domain != "" {
		name = domain + "." + name
	}
	opset, imported := env.opsets[domain]
	versions := l.ops[name]
	if len(versions) == 0 {
		if !imported {
			return nil, 0, &obstacle{reason: fmt.Sprintf("operator %s (whose operator set the model does not import)", name)}
		}
		return nil, 0, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d", name, opset)}
	}
	if !imported {
		return nil, 0, fmt.Errorf("the model imports no operator set of domain %q", n.Domain)
	}
	// The newest version that is not newer than the operator set.
	for _, v := range slices.Backward(versions) {
		if v.version <= opset {
			if v.lower == nil {
				return nil, 0, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d (ONNX dropped it in %d)", name, opset, v.version)}
			}
			return v.lower, v.version, nil
		}
	}
	return nil, 0, &obstacle{reason: fmt.Sprintf("operator %s of operator set %d (the oldest known is of %d)", name, opset, versions[0].version)}
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
				sc.values[name] = &value{name: name, tensor: graph.None, bad: true}
				continue
			}
			sc.values[name] = out[i]
			if v := out[i]; v.name == "" && !v.bad {
				v.name = name
				if v.tensor != graph.None {
					l.exe.Tensors[v.tensor].Name = name
				}
			}
		}
	}
}

// node lowers one node and returns a value for each of its named results.
func (l *lowerer) node(sc *scope, env *environment, s step) (out []*value, err error) {
	n := s.node
	if l.count >= maxNodes {
		if l.count == maxNodes {
			l.count++
			return nil, fmt.Errorf("the model has more than %d nodes with its functions written out", maxNodes)
		}
		return nil, errPoisoned
	}
	l.count++
	c := &call{l: l, sc: sc, env: env, node: n, index: s.index, read: map[string]bool{"consumed_inputs": true}}
	if err := c.bind(); err != nil {
		return nil, err
	}
	if f := l.functionOf(n); f != nil {
		return l.inline(c, f)
	}
	lower, version, err := l.operator(env, n)
	if err != nil {
		if env.depth == 0 {
			err = errPoisoned // scan has reported it
		}
		return nil, err
	}
	c.version = version
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			out, err = nil, f.err
		}
	}()
	out = lower(c)
	if err := c.finish(len(out)); err != nil {
		return nil, err
	}
	for i := range n.Outputs {
		if c.wants(i) && (out[i] == nil || out[i].bad) {
			return nil, errPoisoned
		}
	}
	return out, nil
}

// bind looks up a node's operands and attributes.
func (c *call) bind() error {
	n := c.node
	c.attrs = make(map[string]*Attribute, len(n.Attributes))
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
	c.inputs = make([]*value, len(n.Inputs))
	for i, name := range n.Inputs {
		if name == "" {
			continue
		}
		v := c.sc.lookup(name)
		switch {
		case v == nil:
			return fmt.Errorf("operand %d, %q, is not defined", i, name)
		case v.why != nil:
			return v.why
		case v.bad:
			return errPoisoned
		}
		c.inputs[i] = v
	}
	return nil
}

// inline lowers the body of a model-local function in place of a node.
func (l *lowerer) inline(c *call, f *Function) ([]*value, error) {
	for e := c.env; e != nil; e = e.caller {
		if e.function == f {
			return nil, fmt.Errorf("function %s calls itself", f.Name)
		}
	}
	if c.env.depth >= maxDepth {
		return nil, errDepth
	}
	if len(c.inputs) > len(f.Inputs) || len(c.node.Outputs) > len(f.Outputs) {
		return nil, fmt.Errorf("it has %d operands and %d results, but function %s takes %d and gives %d",
			len(c.inputs), len(c.node.Outputs), f.Name, len(f.Inputs), len(f.Outputs))
	}
	env := &environment{
		opsets: opsetsOf(f.Opsets), function: f, attrs: make(map[string]*Attribute), depth: c.env.depth + 1,
		caller: c.env, node: step{c.node, c.index}, what: "in function " + f.Name,
	}
	for domain, v := range c.env.opsets {
		if _, ok := env.opsets[domain]; !ok {
			env.opsets[domain] = v
		}
	}
	for _, a := range f.Defaults {
		env.attrs[a.Name] = a
	}
	for name, a := range c.attrs {
		if env.attrs[name] == nil && !slices.Contains(f.Attributes, name) {
			return nil, fmt.Errorf("function %s has no attribute %q", f.Name, name)
		}
		env.attrs[name] = a
	}
	for _, name := range f.Attributes {
		if env.attrs[name] == nil {
			return nil, fmt.Errorf("function %s needs the attribute %q", f.Name, name)
		}
	}
	sc := newScope(nil)
	left := make(map[string]bool) // parameters without a value
	for i, name := range f.Inputs {
		if sc.values[name] != nil || left[name] {
			return nil, fmt.Errorf("function %s: input %q is declared twice", f.Name, name)
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
		if c.wants(i) {
			wanted = append(wanted, f.Outputs[i])
		}
	}
	order, err := schedule(nodes, wanted, sc)
	if err != nil {
		return nil, fmt.Errorf("function %s: %w", f.Name, err)
	}
	l.nodes(sc, env, order)
	out := make([]*value, len(c.node.Outputs))
	for i := range out {
		if c.wants(i) {
			if out[i] = sc.lookup(f.Outputs[i]); out[i] == nil || out[i].bad {
				return nil, errPoisoned
			}
		}
	}
	return out, nil
}

// without returns nodes with the given names left out as operands: parameters
// of a function that its caller leaves out.
func without(nodes []*Node, left map[string]bool) []*Node {
	out := make([]*Node, len(nodes))
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
