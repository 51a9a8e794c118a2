package page

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// exit is where edges leave an item of a frame, with the shapes of what leaves.
type exit struct {
	from, port int
	shapes     []string
	text       string
	width      float64
}

// maxShape is how many columns a shape on an edge may take.
const maxShape = 26

// label writes down what leaves.
func (e *exit) label() {
	e.text = strings.Join(e.shapes, " · ")
	if columns(e.text) > maxShape {
		e.text = e.shapes[0] + " …"
	}
	e.text = elide(e.text)
	e.width = math.Ceil(float64(columns(e.text)) * shapeColumn)
}

// tag is a shape's place beside an edge; shown if there is room.
type tag struct {
	x, y  float64
	shown bool
}

// tags places the shapes on a frame's edges: right of the edge, where it
// begins, and within the box that it leaves, so that they meet no other box or
// edge of the row. Of those that would meet each other the left one is shown;
// what leaves an open group has its shape inside.
func (c *canvas) tags(b *box, in inside) []tag {
	f := b.frame
	out := make([]tag, len(f.exits))
	order := make([]int, len(f.exits))
	for i := range f.exits {
		e := &f.exits[i]
		s := in.seats[e.from]
		out[i] = tag{c.end(b, in, e.from, e.port) + tagGap, s.y + s.h + tagDrop, false}
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		return cmp.Or(cmp.Compare(in.row[f.exits[i].from], in.row[f.exits[j].from]), cmp.Compare(out[i].x, out[j].x))
	})
	row, end := -1, 0.0
	for _, i := range order {
		e := &f.exits[i]
		if r := in.row[e.from]; r != row {
			row, end = r, math.Inf(-1)
		}
		s := in.seats[e.from]
		k := f.items[e.from]
		inside := k.frame != nil && !k.folded && e.port >= 0
		if out[i].shown = out[i].x >= end && out[i].x+e.width <= s.x+s.w+tagOver && !inside; out[i].shown {
			end = out[i].x + e.width + tagGap
		}
	}
	return out
}

// shows are the lines of a box that is folded or has no inside: its title,
// then what there is to say, the name last.
func (b *box) shows() (title string, lines []string, name string) {
	switch {
	case b.Family == "anchor":
		return elide(cmp.Or(b.Name, b.Title)), []string{elide(b.Title + "  " + b.Type)}, ""
	case b.Group && b.node < 0:
		lines = append(lines, plural(b.Detail.Nodes, "operator", "operators"))
		if s := summary(b.Kids); s != "" {
			lines = append(lines, elide(s))
		}
		return elide(b.Title), lines, ""
	case b.node < 0: // parameters and results of a graph
		return elide(b.Title), nil, elide(b.Name)
	}
	for _, l := range b.lines {
		lines = append(lines, elide(l))
	}
	if !viewKinds[b.Title] {
		name = elide(b.shortName())
	}
	return elide(b.Title), lines, name
}

// shut is the size of a box without an inside to be seen.
func (b *box) shut() (w, h float64) {
	if b.size.w > 0 {
		return b.size.w, b.size.h
	}
	title, lines, name := b.shows()
	w = float64(columns(title))*titleColumn + 6
	if b.Group { // its button, and how many operators it has once it is open
		w += 26 + float64(columns(plural(b.Detail.Nodes, "operator", "operators")))*columnWidth
	}
	if b.mark != "" {
		w += 20
	}
	n := len(lines)
	for _, l := range lines {
		w = max(w, float64(columns(l))*columnWidth)
	}
	if name != "" {
		n++
		w = max(w, float64(columns(name))*columnWidth)
	}
	w = max(math.Ceil(w)+2*leafPad, leastWidth, 2*(b.tag+2*tagGap-tagOver))
	b.size.w, b.size.h = w, titleHeight+lineHeight*float64(n)+leafPad
	return b.size.w, b.size.h
}

// open is the size of a group around an inside.
func (b *box) open(width, height float64) (w, h float64) {
	w, _ = b.shut()
	return max(w, width+2*framePad), frameHeader + height + framePad
}

// unfolded is how wide a box is with everything unfolded.
func (b *box) unfolded() float64 {
	w, _ := b.shut()
	if b.frame != nil {
		o, _ := b.open(b.frame.width, 0)
		return max(w, o)
	}
	return w
}

// elide shortens a label in its middle.
func elide(s string) string {
	s = printable(clip(s))
	if columns(s) <= maxColumns {
		return s
	}
	r := []rune(s)
	head, tail := 0, len(r)
	for used := 1; ; {
		front := head <= len(r)-tail
		c := r[head]
		if !front {
			c = r[tail-1]
		}
		if used += columns(string(c)); used > maxColumns {
			return string(r[:head]) + "…" + string(r[tail:])
		}
		if front {
			head++
		} else {
			tail--
		}
	}
}

// clip shortens a name that is longer than anybody reads: one string of a
// file may be the name of thousands of tensors.
func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most/2], "") + "…" + strings.ToValidUTF8(s[len(s)-most/2:], "")
}

// columns estimates how wide text is: East Asian characters and pictures take
// two columns.
func columns(s string) (n int) {
	for _, r := range s {
		n++
		if r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xd7ff || r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 || r >= 0x1f300) {
			n++
		}
	}
	return n
}

// printable replaces what can't be shown, or not in XML.
func printable(s string) string {
	if !utf8.ValidString(s) {
		s = string([]rune(s))
	}
	out := []rune(s)
	for i, r := range out {
		switch {
		case r < 0x20 || r >= 0x7f && r < 0xa0 || r == 0xfffe || r == 0xffff:
			out[i] = '�'
		case r >= 0x200e && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069:
			out[i] = '�' // would turn around what stands behind it
		}
	}
	return string(out)
}
