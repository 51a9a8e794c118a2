package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var movementRules = map[string]rule{
	"Concat":    {back: backConcat},
	"Expand":    {back: backExpand},
	"Pad":       {back: backPad},
	"Reshape":   {back: backReshape},
	"Slice":     {back: backSlice},
	"Transpose": {back: backTranspose},
}

func backReshape(p *pull, n *graph.Node) {
	p.give(n, 0, func() graph.TensorID { return p.reshape(p.dy(n, 0), p.shape(n.Inputs[0])...) })
}

func backExpand(p *pull, n *graph.Node) {
	p.give(n, 0, func() graph.TensorID { return p.sumTo(p.dy(n, 0), p.shape(n.Inputs[0])) })
}

func backTranspose(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Transpose)
	back := make([]int64, len(o.Perm))
	for i, a := range o.Perm {
		back[a] = int64(i)
	}
	p.give(n, 0, func() graph.TensorID { return p.transpose(p.dy(n, 0), back...) })
}

func backConcat(p *pull, n *graph.Node) {
	axis, at := n.Op.(*graph.Concat).Axis, int64(0)
	for i, t := range n.Inputs {
		size := p.shape(t)
		start := make([]int64, len(size))
		start[axis] = at
		p.give(n, i, func() graph.TensorID {
			return p.op(&graph.Slice{Start: start, Size: size, Step: repeated(len(size), 1)}, p.dy(n, 0))
		})
		at += size[axis]
	}
}

// backSlice puts the gradient where the slice was taken, among zeros.
func backSlice(p *pull, n *graph.Node) {
	o := n.Op.(*graph.Slice)
	p.give(n, 0, func() graph.TensorID {
		shape, d := p.shape(n.Inputs[0]), p.dy(n, 0)
		before, after := make([]int64, len(shape)), make([]int64, len(shape))
		for i, dim := range shape {
			start, size, step := o.Start[i], o.Size[i], o.Step[i]
			if size <= 1 {
				step = 1
			}
			if step < 0 {
				d = p.backwards(d, i)
				start, step = start+(size-1)*step, -step
			}
			if step > 1 {
				d = p.spaced(d, i, step)
			}
			before[i], after[i] = start, dim-start-size*step // the last step may reach beyond the end: it is cut off
		}
		return p.pad(d, before, after)
	})
}

// pad adds zeros; negative numbers crop.
func (b *emitter) pad(x graph.TensorID, before, after []int64) graph.TensorID {
	if !slices.ContainsFunc(slices.Concat(before, after), func(v int64) bool { return v != 0 }) {
		return x
	}
	return b.op(&graph.Pad{Before: before, After: after, Mode: graph.PadConstant}, x)
}

// backwards reverses the order of elements along an axis.
func (b *emitter) backwards(x graph.TensorID, axis int) graph.TensorID {
	size := b.shape(x)
	start, step := make([]int64, len(size)), repeated(len(size), 1)
	start[axis], step[axis] = max(size[axis]-1, 0), -1
	return b.op(&graph.Slice{Start: start, Size: size, Step: step}, x)
}

// spaced puts step-1 zeros behind every element along an axis.
func (b *emitter) spaced(x graph.TensorID, axis int, step int64) graph.TensorID {
	shape := b.shape(x)
	out := slices.Clone(shape)
	out[axis] *= step
	flat := b.reshape(x, product(shape[:axis+1]), 1, product(shape[axis+1:]))
	return b.reshape(b.pad(flat, []int64{0, 0, 0}, []int64{0, step - 1, 0}), out...)
}

// backPad crops what was added, and crops that become padding with zeros. In the other modes elements are taken
// from where the padding says: the gradient is added up there in row-major order.
func backPad(p *pull, n *graph.Node) {
	o, x, dy := n.Op.(*graph.Pad), n.Inputs[0], p.dy(n, 0)
	shape := p.shape(x)
	if o.Mode != graph.PadConstant {
		p.give(n, 0, func() graph.TensorID {
			all := product(shape)
			places := p.reshape(p.iota(all), shape...)
			from := p.op(&graph.Pad{Before: o.Before, After: o.After, Mode: o.Mode}, places)
			count := product(p.shape(from))
			zeros := p.zeros(graph.TensorType{DType: p.dtype(x), Shape: []int64{all}})
			d := p.op(&graph.ScatterElements{Fn: graph.ScatterAdd}, zeros, p.reshape(from, count), p.reshape(dy, count))
			return p.reshape(d, shape...)
		})
		return
	}
	p.give(n, 0, func() graph.TensorID {
		before, after := make([]int64, len(shape)), make([]int64, len(shape))
		for i := range shape {
			before[i], after[i] = -o.Before[i], -o.After[i]
		}
		return p.pad(dy, before, after)
	})
	p.give(n, 1, func() graph.TensorID {
		value := n.Inputs[1]
		added := p.op(&graph.Pad{Before: o.Before, After: o.After, Mode: o.Mode}, p.zeros(p.typ(x)), p.number(1, p.dtype(x)))
		d := p.sum(p.mul(added, dy), axesFrom(0, len(shape))...)
		return p.reshape(d, p.shape(value)...)
	})
}
