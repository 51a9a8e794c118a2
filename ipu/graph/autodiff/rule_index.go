package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var indexRules = map[string]rule{
	"Gather":          {back: backGather},
	"GatherElements":  {back: backGatherElements},
	"GatherND":        {back: backGatherND},
	"MaxUnpool":       {back: backMaxUnpool},
	"OneHot":          {back: backOneHot},
	"ScatterElements": {back: backScatterElements},
	"ScatterND":       {back: backScatterND},
	"TopK":            {back: backTopK},
}

// backGather adds up the slices of dy by index, in the order of the indices.
func backGather(p *pull, n *graph.Node) {
	axis := n.Op.(*graph.Gather).Axis
	x, idx := n.Inputs[0], n.Inputs[1]
	p.give(n, 0, func() graph.TensorID {
		shape := p.shape(x)
		pre, dim, post := product(shape[:axis]), shape[axis], product(shape[axis+1:])
		count := product(p.shape(idx))
		dy := p.reshape(p.dy(n, 0), pre, count, post)
		zeros := p.zeros(graph.TensorType{DType: p.dtype(x), Shape: []int64{dim, pre, post}})
		d := p.op(&graph.ScatterND{Fn: graph.ScatterAdd}, zeros, p.reshape(idx, count, 1), p.transpose(dy, 1, 0, 2))
		return p.reshape(p.transpose(d, 1, 0, 2), shape...)
	})
}

func backGatherElements(p *pull, n *graph.Node) {
	o := n.Op.(*graph.GatherElements)
	p.give(n, 0, func() graph.TensorID {
		return p.op(&graph.ScatterElements{Axis: o.Axis, Fn: graph.ScatterAdd}, p.zeros(p.typ(n.Inputs[0])), n.Inputs[1], p.dy(n, 0))
	})
}

// backGatherND puts the number of the batch before the coordinates, so that all batches are scattered at once.
func backGatherND(p *pull, n *graph.Node) {
	o, x, idx := n.Op.(*graph.GatherND), n.Inputs[0], n.Inputs[1]
	p.give(n, 0, func() graph.TensorID {
		xs, is := p.shape(x), p.shape(idx)
		last := len(is) - 1
		batches, tuples, k := product(is[:o.BatchDims]), product(is[o.BatchDims:last]), is[last]
		rest := xs[o.BatchDims:]
		zeros := p.zeros(graph.TensorType{DType: p.dtype(x), Shape: slices.Concat([]int64{batches}, rest)})
		at := p.reshape(p.cast(idx, graph.I64), batches, tuples, k)
		batch := p.expand(p.reshape(p.iota(batches), batches, 1, 1), []int64{batches, tuples, 1})
		at = p.op(&graph.Concat{Axis: 2}, batch, at)
		dy := p.reshape(p.dy(n, 0), slices.Concat([]int64{batches, tuples}, rest[k:])...)
		return p.reshape(p.op(&graph.ScatterND{Fn: graph.ScatterAdd}, zeros, at, dy), xs...)
	})
}

func backScatterElements(p *pull, n *graph.Node) {
	o := n.Op.(*graph.ScatterElements)
	idx := n.Inputs[1]
	backScatter(p, n, o.Fn, scatter{
		put: func(fn graph.ScatterFn, x, u graph.TensorID) graph.TensorID {
			return p.op(&graph.ScatterElements{Axis: o.Axis, Fn: fn}, x, idx, u)
		},
		take:  func(x graph.TensorID) graph.TensorID { return p.op(&graph.GatherElements{Axis: o.Axis}, x, idx) },
		slots: p.shape(n.Inputs[0]), updates: p.shape(idx),
	})
}

func backScatterND(p *pull, n *graph.Node) {
	o := n.Op.(*graph.ScatterND)
	x, idx := n.Inputs[0], n.Inputs[1]
	is := p.shape(idx)
	lead, k := is[:len(is)-1], is[len(is)-1]
	backScatter(p, n, o.Fn, scatter{
		put: func(fn graph.ScatterFn, x, u graph.TensorID) graph.TensorID {
			return p.op(&graph.ScatterND{Fn: fn}, x, idx, u)
		},
		take:  func(x graph.TensorID) graph.TensorID { return p.op(&graph.GatherND{}, x, idx) },
		slots: p.shape(x)[:k], updates: lead,
	})
}

// scatter is what the two operators that write at indices have in common.
type scatter struct {
	put            func(fn graph.ScatterFn, x, u graph.TensorID) graph.TensorID // x with updates u
	take           func(x graph.TensorID) graph.TensorID                        // what x has where each update goes
	slots, updates []int64                                                      // shapes: what indices name, and how many of them there are
}

// backScatter: a written element has its gradient from the last update, of the functions add and mul from all, and of max and min
// from those that it is equal to, in equal parts.
func backScatter(p *pull, n *graph.Node, fn graph.ScatterFn, s scatter) {
	x, u, y, dy := n.Inputs[0], n.Inputs[2], n.Outputs[0], p.dy(n, 0)
	t := p.dtype(x)
	zero, one := p.number(0, t), p.number(1, t)
	like := func(v, of graph.TensorID) graph.TensorID { return p.expand(v, p.shape(of)) }
	switch fn {
	case graph.ScatterAdd:
		p.give(n, 0, func() graph.TensorID { return dy })
		p.give(n, 2, func() graph.TensorID { return s.take(dy) })
	case graph.ScatterMul:
		p.give(n, 0, func() graph.TensorID { return p.mul(dy, s.put(fn, like(one, x), u)) })
		p.give(n, 2, func() graph.TensorID {
			// The product of the other updates of an element: with that of all that are not zero, and how many are.
			is := p.binary(graph.Equal, u, zero)
			others := s.take(s.put(fn, like(one, x), p.where(is, one, u)))
			zeros := s.take(s.put(graph.ScatterAdd, like(zero, x), p.cast(is, t)))
			left := p.binary(graph.Equal, p.sub(zeros, p.cast(is, t)), zero)
			others = p.only(left, p.div(others, p.where(is, one, u)))
			return p.mul(s.take(p.mul(dy, x)), others)
		})
	case graph.ScatterMax, graph.ScatterMin:
		best, won := p.binary(graph.Equal, x, y), p.binary(graph.Equal, u, s.take(y))
		share := p.div(dy, s.put(graph.ScatterAdd, p.cast(best, t), p.cast(won, t)))
		p.give(n, 0, func() graph.TensorID { return p.only(best, share) })
		p.give(n, 2, func() graph.TensorID { return p.only(won, s.take(share)) })
	default:
		p.give(n, 0, func() graph.TensorID { return s.put(graph.ScatterNone, dy, p.zeros(p.typ(u))) })
		p.give(n, 2, func() graph.TensorID {
			number := p.reshape(p.iota(product(s.updates)), s.updates...)
			left := s.put(graph.ScatterNone, p.zeros(graph.TensorType{DType: graph.I64, Shape: s.slots}), number)
			last := p.binary(graph.Equal, s.take(left), number)
			last = p.reshape(last, slices.Concat(s.updates, repeated(len(p.shape(u))-len(s.updates), 1))...)
			return p.only(last, s.take(dy))
		})
	}
}

// backMaxUnpool: of elements with one index the last one stays, and gets the gradient.
func backMaxUnpool(p *pull, n *graph.Node) {
	x, idx := n.Inputs[0], n.Inputs[1]
	p.give(n, 0, func() graph.TensorID {
		count, all := product(p.shape(x)), product(p.shape(n.Outputs[0]))
		at, number := p.reshape(idx, count), p.iota(count)
		take := &graph.GatherElements{}
		left := p.op(&graph.ScatterElements{Fn: graph.ScatterNone}, p.zeros(graph.TensorType{DType: graph.I64, Shape: []int64{all}}), at, number)
		d := p.op(take, p.reshape(p.dy(n, 0), all), at)
		return p.reshape(p.only(p.binary(graph.Equal, p.op(take, left, at), number), d), p.shape(x)...)
	})
}

// backOneHot gives the second value the gradients where an index is, the first one all others.
func backOneHot(p *pull, n *graph.Node) {
	o, idx, values := n.Op.(*graph.OneHot), n.Inputs[0], n.Inputs[1]
	p.give(n, 1, func() graph.TensorID {
		t, dy := p.dtype(values), p.dy(n, 0)
		hot := p.op(&graph.OneHot{Axis: o.Axis, Depth: o.Depth}, idx, p.constant("0, 1", graph.TensorType{DType: t, Shape: []int64{2}}, 0, 1))
		total := func(d graph.TensorID) graph.TensorID {
			return p.reshape(p.sum(d, axesFrom(0, len(p.shape(d)))...), 1)
		}
		cold := p.sub(p.number(1, t), hot)
		return p.op(&graph.Concat{Axis: 0}, total(p.mul(dy, cold)), total(p.mul(dy, hot)))
	})
}

func backTopK(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.TopK), n.Inputs[0]
	p.give(n, 0, func() graph.TensorID {
		at := graph.None
		if len(n.Outputs) > 1 {
			at = n.Outputs[1]
		}
		if at == graph.None {
			at = p.ops(o, x)[1]
		}
		return p.op(&graph.ScatterElements{Axis: o.Axis, Fn: graph.ScatterAdd}, p.zeros(p.typ(x)), at, p.dy(n, 0))
	})
}
