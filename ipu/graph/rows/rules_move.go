package rows

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// ruleReshape: the elements stay in order.
func ruleReshape(n *node) {
	x := n.types[0].Shape
	n.flow(0, x, link{0, x, straight(len(x))})
}

func ruleTranspose(n *node) {
	perm := n.Op.(*graph.Transpose).Perm
	to := make([]int, len(perm))
	for i, p := range perm {
		to[p] = i
	}
	n.flow(0, nil, link{0, nil, to})
}

// ruleConcat: parts that have the rows on the axis along which they are joined give rows
// if all have the same there, once more for each part.
func ruleConcat(n *node) {
	axis := int(n.Op.(*graph.Concat).Axis)
	parts, first := int64(0), -1
	stacked := false
	for k := range n.in {
		if n.types[k].Elements() == 0 {
			continue
		}
		if first < 0 {
			first = k
		}
		parts++
		stacked = stacked || n.in[k].kind == apart && n.whole(k) && counts(n.in[k].at[axis])
	}
	equal := first >= 0
	for k := range n.in {
		equal = equal && (n.types[k].Elements() == 0 || n.types[k].Equal(n.types[first]))
	}
	var links []link
	if stacked && equal { // x and y are [[x],[y]] along a new axis
		view := slices.Insert(slices.Clone(n.types[first].Shape), axis, parts)
		for k := range n.in {
			if n.types[k].Elements() > 0 {
				to := straight(len(view))
				links = append(links, link{k, nil, slices.Delete(to, axis, axis+1)})
			}
		}
		n.flow(0, view, links...)
		return
	}
	for k := range n.in {
		if n.types[k].Elements() > 0 {
			links = append(links, link{k, nil, straight(n.types[k].Rank(), int64(axis))})
		}
	}
	n.flow(0, nil, links...)
}

// ruleSlice: axes that stay whole keep their rows, and so do those that are cut between
// whole batches, or beside one place of every row.
func ruleSlice(n *node) {
	o, x := n.Op.(*graph.Slice), n.types[0]
	var view, to []int64
	var axes []int
	add := func(size, result int64, axis int) {
		view, to, axes = append(view, size), append(to, result), append(axes, axis)
	}
	for i, d := range x.Shape {
		start, size, step := o.Start[i], o.Size[i], o.Step[i]
		outer, inner := int64(1), int64(1) // around the digits that count
		if v := &n.in[0]; v.kind == apart && n.whole(0) && counts(v.at[i]) {
			fs := v.at[i]
			if fs[0].weight <= 0 {
				outer = fs[0].size
			}
			if last := fs[len(fs)-1]; last.weight <= 0 {
				inner = last.size
			}
		}
		rows := d / (outer * inner)
		block := rows * inner
		switch {
		case start == 0 && size == d && step == 1:
			add(d, d, len(to))
		case outer > 1 && step == 1 && start%block == 0 && size%block == 0 && size > 0:
			add(outer, size/block, across)
			add(block, block, len(to))
		case inner > 1 && outer == 1 && step == inner && size == rows:
			add(rows, rows, len(to))
			add(inner, 1, across)
		default:
			add(d, size, across)
		}
	}
	n.flow(0, to, link{0, view, axes})
}

func rulePad(n *node) {
	o := n.Op.(*graph.Pad)
	var changed []int64
	for i := range o.Before {
		if o.Before[i] != 0 || o.After[i] != 0 {
			changed = append(changed, int64(i))
		}
	}
	links := []link{{0, nil, straight(n.types[0].Rank(), changed...)}}
	if n.given(1) {
		links = append(links, link{1, []int64{1}, []int{across}})
	}
	n.flow(0, nil, links...)
}

// ruleGather: the indices take the place of the axis.
func ruleGather(n *node) {
	axis := int(n.Op.(*graph.Gather).Axis)
	x, idx := n.types[0], n.types[1]
	xs := straight(x.Rank(), int64(axis))
	for i := axis + 1; i < len(xs); i++ {
		xs[i] += idx.Rank() - 1
	}
	is := straight(idx.Rank())
	for i := range is {
		is[i] += axis
	}
	n.flow(0, nil, link{0, nil, xs}, link{1, nil, is})
}

func ruleGatherElements(n *node) {
	axis := n.Op.(*graph.GatherElements).Axis
	n.flow(0, nil, link{0, nil, straight(n.types[0].Rank(), axis)}, link{1, nil, straight(n.types[1].Rank())})
}

func ruleGatherND(n *node) {
	batch := int(n.Op.(*graph.GatherND).BatchDims)
	x, idx := n.types[0], n.types[1]
	last := idx.Rank() - 1
	coordinates := int(idx.Shape[last])
	xs := straight(x.Rank())
	for i := batch; i < len(xs); i++ {
		if xs[i] = across; i >= batch+coordinates {
			xs[i] = last + i - batch - coordinates
		}
	}
	n.flow(0, nil, link{0, nil, xs}, link{1, nil, straight(idx.Rank(), int64(last))})
}

// ruleScatterElements: updates and their indices stay in their place but for Axis. Along
// an axis on which there are not as many of them as of x some places stay as they are.
func ruleScatterElements(n *node) {
	x, idx := n.types[0], n.types[1]
	but := []int64{n.Op.(*graph.ScatterElements).Axis}
	for i, d := range idx.Shape {
		if d != x.Shape[i] {
			but = append(but, int64(i))
		}
	}
	to := straight(x.Rank(), but...)
	n.flow(0, nil, link{0, nil, to}, link{1, nil, to}, link{2, nil, to})
}

// ruleScatterND: updates go anywhere on the axes that coordinates name.
func ruleScatterND(n *node) {
	x, idx, updates := n.types[0], n.types[1], n.types[2]
	last := idx.Rank() - 1
	coordinates := int(idx.Shape[last])
	us := straight(updates.Rank())
	for i := range us {
		if us[i] = across; i >= last {
			us[i] = coordinates + i - last
		}
	}
	xs := straight(x.Rank())
	for i := range coordinates {
		xs[i] = across // its places are not alike: some are written
	}
	n.flow(0, nil, link{0, nil, xs}, link{1, nil, slices.Repeat([]int{across}, idx.Rank())}, link{2, nil, us})
}
