package build

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

// node is a node in the making.
type node struct {
	name, domain, operator string
	in                     []*Tensor
	results                []*Tensor
	required               int // results that are written whether something uses them or not
	attributes             []attribute
}

// call is a node that a call of an operator's method is making. Methods of one whose Builder is not usable do nothing.
type call struct {
	b         *Builder
	place     place
	signature *op.Signature // nil for a custom operator
	node      *node
	label     string // its name as its caller wants it
	wrong     bool   // a mistake of this call is kept
	poisoned  bool   // an operand is of a wrong call
}

// begin begins a node of the form of an operator that starts with a version.
func begin[O option](b *Builder, operator string, version int64, options []O) *call {
	c := &call{b: b}
	if !b.usable() {
		return c
	}
	all := op.Signatures()[operator]
	i := slices.IndexFunc(all, func(s *op.Signature) bool { return s.Version == version })
	c.signature = all[i]
	c.node = &node{operator: operator}
	if dot := strings.LastIndexByte(operator, '.'); dot >= 0 {
		c.node.domain, c.node.operator = operator[:dot], operator[dot+1:]
	}
	c.place = here(c.node.operator)
	c.checkVersion(all)
	c.apply(optionsOf(options))
	return c
}

// optionsOf returns the options as what they have in common.
func optionsOf[O option](options []O) []option {
	all := make([]option, len(options))
	for i, o := range options {
		all[i] = o
	}
	return all
}

// apply gives the node the options of [Builder.With], those without a counterpart among its own, and its own.
func (c *call) apply(own []option) {
	own = slices.DeleteFunc(own, func(o option) bool {
		if o == nil {
			c.fail("an option is nil")
		}
		return o == nil
	})
	for _, o := range own {
		o.apply(c)
	}
	for i := len(c.b.options) - 1; i >= 0; i-- {
		for _, o := range c.b.options[i] {
			around := &call{b: c.b, place: c.place, node: &node{}}
			o.apply(around)
			for _, a := range around.node.attributes {
				if !slices.ContainsFunc(c.node.attributes, func(x attribute) bool { return x.Name == a.Name }) {
					c.attribute(a)
				}
			}
			if c.wrong = c.wrong || around.wrong; c.label == "" {
				c.label = around.label
			}
		}
	}
}

func (c *call) fail(format string, args ...any) {
	c.b.fail(c.place, format, args...)
	c.wrong = true
}

// checkVersion refuses a form that the model's operator set does not have.
func (c *call) checkVersion(all []*op.Signature) {
	s, set := c.signature, c.b.opset
	if c.node.domain != "" {
		return
	}
	if set >= s.Version && (s.Until == 0 || set < s.Until) {
		return
	}
	is := fmt.Sprintf("it is an operator of sets from %d on", s.Version)
	if s.Until != 0 {
		is = fmt.Sprintf("it is an operator of sets %d to %d", s.Version, s.Until-1)
	}
	for _, other := range all {
		if set >= other.Version && (other.Until == 0 || set < other.Until) {
			c.fail("%s, and the model is of set %d: call %s", is, set, other.Method())
			return
		}
	}
	c.fail("%s, and the model is of set %d: give build.New another build.Opset", is, set)
}

// spans reports whether the model's operator set has an operand or attribute.
func (c *call) spans(f op.Formal) bool {
	return c.node.domain != "" || c.b.opset >= f.From && (f.Until == 0 || c.b.opset < f.Until)
}

// in adds operands, one for each of the next of the signature.
func (c *call) in(list ...*Tensor) *call {
	if !c.b.usable() {
		return c
	}
	for _, t := range list {
		f := c.signature.Operands[len(c.node.in)]
		switch {
		case t == nil && !f.Optional:
			c.fail("operand %d (%s) is nil, want a value: it can't be left out", len(c.node.in), f.Name)
		case t != nil:
			c.operand(f.Name, t)
			if !c.spans(f) {
				c.fail("operand %d (%s) is one from operator set %d on, and the model is of set %d", len(c.node.in), f.Name, f.From, c.b.opset)
			}
		}
		c.node.in = append(c.node.in, t)
	}
	return c
}

// several adds the operands of the signature's last one, which stands for any number.
func (c *call) several(list []*Tensor) *call {
	if !c.b.usable() {
		return c
	}
	f := c.signature.Operands[len(c.signature.Operands)-1]
	for i, t := range list {
		if t == nil {
			c.fail("%s[%d] is nil, want a value", f.Name, i)
			continue
		}
		c.operand(fmt.Sprintf("%s[%d]", f.Name, i), t)
	}
	c.node.in = append(c.node.in, list...)
	return c
}

// operand checks that the graph may read t.
func (c *call) operand(name string, t *Tensor) {
	if !c.b.reads(c.place, fmt.Sprintf("operand %d (%s)", len(c.node.in), name), t) {
		c.wrong = true
		return
	}
	t.used = true
	c.poisoned = c.poisoned || t.bad
}

// with adds attributes that the operator demands.
func (c *call) with(a ...attribute) *call {
	if c.b.usable() {
		for _, a := range a {
			c.attribute(a)
		}
	}
	return c
}

// attribute adds an attribute.
func (c *call) attribute(a attribute) {
	if err := a.check(); err != nil {
		c.fail("attribute %q: %w", a.Name, err)
		return
	}
	if slices.ContainsFunc(c.node.attributes, func(x attribute) bool { return x.Name == a.Name }) {
		c.fail("attribute %q is given twice", a.Name)
		return
	}
	if c.signature != nil && !strings.HasPrefix(a.Name, "__") {
		i := slices.IndexFunc(c.signature.Attributes, func(f op.Formal) bool { return f.Name == a.Name })
		if i < 0 {
			var names []string
			for _, f := range c.signature.Attributes {
				names = append(names, f.Name)
			}
			c.fail("it has no attribute %q%s; names of other compilers begin with __", a.Name, nearest.DidYouMean(a.Name, names))
			return
		}
		switch f := c.signature.Attributes[i]; {
		case c.spans(f):
		case f.Until != 0 && c.b.opset >= f.Until:
			c.fail("attribute %q is one of operator sets before %d, and the model is of set %d", a.Name, f.Until, c.b.opset)
			return
		default:
			c.fail("attribute %q is one from operator set %d on, and the model is of set %d", a.Name, f.From, c.b.opset)
			return
		}
	}
	c.node.attributes = append(c.node.attributes, a)
}

// results ends the call: the node is in the graph, with n results, of which the first ones are written in any case.
func (c *call) results(n, required int) Tensors {
	if !c.b.usable() {
		return make(Tensors, min(max(n, 0), mostResults))
	}
	if n < 0 || n > mostResults {
		c.fail("%d results, want 0 to %d", n, mostResults)
		n = 0
	}
	b := c.b
	c.bodies()
	if c.wrong || c.poisoned {
		list := make(Tensors, n)
		for i := range list {
			list[i] = b.bad()
		}
		return list
	}
	label := c.label
	if label == "" {
		label = c.node.operator
	}
	c.node.name = b.uniqueIn(b.labels, label)
	b.places[c.node.name] = c.place
	for i := range n {
		t := b.tensor(b.unique(fmt.Sprintf("%s:%d", label, i)))
		t.node = c.node
		c.node.results = append(c.node.results, t)
	}
	c.node.required = required
	if c.node.domain != "" && b.opsets[c.node.domain] == 0 {
		b.opsets[c.node.domain] = 1
	}
	f := b.current()
	f.nodes = append(f.nodes, c.node)
	return c.node.results
}

// mostResults is how many results a node may have.
const mostResults = 1 << 16

// fixed ends the call of an operator with a fixed number of results.
func (c *call) fixed(n int) Tensors {
	required := 0
	if c.signature != nil {
		for _, f := range c.signature.Results {
			if !f.Optional {
				required++
			}
		}
	}
	return c.results(n, required)
}

func (c *call) one() *Tensor             { return c.fixed(1)[0] }
func (c *call) two() (x, y *Tensor)      { r := c.fixed(2); return r[0], r[1] }
func (c *call) three() (x, y, z *Tensor) { r := c.fixed(3); return r[0], r[1], r[2] }
func (c *call) four() (x, y, z, u *Tensor) {
	r := c.fixed(4)
	return r[0], r[1], r[2], r[3]
}
func (c *call) five() (x, y, z, u, v *Tensor) {
	r := c.fixed(5)
	return r[0], r[1], r[2], r[3], r[4]
}

// many ends the call of an operator that has as many results as the call wants.
func (c *call) many(n int) Tensors {
	if c.b.usable() && n < 1 {
		c.fail("%d results, want at least 1", n)
	}
	return c.results(n, n)
}

// inferred ends the call of an operator whose subgraphs decide how many results it has.
func (c *call) inferred() Tensors {
	if !c.b.usable() {
		return nil
	}
	c.bodies()
	n := -1
	for _, a := range c.node.attributes {
		if a.graph == nil {
			continue
		}
		has := len(a.graph.outputs)
		if c.node.operator == "Loop" {
			has-- // the condition
		}
		if n >= 0 && has != n {
			c.fail("its subgraphs return %d and %d values, want as many of each", n, has)
		}
		n = has
	}
	if n < 0 {
		c.wrong = true // the subgraph's own mistake is kept
	}
	return c.results(max(n, 0), max(n, 0))
}

// bodies makes the subgraphs of the node's attributes, each once.
func (c *call) bodies() {
	for i := range c.node.attributes {
		if a := &c.node.attributes[i]; a.body != nil && a.graph == nil {
			a.graph = c.body(a)
		}
	}
}

// body calls the function that makes a subgraph.
func (c *call) body(a *attribute) *frame {
	b := c.b
	inputs := a.inputs
	if inputs < 0 {
		inputs = c.bodyInputs()
	}
	if len(b.frames) >= onnx.MaxDepth {
		c.fail("subgraphs are nested more than %d deep", onnx.MaxDepth)
		return nil
	}
	f := &frame{name: a.Name}
	b.frames = append(b.frames, f)
	ended := false
	defer func() {
		if !ended { // the function has panicked
			f.ended = true
			b.frames = b.frames[:len(b.frames)-1]
		}
	}()
	args := make(Tensors, inputs)
	for i := range args {
		args[i] = b.tensor(b.unique(a.Name + "/input"))
	}
	f.inputs = slices.Clone(args)
	returned := a.body(args)
	for i, t := range returned {
		if !b.reads(c.place, fmt.Sprintf("%s: value %d that the function returns", a.Name, i), t) {
			c.wrong = true
			continue
		}
		c.poisoned = c.poisoned || t.bad
		t.used = true
		if !t.bad && (t.frame != f || t.node == nil || slices.Contains(f.outputs, t)) {
			t = begin[NodeOption](b, "Identity", 1, nil).in(t).one() // an output of a subgraph is a value that it computes, named once
			t.used = true
		}
		f.outputs = append(f.outputs, t)
	}
	if len(returned) == 0 {
		c.fail("%s: the function returns no values", a.Name)
	}
	ended, f.ended = true, true
	b.frames = b.frames[:len(b.frames)-1]
	return f
}

// bodyInputs returns how many inputs the subgraphs of an operator of ONNX's own have.
func (c *call) bodyInputs() int {
	switch c.node.operator {
	case "Loop":
		return len(c.node.in) // the iteration, the condition and what is carried
	case "Scan":
		return len(c.node.in) - (len(c.signature.Operands) - 1)
	case "FlexAttention":
		return 1
	}
	return 0
}

// Place adds options to the node that computes a value, as PopART's builder.virtualGraph(y, 1) does.
func (b *Builder) Place(t *Tensor, options ...NodeOption) {
	if !b.usable() {
		return
	}
	p := here("Place")
	if t == nil || t.b != b {
		b.reads(p, "the value", t)
		return
	}
	if t.bad {
		return
	}
	if t.node == nil {
		b.fail(p, "no node computes %q, which is an input or an initializer", t.name)
		return
	}
	c := &call{b: b, place: p, node: t.node}
	for _, o := range options {
		switch a := o.attribute; {
		case a != nil && a.body != nil:
			b.fail(p, "attribute %q is a subgraph, which the call that makes the node has to give", a.Name)
		case a != nil && !strings.HasPrefix(a.Name, "__"):
			b.fail(p, "attribute %q is one of the operator, which the call that makes the node has to give; names of other compilers begin with __", a.Name)
		default:
			o.apply(c)
		}
	}
	if c.label != "" {
		b.fail(p, "the node has the name %q already", t.node.name)
	}
}
