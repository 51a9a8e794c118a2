package onnx

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// lpOps are norms of windows and axes, and what undoes a pooling.
var lpOps = map[string]definition{
	"LpPool":          takes("X:floats").since(1, lpPool(true), "auto_pad=NOTSET ceil_mode=0 dilations:ints kernel_shape:ints! p=2.0 pads:ints strides:ints").since(2, lpPool(false), "auto_pad=NOTSET ceil_mode=0 dilations:ints kernel_shape:ints! p=2 pads:ints strides:ints"),
	"GlobalLpPool":    takes("X:floats").since(1, globalLpPool(true), "p=2.0").since(2, globalLpPool(false), "p=2"),
	"LpNormalization": takes("input:floats").since(1, lpNormalization, "axis=-1 p=2"),
	"MaxUnpool":       takes("X:floats I:int64 output_shape:int64").since(9, maxUnpool, "auto_pad=NOTSET ceil_mode=0 dilations:ints kernel_shape:ints! pads:ints strides:ints"),
}

// order reads attribute p, which was a float in version 1.
func (c *call) order(fraction bool) float64 {
	p := 2.0
	if fraction {
		p = c.float("p")
	} else {
		p = float64(c.int("p"))
	}
	if !(p > 0) || math.IsInf(p, 0) {
		c.fail("attribute \"p\" is %v, want a number above 0", p)
	}
	return p
}

func lpPool(fraction bool) lowerFunc {
	return func(c *call) []*value {
		x := c.in(0)
		win := c.windows(x, c.requireInts("kernel_shape"))
		op := &graph.LpPool{
			Kernel: win.kernel, Strides: win.strides, Dilations: win.dilations, PadsBegin: win.begin, PadsEnd: win.end,
			Ceil: win.ceil, P: c.order(fraction),
		}
		return one(c.emit(op, x))
	}
}

func globalLpPool(fraction bool) lowerFunc {
	return func(c *call) []*value {
		x := c.in(0)
		p := c.order(fraction)
		if x.rank() < 2 {
			c.fail("operand 0 is %v, want at least 2 dimensions: batch and channels", x.typ)
		}
		reduce := &graph.Reduce{Fn: graph.ReduceL2, KeepDims: true}
		for a := int64(2); a < x.rank(); a++ {
			reduce.Axes = append(reduce.Axes, a)
		}
		switch p {
		case 1:
			reduce.Fn = graph.ReduceL1
			fallthrough
		case 2:
			return one(c.emit(reduce, x))
		}
		reduce.Fn = graph.ReduceSum
		wide := c.wide(x)
		pow := func(v *value, e float64) *value {
			return c.emit(&graph.Binary{Fn: graph.Pow}, v, scalar(wide.typ.DType, e))
		}
		y := c.emit(reduce, pow(c.emit(&graph.Unary{Fn: graph.Abs}, wide), p))
		return one(c.cast(pow(y, 1/p), x.typ.DType))
	}
}

// lpNormalization divides by a norm. The elements are divided by the greatest
// of them first, so that no square overflows.
func lpNormalization(c *call) []*value {
	x := c.in(0)
	axis := c.axis(c.int("axis"), x.rank())
	fn := graph.ReduceL2
	switch p := c.int("p"); p {
	case 1:
		fn = graph.ReduceL1
	case 2:
	default:
		c.fail("attribute \"p\" is %d, want 1 or 2", p)
	}
	if x.typ.Elements() == 0 {
		return one(x)
	}
	v := c.wide(x)
	t := v.typ.DType
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	reduce := func(fn graph.ReduceFn, v *value) *value {
		return c.emit(&graph.Reduce{Fn: fn, Axes: []int64{axis}, KeepDims: true}, v)
	}
	most := reduce(graph.ReduceMax, c.emit(&graph.Unary{Fn: graph.Abs}, v))
	usable := binary(graph.And, binary(graph.Greater, most, scalar(t, 0)), binary(graph.Less, most, scalar(t, math.Inf(1))))
	v = binary(graph.Div, v, c.emit(&graph.Where{}, usable, most, scalar(t, 1)))
	norm := reduce(fn, v)
	// A norm of zero leaves zeros.
	norm = c.emit(&graph.Where{}, binary(graph.Equal, norm, scalar(t, 0)), scalar(t, 1), norm)
	return one(c.cast(binary(graph.Div, v, norm), x.typ.DType))
}

// maxUnpool puts elements back to where MaxPool took them from. The indices
// are those of the shape that the attributes give; if another one is asked for,
// that is cut or filled up with zeros.
func maxUnpool(c *call) []*value {
	x, indices := c.in(0), c.in(1)
	win := c.windows(x, c.requireInts("kernel_shape"))
	shape := slices.Clone(x.typ.Shape)
	for i := range win.kernel {
		shape[2+i] = max(satProduct(shape[2+i]-1, win.strides[i])-win.begin[i]-win.end[i]+win.kernel[i], 0)
	}
	y := c.emit(&graph.MaxUnpool{Shape: shape}, x, indices)
	want, given := c.knownInts(2, "output_shape")
	if !given {
		return one(y)
	}
	if len(want) != len(shape) {
		c.fail("operand 2 (output_shape) is %s, want %d numbers", graph.ShapeString(want), len(shape))
	}
	pad := &graph.Pad{Before: make([]int64, len(shape)), After: make([]int64, len(shape)), Mode: graph.PadConstant}
	for i, d := range want {
		if d < 0 || d >= graph.MaxTensorBytes {
			c.fail("operand 2 (output_shape) is %s, want sizes", graph.ShapeString(want))
		}
		pad.After[i] = d - shape[i]
	}
	if slices.Equal(want, shape) {
		return one(y)
	}
	return one(c.emit(pad, y))
}
