package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/ipu/graph"
)

// FreeInput is a graph input some of whose dimensions have no size.
type FreeInput struct {
	ValueInfo
	Free []int // axes without a size; nil if the model gives no shape at all
}

// DimError says that inputs have dimensions without a size. Everything is
// static in an executable, so the caller has to choose.
type DimError struct{ Inputs []FreeInput }

// SizeError says that sizes or values were given that do not fit the model's
// inputs.
type SizeError struct{ Err error }

// Error returns what does not fit.
func (e *SizeError) Error() string { return e.Err.Error() }

// Unwrap returns what does not fit.
func (e *SizeError) Unwrap() error { return e.Err }

// Error lists the inputs and what can be given for each dimension.
func (e *DimError) Error() string {
	var b strings.Builder
	b.WriteString("sizes of input dimensions are missing:")
	var symbols []string
	first := false
	for _, in := range e.Inputs {
		fmt.Fprintf(&b, "\n  input %q: %s", in.Name, in.String())
		if !in.HasShape {
			fmt.Fprintf(&b, ": its shape is not in the model; give every dimension, --dim %s and so on", printable.ShellWord(address(in.Name, 0)+"=SIZE"))
			continue
		}
		for _, axis := range in.Free {
			s := symbolOf(in.ValueInfo, axis)
			if !slices.Contains(symbols, s) {
				symbols = append(symbols, s)
			}
			first = first || axis == 0
		}
	}
	if len(symbols) > 0 {
		b.WriteString("\nhint: give each a size:")
		for i, s := range symbols {
			if i == 20 {
				fmt.Fprintf(&b, " … (%d more)", len(symbols)-i)
				break
			}
			b.WriteString(" --dim " + printable.ShellWord(s+"=SIZE"))
		}
		if first {
			b.WriteString("; --batch SIZE sets every free first dimension")
		}
	}
	return b.String()
}

// String returns type and shape as in "float[N,3,?,224]".
func (v ValueInfo) String() string {
	if v.NotDense != "" {
		return v.NotDense
	}
	s := v.Elem.String()
	if !v.HasShape {
		return s + " of unknown shape"
	}
	dims := make([]string, len(v.Dims))
	for i, d := range v.Dims {
		switch {
		case !d.Free():
			dims[i] = fmt.Sprint(d.Value)
		case d.Symbol != "":
			dims[i] = printable.Line(d.Symbol)
		default:
			dims[i] = "?"
		}
	}
	return s + "[" + strings.Join(dims, ",") + "]"
}

// Declare returns the declaration of a graph input or output of a fixed shape.
func Declare(name string, elem ElemType, shape []int64) ValueInfo {
	v := ValueInfo{Name: name, Elem: elem, HasShape: true, Dims: make([]Dim, len(shape))}
	for axis, n := range shape {
		v.Dims[axis] = Dim{Known: true, Value: n}
	}
	return v
}

// Free reports whether d has no size. Some exporters write -1 for that.
func (d Dim) Free() bool { return !d.Known || d.Value < 0 }

// address is what Options.Dims calls a dimension by its place.
func address(input string, axis int) string { return fmt.Sprintf("%s[%d]", input, axis) }

// symbolOf is what a free dimension of an input is called: by its symbol, or
// by its place if it has none.
func symbolOf(in ValueInfo, axis int) string {
	if s := in.Dims[axis].Symbol; s != "" {
		return s
	}
	return address(in.Name, axis)
}

// dimBinder gives sizes to symbols.
type dimBinder struct {
	size map[string]int64
	from map[string]string // what gave the size, for messages
}

func (b *dimBinder) bind(symbol string, n int64, from string) error {
	if old, ok := b.size[symbol]; ok && old != n {
		return fmt.Errorf("dimension %q is %d by %s, but %d by %s", symbol, old, b.from[symbol], n, from)
	}
	b.size[symbol], b.from[symbol] = n, from
	return nil
}

// bindShapes returns the shapes of ins, those of all inputs of the graph that
// the host has to feed.
func bindShapes(all, ins []ValueInfo, o Options) (map[string][]int64, error) {
	b := &dimBinder{make(map[string]int64), make(map[string]string)}
	given := maps.Clone(o.Shapes)
	if given == nil {
		given = make(map[string][]int64)
	}
	for name, t := range o.Values {
		given[name] = t.Dims
	}
	if err := b.sizes(all, given, o.Dims); err != nil {
		return nil, &SizeError{err}
	}
	for _, in := range all {
		if shape, ok := given[in.Name]; ok {
			if err := b.fit(in, shape); err != nil {
				return nil, &SizeError{err}
			}
		}
	}
	if err := b.batch(ins, given, o.Batch); err != nil {
		return nil, &SizeError{err}
	}
	shapes := make(map[string][]int64, len(ins))
	var missing []FreeInput
	for _, in := range ins {
		if in.NotDense != "" {
			continue
		}
		if shape, ok := given[in.Name]; ok {
			shapes[in.Name] = slices.Clone(shape)
			continue
		}
		free := FreeInput{ValueInfo: in}
		shape := make([]int64, len(in.Dims))
		for axis, d := range in.Dims {
			n, ok := b.size[symbolOf(in, axis)]
			switch {
			case !d.Free():
				shape[axis] = d.Value
			case ok:
				shape[axis] = n
			default:
				free.Free = append(free.Free, axis)
			}
		}
		if !in.HasShape || free.Free != nil {
			missing = append(missing, free)
		}
		shapes[in.Name] = shape
	}
	if missing != nil {
		return nil, &DimError{missing}
	}
	return shapes, nil
}

// fit checks a given shape against what the model says and binds the symbols
// in it.
func (b *dimBinder) fit(in ValueInfo, shape []int64) error {
	if !in.HasShape {
		return nil
	}
	bad := len(shape) != len(in.Dims)
	for axis := 0; !bad && axis < len(shape); axis++ {
		d := in.Dims[axis]
		bad = shape[axis] < 0 || !d.Free() && d.Value != shape[axis]
		if bad || !d.Free() {
			continue
		}
		if err := b.bind(symbolOf(in, axis), shape[axis], fmt.Sprintf("the shape %s of input %q", graph.ShapeString(shape), in.Name)); err != nil {
			return err
		}
	}
	if bad {
		return fmt.Errorf("input %q is given the shape %s, want one that fits the model's %s", in.Name, graph.ShapeString(shape), in)
	}
	return nil
}

// sizes binds the sizes that are given by symbol or by place. Those by place of
// an input whose shape is not in the model make its shape, which goes to given.
func (b *dimBinder) sizes(all []ValueInfo, given map[string][]int64, sizes map[string]int64) error {
	known := make(map[string]bool) // what can be named
	places := make(map[string]func(n int64) error)
	shapeless := make(map[string]map[int64]int64)
	for _, in := range all {
		for axis, d := range in.Dims {
			place := address(in.Name, axis)
			if d.Free() {
				known[symbolOf(in, axis)] = true
				places[place] = func(n int64) error { return b.bind(symbolOf(in, axis), n, "the size given for "+place) }
				continue
			}
			places[place] = func(n int64) error {
				if n != d.Value {
					return fmt.Errorf("dimension %s is given the size %d, want %d, which it is in the model (%s)", place, n, d.Value, in)
				}
				return nil
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		n, bind := sizes[name], places[name]
		switch in, axis := shapelessInput(all, name); {
		case n < 0:
			return fmt.Errorf("dimension %q is given the size %d, want 0 or more", name, n)
		case known[name]:
			bind = func(n int64) error { return b.bind(name, n, "the size given for it") }
		case bind != nil:
		case in != "":
			if shapeless[in] == nil {
				shapeless[in] = make(map[int64]int64)
			}
			shapeless[in][axis] = n
			continue
		default:
			free := slices.Sorted(maps.Keys(known))
			return fmt.Errorf("a size is given for dimension %q, which no input has, want one of the free dimensions (%s)%s", name, printable.List(free), nearest.DidYouMean(name, free))
		}
		if err := bind(n); err != nil {
			return err
		}
	}
	for _, in := range slices.Sorted(maps.Keys(shapeless)) {
		if given[in] != nil {
			return fmt.Errorf("input %q is given sizes of dimensions and a shape", in)
		}
		shape := make([]int64, len(shapeless[in]))
		for axis := range shape {
			n, ok := shapeless[in][int64(axis)]
			if !ok {
				return fmt.Errorf("input %q is given %d sizes, but none for %s: its shape is not in the model, so that every dimension needs one", in, len(shape), address(in, axis))
			}
			shape[axis] = n
		}
		given[in] = shape
	}
	return nil
}

// shapelessInput returns the input without a shape, and its axis, that name is
// the place of; "" if it is of none.
func shapelessInput(all []ValueInfo, name string) (input string, axis int64) {
	open := strings.LastIndexByte(name, '[')
	if open < 0 || !strings.HasSuffix(name, "]") {
		return "", 0
	}
	axis, err := strconv.ParseInt(name[open+1:len(name)-1], 10, 32)
	if err != nil || axis < 0 {
		return "", 0
	}
	for _, in := range all {
		if in.Name == name[:open] && !in.HasShape && in.NotDense == "" {
			return in.Name, axis
		}
	}
	return "", 0
}

// batch gives every free first dimension the size n. A model whose inputs have
// that size already is as the caller wants it.
func (b *dimBinder) batch(ins []ValueInfo, given map[string][]int64, n int64) error {
	if n == 0 {
		return nil
	}
	if n < 0 {
		return fmt.Errorf("the batch size is %d, want at least 1", n)
	}
	used := false
	for _, in := range ins {
		if shape, ok := given[in.Name]; ok {
			used = used || len(shape) > 0 && shape[0] == n
			continue
		}
		if len(in.Dims) == 0 {
			continue
		}
		if !in.Dims[0].Free() {
			used = used || in.Dims[0].Value == n
			continue
		}
		symbol := symbolOf(in, 0)
		if size, ok := b.size[symbol]; !ok {
			b.size[symbol], b.from[symbol] = n, "the batch size"
			used = true
		} else {
			used = used || size == n
		}
	}
	if !used {
		return fmt.Errorf("the batch size %d has no effect: no input has a free first dimension, or one of that size (inputs: %s); to change it, export the model with a free one", n, inputList(ins))
	}
	return nil
}

// inputList names inputs with their types, for messages.
func inputList(ins []ValueInfo) string {
	names := make([]string, len(ins))
	for i, in := range ins {
		names[i] = fmt.Sprintf("%q %s", in.Name, in)
	}
	return printable.List(names)
}

// Check returns an error if o gives a value or a shape for an input that g does not
// have.
func (o Options) Check(g *Graph) error {
	has := func(name string) bool {
		return slices.ContainsFunc(g.Inputs, func(in ValueInfo) bool { return in.Name == name })
	}
	for name := range o.Values {
		if !has(name) {
			return fmt.Errorf("a value is bound to %q, but the model has no such input (it has %s)", name, inputList(g.Inputs))
		}
	}
	for name := range o.Shapes {
		if !has(name) {
			return fmt.Errorf("a shape is given for %q, but the model has no such input (it has %s)", name, inputList(g.Inputs))
		}
	}
	return nil
}

// StaticInputs returns the inputs of m that the host has to feed once o has fixed
// its open ends: those without an initializer and without a value in o.Values, with a
// size for each dimension. The error is a [*DimError] or a [*SizeError].
func StaticInputs(m *Model, o Options) ([]ValueInfo, error) {
	var ins []ValueInfo
	known := make(map[string]bool, len(m.Graph.Initializers))
	for _, t := range m.Graph.Initializers {
		known[t.Name] = true
	}
	for _, in := range m.Graph.Inputs {
		if !known[in.Name] && o.Values[in.Name] == nil {
			ins = append(ins, in)
		}
	}
	shapes, err := bindShapes(m.Graph.Inputs, ins, o)
	if err != nil {
		return nil, err
	}
	for i := range ins {
		shape, ok := shapes[ins[i].Name]
		if !ok { // a sequence or the like
			continue
		}
		ins[i].HasShape, ins[i].Dims = true, make([]Dim, len(shape))
		for axis, n := range shape {
			ins[i].Dims[axis] = Dim{Known: true, Value: n}
		}
	}
	return ins, nil
}
