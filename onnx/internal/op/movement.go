package op

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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

func transpose(c *call) []*lower.Value {
	x := c.In(0)
	perm, ok := c.Ints("perm")
	if !ok {
		perm = make([]int64, x.Rank())
		for i := range perm {
			perm[i] = x.Rank() - 1 - int64(i)
		}
	}
	return lower.One(c.Emit(&graph.Transpose{Perm: perm}, x))
}

// concatDefault is Concat-1, whose axis has a default.
func concatDefault(c *call) []*lower.Value { return c.concat(c.Int("axis")) }

func concat(c *call) []*lower.Value { return c.concat(c.Int("axis")) }

func (c *call) concat(axis int64) []*lower.Value {
	all := c.All()
	return lower.One(c.Emit(&graph.Concat{Axis: c.Axis(axis, all[0].Rank())}, all...))
}

func sliceAttributes(c *call) []*lower.Value {
	starts, ends := c.RequireInts("starts"), c.RequireInts("ends")
	axes, given := c.Ints("axes")
	return c.slice(c.In(0), starts, ends, axes, nil, given, false)
}

func sliceOperands(c *call) []*lower.Value {
	x := c.In(0)
	unknown := func(i int) bool { v := c.Opt(i); return v != nil && !v.Known }
	if unknown(1) || unknown(2) || unknown(3) || unknown(4) || x.Counted() {
		return lower.One(c.sliceBy(x))
	}
	starts, ends := c.RequireKnownInts(1, "starts"), c.RequireKnownInts(2, "ends")
	axes, axesGiven := c.KnownInts(3, "axes")
	steps, stepsGiven := c.KnownInts(4, "steps")
	return c.slice(x, starts, ends, axes, steps, axesGiven, stepsGiven)
}

func (c *call) slice(x *lower.Value, starts, ends, axes, steps []int64, axesGiven, stepsGiven bool) []*lower.Value {
	if len(ends) != len(starts) || axesGiven && len(axes) != len(starts) || stepsGiven && len(steps) != len(starts) {
		c.Fail("starts, ends, axes and steps have %d, %d, %d and %d numbers, want as many each", len(starts), len(ends), len(axes), len(steps))
	}
	if int64(len(starts)) > x.Rank() {
		c.Fail("starts has %d numbers, want at most one for each axis of %v", len(starts), x.Type)
	}
	if axesGiven {
		c.Axes(axes, x.Rank()) // refuses axes named twice
	}
	op := whole(x)
	for i := range starts {
		axis := int64(i)
		if axesGiven {
			axis = c.Axis(axes[i], x.Rank())
		}
		step := int64(1)
		if stepsGiven {
			step = steps[i]
		}
		if step == 0 {
			c.Fail("the step of axis %d is 0", axis)
		}
		op.Start[axis], op.Size[axis], op.Step[axis] = window(starts[i], ends[i], step, x.Type.Shape[axis])
	}
	return lower.One(c.Emit(op, x))
}

// whole returns a Slice that takes all of x.
func whole(x *lower.Value) *graph.Slice {
	op := &graph.Slice{Start: make([]int64, x.Rank()), Size: slices.Clone(x.Type.Shape), Step: make([]int64, x.Rank())}
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
func splitAttribute(c *call) []*lower.Value {
	sizes, ok := c.Ints("split")
	if c.Opset() < 2 && !ok {
		sizes, ok = c.KnownInts(1, "split")
	}
	return c.split(c.In(0), sizes, ok)
}

func splitOperand(c *call) []*lower.Value {
	x := c.In(0)
	if by := c.Opt(1); by != nil && by.Rank() == 1 && c.MayDecide(by) {
		return c.splitBy(x, by)
	}
	sizes, ok := c.KnownInts(1, "split")
	a := c.Attr("num_outputs") // from version 18 on
	if a == nil {
		return c.split(x, sizes, ok)
	}
	n := int64(c.Outputs())
	if ok || a.Int != n {
		c.Fail("attribute num_outputs is %d, want the number of results, %d, and no operand 1 (split)", a.Int, n)
	}
	// All parts have the size rounded up, except the last ones.
	left := x.Type.Shape[c.Axis(c.Int("axis"), x.Rank())]
	part := (left + n - 1) / n
	for range n {
		size := min(part, left)
		left -= size
		sizes = append(sizes, size)
	}
	return c.split(x, sizes, true)
}

// split cuts x into parts of the given sizes, or else into equal parts.
func (c *call) split(x *lower.Value, sizes []int64, given bool) []*lower.Value {
	axis := c.Axis(c.Int("axis"), x.Rank())
	dim := x.Type.Shape[axis]
	n := int64(c.Outputs())
	if !given {
		if n == 0 || dim%n != 0 {
			c.Fail("axis %d of %v can't be split into %d equal parts", axis, x.Type, n)
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
		c.Fail("split is %s for %d results, want sizes that add up to the %d of axis %d of %v", graph.ShapeString(sizes), n, dim, axis, x.Type)
	}
	out := make([]*lower.Value, n)
	at := int64(0)
	for i, s := range sizes {
		if c.Wants(i) {
			op := whole(x)
			op.Start[axis], op.Size[axis] = at, s
			out[i] = c.Emit(op, x)
		}
		at += s
	}
	return out
}

// padAttributes is Pad-1 and Pad-2.
func padAttributes(c *call) []*lower.Value {
	x := c.In(0)
	pads, ok := c.Ints("pads")
	if !ok {
		pads = c.RequireInts("paddings")
	}
	value := lower.Scalar(x.Type.DType, c.Float("value"))
	return c.pad(x, pads, nil, false, value)
}

func padOperands(c *call) []*lower.Value {
	x := c.In(0)
	by := c.In(1)
	value := c.Opt(2).Constant()
	axes, given := c.KnownInts(3, "axes") // from version 18 on
	if by.Rank() == 1 && c.MayDecide(by) {
		return lower.One(c.padBy(x, by, axes, given, value))
	}
	pads := c.RequireKnownInts(1, "pads")
	return c.pad(x, pads, axes, given, value)
}

func (c *call) pad(x *lower.Value, pads, axes []int64, given bool, fill *lower.Value) []*lower.Value {
	n := int(x.Rank())
	if given {
		n = len(axes)
		c.Axes(axes, x.Rank()) // refuses axes named twice
	}
	if len(pads) != 2*n {
		c.Fail("pads has %d numbers, want 2 for each of %d axes", len(pads), n)
	}
	op := &graph.Pad{Before: make([]int64, x.Rank()), After: make([]int64, x.Rank()), Mode: graph.PadMode(c.Str("mode"))}
	for i := range n {
		axis := int64(i)
		if given {
			axis = c.Axis(axes[i], x.Rank())
		}
		op.Before[axis], op.After[axis] = pads[i], pads[n+i]
	}
	if op.Mode != graph.PadConstant {
		return lower.One(c.Emit(op, x))
	}
	return lower.One(c.Emit(op, x, fill))
}

func gather(c *call) []*lower.Value {
	x := c.In(0)
	return lower.One(c.Emit(&graph.Gather{Axis: c.Axis(c.Int("axis"), x.Rank())}, x, c.In(1)))
}
