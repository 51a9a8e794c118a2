package lower

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
)

// Table is what operators a lowering knows.
type Table struct {
	// Newest is the newest operator set of ONNX's own domain that the table knows.
	Newest int64
	// Operators are those that can be lowered, by name, with the domain in front
	// where it is not ONNX's own. Versions that changed nothing that matters here
	// (more element types, wording) are not listed.
	Operators map[string]*Definition
	// Counted are those of them, by name, that operands with counted axes may be given (see
	// [Value.Counted]): what they emit honours counts or is refused by [Call.EmitN].
	Counted map[string]bool
}

// Func lowers one node and returns its results; the list is as long as
// the operator has results, with nil for those that [Call.Wants] does not ask
// for.
type Func func(c *Call) []*Value

// Definition says what an operator is: its operands with the element types
// that each may have, and what it means from which version on.
type Definition struct {
	Operands []Operand
	Forms    []Form // by version
}

// Form is an operator from one version of its operator set on.
type Form struct {
	Version    int64
	Lower      Func        // nil: the version dropped the operator
	Attributes []Attribute // every one that it has
	Operands   []Operand   // those of the definition, unless the form takes others
}

// Operand is one of the operands of an operator. The last one may stand for
// any number of them.
type Operand struct {
	Name     string
	Variable string // operands of the same variable have the same type; "" for none
	Words    string // the types in the words of the definition
	Types    []graph.DType
	Repeats  bool // it stands for any number of operands
}

// Attribute is one of the attributes of a form. Without a default, the form
// means something when it is left out, unless it is required.
type Attribute struct {
	Name     string
	Type     onnx.AttributeType
	Required bool
	Default  *onnx.Attribute
}

// Takes begins a definition with the operands: "A:T=numbers B:T axes:int64"
// says that A is of a type T, which is one of [typeSets]' numbers, that B is of
// the same and axes of int64. A '|' joins sets; '…' after the last name says
// that there may be several of it.
func Takes(operands string) Definition { return Definition{Operands: parseOperands(operands)} }

// Taking gives the last form other operands than the definition says.
func (d Definition) Taking(operands string) Definition {
	d.Forms[len(d.Forms)-1].Operands = parseOperands(operands)
	return d
}

func parseOperands(operands string) (list []Operand) {
	sets := map[string]Operand{}
	for _, text := range strings.Fields(operands) {
		name, types, ok := strings.Cut(text, ":")
		if !ok {
			panic("operand without types: " + text)
		}
		variable, words, defines := strings.Cut(types, "=")
		var o Operand
		switch _, isSet := typeSets[variable]; {
		case defines:
			o = Operand{Variable: variable, Words: words, Types: setOf(words)}
			sets[variable] = o
		case !isSet && sets[variable].Types != nil:
			o = sets[variable]
		default:
			o = Operand{Words: types, Types: setOf(types)}
		}
		o.Name, o.Repeats = strings.CutSuffix(name, "…")
		list = append(list, o)
	}
	return list
}

// Since adds the form that begins with a version. Attributes are in any number
// of texts, "axis=-1 mode=linear axes:ints shape:ints!", and say the default,
// or the type of one without default, with '!' if it must be given. A default
// with a point is a float.
func (d Definition) Since(version int64, lower Func, attrs ...string) Definition {
	f := Form{Version: version, Lower: lower, Operands: d.Operands}
	for _, text := range strings.Fields(strings.Join(attrs, " ")) {
		f.Attributes = append(f.Attributes, parseAttribute(text))
	}
	d.Forms = append(slices.Clip(d.Forms), f)
	return d
}

// DroppedIn ends the operator with a version.
func (d Definition) DroppedIn(version int64) Definition { return d.Since(version, nil) }

func parseAttribute(text string) Attribute {
	if name, def, ok := strings.Cut(text, "="); ok {
		a := &onnx.Attribute{Name: name, Type: onnx.AttrString, String: []byte(def)}
		if n, err := strconv.ParseInt(def, 10, 64); err == nil {
			*a = onnx.Attribute{Name: name, Type: onnx.AttrInt, Int: n}
		} else if f, err := strconv.ParseFloat(def, 32); err == nil {
			*a = onnx.Attribute{Name: name, Type: onnx.AttrFloat, Float: float32(f)}
		}
		return Attribute{Name: name, Type: a.Type, Default: a}
	}
	name, typ, _ := strings.Cut(text, ":")
	typ, required := strings.CutSuffix(typ, "!")
	for t := onnx.AttrFloat; t <= onnx.AttrSparse; t++ {
		if t.String() == typ {
			return Attribute{Name: name, Type: t, Required: required}
		}
	}
	panic("attribute without a type or default: " + text)
}

// Attribute returns the attribute of the given name, nil if there is none.
func (f *Form) Attribute(name string) *Attribute {
	for i := range f.Attributes {
		if f.Attributes[i].Name == name {
			return &f.Attributes[i]
		}
	}
	return nil
}

// typeSets are the sets of element types that definitions speak of. Beside
// them, every element type is a set by its own name.
var typeSets = func() map[string][]graph.DType {
	integers := []graph.DType{graph.I8, graph.I16, graph.I32, graph.I64, graph.U8, graph.U16, graph.U32, graph.U64}
	floats := []graph.DType{graph.F16, graph.BF16, graph.F32, graph.F64}
	float8 := []graph.DType{graph.F8E4M3, graph.F8E5M2}
	narrow := []graph.DType{graph.I4, graph.U4, graph.I2, graph.U2}
	sets := map[string][]graph.DType{
		"floats":    floats,
		"integers":  integers,
		"numbers":   slices.Concat(integers, floats),
		"wide":      slices.Concat([]graph.DType{graph.I32, graph.I64, graph.U32, graph.U64}, floats),
		"signed":    slices.Concat(integers[:4], floats),
		"unsigned":  integers[4:],
		"indices":   {graph.I32, graph.I64},
		"scales":    {graph.F16, graph.BF16, graph.F32},
		"bytes":     {graph.I8, graph.U8},
		"quantised": slices.Concat([]graph.DType{graph.I8, graph.U8, graph.I16, graph.U16}, narrow, float8),
		"float8":    float8,
		"any":       slices.Concat(integers, floats, []graph.DType{graph.Bool}, narrow, float8),
	}
	for _, e := range onnx.ElemTypes() {
		if t := e.DType(); t.Valid() {
			sets[e.String()] = []graph.DType{t}
		}
	}
	return sets
}()

// setOf returns the types of sets joined by '|'.
func setOf(words string) []graph.DType {
	var all []graph.DType
	for _, w := range strings.Split(words, "|") {
		set := typeSets[w]
		if set == nil {
			panic("no such set of element types: " + w)
		}
		all = append(all, set...)
	}
	return all
}

// Operand returns the definition of operand i, nil if there is none.
func (f *Form) Operand(i int) *Operand {
	n := len(f.Operands)
	switch {
	case i < n:
		return &f.Operands[i]
	case n > 0 && f.Operands[n-1].Repeats:
		return &f.Operands[n-1]
	}
	return nil
}

// checkOperands checks the element types of the operands that could be
// lowered.
func (c *Call) checkOperands() {
	first := map[string]int{} // by variable, the operand that settled it
	for i, v := range c.inputs {
		o := c.form.Operand(i)
		if o == nil || v == nil || v.bad {
			continue
		}
		if !slices.Contains(o.Types, v.Type.DType) {
			panic(failure{&obstacle{
				reason: fmt.Sprintf("operator %s on %v, operand %s", c.op(), onnx.ElemTypeOf(v.Type.DType), o.Name),
				hint:   fmt.Sprintf("%s takes %s there: cast the operand in the model", c.node.OpType, typeNames(o.Types)),
			}})
		}
		if o.Variable == "" {
			continue
		}
		if k, ok := first[o.Variable]; !ok {
			first[o.Variable] = i
		} else if want := c.inputs[k]; want.Type.DType != v.Type.DType {
			c.Fail("operand %d (%s) is %v, want the element type of operand %d (%s), %v", i, o.Name, v.Type, k, c.form.Operand(k).Name, want.Type)
		}
	}
}

// typeNames lists types by ONNX's names.
func typeNames(types []graph.DType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = onnx.ElemTypeOf(t).String()
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ", ")
}

// checkAttributes checks that the attributes given are those that the form
// has, of its types, and that none is missing. Names that begin with two
// underscores are notes of other compilers.
func (c *Call) checkAttributes() error {
	for _, a := range c.node.Attributes {
		if c.attrs[a.Name] == nil || strings.HasPrefix(a.Name, "__") || a.Name == "consumed_inputs" {
			continue
		}
		known := c.form.Attribute(a.Name)
		if known == nil {
			return fmt.Errorf("%s has no attribute %q", c.op(), a.Name)
		}
		if got := c.attrs[a.Name].Type; got != known.Type {
			return fmt.Errorf("attribute %q is of type %v, want %v", a.Name, got, known.Type)
		}
	}
	for _, a := range c.form.Attributes {
		if a.Required && c.attrs[a.Name] == nil {
			return fmt.Errorf("attribute %q is missing", a.Name)
		}
	}
	return nil
}
