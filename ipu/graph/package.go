package graph

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Revision is the number of the meaning of operators: it goes up when one of them computes something else with the same attributes.
const Revision = 1

// Package says by which definitions of operators an executable was compiled: what Poplar keeps as one hash of its package, for each operator that the executable has.
type Package struct {
	Revision  int64
	Operators []Definition // by kind
}

// Definition is the hash of an operator's definition: the names and types of its attributes.
type Definition struct{ Kind, Hash string }

// PackageOf returns the definitions, here, of the operators of an executable.
func PackageOf(e *Executable) *Package {
	p := &Package{Revision: Revision}
	seen := map[string]bool{}
	for i := range e.Graphs {
		for k := range e.Graphs[i].Nodes {
			if kind := e.Graphs[i].Nodes[k].Op.Kind(); !seen[kind] {
				seen[kind] = true
				p.Operators = append(p.Operators, Definition{kind, definition(kind)})
			}
		}
	}
	slices.SortFunc(p.Operators, func(a, b Definition) int { return strings.Compare(a.Kind, b.Kind) })
	return p
}

// definition returns the hash of an operator's attributes, as 16 hexadecimal digits, "" if there is no such operator.
func definition(kind string) string {
	op := NewOp(kind)
	if op == nil {
		return ""
	}
	return hashOf(kind, reflect.TypeOf(op).Elem())
}

// hashOf returns the hash of an operator with the fields of t.
func hashOf(kind string, t reflect.Type) string {
	h := sha256.New()
	fmt.Fprintln(h, kind)
	for i := range t.NumField() {
		f := t.Field(i)
		fmt.Fprintln(h, f.Name, f.Type)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Differs returns what is defined otherwise here than where the executable was compiled, "" if nothing is.
func (p *Package) Differs() string {
	if p.Revision != Revision {
		return fmt.Sprintf("operators have revision %d of their meaning, and %d here", p.Revision, Revision)
	}
	var kinds []string
	for _, d := range p.Operators {
		if here := definition(d.Kind); here != d.Hash {
			kinds = append(kinds, fmt.Sprintf("%s (%s, and %s here)", d.Kind, d.Hash, here))
		}
	}
	if len(kinds) == 0 {
		return ""
	}
	return "these operators have other definitions: " + strings.Join(kinds, ", ")
}
