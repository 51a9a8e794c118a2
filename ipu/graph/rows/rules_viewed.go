package rows

import (
	"cmp"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// ruleViewedAttention: heads are apart, and so are rows of Q. An operand is read by
// strides over its memory, which become factors of the axes of the grid.
func ruleViewedAttention(n *node) {
	o := n.Op.(*graph.ViewedAttention)
	heads := len(o.Heads)
	sizes := func(down, across int64) []int64 { return append(slices.Clone(o.Heads), down, across) }
	// The result is a grid of heads, rows and columns; y says in which order they lie.
	grid := sizes(o.Rows, o.Width)
	links := []strided{
		{0, o.Q, sizes(o.Rows, o.Size), straight(heads+2, int64(heads+1))},
		{1, o.K, sizes(o.Cols, o.Size), straight(heads+2, int64(heads), int64(heads+1))},
		{2, o.V, sizes(o.Cols, o.Width), straight(heads+2, int64(heads))},
		{3, o.Bias, sizes(o.Rows, o.Cols), straight(heads+2, int64(heads+1))},
	}
	if o.Causal { // a row's place decides what it looks at
		for i := range links {
			links[i].axes[heads] = across
		}
	}
	g := &node{Node: n.Node, a: n.a, types: n.types, in: slices.Clone(n.in), to: n.to, out: make([]value, 1)}
	// In the order of memory the result is a tensor of these axes.
	order := make([]int, len(grid))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(o.Y[1+b], o.Y[1+a]), cmp.Compare(grid[b], grid[a]))
	})
	view, place := make([]int64, len(grid)), make([]int, len(grid))
	for i, axis := range order {
		view[i], place[axis] = grid[axis], i
	}
	var flow []link
	for _, l := range links {
		if !n.given(l.operand) {
			continue
		}
		f := n.gather(&g.in[l.operand], l)
		if f != nil {
			n.mix(0, f)
			return
		}
		g.types = slices.Clone(g.types)
		g.types[l.operand].Shape = l.sizes
		axes := make([]int, len(l.axes))
		for i, to := range l.axes {
			if axes[i] = across; to >= 0 {
				axes[i] = place[to]
			}
		}
		flow = append(flow, link{l.operand, l.sizes, axes})
	}
	g.flow(0, view, flow...)
	n.out[0] = g.out[0]
}

// strided is a link of an operand that is read by strides: the number of its first element,
// then how far the next one is away along each axis of a view of the given sizes.
type strided struct {
	operand int
	strides []int64
	sizes   []int64
	axes    []int
}

// gather replaces what is known of an operand by what is known of its view.
func (n *node) gather(v *value, l strided) *Finding {
	switch v.kind {
	case mixed:
		return nil
	case alike:
		// Along an axis of stride 0 all elements are equal; of others nothing is known
		// unless all are.
		whole, at := even(canonical(slices.Concat(v.at...))), plain(l.sizes)
		if v.data != nil && !whole {
			count := make(layout, len(v.at))
			for i, d := range v.data.Type.Shape {
				count[i] = []factor{{d, 1}}
			}
			whole = n.a.same(v.data, count)
		}
		for i := range at {
			if whole || l.strides[1+i] == 0 {
				at[i] = canonical([]factor{{l.sizes[i], level}})
			}
		}
		v.at, v.data = at, nil
		return nil
	}
	cut := n.fault(Mixes, "the rows of operand %d, %v, lie across the heads that it computes", l.operand, n.types[l.operand])
	// Digits of memory, cut where axes of the view begin and end.
	digits := v.at.digits()
	split := func(at int64) bool { // no digit has neighbours of element at in one
		for i, d := range digits {
			if at <= d.stride || at >= d.stride*d.size {
				continue
			}
			if at%d.stride != 0 {
				return false
			}
			low := at / d.stride
			if d.size%low != 0 {
				return false
			}
			high := digit{at, d.size / low, d.weight}
			if d.weight > 0 {
				high.weight *= low
			}
			digits = slices.Replace(digits, i, i+1, high, digit{d.stride, low, d.weight})
			return true
		}
		return true
	}
	for i, size := range l.sizes {
		if s := l.strides[1+i]; size > 1 && s > 0 && !(split(s) && split(s*size)) {
			return cut
		}
	}
	at, used := plain(l.sizes), make([]bool, len(digits))
	for i, size := range l.sizes {
		s := l.strides[1+i]
		if size == 1 || s == 0 {
			continue
		}
		var fs []factor
		for k, d := range digits {
			if d.stride < s || d.stride >= s*size {
				continue
			}
			if used[k] || l.strides[0]/d.stride%d.size != 0 { // two axes add to one digit, or begin within it
				return cut
			}
			used[k] = true
			fs = append(fs, factor{d.size, d.weight})
		}
		product := int64(1)
		for _, f := range fs {
			product *= f.size
		}
		if product != size {
			return cut
		}
		at[i] = canonical(fs)
	}
	for k, d := range digits {
		if d.weight > 0 && d.size > 1 && !used[k] {
			return cut // it sees some rows only
		}
	}
	v.at = at
	return nil
}
