package op

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// convTransposeOps are convolutions of other kinds.
var convTransposeOps = map[string]definition{
	"ConvTranspose":       takes("X:T=floats W:T B:T").since(1, convTranspose, "auto_pad=NOTSET dilations:ints group=1 kernel_shape:ints output_padding:ints output_shape:ints pads:ints strides:ints"),
	"DeformConv":          takes("X:T=floats W:T offset:T B:T mask:T").since(19, deformConv, "dilations:ints group=1 kernel_shape:ints offset_group=1 pads:ints strides:ints"),
	"Col2Im":              takes("input:numbers image_shape:int64 block_shape:int64").since(18, col2im, "dilations:ints pads:ints strides:ints"),
	"CausalConvWithState": takes("input:T=floats weight:T bias:T past_state:T").since(27, causalConv, "activation=none"),
}

func convTranspose(c *call) []*lower.Value {
	x, w := c.In(0), c.In(1)
	if x.Rank() < 3 || w.Rank() != x.Rank() {
		c.Fail("operands 0 (X) and 1 (W) are %v and %v, want as many dimensions each: batch, channels and spatial axes", x.Type, w.Type)
	}
	n := int(x.Rank()) - 2
	size, kernel := x.Type.Shape[2:], w.Type.Shape[2:]
	if k, ok := c.Ints("kernel_shape"); ok && !slices.Equal(k, kernel) {
		c.Fail("attribute \"kernel_shape\" is %s, but operand 1 (W) is %v", graph.ShapeString(k), w.Type)
	}
	op := &graph.ConvTranspose{
		Strides: c.perAxis("strides", n), Dilations: c.perAxis("dilations", n), Group: c.Int("group"),
		PadsBegin: make([]int64, n), Output: make([]int64, n),
	}
	extra, _ := c.listPerAxis("output_padding", n, 1)
	pads, _ := c.listPerAxis("pads", n, 2)
	auto := c.Str("auto_pad")
	want, fixed := c.Ints("output_shape")
	if len(want) == n+2 {
		want = want[2:] // some exporters give all of the shape
	}
	switch auto {
	case "NOTSET", "", "SAME_UPPER", "SAME_LOWER":
	case "VALID":
		pads = make([]int64, 2*n)
	default:
		c.Fail("attribute \"auto_pad\" is %q, want NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto)
	}
	if fixed && len(want) != n {
		c.Fail("attribute \"output_shape\" has %d numbers, want one for each of %d spatial axes", len(want), n)
	}
	for i, dim := range size {
		if op.Strides[i] > math.MaxInt32 || kernel[i] > math.MaxInt32 {
			c.Fail("attribute \"strides\" is %s, want numbers below 2^31", graph.ShapeString(op.Strides))
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
	return lower.One(c.Emit(op, x, w, c.Opt(2)))
}

// listPerAxis reads an attribute with a number of numbers, not too great, for
// each of n axes. They are 0 if it is not given.
func (c *call) listPerAxis(name string, n, each int) (list []int64, given bool) {
	list, given = c.Ints(name)
	if !given {
		return make([]int64, n*each), false
	}
	if len(list) != n*each {
		c.Fail("attribute %q has %d numbers, want %d for each of %d spatial axes", name, len(list), each, n)
	}
	for _, v := range list {
		if v < math.MinInt32 || v > math.MaxInt32 {
			c.Fail("attribute %q is %s, want numbers of 32 bits", name, graph.ShapeString(list))
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

func deformConv(c *call) []*lower.Value {
	x, w := c.In(0), c.In(1)
	if w.Rank() != x.Rank() {
		c.Fail("operand 1 (W) is %v, want as many dimensions as operand 0 (X), %v", w.Type, x.Type)
	}
	if x.Rank() != 4 {
		c.Unsupported("", "operand 0 (X) of type %v, only images with 2 spatial axes are", x.Type)
	}
	kernel := w.Type.Shape[2:]
	if k, ok := c.Ints("kernel_shape"); ok && !slices.Equal(k, kernel) {
		c.Fail("attribute \"kernel_shape\" is %s, but operand 1 (W) is %v", graph.ShapeString(k), w.Type)
	}
	pads, _ := c.listPerAxis("pads", 2, 2)
	op := &graph.DeformConv{
		Strides: c.perAxis("strides", 2), Dilations: c.perAxis("dilations", 2), PadsBegin: pads[:2], PadsEnd: pads[2:],
		Group: c.Int("group"), OffsetGroup: c.Int("offset_group"),
	}
	return lower.One(c.Emit(op, x, w, c.In(2), c.Opt(3), c.Opt(4)))
}

func col2im(c *call) []*lower.Value {
	x := c.In(0)
	image, block := c.RequireKnownInts(1, "image_shape"), c.RequireKnownInts(2, "block_shape")
	n := len(image)
	pads, _ := c.listPerAxis("pads", n, 2)
	op := &graph.Col2Im{
		Image: image, Block: block, Strides: c.perAxis("strides", n), Dilations: c.perAxis("dilations", n),
		PadsBegin: pads[:n], PadsEnd: pads[n:],
	}
	return lower.One(c.Emit(op, x))
}

// causalConv is a convolution of every channel with its own kernel over the
// past and the present of a sequence.
func causalConv(c *call) []*lower.Value {
	x, w, bias, past := c.In(0), c.In(1), c.Opt(2), c.Opt(3)
	if x.Rank() != 3 || w.Rank() != 3 || w.Type.Shape[1] != 1 || w.Type.Shape[2] < 1 {
		c.Fail("operands 0 (input) and 1 (weight) are %v and %v, want [batch, channels, length] and [channels, 1, k]", x.Type, w.Type)
	}
	batch, channels, back := x.Type.Shape[0], x.Type.Shape[1], w.Type.Shape[2]-1
	state := []int64{batch, channels, back}
	if past != nil && !slices.Equal(past.Type.Shape, state) {
		c.Fail("operand 3 (past_state) is %v, want shape %s", past.Type, graph.ShapeString(state))
	}
	before := past
	if past == nil {
		before = c.expand(lower.Scalar(x.Type.DType, 0), state)
	}
	all := c.Emit(&graph.Concat{Axis: 2}, before, x)
	one, zero := []int64{1}, []int64{0}
	y := c.Emit(&graph.Conv{Strides: one, Dilations: one, PadsBegin: zero, PadsEnd: zero, Group: channels}, all, w, bias)
	switch a := c.Str("activation"); a {
	case "none", "":
	case "silu", "swish":
		wide := c.wide(y)
		s := c.Emit(&graph.Unary{Fn: graph.Sigmoid}, wide)
		y = c.cast(c.Emit(&graph.Binary{Fn: graph.Mul}, wide, s), y.Type.DType)
	default:
		c.Fail("attribute \"activation\" is %q, want none, silu or swish", a)
	}
	out := []*lower.Value{y, nil}
	if c.Wants(1) {
		op := whole(all)
		op.Start[2], op.Size[2] = x.Type.Shape[2], back
		out[1] = c.Emit(op, all)
	}
	return out
}

// wide returns a float in single precision, or in double precision if it is
// that already.
func (c *call) wide(x *lower.Value) *lower.Value { return c.cast(x, c.wideType(x.Type.DType)) }

// wideType is the type in which wide computes what is of type t.
func (c *call) wideType(t graph.DType) graph.DType {
	if t == graph.F16 || t == graph.BF16 {
		return graph.F32
	}
	return t
}
