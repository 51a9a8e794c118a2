package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var poolRules = map[string]rule{
	"AveragePool": {back: backAveragePool},
	"LpPool":      {back: backLpPool},
	"MaxPool":     {back: backMaxPool},
	"Resize":      {back: backResize},
}

// backMaxPool gives each gradient to the maximum that comes first in row-major order of its window. The places of the
// maxima are computed again; those that the node may have given count over the whole operand, too.
func backMaxPool(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.MaxPool), n.Inputs[0]
	if p.jointly(n, x) {
		return
	}
	p.give(n, 0, func() graph.TensorID {
		rows := *o
		rows.ColumnMajor = false
		shape, dy := p.shape(x), p.dy(n, 0)
		at := p.ops(&rows, x)[1]
		planes, plane := shape[0]*shape[1], product(shape[2:])
		out := product(p.shape(dy)[2:])
		at = p.op(&graph.Mod{}, at, p.number(float64(plane), graph.I64))
		zeros := p.zeros(graph.TensorType{DType: p.dtype(x), Shape: []int64{planes, plane}})
		d := p.op(&graph.ScatterElements{Axis: 1, Fn: graph.ScatterAdd}, zeros, p.reshape(at, planes, out), p.reshape(dy, planes, out))
		return p.reshape(d, shape...)
	})
}

// spreadWindows gives every element of a window of an operand of the given shape what dy has for the window.
func (p *pull) spreadWindows(dy graph.TensorID, shape, kernel []int64, s slide) graph.TensorID {
	flat := p.reshape(dy, slices.Concat([]int64{shape[0] * shape[1], 1}, p.shape(dy)[2:])...)
	ones := p.expand(p.number(1, p.dtype(dy)), append([]int64{1, 1}, kernel...))
	return p.reshape(p.convTransposed(flat, ones, s, shape[2:], 1), shape...)
}

func wantSpatial(shape []int64) {
	if len(shape) > 5 {
		refuse("its gradient is computed for 1 to 3 spatial axes, not for %d", len(shape)-2)
	}
}

func backAveragePool(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.AveragePool), n.Inputs[0]
	if p.jointly(n, x) {
		return
	}
	shape := p.shape(x)
	wantSpatial(shape)
	p.give(n, 0, func() graph.TensorID {
		dy := p.wide(p.dy(n, 0))
		s := slide{o.Strides, o.Dilations, o.PadsBegin}
		// How many elements count in each window: those of the operand and, if they are to, of its padding.
		inside, from := slices.Clone(shape[2:]), s
		if o.CountIncludePad {
			from.before = make([]int64, len(inside))
			for i := range inside {
				inside[i] += o.PadsBegin[i] + o.PadsEnd[i]
			}
		}
		one := p.number(1, p.dtype(dy))
		ones := p.expand(one, append([]int64{1, 1}, inside...))
		count := p.conv(ones, p.expand(one, append([]int64{1, 1}, o.Kernel...)), from, p.shape(dy)[2:], 1)
		return p.cast(p.spreadWindows(p.div(dy, count), shape, o.Kernel, s), p.dtype(x))
	})
}

// backLpPool: dx = |x|^(P-1)·sign(x)·Σ dy·y^(1-P) over the windows that hold x.
func backLpPool(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.LpPool), n.Inputs[0]
	wantSpatial(p.shape(x))
	p.give(n, 0, func() graph.TensorID {
		wx, y, dy := p.wide(x), p.wide(n.Outputs[0]), p.wide(p.dy(n, 0))
		zero := p.number(0, p.dtype(wx))
		power := func(v graph.TensorID, e float64) graph.TensorID {
			return p.binary(graph.Pow, v, p.number(e, p.dtype(v)))
		}
		each := p.where(p.binary(graph.Equal, y, zero), zero, p.mul(dy, power(y, 1-o.P)))
		all := p.spreadWindows(each, p.shape(x), o.Kernel, slide{o.Strides, o.Dilations, o.PadsBegin})
		slope := p.mul(power(p.unary(graph.Abs, wx), o.P-1), p.unary(graph.Sign, wx))
		slope = p.where(p.binary(graph.Equal, wx, zero), zero, slope)
		return p.cast(p.mul(all, slope), p.dtype(x))
	})
}

// backResize goes back axis by axis: the same resizing of the identity matrix says what each element of an axis gives to
// each of the result.
func backResize(p *pull, n *graph.Node) {
	o, x := n.Op.(*graph.Resize), n.Inputs[0]
	p.give(n, 0, func() graph.TensorID {
		d := p.wide(p.dy(n, 0))
		for i, size := range p.shape(x) {
			if size == o.Sizes[i] && o.Scales[i] == 1 && o.Coordinates != graph.CropAndResize {
				continue
			}
			along := *o
			along.Extrapolation = 0
			along.Sizes, along.Scales = []int64{size, o.Sizes[i]}, []float64{1, o.Scales[i]}
			if o.Coordinates == graph.CropAndResize {
				along.RoiStart, along.RoiEnd = []float64{0, o.RoiStart[i]}, []float64{1, o.RoiEnd[i]}
			}
			from := p.op(&along, p.eye(size, p.dtype(d))) // [size, Sizes[i]]
			shape := slices.Clone(p.shape(d))
			pre, post := product(shape[:i]), product(shape[i+1:])
			d = p.matmul(from, p.reshape(d, pre, shape[i], post))
			shape[i] = size
			d = p.reshape(d, shape...)
		}
		return p.cast(d, p.dtype(x))
	})
}
