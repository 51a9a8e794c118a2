package plan

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// maxProposals is how many names [Propose] proposes at most.
const maxProposals = 32

// Rename is a Go name for a tensor whose own says little.
type Rename struct {
	Key  string // of [Options.Renames]: the anchor's name, or its stream handle
	From string // the Go name without it
	To   string
}

// Propose returns Go names for the tensors of m's package that are called after
// what an exporter numbered: X39, Softmax11Tmp0, Identity1_0. It is empty where
// all names are fine, and has at most 32. Names come from what is left of the anchor's, else from
// what the tensor is: an input or an output, and of which operator. With all of
// them, or any, in Options.Renames, [Build] gives a package in which those
// tensors have these names. Errors are those of Build.
func Propose(m *popef.Model, opts Options, d *Declared) ([]Rename, error) {
	b := &builder{model: m, opts: opts, declared: d}
	for _, pass := range passes() {
		pass(b)
	}
	if len(b.problems) > 0 {
		return nil, &buildError{model: b.plan.Model, problems: b.problems}
	}
	return b.propose(), nil
}

// proposal is a tensor whose name says little.
type proposal struct {
	anchor int // the first of the tensor
	tensor int
	base   string // Go name, to be numbered if several tensors have it
	number int    // that the exporter gave it among those of one base, or -1
}

func (b *builder) propose() []Rename {
	p := &b.plan
	first := make([]int, len(p.Tensors)) // anchor of each tensor
	said := make([]nameReading, len(p.Tensors))
	type kind struct {
		group contract.Group
		stem  string
	}
	alike := map[kind]int{} // names that are a stem and numbers
	for i, t := range slices.Backward(b.tensor) {
		first[t], said[t] = i, readName(p.Anchors[i].Name)
	}
	for t, i := range first {
		if r := said[t]; r.stem != "" && r.scaffold == "" {
			alike[kind{p.Contract.Fields[i].Group, r.stem}]++
		}
	}
	var poor []proposal
	var u *uses
	for t, i := range first {
		r, group := said[t], p.Contract.Fields[i].Group
		switch {
		case b.renamed[t] != "" || r.fine:
			continue
		case r.stem != "" && r.scaffold == "" && alike[kind{group, r.stem}] > 1:
			continue // numbers tell them apart
		case r.letter && len(*p.group(i)) > 1:
			continue
		}
		base := goName(r.kept)
		if base == "" {
			base = goName(r.stem)
			if u == nil {
				u = usesOf(b.model)
			}
			if use := u.name(b.metas[i], p.Anchors[i].Role); use != "" && (base == "" || group == contract.Outputs) {
				base = use
			}
		}
		if base == "" {
			base = roleName(p.Anchors[i].Role)
		}
		if base != p.Tensors[t].Name {
			poor = append(poor, proposal{anchor: i, tensor: t, base: base, number: r.number})
		}
	}
	return b.choose(poor)
}

// choose numbers the proposals of one base, and keeps away from every name that
// there is.
func (b *builder) choose(poor []proposal) []Rename {
	p := &b.plan
	n := newNames(b.declared, p.Pin, p.kind(), p.Extras())
	for _, t := range p.Tensors {
		n.take(t.Name, t.Anchor)
	}
	alike := map[string][]int{} // numbers that exporters gave
	for _, q := range poor {
		alike[q.base] = append(alike[q.base], q.number)
	}
	var out []Rename
	given := map[string]int{}
	for _, q := range poor {
		if len(out) == maxProposals {
			break
		}
		key, ok := b.key(q)
		if !ok {
			continue
		}
		name := q.base
		if numbers := alike[q.base]; len(numbers) > 1 {
			number := given[q.base]
			if sorted := slices.Compact(slices.Sorted(slices.Values(numbers))); len(sorted) == len(numbers) && sorted[0] >= 0 {
				number = q.number
			}
			given[q.base]++
			name = numbered(q.base, number)
		}
		for i := 2; n.holder(name) != ""; i++ {
			name = numbered(q.base, i)
		}
		if checkRename(name) != nil {
			continue
		}
		n.take(name, key)
		out = append(out, Rename{key, p.Tensors[q.tensor].Name, name})
	}
	return out
}

// numbered returns a name with a number behind it.
func numbered(name string, i int) string {
	if last := name[len(name)-1]; last >= '0' && last <= '9' {
		name += "_"
	}
	return name + strconv.Itoa(i)
}

// key returns by what Options.Renames knows a tensor.
func (b *builder) key(q proposal) (string, bool) {
	meta := b.metas[q.anchor]
	for _, key := range []string{meta.Name, meta.Handle} {
		if key != "" && utf8.ValidString(key) {
			if found := b.find(key); len(found) == 1 && found[0] == q.tensor {
				return key, true
			}
		}
	}
	return "", false
}

// roleName is the Go name of a tensor of which nothing but its role is known.
func roleName(r contract.Role) string {
	switch r {
	case contract.RunInput:
		return "Input"
	case contract.RunOutput:
		return "Output"
	case contract.Seed:
		return "Seed"
	}
	return "Weights"
}
