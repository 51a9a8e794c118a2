package build

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/compile"
)

// Info returns the type of a value of the main graph as the model is now: its element type and dimensions, with symbols where they are those of inputs and nothing where a size follows from them in another way. It lowers what the value depends
// on, so it takes as long as that is large. Errors are those of [Builder.Model].
func (b *Builder) Info(ctx context.Context, t *Tensor) (onnx.ValueInfo, error) {
	if !b.usable() {
		return onnx.ValueInfo{}, ErrNoBuilder
	}
	if err := b.Err(); err != nil {
		return onnx.ValueInfo{}, err
	}
	p := here("Info")
	switch {
	case t == nil || t.b != b || t.bad:
		return onnx.ValueInfo{}, p.error(errors.New("the value is nil, or of another Builder"))
	case t.frame != b.frames[0]:
		return onnx.ValueInfo{}, p.error(fmt.Errorf("%q is a value of a subgraph, want one of the main graph", t.name))
	}
	if t.info != nil || t.value != nil {
		return t.named(), nil
	}
	used := t.used
	t.used = true
	m := b.assemble([]*Tensor{t})
	t.used = used
	part, err := dependedOn(m.Graph, t.name)
	if err != nil {
		return onnx.ValueInfo{}, p.error(err)
	}
	m.Graph = part
	if err := b.infer(ctx, p, m); err != nil {
		return onnx.ValueInfo{}, err
	}
	return m.Graph.Outputs[0], nil
}

// infer gives outputs of m without a type the one that they have, and looks for operands that do not fit together.
func (b *Builder) infer(ctx context.Context, p place, m *onnx.Model) error {
	types, err := b.types(ctx, m)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		if mistakes, _ := b.mistakes(p, err, !symbolic(m.Graph)); mistakes != nil {
			return errors.Join(mistakes...)
		}
	}
	var open []error // outputs whose types are not known
	for i := range m.Graph.Outputs {
		out := &m.Graph.Outputs[i]
		known := out.HasShape
		var found onnx.ValueInfo
		switch {
		case err == nil:
			found = types[i]
		default:
			part := *m
			graph, e := dependedOn(m.Graph, out.Name)
			if e != nil {
				return p.error(e)
			}
			part.Graph = graph
			alone, why := b.types(ctx, &part)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if why != nil && known {
				continue
			}
			if why != nil {
				mistakes, obstacles := b.mistakes(p, why, true)
				open = append(open, p.error(fmt.Errorf("the type of output %q can't be found out: say it with Declare", out.Name)))
				open = append(open, slices.Concat(mistakes, obstacles)...)
				continue
			}
			found = alone[0]
		}
		if !known {
			*out = found
		} else if why := differs(*out, found); why != "" {
			open = append(open, p.error(fmt.Errorf("output %q is declared as %v, but it is %v: %s", out.Name, out, found, why)))
		}
	}
	return errors.Join(distinct(open)...)
}

// distinct leaves out errors of the same text.
func distinct(errs []error) []error {
	seen := map[string]bool{}
	return slices.DeleteFunc(errs, func(e error) bool {
		text := e.Error()
		defer func() { seen[text] = true }()
		return seen[text]
	})
}

// differs says what two types that are to be the same differ in.
func differs(declared, found onnx.ValueInfo) string {
	if declared.Elem != found.Elem {
		return "the element types differ"
	}
	if len(declared.Dims) != len(found.Dims) {
		return "the numbers of dimensions differ"
	}
	for axis, d := range declared.Dims {
		if f := found.Dims[axis]; d.Known && f.Known && d.Value != f.Value {
			return fmt.Sprintf("dimension %d differs", axis)
		}
	}
	return ""
}

// symbolic reports whether a dimension of an input has no size.
func symbolic(g *onnx.Graph) bool {
	return slices.ContainsFunc(g.Inputs, func(v onnx.ValueInfo) bool { return slices.ContainsFunc(v.Dims, onnx.Dim.Free) })
}

// types returns the types of the outputs: by lowering the model once, or with two choices of sizes where inputs have symbols, which
// say which dimensions of outputs follow from them.
func (b *Builder) types(ctx context.Context, m *onnx.Model) ([]onnx.ValueInfo, error) {
	bare := *m
	graph := *m.Graph
	graph.Outputs = slices.Clone(graph.Outputs)
	for i := range graph.Outputs {
		graph.Outputs[i] = onnx.ValueInfo{Name: graph.Outputs[i].Name}
	}
	bare.Graph = &graph
	first, err := lowered(ctx, &bare, 0)
	if err != nil || !symbolic(&graph) {
		return first, err
	}
	second, err := lowered(ctx, &bare, 1)
	if err != nil {
		return nil, err
	}
	names := symbols(&graph)
	for i := range first {
		if len(first[i].Dims) != len(second[i].Dims) {
			return nil, fmt.Errorf("the number of dimensions of output %q follows from the sizes of inputs: %v or %v", first[i].Name, first[i], second[i])
		}
		for axis := range first[i].Dims {
			d := &first[i].Dims[axis]
			if *d == second[i].Dims[axis] {
				continue
			}
			n, k := d.Value, second[i].Dims[axis].Value
			*d = onnx.Dim{}
			for s, symbol := range names {
				if n == sizeOf(s, 0) && k == sizeOf(s, 1) && !strings.HasSuffix(symbol, "]") {
					d.Symbol = symbol
				}
			}
		}
	}
	return first, nil
}

// symbols returns the names by which sizes are given to the open dimensions of inputs.
func symbols(g *onnx.Graph) (names []string) {
	for _, in := range g.Inputs {
		for axis, d := range in.Dims {
			name := d.Symbol
			if name == "" {
				name = fmt.Sprintf("%s[%d]", in.Name, axis)
			}
			if d.Free() && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// sizeOf returns the size of a symbol in one of the two choices. No two of a choice are equal, and no two choices of one are.
func sizeOf(symbol, choice int) int64 { return 16 + 16*int64(symbol) + 8*int64(choice) }

// lowered returns the types of the outputs with one choice of sizes.
func lowered(ctx context.Context, m *onnx.Model, choice int) ([]onnx.ValueInfo, error) {
	o := onnx.Options{Dims: map[string]int64{}}
	for i, s := range symbols(m.Graph) {
		o.Dims[s] = sizeOf(i, choice)
	}
	low, err := compile.LowerContext(ctx, m, o)
	if err != nil {
		return nil, err
	}
	out := make([]onnx.ValueInfo, len(low.Outputs))
	for i, port := range low.Outputs {
		out[i] = onnx.Declare(port.Name, port.Elem, low.Executable.Tensors[port.Tensor].Type.Shape)
		for axis, count := range port.Counts {
			if count != "" { // data decides
				out[i].Dims[axis] = onnx.Dim{}
			}
		}
	}
	return out, nil
}

// mistakes divides what is in the way of a lowering, each at the line of the node that it is about: into mistakes, and into what is not supported or not known here, which is none of the
// model's. Sizes that are mere choices prove no mistake.
func (b *Builder) mistakes(p place, err error, proven bool) (mistakes, obstacles []error) {
	for _, err := range flat(err) {
		var unsupported *onnx.UnsupportedError
		var needs *onnx.NeedValueError
		var dims *onnx.DimError
		switch {
		case errors.As(err, &unsupported):
			for _, o := range unsupported.Obstacles {
				text := o.What + " is not supported"
				if o.Hint != "" {
					text += "; hint: " + o.Hint
				}
				obstacles = append(obstacles, b.at(p, strings.Join(o.Nodes[:min(1, len(o.Nodes))], ""), text))
			}
		case errors.As(err, &needs):
			for _, n := range needs.Needs {
				text := fmt.Sprintf("operand %s decides sizes, and depends on inputs %q", n.Operand, n.Inputs)
				if n.Max != "" {
					text = "data decides the size of its result, and nothing says how much that may be"
				}
				obstacles = append(obstacles, b.at(p, n.Node, text))
			}
		case errors.As(err, &dims) || !proven:
			obstacles = append(obstacles, b.at(p, err.Error(), err.Error()))
		default:
			mistakes = append(mistakes, b.at(p, err.Error(), err.Error()))
		}
	}
	return mistakes, obstacles
}

// at returns an error about a node, at the line of the call that made it: the last node that where names is it, and what is in front of it is left out of the text.
func (b *Builder) at(p place, where, text string) error {
	found := -1
	for i := 0; ; {
		k := strings.Index(where[i:], "node \"")
		if k < 0 {
			break
		}
		i += k + len("node ")
		quoted, err := strconv.QuotedPrefix(where[i:])
		if err != nil {
			break
		}
		name, _ := strconv.Unquote(quoted)
		i += len(quoted)
		if of, ok := b.places[name]; ok && strings.HasPrefix(where[i:], " (") {
			p, found = of, i
		}
	}
	if found >= 0 && text == where {
		if _, rest, ok := strings.Cut(where[found:], "): "); ok {
			text = rest
		}
	}
	return p.error(errors.New(text))
}

// flat returns the errors that are joined in one.
func flat(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, flat(e)...)
		}
		return all
	}
	return []error{err}
}

// dependedOn returns the graph with one of its outputs alone, and what that depends on.
func dependedOn(g *onnx.Graph, output string) (*onnx.Graph, error) {
	part, err := g.Needed(output)
	if err != nil {
		return nil, err
	}
	part.Outputs = slices.DeleteFunc(slices.Clone(g.Outputs), func(v onnx.ValueInfo) bool { return v.Name != output })
	return part, nil
}
