package onnx

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
func (f *form) describe() string {
	var parts []string
	at := make(map[string]int) // of a variable in parts
	var words []string
	for _, o := range f.operands {
		name := o.Name
		if o.repeats {
			name += " …"
		}
		key := o.variable
		if key == "" {
			key = "operand " + o.Name
		}
		if i, ok := at[key]; ok {
			parts[i] += ", " + name
			continue
		}
		at[key] = len(parts)
		parts, words = append(parts, name), append(words, strings.ReplaceAll(o.words, "|", ", "))
	}
	for i := range parts {
		parts[i] += ": " + words[i]
	}
	return strings.Join(parts, "; ")
}

// describeAttributes puts the attributes of a form in words.
func (f *form) describeAttributes() string {
	var parts []string
	for _, a := range f.attrs {
		switch {
		case a.def == nil && a.required:
			parts = append(parts, fmt.Sprintf("%s:%v!", a.Name, a.Type))
		case a.def == nil:
			parts = append(parts, fmt.Sprintf("%s:%v", a.Name, a.Type))
		case a.Type == AttrInt:
			parts = append(parts, fmt.Sprintf("%s=%d", a.Name, a.def.Int))
		case a.Type == AttrFloat:
			text := fmt.Sprint(a.def.Float)
			if !strings.ContainsAny(text, ".e") {
				text += ".0"
			}
			parts = append(parts, a.Name+"="+text)
		default:
			parts = append(parts, fmt.Sprintf("%s=%s", a.Name, a.def.String))
		}
	}
	return strings.Join(parts, " ")
}

// Describe returns every operator of the table, sorted by domain and name.
func (t Table) Describe() []Operator {
	var all []Operator
	for key, def := range t.Operators {
		o := Operator{Name: key}
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			o.Domain, o.Name = key[:i], key[i+1:]
		}
		for i := range def.Forms {
			if f := &def.Forms[i]; f.lower == nil {
				o.Dropped = f.Version
			} else {
				o.Forms = append(o.Forms, Form{f.Version, f.describe(), f.describeAttributes()})
			}
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Operator) int { return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name)) })
	return all
}
