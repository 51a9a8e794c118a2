package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var sampleRules = map[string]rule{
	"DFT":        {back: backDFT},
	"GridSample": {back: backGridSample},
}

// backGridSample differentiates the definition: where the elements that make a sample lie on each axis, and their weights.
func backGridSample(p *pull, n *graph.Node) {
	o := n.Op.(*graph.GridSample)
	p.through(n, func() []graph.TensorID { return []graph.TensorID{p.sample(o, n.Inputs[0], n.Inputs[1])} })
}

// taps are the elements of an axis that make samples: places (I64) and weights, each [batch, points].
type taps struct{ at, weight []graph.TensorID }

func (p *pull) sample(o *graph.GridSample, x, grid graph.TensorID) graph.TensorID {
	xs, gs := p.shape(x), p.shape(grid)
	axes := len(xs) - 2
	batch, channels, plane, points := xs[0], xs[1], product(xs[2:]), product(gs[1:len(gs)-1])
	places := p.reshape(p.cast(p.wide(grid), p.dtype(p.wide(x))), batch, points, int64(axes))
	all := make([]taps, axes)
	for a := range axes {
		g := p.op(&graph.Slice{Start: []int64{0, 0, int64(axes - 1 - a)}, Size: []int64{batch, points, 1}, Step: []int64{1, 1, 1}}, places)
		all[a] = p.locate(o, p.reshape(g, batch, points), xs[2+a])
	}
	elements := p.transpose(p.reshape(p.wide(x), batch, channels, plane), 0, 2, 1)
	y := p.reshape(p.transpose(p.interpolate(elements, all, xs[2:]), 0, 2, 1), slices.Concat([]int64{batch, channels}, gs[1:len(gs)-1])...)
	return p.cast(y, p.dtype(x))
}

// interpolate adds up elements [batch, plane, channels] of planes of size, weighted, for points of which taps of each axis are
// given: [batch, points, channels].
func (p *pull) interpolate(elements graph.TensorID, all []taps, size []int64) graph.TensorID {
	batch, points := p.shape(all[0].at[0])[0], p.shape(all[0].at[0])[1]
	total := graph.None
	var visit func(a int, at, weight graph.TensorID)
	visit = func(a int, at, weight graph.TensorID) {
		if a == len(all) {
			y := p.op(&graph.GatherND{BatchDims: 1}, elements, p.reshape(at, batch, points, 1)) // [batch, points, channels]
			y = p.mul(y, p.reshape(weight, batch, points, 1))
			if total != graph.None {
				y = p.add(total, y)
			}
			total = y
			return
		}
		for i, t := range all[a].at {
			if step := product(size[a+1:]); step != 1 {
				t = p.mul(t, p.number(float64(step), graph.I64))
			}
			w := all[a].weight[i]
			if a > 0 {
				t, w = p.add(at, t), p.mul(weight, w)
			}
			visit(a+1, t, w)
		}
	}
	visit(0, graph.None, graph.None)
	return total
}

// locate finds the elements of an axis of size that make the samples at coordinates g.
func (p *pull) locate(o *graph.GridSample, g graph.TensorID, size int64) taps {
	n := float64(size)
	low, high := -0.5, n-0.5
	x := p.scale(p.plus(g, 1), n/2)
	if o.AlignCorners {
		low, high = 0, n-1
		x = p.scale(p.plus(g, 1), (n-1)/2)
	} else {
		x = p.plus(x, -0.5)
	}
	if o.Mode == graph.ResizeNearest {
		x = p.unary(graph.Round, x)
	}
	return p.tapsAt(o, x, size, low, high)
}

// tapsAt finds the elements of an axis of size that make the samples at places x, by the mode and the padding of o; places are
// mirrored at low and high.
func (p *pull) tapsAt(o *graph.GridSample, x graph.TensorID, size int64, low, high float64) taps {
	t, n := p.dtype(x), float64(size)
	limit := func(x graph.TensorID, low, high float64) graph.TensorID {
		return p.op(&graph.Clip{}, x, p.number(low, t), p.number(high, t))
	}
	switch {
	case o.Padding == graph.SampleReflection:
		x = p.mirror(x, low, high)
	case o.Padding == graph.SampleBorder && o.Mode != graph.ResizeCubic:
		x = limit(x, 0, n-1)
	default: // what is far away is as good as a little outside
		x = limit(x, -8, n+8)
	}
	base := p.unary(graph.Floor, x)
	f := p.sub(x, base)
	one := p.number(1, t)
	var weights []graph.TensorID
	switch o.Mode {
	case graph.ResizeNearest:
		weights = []graph.TensorID{p.expand(one, p.shape(x))}
	case graph.ResizeLinear:
		weights = []graph.TensorID{p.sub(one, f), f}
	default:
		base = p.plus(base, -1)
		weights = []graph.TensorID{p.cubicFar(p.plus(f, 1)), p.cubicNear(f), p.cubicNear(p.sub(one, f)), p.cubicFar(p.sub(p.number(2, t), f))}
	}
	var out taps
	for i, w := range weights {
		at := p.plus(base, float64(i))
		switch o.Padding {
		case graph.SampleZeros:
			inside := p.binary(graph.And, p.binary(graph.GreaterEqual, at, p.number(0, t)), p.binary(graph.LessEqual, at, p.number(n-1, t)))
			w = p.only(inside, w)
		case graph.SampleReflection:
			at = p.mirror(at, low, high)
		}
		out.at = append(out.at, p.cast(limit(at, 0, n-1), graph.I64))
		out.weight = append(out.weight, w)
	}
	return out
}

// cubicA is the coefficient of cubic sampling, as in PyTorch.
const cubicA = -0.75

// cubicNear is the weight of an element at a distance of up to 1.
func (p *pull) cubicNear(d graph.TensorID) graph.TensorID {
	inner := p.plus(p.scale(d, cubicA+2), -(cubicA + 3))
	return p.plus(p.mul(p.square(d), inner), 1)
}

// cubicFar is the weight of an element at a distance of 1 to 2.
func (p *pull) cubicFar(d graph.TensorID) graph.TensorID {
	inner := p.plus(p.mul(p.plus(d, -5), d), 8)
	return p.scale(p.plus(p.mul(inner, d), -4), cubicA)
}

// mirror mirrors x at low and high until it lies between them.
func (p *pull) mirror(x graph.TensorID, low, high float64) graph.TensorID {
	t, width := p.dtype(x), high-low
	if width <= 0 {
		return p.expand(p.number(low, t), p.shape(x))
	}
	d := p.op(&graph.Mod{}, p.unary(graph.Abs, p.plus(x, -low)), p.number(2*width, t))
	d = p.where(p.binary(graph.Greater, d, p.number(width, t)), p.sub(p.number(2*width, t), d), d)
	return p.plus(d, low)
}

// backDFT applies the adjoint of the transform: for one forward the inverse one times the length, and the other way
// round.
func backDFT(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.DFT), n.Inputs[0]
	p.give(n, 0, func() graph.TensorID {
		shape := p.shape(x)
		rank, last := len(shape), len(shape)-1
		length := float64(o.Length)
		d := p.dy(n, 0)
		// resize cuts or continues an axis with zeros.
		resize := func(d graph.TensorID, axis int, size int64) graph.TensorID {
			after := make([]int64, rank)
			after[axis] = size - p.shape(d)[axis]
			return p.pad(d, make([]int64, rank), after)
		}
		switch {
		case !o.Inverse: // of real numbers too, or with the first frequencies alone: the others have no gradient
			d = resize(d, int(o.Axis), o.Length)
			d = p.scale(p.op(&graph.DFT{Axis: o.Axis, Length: o.Length, Inverse: true}, d), length)
		case !o.OneSided:
			d = p.scale(p.op(&graph.DFT{Axis: o.Axis, Length: o.Length}, d), 1/length)
		default: // frequencies between the ends count twice: with the conjugate ones that x leaves out
			d = p.scale(p.op(&graph.DFT{Axis: o.Axis, Length: o.Length, OneSided: true}, d), 1/length)
			twice := repeated(rank, 1)
			twice[o.Axis] = (o.Length - 1) / 2
			middle := p.expand(p.number(1, p.dtype(d)), twice)
			before, after := make([]int64, rank), make([]int64, rank)
			before[o.Axis], after[o.Axis] = 1, o.Length/2-(o.Length-1)/2
			d = p.mul(d, p.plus(p.pad(middle, before, after), 1))
		}
		return resize(resize(d, int(o.Axis), shape[o.Axis]), last, shape[last])
	})
}
