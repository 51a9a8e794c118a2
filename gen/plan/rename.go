package plan

import (
	"fmt"
	"go/token"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/internal/nearest"
	"github.com/popefgen/popefgen/internal/printable"
	"github.com/popefgen/popefgen/popef"
	"github.com/popefgen/popefgen/popef/contract"
)

// renames finds the tensors, and the values of the optimizer, that the caller gave names to.
func (b *builder) renames() {
	keys := make([]string, 0, len(b.opts.Renames))
	for k := range b.opts.Renames {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		name := b.opts.Renames[k]
		if err := checkRename(name); err != nil {
			b.problem("rename %q: %v", k, err)
			continue
		}
		found := b.find(k)
		switch len(found) {
		case 0:
			b.renameValue(k, name)
		case 1:
			b.renamed[found[0]] = name
		default:
			var handles []string
			for i, t := range b.tensor {
				if slices.Contains(found, t) {
					handles = append(handles, fmt.Sprintf("%q", b.metas[i].Handle))
				}
			}
			b.problem("rename %q: %d tensors have this name; choose one by its stream handle: %s", k, len(found), strings.Join(handles, ", "))
		}
	}
}

// renameValue gives a value of the optimizer its name.
func (b *builder) renameValue(key, name string) {
	found := b.findValues(key)
	switch len(found) {
	case 0:
		b.problem("rename %q: %s", key, b.unknown(key))
	case 1:
		b.renamedValues[found[0]] = name
	default:
		var handles []string
		for _, i := range found {
			handles = append(handles, fmt.Sprintf("%q", b.plan.Contract.Fields[i].Stream))
		}
		b.problem("rename %q: %d values of the optimizer have this name; choose one by its stream handle: %s", key, len(found), strings.Join(handles, ", "))
	}
}

// findValues returns the fields of the contract that are values of the optimizer which key means, as [builder.find] does of tensors.
func (b *builder) findValues(key string) (found []int) {
	for _, of := range []func(f *contract.Field) string{
		func(f *contract.Field) string { return f.Name },
		func(f *contract.Field) string { return f.Stream },
	} {
		for i := range b.plan.Contract.Fields {
			if f := &b.plan.Contract.Fields[i]; f.Group == contract.OptimizerValues && of(f) == key {
				found = append(found, i)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	return found
}

// find returns the tensors that key means: those of an anchor of that name,
// else that of the stream handle.
func (b *builder) find(key string) []int {
	for _, match := range []func(a *popef.Anchor) bool{
		func(a *popef.Anchor) bool { return a.Name == key },
		func(a *popef.Anchor) bool { return a.Handle == key },
	} {
		var found []int
		for i, t := range b.tensor {
			if match(b.metas[i]) && !slices.Contains(found, t) {
				found = append(found, t)
			}
		}
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

// unknown says why a rename found no tensor.
func (b *builder) unknown(key string) string {
	roles := contract.Roles(b.model)
	for i, a := range b.model.Metadata.Anchors {
		if a.Name == key || a.Handle == key {
			return fmt.Sprintf("this anchor (%s) has no Go name", roles[i])
		}
	}
	var names []string
	for _, t := range b.plan.Tensors {
		if !slices.Contains(names, t.Anchor) {
			names = append(names, t.Anchor)
		}
	}
	for _, f := range b.plan.Contract.Fields {
		if f.Group == contract.OptimizerValues {
			names = append(names, f.Name)
		}
	}
	return "the model has no such anchor" + nearest.DidYouMean(key, names)
}

// checkRename returns why name can't be the Go name of a tensor.
func checkRename(name string) error {
	if !token.IsIdentifier(name) {
		return fmt.Errorf("%q is not a Go identifier, want letters and digits", name)
	}
	if strings.ContainsFunc(name, printable.Hidden) {
		return fmt.Errorf("%q has characters that nobody sees", name)
	}
	if !token.IsExported(name) {
		return fmt.Errorf("%q is not exported: it must start with an upper-case letter", name)
	}
	if utf8.RuneCountInString(name) > maxIdent {
		return fmt.Errorf("%q has more than %d characters", name, maxIdent)
	}
	return nil
}
