package onnx

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Call is one node being lowered. The functions of the operator table read
// operands and attributes through it and emit operators of the executable.
// What goes wrong ends the function by a panic with a failure, which never
// leaves this package: [lowerer.node] recovers it and reports the error with
// the node's name.
type Call struct {
	l     *lowerer
	sc    *scope
	env   *environment
	node  *Node
	index int   // of the node in its list
	form  *form // of the operator set that the model imports

	inputs []*value // nil where left out, bad where it could not be lowered
	taken  int      // operands that the form knows
	inside bool     // nodes of its graphs or its function are being lowered
	attrs  map[string]*Attribute
}

// failure carries an error out of the lowering of a node.
type failure struct{ err error }

// errPoisoned says that an operand could not be lowered, which has been
// reported already.
var errPoisoned = errors.New("an operand could not be lowered")

func (c *Call) fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// unsupported ends the lowering with something that ONNX allows and this
// package does not.
// The hint says what to do about it; it may be empty.
func (c *Call) unsupported(hint, format string, args ...any) {
	panic(failure{&obstacle{reason: fmt.Sprintf("operator %s: %s", c.op(), fmt.Sprintf(format, args...)), hint: hint}})
}

// op names the operator and the operator set it is of.
func (c *Call) op() string {
	return fmt.Sprintf("%s of operator set %d", c.node.OpType, c.opset())
}

// opset returns the version of the operator set that the node's operator is of.
func (c *Call) opset() int64 { return c.env.opsets[canonicalDomain(c.node.Domain)] }

// warn adds a remark about the model that a user should see.
func (c *Call) warn(format string, args ...any) { c.l.warn(format, args...) }

// in returns operand i, which must be there.
func (c *Call) in(i int) *value {
	v := c.opt(i)
	if v == nil {
		c.missing(i)
	}
	return v
}

func (c *Call) missing(i int) {
	if o := c.form.operand(i); o != nil {
		c.fail("operand %d (%s) is missing", i, o.name)
	}
	c.fail("operand %d is missing", i)
}

// opt returns operand i, nil if it is left out.
func (c *Call) opt(i int) *value {
	c.taken = max(c.taken, i+1)
	if i < len(c.inputs) {
		return lowered(c.inputs[i])
	}
	return nil
}

// lowered ends the lowering if v is a value that could not be lowered.
func lowered(v *value) *value {
	switch {
	case v == nil:
	case v.why != nil:
		panic(failure{v.why})
	case v.bad:
		panic(failure{errPoisoned})
	}
	return v
}

// all returns the operands of an operator that takes any number of them.
func (c *Call) all() []*value {
	c.taken = len(c.inputs)
	for i, v := range c.inputs {
		if lowered(v) == nil {
			c.missing(i)
		}
	}
	if len(c.inputs) == 0 {
		c.fail("no operands, want at least 1")
	}
	return c.inputs
}

// outputs returns how many results the node has a name or an empty name for.
func (c *Call) outputs() int { return len(c.node.Outputs) }

// wants reports whether somebody named result i.
func (c *Call) wants(i int) bool { return i < len(c.node.Outputs) && c.node.Outputs[i] != "" }

// attr returns an attribute or its default, nil if there is neither.
func (c *Call) attr(name string) *Attribute {
	if a := c.attrs[name]; a != nil {
		return a
	}
	a := c.form.attribute(name)
	if a == nil {
		c.fail("the definition of %s has no attribute %q", c.op(), name)
	}
	return a.def
}

// has reports whether the form has an attribute, and it or a default is given.
func (c *Call) has(name string) bool {
	return c.form.attribute(name) != nil && c.attr(name) != nil
}

// The following return an attribute that is given, has a default or must be
// given.

func (c *Call) int(name string) int64 { return c.must(name).Int }

func (c *Call) bool(name string) bool { return c.must(name).Int != 0 }

func (c *Call) float(name string) float64 { return float64(c.must(name).Float) }

func (c *Call) str(name string) string {
	s := c.must(name).String
	if len(s) > MaxName {
		c.fail("attribute %q has %d bytes, want at most %d", name, len(s), MaxName)
	}
	return string(s)
}

func (c *Call) must(name string) *Attribute {
	a := c.attr(name)
	if a == nil {
		c.fail("attribute %q is missing", name)
	}
	return a
}

// ints returns an attribute that is a list, and whether it is given.
func (c *Call) ints(name string) ([]int64, bool) {
	if a := c.attr(name); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// requireInts returns a list that must be given.
func (c *Call) requireInts(name string) []int64 { return c.must(name).Ints }

// floats returns a list, nil if it is not given.
func (c *Call) floats(name string) []float64 {
	a := c.attr(name)
	if a == nil {
		return nil
	}
	out := make([]float64, len(a.Floats))
	for i, f := range a.Floats {
		out[i] = float64(f)
	}
	return out
}

// finish checks that the operator knew all operands and results.
func (c *Call) finish(results int) error {
	if n := len(c.inputs); n > c.taken && slices.ContainsFunc(c.inputs[c.taken:], func(v *value) bool { return v != nil }) {
		return fmt.Errorf("it has %d operands, but %s takes at most %d", n, c.op(), c.taken)
	}
	for i := results; i < len(c.node.Outputs); i++ {
		if c.wants(i) {
			return fmt.Errorf("it has %d results, but %s gives at most %d", len(c.node.Outputs), c.op(), results)
		}
	}
	return nil
}

// axis returns a as an axis from 0 to n-1; a negative one counts from the end.
func (c *Call) axis(a, n int64) int64 {
	if a < -n || a >= n {
		c.fail("axis %d is out of range, want %d to %d", a, -n, n-1)
	}
	if a < 0 {
		return a + n
	}
	return a
}

// axes returns distinct axes of a tensor of rank n, in ascending order.
func (c *Call) axes(list []int64, n int64) []int64 {
	out := make([]int64, len(list))
	for i, a := range list {
		out[i] = c.axis(a, n)
	}
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i] == out[i-1] {
			c.fail("axis %d is named twice in %s", out[i], graph.ShapeString(list))
		}
	}
	return out
}

// known returns operand i, whose value must be known now; what is its name in
// ONNX's documentation of the operator. It is nil if it is left out.
func (c *Call) known(i int, what string) *value {
	v := c.opt(i)
	if v != nil && !v.known {
		c.want(v, fmt.Sprintf("%d (%s)", i, what))
	}
	return v
}

// want ends the lowering because v is not known.
func (c *Call) want(v *value, operand string) {
	ins := inputsOf(v)
	switch {
	case standsIn(v):
		panic(failure{errPoisoned})
	case inLoop(v):
		c.unsupported(hintLoop, "operand %s depends on the iteration of a loop that is not written out, but must be known now", operand)
	case len(ins) == 0:
		c.fail("operand %s, %v, must be known now, but computing it is too much work for compile time", operand, v.typ)
	}
	// Nobody can bind a value to what every request brings; a mask may be fixed.
	data := strings.Contains(c.form.sizedBy, operand[:1]) && (v.input == "" || c.node.OpType != "Compress")
	panic(failure{&need{operand, ins, data}})
}

// knownInts returns operand i, a list of integers that must be known now, and
// whether it is there at all.
func (c *Call) knownInts(i int, what string) ([]int64, bool) {
	v := c.known(i, what)
	if v == nil {
		return nil, false
	}
	if v.rank() > 1 {
		c.fail("operand %d (%s) is %v, want a list of int64", i, what, v.typ)
	}
	list, err := v.ints()
	if err != nil {
		c.fail("operand %d (%s): %w", i, what, err)
	}
	return list, true
}

// requireKnownInts is knownInts for an operand that must be there.
func (c *Call) requireKnownInts(i int, what string) []int64 {
	c.in(i)
	list, _ := c.knownInts(i, what)
	return list
}

// inputsOf returns the graph inputs that a value depends on.
func inputsOf(v *value) []string {
	var ins []string
	ancestors(v, func(v *value) {
		if v.input != "" {
			ins = append(ins, v.input)
		}
	})
	slices.Sort(ins)
	return ins
}

// inLoop reports whether a value changes with the iteration of a loop whose
// trip count is known: to know more of what is fed would not help.
func inLoop(v *value) bool {
	found := false
	ancestors(v, func(v *value) { found = found || v.iterated })
	return found
}

// standsIn reports whether a value depends on one that could not be lowered.
func standsIn(v *value) bool {
	found := false
	ancestors(v, func(v *value) { found = found || v.standIn })
	return found
}

// ancestors visits a value that is not known and all such that it was computed
// from.
func ancestors(v *value, visit func(*value)) {
	seen := map[*value]bool{v: true}
	for stack := []*value{v}; len(stack) > 0; {
		v, stack = stack[len(stack)-1], stack[:len(stack)-1]
		visit(v)
		for _, d := range v.deps {
			if !d.known && !seen[d] {
				seen[d] = true
				stack = append(stack, d)
			}
		}
	}
}

// emit applies an operator with one result, or of whose results only the
// first is wanted.
func (c *Call) emit(op graph.Op, in ...*value) *value { return c.emitN(op, []bool{true}, in...)[0] }

// emitN applies an operator: now if its operands are known and it is not too
// much work, otherwise by a node of the executable. Results that want does
// not ask for are nil.
func (c *Call) emitN(op graph.Op, want []bool, in ...*value) []*value {
	types := make([]graph.TensorType, len(in))
	known := true
	for i, v := range in {
		if v != nil {
			types[i] = v.typ
			known = known && v.known
		}
	}
	results, err := op.Infer(types)
	if err != nil {
		panic(failure{err})
	}
	for _, t := range results {
		if err := t.Check(); err != nil {
			c.fail("result: %w", err)
		}
	}
	out := make([]*value, len(want))
	if known {
		if _, ok := op.(*graph.Reshape); ok {
			v := *in[0]
			v.name, v.typ, v.tensor = "", results[0], graph.None
			out[0] = &v
			return out
		}
		types, data, err := c.fold(op, in...)
		if err != nil {
			c.fail("computing it from constants: %w", err)
		}
		if types != nil {
			for i := range out {
				if want[i] {
					out[i] = &value{typ: types[i], known: true, data: data[i], tensor: graph.None}
				}
			}
			return out
		}
	}
	node := graph.Node{Op: op, Name: c.name(), Inputs: make([]graph.TensorID, len(in)), Outputs: make([]graph.TensorID, len(want))}
	var deps []*value
	for i, v := range in {
		if v == nil {
			node.Inputs[i] = graph.None
			continue
		}
		if v.name == "" && v.tensor == graph.None {
			v.name = c.base() + "/constant"
		}
		node.Inputs[i] = c.l.materialise(v)
		if !v.known {
			deps = append(deps, v)
		}
	}
	for i := range out {
		node.Outputs[i] = graph.None
		if want[i] {
			out[i] = &value{typ: results[i], deps: deps}
			out[i].tensor = c.l.tensor(graph.Tensor{Name: c.base() + "/" + op.Kind(), Type: results[i]})
			node.Outputs[i] = out[i].tensor
		}
	}
	g := c.l.graph()
	g.Nodes = append(g.Nodes, node)
	return out
}

// unfolded returns what stands for x in an operator that is left to the executable where
// x is an initialiser of bytes in rows, although it is known.
func (c *Call) unfolded(x *value) *value {
	if x.quantised {
		return &value{typ: x.typ, tensor: c.l.materialise(x)}
	}
	return x
}

// name returns the name of the executable's nodes for this one.
func (c *Call) name() string {
	if c.node.Name != "" {
		return c.node.Name
	}
	return c.base()
}

// base is what the names of the node's intermediate tensors start with.
func (c *Call) base() string {
	for _, name := range c.node.Outputs {
		if name != "" {
			return name
		}
	}
	return c.node.Name
}
