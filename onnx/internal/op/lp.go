package op

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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
		p = c.Float("p")
	} else {
		p = float64(c.Int("p"))
	}
	if !(p > 0) || math.IsInf(p, 0) {
		c.Fail("attribute \"p\" is %v, want a number above 0", p)
	}
	return p
}

func lpPool(fraction bool) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		win := c.windows(x, c.RequireInts("kernel_shape"))
		op := &graph.LpPool{
			Kernel: win.kernel, Strides: win.strides, Dilations: win.dilations, PadsBegin: win.begin, PadsEnd: win.end,
			Ceil: win.ceil, P: c.order(fraction),
		}
		return lower.One(c.Emit(op, x))
	}
}

func globalLpPool(fraction bool) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		p := c.order(fraction)
		if x.Rank() < 2 {
			c.Fail("operand 0 is %v, want at least 2 dimensions: batch and channels", x.Type)
		}
		reduce := &graph.Reduce{Fn: graph.ReduceL2, KeepDims: true}
		for a := int64(2); a < x.Rank(); a++ {
			reduce.Axes = append(reduce.Axes, a)
		}
		switch p {
		case 1:
			reduce.Fn = graph.ReduceL1
			fallthrough
		case 2:
			return lower.One(c.Emit(reduce, x))
		}
		reduce.Fn = graph.ReduceSum
		wide := c.wide(x)
		pow := func(v *lower.Value, e float64) *lower.Value {
			return c.Emit(&graph.Binary{Fn: graph.Pow}, v, lower.Scalar(wide.Type.DType, e))
		}
		y := c.Emit(reduce, pow(c.Emit(&graph.Unary{Fn: graph.Abs}, wide), p))
		return lower.One(c.cast(pow(y, 1/p), x.Type.DType))
	}
}

// lpNormalization divides by a norm. The elements are divided by the greatest
// of them first, so that no square overflows.
func lpNormalization(c *call) []*lower.Value {
	x := c.In(0)
	axis := c.Axis(c.Int("axis"), x.Rank())
	fn := graph.ReduceL2
	switch p := c.Int("p"); p {
	case 1:
		fn = graph.ReduceL1
	case 2:
	default:
		c.Fail("attribute \"p\" is %d, want 1 or 2", p)
	}
	if x.Type.Elements() == 0 {
		return lower.One(x)
	}
	v := c.wide(x)
	t := v.Type.DType
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	reduce := func(fn graph.ReduceFn, v *lower.Value) *lower.Value {
		return c.Emit(&graph.Reduce{Fn: fn, Axes: []int64{axis}, KeepDims: true}, v)
	}
	most := reduce(graph.ReduceMax, c.Emit(&graph.Unary{Fn: graph.Abs}, v))
	usable := binary(graph.And, binary(graph.Greater, most, lower.Scalar(t, 0)), binary(graph.Less, most, lower.Scalar(t, math.Inf(1))))
	v = binary(graph.Div, v, c.Emit(&graph.Where{}, usable, most, lower.Scalar(t, 1)))
	norm := reduce(fn, v)
	// A norm of zero leaves zeros.
	norm = c.Emit(&graph.Where{}, binary(graph.Equal, norm, lower.Scalar(t, 0)), lower.Scalar(t, 1), norm)
	return lower.One(c.cast(binary(graph.Div, v, norm), x.Type.DType))
}

// maxUnpool puts elements back to where MaxPool took them from. The indices
// are those of the shape that the attributes give; if another one is asked for,
// that is cut or filled up with zeros.
func maxUnpool(c *call) []*lower.Value {
	x, indices := c.In(0), c.In(1)
	win := c.windows(x, c.RequireInts("kernel_shape"))
	shape := slices.Clone(x.Type.Shape)
	for i := range win.kernel {
		shape[2+i] = max(satProduct(shape[2+i]-1, win.strides[i])-win.begin[i]-win.end[i]+win.kernel[i], 0)
	}
	y := c.Emit(&graph.MaxUnpool{Shape: shape}, x, indices)
	want, given := c.KnownInts(2, "output_shape")
	if !given {
		return lower.One(y)
	}
	if len(want) != len(shape) {
		c.Fail("operand 2 (output_shape) is %s, want %d numbers", graph.ShapeString(want), len(shape))
	}
	pad := &graph.Pad{Before: make([]int64, len(shape)), After: make([]int64, len(shape)), Mode: graph.PadConstant}
	for i, d := range want {
		if d < 0 || d >= graph.MaxTensorBytes {
			c.Fail("operand 2 (output_shape) is %s, want sizes", graph.ShapeString(want))
		}
		pad.After[i] = d - shape[i]
	}
	if slices.Equal(want, shape) {
		return lower.One(y)
	}
	return lower.One(c.Emit(pad, y))
}
