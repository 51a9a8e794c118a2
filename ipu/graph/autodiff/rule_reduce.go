package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var reduceRules = map[string]rule{
	"Cumulate": {back: backCumulate},
	"Reduce":   {back: backReduce},
	"Softmax":  {back: backSoftmax},
}

func backReduce(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.Reduce), n.Inputs[0]
	shape := p.shape(x)
	kept := slices.Clone(shape) // of the result with the axes as 1
	count := int64(1)
	for _, a := range o.Axes {
		count *= kept[a]
		kept[a] = 1
	}
	dy := p.reshape(p.dy(n, 0), kept...)
	y := func() graph.TensorID { return p.reshape(n.Outputs[0], kept...) }
	p.give(n, 0, func() graph.TensorID {
		switch o.Fn {
		case graph.ReduceSum:
			return p.expand(dy, shape)
		case graph.ReduceMean:
			return p.expand(p.scale(dy, 1/float64(max(count, 1))), shape)
		case graph.ReduceMax, graph.ReduceMin: // equal ones share the gradient
			mask := p.cast(p.binary(graph.Equal, x, y()), p.dtype(x))
			return p.mul(mask, p.div(dy, p.sum(mask, o.Axes...)))
		case graph.ReduceProd:
			return p.mul(dy, p.others(x, o.Axes))
		case graph.ReduceL1:
			return p.mul(dy, p.unary(graph.Sign, x))
		case graph.ReduceL2: // 0 at the origin, as in PyTorch
			zero := p.number(0, p.dtype(x))
			return p.where(p.binary(graph.Equal, y(), zero), zero, p.mul(x, p.div(dy, y())))
		case graph.ReduceLogSum:
			return p.expand(p.div(dy, p.sum(x, o.Axes...)), shape)
		case graph.ReduceLogSumExp:
			return p.mul(dy, p.unary(graph.Exp, p.sub(x, y())))
		case graph.ReduceSumSquare:
			return p.mul(p.scale(dy, 2), x)
		}
		refuse("there is no rule for the gradient of the reduction %q", string(o.Fn))
		return graph.None
	})
}

// others is, for every element of x, the product of all others that are reduced with it: those before it
// times those after it, so that zeros do no harm.
func (p *pull) others(x graph.TensorID, axes []int64) graph.TensorID {
	shape := p.shape(x)
	if len(axes) == 0 {
		return p.expand(p.number(1, p.dtype(x)), shape)
	}
	perm, front := []int64{}, []int64{}
	for i := range shape {
		if !slices.Contains(axes, int64(i)) {
			perm = append(perm, int64(i))
			front = append(front, shape[i])
		}
	}
	perm = append(perm, axes...)
	flat := p.reshape(p.transpose(p.wide(x), perm...), append(front, product(shape)/max(product(front), 1))...)
	along := int64(len(front))
	before := p.op(&graph.Cumulate{Fn: graph.CumulateProd, Axis: along, Exclusive: true}, flat)
	after := p.op(&graph.Cumulate{Fn: graph.CumulateProd, Axis: along, Exclusive: true, Reverse: true}, flat)
	moved := make([]int64, len(shape))
	back := make([]int64, len(shape))
	for i, a := range perm {
		moved[i] = shape[a]
		back[a] = int64(i)
	}
	return p.cast(p.transpose(p.reshape(p.mul(before, after), moved...), back...), p.dtype(x))
}

func backSoftmax(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Softmax)
	if p.jointly(n, n.Outputs[0]) {
		return
	}
	p.give(n, 0, func() graph.TensorID {
		y, dy := p.wide(n.Outputs[0]), p.wide(p.dy(n, 0))
		var d graph.TensorID
		if o.Log {
			d = p.sub(dy, p.mul(p.unary(graph.Exp, y), p.sum(dy, o.Axis)))
		} else {
			d = p.mul(y, p.sub(dy, p.sum(p.mul(dy, y), o.Axis)))
		}
		return p.cast(d, p.dtype(n.Inputs[0]))
	})
}

func backCumulate(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Cumulate)
	if o.Fn == graph.CumulateProd {
		p.give(n, 0, func() graph.TensorID { return p.cumulatedProducts(o, n.Inputs[0], p.dy(n, 0)) })
		return
	}
	p.give(n, 0, func() graph.TensorID {
		return p.op(&graph.Cumulate{Fn: graph.CumulateSum, Axis: o.Axis, Exclusive: o.Exclusive, Reverse: !o.Reverse}, p.dy(n, 0))
	})
}

// cumulatedProducts goes back through y_j = ∏ x_k over k up to j (or below it). What x_i gives to y_j is the product of
// all x_k but x_i: the products of n² rows, in which x_i is 1, are added up with their dy. No division, so that
// zeros do no harm.
func (p *pull) cumulatedProducts(o *graph.Cumulate, x, dy graph.TensorID) graph.TensorID {
	shape, t := p.shape(x), p.dtype(x)
	size := shape[o.Axis]
	pre, post := product(shape[:o.Axis]), product(shape[o.Axis+1:])
	flat := p.reshape(x, pre, 1, size, post)
	eye := p.reshape(p.eye(size, t), 1, size, size, 1)
	own := p.binary(graph.Equal, eye, p.number(1, t))
	rows := p.where(own, p.number(1, t), flat) // [pre, i, k, post]
	products := p.op(&graph.Cumulate{Fn: graph.CumulateProd, Axis: 2, Exclusive: o.Exclusive, Reverse: o.Reverse}, rows)
	// Only those products have x_i in them that have come past it.
	through := p.op(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 2, Exclusive: o.Exclusive, Reverse: o.Reverse}, eye)
	d := p.mul(p.mul(products, through), p.reshape(dy, pre, 1, size, post))
	return p.reshape(p.sum(d, 2), shape...)
}

// eye is the identity matrix.
func (b *emitter) eye(n int64, t graph.DType) graph.TensorID {
	values := b.constant("0, 1", graph.TensorType{DType: t, Shape: []int64{2}}, 0, 1)
	return b.op(&graph.OneHot{Axis: 1, Depth: n}, b.iota(n), values)
}
