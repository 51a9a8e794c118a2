package rows

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// node is a node whose results are being found out.
type node struct {
	*graph.Node
	a     *analysis
	types []graph.TensorType // of the operands; Invalid where one is left out
	in    []value            // of the operands
	to    []graph.TensorType // of all results that the operator can have
	out   []value            // of those, as far as they are known
}

// link says where an operand's axes go: axis i of the operand, which has the shape view, is
// axis axes[i] of the result, and an element there needs only the operand's elements
// with the same coordinate. Axes that are across, -1, are needed as a whole.
type link struct {
	operand int
	view    []int64 // nil: its own shape
	axes    []int
}

const across = -1

// straight returns the axes of an operand that are those of the result, but the given
// ones, which are needed as a whole.
func straight(rank int, but ...int64) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
		if slices.Contains(but, int64(i)) {
			axes[i] = across
		}
	}
	return axes
}

// aligned returns the axes of an operand of the given rank that is broadcast to a
// result of rank to.
func aligned(rank, to int) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = max(to-rank+i, across)
	}
	return axes
}

// given reports whether an operand is there.
func (n *node) given(operand int) bool {
	return operand < len(n.types) && n.types[operand].DType != graph.Invalid
}

// whole reports whether the rows of an operand, which has some, neither begin nor end
// within an axis.
func (n *node) whole(operand int) bool { return len(n.in[operand].at) == n.types[operand].Rank() }

// fault returns a finding about the node.
func (n *node) fault(r Reason, format string, args ...any) *Finding {
	return &Finding{Reason: r, Node: n.Name, Kind: n.Op.Kind(), Why: fmt.Sprintf(format, args...)}
}

// mix says that a result's rows are mixed.
func (n *node) mix(result int, f *Finding) {
	n.out[result] = value{kind: mixed, fault: f, zeros: anything}
}

// flow finds out about a result of the shape view (nil: its own) from what links say of
// the operands; those that are left out are passed over.
func (n *node) flow(result int, view []int64, links ...link) {
	if n.to[result].Elements() == 0 {
		n.out[result] = value{at: plain(n.to[result].Shape), zeros: anything}
		return
	}
	if view == nil {
		view = n.to[result].Shape
	}
	v := value{zeros: anything}
	from := -1 // the operand whose rows the result has
	links = slices.DeleteFunc(links, func(l link) bool { return !n.given(l.operand) })
	for i := range links {
		if links[i].view == nil {
			links[i].view = n.types[links[i].operand].Shape
		}
	}
	view = n.flatten(view, links)
	for i := range links {
		l := &links[i]
		in := &n.in[l.operand]
		if in.placed != nil {
			v.placed = in.placed
		}
		switch in.kind {
		case mixed:
			n.mix(result, in.fault)
			return
		case apart:
			at, f := n.carry(l, in, view)
			if f == nil && from >= 0 && !at.equal(v.at) {
				f = n.fault(Mixes, "the rows of operand %d, %v, meet others of operand %d, %v", from, n.types[from], l.operand, n.types[l.operand])
			}
			if f != nil {
				n.mix(result, f)
				return
			}
			v.kind, v.at, from = apart, at, l.operand
		}
	}
	if v.kind == alike {
		v.at = n.levels(view, links)
	} else if f := n.uneven(v.at, links); f != nil {
		v.placed = f
	}
	at, ok := v.at.regroup(n.to[result].Shape)
	switch {
	case ok:
		v.at = at
	case v.kind == alike:
		v.at = plain(n.to[result].Shape)
	default: // they begin or end within an axis
		v.at = layout{canonical(slices.Concat(v.at...))}
	}
	n.out[result] = v
}

// flatten makes a list of elements of the result, whose view it returns, and of all operands
// if rows of one begin or end within an axis and every element of the result needs
// that of the operands at the same place alone. So rows that a reshape cut apart may
// be joined again by another one.
func (n *node) flatten(view []int64, links []link) []int64 {
	cut := false
	for i := range links {
		l := &links[i]
		if n.in[l.operand].kind == mixed {
			return view
		}
		_, ok := n.in[l.operand].at.regroup(l.view)
		cut = cut || n.in[l.operand].kind == apart && !ok
	}
	if !cut {
		return view
	}
	for i := range links {
		l := &links[i]
		one := graph.TensorType{Shape: l.view}.Elements() == 1
		if !one && !(slices.Equal(l.view, view) && slices.Equal(l.axes, straight(len(view)))) {
			return view
		}
	}
	flat := []int64{graph.TensorType{Shape: view}.Elements()}
	for i := range links {
		l := &links[i]
		if l.axes = []int{0}; slices.Equal(l.view, view) {
			l.view = flat
		} else {
			l.view = []int64{1}
		}
	}
	return flat
}

// carry returns where the result, of the shape view, has the rows of an operand.
func (n *node) carry(l *link, in *value, view []int64) (layout, *Finding) {
	at, ok := in.at.regroup(l.view)
	if !ok {
		return nil, n.fault(Mixes, "the rows of operand %d, %v, lie across the parts that it computes with", l.operand, n.types[l.operand])
	}
	out := plain(view)
	for i, fs := range at {
		if !counts(fs) {
			continue
		}
		to := l.axes[i]
		if to < 0 || view[to] != l.view[i] {
			return nil, n.fault(Mixes, "it computes along the rows of operand %d, %v: %s", l.operand, n.types[l.operand], in.at.words(n.types[l.operand].Rank()))
		}
		out[to] = fs
	}
	return out, nil
}

// words says where rows are.
func (l layout) words(rank int) string {
	axis := l.axis()
	switch {
	case axis < 0:
		return "there is one"
	case len(l) != rank:
		return "they begin or end within an axis"
	}
	if len(l[axis]) == 1 && !slices.ContainsFunc(l[axis+1:], counts) {
		return fmt.Sprintf("axis %d", axis)
	}
	return fmt.Sprintf("a part of axis %d", axis)
}

// levels returns along which axes of a result without rows all elements are equal.
func (n *node) levels(view []int64, links []link) layout {
	out := plain(view)
	known := make([]bool, len(view))
	uneven := make([]bool, len(view))
	for i := range links {
		l := &links[i]
		in := &n.in[l.operand]
		at, ok := in.at.regroup(l.view)
		for j, to := range l.axes {
			if to < 0 {
				continue
			}
			known[to] = true
			if l.view[j] == 1 || ok && even(at[j]) {
				continue
			}
			count := plain(l.view)
			count[j] = []factor{{l.view[j], 1}}
			if in.data == nil || !n.a.same(in.data, count) {
				uneven[to] = true
			}
		}
	}
	for i, d := range view {
		if known[i] && !uneven[i] {
			out[i] = canonical([]factor{{d, level}})
		}
	}
	return out
}

// uneven returns a finding if an operand without rows is not the same for all rows of
// the result.
func (n *node) uneven(rows layout, links []link) *Finding {
	for i := range links {
		l := &links[i]
		in := &n.in[l.operand]
		if in.kind != alike {
			continue
		}
		at, ok := in.at.regroup(l.view)
		count, differs := plain(l.view), false
		for j, to := range l.axes {
			if to < 0 || l.view[j] == 1 || !counts(rows[to]) {
				continue
			}
			count[j] = rows[to]
			differs = differs || !ok || !even(at[j])
		}
		if differs && (in.data == nil || !n.a.same(in.data, count)) {
			return n.fault(Differs, "operand %d, %v, has numbers of its own for each row", l.operand, n.types[l.operand])
		}
	}
	return nil
}
