package cpu

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

func init() {
	nearMisses = append(nearMisses,
		nearMiss{pass: "integer", what: "products of floats made those of bytes", build: missBytes, integers: true, off: []string{"scales on another axis", "scales of x",
			"α 2", "β 2", "transposed a", "fed weights", "addend of rows", "16 bits", "blocks", "floats"}},
		nearMiss{pass: "integer", what: "addends of products of bytes", build: missBytesAddend, integers: true, off: []string{"along another axis", "read twice", "two of them",
			"after limits", "larger", "fed", "whole"}},
		nearMiss{pass: "integer", what: "limits of products of bytes", build: missBytesBounds, integers: true, off: []string{"read twice", "twice", "fed limits", "leaky", "crossed"}},
		nearMiss{pass: "integer", what: "results of products of bytes made bytes", build: missBytesResult, integers: true, tolerance: 0.0501, off: []string{"read twice", "by channel", "16 bits",
			"negative scale", "limits and no constant scale", "limits and a negative scale", "rectifier after"}},
		nearMiss{pass: "integer", what: "scales of products of bytes", build: missBytesScale, integers: true, off: []string{"along another axis", "read twice", "scaled twice", "larger", "not cast", "by itself", "cast bytes"}},
		nearMiss{pass: "quantised", what: "quantisations of what has these values already", tolerance: -1, integers: true, build: missRequantised, off: []string{"another scale", "another zero",
			"another type", "padded", "average", "rectifier", "by channel", "fed scale", "back by another scale", "tiny scale", "negative scale", "no scale", "endless scale", "from another scale"}},
	)
}

// quantum is what fed numbers are quantised by.
const quantum = 0.02

// quantised converts x to bytes of a type and returns those with scale and zero
// point.
func (d *missDraw) quantised(x graph.TensorID, to graph.DType) (q, scale, zero graph.TensorID) {
	scale = d.number(quantum)
	zero = d.bytes(to)
	return d.node(&graph.Quantize{To: to, Precision: graph.F32}, x, scale, zero), scale, zero
}

// bytes returns a constant of random bytes.
func (d *missDraw) bytes(t graph.DType, shape ...int64) graph.TensorID {
	typ := graph.TensorType{DType: t, Shape: shape}
	b := make([]byte, typ.Bytes())
	for i := range b {
		b[i] = byte(d.rand.Uint32())
	}
	return d.b.AddConst("bytes", typ, b)
}

func (d *missDraw) byteType() graph.DType { return []graph.DType{graph.I8, graph.U8}[d.rand.IntN(2)] }

// back converts bytes to floats again.
func (d *missDraw) back(q, scale, zero graph.TensorID, axis int64) graph.TensorID {
	return d.node(&graph.Dequantize{Axis: axis, To: graph.F32}, q, scale, zero)
}

// scalesOf returns positive scales around v along an axis of n, or one.
func (d *missDraw) scalesOf(v float32, n int64, several bool) graph.TensorID {
	if !several {
		return d.number(v)
	}
	s := d.some(n)
	for i := range s {
		s[i] = v * (1.5 + s[i]/2)
	}
	return d.constant(s, n)
}

const missBytesSide = 4 // of everything: rows, columns, channels

func missBytes(d *missDraw) []graph.TensorID {
	const n = missBytesSide
	types := func(several bool, t graph.DType) (scale, zero graph.TensorID) {
		if several {
			return d.scalesOf(0.01, n, true), d.bytes(t, n)
		}
		return d.number(0.01), d.bytes(t)
	}
	from, of := d.byteType(), d.byteType()
	if d.is("16 bits") {
		of = graph.I16
	}
	kind := []string{"conv", "gemm", "matmul"}[d.rand.IntN(3)]
	if d.is("α 2") || d.is("β 2") || d.is("transposed a") || d.is("addend of rows") {
		kind = "gemm"
	}
	if kind == "conv" {
		q, scale, zero := d.quantised(d.input(2, n, 5, 5), from)
		x := d.back(q, scale, zero, 0)
		if d.is("scales of x") {
			x = d.back(q, d.scalesOf(quantum, n, true), d.bytes(from, n), 1)
		}
		if d.is("floats") {
			x = d.input(2, n, 5, 5)
		}
		op := &graph.Conv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{1, 1}, PadsEnd: []int64{1, 0}, Group: []int64{1, 2, 4}[d.rand.IntN(3)]}
		axis, several := int64(0), d.yes("scales")
		if d.is("scales on another axis") {
			op.Group, axis, several = 1, 1, true
		}
		s, z := types(several, of)
		w := d.bytes(of, n, n/op.Group, 3, 3)
		if d.is("fed weights") {
			w = d.node(&graph.Cast{To: of}, d.input(n, n/op.Group, 3, 3))
		}
		in := []graph.TensorID{x, d.back(w, s, z, axis), graph.None}
		if d.is("blocks") {
			in[1] = d.node(&graph.Dequantize{Axis: 2, Block: 2, To: graph.F32}, w, d.constant(slices.Repeat([]float32{0.01, 0.02, 0.03}, int(n*(n/op.Group)*2)), n, n/op.Group, 2, 3),
				d.bytes(of, n, n/op.Group, 2, 3))
		}
		if d.yes("bias") {
			in[2] = d.param(n)
		}
		return []graph.TensorID{d.node(op, in...)}
	}
	rows := []int64{2, n, n}
	if kind == "gemm" {
		rows = []int64{n, n}
	}
	q, scale, zero := d.quantised(d.input(rows...), from)
	x := d.back(q, scale, zero, 0)
	if d.is("scales of x") {
		x = d.back(q, d.scalesOf(quantum, n, true), d.bytes(from, n), int64(len(rows)-1))
	}
	if d.is("floats") {
		x = d.input(rows...)
	}
	op := &graph.Gemm{Alpha: 1, Beta: 1}
	if kind == "gemm" {
		op.TransB = d.yes("transposed")
	}
	columns := int64(1)
	if op.TransB {
		columns = 0
	}
	axis, several := columns, d.yes("scales")
	if d.is("scales on another axis") {
		axis, several = 1-columns, true
	}
	s, z := types(several, of)
	w := d.bytes(of, n, n)
	if d.is("fed weights") {
		w = d.node(&graph.Cast{To: of}, d.input(n, n))
	}
	b := d.back(w, s, z, axis)
	if d.is("blocks") {
		b = d.node(&graph.Dequantize{Axis: axis, Block: 2, To: graph.F32}, w, d.constant([]float32{0.01, 0.02, 0.03, 0.04, 0.05, 0.01, 0.02, 0.07}, blockShape(axis)...), d.bytes(of, blockShape(axis)...))
	}
	if d.yes("moved") {
		b = d.transpose(b, 1, 0)
		if kind == "gemm" {
			op.TransB = !op.TransB
		} else {
			b = d.transpose(b, 1, 0)
		}
	}
	if kind == "matmul" {
		return []graph.TensorID{d.node(&graph.MatMul{}, x, b)}
	}
	in := []graph.TensorID{x, b, graph.None}
	if d.yes("bias") || d.is("β 2") {
		in[2] = d.param(n)
	}
	switch {
	case d.is("α 2"):
		op.Alpha = 2
	case d.is("β 2"):
		op.Beta = 2
	case d.is("transposed a"):
		op.TransA = true
	case d.is("addend of rows"):
		in[2] = d.param(n, 1)
	}
	return []graph.TensorID{d.node(op, in...)}
}

func blockShape(axis int64) []int64 {
	shape := []int64{missBytesSide, missBytesSide}
	shape[axis] = 2
	return shape
}

// productOfBytes is a convolution or product of floats that were bytes, which
// the pass makes one of bytes.
func (d *missDraw) productOfBytes() (y graph.TensorID, axis int) {
	const n = missBytesSide
	from, of := d.byteType(), d.byteType()
	if d.yes("conv") {
		q, scale, zero := d.quantised(d.input(2, n, n, n), from)
		op := &graph.Conv{Strides: []int64{1, 1}, Dilations: []int64{1, 1}, PadsBegin: []int64{1, 1}, PadsEnd: []int64{1, 1}, Group: 1}
		return d.node(op, d.back(q, scale, zero, 0), d.back(d.bytes(of, n, n, 3, 3), d.number(0.01), d.bytes(of), 0)), 1
	}
	q, scale, zero := d.quantised(d.input(2, n, n), from)
	return d.node(&graph.MatMul{}, d.back(q, scale, zero, 0), d.back(d.bytes(of, n, n), d.number(0.01), d.bytes(of), 0)), 2
}

func missBytesAddend(d *missDraw) []graph.TensorID {
	y, axis := d.productOfBytes()
	shape := d.perChannel(y, axis)
	if d.off == "" && d.yes("one number") {
		shape = nil
	}
	var out []graph.TensorID
	switch {
	case d.is("along another axis"):
		shape = d.across(y, axis)
	case d.is("read twice"):
		out = append(out, y)
	case d.is("two of them"):
		y = d.binary(graph.Add, y, d.param(shape...))
	case d.is("after limits"):
		y = d.unary(graph.Relu, y)
	case d.is("larger"):
		shape = append([]int64{3}, slices.Repeat([]int64{1}, d.b.Type(y).Rank())...)
	case d.is("whole"):
		shape = d.b.Type(y).Shape
	case d.is("fed"):
		return []graph.TensorID{d.binary(graph.Add, y, d.input(shape...))}
	}
	return append(out, d.binary(graph.Add, y, d.param(shape...)))
}

func missBytesBounds(d *missDraw) []graph.TensorID {
	y, _ := d.productOfBytes()
	var out []graph.TensorID
	low, high := d.number(-0.5), d.number(0.75)
	switch {
	case d.is("read twice"):
		out = append(out, y)
	case d.is("twice"):
		y = d.node(&graph.Clip{}, y, d.number(-0.25))
	case d.is("fed limits"):
		low, high = d.fed([]float32{-0.25}), d.fed([]float32{0.5})
	case d.is("crossed"):
		low, high = high, low
	case d.is("leaky"):
		return []graph.TensorID{d.node(&graph.Unary{Fn: graph.LeakyRelu, Alpha: 0.5}, y)}
	}
	if d.off == "" && d.yes("rectifier") {
		return []graph.TensorID{d.unary(graph.Relu, y)}
	}
	return append(out, d.node(&graph.Clip{}, y, low, high))
}

func missBytesResult(d *missDraw) []graph.TensorID {
	y, axis := d.productOfBytes()
	to := d.byteType()
	step := d.number(0.05)
	if d.yes("addend") {
		y = d.binary(graph.Add, y, d.param(d.perChannel(y, axis)...))
	}
	var out []graph.TensorID
	switch {
	case d.is("read twice"):
		out = append(out, y)
	case d.is("negative scale"):
		step = d.number(-0.05)
	case d.is("limits and no constant scale"):
		y = d.node(&graph.Clip{}, y, d.number(-0.5), d.number(1))
		step = d.loaded([]float32{0.05})
	case d.is("limits and a negative scale"):
		if y = d.unary(graph.Relu, y); d.yes("clip") {
			y = d.node(&graph.Clip{}, y, d.number(-0.5), d.number(1))
		}
		step = d.number(-0.05)
	case d.is("16 bits"):
		to = graph.I16
	case d.yes("rectifier"):
		y = d.unary(graph.Relu, y)
	case d.yes("limits"):
		y = d.node(&graph.Clip{}, y, d.number(-0.5), d.number(1.5))
	}
	if d.is("by channel") {
		s := d.scalesOf(0.03, missBytesSide, true)
		q := d.node(&graph.Quantize{Axis: int64(axis), To: to, Precision: graph.F32}, y, s, d.bytes(to, missBytesSide))
		return []graph.TensorID{d.node(&graph.Dequantize{To: graph.F32}, q, step, d.bytes(to))}
	}
	zero := d.b.AddConst("zero", graph.TensorType{DType: to}, make([]byte, to.Size()))
	if to != graph.I16 {
		zero = d.bytes(to)
	}
	q := d.node(&graph.Quantize{To: to, Precision: graph.F32}, y, step, zero)
	back := d.node(&graph.Dequantize{To: graph.F32}, q, d.number(0.05), zero)
	if d.is("rectifier after") {
		back = d.unary(graph.Relu, back)
	}
	return append(out, back)
}

func missBytesScale(d *missDraw) []graph.TensorID {
	const n = missBytesSide
	q, _, zero := d.quantised(d.input(2, n, n), d.byteType())
	acc := d.node(&graph.IntegerMatMul{To: graph.I32}, q, d.bytes(d.byteType(), n, n), zero)
	if d.is("not cast") {
		return []graph.TensorID{d.binary(graph.Mul, acc, d.b.AddConst("three", graph.TensorType{DType: graph.I32}, []byte{3, 0, 0, 0}))}
	}
	if d.is("cast bytes") {
		y, axis := d.productOfBytes()
		to := d.byteType()
		q := d.node(&graph.Quantize{To: to, Precision: graph.F32}, y, d.number(0.05), d.bytes(to))
		return []graph.TensorID{d.binary(graph.Mul, d.node(&graph.Cast{To: graph.F32}, q), d.scalesOf(2e-5, missBytesSide, axis > 1))}
	}
	y := d.node(&graph.Cast{To: graph.F32}, acc)
	shape := d.perChannel(y, 2)
	var out []graph.TensorID
	switch {
	case d.is("along another axis"):
		shape = d.across(y, 2)
	case d.is("read twice"):
		out = append(out, y)
	case d.is("scaled twice"):
		y = d.binary(graph.Mul, y, d.scalesOf(0.01, n, true))
	case d.is("larger"):
		shape = []int64{3, 1, 1, 1}
	case d.is("by itself"):
		return []graph.TensorID{d.binary(graph.Mul, y, y)}
	}
	s := d.some(shape...)
	for i := range s {
		s[i] *= 1e-3
	}
	return append(out, d.binary(graph.Mul, y, d.fed(s, shape...)))
}

func missRequantised(d *missDraw) []graph.TensorID {
	to := d.byteType()
	x, scale, zero := d.input(2, 4, 4, 4), d.number(0.05), d.bytes(to)
	if d.is("by channel") {
		s, z := d.constant([]float32{0.05, 0.05, 0.05, 0.05}, 4), d.bytes(to, 4)
		y := d.back(d.node(&graph.Quantize{Axis: 1, To: to, Precision: graph.F32}, x, s, z), s, z, 1)
		y = d.transpose(y, 0, 2, 1, 3)
		return []graph.TensorID{d.back(d.node(&graph.Quantize{Axis: 1, To: to, Precision: graph.F32}, y, s, z), s, z, 1)}
	}
	switch {
	case d.is("fed scale"):
		scale = d.fed([]float32{0.05})
	case d.is("tiny scale"):
		scale = d.number(1e-39)
	case d.is("negative scale"):
		scale = d.number(-0.05)
	case d.is("no scale"):
		scale = d.number(0)
	case d.is("endless scale"):
		scale = d.number(float32(math.Inf(1 - 2*int(d.between(0, 1, "negative")))))
	}
	first := scale
	if d.is("from another scale") {
		first = d.number(0.1)
	}
	y := d.back(d.node(&graph.Quantize{To: to, Precision: graph.F32}, x, first, zero), first, zero, 0)
	one, two := []int64{1, 1}, []int64{2, 2}
	pool := &graph.MaxPool{Kernel: two, Strides: two, Dilations: one, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}
	switch {
	case d.is("padded"): // a window of nothing but padding has the least number
		pool = &graph.MaxPool{Kernel: one, Strides: one, Dilations: one, PadsBegin: one, PadsEnd: []int64{0, 0}}
		y = d.node(pool, y)
	case d.is("average"):
		y = d.node(&graph.AveragePool{Kernel: two, Strides: two, Dilations: one, PadsBegin: []int64{0, 0}, PadsEnd: []int64{0, 0}}, y)
	case d.is("rectifier"):
		y = d.unary(graph.Relu, y)
	case d.yes("pool"):
		y = d.node(pool, y)
	case d.yes("move"):
		y = d.reshape(d.transpose(y, 0, 2, 3, 1), 8, 16)
	}
	again := to
	if d.is("another scale") {
		scale = d.number(0.1)
	}
	if d.is("another zero") {
		zero = d.b.AddConst("zero", graph.TensorType{DType: to}, []byte{d.b.Tensor(zero).Data[0] ^ 0x41})
	}
	if d.is("another type") {
		again = graph.I8
		if to == graph.I8 {
			again = graph.U8
		}
		zero = d.bytes(again)
	}
	q := d.node(&graph.Quantize{To: again, Precision: graph.F32}, y, scale, zero)
	if d.is("back by another scale") {
		scale = d.number(0.03)
	}
	return []graph.TensorID{d.back(q, scale, zero, 0)}
}
