package cpu

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	steps := []string{"read twice", "also a result", "dense behind", "groups behind", "multiplied", "another activation", "itself", "by channel", "by channel of each image",
		"of one number", "by column", "by row", "largest of windows", "mean of windows", "twice as large", "gate", "gate of one image", "stride 2", "stride 3", "dilation 2", "window of 5", "window of 7",
		"one row", "one column", "padded beyond", "cut behind", "joined", "joined rows", "part of the channels", "padded channels", "half precision", "weights written later", "bias written later", "factor written later",
		"weights computed", "a line", "a volume", "strides twice", "reduced"}
	layoutMisses = append(layoutMisses, layoutMiss{nearMiss: nearMiss{pass: "tiling", tolerance: 1e-4, build: missTiling, off: slices.Concat(steps, channelSteps)},
		takes: "FusedTiles", leaves: []string{"a volume"}, there: func() bool { return nchwc.Lanes() > 0 }})
}

// missTiling is a convolution of all channels with operators on single channels
// behind it.
func missTiling(d *missDraw) []graph.TensorID {
	if d.is("half precision") {
		d.dtype = graph.F16
	}
	images, c, h, w := d.between(1, 2, "images"), d.channels(40), d.between(5, 9, "height"), d.between(5, 9, "width")
	switch {
	case d.is("one row"):
		h = 1
	case d.is("one column"):
		w = 1
	case d.is("gate of one image"):
		images = 2
	}
	size := []int64{h, w}
	if d.is("a line") {
		size = size[:1]
	} else if d.is("a volume") {
		size = append(size, 3)
	}
	x := d.input(slices.Concat([]int64{images, 3}, size)...)
	dense := func(x graph.TensorID) graph.TensorID { return d.convolved(x, missConv{maps: c, bias: d.yes("bias")}) }
	y := dense(x)
	z := d.depthwise(y, 3)
	ones := slices.Repeat([]int64{1}, len(size))
	var out []graph.TensorID
	var later func()
	fed := func(shape ...int64) graph.TensorID { return d.unary(graph.Tanh, d.input(shape...)) }
	switch {
	case d.is("read twice"):
		out = append(out, d.depthwise(z, 3))
	case d.is("also a result"):
		out = append(out, z)
	case d.is("dense behind"):
		z = dense(z)
	case d.is("groups behind"):
		z = d.convolved(z, missConv{maps: c, group: 2, kernel: 3, begin: 1, end: 1})
	case d.is("multiplied"):
		z = d.convolved(z, missConv{maps: 2 * c, group: c, kernel: 3, begin: 1, end: 1})
	case d.is("another activation"):
		z = d.binary(graph.Add, z, d.unary(graph.Relu, dense(x)))
	case d.is("itself"):
		z = d.binary(graph.Add, z, z)
	case d.is("by channel"):
		z = d.binary(graph.Mul, z, d.param(1, c, 1, 1))
	case d.is("by channel of each image"):
		z = d.binary(graph.Mul, z, fed(images, c, 1, 1))
	case d.is("of one number"):
		z = d.binary(graph.Mul, z, d.param(1))
	case d.is("by column"):
		z = d.binary(graph.Mul, z, fed(1, c, 1, w))
	case d.is("by row"):
		z = d.binary(graph.Mul, z, fed(images, c, h, 1))
	case d.is("largest of windows"):
		z = d.node(&graph.MaxPool{Kernel: []int64{3, 2}, Strides: []int64{2, 1}, Dilations: ones, PadsBegin: ones, PadsEnd: []int64{1, 0}}, z)
	case d.is("mean of windows"):
		z = d.node(&graph.AveragePool{Kernel: []int64{2, 2}, Strides: []int64{2, 2}, Dilations: ones, PadsBegin: ones, PadsEnd: ones, CountIncludePad: d.yes("count")}, z)
	case d.is("twice as large"):
		z = d.node(&graph.Resize{Mode: graph.ResizeNearest, Coordinates: graph.Asymmetric, Rounding: graph.RoundFloor, Sizes: []int64{images, c, 2 * h, 2 * w}, Scales: []float64{1, 1, 2, 2}}, z)
	case d.is("gate"):
		z = d.binary(graph.Mul, z, d.unary(graph.Sigmoid, d.reduce(graph.ReduceMean, true, z, 2, 3)))
	case d.is("gate of one image"):
		g := d.node(&graph.MaxPool{Kernel: []int64{3, 3}, Strides: ones, Dilations: ones, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}, dense(d.input(1, 3, 3, 3)))
		z = d.binary(graph.Mul, z, d.unary(graph.Sigmoid, g))
	case d.is("stride 2"):
		z = d.convolved(z, missConv{maps: c, group: c, kernel: 3, stride: 2, begin: 1, end: d.between(0, 1, "end")})
	case d.is("stride 3"):
		z = d.convolved(z, missConv{maps: c, group: c, kernel: 3, stride: 3, begin: 1, end: 2})
	case d.is("strides twice"):
		z = d.convolved(d.convolved(z, missConv{maps: c, group: c, kernel: 3, stride: 2, begin: 1, end: 1}), missConv{maps: c, group: c, kernel: 5, stride: 2, begin: 2, end: 2})
	case d.is("dilation 2"):
		z = d.convolved(z, missConv{maps: c, group: c, kernel: 3, dilation: 2, begin: 2, end: 2})
	case d.is("window of 5"):
		z = d.depthwise(z, 5)
	case d.is("window of 7"):
		z = d.depthwise(z, 7)
	case d.is("padded beyond"):
		z = d.convolved(z, missConv{maps: c, group: c, kernel: 3, begin: 4, end: 5})
	case d.is("cut behind"):
		z = d.node(&graph.Slice{Start: []int64{0, 0, 1, 0}, Size: []int64{images, c, h - 2, w}, Step: []int64{1, 1, 1, 1}}, z)
	case d.is("joined"):
		z = d.node(&graph.Concat{Axis: 1}, z, d.unary(graph.Relu, dense(x)))
	case d.is("joined rows"):
		z = d.node(&graph.Concat{Axis: 2}, z, d.unary(graph.Relu, dense(x)))
	case d.is("part of the channels"):
		z = d.node(&graph.Slice{Start: []int64{0, 16, 0, 0}, Size: []int64{images, c - 16, h, w}, Step: []int64{1, 1, 1, 1}}, z)
	case d.is("padded channels"):
		z = d.node(&graph.Pad{Before: []int64{0, 1, 0, 0}, After: []int64{0, 0, 1, 0}, Mode: graph.PadConstant}, z)
	case d.is("weights written later"):
		var weights graph.TensorID
		weights, later = d.rewritten(c, 1, 3, 3)
		z = d.node(missConv{group: c, begin: 1, end: 1}.op(2), z, weights)
	case d.is("bias written later"):
		var bias graph.TensorID
		bias, later = d.rewritten(c)
		z = d.node(missConv{group: c, begin: 1, end: 1}.op(2), z, d.weight(c, 1, 3, 3), bias)
	case d.is("factor written later"):
		var factor graph.TensorID
		factor, later = d.rewritten(1)
		z = d.binary(graph.Mul, z, factor)
	case d.is("weights computed"):
		z = d.node(missConv{group: c, begin: 1, end: 1}.op(2), z, d.unary(graph.Tanh, d.weight(c, 1, 3, 3)))
	case d.is("reduced"):
		z = d.reduce(graph.ReduceMean, true, z, 2, 3)
	}
	z = d.unary(graph.HardSwish, z)
	shape := d.b.Type(z).Shape
	if d.yes("more") && !d.is("reduced") {
		z = d.convolved(z, missConv{maps: shape[1], group: shape[1], kernel: 3, begin: 1, end: 1})
	}
	if d.yes("converted") {
		out = append(out, z)
	} else {
		out = append(out, d.convolved(z, missConv{maps: 4}))
	}
	if later != nil {
		later()
	}
	return out
}
