package autodiff

import (
	"fmt"

	"github.com/popefgen/popefgen/ipu/graph"
)

var regionRules = map[string]rule{
	"MaxRoiPool":       {back: backMaxRoiPool},
	"RoiAlign":         {back: backRoiAlign},
	"RoiAlignGradient": {back: backRoiAlignGradient},
}

// backMaxRoiPool gives each gradient to the maximum that comes first in its cell, whose place is computed again. Regions are
// rounded to whole elements, so that theirs is zero.
func backMaxRoiPool(p *pull, n *graph.Node) {
	x, rois := n.Inputs[0], n.Inputs[1]
	p.give(n, 0, func() graph.TensorID {
		size, dy := product(p.shape(x)), p.dy(n, 0)
		cells := product(p.shape(dy))
		at := p.reshape(p.ops(n.Op, x, rois)[1], cells)
		zeros := p.zeros(graph.TensorType{DType: p.dtype(x), Shape: []int64{size + 1}}) // the last one is -1, of cells without elements
		d := p.op(&graph.ScatterElements{Fn: graph.ScatterAdd}, zeros, at, p.reshape(dy, cells))
		d = p.op(&graph.Slice{Start: []int64{0}, Size: []int64{size}, Step: []int64{1}}, d)
		return p.reshape(d, p.shape(x)...)
	})
	if p.wants(n, 1) {
		p.zeroed[rois] = fmt.Sprintf("node %q (%s)", n.Name, n.Op.Kind())
	}
}

func backRoiAlign(p *pull, n *graph.Node) {
	o := graph.RoiAlignGradient(*n.Op.(*graph.RoiAlign))
	p.regionGradients(n, &o, n.Inputs[0], n.Inputs[1], n.Inputs[2], p.dy(n, 0))
}

// regionGradients emits an operator that gives the gradients of the first two operands of a node, those that are wanted.
func (p *pull) regionGradients(n *graph.Node, o *graph.RoiAlignGradient, in ...graph.TensorID) {
	out := p.ops(o, in...)
	nodes := p.emitted()
	results := nodes[len(nodes)-1].Outputs
	for i, d := range out {
		if p.wants(n, i) {
			p.accumulate(n.Inputs[i], d)
		} else {
			results[i] = graph.None
		}
	}
}

// backRoiAlignGradient: averages are linear in x, and the gradient of x is their adjoint.
func backRoiAlignGradient(p *pull, n *graph.Node) {
	o := n.Op.(*graph.RoiAlignGradient)
	if o.Mode != graph.RoiAverage {
		refuse("gradients of the gradient of RoiAlign are computed for the mode avg, not for %s", o.Mode)
	}
	d, rois, images, dy := p.dy(n, 0), n.Inputs[1], n.Inputs[2], n.Inputs[3]
	if d == graph.None || p.dy(n, 1) != graph.None {
		refuse("the gradient that RoiAlign gives its regions has none: detach what computes them")
	}
	forward := graph.RoiAlign(*o)
	p.give(n, 1, func() graph.TensorID { return p.ops(o, d, rois, images, dy)[1] })
	p.give(n, 3, func() graph.TensorID { return p.op(&forward, d, rois, images) })
}
