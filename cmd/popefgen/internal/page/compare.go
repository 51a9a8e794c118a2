package page

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/pmezard/go-difflib/difflib"
)

// manyOthers is how many boxes are paired by order at most with all kinds in
// view: beyond that, kinds of which there are very many are left out, as the
// time grows with the square of their number.
const manyOthers = 2000

// compare pairs the boxes of two drawings and marks what differs. Boxes that
// do the same under the same name are the same box; of the others, those of the
// same name, then those that do the same and come in the same order.
func compare(old, new *drawing) (changes int) {
	pair := func(a, b *box) { a.peer, b.peer = b, a }
	named := map[string][]*box{}
	key := func(b *box) string { return b.Title + "\x00" + b.Name }
	for _, b := range old.boxes {
		if b.node >= 0 || b.Family == "anchor" {
			named[key(b)] = append(named[key(b)], b)
		}
	}
	for _, b := range new.boxes {
		if list := named[key(b)]; len(list) > 0 && (b.node >= 0 || b.Family == "anchor") {
			pair(list[0], b)
			named[key(b)] = list[1:]
		}
	}
	other := map[string][]*box{}
	for _, b := range old.boxes {
		if b.peer == nil && b.node >= 0 && b.Name != "" {
			other[b.Name] = append(other[b.Name], b)
		}
	}
	for _, b := range new.boxes {
		if list := other[b.Name]; b.peer == nil && b.node >= 0 && len(list) > 0 {
			pair(list[0], b)
			other[b.Name] = list[1:]
		}
	}
	rest := func(d *drawing) (boxes []*box, titles []string) {
		for _, b := range d.boxes {
			if b.peer == nil && (b.node >= 0 || b.Family == "anchor") {
				boxes, titles = append(boxes, b), append(titles, b.Title)
			}
		}
		return boxes, titles
	}
	oldRest, oldTitles := rest(old)
	newRest, newTitles := rest(new)
	for _, m := range difflib.NewMatcherWithJunk(oldTitles, newTitles, max(len(oldTitles), len(newTitles)) > manyOthers, nil).GetMatchingBlocks() {
		for i := range m.Size {
			pair(oldRest[m.A+i], newRest[m.B+i])
		}
	}
	for _, b := range old.boxes {
		if b.peer == nil && (b.node >= 0 || b.Family == "anchor") {
			b.mark = "removed"
			changes++
		}
	}
	for _, b := range new.boxes {
		switch {
		case b.node < 0 && b.Family != "anchor":
		case b.peer == nil:
			b.mark = "added"
			changes++
		default:
			if said := differences(b.peer, b); said != nil {
				b.mark, b.peer.mark = "changed", "changed"
				b.Detail.Changes, b.peer.Detail.Changes = said, said
				changes++
			}
		}
	}
	for _, d := range []*drawing{old, new} {
		d.markGroups()
	}
	return changes
}

// markGroups marks groups with something marked inside, innermost first.
func (d *drawing) markGroups() {
	for _, b := range slices.Backward(d.boxes) {
		if p := b.parent; p != nil && p.parent != nil && b.mark != "" && p.mark == "" {
			p.mark = "changed"
		}
	}
}

// differences says what differs between two boxes that belong together, in
// what they compute, what they read and what they write.
func differences(a, b *box) (all []string) {
	say := func(what, old, new string) {
		if old != new {
			all = append(all, fmt.Sprintf("%s: was %s, is %s", what, printable(old), printable(new)))
		}
	}
	say("operator", a.Detail.Op, b.Detail.Op)
	say("name", a.Name, b.Name)
	say("type", a.Type, b.Type)
	operands := func(what string, x, y []operand) {
		for i := range max(len(x), len(y)) {
			side := func(o []operand) string {
				if i >= len(o) {
					return "absent"
				}
				return o[i].Type
			}
			name := ""
			if i < len(y) {
				name = " " + y[i].Name
			}
			if what == "result" && i == 0 {
				continue // its type is said
			}
			say(fmt.Sprintf("%s %d%s", what, i, name), side(x), side(y))
		}
	}
	operands("operand", a.Detail.In, b.Detail.In)
	operands("result", a.Detail.Out, b.Detail.Out)
	return all
}

// compareWeights marks what differs between two models' weights. Weights of
// the same name and type are compared element by element.
func compareWeights(old, new []weight) (changes int) {
	byName := map[string]*weight{}
	for i := range old {
		byName[old[i].Name] = &old[i]
		old[i].Mark = "removed"
	}
	for i := range new {
		w := &new[i]
		o := byName[w.Name]
		if o == nil || o.Mark != "removed" {
			w.Mark = "added"
			changes++
			continue
		}
		o.Mark = ""
		switch {
		case o.Type != w.Type:
			w.Note = "was " + o.Type
		case !bytes.Equal(o.data, w.data):
			w.Note = moved(o, w)
		default:
			continue
		}
		w.Mark, o.Mark = "changed", "changed"
		changes++
	}
	for i := range old {
		if old[i].Mark == "removed" {
			changes++
		}
	}
	return changes
}

// moved says how far a weight's elements moved: the root of the mean square
// of the differences, and its share of that of the old elements.
func moved(o, w *weight) string {
	var before []float64
	elements(o.dtype, o.data, func(v float64) { before = append(before, v) })
	i, n := 0, 0
	square, base, most := 0.0, 0.0, 0.0
	elements(w.dtype, w.data, func(v float64) {
		if i < len(before) {
			if d := v - before[i]; !math.IsNaN(d) && !math.IsInf(d, 0) {
				square += d * d
				base += before[i] * before[i]
				most = max(most, math.Abs(d))
				n++
			}
		}
		i++
	})
	if n == 0 || square == 0 {
		return "other bits, equal values"
	}
	s := fmt.Sprintf("moved by %.3g (root mean square), at most %.3g", math.Sqrt(square/float64(n)), most)
	if base > 0 {
		s += fmt.Sprintf("; %.3g %% of what it was", 100*math.Sqrt(square/base))
	}
	return s
}
