package cpu

import (
	"math"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	steps := []string{"weights off the middle", "zeros of weights by channel", "scales of weights by channel", "16 bits", "another type", "also a result", "also read as planes", "depthwise", "groups of two",
		"multiplied", "stride 3", "dilation 2", "padded beyond", "a line", "one position", "window of 5"}
	between := []string{"scales by channel", "scales of blocks", "fed scale", "fed zero", "tiny scale", "huge scale", "negative zero scale", "negative scale", "subnormal scale", "last fraction",
		"scale of half precision", "scale of the result by channel", "tiny scale of the result", "negative zero scale of the result", "last fraction of the result",
		"sum of a column", "gate", "gate of one image", "gate of lower rank", "gate of floats", "difference", "larger of two", "three addends", "sum read twice", "fed bounds", "bounded twice",
		"bounds in half precision", "leaky", "crossed bounds", "places of the largest", "largest to another scale", "largest padded", "mean of windows", "joined rows", "joined after 3 channels", "joined by other scales",
		"joined floats", "function of two", "function by channel", "function of higher rank", "function along channels", "part of the channels", "padded", "transposed", "the same twice", "another scale", "reshaped"}
	layoutMisses = append(layoutMisses, layoutMiss{nearMiss: nearMiss{pass: "nhwc", tolerance: 0.1001, integers: true, build: missNHWC, off: slices.Concat(steps, between, channelSteps)},
		takes: "NHWCConv", leaves: []string{"1 channel"}, there: nhwc.Supported})
}

// missByte is an activation of bytes with what makes floats of it.
type missByte struct{ x, scale, zero graph.TensorID }

func (d *missDraw) floats(m missByte) graph.TensorID { return d.back(m.x, m.scale, m.zero, 0) }

// made quantises floats by a scale.
func (d *missDraw) made(y graph.TensorID, to graph.DType, scale float32) missByte {
	m := missByte{scale: d.number(scale), zero: d.bytes(to)}
	m.x = d.node(&graph.Quantize{To: to, Precision: graph.F32}, y, m.scale, m.zero)
	return m
}

// convolvedBytes is a convolution of bytes to bytes, with weights of bytes.
func (d *missDraw) convolvedBytes(m missByte, to graph.DType, c missConv, of graph.DType, zero, scale graph.TensorID) missByte {
	shape := d.b.Type(m.x).Shape
	w := d.bytes(of, slices.Concat([]int64{c.maps, shape[1] / max(1, c.group)}, slices.Repeat([]int64{max(1, c.kernel)}, len(shape)-2))...)
	in := []graph.TensorID{d.floats(m), d.back(w, scale, zero, 0)}
	if c.bias {
		in = append(in, d.weight(c.maps))
	}
	y := d.node(c.op(len(shape)-2), in...)
	if d.yes("rectified") {
		y = d.unary(graph.Relu, y)
	}
	return d.made(y, to, 0.05)
}

// missNHWC is a convolution of bytes, something between, and another one.
func missNHWC(d *missDraw) []graph.TensorID {
	images, c, h, w := d.between(1, 2, "images"), d.channels(8), int64(6), int64(5)
	if d.is("gate of one image") {
		images = 2
	}
	shape := []int64{images, c, h, w}
	switch {
	case d.is("a line"):
		shape = shape[:3]
	case d.is("one position"):
		shape[2], shape[3] = 1, 1
	case d.is("joined after 3 channels"):
		c, shape[1] = 3, 3
	}
	kind := d.byteType()
	x := d.made(d.input(shape...), kind, quantum)
	first := missConv{maps: c, kernel: 3, begin: 1, end: 1, bias: true}
	of, zero, scale := graph.I8, graph.None, d.number(0.002)
	switch {
	case d.is("weights off the middle"):
		of = graph.U8
		zero = d.b.AddConst("zero", graph.TensorType{DType: of}, []byte{127})
	case d.is("zeros of weights by channel"):
		zero, scale = d.b.AddConst("zero", graph.TensorType{DType: of, Shape: []int64{c}}, append(make([]byte, c-1), 1)), d.constant(slices.Repeat([]float32{0.002}, int(c)), c)
	case d.is("scales of weights by channel"):
		scale = d.scalesOf(0.002, c, true)
	case d.is("depthwise"):
		first.group = c
	case d.is("groups of two"):
		first.group = 2
	case d.is("multiplied"):
		first.group, first.maps = c, 2*c
	case d.is("stride 3"):
		first.stride = 3
	case d.is("dilation 2"):
		first.dilation, first.end = 2, 2
	case d.is("padded beyond"):
		first.begin, first.end = 4, 5
	case d.is("window of 5"):
		first.kernel = 5
	case d.is("16 bits"):
		m := missByte{scale: d.number(quantum), zero: d.b.AddConst("zero", graph.TensorType{DType: graph.I16}, []byte{0, 0})}
		m.x = d.node(&graph.Quantize{To: graph.I16, Precision: graph.F32}, d.input(shape...), m.scale, m.zero)
		return []graph.TensorID{d.floats(d.convolvedBytes(m, kind, first, of, zero, scale))}
	case d.is("another type"):
		kind = map[graph.DType]graph.DType{graph.I8: graph.U8, graph.U8: graph.I8}[kind]
	}
	y := d.convolvedBytes(x, kind, first, of, zero, scale)
	out := []graph.TensorID{}
	if d.is("also a result") {
		out = append(out, d.node(&graph.Cast{To: graph.F32}, y.x))
	}
	if d.is("also read as planes") {
		out = append(out, d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, d.floats(y)))
	}
	z, more := d.betweenBytes(y, kind)
	if out = append(out, more...); !d.b.Type(z.x).DType.IsFloat() && d.b.Type(z.x).Rank() <= 4 {
		z = d.convolvedBytes(z, kind, missConv{maps: 8, bias: true}, graph.I8, graph.None, d.number(0.002))
		z = missByte{z.x, d.number(0.05), z.zero}
	}
	return append(out, d.floats(z))
}

// betweenBytes adds what stands between two convolutions of bytes: a sum, but for
// the step that the graph is off.
func (d *missDraw) betweenBytes(y missByte, kind graph.DType) (z missByte, more []graph.TensorID) {
	shape := d.b.Type(y.x).Shape
	images, c := shape[0], shape[1]
	ones := slices.Repeat([]int64{1}, len(shape)-2)
	other := d.made(d.input(shape...), kind, 0.03)
	a, b := d.floats(y), d.floats(other)
	// by reads the bytes of y by another scale.
	by := func(scale float32) graph.TensorID { return d.back(y.x, d.number(scale), y.zero, 0) }
	sum := func(a, b graph.TensorID) missByte { return d.made(d.binary(graph.Add, a, b), kind, 0.06) }
	gate := func(shape ...int64) graph.TensorID { return d.floats(d.made(d.input(shape...), kind, 0.02)) }
	product := func(g graph.TensorID) missByte { return d.made(d.binary(graph.Mul, a, g), kind, 0.06) }
	lastFraction := math.Float32frombits(0x3d7fffff)
	pool := &graph.MaxPool{Kernel: []int64{2, 3}, Strides: []int64{1, 2}, Dilations: ones, PadsBegin: []int64{1, 0}, PadsEnd: []int64{0, 1}}
	switch {
	case d.is("scales by channel"):
		return sum(d.back(y.x, d.scalesOf(0.05, c, true), d.bytes(kind, c), 1), b), nil
	case d.is("scales of blocks"):
		blocks := []int64{images, c / 2, shape[2], shape[3]}
		return sum(d.node(&graph.Dequantize{Axis: 1, Block: 2, To: graph.F32}, y.x, d.positive(blocks...), d.bytes(kind, blocks...)), b), nil
	case d.is("fed scale"):
		return sum(d.back(y.x, d.loaded([]float32{0.04}), y.zero, 0), b), nil
	case d.is("fed zero"):
		return sum(d.back(y.x, y.scale, d.node(&graph.Cast{To: kind}, d.fed([]float32{3})), 0), b), nil
	case d.is("tiny scale"):
		return sum(by(1e-12), b), nil
	case d.is("huge scale"):
		return sum(by(1e12), b), nil
	case d.is("negative zero scale"):
		return sum(by(float32(math.Copysign(0, -1))), b), nil
	case d.is("negative scale"):
		return sum(by(-0.05), b), nil
	case d.is("subnormal scale"):
		return sum(by(1e-40), b), nil
	case d.is("last fraction"):
		return sum(by(lastFraction), b), nil
	case d.is("scale of half precision"):
		h := d.node(&graph.Cast{To: graph.F16}, d.number(0.05))
		return sum(d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Dequantize{To: graph.F16}, y.x, h, y.zero)), b), nil
	case d.is("scale of the result by channel"):
		s, zeros := d.scalesOf(0.05, c, true), d.bytes(kind, c)
		q := d.node(&graph.Quantize{Axis: 1, To: kind, Precision: graph.F32}, d.binary(graph.Add, a, b), s, zeros)
		return d.made(d.back(q, s, zeros, 1), kind, 0.06), nil
	case d.is("tiny scale of the result"):
		return d.rescaled(d.made(d.binary(graph.Add, a, b), kind, 1e-12)), nil
	case d.is("negative zero scale of the result"):
		return d.rescaled(d.made(d.binary(graph.Add, a, b), kind, float32(math.Copysign(0, -1)))), nil
	case d.is("last fraction of the result"):
		return d.made(d.binary(graph.Add, a, b), kind, lastFraction), nil
	case d.is("sum of a column"):
		return sum(a, gate(images, c, 1, shape[3])), nil
	case d.is("gate"):
		return product(gate(images, c, 1, 1)), nil
	case d.is("gate of one image"):
		return product(gate(1, c, 1, 1)), nil
	case d.is("gate of lower rank"):
		return product(gate(c, 1, 1)), nil
	case d.is("gate of floats"):
		return product(d.unary(graph.Tanh, d.input(images, c, 1, 1))), nil
	case d.is("difference"):
		return d.made(d.binary(graph.Sub, a, b), kind, 0.06), nil
	case d.is("larger of two"):
		return d.made(d.binary(graph.Max, a, b), kind, 0.06), nil
	case d.is("three addends"):
		return sum(d.binary(graph.Add, a, b), gate(shape...)), nil
	case d.is("sum read twice"):
		s := d.binary(graph.Add, a, b)
		return d.made(s, kind, 0.06), []graph.TensorID{s}
	case d.is("fed bounds"):
		return d.made(d.node(&graph.Clip{}, d.binary(graph.Add, a, b), d.fed([]float32{-0.25}), d.fed([]float32{0.5})), kind, 0.06), nil
	case d.is("bounded twice"):
		return d.made(d.unary(graph.Relu, d.node(&graph.Clip{}, d.binary(graph.Add, a, b), d.number(-0.5), d.number(0.5))), kind, 0.06), nil
	case d.is("bounds in half precision"):
		s := d.node(&graph.Cast{To: graph.F16}, d.binary(graph.Add, a, b))
		return d.made(d.node(&graph.Cast{To: graph.F32}, d.unary(graph.Relu, s)), kind, 0.06), nil
	case d.is("leaky"):
		return d.made(d.node(&graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.25}, d.binary(graph.Add, a, b)), kind, 0.06), nil
	case d.is("crossed bounds"):
		return d.made(d.node(&graph.Clip{}, d.binary(graph.Add, a, b), d.number(0.5), d.number(-0.5)), kind, 0.06), nil
	case d.is("places of the largest"):
		ids, err := d.b.Node(pool, "most", y.x)
		require.NoError(d, err)
		return missByte{ids[0], y.scale, y.zero}, []graph.TensorID{d.node(&graph.Cast{To: graph.F32}, ids[1])}
	case d.is("largest to another scale"):
		return d.made(d.node(pool, a), kind, 0.08), nil
	case d.is("largest padded"):
		pool.Dilations, pool.PadsEnd = []int64{2, 1}, []int64{1, 2}
		return missByte{d.node(pool, y.x), y.scale, y.zero}, nil
	case d.is("mean of windows"):
		return d.made(d.node(&graph.AveragePool{Kernel: []int64{2, 2}, Strides: []int64{1, 2}, Dilations: ones, PadsBegin: ones, PadsEnd: ones}, a), kind, 0.05), nil
	case d.is("joined rows"):
		return d.made(d.node(&graph.Concat{Axis: 2}, a, b), kind, 0.05), nil
	case d.is("joined after 3 channels"):
		return d.made(d.node(&graph.Concat{Axis: 1}, a, b), kind, 0.05), nil
	case d.is("joined by other scales"):
		return d.made(d.node(&graph.Concat{Axis: 1}, a, b), kind, 0.07), nil
	case d.is("joined floats"):
		return d.made(d.node(&graph.Concat{Axis: 1}, a, d.unary(graph.Tanh, d.input(shape...))), kind, 0.05), nil
	case d.is("function of two"):
		return d.made(d.binary(graph.Mul, d.unary(graph.Sigmoid, a), d.unary(graph.Tanh, b)), kind, 0.01), nil
	case d.is("function by channel"):
		return d.made(d.unary(graph.Tanh, d.binary(graph.Add, a, d.param(1, c, 1, 1))), kind, 0.01), nil
	case d.is("function of higher rank"):
		y := d.binary(graph.Add, d.unary(graph.Tanh, a), d.constant([]float32{0.5}, 1, 1, 1, 1, 1))
		return d.made(d.reshape(y, shape...), kind, 0.01), nil
	case d.is("function along channels"):
		return d.made(d.unary(graph.Tanh, d.node(&graph.Cumulate{Fn: graph.CumulateSum, Axis: 1}, a)), kind, 0.01), nil
	case d.is("part of the channels"):
		return missByte{d.node(&graph.Slice{Start: []int64{0, 1, 0, 0}, Size: []int64{images, c - 2, shape[2], shape[3]}, Step: []int64{1, 1, 1, 1}}, y.x), y.scale, y.zero}, nil
	case d.is("padded"):
		return missByte{d.node(&graph.Pad{Before: []int64{0, 1, 0, 1}, After: []int64{0, 0, 1, 0}, Mode: graph.PadEdge}, y.x), y.scale, y.zero}, nil
	case d.is("transposed"):
		return d.made(d.transpose(a, 0, 1, 3, 2), kind, 0.05), nil
	case d.is("the same twice"):
		return sum(a, a), nil
	case d.is("another scale"):
		return d.made(a, kind, 0.06), nil
	case d.is("reshaped"):
		return d.made(d.reshape(a, images, c, shape[3], shape[2]), kind, 0.05), nil
	}
	if d.off == "" && d.yes("function") {
		return d.made(d.unary(graph.Tanh, a), kind, 0.01), nil
	}
	return sum(a, b), nil
}

// rescaled reads bytes by a usual scale.
func (d *missDraw) rescaled(m missByte) missByte { return missByte{m.x, d.number(0.01), m.zero} }
