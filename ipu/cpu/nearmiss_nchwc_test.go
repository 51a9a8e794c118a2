package cpu

import (
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	convolutions := []string{"groups of two", "multiplied", "one position", "a line", "a volume", "stride 3", "dilation 2", "padded beyond", "half precision", "weights written later", "bias written later", "one map"}
	between := []string{"padded with negative zero", "padded with a fed number", "padded edges", "padded and read twice", "padded and a result", "padding of weights", "padded images", "sum read twice", "sum of floats from without",
		"sum of other rank", "sum of two convolutions", "bounds before the sum", "fed bounds", "bounds that are no numbers", "crossed bounds", "compared", "cast", "every second channel", "every second row",
		"part of two blocks", "joined rows", "joined whole blocks", "joined after a part", "joined with a constant", "places of the largest", "largest padded", "whole planes", "whole planes rounded up", "mean without its axes",
		"product of planes", "sum over channels", "resized channels", "resized by halves", "factor of the rows", "factor of as many columns", "factor of another image", "factor read as planes", "also a result",
		"also read as planes", "also transposed", "programme"}
	layoutMisses = append(layoutMisses, layoutMiss{nearMiss: nearMiss{pass: "nchwc", tolerance: 1e-4, build: missNCHWc, off: slices.Concat(convolutions, between, channelSteps)},
		takes: "NCHWcConv", leaves: []string{"one position", "a volume"}, there: func() bool { return nchwc.Lanes() > 0 }})
}

// missNCHWc is two convolutions of all channels with something between that
// NCHWc may or may not be kept through.
func missNCHWc(d *missDraw) []graph.TensorID {
	if d.is("half precision") {
		d.dtype = graph.F16
	}
	images, c, size := d.between(1, 2, "images"), d.channels(20), []int64{5, 6}
	switch {
	case d.is("a line"):
		size = []int64{7}
	case d.is("a volume"):
		size = []int64{4, 3, 5}
	case d.is("one position"):
		size = []int64{1, 1}
	case d.is("factor of as many columns"):
		size[1] = c
	case d.is("factor of another image"), d.is("padded images"):
		images = 2
	}
	x := d.input(slices.Concat([]int64{images, 3}, size)...)
	usual := missConv{maps: c, kernel: 3, begin: 1, end: 1, bias: true}
	y := d.unary(graph.Relu, d.convolved(x, usual))
	last := missConv{maps: 4, kernel: 3, begin: 1, end: 1}
	var later func()
	end := func(z graph.TensorID, more ...graph.TensorID) []graph.TensorID {
		out := append(more, d.convolved(z, last))
		if later != nil {
			later()
		}
		return out
	}
	op := usual.op(2)
	switch {
	case d.is("groups of two"):
		y = d.convolved(y, missConv{maps: c, group: 2, kernel: 3, begin: 1, end: 1})
	case d.is("multiplied"):
		y = d.convolved(y, missConv{maps: 2 * c, group: c, kernel: 3, begin: 1, end: 1})
	case d.is("one position"):
		last = missConv{maps: 4}
	case d.is("stride 3"):
		last.stride = 3
	case d.is("dilation 2"):
		last.dilation, last.begin, last.end = 2, 2, 1
	case d.is("padded beyond"):
		last.begin, last.end = 4, 5
	case d.is("one map"):
		last.maps = 1
	case d.is("weights written later"):
		var w graph.TensorID
		w, later = d.rewritten(c, c, 3, 3)
		y = d.node(op, y, w)
	case d.is("bias written later"):
		var b graph.TensorID
		b, later = d.rewritten(c)
		z := d.node(op, y, d.weight(c, c, 3, 3), b)
		y = d.unary(graph.Relu, d.binary(graph.Add, z, d.unary(graph.Tanh, y)))
	case d.is("a line"), d.is("a volume"), d.is("half precision"), d.off == "":
	default:
		z, more := d.betweenBlocks(x, y)
		return end(z, more...)
	}
	return end(y)
}

// betweenBlocks adds what stands between two convolutions of images x to y, by the
// step that the graph is off.
func (d *missDraw) betweenBlocks(x, y graph.TensorID) (z graph.TensorID, more []graph.TensorID) {
	shape := d.b.Type(y).Shape
	images, c, h, w := shape[0], shape[1], shape[2], shape[3]
	ones, none := []int64{1, 1}, []int64{0, 0}
	usual := missConv{maps: c, kernel: 3, begin: 1, end: 1}
	pad := func(mode graph.PadMode, number ...graph.TensorID) graph.TensorID {
		return d.node(&graph.Pad{Before: []int64{0, 0, 1, 0}, After: []int64{0, 0, 0, 2}, Mode: mode}, append([]graph.TensorID{y}, number...)...)
	}
	slice := func(start, size, step []int64) graph.TensorID {
		return d.node(&graph.Slice{Start: start, Size: size, Step: step}, y)
	}
	sum := func(other graph.TensorID) graph.TensorID { return d.binary(graph.Add, d.convolved(y, usual), other) }
	number := func(v float64) graph.TensorID { return d.number(float32(v)) }
	switch {
	case d.is("padded with negative zero"):
		return pad(graph.PadConstant, number(math.Copysign(0, -1))), nil
	case d.is("padded with a fed number"):
		return pad(graph.PadConstant, d.reshape(d.input(1))), nil
	case d.is("padded edges"):
		return pad(graph.PadEdge), nil
	case d.is("padded and read twice"):
		p := pad(graph.PadConstant)
		return d.unary(graph.Tanh, p), []graph.TensorID{d.convolved(p, usual)}
	case d.is("padded and a result"):
		p := pad(graph.PadConstant)
		return p, []graph.TensorID{p}
	case d.is("padding of weights"):
		p := d.node(&graph.Pad{Before: []int64{0, 0, 1, 1}, After: []int64{0, 0, 1, 1}, Mode: graph.PadConstant}, d.unary(graph.Tanh, d.input(c, c, 1, 1)))
		return d.node(usual.op(2), y, p), nil
	case d.is("padded images"):
		return d.node(&graph.Pad{Before: []int64{1, 0, 0, 0}, After: []int64{0, 0, 1, 0}, Mode: graph.PadConstant}, y), nil
	case d.is("sum read twice"):
		s := sum(d.unary(graph.Tanh, y))
		return d.unary(graph.Relu, s), []graph.TensorID{d.unary(graph.Neg, s)}
	case d.is("sum of floats from without"):
		return d.unary(graph.Relu, sum(d.input(shape...))), nil
	case d.is("sum of other rank"):
		return d.unary(graph.Relu, sum(d.unary(graph.Tanh, d.input(c, h, w)))), nil
	case d.is("sum of two convolutions"):
		return d.unary(graph.Relu, sum(d.convolved(y, usual))), nil
	case d.is("bounds before the sum"):
		return d.binary(graph.Add, d.unary(graph.Relu, d.convolved(y, usual)), d.unary(graph.Tanh, y)), nil
	case d.is("fed bounds"):
		return d.node(&graph.Clip{}, sum(y), d.reshape(d.fed([]float32{-0.25}, 1)), d.reshape(d.fed([]float32{0.5}, 1))), nil
	case d.is("bounds that are no numbers"):
		return d.node(&graph.Clip{}, sum(y), number(math.NaN()), d.number(0.5)), nil
	case d.is("crossed bounds"):
		return d.node(&graph.Clip{}, sum(d.unary(graph.Tanh, y)), d.number(0.5), d.number(-0.5)), nil
	case d.is("compared"):
		return d.node(&graph.Cast{To: d.dtype}, d.binary(graph.Equal, y, d.unary(graph.Abs, y))), nil
	case d.is("cast"):
		return d.node(&graph.Cast{To: d.dtype}, d.node(&graph.Cast{To: graph.I32}, y)), nil
	case d.is("every second channel"):
		return slice([]int64{0, 0, 0, 0}, []int64{images, c / 2, h, w}, []int64{1, 2, 1, 1}), nil
	case d.is("every second row"):
		return slice([]int64{0, 0, 1, w - 1}, []int64{images, c, h / 2, w}, []int64{1, 1, 2, -1}), nil
	case d.is("part of two blocks"):
		return slice([]int64{0, c - 6, 0, 1}, []int64{images, 5, h, w - 1}, ones4()), nil
	case d.is("joined rows"):
		return d.node(&graph.Concat{Axis: 2}, y, d.unary(graph.Tanh, d.convolved(x, usual))), nil
	case d.is("joined whole blocks"):
		return d.node(&graph.Concat{Axis: 1}, d.convolved(x, missConv{maps: 32, kernel: 3, begin: 1, end: 1}), y), nil
	case d.is("joined after a part"):
		return d.node(&graph.Concat{Axis: 1}, y, d.convolved(x, missConv{maps: 32, kernel: 3, begin: 1, end: 1})), nil
	case d.is("joined with a constant"):
		return d.node(&graph.Concat{Axis: 1}, d.constant(d.some(images, 16, h, w), images, 16, h, w), y), nil
	case d.is("places of the largest"):
		ids, err := d.b.Node(&graph.MaxPool{Kernel: []int64{2, 2}, Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none}, "largest", y)
		require.NoError(d, err)
		return ids[0], []graph.TensorID{ids[1]}
	case d.is("largest padded"):
		return d.node(&graph.MaxPool{Kernel: []int64{3, 2}, Strides: []int64{2, 3}, Dilations: []int64{1, 2}, PadsBegin: []int64{2, 1}, PadsEnd: []int64{2, 1}, Ceil: true}, y), nil
	case d.is("whole planes"), d.is("whole planes rounded up"):
		pool := &graph.AveragePool{Kernel: []int64{h, w}, Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none, Ceil: d.is("whole planes rounded up")}
		return d.binary(graph.Mul, y, d.node(pool, y)), nil
	case d.is("mean without its axes"):
		m := d.reduce(graph.ReduceMean, false, y, 2, 3)
		return d.binary(graph.Mul, y, d.reshape(m, images, c, 1, 1)), nil
	case d.is("product of planes"):
		return d.binary(graph.Add, y, d.reduce(graph.ReduceProd, true, d.unary(graph.Tanh, y), 2, 3)), nil
	case d.is("sum over channels"):
		return d.binary(graph.Mul, y, d.reduce(graph.ReduceSum, true, y, 1)), nil
	case d.is("resized channels"):
		return d.node(&graph.Resize{Mode: graph.ResizeNearest, Coordinates: graph.Asymmetric, Rounding: graph.RoundFloor, Sizes: []int64{images, 2 * c, h, w}, Scales: []float64{1, 2, 1, 1}}, y), nil
	case d.is("resized by halves"):
		return d.node(&graph.Resize{Mode: graph.ResizeLinear, Coordinates: graph.HalfPixel, Sizes: []int64{images, c, 7, 9}, Scales: []float64{1, 1, 1.5, 1.5}}, y), nil
	case d.is("factor of the rows"):
		return d.binary(graph.Mul, y, d.unary(graph.Tanh, d.input(1, c, h, 1))), nil
	case d.is("factor of as many columns"):
		return d.binary(graph.Mul, y, d.unary(graph.Tanh, d.input(c))), nil
	case d.is("factor of another image"):
		f := d.node(&graph.MaxPool{Kernel: []int64{3, 3}, Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none}, d.convolved(d.input(1, 3, 3, 3), usual))
		return d.binary(graph.Mul, y, f), nil
	case d.is("factor read as planes"):
		f := d.reduce(graph.ReduceMax, true, y, 2, 3)
		return d.binary(graph.Mul, y, d.unary(graph.Sigmoid, f)), []graph.TensorID{d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, f)}
	case d.is("also a result"):
		return d.unary(graph.Tanh, y), []graph.TensorID{y}
	case d.is("also read as planes"):
		return d.unary(graph.Tanh, y), []graph.TensorID{d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, y)}
	case d.is("also transposed"):
		return d.unary(graph.Tanh, y), []graph.TensorID{d.transpose(y, 0, 2, 3, 1)}
	}
	// One instruction after the other, the last of which reads the first one's operand.
	p := &graph.Pointwise{Fns: []string{"sigmoid", "mul", "abs"}, Args: []int64{0, 0, 1, 2}, Alpha: make([]float64, 3), Beta: make([]float64, 3)}
	if d.off == "" || slices.Contains(channelSteps, d.off) {
		return d.unary(graph.Tanh, y), nil
	}
	require.True(d, d.is("programme"), "step %q draws nothing", d.off)
	return d.node(p, y), nil
}

func ones4() []int64 { return []int64{1, 1, 1, 1} }
