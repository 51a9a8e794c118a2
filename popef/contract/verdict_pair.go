package contract

import (
	"fmt"
	"slices"
	"strings"

	"github.com/popefgen/popefgen/internal/printable"
)

// findBatch returns the change of the batch dimension, nil if there is none:
// the leading dimension of all run inputs and outputs was one number and is
// another, and that is all that changed of their shapes. It is what a package
// with samples in dimension 0 asks of a model.
func (j *judge) findBatch(pairs []int) *batchChange {
	var c *batchChange
	for i, at := range pairs {
		a := &j.old.Anchors[i]
		if at < 0 || a.Role != RunInput && a.Role != RunOutput {
			continue
		}
		b := &j.new.Anchors[at]
		if c == nil && len(a.Info.Shape) > 0 && len(b.Info.Shape) > 0 {
			c = &batchChange{a.Info.Shape[0], b.Info.Shape[0]}
		}
		if c == nil || c.was == c.is || c.was < 1 || c.is < 1 || b.Role != a.Role || !leads(a, b, c) {
			return nil
		}
	}
	for i := range j.new.Anchors {
		b := &j.new.Anchors[i]
		if (b.Role == RunInput || b.Role == RunOutput) && (c == nil || len(b.Info.Shape) == 0 || b.Info.Shape[0] != c.is) {
			return nil
		}
	}
	return c
}

// leads reports whether an anchor's shape changed by c alone.
func leads(a, b *Anchor, c *batchChange) bool {
	was, is := a.Info.Shape, b.Info.Shape
	return len(was) > 0 && len(was) == len(is) && was[0] == c.was && is[0] == c.is && slices.Equal(was[1:], is[1:]) &&
		a.Repeats == 1 && b.Repeats == 1 && (a.Role == RunInput || a.Role == RunOutput)
}

// renames pairs anchors that are gone with new ones that are probably the
// same under another name: those of the same role, direction, type and shape.
// Among several candidates the name that has most in common decides. The
// result has an entry per old anchor.
func (j *judge) renames(pairs, added []int) []*Anchor {
	renamed := make([]*Anchor, len(pairs))
	// Models have thousands of weights whose names nobody sees; only anchors
	// that callers see are worth a guess.
	type signature struct {
		role Role
		info string
	}
	sign := func(a *Anchor) signature {
		return signature{a.Role, fmt.Sprint(a.Type, a.Info.DataType, a.Info.Shape, a.Repeats)}
	}
	free := map[signature][]*Anchor{}
	for _, at := range added {
		if b := &j.new.Anchors[at]; b.group() != "" {
			free[sign(b)] = append(free[sign(b)], b)
		}
	}
	for i, at := range pairs {
		a := &j.old.Anchors[i]
		if at >= 0 || a.group() == "" {
			continue
		}
		list := free[sign(a)]
		if len(list) == 0 {
			continue
		}
		best := 0
		for k := range list {
			if common(a.Name, list[k].Name) > common(a.Name, list[best].Name) {
				best = k
			}
		}
		renamed[i] = list[best]
		free[sign(a)] = slices.Delete(slices.Clone(list), best, best+1)
	}
	return renamed
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

// keep returns how to generate the new package so that anchor b keeps the Go
// name of the old one, "" if the command's flag can't say it.
func (j *judge) keep(goName string, b *Anchor) string {
	key := b.Name
	same := 0
	for i := range j.new.Anchors {
		if j.new.Anchors[i].Name == b.Name && j.new.Anchors[i].group() != "" {
			same++
		}
	}
	// The flag splits at the first equals sign, and lists at commas.
	if same > 1 || key == "" || strings.ContainsAny(key, "=,") {
		key = b.Handle
	}
	if key == "" || strings.ContainsAny(key, "=,") {
		return ""
	}
	if goName == "" {
		return fmt.Sprintf(", or keep the old Go name: generate with --rename %s and the old name behind it", printable.ShellWord(key+"="))
	}
	return fmt.Sprintf(", or keep the Go name: generate with --rename %s", printable.ShellWord(key+"="+goName))
}
