package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var convRules = map[string]rule{
	"Col2Im":             {back: backCol2Im},
	"Conv":               {back: backConv},
	"ConvTranspose":      {back: backConvTranspose},
	"ConvWeightGradient": {back: backConvWeightGradient},
	"DeformConv":         {back: backDeformConv},
}

// slide says how a kernel slides over the spatial axes of an operand x of [N,C,…] to give y.
type slide struct{ strides, dilations, before []int64 }

// conv is the convolution of x with w, cut or continued to size on the spatial axes.
func (b *emitter) conv(x, w graph.TensorID, s slide, size []int64, group int64) graph.TensorID {
	xs, kernel := b.shape(x)[2:], b.shape(w)[2:]
	n := len(size)
	o := &graph.Conv{Strides: s.strides, Dilations: s.dilations, PadsBegin: make([]int64, n), PadsEnd: make([]int64, n), Group: group}
	crop, cropEnd := make([]int64, n+2), make([]int64, n+2)
	for i := range size {
		// What the windows span beyond x on either side; less than nothing is cropped.
		after := (size[i]-1)*s.strides[i] + (kernel[i]-1)*s.dilations[i] + 1 - s.before[i] - xs[i]
		o.PadsBegin[i], o.PadsEnd[i] = max(s.before[i], 0), max(after, 0)
		crop[i+2], cropEnd[i+2] = min(s.before[i], 0), min(after, 0)
	}
	return b.op(o, b.pad(x, crop, cropEnd), w)
}

// convTransposed is the adjoint of conv: what y of [N,M,…] gives to elements of an operand of that size.
func (b *emitter) convTransposed(y, w graph.TensorID, s slide, size []int64, group int64) graph.TensorID {
	return b.op(&graph.ConvTranspose{Strides: s.strides, Dilations: s.dilations, PadsBegin: s.before, Output: size, Group: group}, y, w)
}

// convWeights is the gradient of the weights [M,C/group,k…] of a convolution of x [N,C,…] to y [N,M,…], of which dy is the
// gradient, and that of the bias.
func (b *emitter) convWeights(x, dy graph.TensorID, s slide, kernel []int64, group int64) []graph.TensorID {
	return b.ops(&graph.ConvWeightGradient{Kernel: kernel, Strides: s.strides, Dilations: s.dilations, PadsBegin: s.before, Group: group}, x, dy)
}

// perChannel adds up all axes but the second.
func (b *emitter) perChannel(x graph.TensorID) graph.TensorID {
	axes := append([]int64{0}, axesFrom(2, len(b.shape(x)))...)
	return b.reshape(b.sum(x, axes...), b.shape(x)[1])
}

func backConv(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Conv)
	if o.Bounded {
		refuse(byPass)
	}
	x, w, dy := n.Inputs[0], n.Inputs[1], p.dy(n, 0)
	s := slide{o.Strides, o.Dilations, o.PadsBegin}
	p.give(n, 0, func() graph.TensorID { return p.convTransposed(dy, w, s, p.shape(x)[2:], o.Group) })
	var both []graph.TensorID
	p.give(n, 1, func() graph.TensorID {
		both = p.convWeights(x, dy, s, p.shape(w)[2:], o.Group)
		return both[0]
	})
	p.give(n, 2, func() graph.TensorID {
		if both != nil {
			return both[1]
		}
		return p.perChannel(dy)
	})
}

// backConvWeightGradient is linear in both operands: the gradient of the weights takes their place in the convolution.
func backConvWeightGradient(p *pull, n *graph.Node) {
	o := n.Op.(*graph.ConvWeightGradient)
	x, dy, w, bias := n.Inputs[0], n.Inputs[1], p.dy(n, 0), p.dy(n, 1)
	s := slide{o.Strides, o.Dilations, o.PadsBegin}
	if w != graph.None {
		p.give(n, 0, func() graph.TensorID { return p.convTransposed(dy, w, s, p.shape(x)[2:], o.Group) })
		p.give(n, 1, func() graph.TensorID { return p.conv(x, w, s, p.shape(dy)[2:], o.Group) })
	}
	if bias != graph.None {
		p.give(n, 1, func() graph.TensorID {
			shape := p.shape(dy)
			each := slices.Repeat([]int64{1}, len(shape))
			each[1] = shape[1]
			return p.expand(p.reshape(bias, each...), shape)
		})
	}
}

func backConvTranspose(p *pull, n *graph.Node) {
	o := n.Op.(*graph.ConvTranspose)
	x, w, dy := n.Inputs[0], n.Inputs[1], p.dy(n, 0)
	s := slide{o.Strides, o.Dilations, o.PadsBegin}
	p.give(n, 0, func() graph.TensorID { return p.conv(dy, w, s, p.shape(x)[2:], o.Group) })
	p.give(n, 1, func() graph.TensorID { return p.convWeights(dy, x, s, p.shape(w)[2:], o.Group)[0] })
	p.give(n, 2, func() graph.TensorID { return p.perChannel(dy) })
}

// backDeformConv differentiates the definition: a product of the weights with what each window samples.
func backDeformConv(p *pull, n *graph.Node) {
	o := n.Op.(*graph.DeformConv)
	p.through(n, func() []graph.TensorID { return []graph.TensorID{p.deformed(o, n, p.shape(n.Outputs[0]))} })
}

func (p *pull) deformed(o *graph.DeformConv, n *graph.Node, out []int64) graph.TensorID {
	x, w, offset := p.wide(n.Inputs[0]), p.wide(n.Inputs[1]), p.wide(n.Inputs[2])
	xs, ws, t := p.shape(x), p.shape(w), p.dtype(x)
	batch, window, points := xs[0], ws[2]*ws[3], out[2]*out[3]
	groups := batch * o.OffsetGroup // in which samples lie at the same places
	channels := xs[1] / o.OffsetGroup
	each := p.reshape(offset, groups, window, 2, points)
	all := make([]taps, 2)
	for a := range all {
		// Where kernel element k samples for output position i, before the offset.
		count := func(n int64) graph.TensorID { return p.cast(p.iota(n), t) }
		k := p.scale(count(ws[2+a]), float64(o.Dilations[a]))
		i := p.plus(p.scale(count(out[2+a]), float64(o.Strides[a])), -float64(o.PadsBegin[a]))
		kernel, position := []int64{1, 1, 1, 1}, []int64{1, 1, 1, 1}
		kernel[a], position[2+a] = ws[2+a], out[2+a]
		at := p.expand(p.add(p.reshape(k, kernel...), p.reshape(i, position...)), []int64{ws[2], ws[3], out[2], out[3]})
		moved := p.op(&graph.Slice{Start: []int64{0, 0, int64(a), 0}, Size: []int64{groups, window, 1, points}, Step: []int64{1, 1, 1, 1}}, each)
		at = p.reshape(p.add(p.reshape(moved, groups, window, points), p.reshape(at, 1, window, points)), groups, window*points)
		all[a] = p.tapsAt(&graph.GridSample{Mode: graph.ResizeLinear, Padding: graph.SampleZeros}, at, xs[2+a], 0, 0)
		near := p.binary(graph.Greater, at, p.number(-1, t)) // what is not sampled has no gradient: at -1 itself, too
		for i, w := range all[a].weight {
			all[a].weight[i] = p.only(near, w)
		}
	}
	elements := p.transpose(p.reshape(x, groups, channels, xs[2]*xs[3]), 0, 2, 1)
	columns := p.interpolate(elements, all, xs[2:]) // [groups, window·points, channels]
	if mask := in(n, 4); mask != graph.None {
		columns = p.mul(columns, p.reshape(p.wide(mask), groups, window*points, 1))
	}
	columns = p.transpose(p.reshape(columns, groups, window, points, channels), 0, 3, 1, 2)
	columns = p.reshape(columns, batch, o.Group, xs[1]/o.Group*window, points)
	y := p.reshape(p.matmul(p.reshape(w, o.Group, ws[0]/o.Group, ws[1]*window), columns), out...)
	if b := in(n, 3); b != graph.None {
		y = p.add(y, p.reshape(p.wide(b), ws[0], 1, 1))
	}
	return p.cast(y, p.dtype(n.Inputs[0]))
}

// backCol2Im takes blocks out of an image again: a convolution with a kernel for every element of a block.
func backCol2Im(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.Col2Im), n.Inputs[0]
	if len(o.Image) > 3 {
		refuse("its gradient is computed for 1 to 3 spatial axes, not for %d", len(o.Image))
	}
	p.give(n, 0, func() graph.TensorID {
		shape := p.shape(x)
		block := product(o.Block)
		images := p.reshape(p.wide(p.dy(n, 0)), append([]int64{shape[0] * (shape[1] / block), 1}, o.Image...)...)
		each := p.reshape(p.eye(block, p.dtype(images)), append([]int64{block, 1}, o.Block...)...)
		c := &graph.Conv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: 1}
		return p.cast(p.reshape(p.op(c, images, each), shape...), p.dtype(x))
	})
}
