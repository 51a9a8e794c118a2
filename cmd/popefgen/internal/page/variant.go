package page

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/popefgen/popefgen/ipu/graph/dump"
)

// alike reports whether two drawings have the same boxes and edges: what
// differs, if anything does, are sizes, numbers that follow from them, and names.
// Edges are where operands come from.
func alike(a, b *drawing) bool {
	if len(a.boxes) != len(b.boxes) {
		return false
	}
	same := func(x, y []operand) bool {
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i].Box != y[i].Box || x[i].Kind != y[i].Kind || x[i].Via != y[i].Via {
				return false
			}
		}
		return true
	}
	for i, x := range a.boxes {
		y := b.boxes[i]
		_, lines, name := x.shows()
		_, otherLines, otherName := y.shows()
		if x.Title != y.Title || x.Family != y.Family || x.Group != y.Group || (x.node < 0) != (y.node < 0) ||
			(x.parent == nil) != (y.parent == nil) || x.parent != nil && x.parent.ID != y.parent.ID ||
			len(lines) != len(otherLines) || (name == "") != (otherName == "") || x.Detail.Kind != y.Detail.Kind ||
			!same(x.Detail.In, y.Detail.In) || !same(x.Detail.Out, y.Detail.Out) {
			return false
		}
	}
	return true
}

// lay lays out the drawing of members that are alike, with room for the texts
// of each of them.
func (v *view) lay() error {
	for _, d := range v.drawings {
		if err := d.lay(); err != nil {
			return err
		}
	}
	first := v.drawings[0]
	if len(v.drawings) == 1 {
		return nil
	}
	for i, b := range first.boxes {
		for _, d := range v.drawings {
			w, h := d.boxes[i].shut()
			b.size.w, b.size.h = max(b.size.w, w), max(b.size.h, h)
		}
	}
	if err := first.lay(); err != nil {
		return err
	}
	for i, b := range first.boxes {
		for _, d := range v.drawings[1:] {
			if f := d.boxes[i].frame; f != nil {
				for k := range b.frame.exits {
					b.frame.exits[k].width = max(b.frame.exits[k].width, f.exits[k].width)
				}
			}
		}
	}
	return nil
}

// varied is what one place or several of a drawing say, by member.
type varied struct {
	Values []any            `json:"v"`
	At     map[string][]int `json:"at"` // boxes by the place: see places
}

// places tells of everything in a laid out drawing that may differ between
// members that are alike. A place is a letter, with a number where a box has
// several: n name, e its short form, y type, l line, i and o type of an operand
// that is read and written, I and O its name, x the value of a constant, a
// attributes, f operations, w bytes of weights, s shape on an edge.
func (d *drawing) places(tell func(box int, place string, value any)) {
	for i, b := range d.boxes {
		data := b.data()
		tell(i, "n", data.Name)
		tell(i, "e", data.Short)
		tell(i, "y", data.Type)
		for k, l := range data.Shown {
			tell(i, "l"+strconv.Itoa(k), l)
		}
		for k, o := range b.Detail.In {
			tell(i, "i"+strconv.Itoa(k), o.Type)
			tell(i, "I"+strconv.Itoa(k), o.Name)
			tell(i, "x"+strconv.Itoa(k), o.Value)
		}
		for k, o := range b.Detail.Out {
			tell(i, "o"+strconv.Itoa(k), o.Type)
			tell(i, "O"+strconv.Itoa(k), o.Name)
		}
		if attrs := b.Detail.Attrs; attrs != nil {
			tell(i, "a", attrs)
		} else {
			tell(i, "a", []dump.Attribute{})
		}
		tell(i, "f", b.Detail.FLOPs)
		tell(i, "w", b.Detail.Weights)
		if b.frame != nil {
			for k := range b.frame.exits {
				tell(i, "s"+strconv.Itoa(k), b.frame.exits[k].text)
			}
		}
	}
}

// differing lists what differs between the members of a drawing: places that
// say the same as one another for every member are listed together.
func (v *view) differing() ([]*varied, error) {
	type slot struct {
		box   int
		place string
	}
	var order []slot
	said := map[slot][]any{}
	for k, d := range v.drawings {
		d.places(func(box int, place string, value any) {
			at := slot{box, place}
			if k == 0 {
				order = append(order, at)
			}
			said[at] = append(said[at], value)
		})
	}
	known := map[string]*varied{}
	all := []*varied{}
	for _, at := range order {
		values := said[at]
		if len(values) != len(v.drawings) {
			return nil, fmt.Errorf("a drawing of %d members has box %d %q in %d of them", len(v.drawings), at.box, at.place, len(values))
		}
		key, err := json.Marshal(values)
		if err != nil {
			return nil, err
		}
		x := known[string(key)]
		if x == nil {
			one, err := json.Marshal(values[0])
			if err != nil {
				return nil, err
			}
			if same := equalTo(values, string(one)); same {
				continue
			}
			x = &varied{Values: values, At: map[string][]int{}}
			known[string(key)] = x
			all = append(all, x)
		}
		x.At[at.place] = append(x.At[at.place], at.box)
	}
	return all, nil
}

// equalTo reports whether all values are written as text says.
func equalTo(values []any, text string) bool {
	for _, v := range values {
		if b, err := json.Marshal(v); err != nil || string(b) != text {
			return false
		}
	}
	return true
}
