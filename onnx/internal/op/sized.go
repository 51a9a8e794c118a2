package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// What follows makes results whose sizes are data: tensors of the largest size with counts.

// decided reports whether a shape is data: it makes axes of sizes that data decides.
func (c *call) decided(shape *lower.Value) bool { return shape.Rank() == 1 && c.MayDecide(shape) }

// follows reports whether each number of a shape is known or comes from such a size.
func (c *call) follows(shape *lower.Value) bool {
	for _, e := range shape.Elements() {
		if e.High >= graph.MaxTensorBytes || e.Low < 0 && e.High < 0 && !e.Known() {
			return false
		}
	}
	return true
}

// most returns the bound of axis i of result 0, whose size is element i of a shape, and that
// element; it is nil if it is known.
func (c *call) most(shape *lower.Value, i int) (int64, *lower.Value) {
	e := shape.Elements()[i]
	if e.Known() {
		return e.Low, nil
	}
	natural := e.High
	if natural >= graph.MaxTensorBytes {
		natural = -1
	}
	bound := c.Bound(0, int64(i), natural)
	n := c.At(shape, i)
	c.AtMost(0, n, bound)
	if e.Low < 0 {
		c.Check(c.Binary(graph.GreaterEqual, n, lower.Int(0)), "size %d of its result is negative", i)
	}
	return bound, c.CountOf(n, bound)
}

// reshapeBy is Reshape to a shape of which data decides a part.
func (c *call) reshapeBy(x, shape *lower.Value, allowZero bool) *lower.Value {
	elements := shape.Elements()
	want, counts := make([]int64, len(elements)), make([]*lower.Value, len(elements))
	free := -1
	for i, e := range elements {
		if e.Known() {
			want[i] = e.Low
			continue
		}
		// The size of an axis that is counted already is a number of it.
		n := c.At(shape, i)
		want[i], counts[i] = e.High, n
		for a := range x.Rank() {
			if x.Count(a) == n {
				want[i] = x.Type.Shape[a]
			}
		}
		if want[i] >= graph.MaxTensorBytes {
			want[i], _ = c.most(shape, i)
		}
		free = i
	}
	rest, dynamic := int64(1), 0
	for i, n := range want {
		switch {
		case n == -1:
			dynamic = 2
		case n == 0 && !allowZero && i < len(x.Type.Shape):
			n = x.Type.Shape[i]
		}
		if counts[i] != nil {
			dynamic++
		} else if n > 0 {
			rest *= n
		}
	}
	// One that is alone is what is left.
	if n := x.Type.Elements(); dynamic == 1 && free >= 0 && rest > 0 && n%rest == 0 {
		want[free] = n / rest
	}
	y := c.reshape(x, want, allowZero)
	for i, n := range counts {
		if n != nil {
			have := c.size(y, int64(i))
			if have != n {
				c.Check(c.Binary(graph.Equal, have, n), "the size of axis %d that data asks for is not what its operand has elements for", i)
			}
		}
	}
	return y
}

// expandBy is Expand to a shape of which data decides a part.
func (c *call) expandBy(x, to *lower.Value) *lower.Value {
	elements := to.Elements()
	rank := max(x.Rank(), int64(len(elements)))
	shape, counts := make([]int64, rank), make([]*lower.Value, rank)
	if pad := rank - x.Rank(); pad > 0 {
		own := slices.Concat(slices.Repeat([]int64{1}, int(pad)), x.Type.Shape)
		x = c.Emit(&graph.Reshape{Shape: own}, x)
	}
	for a := range rank {
		shape[a] = x.Type.Shape[a]
		i := int(a - (rank - int64(len(elements))))
		if i < 0 {
			continue
		}
		if x.Count(a) == nil && x.Type.Shape[a] == 1 {
			if shape[a], counts[a] = c.most(to, i); shape[a] < 0 {
				c.Fail("operand 1 (shape) has the dimension %d, want no negative one", shape[a])
			}
			continue
		}
		if e := elements[i]; e.Known() && (e.Low == 1 || e.Low == shape[a] && x.Count(a) == nil) {
			continue
		}
		n, have := c.At(to, i), c.size(x, a)
		if n != have {
			fits := c.Binary(graph.Or, c.Binary(graph.Equal, n, have), c.Binary(graph.Equal, n, lower.Int(1)))
			c.Check(fits, "the size of axis %d that data asks for is neither 1 nor that of its operand", a)
		}
	}
	y := c.expand(x, shape)
	for a, n := range counts {
		if n != nil {
			y = c.Counting(y, int64(a), n, true)
		}
	}
	return y
}

// rangeBy is Range of data.
func (c *call) rangeBy() *lower.Value {
	start, limit, delta := c.one(0), c.one(1), c.one(2)
	t := start.Type.DType
	natural := int64(-1)
	if s, l, d := start.Elements(), limit.Elements(), delta.Elements(); d != nil && d[0].Known() {
		from, to, step := s[0].Low, l[0].High, d[0].Low
		if step < 0 {
			from, to, step = l[0].Low, s[0].High, -step
		}
		if step > 0 && from > -graph.MaxTensorBytes && to < graph.MaxTensorBytes {
			natural = max(0, (to-from+step-1)/step)
		}
	}
	bound := c.Bound(0, 0, natural)
	var n *lower.Value
	if e := delta.Elements(); t != graph.I64 || e == nil || e[0].Low != 1 || e[0].High != 1 {
		wide := func(v *lower.Value) *lower.Value { return c.cast(v, graph.F64) }
		c.Check(c.Emit(&graph.Unary{Fn: graph.Not}, c.Binary(graph.Equal, delta, lower.Scalar(t, 0))), "operand 2 (delta) is 0")
		steps := c.Emit(&graph.Unary{Fn: graph.Ceil}, c.Binary(graph.Div, c.Binary(graph.Sub, wide(limit), wide(start)), wide(delta)))
		n = c.cast(c.Emit(&graph.Clip{}, steps, lower.Scalar(graph.F64, 0), lower.Scalar(graph.F64, 1<<40)), graph.I64)
		if natural >= 0 {
			n = n.Within(0, natural)
		}
	} else {
		n = c.Binary(graph.Max, c.Binary(graph.Sub, limit, start), lower.Int(0))
	}
	c.AtMost(0, n, bound)
	// Elements are computed as they are where all is known.
	via := graph.I64
	if t.IsFloat() {
		via = graph.F64
	}
	at := c.cast(c.Positions(bound, 0, 1), via)
	y := c.Binary(graph.Add, c.cast(start, via), c.Binary(graph.Mul, at, c.cast(delta, via)))
	return c.Counting(c.cast(y, t), 0, n, true)
}

// one is operand i without dimensions.
func (c *call) one(i int) *lower.Value {
	v := c.In(i)
	if v.Rank() == 0 {
		return v
	}
	return c.Emit(&graph.Reshape{Shape: []int64{}}, v)
}

// topKBy is TopK of as many elements as data says, or of an axis with a count.
func (c *call) topKBy(k *lower.Value, largest bool) []*lower.Value {
	if k.Type.DType != graph.I64 || k.Type.Elements() != 1 {
		c.Fail("operand 1 (K) is %v, want one int64", k.Type)
	}
	x := c.wide(c.In(0))
	axis := c.Axis(c.Int("axis"), x.Rank())
	i := 0
	if !c.Wants(0) {
		i = 1
	}
	size := x.Type.Shape[axis]
	bound := c.Bound(i, axis, min(size, max(0, k.Elements()[0].High)))
	n := c.At(k, 0)
	have := c.size(x, axis)
	if k.Elements()[0].Low < 0 {
		c.Check(c.Binary(graph.GreaterEqual, n, lower.Int(0)), "operand 1 (K) is negative")
	}
	if have != n && (x.Count(axis) != nil || k.Elements()[0].High > size) {
		c.Check(c.Binary(graph.LessEqual, n, have), "operand 1 (K) is more than axis %d has elements", axis)
	}
	c.AtMost(i, n, bound)
	if x.Count(axis) != nil {
		x = c.Masked(x, c.Last(x.Type.DType, !largest), axis)
	}
	out := c.EmitN(&graph.TopK{Axis: axis, K: min(bound, size), Least: !largest}, []bool{c.Wants(0), c.Wants(1)}, x)
	n = c.CountOf(n, bound)
	for i, y := range out {
		if y != nil {
			out[i] = c.Counting(c.Take(y, axis, bound), axis, n, true)
		}
	}
	if out[0] != nil {
		out[0] = c.cast(out[0], c.In(0).Type.DType)
	}
	return out
}

// sliceBy is Slice from or to places that data decides, or of axes with counts.
func (c *call) sliceBy(x *lower.Value) *lower.Value {
	starts, ends := c.In(1), c.In(2)
	if a, s := c.Opt(3), c.Opt(4); a != nil && !a.Known || s != nil && !s.Known {
		if c.mayAll(starts, ends, a, s) {
			return c.sliceAlong(x, starts, ends, a, s)
		}
	}
	axes, axesGiven := c.KnownInts(3, "axes")
	steps, stepsGiven := c.KnownInts(4, "steps")
	n := int(starts.Type.Elements())
	if starts.Rank() != 1 || ends.Rank() != 1 || ends.Type.Elements() != int64(n) || axesGiven && len(axes) != n || stepsGiven && len(steps) != n || int64(n) > x.Rank() {
		c.Fail("starts and ends are %v and %v, axes and steps have %d and %d numbers, want as many each and at most one for each axis of %v", starts.Type, ends.Type, len(axes), len(steps), x.Type)
	}
	if axesGiven {
		c.Axes(axes, x.Rank()) // refuses axes named twice
	}
	for i := range n {
		axis, step := int64(i), int64(1)
		if axesGiven {
			axis = c.Axis(axes[i], x.Rank())
		}
		if stepsGiven {
			step = steps[i]
		}
		if step == 0 {
			c.Fail("the step of axis %d is 0", axis)
		}
		s, e := starts.Elements()[i], ends.Elements()[i]
		if s.Known() && e.Known() && x.Count(axis) == nil {
			op := whole(x)
			op.Start[axis], op.Size[axis], op.Step[axis] = window(s.Low, e.Low, step, x.Type.Shape[axis])
			x = c.Emit(op, x)
			continue
		}
		x = c.part(x, axis, step, c.At(starts, i), c.At(ends, i))
	}
	return x
}

// part takes every step-th element of an axis from start to end, numbers as in Slice.
func (c *call) part(x *lower.Value, axis, step int64, start, end *lower.Value) *lower.Value {
	size := c.size(x, axis)
	zero := lower.Int(0)
	// place moves a number into the axis.
	place := func(v *lower.Value, low, high *lower.Value) *lower.Value {
		switch e := v.Elements()[0]; {
		case e.Known() && e.Low == 0 && step > 0:
			return v
		case e.Low < 0:
			v = c.Emit(&graph.Where{}, c.Binary(graph.Less, v, zero), c.Binary(graph.Add, v, size), v)
			v = c.Binary(graph.Max, v, low)
		}
		return c.Binary(graph.Min, v, high)
	}
	var n *lower.Value
	bound := x.Type.Shape[axis]
	if step > 0 {
		start, end = place(start, zero, size), place(end, zero, size)
		if e := start.Elements()[0]; e.Known() && e.Low == 0 && step == 1 {
			// What is taken lies where it was. Of all of it this is nothing.
			e := end.Elements()[0]
			bound = c.Bound(0, axis, min(bound, e.High))
			c.AtMost(0, end, bound)
			return c.Counting(c.Take(x.Uncounted(axis), axis, bound), axis, end, true)
		}
		n = c.Binary(graph.Max, c.Binary(graph.Sub, end, start), zero)
	} else {
		last := c.Binary(graph.Sub, size, lower.Int(1))
		start, end = place(start, zero, last), place(end, lower.Int(-1), last)
		n = c.Binary(graph.Max, c.Binary(graph.Sub, start, end), zero)
	}
	stride := max(step, -step)
	if step != 1 && step != -1 {
		n = c.Binary(graph.Div, c.Binary(graph.Add, n, lower.Int(stride-1)), lower.Int(stride))
	}
	most := (bound-1)/stride + 1
	if e := n.Elements()[0]; e.High > most || e.Low < 0 {
		n = n.Within(0, most)
	}
	bound = c.Bound(0, axis, min(most, n.Elements()[0].High))
	c.AtMost(0, n, bound)
	at := c.Binary(graph.Add, c.Binary(graph.Mul, c.Positions(bound, 0, 1), lower.Int(step)), start)
	at = c.Counting(at, 0, n, true)
	if x.Count(axis) != nil {
		x = x.Uncounted(axis) // places are within the count
	}
	return c.Emit(&graph.Gather{Axis: axis}, x, at)
}
