package page

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"

	"github.com/popefgen/popefgen/ipu/graph"
)

// manyOthers is how many boxes are paired by order at most with all kinds in
// view: beyond that, kinds of which there are very many are left out, as the
// time grows with the square of their number.
const manyOthers = 2000

// outcome counts what differs between two drawings.
type outcome struct {
	changed int // boxes that are other ones, there alone, or compute something else
	follow  int // boxes of which only the shapes differ, because of the former
	renamed int // boxes of which only the name differs
}

// compare pairs the boxes of two drawings and marks what differs: the causes,
// and apart from them what only follows. Boxes that do the same under the same
// name are the same box; of the others, those of the same name, then those that
// do the same and come in the same order.
func compare(old, new *drawing) (o outcome) {
	pairBoxes(old, new)
	for _, b := range old.boxes {
		if b.peer == nil && b.comparable() {
			b.mark = "removed"
			o.changed++
		}
	}
	for _, b := range new.boxes {
		if !b.comparable() {
			continue
		}
		if b.peer == nil {
			b.mark = "added"
			o.changed++
			continue
		}
		said, cause := differences(b.peer, b)
		switch {
		case cause:
			b.mark = "changed"
			o.changed++
		case said != nil:
			b.mark = "follows"
			o.follow++
		}
		if b.peer.Name != b.Name {
			said = append(said, fmt.Sprintf("name: was %s, is %s", printable(clip(b.peer.Name)), printable(clip(b.Name))))
			if b.mark == "" {
				o.renamed++
			}
		}
		b.peer.mark, b.Detail.Changes, b.peer.Detail.Changes = b.mark, said, said
	}
	for _, d := range []*drawing{old, new} {
		d.markGroups()
	}
	return o
}

// comparable reports whether a box stands for something of the model.
func (b *box) comparable() bool { return b.node >= 0 || b.Family == "anchor" }

// pairBoxes finds the boxes of two drawings that belong together.
func pairBoxes(old, new *drawing) {
	pair := func(a, b *box) { a.peer, b.peer = b, a }
	by := func(key func(*box) string) {
		list := map[string][]*box{}
		for _, b := range old.boxes {
			if b.peer == nil && b.comparable() && b.Name != "" {
				list[key(b)] = append(list[key(b)], b)
			}
		}
		for _, b := range new.boxes {
			if b.peer != nil || !b.comparable() {
				continue
			}
			if same := list[key(b)]; len(same) > 0 {
				pair(same[0], b)
				list[key(b)] = same[1:]
			}
		}
	}
	by(func(b *box) string { return b.Title + "\x00" + b.Name })
	by(func(b *box) string { return fmt.Sprintf("%v %s", b.Family == "anchor", b.Name) })
	rest := func(d *drawing) (boxes []*box, titles []string) {
		for _, b := range d.boxes {
			if b.peer == nil && b.comparable() {
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
}

// markGroups marks groups with something marked inside, innermost first; what
// only follows marks a group only where nothing else does.
func (d *drawing) markGroups() {
	for _, b := range slices.Backward(d.boxes) {
		p := b.parent
		switch {
		case p == nil || p.parent == nil || b.mark == "":
		case b.mark != "follows":
			if p.mark == "" || p.mark == "follows" {
				p.mark = "changed"
			}
		case p.mark == "":
			p.mark = "follows"
		}
	}
}

// differences says what differs between two boxes that belong together, in
// what they compute, what they read and what they write, and whether any of
// it has its cause here: everything but shapes that follow from other shapes
// that the box reads from others.
func differences(a, b *box) (all []string, cause bool) {
	r := ratios{}
	say := func(what, old, new string) bool {
		if old != new {
			all = append(all, fmt.Sprintf("%s: was %s, is %s", what, printable(old), printable(new)))
		}
		return old != new
	}
	side := func(o []operand, i int) (operand, string) {
		if i >= len(o) {
			return operand{}, "absent"
		}
		return o[i], o[i].Type
	}
	name := func(i int, o []operand) string {
		if i < len(o) && o[i].Name != "" {
			return fmt.Sprintf("%d %s", i, o[i].Name)
		}
		return fmt.Sprint(i)
	}
	var own []func() // weights that have to be explained by what is read from others
	for i := range max(len(a.Detail.In), len(b.Detail.In)) {
		x, was := side(a.Detail.In, i)
		y, is := side(b.Detail.In, i)
		differ := say("operand "+name(i, b.Detail.In), was, is)
		switch {
		case was == "absent" || is == "absent" || (x.Box < 0) != (y.Box < 0):
			cause = cause || differ || (x.Box < 0) != (y.Box < 0)
		case !differ:
		case x.tensor.DType != y.tensor.DType && x.Box < 0:
			cause = true
		case x.Box >= 0:
			r.learn(x.tensor.Shape, y.tensor.Shape)
		default:
			own = append(own, func() { cause = cause || !r.explain(x.tensor.Shape, y.tensor.Shape) })
		}
	}
	for _, check := range own {
		check()
	}
	if a.op != nil && b.op != nil {
		was, is := opText(a), opText(b)
		if was != is {
			if len(r) > 0 && len(a.Detail.Out) > 0 && len(b.Detail.Out) > 0 { // attributes that are the result's shape
				r.learn(a.Detail.Out[0].tensor.Shape, b.Detail.Out[0].tensor.Shape)
			}
			if !r.explainOps(a.op, b.op) {
				cause = true
			}
			all = slices.Insert(all, 0, fmt.Sprintf("operator: was %s, is %s", was, is))
		}
	}
	for i := range max(len(a.Detail.Out), len(b.Detail.Out)) {
		_, was := side(a.Detail.Out, i)
		_, is := side(b.Detail.Out, i)
		say("result "+name(i, b.Detail.Out), was, is)
	}
	if a.Family == "anchor" && b.Family == "anchor" {
		if a.Title != b.Title || a.Title == "input" && all != nil {
			cause = true // what a caller sends follows from nothing
		}
	}
	return all, cause
}

// opText is an operator with its attributes.
func opText(b *box) string {
	s := []string{b.Title}
	for _, a := range b.Detail.Attrs {
		s = append(s, a.Name+" "+a.Value)
	}
	return strings.Join(s, ", ")
}

// ratios are those of sizes that differ in what a box reads: new to old.
type ratios map[[2]int64]bool

func reduced(old, new int64) [2]int64 {
	a, b := old, new
	for b != 0 {
		a, b = b, a%b
	}
	if a == 0 {
		return [2]int64{}
	}
	return [2]int64{old / a, new / a}
}

// learn notes how a shape differs.
func (r ratios) learn(old, new []int64) {
	if len(old) != len(new) {
		return
	}
	for i := range old {
		if old[i] != new[i] {
			r[reduced(old[i], new[i])] = true
		}
	}
}

// explain reports whether numbers differ only as something that is read does.
func (r ratios) explain(old, new []int64) bool {
	if len(old) != len(new) {
		return false
	}
	for i := range old {
		if old[i] != new[i] && !r[reduced(old[i], new[i])] {
			return false
		}
	}
	return true
}

// explainOps reports whether the attributes of two operators differ only in
// numbers that follow from the shapes of what they read.
func (r ratios) explainOps(a, b graph.Op) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if x.Type() != y.Type() {
		return false
	}
	for i := range x.NumField() {
		v, w := x.Field(i).Interface(), y.Field(i).Interface()
		if _, ok := v.(graph.GraphID); ok || reflect.DeepEqual(v, w) { // boxes of graphs are compared
			continue
		}
		if !slices.Contains(sizeFields, x.Type().Field(i).Name) {
			return false
		}
		switch v := v.(type) {
		case []int64:
			if !r.explain(v, w.([]int64)) {
				return false
			}
		case int64:
			if !r.explain([]int64{v}, []int64{w.(int64)}) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// sizeFields are the attributes that say how large something is, or where it
// lies, in what an operator reads or writes.
var sizeFields = []string{"Shape", "Sizes", "Size", "Start", "Output", "Image", "Rows", "Cols", "Width", "Height", "Heads", "Q", "K", "V", "Bias", "Y", "Length", "Depth"}

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
