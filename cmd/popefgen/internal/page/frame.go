package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/popefgen/popefgen/cmd/popefgen/internal/layered"
)

// Sizes in pixels.
const (
	lineHeight   = 15.0
	columnWidth  = 6.4 // of the labels' font
	maxColumns   = 32  // of a label
	leafPad      = 12.0
	framePad     = 14.0
	frameHeader  = 30.0
	rowGap       = 34.0
	emptyStrip   = 26.0 // what is left of a strip in which nothing stands
	visibleBoxes = 80   // at most as many are shown before anything is unfolded
)

// frame is the inside of a group, laid out with all groups in it unfolded.
type frame struct {
	items []*box // children; beyond them in X and rows are ports and bends, which are points
	rows  [][]int
	x     []float64
	links []link
	width float64 // inside, with everything unfolded
}

// link is an edge in a frame, from an item down to another through bends. A
// port is the item of a child's frame by which the edge goes on inside, or -1.
type link struct {
	from, fromPort, to, toPort int
	bends                      []int
	tensors                    []string
}

// lay lays out every frame of the drawing and folds what would be too much to
// look at at first.
func (d *drawing) lay() error {
	plans := map[*box]*plan{}
	for _, b := range d.boxes {
		if b.Group {
			plans[b] = &plan{top: map[*box]int{}, bottom: map[*box]int{}, links: map[string]int{}}
		}
	}
	for _, e := range d.edges {
		route(plans, e)
	}
	for _, p := range plans {
		p.tops, p.bots = enumerate(p.top), enumerate(p.bottom)
	}
	if err := layBox(plans, d.root); err != nil {
		return err
	}
	d.fold()
	return nil
}

// plan collects what a frame's layout has to hold.
type plan struct {
	top, bottom map[*box]int // ports, by the box that an edge comes from
	tops, bots  int
	parts       []part
	links       map[string]int
}

// part is an edge's part in one frame: from a child, or from a port above, to
// a child, or to a port below.
type part struct {
	from, to *box // children; nil stands for a port of source
	source   *box
	tensors  []string
}

// meet returns the boxes around two, themselves first, up to those that stand
// in one frame.
func meet(a, b *box) (as, bs []*box) {
	as, bs = []*box{a}, []*box{b}
	da, db := a.around(), b.around()
	for a.parent != b.parent {
		deeper := da - db
		if deeper >= 0 {
			a = a.parent
			as = append(as, a)
			da--
		}
		if deeper <= 0 {
			b = b.parent
			bs = append(bs, b)
			db--
		}
	}
	return as, bs
}

// around counts the groups around b.
func (b *box) around() (n int) {
	for p := b.parent; p != nil; p = p.parent {
		n++
	}
	return n
}

// route cuts an edge into its parts: out of the groups around its start, in
// the frame that holds both ends, and into the groups around its end.
func route(plans map[*box]*plan, e edge) {
	up, down := meet(e.from, e.to)
	a, b := up[len(up)-1], down[len(down)-1]
	if a == b {
		return // from an operator's graph to the operator
	}
	for i := 1; i < len(up); i++ {
		plans[up[i]].add(up[i-1], nil, e)
	}
	plans[a.parent].add(a, b, e)
	for i := 1; i < len(down); i++ {
		plans[down[i]].add(nil, down[i-1], e)
	}
}

// add adds a part of an edge to a frame, once for all edges between the same
// ends of the same source.
func (p *plan) add(from, to *box, e edge) {
	id := func(b *box) int {
		if b == nil {
			return -1
		}
		return b.ID
	}
	key := fmt.Sprint(id(from), id(to), e.from.ID)
	i, ok := p.links[key]
	if !ok {
		i = len(p.parts)
		p.links[key] = i
		p.parts = append(p.parts, part{from: from, to: to, source: e.from})
		if from == nil {
			p.top[e.from] = 0
		}
		if to == nil {
			p.bottom[e.from] = 0
		}
	}
	if t := p.parts[i].tensors; len(t) < 4 && !slices.Contains(t, e.tensor) {
		p.parts[i].tensors = append(t, e.tensor)
	}
}

// enumerate orders ports by what they lead from, alike in all frames, so that
// edges from frame to frame do not cross.
func enumerate(ports map[*box]int) int {
	from := make([]*box, 0, len(ports))
	for b := range ports {
		from = append(from, b)
	}
	slices.SortFunc(from, func(a, b *box) int { return a.ID - b.ID })
	for i, b := range from {
		ports[b] = i
	}
	return len(from)
}

// layBox lays out a group's frame after those of its children.
func layBox(plans map[*box]*plan, b *box) error {
	p := plans[b]
	f := &frame{items: b.Kids}
	index := map[*box]int{}
	for i, k := range b.Kids {
		index[k] = i
		if k.Group {
			if err := layBox(plans, k); err != nil {
				return err
			}
		}
	}
	// Ports above come first for the layout, which numbers boxes in the
	// order of computation; in the frame they come behind the children.
	kids := len(b.Kids)
	g := layered.Graph{Widths: make([]float64, p.tops+kids+p.bots)}
	for i, k := range b.Kids {
		g.Widths[p.tops+i], _ = k.size()
	}
	for i := range p.tops {
		g.Top = append(g.Top, i)
	}
	for i := range p.bots {
		g.Bottom = append(g.Bottom, p.tops+kids+i)
	}
	item := func(n int) int { // from the layout's numbers to the frame's
		switch {
		case n < p.tops:
			return kids + n
		case n < p.tops+kids:
			return n - p.tops
		}
		return n
	}
	for _, e := range p.parts {
		l := link{fromPort: -1, toPort: -1, tensors: e.tensors}
		var ends [2]int
		if e.from != nil {
			ends[0] = p.tops + index[e.from]
			if e.from.Group && e.from != e.source {
				q := plans[e.from]
				l.fromPort = q.tops + len(e.from.Kids) + q.bottom[e.source]
			}
		} else {
			ends[0] = p.top[e.source]
		}
		if e.to != nil {
			ends[1] = p.tops + index[e.to]
			if i, ok := portOf(plans, e); ok {
				l.toPort = len(e.to.Kids) + i
			}
		} else {
			ends[1] = p.tops + kids + p.bottom[e.source]
		}
		l.from, l.to = item(ends[0]), item(ends[1])
		g.Edges = append(g.Edges, ends)
		f.links = append(f.links, l)
	}
	l, err := layered.Lay(g)
	if err != nil {
		return fmt.Errorf("laying out %q: %w", b.Name, err)
	}
	f.x = make([]float64, len(l.X))
	for i, x := range l.X {
		f.x[item(i)] = x
	}
	for _, row := range l.Rows {
		items := make([]int, len(row))
		for i, n := range row {
			items[i] = item(n)
		}
		f.rows = append(f.rows, items)
	}
	for i, chain := range l.Chains {
		f.links[i].bends = chain // bends have the same numbers in both
	}
	f.width = l.Width
	b.frame = f
	return nil
}

// portOf returns the port by which a part goes on into a group.
func portOf(plans map[*box]*plan, e part) (int, bool) {
	if !e.to.Group {
		return 0, false
	}
	i, ok := plans[e.to].top[e.source]
	return i, ok
}

// fold folds groups from a depth on, so that few enough boxes are seen.
func (d *drawing) fold() {
	var open func(*box, int) int
	open = func(b *box, depth int) int {
		n := 0
		b.folded = b.Group && b.depth >= depth
		for _, k := range b.Kids {
			m := open(k, depth)
			if !b.folded {
				n += m
			}
		}
		return n + 1
	}
	deepest := 1
	for _, b := range d.boxes {
		deepest = max(deepest, b.depth+1)
	}
	for depth := deepest; depth >= 1; depth-- {
		if open(d.root, depth) <= visibleBoxes {
			return
		}
	}
}

// labels are the lines of a box, the first in bold.
func (b *box) labels() []string {
	lines := []string{b.Title}
	if b.Group && b.node < 0 {
		n := fmt.Sprintf("%d operators", b.Detail.Nodes)
		if b.Detail.Nodes == 1 {
			n = "1 operator"
		}
		lines = append(lines, n)
	}
	if name := b.shortName(); name != "" && name != b.Title && !(b.Group && strings.HasSuffix(name, "/"+b.Title)) {
		lines = append(lines, name)
	}
	if b.Type != "" {
		t := b.Type
		if more := len(b.Detail.Out) - 1; more > 0 {
			t += fmt.Sprintf(" +%d", more)
		}
		lines = append(lines, t)
	}
	for i := range lines {
		lines[i] = elide(lines[i])
	}
	return lines
}

// shortName is the name without what the group around already says.
func (b *box) shortName() string {
	p := b.parent
	for p != nil && len(p.path) == 0 {
		p = p.parent
	}
	if p == nil || b.path == nil {
		return b.Name
	}
	sep := "/"
	if !strings.Contains(b.Name, sep) {
		sep = "."
	}
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(b.Name, sep), strings.Join(p.path, sep)+sep); ok {
		return "…" + strings.Trim(sep, ".") + rest
	}
	return b.Name
}

// shut is the size of a box without an inside to be seen.
func (b *box) shut() (w, h float64) {
	lines := b.labels()
	w = 84
	for i, l := range lines {
		n := float64(columns(l)) * columnWidth
		if i == 0 {
			n = n*1.15 + 8
			if b.Group {
				n += 18 // its button
			}
			if b.mark != "" {
				n += 20
			}
		}
		w = max(w, n)
	}
	return math.Ceil(w) + 2*leafPad, lineHeight*float64(len(lines)) + leafPad
}

// open is the size of a group around an inside.
func (b *box) open(width, height float64) (w, h float64) {
	w, _ = b.shut()
	return max(w, width+2*framePad), frameHeader + height + framePad
}

// size is the size of a box with everything unfolded.
func (b *box) size() (w, h float64) {
	if b.frame == nil {
		return b.shut()
	}
	return b.open(b.frame.width, 0)
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
