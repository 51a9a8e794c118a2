package onnx

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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

// Error lists the inputs and what can be given for each dimension.
func (e *DimError) Error() string {
	var b strings.Builder
	b.WriteString("sizes of input dimensions are missing:")
	var symbols []string
	first := false
	for _, in := range e.Inputs {
		fmt.Fprintf(&b, "\n  input %q: %s", in.Name, in.String())
		if !in.HasShape {
			b.WriteString(": its shape is not in the model")
			continue
		}
		for _, axis := range in.Free {
			s := in.Dims[axis].Symbol
			if s == "" {
				s = address(in.Name, axis)
			}
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
			fmt.Fprintf(&b, " --dim %s=N", s)
		}
		if first {
			b.WriteString("; --batch N sets every free first dimension")
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
		case !d.free():
			dims[i] = fmt.Sprint(d.Value)
		case d.Symbol != "":
			dims[i] = d.Symbol
		default:
			dims[i] = "?"
		}
	}
	return s + "[" + strings.Join(dims, ",") + "]"
}

// free reports whether d has no size. Some exporters write -1 for that.
func (d Dim) free() bool { return !d.Known || d.Value < 0 }

// address is what Options.Dims calls a dimension without a symbol.
func address(input string, axis int) string { return fmt.Sprintf("%s[%d]", input, axis) }

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
	known := make(map[string]bool) // what Options.Dims may name
	for _, in := range all {
		for axis, d := range in.Dims {
			if d.free() && d.Symbol != "" {
				known[d.Symbol] = true
			} else if d.free() {
				known[address(in.Name, axis)] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.Dims)) {
		if !known[name] {
			return nil, fmt.Errorf("a size is given for dimension %q, but no input has it (free dimensions: %s)", name, list(slices.Sorted(maps.Keys(known))))
		}
		if o.Dims[name] < 0 {
			return nil, fmt.Errorf("dimension %q is given the size %d, want 0 or more", name, o.Dims[name])
		}
		if err := b.bind(name, o.Dims[name], "option"); err != nil {
			return nil, err
		}
	}
	given := maps.Clone(o.Shapes)
	if given == nil {
		given = make(map[string][]int64)
	}
	for name, t := range o.Values {
		given[name] = t.Dims
	}
	for _, in := range all {
		if shape, ok := given[in.Name]; ok {
			if err := b.fit(in, shape); err != nil {
				return nil, err
			}
		}
	}
	if err := b.batch(ins, given, o.Batch); err != nil {
		return nil, err
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
			n, ok := b.size[d.Symbol]
			if d.Symbol == "" {
				n, ok = b.size[address(in.Name, axis)]
			}
			switch {
			case !d.free():
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
		bad = shape[axis] < 0 || !d.free() && d.Value != shape[axis]
		if bad || !d.free() {
			continue
		}
		symbol := d.Symbol
		if symbol == "" {
			symbol = address(in.Name, axis)
		}
		if err := b.bind(symbol, shape[axis], fmt.Sprintf("the shape %s of input %q", graph.ShapeString(shape), in.Name)); err != nil {
			return err
		}
	}
	if bad {
		return fmt.Errorf("input %q is given the shape %s, but the model declares %s", in.Name, graph.ShapeString(shape), in)
	}
	return nil
}

// batch gives every free first dimension the size n.
func (b *dimBinder) batch(ins []ValueInfo, given map[string][]int64, n int64) error {
	if n == 0 {
		return nil
	}
	if n < 0 {
		return fmt.Errorf("the batch size is %d, want at least 1", n)
	}
	used := false
	for _, in := range ins {
		if _, ok := given[in.Name]; ok || len(in.Dims) == 0 || !in.Dims[0].free() {
			continue
		}
		symbol := in.Dims[0].Symbol
		if symbol == "" {
			symbol = address(in.Name, 0)
		}
		if _, ok := b.size[symbol]; !ok || b.from[symbol] == "batch size" {
			b.size[symbol], b.from[symbol] = n, "batch size"
			used = true
		}
	}
	if !used {
		return fmt.Errorf("the batch size %d has no effect: no input has a free first dimension (inputs: %s)", n, inputList(ins))
	}
	return nil
}

// inputList names inputs with their types, for messages.
func inputList(ins []ValueInfo) string {
	names := make([]string, len(ins))
	for i, in := range ins {
		names[i] = fmt.Sprintf("%q %s", in.Name, in)
	}
	return list(names)
}

// list joins the first names of a list.
func list(names []string) string {
	switch {
	case len(names) == 0:
		return "none"
	case len(names) > 12:
		return fmt.Sprintf("%s, … (%d in all)", strings.Join(names[:12], ", "), len(names))
	}
	return strings.Join(names, ", ")
}
