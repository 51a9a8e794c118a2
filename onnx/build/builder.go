package build

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/op"
)

// Builder is a model in the making. Its zero value is not usable, see [New]. One goroutine at a time may use it.
type Builder struct {
	name    string
	opset   int64
	opsets  map[string]int64 // of other domains that are used
	frames  []*frame         // the main graph, and the subgraphs around the call under way
	names   map[string]int   // of values: how often each was wanted
	labels  map[string]int   // of nodes
	scopes  []string
	options [][]NodeOption     // of With, outermost first
	places  map[string]place   // of nodes, by name
	outside map[*Tensor]string // initialisers in files of their own

	errs []error
	more int // mistakes that are not kept
}

// frame is a graph in the making.
type frame struct {
	name         string
	nodes        []*node
	inputs       []*Tensor
	initializers []*Tensor
	outputs      []*Tensor
	ended        bool
}

// Option says what model a Builder makes.
type Option func(*Builder)

// Opset makes the model one of a version of ONNX's operator set, from 1 to [Newest], which it is without the option.
func Opset(version int64) Option {
	p := here("Opset")
	return func(b *Builder) {
		if version < 1 || version > Newest() {
			b.fail(p, "operator set %d, want one from 1 to %d", version, Newest())
			return
		}
		b.opset = version
	}
}

// GraphName gives the model's graph a name, which is "main" otherwise.
func GraphName(name string) Option {
	p := here("GraphName")
	return func(b *Builder) {
		if b.usableName(p, name) {
			b.name = name
		}
	}
}

// Newest returns the newest version of ONNX's operator set that is known.
func Newest() int64 { return op.Table().Newest }

// New returns a Builder of a model that has nothing yet. A mistake in an option is among those of [Builder.Err].
func New(options ...Option) *Builder {
	b := &Builder{
		name: "main", opset: Newest(), opsets: map[string]int64{}, names: map[string]int{}, labels: map[string]int{}, places: map[string]place{}, outside: map[*Tensor]string{},
		frames: []*frame{{}},
	}
	for _, o := range options {
		if o != nil {
			o(b)
		}
	}
	return b
}

func (b *Builder) usable() bool { return b != nil && b.names != nil }

// current returns the graph that calls add to.
func (b *Builder) current() *frame { return b.frames[len(b.frames)-1] }

// Scope calls build, and puts name before the names of all that it makes, as in "encoder/Conv:0": PopART's nameScope. Scopes nest.
func (b *Builder) Scope(name string, build func()) {
	if build == nil {
		if b.usable() {
			b.fail(here("Scope"), "the function is nil")
		}
		return
	}
	if b.usable() && b.usableName(here("Scope"), name) {
		b.scopes = append(b.scopes, name)
		defer func() { b.scopes = b.scopes[:len(b.scopes)-1] }()
	}
	build()
}

// With calls build, and gives every node that it makes the options, before those that the node's own call has: PopART's
// "with builder.virtualGraph(0)". Calls of it nest; the innermost option counts where two say the same.
func (b *Builder) With(build func(), options ...NodeOption) {
	if build == nil {
		if b.usable() {
			b.fail(here("With"), "the function is nil")
		}
		return
	}
	if b.usable() {
		b.options = append(b.options, options)
		defer func() { b.options = b.options[:len(b.options)-1] }()
	}
	build()
}

// usableName reports whether a name can stand in a file.
func (b *Builder) usableName(p place, name string) bool {
	switch {
	case len(name) > onnx.MaxName/16:
		b.fail(p, "a name of %d bytes, want at most %d", len(name), onnx.MaxName/16)
	case !utf8.ValidString(name):
		b.fail(p, "the name %q is not UTF-8", name)
	default:
		return true
	}
	return false
}

// unique returns a name of a value within the scopes that are open that none has yet: "/1", "/2", … is added to one that is taken, as PopART does.
func (b *Builder) unique(name string) string { return b.uniqueIn(b.names, name) }

// uniqueIn is unique among other names.
func (b *Builder) uniqueIn(names map[string]int, name string) string {
	if len(b.scopes) > 0 {
		name = strings.Join(b.scopes, "/") + "/" + name
	}
	if len(name) > onnx.MaxName/2 { // scopes in hundreds
		name = name[len(name)-onnx.MaxName/2:]
		for !utf8.ValidString(name) {
			name = name[1:]
		}
	}
	free := name
	for {
		if _, taken := names[free]; !taken {
			names[free] = 0
			return free
		}
		names[name]++
		free = fmt.Sprintf("%s/%d", name, names[name])
	}
}

// Input adds an input of the graph with a name, an element type and dimensions, each an int, an int64, an [onnx.Dim], or a string: a
// symbol, for a size that follows when the model is compiled. An input may have the name "", for which PopART's "input" is taken. Inputs of subgraphs are made by the operators that
// run them.
func (b *Builder) Input(name string, elem onnx.ElemType, dims ...any) *Tensor {
	if !b.usable() {
		return nil
	}
	p := here("Input")
	if !b.usableName(p, name) {
		return b.bad()
	}
	if len(b.frames) > 1 {
		b.fail(p, "input %q within a subgraph, want it in the main graph: subgraphs read values of the graphs around them, and their own inputs are the arguments of their functions", name)
		return b.bad()
	}
	info, ok := b.info(p, elem, dims)
	if !ok {
		return b.bad()
	}
	if name == "" {
		name = "input"
	}
	t := b.tensor(b.unique(name))
	t.info = info
	b.frames[0].inputs = append(b.frames[0].inputs, t)
	return t
}

// Initializer adds a weight or another value that the model has: an initialised input in PopART's terms. Its name is that of the tensor if name is "", and
// "init" if both are. The data is not copied and must not change. In a subgraph it is one of the subgraph.
func (b *Builder) Initializer(name string, value *onnx.Tensor) *Tensor {
	if !b.usable() {
		return nil
	}
	p := here("Initializer")
	if err := check(value); err != nil {
		b.fail(p, "%w", err)
		return b.bad()
	}
	if !b.usableName(p, name) || !b.usableName(p, value.Name) {
		return b.bad()
	}
	for _, n := range []string{value.Name, "init"} {
		if name == "" {
			name = n
		}
	}
	t := b.tensor(b.unique(name))
	t.value = value
	f := b.current()
	f.initializers = append(f.initializers, t)
	return t
}

// Output makes a value of the main graph an output with a name; "" keeps the one that [Tensor.Name] says.
func (b *Builder) Output(name string, t *Tensor) {
	if !b.usable() {
		return
	}
	p := here("Output")
	switch {
	case !b.usableName(p, name) || !b.reads(p, "the output", t) || t.bad:
		return
	case len(b.frames) > 1:
		b.fail(p, "output %q within a subgraph, want it in the main graph: what a subgraph's function returns are its outputs", name)
		return
	case t.output && (name == "" || name == t.name):
		b.fail(p, "%q is an output already", t.name)
		return
	}
	if name != "" && name != t.name {
		if _, taken := b.names[name]; taken {
			b.fail(p, "there is something of the name %q already", name)
			return
		}
		if t.node == nil || t.output || t.seen {
			t = begin[NodeOption](b, "Identity", 1, nil).in(t).one()
		}
		b.names[name] = 0
		t.name = name
	}
	t.output, t.used = true, true
	b.frames[0].outputs = append(b.frames[0].outputs, t)
}

// Declare says the element type and the dimensions of a value, as [Builder.Input] does: of an output, where [Builder.Model] can't find them out, of an argument of a
// subgraph's function, or of any other value, as a note to readers of the model.
func (b *Builder) Declare(t *Tensor, elem onnx.ElemType, dims ...any) {
	if !b.usable() {
		return
	}
	p := here("Declare")
	if !b.reads(p, "the value", t) || t.bad {
		return
	}
	switch {
	case t.value != nil:
		b.fail(p, "%q is an initializer, whose type is that of its data", t.name)
	case t.info != nil:
		b.fail(p, "the type of %q is known already", t.name)
	default:
		if info, ok := b.info(p, elem, dims); ok {
			t.info = info
		}
	}
}

// info returns a type without a name.
func (b *Builder) info(p place, elem onnx.ElemType, dims []any) (*onnx.ValueInfo, bool) {
	v := &onnx.ValueInfo{Elem: elem, HasShape: true, Dims: make([]onnx.Dim, len(dims))}
	if !elem.DType().Valid() {
		b.fail(p, "element type %v, which is not supported", elem)
		return nil, false
	}
	for axis, d := range dims {
		dim := onnx.Dim{Known: true}
		switch d := d.(type) {
		case int:
			dim.Value = int64(d)
		case int64:
			dim.Value = d
		case string:
			dim = onnx.Dim{Symbol: d}
		case onnx.Dim:
			dim = d
		default:
			b.fail(p, "dimension %d is of type %T, want an int, an int64, a string or an onnx.Dim", axis, d)
			return nil, false
		}
		switch {
		case dim.Known && dim.Value < 0:
			b.fail(p, "dimension %d is %d, want a size from 0 on", axis, dim.Value)
			return nil, false
		case !b.usableName(p, dim.Symbol):
			return nil, false
		}
		v.Dims[axis] = dim
	}
	if len(dims) > 64 {
		b.fail(p, "%d dimensions, want at most 64", len(dims))
		return nil, false
	}
	return v, true
}
