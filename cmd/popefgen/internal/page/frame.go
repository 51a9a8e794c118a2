package page

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/internal/layered"
)

// Sizes in pixels.
const (
	titleHeight  = 19.0
	lineHeight   = 14.0
	titleColumn  = 7.6 // of titles' font
	columnWidth  = 6.4 // of the font of what stands below
	shapeColumn  = 6.1 // of the font on edges
	maxColumns   = 34  // of a label
	leastWidth   = 92.0
	leafPad      = 10.0
	framePad     = 16.0
	frameHeader  = 34.0
	rowGap       = 44.0
	portGap      = 14.0 // below edges that come into a group
	leaveGap     = 26.0 // above edges that leave a group
	edgeStub     = 17.0 // that an edge is upright before it bends
	tagGap       = 5.0  // from an edge to its shape
	tagDrop      = 13.0 // from a box to the line of the shapes below it
	tagOver      = 8.0  // that a shape may stand out from its box
	emptyStrip   = 26.0 // what is left of a strip in which nothing stands
	visibleBoxes = 100  // at most as many are shown before anything is unfolded
)

// frame is the inside of a group, laid out with all groups in it unfolded.
type frame struct {
	items []*box // children; beyond them in X and rows are ports and bends, which are points
	rows  [][]int
	x     []float64
	links []link
	exits []exit
	width float64 // inside, with everything unfolded
}

// link is an edge in a frame, from an item down to another through bends. A
// port is the item of a child's frame by which the edge goes on inside, or -1.
type link struct {
	from, fromPort, to, toPort int
	bends                      []int
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
	shapes   []string // of the tensors on it, a few
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
	if t := p.parts[i].shapes; len(t) < 4 && !slices.Contains(t, e.shape) {
		p.parts[i].shapes = append(t, e.shape)
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
		l := link{fromPort: -1, toPort: -1}
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
		g.Ends = append(g.Ends, [2]float64{aside(e.from, l.fromPort), aside(e.to, l.toPort)})
		f.links = append(f.links, l)
		f.leave(l, e.shapes)
	}
	for i := range f.exits {
		e := &f.exits[i]
		e.label()
		if k := f.items[e.from]; k.frame == nil {
			k.tag = max(k.tag, e.width)
		}
	}
	for i, k := range b.Kids {
		g.Widths[p.tops+i] = k.unfolded()
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

// aside is how far right of a box's centre a port of its inside is.
func aside(b *box, port int) float64 {
	if b == nil || port < 0 {
		return 0
	}
	return b.frame.x[port] - b.frame.width/2
}

// leave notes the shapes of what leaves an item of the frame by a link.
func (f *frame) leave(l link, shapes []string) {
	if l.from >= len(f.items) {
		return // it came in, with its shape
	}
	at := slices.IndexFunc(f.exits, func(e exit) bool { return e.from == l.from && e.port == l.fromPort })
	if at < 0 {
		at = len(f.exits)
		f.exits = append(f.exits, exit{from: l.from, port: l.fromPort})
	}
	for _, s := range shapes {
		if !slices.Contains(f.exits[at].shapes, s) {
			f.exits[at].shapes = append(f.exits[at].shapes, s)
		}
	}
}

// portOf returns the port by which a part goes on into a group.
func portOf(plans map[*box]*plan, e part) (int, bool) {
	if !e.to.Group {
		return 0, false
	}
	i, ok := plans[e.to].top[e.source]
	return i, ok
}

// fold folds groups from a depth on, so that few enough boxes are seen, and
// shows the inside of the first of each kind as far as there is room.
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
	depth := 1
	for _, b := range d.boxes {
		depth = max(depth, b.depth+1)
	}
	shown := open(d.root, depth)
	for ; shown > visibleBoxes && depth > 1; depth-- {
		shown = open(d.root, depth-1)
	}
	met := map[string]bool{}
	var first func(*box)
	first = func(b *box) {
		for _, k := range b.Kids {
			if k.folded && k.node < 0 {
				s := sign(k)
				if n := len(k.Kids); !met[s] && shown+n <= visibleBoxes {
					met[s], k.folded = true, false
					shown += n
				}
			}
			if !k.folded {
				first(k)
			}
		}
	}
	first(d.root)
}
