package onnx

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Table is what operators a lowering knows.
type Table struct {
	// Newest is the newest operator set of ONNX's own domain that the table knows.
	Newest int64
	// Operators are those that can be lowered, by name, with the domain in front
	// where it is not ONNX's own. Versions that changed nothing that matters here
	// (more element types, wording) are not listed.
	Operators map[string]*Definition
}

// LowerFunc lowers one node and returns its results; the list is as long as
// the operator has results, with nil for those that [Call.wants] does not ask
// for.
type LowerFunc func(c *Call) []*Value

// Definition says what an operator is: its operands with the element types
// that each may have, and what it means from which version on.
type Definition struct {
	operands []operand
	sized    string // see sizedBy
	Forms    []form // by version
}

// form is an operator from one version of its operator set on.
type form struct {
	Version int64
	lower   LowerFunc   // nil: the version dropped the operator
	attrs   []attribute // every one that it has
	// operands are those of the definition, unless the form takes others.
	operands []operand
	SizedBy  string // the operands whose elements decide the sizes of results
}

// operand is one of the operands of an operator. The last one may stand for
// any number of them.
type operand struct {
	Name     string
	variable string // operands of the same variable have the same type; "" for none
	words    string // the types in the words of the definition
	types    []graph.DType
	repeats  bool
}

// attribute is one of the attributes of a form. Without a default, the form
// means something when it is left out, unless it is required.
type attribute struct {
	Name     string
	Type     AttributeType
	required bool
	def      *Attribute
}

// Takes begins a definition with the operands: "A:T=numbers B:T axes:int64"
// says that A is of a type T, which is one of [typeSets]' numbers, that B is of
// the same and axes of int64. A '|' joins sets; '…' after the last name says
// that there may be several of it.
func Takes(operands string) Definition { return Definition{operands: parseOperands(operands)} }

// taking gives the last form other operands than the definition says.
func (d Definition) Taking(operands string) Definition {
	d.Forms[len(d.Forms)-1].operands = parseOperands(operands)
	return d
}

// sizedBy says that the elements of operands decide the sizes of results: "01" is
// operand 0 and operand 1.
func (d Definition) SizedBy(operands string) Definition {
	d.sized = operands
	return d
}

func parseOperands(operands string) (list []operand) {
	sets := map[string]operand{}
	for _, text := range strings.Fields(operands) {
		name, types, ok := strings.Cut(text, ":")
		if !ok {
			panic("operand without types: " + text)
		}
		variable, words, defines := strings.Cut(types, "=")
		var o operand
		switch _, isSet := typeSets[variable]; {
		case defines:
			o = operand{variable: variable, words: words, types: setOf(words)}
			sets[variable] = o
		case !isSet && sets[variable].types != nil:
			o = sets[variable]
		default:
			o = operand{words: types, types: setOf(types)}
		}
		o.Name, o.repeats = strings.CutSuffix(name, "…")
		list = append(list, o)
	}
	return list
}

// since adds the form that begins with a version. Attributes are in any number
// of texts, "axis=-1 mode=linear axes:ints shape:ints!", and say the default,
// or the type of one without default, with '!' if it must be given. A default
// with a point is a float.
func (d Definition) Since(version int64, lower LowerFunc, attrs ...string) Definition {
	f := form{Version: version, lower: lower, operands: d.operands, SizedBy: d.sized}
	for _, text := range strings.Fields(strings.Join(attrs, " ")) {
		f.attrs = append(f.attrs, parseAttribute(text))
	}
	d.Forms = append(slices.Clip(d.Forms), f)
	return d
}

// droppedIn ends the operator with a version.
func (d Definition) DroppedIn(version int64) Definition { return d.Since(version, nil) }

func parseAttribute(text string) attribute {
	if name, def, ok := strings.Cut(text, "="); ok {
		a := &Attribute{Name: name, Type: AttrString, String: []byte(def)}
		if n, err := strconv.ParseInt(def, 10, 64); err == nil {
			*a = Attribute{Name: name, Type: AttrInt, Int: n}
		} else if f, err := strconv.ParseFloat(def, 32); err == nil {
			*a = Attribute{Name: name, Type: AttrFloat, Float: float32(f)}
		}
		return attribute{Name: name, Type: a.Type, def: a}
	}
	name, typ, _ := strings.Cut(text, ":")
	typ, required := strings.CutSuffix(typ, "!")
	for t := AttrFloat; t <= AttrSparse; t++ {
		if t.String() == typ {
			return attribute{Name: name, Type: t, required: required}
		}
	}
	panic("attribute without a type or default: " + text)
}

// attribute returns the attribute of the given name, nil if there is none.
func (f *form) attribute(name string) *attribute {
	for i := range f.attrs {
		if f.attrs[i].Name == name {
			return &f.attrs[i]
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
	for _, e := range ElemTypes() {
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

// operand returns the definition of operand i, nil if there is none.
func (f *form) operand(i int) *operand {
	n := len(f.operands)
	switch {
	case i < n:
		return &f.operands[i]
	case n > 0 && f.operands[n-1].repeats:
		return &f.operands[n-1]
	}
	return nil
}

// checkOperands checks the element types of the operands that could be
// lowered.
func (c *Call) checkOperands() {
	first := map[string]int{} // by variable, the operand that settled it
	for i, v := range c.inputs {
		o := c.form.operand(i)
		if o == nil || v == nil || v.bad {
			continue
		}
		if !slices.Contains(o.types, v.Type.DType) {
			panic(failure{&obstacle{
				reason: fmt.Sprintf("operator %s on %v, operand %s", c.op(), ElemTypeOf(v.Type.DType), o.Name),
				hint:   fmt.Sprintf("%s takes %s there: cast the operand in the model", c.node.OpType, typeNames(o.types)),
			}})
		}
		if o.variable == "" {
			continue
		}
		if k, ok := first[o.variable]; !ok {
			first[o.variable] = i
		} else if want := c.inputs[k]; want.Type.DType != v.Type.DType {
			c.Fail("operand %d (%s) is %v, want the element type of operand %d (%s), %v", i, o.Name, v.Type, k, c.form.operand(k).Name, want.Type)
		}
	}
}

// typeNames lists types by ONNX's names.
func typeNames(types []graph.DType) string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = ElemTypeOf(t).String()
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
		known := c.form.attribute(a.Name)
		if known == nil {
			return fmt.Errorf("%s has no attribute %q", c.op(), a.Name)
		}
		if got := c.attrs[a.Name].Type; got != known.Type {
			return fmt.Errorf("attribute %q is of type %v, want %v", a.Name, got, known.Type)
		}
	}
	for _, a := range c.form.attrs {
		if a.required && c.attrs[a.Name] == nil {
			return fmt.Errorf("attribute %q is missing", a.Name)
		}
	}
	return nil
}
