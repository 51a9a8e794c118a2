package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var normRules = map[string]rule{
	"BatchNorm": {back: backBatchNorm},
	"GroupNorm": {back: backGroupNorm},
	"LRN":       {back: backLRN},
	"LayerNorm": {back: backLayerNorm},
	"RMSNorm":   {back: backRMSNorm},
}

// backBatchNorm is for inference, where mean and variance are operands.
func backBatchNorm(p *pull, n *graph.Node) {
	o, t := n.Op.(*graph.BatchNorm), p.dtype(n.Inputs[0])
	x, dy := p.wide(n.Inputs[0]), p.wide(p.dy(n, 0))
	c := p.shape(x)[1]
	column := slices.Concat([]int64{1, c}, repeated(len(p.shape(x))-2, 1))
	channel := func(i int) graph.TensorID { return p.reshape(p.wide(n.Inputs[i]), column...) }
	r := p.inverseRoot(channel(4), o.Epsilon)
	scale := channel(1)
	p.give(n, 0, func() graph.TensorID { return p.cast(p.mul(dy, p.mul(scale, r)), t) })
	centred := func() graph.TensorID { return p.sub(x, channel(3)) }
	give := func(i int, d func() graph.TensorID) {
		p.give(n, i, func() graph.TensorID { return p.cast(p.perChannel(d()), t) })
	}
	give(1, func() graph.TensorID { return p.mul(dy, p.mul(centred(), r)) })
	give(2, func() graph.TensorID { return dy })
	give(3, func() graph.TensorID { return p.neg(p.mul(dy, p.mul(scale, r))) })
	give(4, func() graph.TensorID {
		slope := p.scale(p.mul(scale, p.mul(r, p.square(r))), -0.5)
		return p.mul(dy, p.mul(centred(), slope))
	})
}

// inverseRoot is 1/√(x+epsilon).
func (b *emitter) inverseRoot(x graph.TensorID, epsilon float64) graph.TensorID {
	return b.unary(graph.Reciprocal, b.unary(graph.Sqrt, b.plus(x, epsilon)))
}

// normalised is what normalisations over some axes have in common.
type normalised struct {
	axes    []int64
	r, hat  graph.TensorID // 1/deviation and the normalised operand
	centred bool           // the mean is taken away
}

func (p *pull) normalise(x graph.TensorID, axes []int64, epsilon float64, centred bool) normalised {
	if centred {
		x = p.sub(x, p.mean(x, axes...))
	}
	r := p.inverseRoot(p.mean(p.square(x), axes...), epsilon)
	return normalised{axes, r, p.mul(x, r), centred}
}

// backNormalised returns the gradient of the operand from that of the normalised one: r·(g - mean g - x̂·mean(g·x̂)).
func (p *pull) backNormalised(s normalised, g graph.TensorID) graph.TensorID {
	d := p.sub(g, p.mul(s.hat, p.mean(p.mul(g, s.hat), s.axes...)))
	if s.centred {
		d = p.sub(d, p.mean(g, s.axes...))
	}
	return p.mul(d, s.r)
}

// backStatistics adds to d, the gradient of a normalised operand or None, what comes through the mean and the inverse deviation that a node
// gives besides: dmean/n and -dr·r²·x̂/n, n being how many elements they are of.
func (p *pull) backStatistics(n *graph.Node, s normalised, x, d graph.TensorID) graph.TensorID {
	count := 1.0
	for _, a := range s.axes {
		count *= float64(p.shape(x)[a])
	}
	add := func(part graph.TensorID) {
		if d != graph.None {
			part = p.add(d, part)
		}
		d = part
	}
	of := func(i int) graph.TensorID {
		return p.reshape(p.cast(p.dy(n, i), p.dtype(x)), p.shape(s.r)...)
	}
	if p.dy(n, 1) != graph.None {
		add(p.expand(p.scale(of(1), 1/count), p.shape(x)))
	}
	if p.dy(n, 2) != graph.None {
		add(p.mul(p.scale(p.mul(of(2), p.square(s.r)), -1/count), s.hat))
	}
	return d
}

func backLayerNorm(p *pull, n *graph.Node) {
	if p.dy(n, 1) == graph.None && p.dy(n, 2) == graph.None && p.jointly(n, n.Inputs...) {
		return
	}
	o := n.Op.(*graph.LayerNorm)
	x := p.wide(n.Inputs[0])
	s := p.normalise(x, axesFrom(int(o.Axis), len(p.shape(x))), o.Epsilon, true)
	p.backScaled(n, s, x)
}

func backRMSNorm(p *pull, n *graph.Node) {
	if p.jointly(n, n.Inputs...) {
		return
	}
	o := n.Op.(*graph.RMSNorm)
	x := p.wide(n.Inputs[0])
	s := p.normalise(x, axesFrom(int(o.Axis), len(p.shape(x))), o.Epsilon, false)
	p.backScaled(n, s, x)
}

// backScaled gives the gradients of a normalised operand, and of the scale and the addend that follow.
func (p *pull) backScaled(n *graph.Node, s normalised, x graph.TensorID) {
	t := p.dtype(n.Inputs[0])
	dy := p.wide(p.dy(n, 0))
	p.give(n, 0, func() graph.TensorID {
		d := graph.None
		if dy != graph.None {
			d = p.backNormalised(s, p.mul(dy, p.wide(n.Inputs[1])))
		}
		return p.cast(p.backStatistics(n, s, x, d), t)
	})
	if dy == graph.None {
		return
	}
	p.give(n, 1, func() graph.TensorID { return p.cast(p.sumTo(p.mul(dy, s.hat), p.shape(n.Inputs[1])), t) })
	p.give(n, 2, func() graph.TensorID { return p.cast(p.sumTo(dy, p.shape(n.Inputs[2])), t) })
}

func backGroupNorm(p *pull, n *graph.Node) {
	if p.dy(n, 1) == graph.None && p.dy(n, 2) == graph.None && p.jointly(n, n.Inputs...) {
		return
	}
	o, t := n.Op.(*graph.GroupNorm), p.dtype(n.Inputs[0])
	shape := p.shape(n.Inputs[0])
	grouped := []int64{shape[0], o.Groups, shape[1] / o.Groups, product(shape[2:])}
	x := p.reshape(p.wide(n.Inputs[0]), grouped...)
	s := p.normalise(x, []int64{2, 3}, o.Epsilon, true)
	dy := p.wide(p.dy(n, 0))
	if dy != graph.None {
		dy = p.reshape(dy, grouped...)
	}
	p.give(n, 0, func() graph.TensorID {
		d := graph.None
		if dy != graph.None {
			scale := p.reshape(p.wide(n.Inputs[1]), 1, grouped[1], grouped[2], 1)
			d = p.backNormalised(s, p.mul(dy, scale))
		}
		return p.cast(p.reshape(p.backStatistics(n, s, x, d), shape...), t)
	})
	if dy == graph.None {
		return
	}
	give := func(i int, d func() graph.TensorID) {
		p.give(n, i, func() graph.TensorID { return p.cast(p.reshape(p.sum(d(), 0, 3), shape[1]), t) })
	}
	give(1, func() graph.TensorID { return p.mul(dy, s.hat) })
	give(2, func() graph.TensorID { return dy })
}

// backLRN: y = x·u^-β with u = bias + α/size·Σ x², so that dx = dy·u^-β - 2αβ/size·x·Σ' dy·x·u^(-β-1), Σ' being the sum
// over the elements in whose windows x is.
func backLRN(p *pull, n *graph.Node) {
	o := n.Op.(*graph.LRN)
	p.give(n, 0, func() graph.TensorID {
		shape := p.shape(n.Inputs[0])
		x := p.reshape(p.wide(n.Inputs[0]), shape[0], 1, shape[1], product(shape[2:]))
		dy := p.reshape(p.wide(p.dy(n, 0)), p.shape(x)...)
		before, after := min((o.Size-1)/2, max(shape[1]-1, 0)), min(o.Size/2, max(shape[1]-1, 0))
		u := p.plus(p.scale(p.along(p.square(x), before, after), o.Alpha/float64(o.Size)), o.Bias)
		power := func(e float64) graph.TensorID { return p.binary(graph.Pow, u, p.number(e, p.dtype(u))) }
		shared := p.along(p.mul(p.mul(dy, x), power(-o.Beta-1)), after, before)
		d := p.sub(p.mul(dy, power(-o.Beta)), p.scale(p.mul(x, shared), 2*o.Alpha*o.Beta/float64(o.Size)))
		return p.cast(p.reshape(d, shape...), p.dtype(n.Inputs[0]))
	})
}

// along adds up neighbours along the third of four axes: so many before an element, itself, and so many after it.
func (b *emitter) along(x graph.TensorID, before, after int64) graph.TensorID {
	ones := b.expand(b.number(1, b.dtype(x)), []int64{1, 1, before + 1 + after, 1})
	return b.conv(x, ones, slide{[]int64{1, 1}, []int64{1, 1}, []int64{before, 0}}, b.shape(x)[2:], 1)
}
