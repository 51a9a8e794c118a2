package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
)

// pair returns, for every old field, the index of the new one that it became
// or -1, and the new fields that none became. Fields are paired by struct, name
// and handle where possible, then by struct and name, then by name alone.
func pair(old, new []Field) (pairs, added []int) {
	pairs = make([]int, len(old))
	for i := range pairs {
		pairs[i] = -1
	}
	taken := make([]bool, len(new))
	type key struct {
		group        Group
		name, handle string
	}
	for _, by := range []func(f *Field) key{
		func(f *Field) key { return key{f.Group, f.Name, f.Handle} },
		func(f *Field) key { return key{f.Group, f.Name, ""} },
		func(f *Field) key { return key{Hidden, f.Name, ""} },
	} {
		free := map[key][]int{}
		for at := range new {
			if !taken[at] {
				k := by(&new[at])
				free[k] = append(free[k], at)
			}
		}
		for i := range old {
			k := by(&old[i])
			if list := free[k]; pairs[i] < 0 && len(list) > 0 {
				pairs[i], free[k] = list[0], list[1:]
				taken[list[0]] = true
			}
		}
	}
	for at := range new {
		if !taken[at] {
			added = append(added, at)
		}
	}
	return pairs, added
}

// findBatch returns the change of the batch dimension, nil if there is none:
// the leading dimension of all run inputs and outputs was one number and is
// another, and that is all that changed of their shapes. It is what a package
// with samples in dimension 0 asks of a model.
func (j *judge) findBatch() *batchChange {
	if j.old.Family() || j.new.Family() || j.old.Branches != nil || j.new.Branches != nil { // which have no RunSamples, or another
		return nil
	}
	var c *batchChange
	for i, at := range j.pairs {
		a := &j.old.Fields[i]
		if at < 0 || !a.runs() {
			continue
		}
		b := &j.new.Fields[at]
		if c == nil && len(a.Info.Shape) > 0 && len(b.Info.Shape) > 0 {
			c = &batchChange{a.Info.Shape[0], b.Info.Shape[0]}
		}
		if c == nil || c.was == c.is || c.was < 1 || c.is < 1 || b.Group != a.Group || !leads(a, b, c) {
			return nil
		}
	}
	for i := range j.new.Fields {
		b := &j.new.Fields[i]
		if b.runs() && (c == nil || len(b.Info.Shape) == 0 || b.Info.Shape[0] != c.is) {
			return nil
		}
	}
	return c
}

// runs reports whether every run moves the field.
func (f *Field) runs() bool { return f.Group == Inputs || f.Group == Outputs }

// leads reports whether a field's shape changed by c alone.
func leads(a, b *Field, c *batchChange) bool {
	was, is := a.Info.Shape, b.Info.Shape
	return len(was) > 0 && len(was) == len(is) && was[0] == c.was && is[0] == c.is && slices.Equal(was[1:], is[1:]) &&
		a.Repeats == 1 && b.Repeats == 1 && a.runs()
}

// renames pairs fields that are gone with new ones that are probably the same
// under another name: those of the same struct, type and shape. Among several
// candidates the name that has most in common decides. It returns the new
// fields that are left.
func (j *judge) renames(added []int) []int {
	sign := func(c *Callers, f *Field) string { return fmt.Sprint(f.Group, f.Branch(c), c.info(f), f.Repeats) }
	free := map[string][]int{}
	for _, at := range added {
		s := sign(&j.new.Callers, &j.new.Fields[at])
		free[s] = append(free[s], at)
	}
	for i, at := range j.pairs {
		a := &j.old.Fields[i]
		key := sign(&j.old.Callers, a)
		list := free[key]
		if at >= 0 || len(list) == 0 {
			continue
		}
		best := 0
		for k := range list {
			if common(a.Name, j.new.Fields[list[k]].Name) > common(a.Name, j.new.Fields[list[best]].Name) {
				best = k
			}
		}
		j.pairs[i] = list[best]
		added = slices.DeleteFunc(added, func(at int) bool { return at == j.pairs[i] })
		free[key] = slices.Delete(list, best, best+1)
	}
	return added
}

// common returns how many bytes two names share at their start and end.
func common(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	a, b = a[n:], b[n:]
	m := 0
	for m < len(a) && m < len(b) && a[len(a)-1-m] == b[len(b)-1-m] {
		m++
	}
	return n + m
}

// keep returns how to generate the new package so that a new field keeps the
// Go name of the old one, "" if the command's flag can't say it.
func (j *judge) keep(goName string, at int) string {
	f := &j.new.Fields[at]
	key := f.Name
	same := 0
	for i := range j.new.Fields {
		if j.new.Fields[i].Name == f.Name {
			same++
		}
	}
	// The flag splits at the first equals sign, and lists at commas.
	if same > 1 || key == "" || strings.ContainsAny(key, "=,") {
		key = f.Stream
		if key == "" {
			key = f.Handle
		}
	}
	if key == "" || strings.ContainsAny(key, "=,") {
		return ""
	}
	if goName == "" {
		return fmt.Sprintf(", or keep the old Go name: generate with --rename %s and the old name behind it", printable.ShellWord(key+"="))
	}
	return fmt.Sprintf(", or keep the Go name: generate with --rename %s", printable.ShellWord(key+"="+goName))
}
