// Package layered lays directed acyclic graphs out in rows, after Sugiyama,
// Tagawa and Toda ("Methods for visual understanding of hierarchical system
// structures", 1981): every edge goes down, edges that pass a row do so at a
// bend, rows are ordered to have few crossings, and boxes stand below what
// they read. The result depends on nothing but the graph.
package layered

import (
	"fmt"
	"math"
	"slices"
)

// Gaps between neighbours of a row.
const (
	boxGap  = 22.0 // between two boxes
	bendGap = 12.0 // between a bend and anything else
)

// Graph is what is laid out: boxes, by index, and edges between them.
type Graph struct {
	Widths []float64 // of the boxes
	Edges  [][2]int  // from, to; from < to
	// Ends says for every edge how far right of the centres of its boxes it
	// starts and ends; nil for all in the middle.
	Ends   [][2]float64
	Top    []int // boxes that make up the first row, in this order; nothing leads to them
	Bottom []int // boxes that make up the last row, in this order; nothing leads from them
}

// Layout is where everything stands.
type Layout struct {
	// Rows lists the boxes, and from len(Widths) on the bends, from the top
	// and in each row from the left.
	Rows [][]int
	// X holds the centres of boxes and bends. The left edge of what is
	// leftmost is 0.
	X []float64
	// Chains holds for every edge the bends on its way, one in each row
	// between its ends. Edges from one box share their bends.
	Chains [][]int
	// Width is where the right edge of what is rightmost is.
	Width float64
}

// Lay lays g out. It fails on an edge that does not lead from a lower to a
// higher index or that has an end that is no box.
func Lay(g Graph) (*Layout, error) {
	n := len(g.Widths)
	for _, e := range g.Edges {
		if e[0] < 0 || e[1] >= n || e[0] >= e[1] {
			return nil, fmt.Errorf("edge from box %d to box %d of %d: want one from a lower to a higher index", e[0], e[1], n)
		}
	}
	if g.Ends != nil && len(g.Ends) != len(g.Edges) {
		return nil, fmt.Errorf("%d edges with the ends of %d: want as many", len(g.Edges), len(g.Ends))
	}
	s := newState(g, ranks(g))
	s.order()
	s.place()
	l := &Layout{Rows: s.rows, X: s.x, Chains: s.chains}
	left := math.Inf(1)
	for i, x := range l.X {
		left = min(left, x-s.width(i)/2)
	}
	for i := range l.X {
		l.X[i] = math.Round((l.X[i]-left)*2) / 2
		l.Width = max(l.Width, l.X[i]+s.width(i)/2)
	}
	return l, nil
}

// ranks returns the row of every box: below all that it reads, and for a box
// that reads nothing just above the first that reads it.
func ranks(g Graph) []int {
	n := len(g.Widths)
	rank, reads := make([]int, n), make([]bool, n)
	first := make([]int, n) // the highest reader's row
	top, bottom := make([]bool, n), make([]bool, n)
	for _, b := range g.Top {
		top[b] = true
	}
	for _, b := range g.Bottom {
		bottom[b] = true
	}
	if len(g.Top) > 0 {
		for i := range rank {
			if !top[i] {
				rank[i] = 1
			}
		}
	}
	edges := slices.Clone(g.Edges)
	slices.SortStableFunc(edges, func(a, b [2]int) int { return a[0] - b[0] })
	for _, e := range edges {
		rank[e[1]] = max(rank[e[1]], rank[e[0]]+1)
		reads[e[1]] = true
		first[e[0]] = math.MaxInt
	}
	for _, e := range edges {
		first[e[0]] = min(first[e[0]], rank[e[1]])
	}
	last := -1
	for i := range rank {
		if !reads[i] && !top[i] && first[i] > 0 {
			rank[i] = first[i] - 1
		}
		if !bottom[i] {
			last = max(last, rank[i])
		}
	}
	for _, b := range g.Bottom {
		rank[b] = last + 1
	}
	return rank
}

// state is a layout in the making. Boxes come first, then bends.
type state struct {
	g        Graph
	rank     []int
	rows     [][]int
	pos      []int // place in the row
	up, down [][]int
	shift    map[[2]int]float64 // of two neighbours: how far right the second would be for a straight edge
	chains   [][]int
	x        []float64
	source   []int     // of every bend: the box that its edges come from
	aim      []float64 // of every bend: where its edge would be straight; nil at first
}

func (s *state) isBend(i int) bool { return i >= len(s.g.Widths) }

func (s *state) width(i int) float64 {
	if s.isBend(i) {
		return 0
	}
	return s.g.Widths[i]
}

// newState gives every edge its bends and every row its first order.
func newState(g Graph, rank []int) *state {
	n := len(g.Widths)
	s := &state{g: g, rank: rank, up: make([][]int, n), down: make([][]int, n), chains: make([][]int, len(g.Edges))}
	bends := make([][]int, n) // of the edges from a box, one a row
	s.shift = map[[2]int]float64{}
	link := func(a, b int, right float64) {
		if !slices.Contains(s.down[a], b) {
			s.down[a] = append(s.down[a], b)
			s.up[b] = append(s.up[b], a)
			if right != 0 {
				s.shift[[2]int{a, b}], s.shift[[2]int{b, a}] = right, -right
			}
		}
	}
	for i, e := range g.Edges {
		from, to := e[0], e[1]
		at := from
		var ends [2]float64
		if g.Ends != nil {
			ends = g.Ends[i]
		}
		for r := rank[from] + 1; r < rank[to]; r++ {
			k := r - rank[from] - 1
			if k == len(bends[from]) {
				b := len(s.rank)
				s.rank = append(s.rank, r)
				s.source = append(s.source, from)
				s.up, s.down = append(s.up, nil), append(s.down, nil)
				bends[from] = append(bends[from], b)
				link(at, b, ends[0])
			}
			at, ends[0] = bends[from][k], 0
		}
		s.chains[i] = bends[from][:max(0, rank[to]-rank[from]-1)]
		link(at, to, ends[0]-ends[1])
	}
	s.pos = make([]int, len(s.rank))
	s.rows = make([][]int, 1+slices.Max(append(slices.Clone(s.rank), 0)))
	seen := make([]bool, len(s.rank))
	// Depth first, so that what belongs together starts together.
	visit := func(i int) {
		for stack := []int{i}; len(stack) > 0; {
			i := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if seen[i] {
				continue
			}
			seen[i] = true
			s.pos[i] = len(s.rows[s.rank[i]])
			s.rows[s.rank[i]] = append(s.rows[s.rank[i]], i)
			for _, d := range slices.Backward(s.down[i]) {
				stack = append(stack, d)
			}
		}
	}
	for i := range s.rank {
		if len(s.up[i]) == 0 {
			visit(i)
		}
	}
	for _, fixed := range [][]int{g.Top, g.Bottom} {
		if len(fixed) > 0 {
			s.rows[rank[fixed[0]]] = slices.Clone(fixed)
			for p, b := range fixed {
				s.pos[b] = p
			}
		}
	}
	return s
}
