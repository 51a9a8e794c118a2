package lower

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/onnx"
)

// TypeSets returns the sets of element types that operands are described with:
// the ONNX types in each, by the set's name. Sets of one type are left out.
func TypeSets() map[string]string {
	sets := make(map[string]string)
	for name, types := range typeSets {
		if len(types) > 1 {
			sets[name] = typeNames(types)
		}
	}
	return sets
}

// describe puts the operands of a form in words.
func (f *Form) describe() string {
	var parts []string
	at := make(map[string]int) // of a variable in parts
	var words []string
	for _, o := range f.Operands {
		name := o.Name
		if o.Repeats {
			name += " …"
		}
		key := o.Variable
		if key == "" {
			key = "operand " + o.Name
		}
		if i, ok := at[key]; ok {
			parts[i] += ", " + name
			continue
		}
		at[key] = len(parts)
		parts, words = append(parts, name), append(words, strings.ReplaceAll(o.Words, "|", ", "))
	}
	for i := range parts {
		parts[i] += ": " + words[i]
	}
	return strings.Join(parts, "; ")
}

// describeAttributes puts the attributes of a form in words.
func (f *Form) describeAttributes() string {
	var parts []string
	for _, a := range f.Attributes {
		switch {
		case a.Default == nil && a.Required:
			parts = append(parts, fmt.Sprintf("%s:%v!", a.Name, a.Type))
		case a.Default == nil:
			parts = append(parts, fmt.Sprintf("%s:%v", a.Name, a.Type))
		case a.Type == onnx.AttrInt:
			parts = append(parts, fmt.Sprintf("%s=%d", a.Name, a.Default.Int))
		case a.Type == onnx.AttrFloat:
			text := fmt.Sprint(a.Default.Float)
			if !strings.ContainsAny(text, ".e") {
				text += ".0"
			}
			parts = append(parts, a.Name+"="+text)
		default:
			parts = append(parts, fmt.Sprintf("%s=%s", a.Name, a.Default.String))
		}
	}
	return strings.Join(parts, " ")
}

// Describe returns every operator of the table, sorted by domain and name.
func (t Table) Describe() []onnx.Operator {
	var all []onnx.Operator
	for key, def := range t.Operators {
		o := onnx.Operator{Name: key}
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			o.Domain, o.Name = key[:i], key[i+1:]
		}
		for i := range def.Forms {
			if f := &def.Forms[i]; f.Lower == nil {
				o.Dropped = f.Version
			} else {
				o.Forms = append(o.Forms, onnx.Form{Version: f.Version, Operands: f.describe(), Attributes: f.describeAttributes()})
			}
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b onnx.Operator) int {
		return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name))
	})
	return all
}
