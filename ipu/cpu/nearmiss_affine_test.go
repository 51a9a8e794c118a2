package cpu

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses,
		nearMiss{pass: "affine", what: "biases", build: missAddend, off: []string{"along another axis", "residual broadcast", "two of them", "read twice", "β 2",
			"reversed difference", "fed", "larger", "fed bias", "of itself", "half", "limited already", "batches of weights"}, left: []string{"read twice"}},
		nearMiss{pass: "affine", what: "residuals", build: missResidual, off: []string{"β 2", "broadcast", "read twice", "with a bias", "difference", "of itself"}},
		nearMiss{pass: "affine", what: "factors folded into weights", build: missFactor, off: []string{"along another axis", "β 2", "reversed quotient", "fed",
			"read twice", "larger", "fed weights", "fed bias", "bias of rows", "groups", "of itself", "half", "power", "limited already", "batches of weights"},
			left: []string{"read twice", "fed weights", "fed"}},
		nearMiss{pass: "affine", what: "batch normalisations folded into weights", build: missBatchNorm, off: []string{"β 2", "read twice", "fed statistics",
			"fed weights", "groups", "between rows", "rectifier between"}},
		nearMiss{pass: "bounds", what: "limits of convolutions", build: missBounds(true), off: []string{"read twice", "fed limits", "limits crossed", "NaN limit",
			"leaky", "minimum", "twice", "addend between", "double", "half"}, left: []string{"read twice"}},
		nearMiss{pass: "bounds", what: "limits of products", build: missBounds(false), off: []string{"read twice", "fed limits", "limits crossed", "NaN limit",
			"leaky", "minimum", "twice", "addend between", "double", "half"}, left: []string{"read twice"}},
		nearMiss{pass: "bounds", what: "limits before moves", build: missBoundsBeforeMove, off: []string{"read twice", "move read twice", "padding", "one of two",
			"limited already", "cast"}, left: []string{"read twice", "move read twice"}},
		nearMiss{pass: "transposed", what: "transposed convolutions made convolutions", build: missTransposed, off: []string{"dilation", "smaller than the stride", "three axes",
			"fed weights", "fed bias", "double", "half"}},
	)
}

// linearOf is a convolution or product with [2,4,4,4] or [4,4] as result: as many
// channels as there are rows and columns. axis is that of the channels.
func (d *missDraw) linearOf(kinds []string, input, weight func(shape ...int64) graph.TensorID, bias bool, beta float64) (y graph.TensorID, axis int) {
	const n = 4
	kind := kinds[d.rand.IntN(len(kinds))]
	b := graph.None
	ones, none := []int64{1, 1}, []int64{0, 0}
	switch kind {
	case "conv", "groups":
		op := &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: ones, PadsEnd: ones, Group: 1}
		if kind == "groups" {
			op.Group = 2
		}
		if bias {
			b = weight(n)
		}
		return d.node(op, input(2, n, n, n), weight(n, n/op.Group, 3, 3), b), 1
	case "transposed", "transposed in groups":
		op := &graph.ConvTranspose{Strides: ones, Dilations: ones, PadsBegin: none, Output: []int64{n, n}, Group: 1}
		if kind == "transposed in groups" {
			op.Group = 2
		}
		if bias {
			b = weight(n)
		}
		return d.node(op, input(2, n, n, n), weight(n, n/op.Group, 1, 1), b), 1
	case "gemm":
		op := &graph.Gemm{TransA: d.yes("transposed a"), TransB: d.yes("transposed b"), Alpha: 1, Beta: beta}
		if d.yes("α") {
			op.Alpha = 0.5
		}
		if bias {
			b = weight(n)
			if d.yes("scalar bias") {
				b = weight(1)
			}
		}
		return d.node(op, input(n, n), weight(n, n), b), 1
	case "limited":
		none := []int64{0, 0}
		if d.yes("conv") {
			op := &graph.Conv{Strides: ones, Dilations: ones, PadsBegin: none, PadsEnd: none, Group: 1, Bounded: true, Low: -0.5, High: 0.75}
			return d.node(op, input(2, n, n, n), weight(n, n, 1, 1)), 1
		}
		return d.node(&graph.Gemm{Alpha: 1, Beta: 1, Bounded: true, Low: -0.5, High: 0.75}, input(n, n), weight(n, n)), 1
	case "batches":
		return d.node(&graph.MatMul{}, input(2, n, n), weight(2, n, n)), 2
	case "rows":
		return d.node(&graph.MatMul{}, input(n, n), weight(n, n)), 1
	}
	return d.node(&graph.MatMul{}, input(2, n, n, n), weight(n, n)), 3
}

var missLinears = []string{"conv", "groups", "transposed", "gemm", "rows", "matmul"}

// perChannel returns a shape that goes along the channels.
func (d *missDraw) perChannel(y graph.TensorID, axis int) []int64 {
	typ := d.b.Type(y)
	shape := slices.Repeat([]int64{1}, typ.Rank()-axis)
	shape[0] = typ.Shape[axis]
	if d.yes("whole rank") {
		shape = append(slices.Repeat([]int64{1}, axis), shape...)
	}
	return shape
}

// across is perChannel along an axis of the same size that is not the
// channels'.
func (d *missDraw) across(y graph.TensorID, axis int) []int64 {
	typ := d.b.Type(y)
	shape := slices.Repeat([]int64{1}, typ.Rank())
	for {
		if i := d.rand.IntN(typ.Rank()); i != axis && typ.Shape[i] == typ.Shape[axis] {
			shape[i] = typ.Shape[i]
			return shape
		}
	}
}

// fedWhere returns input in place of weights where the draw says so.
func (d *missDraw) fedWhere(fed bool) func(...int64) graph.TensorID {
	if fed {
		return d.input
	}
	return d.param
}

func missAddend(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	kinds, beta, bias := missLinears, 1.0, d.yes("bias")
	if d.is("β 2") {
		kinds, beta, bias = []string{"gemm"}, 2, true
	}
	if d.is("fed bias") {
		kinds, bias = []string{"conv", "gemm", "transposed"}, true
	}
	if d.is("limited already") {
		kinds = []string{"limited"}
	}
	if d.is("batches of weights") {
		kinds = []string{"batches"}
	}
	weight := d.fedWhere(false)
	if d.is("fed bias") {
		weight = func(shape ...int64) graph.TensorID {
			if len(shape) == 1 {
				return d.input(shape...)
			}
			return d.param(shape...)
		}
	}
	y, axis := d.linearOf(kinds, d.input, weight, bias, beta)
	shape := d.perChannel(y, axis)
	var out []graph.TensorID
	switch {
	case d.is("along another axis"):
		shape = d.across(y, axis)
	case d.is("residual broadcast"):
		shape = slices.Clone(d.b.Type(y).Shape)
		shape[0] = 1
		shape = shape[d.rand.IntN(2):]
	case d.is("read twice"):
		out = append(out, y)
	case d.is("larger"):
		shape = append([]int64{3}, slices.Repeat([]int64{1}, d.b.Type(y).Rank())...)
	case d.is("two of them"):
		y = d.binary(graph.Add, y, d.param(shape...))
	case d.is("of itself"):
		return []graph.TensorID{d.binary(graph.Add, y, y)}
	}
	if d.off == "" && d.yes("one number") {
		shape = slices.Repeat([]int64{1}, d.rand.IntN(3))
	}
	c := d.fedWhere(d.is("fed"))(shape...)
	if d.is("reversed difference") {
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Sub}, c, y)}
	}
	if d.yes("difference") {
		return append(out, d.node(&graph.Binary{Fn: graph.Sub}, y, c))
	}
	return append(out, d.binary(graph.Add, y, c))
}

func missResidual(d *missDraw) []graph.TensorID {
	bias := d.is("with a bias") || d.is("β 2")
	beta := []float64{1, 2, 0}[d.rand.IntN(3)]
	if d.is("β 2") {
		beta = 2
	}
	y, _ := d.linearOf([]string{"gemm"}, d.input, d.param, bias, beta)
	shape := slices.Clone(d.b.Type(y).Shape)
	out := []graph.TensorID{}
	switch {
	case d.is("broadcast"):
		shape[d.rand.IntN(2)] = 1
	case d.is("read twice"):
		out = append(out, y)
	case d.is("of itself"):
		return []graph.TensorID{d.binary(graph.Add, y, y)}
	case d.is("difference"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Sub}, y, d.input(shape...)), d.node(&graph.Binary{Fn: graph.Sub}, d.input(shape...), y)}
	}
	return append(out, d.binary(graph.Add, y, d.input(shape...)))
}

func missFactor(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	kinds, beta, bias := missLinears, 1.0, d.yes("bias")
	weight := d.fedWhere(d.is("fed weights"))
	switch {
	case d.is("β 2"):
		kinds, beta, bias = []string{"gemm"}, 2, true
	case d.is("groups"):
		kinds = []string{"transposed in groups"}
	case d.is("limited already"):
		kinds = []string{"limited"}
	case d.is("batches of weights"):
		kinds = []string{"batches"}
	case d.is("fed bias"):
		kinds, bias = []string{"conv", "gemm", "transposed"}, true
		weight = func(shape ...int64) graph.TensorID {
			if len(shape) == 1 {
				return d.input(shape...)
			}
			return d.param(shape...)
		}
	}
	y, axis := d.linearOf(kinds, d.input, weight, bias, beta)
	if d.is("bias of rows") {
		y = d.node(&graph.Gemm{Alpha: 1, Beta: 1}, d.input(4, 4), d.param(4, 4), d.param(4, 1))
		axis = 1
	}
	shape := d.perChannel(y, axis)
	var out []graph.TensorID
	switch {
	case d.is("along another axis"):
		shape = d.across(y, axis)
	case d.is("read twice"):
		out = append(out, y)
	case d.is("larger"):
		shape = append([]int64{3}, slices.Repeat([]int64{1}, d.b.Type(y).Rank())...)
	case d.is("of itself"):
		return []graph.TensorID{d.binary(graph.Mul, y, y)}
	case d.is("power"):
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Pow}, d.unary(graph.Abs, y), d.positive(shape...))}
	}
	if d.off == "" && d.yes("one number") {
		shape = slices.Repeat([]int64{1}, d.rand.IntN(3))
	}
	c := d.positive(shape...)
	if d.is("fed") {
		c = d.unary(graph.Exp, d.input(shape...))
	}
	if d.is("reversed quotient") {
		return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Div}, c, y)}
	}
	if d.yes("quotient") {
		return append(out, d.node(&graph.Binary{Fn: graph.Div}, y, c))
	}
	return append(out, d.binary(graph.Mul, y, c))
}

func missBatchNorm(d *missDraw) []graph.TensorID {
	kinds, beta, bias := []string{"conv", "groups", "transposed", "gemm", "rows"}, 1.0, d.yes("bias")
	weight := d.fedWhere(d.is("fed weights"))
	switch {
	case d.is("β 2"):
		kinds, beta, bias = []string{"gemm"}, 2, true
	case d.is("groups"):
		kinds = []string{"transposed in groups"}
	case d.is("between rows"):
		kinds = []string{"matmul"}
	}
	y, _ := d.linearOf(kinds, d.input, weight, bias, beta)
	out := []graph.TensorID{}
	if d.is("read twice") {
		out = append(out, y)
	}
	if d.is("rectifier between") {
		y = d.unary(graph.Relu, y)
	}
	mean := d.fedWhere(d.is("fed statistics"))(4)
	return append(out, d.node(&graph.BatchNorm{Epsilon: 0.25}, y, d.param(4), d.param(4), mean, d.positive(4)))
}

// missBounds is a convolution or product that limits follow.
func missBounds(conv bool) func(d *missDraw) []graph.TensorID {
	return func(d *missDraw) []graph.TensorID {
		if d.is("half") {
			d.dtype = graph.F16
		}
		if d.is("double") {
			d.dtype = graph.F64
		}
		kinds := []string{"gemm"}
		if conv {
			kinds = []string{"conv", "groups"}
		}
		input := d.input
		if d.yes("NaN and infinities") {
			input = func(shape ...int64) graph.TensorID {
				v := d.some(shape...)
				v[1], v[len(v)-1] = float32(math.NaN()), float32(math.Inf(1))
				return d.fed(v, shape...)
			}
		}
		y, _ := d.linearOf(kinds, input, d.param, d.yes("bias"), 1)
		x := y
		var out []graph.TensorID
		low, high := d.number(-0.5), d.number(0.75)
		switch {
		case d.is("read twice"):
			out = append(out, y)
		case d.is("fed limits"):
			low, high = d.fed([]float32{-0.25}), d.fed([]float32{0.5})
		case d.is("limits crossed"):
			low, high = high, low
		case d.is("NaN limit"):
			low, high = d.number(float32(math.NaN())), graph.None
		case d.is("leaky"):
			return []graph.TensorID{d.node(&graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.5}, y)}
		case d.is("minimum"):
			return []graph.TensorID{d.node(&graph.Binary{Fn: graph.Min}, y, high)}
		case d.is("twice"):
			y = d.node(&graph.Clip{}, y, d.number(-0.25))
		case d.is("addend between"):
			y = d.binary(graph.Add, d.unary(graph.Tanh, y), x)
		}
		switch d.rand.IntN(4) {
		case 0:
			if d.off == "" || d.is("twice") || d.is("read twice") || d.is("addend between") || d.is("half") || d.is("double") {
				return append(out, d.unary(graph.Relu, y))
			}
		case 1:
			return append(out, d.node(&graph.Clip{}, y, low))
		case 2:
			if !d.is("NaN limit") {
				return append(out, d.node(&graph.Clip{}, y, graph.None, high))
			}
		}
		return append(out, d.node(&graph.Clip{}, y, low, high))
	}
}

func missBoundsBeforeMove(d *missDraw) []graph.TensorID {
	y, _ := d.linearOf([]string{"conv", "gemm"}, d.input, d.param, d.yes("bias"), 1)
	var out []graph.TensorID
	if d.is("read twice") {
		out = append(out, y)
	}
	if d.is("limited already") {
		y = d.node(&graph.Clip{}, y, d.number(0.25))
	}
	rank := d.b.Type(y).Rank()
	switch move := d.rand.IntN(4); {
	case d.is("padding"):
		before := make([]int64, rank)
		before[rank-1] = 1
		y = d.node(&graph.Pad{Before: before, After: make([]int64, rank), Mode: graph.PadConstant}, y)
		return []graph.TensorID{d.node(&graph.Clip{}, y, d.number(0.25), d.number(0.5))} // which zeros are not within
	case d.is("cast"):
		y = d.node(&graph.Cast{To: graph.F32}, d.node(&graph.Cast{To: graph.I32}, y))
	case d.is("one of two"):
		y = d.node(&graph.Concat{Axis: 0}, y, d.input(d.b.Type(y).Shape...))
	case move == 0:
		perm := []int64{1, 0, 2, 3}
		y = d.transpose(y, perm[:rank]...)
	case move == 1:
		y = d.reshape(y, 2, d.b.Type(y).Elements()/2)
	case move == 2:
		other, _ := d.linearOf([]string{"gemm"}, d.input, d.param, false, 1)
		y = d.node(&graph.Concat{Axis: 0}, d.reshape(y, d.b.Type(y).Elements()), d.reshape(other, 16))
	default:
		y = d.part(y, 1, 1, 2)
	}
	if d.is("move read twice") {
		out = append(out, y)
	}
	if d.yes("rectifier") {
		return append(out, d.unary(graph.Relu, y))
	}
	return append(out, d.node(&graph.Clip{}, y, d.number(-0.5), d.number(0.5)))
}

// part takes the i-th of n equal parts of an axis.
func (d *missDraw) part(x graph.TensorID, axis int, i, n int64) graph.TensorID {
	op := &graph.Slice{}
	for k, size := range d.b.Type(x).Shape {
		start := int64(0)
		if k == axis {
			size /= n
			start = i * size
		}
		op.Start, op.Size, op.Step = append(op.Start, start), append(op.Size, size), append(op.Step, 1)
	}
	return d.node(op, x)
}

func missTransposed(d *missDraw) []graph.TensorID {
	if d.is("half") {
		d.dtype = graph.F16
	}
	if d.is("double") {
		d.dtype = graph.F64
	}
	spatial := int(d.between(1, 2, "axes"))
	if d.is("three axes") {
		spatial = 3
	}
	group := d.between(1, 2, "groups")
	op := &graph.ConvTranspose{Group: group}
	x, w := []int64{2, 4}, []int64{4, 3}
	for range spatial {
		size, stride := d.between(1, 4, "size"), d.between(1, 3, "stride")
		dilation, kernel := int64(1), stride+d.between(0, 3, "kernel")
		if d.is("dilation") {
			dilation, kernel = 2, max(kernel, 2)
		}
		if d.is("smaller than the stride") {
			stride, kernel = kernel+1, max(1, kernel-1)
		}
		reach := (size-1)*stride + (kernel-1)*dilation + 1
		before := d.between(-1, min(2, reach-1), "padding")
		op.Strides, op.Dilations = append(op.Strides, stride), append(op.Dilations, dilation)
		op.PadsBegin = append(op.PadsBegin, before)
		op.Output = append(op.Output, max(1, reach-before+d.between(-2, 2, "more")))
		x, w = append(x, size), append(w, kernel)
	}
	in := []graph.TensorID{d.input(x...), d.fedWhere(d.is("fed weights"))(w...)}
	if d.is("fed bias") {
		in = append(in, d.input(3*group))
	} else if d.yes("bias") {
		in = append(in, d.param(3*group))
	}
	return []graph.TensorID{d.node(op, in...)}
}
