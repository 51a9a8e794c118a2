package lower

import (
	"errors"
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
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
	node  *onnx.Node
	index int   // of the node in its list
	form  *Form // of the operator set that the model imports

	inputs []*Value // nil where left out, bad where it could not be lowered
	// deciding are the operands whose values decide sizes of results, nil for all
	deciding []*Value
	taken    int  // operands that the form knows
	inside   bool // nodes of its graphs or its function are being lowered
	attrs    map[string]*onnx.Attribute
}

// failure carries an error out of the lowering of a node.
type failure struct{ err error }

// errPoisoned says that an operand could not be lowered, which has been
// reported already.
var errPoisoned = errors.New("an operand could not be lowered")

// Fail ends the lowering of the node with an error.
func (c *Call) Fail(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

// Unsupported ends the lowering with something that ONNX allows and this
// package does not.
// The hint says what to do about it; it may be empty.
func (c *Call) Unsupported(hint, format string, args ...any) {
	panic(failure{&obstacle{reason: fmt.Sprintf("operator %s: %s", c.op(), fmt.Sprintf(format, args...)), hint: hint}})
}

// op names the operator and the operator set it is of.
func (c *Call) op() string {
	return fmt.Sprintf("%s of operator set %d", c.node.OpType, c.Opset())
}

// Opset returns the version of the operator set that the node's operator is of.
func (c *Call) Opset() int64 { return c.env.opsets[canonicalDomain(c.node.Domain)] }

// Warn adds a remark about the model that a user should see.
func (c *Call) Warn(format string, args ...any) { c.l.warn(format, args...) }

// In returns operand i, which must be there.
func (c *Call) In(i int) *Value {
	v := c.Opt(i)
	if v == nil {
		c.missing(i)
	}
	return v
}

func (c *Call) missing(i int) {
	if o := c.form.Operand(i); o != nil {
		c.Fail("operand %d (%s) is missing", i, o.Name)
	}
	c.Fail("operand %d is missing", i)
}

// Opt returns operand i, nil if it is left out.
func (c *Call) Opt(i int) *Value {
	c.taken = max(c.taken, i+1)
	if i < len(c.inputs) {
		return lowered(c.inputs[i])
	}
	return nil
}

// lowered ends the lowering if v is a value that could not be lowered.
func lowered(v *Value) *Value {
	switch {
	case v == nil:
	case v.why != nil:
		panic(failure{v.why})
	case v.bad:
		panic(failure{errPoisoned})
	}
	return v
}

// All returns the operands of an operator that takes any number of them.
func (c *Call) All() []*Value {
	c.taken = len(c.inputs)
	for i, v := range c.inputs {
		if lowered(v) == nil {
			c.missing(i)
		}
	}
	if len(c.inputs) == 0 {
		c.Fail("no operands, want at least 1")
	}
	return c.inputs
}

// Outputs returns how many results the node has a name or an empty name for.
func (c *Call) Outputs() int { return len(c.node.Outputs) }

// Wants reports whether somebody named result i.
func (c *Call) Wants(i int) bool { return i < len(c.node.Outputs) && c.node.Outputs[i] != "" }

// Attr returns an attribute or its default, nil if there is neither.
func (c *Call) Attr(name string) *onnx.Attribute {
	if a := c.attrs[name]; a != nil {
		return a
	}
	a := c.form.Attribute(name)
	if a == nil {
		c.Fail("the definition of %s has no attribute %q", c.op(), name)
	}
	return a.Default
}

// Has reports whether the form has an attribute, and it or a default is given.
func (c *Call) Has(name string) bool {
	return c.form.Attribute(name) != nil && c.Attr(name) != nil
}

// Int returns an integer attribute that is given, has a default or must be given.
func (c *Call) Int(name string) int64 { return c.must(name).Int }

// Bool returns an integer attribute as a truth value: whether it is not 0.
func (c *Call) Bool(name string) bool { return c.must(name).Int != 0 }

// Float returns a float attribute, as Int does.
func (c *Call) Float(name string) float64 { return float64(c.must(name).Float) }

// Str returns a string attribute, as Int does, of at most [onnx.MaxName] bytes.
func (c *Call) Str(name string) string {
	s := c.must(name).String
	if len(s) > onnx.MaxName {
		c.Fail("attribute %q has %d bytes, want at most %d", name, len(s), onnx.MaxName)
	}
	return string(s)
}

func (c *Call) must(name string) *onnx.Attribute {
	a := c.Attr(name)
	if a == nil {
		c.Fail("attribute %q is missing", name)
	}
	return a
}

// Ints returns an attribute that is a list, and whether it is given.
func (c *Call) Ints(name string) ([]int64, bool) {
	if a := c.Attr(name); a != nil {
		return a.Ints, true
	}
	return nil, false
}

// RequireInts returns a list that must be given.
func (c *Call) RequireInts(name string) []int64 { return c.must(name).Ints }

// Floats returns a list, nil if it is not given.
func (c *Call) Floats(name string) []float64 {
	a := c.Attr(name)
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
	if n := len(c.inputs); n > c.taken && slices.ContainsFunc(c.inputs[c.taken:], func(v *Value) bool { return v != nil }) {
		return fmt.Errorf("it has %d operands, but %s takes at most %d", n, c.op(), c.taken)
	}
	for i := results; i < len(c.node.Outputs); i++ {
		if c.Wants(i) {
			return fmt.Errorf("it has %d results, but %s gives at most %d", len(c.node.Outputs), c.op(), results)
		}
	}
	return nil
}

// Axis returns a as an axis from 0 to n-1; a negative one counts from the end.
func (c *Call) Axis(a, n int64) int64 {
	if a < -n || a >= n {
		c.Fail("axis %d is out of range, want %d to %d", a, -n, n-1)
	}
	if a < 0 {
		return a + n
	}
	return a
}

// Axes returns distinct axes of a tensor of rank n, in ascending order.
func (c *Call) Axes(list []int64, n int64) []int64 {
	out := make([]int64, len(list))
	for i, a := range list {
		out[i] = c.Axis(a, n)
	}
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i] == out[i-1] {
			c.Fail("axis %d is named twice in %s", out[i], graph.ShapeString(list))
		}
	}
	return out
}

// Known returns operand i, whose value must be known now; what is its name in
// ONNX's documentation of the operator. It is nil if it is left out.
func (c *Call) Known(i int, what string) *Value {
	v := c.Opt(i)
	if v != nil && v.weight != nil && v.weight.variable {
		v = v.Constant()
	}
	if v != nil && !v.Known {
		c.Want(v, fmt.Sprintf("%d (%s)", i, what))
	}
	return v
}

// Want ends the lowering because v is not known.
func (c *Call) Want(v *Value, operand string) {
	ins := inputsOf(v)
	switch {
	case standsIn(v):
		panic(failure{errPoisoned})
	case inLoop(v):
		c.Unsupported(hintLoop, "operand %s depends on the iteration of a loop that is not written out, but must be known now", operand)
	case len(ins) == 0:
		c.Fail("operand %s, %v, must be known now, but computing it is too much work for compile time: %w", operand, v.Type, leftOf(v))
	}
	panic(failure{&need{operand, ins, ""}})
}

// KnownInts returns operand i, a list of integers that must be known now, and
// whether it is there at all.
func (c *Call) KnownInts(i int, what string) ([]int64, bool) {
	v := c.Known(i, what)
	if v == nil {
		return nil, false
	}
	if v.Rank() > 1 {
		c.Fail("operand %d (%s) is %v, want a list of int64", i, what, v.Type)
	}
	list, err := v.Ints()
	if err != nil {
		c.Fail("operand %d (%s): %w", i, what, err)
	}
	return list, true
}

// RequireKnownInts is knownInts for an operand that must be there.
func (c *Call) RequireKnownInts(i int, what string) []int64 {
	c.In(i)
	list, _ := c.KnownInts(i, what)
	return list
}

// inputsOf returns the graph inputs that a value depends on.
func inputsOf(v *Value) []string {
	var ins []string
	ancestors(v, func(v *Value) {
		if v.input != "" {
			ins = append(ins, v.input)
		}
	})
	slices.Sort(ins)
	return ins
}

// inLoop reports whether a value changes with the iteration of a loop whose
// trip count is known: to know more of what is fed would not help.
func inLoop(v *Value) bool {
	found := false
	ancestors(v, func(v *Value) { found = found || v.iterated })
	return found
}

// standsIn reports whether a value depends on one that could not be lowered.
func standsIn(v *Value) bool {
	found := false
	ancestors(v, func(v *Value) { found = found || v.standIn })
	return found
}

// leftOf returns why a value that depends on nothing that the host feeds was not computed.
func leftOf(v *Value) error {
	err := graph.ErrNotFolded
	ancestors(v, func(v *Value) {
		if v.left != nil {
			err = v.left
		}
	})
	return err
}

// ancestors visits a value that is not known and all such that it was computed
// from.
func ancestors(v *Value, visit func(*Value)) {
	seen := map[*Value]bool{v: true}
	for stack := []*Value{v}; len(stack) > 0; {
		v, stack = stack[len(stack)-1], stack[:len(stack)-1]
		visit(v)
		for _, d := range v.deps {
			if !d.Known && !seen[d] {
				seen[d] = true
				stack = append(stack, d)
			}
		}
	}
}

// Emit applies an operator with one result, or of whose results only the
// first is wanted.
func (c *Call) Emit(op graph.Op, in ...*Value) *Value { return c.EmitN(op, []bool{true}, in...)[0] }

// EmitN applies an operator: now if its operands are known and it is not too
// much work, otherwise by a node of the executable. Results that want does
// not ask for are nil.
//
// Operands with counted axes give results with counted axes, where the operator has a rule for them
// (see [Value.Counted]).
func (c *Call) EmitN(op graph.Op, want []bool, in ...*Value) []*Value {
	if slices.ContainsFunc(in, (*Value).Counted) {
		return c.emitCounted(op, want, in)
	}
	types := make([]graph.TensorType, len(in))
	known := true
	for i, v := range in {
		if v != nil {
			types[i] = v.Type
			known = known && v.Known
		}
	}
	results, err := op.Infer(types)
	if err != nil {
		panic(failure{err})
	}
	for _, t := range results {
		if err := t.Check(); err != nil {
			c.Fail("result: %w", err)
		}
	}
	out := make([]*Value, len(want))
	var left error
	if known {
		if _, ok := op.(*graph.Reshape); ok {
			v := *in[0]
			v.Name, v.Type, v.tensor = "", results[0], graph.None
			out[0] = &v
			return out
		}
		var data [][]byte
		switch data, left = c.Fold(op, results, in...); {
		case left == nil:
			for i := range out {
				if want[i] {
					out[i] = Known(results[i], data[i])
				}
			}
			return out
		case !errors.Is(left, graph.ErrNotFolded):
			c.Fail("computing it from constants: %w", left)
		}
	}
	var elements []Element
	if len(results) == 1 {
		if elements = elementsOf(op, in, results[0]); elements != nil && !slices.ContainsFunc(elements, func(e Element) bool { return !e.Known() }) {
			data := make([]byte, 0, results[0].Bytes())
			for _, e := range elements {
				data = append(data, EncodeInt(results[0].DType, e.Low)...)
			}
			out[0] = Known(results[0], data)
			return out
		}
	}
	node := graph.Node{Op: op, Name: c.name(), Inputs: make([]graph.TensorID, len(in)), Outputs: make([]graph.TensorID, len(want))}
	var deps []*Value
	for i, v := range in {
		if v == nil {
			node.Inputs[i] = graph.None
			continue
		}
		if v.Name == "" && v.tensor == graph.None {
			v.Name = c.base() + "/constant"
		}
		node.Inputs[i] = c.l.materialise(v)
		if !v.Known {
			deps = append(deps, v)
		}
	}
	for i := range out {
		node.Outputs[i] = graph.None
		if want[i] {
			out[i] = &Value{Type: results[i], deps: deps, left: left, elements: elements}
			out[i].standsAlone()
			out[i].tensor = c.l.tensor(graph.Tensor{Name: c.base() + "/" + op.Kind(), Type: results[i]})
			node.Outputs[i] = out[i].tensor
		}
	}
	g := c.l.graph()
	g.Nodes = append(g.Nodes, node)
	return out
}

// Unfolded returns what stands for x in an operator that is left to the executable where
// x is an initialiser of bytes in rows, although it is known.
func (c *Call) Unfolded(x *Value) *Value {
	if x.quantised {
		return &Value{Type: x.Type, tensor: c.l.materialise(x)}
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
