package onnx

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// convTransposeOps are convolutions of other kinds.
var convTransposeOps = map[string]definition{
	"ConvTranspose":       takes("X:T=floats W:T B:T").since(1, convTranspose, "auto_pad=NOTSET dilations:ints group=1 kernel_shape:ints output_padding:ints output_shape:ints pads:ints strides:ints"),
	"DeformConv":          takes("X:T=floats W:T offset:T B:T mask:T").since(19, deformConv, "dilations:ints group=1 kernel_shape:ints offset_group=1 pads:ints strides:ints"),
	"Col2Im":              takes("input:numbers image_shape:int64 block_shape:int64").since(18, col2im, "dilations:ints pads:ints strides:ints"),
	"CausalConvWithState": takes("input:T=floats weight:T bias:T past_state:T").since(27, causalConv, "activation=none"),
}

func convTranspose(c *call) []*value {
	x, w := c.in(0), c.in(1)
	if x.rank() < 3 || w.rank() != x.rank() {
		c.fail("operands 0 (X) and 1 (W) are %v and %v, want as many dimensions each: batch, channels and spatial axes", x.typ, w.typ)
	}
	n := int(x.rank()) - 2
	size, kernel := x.typ.Shape[2:], w.typ.Shape[2:]
	if k, ok := c.ints("kernel_shape"); ok && !slices.Equal(k, kernel) {
		c.fail("attribute \"kernel_shape\" is %s, but operand 1 (W) is %v", graph.ShapeString(k), w.typ)
	}
	op := &graph.ConvTranspose{
		Strides: c.perAxis("strides", n), Dilations: c.perAxis("dilations", n), Group: c.int("group"),
		PadsBegin: make([]int64, n), Output: make([]int64, n),
	}
	extra, _ := c.listPerAxis("output_padding", n, 1)
	pads, _ := c.listPerAxis("pads", n, 2)
	auto := c.str("auto_pad")
	want, fixed := c.ints("output_shape")
	if len(want) == n+2 {
		want = want[2:] // some exporters give all of the shape
	}
	switch auto {
	case "NOTSET", "", "SAME_UPPER", "SAME_LOWER":
	case "VALID":
		pads = make([]int64, 2*n)
	default:
		c.fail("attribute \"auto_pad\" is %q, want NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto)
	}
	if fixed && len(want) != n {
		c.fail("attribute \"output_shape\" has %d numbers, want one for each of %d spatial axes", len(want), n)
	}
	for i, dim := range size {
		if op.Strides[i] > math.MaxInt32 || kernel[i] > math.MaxInt32 {
			c.fail("attribute \"strides\" is %s, want numbers below 2^31", graph.ShapeString(op.Strides))
		}
		full := satProduct(dim-1, op.Strides[i]) + extra[i] + satProduct(kernel[i]-1, op.Dilations[i]) + 1
		switch {
		case fixed:
			op.Output[i] = want[i]
		case auto == "SAME_UPPER" || auto == "SAME_LOWER":
			op.Output[i] = satProduct(dim, op.Strides[i])
		default:
			op.PadsBegin[i], op.Output[i] = pads[i], full-pads[i]-pads[n+i]
			continue
		}
		// What is too much goes, the odd element of it at the beginning unless
		// the padding is to be greater at the end.
		over := max(full-op.Output[i], 0)
		op.PadsBegin[i] = over - over/2
		if auto == "SAME_UPPER" {
			op.PadsBegin[i] = over / 2
		}
	}
	return one(c.emit(op, x, w, c.opt(2)))
}

// listPerAxis reads an attribute with a number of numbers, not too great, for
// each of n axes. They are 0 if it is not given.
func (c *call) listPerAxis(name string, n, each int) (list []int64, given bool) {
	list, given = c.ints(name)
	if !given {
		return make([]int64, n*each), false
	}
	if len(list) != n*each {
		c.fail("attribute %q has %d numbers, want %d for each of %d spatial axes", name, len(list), each, n)
	}
	for _, v := range list {
		if v < math.MinInt32 || v > math.MaxInt32 {
			c.fail("attribute %q is %s, want numbers of 32 bits", name, graph.ShapeString(list))
		}
	}
	return list, true
}

// satProduct multiplies numbers of which the second is below 2^31 and stays
// within 2^60.
func satProduct(a, b int64) int64 {
	const limit = 1 << 60
	if a > limit/max(b, 1) {
		return limit
	}
	return a * b
}

func deformConv(c *call) []*value {
	x, w := c.in(0), c.in(1)
	if w.rank() != x.rank() {
		c.fail("operand 1 (W) is %v, want as many dimensions as operand 0 (X), %v", w.typ, x.typ)
	}
	if x.rank() != 4 {
		c.unsupported("", "operand 0 (X) of type %v, only images with 2 spatial axes are", x.typ)
	}
	kernel := w.typ.Shape[2:]
	if k, ok := c.ints("kernel_shape"); ok && !slices.Equal(k, kernel) {
		c.fail("attribute \"kernel_shape\" is %s, but operand 1 (W) is %v", graph.ShapeString(k), w.typ)
	}
	pads, _ := c.listPerAxis("pads", 2, 2)
	op := &graph.DeformConv{
		Strides: c.perAxis("strides", 2), Dilations: c.perAxis("dilations", 2), PadsBegin: pads[:2], PadsEnd: pads[2:],
		Group: c.int("group"), OffsetGroup: c.int("offset_group"),
	}
	return one(c.emit(op, x, w, c.in(2), c.opt(3), c.opt(4)))
}

func col2im(c *call) []*value {
	x := c.in(0)
	image, block := c.requireKnownInts(1, "image_shape"), c.requireKnownInts(2, "block_shape")
	n := len(image)
	pads, _ := c.listPerAxis("pads", n, 2)
	op := &graph.Col2Im{
		Image: image, Block: block, Strides: c.perAxis("strides", n), Dilations: c.perAxis("dilations", n),
		PadsBegin: pads[:n], PadsEnd: pads[n:],
	}
	return one(c.emit(op, x))
}

// causalConv is a convolution of every channel with its own kernel over the
// past and the present of a sequence.
func causalConv(c *call) []*value {
	x, w, bias, past := c.in(0), c.in(1), c.opt(2), c.opt(3)
	if x.rank() != 3 || w.rank() != 3 || w.typ.Shape[1] != 1 || w.typ.Shape[2] < 1 {
		c.fail("operands 0 (input) and 1 (weight) are %v and %v, want [batch, channels, length] and [channels, 1, k]", x.typ, w.typ)
	}
	batch, channels, back := x.typ.Shape[0], x.typ.Shape[1], w.typ.Shape[2]-1
	state := []int64{batch, channels, back}
	if past != nil && !slices.Equal(past.typ.Shape, state) {
		c.fail("operand 3 (past_state) is %v, want shape %s", past.typ, graph.ShapeString(state))
	}
	before := past
	if past == nil {
		before = c.expand(scalar(x.typ.DType, 0), state)
	}
	all := c.emit(&graph.Concat{Axis: 2}, before, x)
	one, zero := []int64{1}, []int64{0}
	y := c.emit(&graph.Conv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: channels}, all, w, bias)
	switch a := c.str("activation"); a {
	case "none", "":
	case "silu", "swish":
		wide := c.wide(y)
		s := c.emit(&graph.Unary{Fn: graph.Sigmoid}, wide)
		y = c.cast(c.emit(&graph.Binary{Fn: graph.Mul}, wide, s), y.typ.DType)
	default:
		c.fail("attribute \"activation\" is %q, want none, silu or swish", a)
	}
	out := []*value{y, nil}
	if c.wants(1) {
		op := whole(all)
		op.Start[2], op.Size[2] = x.typ.Shape[2], back
		out[1] = c.emit(op, all)
	}
	return out
}

// wide returns a float in single precision, or in double precision if it is
// that already.
func (c *call) wide(x *value) *value {
	switch x.typ.DType {
	case graph.F16, graph.BF16:
		return c.cast(x, graph.F32)
	}
	return x
}
