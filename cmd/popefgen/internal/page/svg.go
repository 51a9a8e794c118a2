package page

import (
	_ "embed"
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/popefgen/popefgen/internal/looks"
)

// seat is where a box stands in its parent's frame.
type seat struct{ x, y, w, h float64 }

// inside is a frame as it is seen with its groups folded or not: the page's
// script computes the same when a group is folded.
type inside struct {
	w, h  float64
	seats []seat    // of the children
	x     []float64 // centres of all items
	rows  [][2]float64
	row   []int // of every item
}

// span is a strip of a frame in which something stands.
type span struct{ left, right float64 }

// see places the rows of a frame one below the other, each as high as what is
// highest in it, and takes out the upright strips in which nothing stands.
func (f *frame) see(inner func(*box) (w, h float64)) inside {
	in := inside{seats: make([]seat, len(f.items)), x: make([]float64, len(f.x)), row: make([]int, len(f.x))}
	spans := make([]span, len(f.x))
	for i, x := range f.x {
		half := 0.0
		if i < len(f.items) {
			in.seats[i].w, in.seats[i].h = inner(f.items[i])
			half = in.seats[i].w / 2
		}
		spans[i] = span{x - half, x + half}
	}
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case spans[a].left < spans[b].left:
			return -1
		case spans[a].left > spans[b].left:
			return 1
		}
		return 0
	})
	end, off := 0.0, 0.0
	for k, i := range order {
		allowed := emptyStrip
		if k == 0 {
			end, allowed = 0, 0
		}
		if gap := spans[i].left - end; gap > allowed {
			off += gap - allowed
		}
		end = max(end, spans[i].right)
		in.x[i] = f.x[i] - off
		in.w = max(in.w, spans[i].right-off)
	}
	heights := make([]float64, len(f.rows))
	for r, row := range f.rows {
		for _, i := range row {
			in.row[i] = r
			if i < len(f.items) {
				heights[r] = max(heights[r], in.seats[i].h)
			}
		}
	}
	y := 0.0
	for r, row := range f.rows {
		h := heights[r]
		for _, i := range row {
			if i < len(f.items) {
				s := &in.seats[i]
				s.x, s.y = in.x[i]-s.w/2, y+(h-s.h)/2
			}
		}
		in.rows = append(in.rows, [2]float64{y, y + h})
		in.h = y + h
		switch {
		case h == 0: // nothing but edges that come in
			y += portGap
		case r+1 < len(f.rows) && heights[r+1] == 0: // or that go out
			y += h + leaveGap
		default:
			y += h + rowGap
		}
	}
	return in
}

// seen computes the sizes of boxes as they are folded, each once.
type seen map[*box]inside

func (s seen) size(b *box) (w, h float64) {
	if b.frame == nil || b.folded {
		return b.shut()
	}
	in := s.inside(b)
	return b.open(in.w, in.h)
}

func (s seen) inside(b *box) inside {
	in, ok := s[b]
	if !ok {
		in = b.frame.see(s.size)
		s[b] = in
	}
	return in
}

// canvas writes SVG.
type canvas struct {
	strings.Builder
	seen  seen
	alone bool // nothing changes it any more
}

func px(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// text is text that is safe in HTML and in XML, between tags and in attributes.
func text(s string) string { return html.EscapeString(printable(s)) }

//go:embed graph.css
var graphCSS string

// standalone returns the drawing as a file of its own.
func (d *drawing) standalone() string {
	body, w, h := d.body(true)
	return fmt.Sprintf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %s %s\" width=\"%s\" height=\"%s\" class=\"alone\" role=\"img\" aria-label=\"%s\">\n<style>\n%s</style>\n%s%s</svg>\n",
		px(w), px(h), px(w), px(h), text("graph of "+d.exe.Name), looks.Palette+graphCSS, arrowHead, body)
}

// arrowHead is what edges end with.
const arrowHead = `<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto"><path d="M0,0.8L8,4L0,7.2z" class="head"/></marker></defs>` + "\n"

// hatching fills scratch memory in charts.
const hatching = `<defs><pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><path d="M0,0V5" class="hatch"/></pattern></defs>` + "\n"

// body returns the drawing's content with its size. What is in folded groups
// the page's script draws once it is unfolded.
func (d *drawing) body(alone bool) (string, float64, float64) {
	c := &canvas{seen: seen{}, alone: alone}
	in := c.seen.inside(d.root)
	fmt.Fprintf(c, "<g class=\"frame\" transform=\"translate(%d,%d)\">\n", int(framePad), int(framePad))
	c.frame(d.root)
	c.WriteString("</g>\n")
	return c.String(), in.w + 2*framePad, in.h + 2*framePad
}

// frame draws what is inside a group: edges below boxes.
func (c *canvas) frame(b *box) {
	in := c.seen.inside(b)
	for i := range b.frame.links {
		l := &b.frame.links[i]
		class := "edge"
		if l.to >= len(b.frame.items) {
			class += " out"
		}
		fmt.Fprintf(c, "<path class=\"%s\" d=\"%s\"/>\n", class, c.path(b, in, l))
	}
	for i, t := range c.tags(b, in) {
		if t.shown || !c.alone {
			fmt.Fprintf(c, "<text class=\"shape\" x=\"%s\" y=\"%s\"%s>%s</text>\n", px(t.x), px(t.y), hidden(!t.shown), text(b.frame.exits[i].text))
		}
	}
	for i, k := range b.frame.items {
		c.box(k, in.seats[i])
	}
}

// path is a link's way: upright along its bends, curved between the rows.
func (c *canvas) path(b *box, in inside, l *link) string {
	var s strings.Builder
	x := c.end(b, in, l.from, l.fromPort)
	y := in.rows[in.row[l.from]][1]
	if l.from < len(b.frame.items) {
		y = in.seats[l.from].y + in.seats[l.from].h
	}
	fmt.Fprintf(&s, "M%s,%s", px(x), px(y))
	stub := y + edgeStub // upright at first, where its shape stands
	to := func(x2, y2 float64) {
		if x != x2 && l.from < len(b.frame.items) && y < stub && stub < y2 {
			fmt.Fprintf(&s, "V%s", px(stub))
			y = stub
		}
		if x == x2 {
			fmt.Fprintf(&s, "V%s", px(y2))
		} else {
			m := (y + y2) / 2
			fmt.Fprintf(&s, "C%s,%s %s,%s %s,%s", px(x), px(m), px(x2), px(m), px(x2), px(y2))
		}
		x, y = x2, y2
	}
	// Between two rows an edge starts at the end of the upper one, however
	// low its own box ends.
	row := func(i int) {
		if end := in.rows[in.row[i]][1]; end > y {
			to(x, end)
		}
	}
	if l.from >= len(b.frame.items) { // a port at the frame's upper edge
		y = -frameHeader
		s.Reset()
		fmt.Fprintf(&s, "M%s,%s", px(x), px(y))
	}
	row(l.from)
	for _, k := range l.bends {
		to(in.x[k], in.rows[in.row[k]][0])
		row(k)
	}
	top := in.rows[in.row[l.to]][0]
	x2 := c.end(b, in, l.to, l.toPort)
	to(x2, top)
	if l.to >= len(b.frame.items) {
		to(x2, top+framePad)
	}
	if l.to < len(b.frame.items) {
		if at := in.seats[l.to].y; at > top {
			to(x2, at)
		}
	}
	return s.String()
}

// end is where a link meets an item: at a port of a group's inside, at the
// same share of its width if it is folded, or in the middle.
func (c *canvas) end(b *box, in inside, i, port int) float64 {
	if port < 0 {
		return in.x[i]
	}
	k := b.frame.items[i]
	s := in.seats[i]
	if k.folded {
		return s.x + s.w*(0.2+0.6*k.frame.x[port]/max(1, k.frame.width))
	}
	inner := c.seen.inside(k)
	return s.x + (s.w-inner.w)/2 + inner.x[port]
}

// box draws a box where it is seated in its parent's frame.
func (c *canvas) box(b *box, at seat) {
	class := "box f-" + b.Family
	if b.Group {
		class += " group"
	}
	if b.mark != "" {
		class += " m-" + b.mark
	}
	open := b.frame != nil && !b.folded
	if open {
		class += " open"
	}
	label := b.Title
	for _, more := range []string{clip(b.Name), b.Type, strings.Join(b.lines, ", "), markWords[b.mark]} {
		if more != "" {
			label += ", " + more
		}
	}
	expanded := ""
	if b.Group {
		expanded = fmt.Sprintf(" aria-expanded=\"%v\"", open)
	}
	fmt.Fprintf(c, "<g class=\"%s\" data-i=\"%d\" transform=\"translate(%s,%s)\" tabindex=\"-1\" role=\"button\"%s aria-label=\"%s\">\n",
		class, b.ID, px(at.x), px(at.y), expanded, text(label))
	fmt.Fprintf(c, "<rect width=\"%s\" height=\"%s\" rx=\"6\"/><path class=\"stripe\" d=\"%s\"/>\n", px(at.w), px(at.h), stripe(at.h))
	if open {
		in := c.seen.inside(b)
		fmt.Fprintf(c, "<g class=\"frame\" transform=\"translate(%s,%s)\">\n", px((at.w-in.w)/2), px(frameHeader))
		c.frame(b)
		c.WriteString("</g>\n")
	}
	title, lines, name := b.shows()
	left := leafPad + 2
	if b.Group {
		fmt.Fprintf(c, "<g class=\"fold\"><rect x=\"2\" y=\"2\" width=\"26\" height=\"26\"/><text x=\"%s\" y=\"%s\">%s</text></g>", px(leafPad), px(titleHeight), map[bool]string{true: "▾", false: "▸"}[open])
		left += 16
	}
	fmt.Fprintf(c, "<text class=\"kind\" x=\"%s\" y=\"%s\">%s</text>", px(left), px(titleHeight), text(title))
	if b.Group {
		fmt.Fprintf(c, "<text class=\"count\" x=\"%s\" y=\"%s\">%s</text>", px(left+countAt(title)), px(titleHeight), text(plural(b.Detail.Nodes, "operator", "operators")))
	}
	y := titleHeight
	for _, l := range lines {
		y += lineHeight
		fmt.Fprintf(c, "<text class=\"sub\" x=\"%s\" y=\"%s\">%s</text>", px(leafPad+2), px(y), text(l))
	}
	if name != "" {
		y += lineHeight
		fmt.Fprintf(c, "<text class=\"sub name\" x=\"%s\" y=\"%s\">%s</text>", px(leafPad+2), px(y), text(name))
	}
	if sign := signs[b.mark]; sign != "" {
		fmt.Fprintf(c, "<text class=\"sign\" x=\"%s\" y=\"%s\">%s</text>", px(at.w-16), px(titleHeight+1), sign)
	}
	c.WriteByte('\n')
	c.WriteString("</g>\n")
}

// What marks of a comparison mean, in a word and in a sign.
var (
	markWords = map[string]string{"added": "added", "removed": "removed", "changed": "changed", "follows": "other shapes, because of a change elsewhere"}
	signs     = map[string]string{"added": "+", "removed": "−", "changed": "≠"}
)

// stripe is the coloured left end of a box of a height.
func stripe(h float64) string {
	return fmt.Sprintf("M6,0Q0,0 0,6V%sQ0,%s 6,%sz", px(h-6), px(h), px(h))
}

func hidden(on bool) string {
	if on {
		return " display=\"none\""
	}
	return ""
}
