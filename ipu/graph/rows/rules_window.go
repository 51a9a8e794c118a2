package rows

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// pointwise returns the spatial axes, numbered from first on, along which windows are
// of one element and stand where they are; the others are across.
func pointwise(first int, kernel, strides, before, after []int64) []int {
	axes := make([]int, len(kernel))
	for i := range axes {
		axes[i] = across
		if kernel[i] == 1 && strides[i] == 1 && before[i] == 0 && (after == nil || after[i] == 0) {
			axes[i] = first + i
		}
	}
	return axes
}

// grouped returns the view of a shape whose axis has groups of neighbours.
func grouped(shape []int64, axis int, groups int64) []int64 {
	return slices.Concat(shape[:axis], []int64{groups, shape[axis] / groups}, shape[axis+1:])
}

// ruleConv: samples and groups are apart, and so are pixels where kernels are of one.
func ruleConv(n *node) {
	o, ok := n.Op.(*graph.Conv)
	if !ok {
		o = n.Op.(*graph.IntegerConv).Conv()
	}
	x, w, y := n.types[0], n.types[1], n.to[0]
	links := []link{
		{0, grouped(x.Shape, 1, o.Group), slices.Concat([]int{0, 1, across}, pointwise(3, w.Shape[2:], o.Strides, o.PadsBegin, o.PadsEnd))},
		{1, grouped(w.Shape, 0, o.Group), slices.Concat([]int{1, 2}, slices.Repeat([]int{across}, w.Rank()-1))},
	}
	n.flow(0, grouped(y.Shape, 1, o.Group), append(links, n.channels(o.Group, w.Shape[0])...)...)
}

// channels returns the links of operands from 2 on that have one element for all or one
// for each output channel.
func (n *node) channels(groups, channels int64) []link {
	var links []link
	for k := 2; k < len(n.types); k++ {
		switch {
		case !n.given(k):
		case n.types[k].Elements() == channels:
			links = append(links, link{k, []int64{groups, channels / groups}, []int{1, 2}})
		default:
			links = append(links, link{k, []int64{1}, []int{across}})
		}
	}
	return links
}

func ruleConvTranspose(n *node) {
	o := n.Op.(*graph.ConvTranspose)
	x, w, y := n.types[0], n.types[1], n.to[0]
	spatial := pointwise(3, w.Shape[2:], o.Strides, o.PadsBegin, nil)
	for i := range spatial {
		if o.Output[i] != x.Shape[2+i] {
			spatial[i] = across
		}
	}
	links := []link{
		{0, grouped(x.Shape, 1, o.Group), slices.Concat([]int{0, 1, across}, spatial)},
		{1, grouped(w.Shape, 0, o.Group), slices.Concat([]int{1, across, 2}, slices.Repeat([]int{across}, w.Rank()-2))},
	}
	n.flow(0, grouped(y.Shape, 1, o.Group), append(links, n.channels(o.Group, y.Shape[1])...)...)
}

func ruleDeformConv(n *node) {
	o := n.Op.(*graph.DeformConv)
	x, w, y := n.types[0], n.types[1], n.to[0]
	links := []link{
		{0, grouped(x.Shape, 1, o.Group), []int{0, 1, across, across, across}},
		{1, grouped(w.Shape, 0, o.Group), []int{1, 2, across, across, across}},
		{2, nil, []int{0, across, 3, 4}},
	}
	if n.given(3) {
		links = append(links, link{3, []int64{o.Group, w.Shape[0] / o.Group}, []int{1, 2}})
	}
	links = append(links, link{4, nil, []int{0, across, 3, 4}})
	n.flow(0, grouped(y.Shape, 1, o.Group), links...)
}

func ruleCol2Im(n *node) {
	x, y := n.types[0], n.to[0]
	links := link{0, []int64{x.Shape[0], y.Shape[1], x.Shape[1] / max(y.Shape[1], 1), x.Shape[2]}, []int{0, 1, across, across}}
	n.flow(0, nil, links)
}

func rulePool(n *node) {
	var spatial []int
	indices := false
	switch o := n.Op.(type) {
	case *graph.MaxPool:
		spatial, indices = pointwise(2, o.Kernel, o.Strides, o.PadsBegin, o.PadsEnd), true
	case *graph.AveragePool:
		spatial = pointwise(2, o.Kernel, o.Strides, o.PadsBegin, o.PadsEnd)
	case *graph.LpPool:
		spatial = pointwise(2, o.Kernel, o.Strides, o.PadsBegin, o.PadsEnd)
	}
	l := link{0, nil, slices.Concat([]int{0, 1}, spatial)}
	n.flow(0, nil, l)
	if indices {
		n.flow(1, nil, l)
		if v := &n.out[1]; v.kind == apart {
			v.placed = n.fault(Differs, "its indices count the elements of all rows before")
		} else if v.kind == alike {
			v.at = plain(n.to[1].Shape)
		}
		n.out[1].places = n.types[0].Shape
	}
}

// ruleMaxUnpool: places may be anywhere, unless they are where a MaxPool of a tensor of the result's
// shape found its maxima.
func ruleMaxUnpool(n *node) {
	if !n.unpools() {
		whole(n)
		return
	}
	axes := straight(n.types[0].Rank(), from(2, n.types[0].Rank())...)
	places := &n.in[1]
	placed := places.placed
	places.placed = nil // what they count of rows before, the result is ahead by
	n.flow(0, nil, link{0, nil, axes}, link{1, nil, axes})
	places.placed = placed
}

// unpools reports whether a MaxUnpool puts elements where a MaxPool found them.
func (n *node) unpools() bool {
	return n.in[1].kind != mixed && slices.Equal(n.in[1].places, n.Op.(*graph.MaxUnpool).Shape)
}

func ruleGridSample(n *node) {
	rank := n.types[0].Rank()
	grid := []int{0}
	for i := 2; i < rank; i++ {
		grid = append(grid, i)
	}
	n.flow(0, nil, link{0, nil, straight(rank, from(2, rank)...)}, link{1, nil, append(grid, across)})
}

// ruleRoi: a region names its image, which may be any.
func ruleRoi(n *node) {
	n.flow(0, nil, link{0, nil, []int{across, 1, across, across}}, link{1, nil, []int{0, across}}, link{2, nil, []int{0}})
}

func ruleResize(n *node) {
	o, x := n.Op.(*graph.Resize), n.types[0]
	var changed []int64
	for i, d := range x.Shape {
		if o.Coordinates == graph.CropAndResize || o.Scales[i] != 1 || o.Sizes[i] != d {
			changed = append(changed, int64(i))
		}
	}
	n.flow(0, nil, link{0, nil, straight(x.Rank(), changed...)})
}
