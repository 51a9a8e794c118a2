package onnx

import (
	"cmp"
	"slices"
	"strings"
)

// Operator is an operator that can be lowered.
type Operator struct {
	Domain string // "" for ONNX's own
	Name   string
	// Forms are the versions from which on the operator means something else
	// here, ascending. Versions between them differ in wording or in the
	// element types that they permit.
	Forms []int64
	// Dropped is the version in which the operator set dropped it, or 0.
	Dropped int64
}

// Operators returns every operator that can be lowered, sorted by domain and
// name.
func Operators() []Operator {
	var all []Operator
	for key, def := range operators {
		o := Operator{Name: key}
		if i := strings.LastIndexByte(key, '.'); i >= 0 {
			o.Domain, o.Name = key[:i], key[i+1:]
		}
		for _, f := range def.forms {
			if f.lower == nil {
				o.Dropped = f.version
			} else {
				o.Forms = append(o.Forms, f.version)
			}
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Operator) int { return cmp.Or(cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.Name, b.Name)) })
	return all
}
