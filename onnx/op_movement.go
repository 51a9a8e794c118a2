package onnx

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// movementOps pick and rearrange elements.
var movementOps = map[string]definition{
	"Transpose": takes("data:any").since(1, transpose, "perm:ints"),
	"Concat":    takes("inputs…:T=any").since(1, concatDefault, "axis=1").since(4, concat, "axis:int!"),
	"Slice":     takes("data:any starts:I=indices ends:I axes:I steps:I").since(1, sliceAttributes, "axes:ints ends:ints! starts:ints!").since(10, sliceOperands),
	"Split":     takes("input:any split:int64").since(1, splitAttribute, "axis=0 split:ints").taking("input:any split:numbers").since(13, splitOperand, "axis=0 num_outputs:int"),
	"Pad":       takes("data:T=any pads:int64 constant_value:T axes:indices").since(1, padAttributes, "mode=constant paddings:ints pads:ints value=0.0").since(11, padOperands, "mode=constant"),
	"Gather":    takes("data:any indices:indices").since(1, gather, "axis=0"),
}

func transpose(c *call) []*value {
	x := c.in(0)
	perm, ok := c.ints("perm")
	if !ok {
		perm = make([]int64, x.rank())
		for i := range perm {
			perm[i] = x.rank() - 1 - int64(i)
		}
	}
	return one(c.emit(&graph.Transpose{Perm: perm}, x))
}

// concatDefault is Concat-1, whose axis has a default.
func concatDefault(c *call) []*value { return c.concat(c.int("axis")) }

func concat(c *call) []*value { return c.concat(c.int("axis")) }

func (c *call) concat(axis int64) []*value {
	all := c.all()
	return one(c.emit(&graph.Concat{Axis: c.axis(axis, all[0].rank())}, all...))
}

func sliceAttributes(c *call) []*value {
	starts, ends := c.requireInts("starts"), c.requireInts("ends")
	axes, given := c.ints("axes")
	return c.slice(c.in(0), starts, ends, axes, nil, given, false)
}

func sliceOperands(c *call) []*value {
	x := c.in(0)
	starts, ends := c.requireKnownInts(1, "starts"), c.requireKnownInts(2, "ends")
	axes, axesGiven := c.knownInts(3, "axes")
	steps, stepsGiven := c.knownInts(4, "steps")
	return c.slice(x, starts, ends, axes, steps, axesGiven, stepsGiven)
}

func (c *call) slice(x *value, starts, ends, axes, steps []int64, axesGiven, stepsGiven bool) []*value {
	if len(ends) != len(starts) || axesGiven && len(axes) != len(starts) || stepsGiven && len(steps) != len(starts) {
		c.fail("starts, ends, axes and steps have %d, %d, %d and %d numbers, want as many each", len(starts), len(ends), len(axes), len(steps))
	}
	if int64(len(starts)) > x.rank() {
		c.fail("starts has %d numbers, want at most one for each axis of %v", len(starts), x.typ)
	}
	if axesGiven {
		c.axes(axes, x.rank()) // refuses axes named twice
	}
	op := whole(x)
	for i := range starts {
		axis := int64(i)
		if axesGiven {
			axis = c.axis(axes[i], x.rank())
		}
		step := int64(1)
		if stepsGiven {
			step = steps[i]
		}
		if step == 0 {
			c.fail("the step of axis %d is 0", axis)
		}
		op.Start[axis], op.Size[axis], op.Step[axis] = window(starts[i], ends[i], step, x.typ.Shape[axis])
	}
	return one(c.emit(op, x))
}

// whole returns a Slice that takes all of x.
func whole(x *value) *graph.Slice {
	op := &graph.Slice{Start: make([]int64, x.rank()), Size: slices.Clone(x.typ.Shape), Step: make([]int64, x.rank())}
	for i := range op.Step {
		op.Step[i] = 1
	}
	return op
}

// window resolves a slice of an axis with dim elements as numpy does: numbers
// below zero count from the end, and both ends are moved into the axis.
func window(start, end, step, dim int64) (first, size, stride int64) {
	if start < 0 {
		start += dim
	}
	if end < 0 {
		end += dim
	}
	if step > 0 {
		start, end = min(max(start, 0), dim), min(max(end, 0), dim)
		if end > start {
			size = (end-start-1)/step + 1
		}
	} else {
		start, end = min(max(start, 0), dim-1), min(max(end, -1), dim-1)
		if start > end {
			size = (start-end-1)/-max(step, -math.MaxInt64) + 1
		}
	}
	if size <= 1 {
		step = 1 // it does not matter, and it may be any number
	}
	return max(start, 0), size, step
}

// splitAttribute is Split up to version 11; version 1 had an operand too.
func splitAttribute(c *call) []*value {
	sizes, ok := c.ints("split")
	if c.opset() < 2 && !ok {
		sizes, ok = c.knownInts(1, "split")
	}
	return c.split(c.in(0), sizes, ok)
}

func splitOperand(c *call) []*value {
	x := c.in(0)
	sizes, ok := c.knownInts(1, "split")
	a := c.attr("num_outputs") // from version 18 on
	if a == nil {
		return c.split(x, sizes, ok)
	}
	n := int64(c.outputs())
	if ok || a.Int != n {
		c.fail("attribute num_outputs is %d, want the number of results, %d, and no operand 1 (split)", a.Int, n)
	}
	// All parts have the size rounded up, except the last ones.
	left := x.typ.Shape[c.axis(c.int("axis"), x.rank())]
	part := (left + n - 1) / n
	for range n {
		size := min(part, left)
		left -= size
		sizes = append(sizes, size)
	}
	return c.split(x, sizes, true)
}

// split cuts x into parts of the given sizes, or else into equal parts.
func (c *call) split(x *value, sizes []int64, given bool) []*value {
	axis := c.axis(c.int("axis"), x.rank())
	dim := x.typ.Shape[axis]
	n := int64(c.outputs())
	if !given {
		if n == 0 || dim%n != 0 {
			c.fail("axis %d of %v can't be split into %d equal parts", axis, x.typ, n)
		}
		sizes = slices.Repeat([]int64{dim / n}, int(n))
	}
	left := dim
	for _, s := range sizes {
		if s < 0 || s > left {
			left = -1
			break
		}
		left -= s
	}
	if left != 0 || int64(len(sizes)) != n {
		c.fail("split is %s for %d results, want sizes that add up to the %d of axis %d of %v", graph.ShapeString(sizes), n, dim, axis, x.typ)
	}
	out := make([]*value, n)
	at := int64(0)
	for i, s := range sizes {
		if c.wants(i) {
			op := whole(x)
			op.Start[axis], op.Size[axis] = at, s
			out[i] = c.emit(op, x)
		}
		at += s
	}
	return out
}

// padAttributes is Pad-1 and Pad-2.
func padAttributes(c *call) []*value {
	x := c.in(0)
	pads, ok := c.ints("pads")
	if !ok {
		pads = c.requireInts("paddings")
	}
	value := scalar(x.typ.DType, c.float("value"))
	return c.pad(x, pads, nil, false, value)
}

func padOperands(c *call) []*value {
	x := c.in(0)
	pads := c.requireKnownInts(1, "pads")
	value := c.opt(2).constant()
	axes, given := c.knownInts(3, "axes") // from version 18 on
	return c.pad(x, pads, axes, given, value)
}

func (c *call) pad(x *value, pads, axes []int64, given bool, fill *value) []*value {
	n := int(x.rank())
	if given {
		n = len(axes)
		c.axes(axes, x.rank()) // refuses axes named twice
	}
	if len(pads) != 2*n {
		c.fail("pads has %d numbers, want 2 for each of %d axes", len(pads), n)
	}
	op := &graph.Pad{Before: make([]int64, x.rank()), After: make([]int64, x.rank()), Mode: graph.PadMode(c.str("mode"))}
	for i := range n {
		axis := int64(i)
		if given {
			axis = c.axis(axes[i], x.rank())
		}
		op.Before[axis], op.After[axis] = pads[i], pads[n+i]
	}
	if op.Mode != graph.PadConstant {
		return one(c.emit(op, x))
	}
	return one(c.emit(op, x, fill))
}

func gather(c *call) []*value {
	x := c.in(0)
	return one(c.emit(&graph.Gather{Axis: c.axis(c.int("axis"), x.rank())}, x, c.in(1)))
}
