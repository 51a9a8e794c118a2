package op

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// What follows moves elements to results of which data decides how large they are.

// mayAll reports whether those of the operands that are given and not known may decide sizes at run time, and the
// others are lists.
func (c *call) mayAll(operands ...*lower.Value) bool {
	for _, v := range operands {
		if v != nil && (v.Rank() != 1 || v.Elements() == nil || !v.Known && !c.MayDecide(v)) {
			return false
		}
	}
	return true
}

// room returns how many elements an axis of result i has room for that has n of them, at most natural (below 0:
// nobody knows), and the count, which is nil where n is known.
func (c *call) room(i int, axis int64, n *lower.Value, natural int64) (int64, *lower.Value) {
	e := n.Elements()[0]
	if e.Known() {
		if e.Low < 0 {
			c.Fail("axis %d of its result has %d elements", axis, e.Low)
		}
		return e.Low, nil
	}
	if e.High < graph.MaxTensorBytes && (natural < 0 || e.High < natural) {
		natural = max(e.High, 0)
	}
	bound := c.Bound(i, axis, natural)
	if e.Low < 0 {
		c.Check(c.Binary(graph.GreaterEqual, n, lower.Int(0)), "axis %d of its result would have fewer elements than none", axis)
	}
	c.AtMost(i, n, bound)
	return bound, c.CountOf(n, bound)
}

// counted gives y a count on an axis, if there is one.
func (c *call) counted(y *lower.Value, axis int64, count *lower.Value) *lower.Value {
	if count == nil {
		return y
	}
	return c.Counting(y, axis, count, true)
}

// relaid is Reshape to a shape that is data: every element is picked by its place. Nothing but --max bounds the sizes
// where there are several, since each of them may have all elements.
func (c *call) relaid(x, shape *lower.Value, allowZero bool) *lower.Value {
	n := int(shape.Type.Elements())
	all := x.Type.Elements()
	zero, one := lower.Int(0), lower.Int(1)
	sizes := make([]*lower.Value, n)
	rest, left, unknown, fixed := one, zero, 0, int64(1)
	for k := range sizes {
		s := c.At(shape, k)
		e := s.Elements()[0]
		switch {
		case e.Known() && e.Low == 0 && allowZero:
			c.Fail("shape has a 0 in place %d, but %v has elements", k, x.Type)
		case e.Low <= 0 && e.High >= 0 && !allowZero:
			same := lower.Int(-2) // an error
			if k < len(x.Type.Shape) {
				same = lower.Int(x.Type.Shape[k])
			}
			s = c.Emit(&graph.Where{}, c.Binary(graph.Equal, s, zero), same, s)
		}
		sizes[k] = s
		if e := s.Elements()[0]; e.Known() && e.Low > 0 {
			fixed *= min(e.Low, all+1)
		} else {
			unknown++
		}
		isLeft := c.Binary(graph.Equal, s, lower.Int(-1))
		left = c.Binary(graph.Add, left, c.cast(isLeft, graph.I64))
		rest = c.Binary(graph.Mul, rest, c.Emit(&graph.Where{}, isLeft, one, c.Emit(&graph.Clip{}, s, lower.Int(-2), lower.Int(all+1))))
		rest = c.Emit(&graph.Clip{}, rest, lower.Int(-all-1), lower.Int(all+1))
	}
	c.Check(c.Binary(graph.LessEqual, left, one), "the shape that data gives has more than one -1")
	// Where there is a -1 it stands for what is left.
	part := c.Binary(graph.Div, lower.Int(all), c.Emit(&graph.Where{}, c.Binary(graph.Equal, rest, zero), one, rest))
	whole := c.Binary(graph.Equal, c.Binary(graph.Mul, part, rest), lower.Int(all))
	exact := c.Binary(graph.Or, c.Binary(graph.Equal, left, one), c.Binary(graph.Equal, rest, lower.Int(all)))
	c.Check(c.Binary(graph.And, whole, exact), "%v can't take the shape that data gives", x.Type)
	to, counts := make([]int64, n), make([]*lower.Value, n)
	index := zero
	for k, s := range sizes {
		if e := s.Elements()[0]; !e.Known() || e.Low < 0 {
			s = c.Emit(&graph.Where{}, c.Binary(graph.Equal, s, lower.Int(-1)), part, s)
		}
		if e := s.Elements()[0]; unknown == 1 && !e.Known() && fixed <= all {
			to[k] = all / fixed // what else could it be
		} else {
			to[k], counts[k] = c.room(0, int64(k), s, -1)
		}
		index = c.Binary(graph.Add, c.Binary(graph.Mul, index, s), c.Positions(to[k], int64(k), int64(n)))
	}
	// What is behind the counts may be anywhere.
	index = c.expand(c.Emit(&graph.Clip{}, index, zero, lower.Int(all-1)), to)
	y := c.Emit(&graph.Gather{}, c.Emit(&graph.Reshape{Shape: []int64{all}}, x), index)
	for k, count := range counts {
		y = c.counted(y, int64(k), count)
	}
	return y
}

// shifted returns n elements of an axis from start on, of which some may lie outside of it: those are fill, or as
// mode says. They are an axis of result i.
func (c *call) shifted(i int, x *lower.Value, axis int64, start, n *lower.Value, mode graph.PadMode, fill *lower.Value) *lower.Value {
	if x.Count(axis) != nil {
		c.Refuse(x, axis, "and can't be padded")
	}
	size := x.Type.Shape[axis]
	if size == 0 {
		if mode != graph.PadConstant {
			c.Fail("axis %d of %v has no elements to pad with", axis, x.Type)
		}
		x = c.Take(x, axis, 1)
	}
	bound, count := c.room(i, axis, n, -1)
	at := c.Binary(graph.Add, c.Positions(bound, 0, 1), start)
	last := lower.Int(max(size-1, 0))
	var inside *lower.Value
	switch mode {
	case graph.PadReflect:
		// There and back again, without repeating the ends.
		at = c.Emit(&graph.Mod{}, at, lower.Int(max(2*(size-1), 1)))
		at = c.Binary(graph.Sub, last, c.Emit(&graph.Unary{Fn: graph.Abs}, c.Binary(graph.Sub, at, last)))
	case graph.PadWrap:
		at = c.Emit(&graph.Mod{}, at, lower.Int(size))
	case graph.PadConstant:
		inside = c.Binary(graph.And, c.Binary(graph.GreaterEqual, at, lower.Int(0)), c.Binary(graph.Less, at, lower.Int(size)))
	}
	y := c.Emit(&graph.Gather{Axis: axis}, x, c.Emit(&graph.Clip{}, at, lower.Int(0), last))
	if inside != nil {
		y = c.Emit(&graph.Where{}, c.along(inside, axis, x.Rank()), y, fill)
	}
	return c.counted(y, axis, count)
}

// padBy is Pad of as many elements as data says.
func (c *call) padBy(x, pads *lower.Value, axes []int64, given bool, fill *lower.Value) *lower.Value {
	n := int(x.Rank())
	if given {
		n = len(axes)
		c.Axes(axes, x.Rank()) // refuses axes named twice
	}
	if pads.Type.Elements() != 2*int64(n) {
		c.Fail("pads has %d numbers, want 2 for each of %d axes", pads.Type.Elements(), n)
	}
	mode := graph.PadMode(c.Str("mode"))
	switch mode {
	case graph.PadConstant, graph.PadReflect, graph.PadEdge, graph.PadWrap:
	default:
		c.Fail("attribute mode is %q, want constant, reflect, edge or wrap", mode)
	}
	if fill == nil {
		fill = lower.Scalar(x.Type.DType, 0)
	}
	fill = c.Emit(&graph.Reshape{Shape: []int64{}}, fill)
	zero := lower.Int(0)
	for i := range n {
		axis := int64(i)
		if given {
			axis = c.Axis(axes[i], x.Rank())
		}
		before, after := c.At(pads, i), c.At(pads, n+i)
		if none := before.Elements()[0]; none.Known() && none.Low == 0 && after.Elements()[0] == none {
			continue
		}
		size := c.Binary(graph.Add, c.Binary(graph.Add, before, after), lower.Int(x.Type.Shape[axis]))
		x = c.shifted(0, x, axis, c.Binary(graph.Sub, zero, before), size, mode, fill)
	}
	return x
}

// centreBy is CenterCropPad to a size that is data.
func (c *call) centreBy(x, shape *lower.Value, axes []int64) *lower.Value {
	for i, a := range axes {
		a = c.Axis(a, x.Rank())
		n := c.At(shape, i)
		start := c.Binary(graph.Div, c.Binary(graph.Sub, lower.Int(x.Type.Shape[a]), n), lower.Int(2))
		x = c.shifted(0, x, a, start, n, graph.PadConstant, lower.Scalar(x.Type.DType, 0))
	}
	return x
}

// tileBy is Tile of as many copies as data says.
func (c *call) tileBy(x, repeats *lower.Value) *lower.Value {
	if repeats.Type.Elements() != x.Rank() {
		c.Fail("operand 1 (repeats) has %d numbers, want one for each axis of %v", repeats.Type.Elements(), x.Type)
	}
	for axis, size := range x.Type.Shape {
		times := c.At(repeats, axis)
		if size == 0 {
			continue
		}
		n := times
		if e := times.Elements()[0]; e.Known() && e.Low == 1 {
			continue
		}
		if size != 1 {
			n = c.Binary(graph.Mul, c.Emit(&graph.Clip{}, times, lower.Int(-1), lower.Int(graph.MaxTensorBytes)), lower.Int(size))
		}
		bound, count := c.room(0, int64(axis), n, -1)
		at := c.Emit(&graph.Mod{}, c.Positions(bound, 0, 1), lower.Int(size))
		x = c.counted(c.Emit(&graph.Gather{Axis: int64(axis)}, x, at), int64(axis), count)
	}
	return x
}

// splitBy is Split into parts of sizes that are data.
func (c *call) splitBy(x, sizes *lower.Value) []*lower.Value {
	axis := c.Axis(c.Int("axis"), x.Rank())
	out := make([]*lower.Value, c.Outputs())
	if sizes.Type.Elements() != int64(len(out)) {
		c.Fail("operand 1 (split) has %d numbers for %d results, want one for each", sizes.Type.Elements(), len(out))
	}
	have, most := c.size(x, axis), x.Type.Shape[axis]
	if x.Count(axis) != nil {
		x = x.Uncounted(axis) // the parts are within the count
	}
	total := lower.Int(0)
	for i := range out {
		n := c.At(sizes, i)
		if n.Elements()[0].Low < 0 {
			c.Check(c.Binary(graph.GreaterEqual, n, lower.Int(0)), "a part of axis %d would have fewer elements than none", axis)
		}
		total = c.Binary(graph.Add, total, c.Emit(&graph.Clip{}, n, lower.Int(0), lower.Int(most+1)))
	}
	c.Check(c.Binary(graph.Equal, total, have), "the sizes that data gives do not add up to the size of axis %d", axis)
	start := lower.Int(0)
	for i := range out {
		n := c.At(sizes, i).Within(0, most)
		bound, count := c.room(i, axis, n, most)
		if c.Wants(i) {
			// The last place is that of elements which there are not.
			at := c.Emit(&graph.Clip{}, c.Binary(graph.Add, c.Positions(bound, 0, 1), start), lower.Int(0), lower.Int(max(most-1, 0)))
			y := x
			if most == 0 {
				y = c.Take(x, axis, 1)
			}
			out[i] = c.counted(c.Emit(&graph.Gather{Axis: axis}, y, at), axis, count)
		}
		start = c.Binary(graph.Add, start, n)
	}
	return out
}

// sliceAlong is Slice whose axes or steps are data, or left out.
func (c *call) sliceAlong(x, starts, ends, axes, steps *lower.Value) *lower.Value {
	n := starts.Type.Elements()
	for i, v := range []*lower.Value{ends, axes, steps} {
		if v != nil && v.Type.Elements() != n {
			c.Fail("operand %d has %d numbers and starts %d, want as many", i+2, v.Type.Elements(), n)
		}
	}
	if n > x.Rank() {
		c.Fail("starts has %d numbers, want at most one for each axis of %v", n, x.Type)
	}
	one := lower.Int(1)
	step := func(i int) *lower.Value {
		if steps == nil {
			return one
		}
		return c.At(steps, i)
	}
	if axes == nil || axes.Known {
		var list []int64
		if axes != nil {
			list, _ = c.KnownInts(3, "axes")
			c.Axes(list, x.Rank()) // refuses axes named twice
		}
		for i := range int(n) {
			axis := int64(i)
			if axes != nil {
				axis = c.Axis(list[i], x.Rank())
			}
			x = c.partBy(x, axis, step(i), c.At(starts, i), c.At(ends, i))
		}
		return x
	}
	rank := x.Rank()
	named := make([]*lower.Value, n) // axes from the start
	for i := range named {
		a := c.At(axes, i)
		c.Check(c.Binary(graph.And, c.Binary(graph.GreaterEqual, a, lower.Int(-rank)), c.Binary(graph.Less, a, lower.Int(rank))), "an axis that data gives is none of the %d", rank)
		named[i] = c.Emit(&graph.Mod{}, a, lower.Int(rank))
		for k := range i {
			c.Check(c.Emit(&graph.Unary{Fn: graph.Not}, c.Binary(graph.Equal, named[k], named[i])), "data names an axis twice")
		}
	}
	for axis := range rank {
		start, end, by := lower.Int(0), lower.Int(math.MaxInt64), one
		for i, a := range named {
			here := c.Binary(graph.Equal, a, lower.Int(axis))
			pick := func(a, b *lower.Value) *lower.Value { return c.Emit(&graph.Where{}, here, a, b) }
			start, end, by = pick(c.At(starts, i), start), pick(c.At(ends, i), end), pick(step(i), by)
		}
		x = c.partBy(x, axis, by, start, end)
	}
	return x
}

// partBy is part with a step that data decides.
func (c *call) partBy(x *lower.Value, axis int64, step, start, end *lower.Value) *lower.Value {
	if e := step.Elements()[0]; e.Known() && e.Low != 0 {
		return c.part(x, axis, e.Low, start, end)
	}
	size, most := c.size(x, axis), x.Type.Shape[axis]
	zero, one := lower.Int(0), lower.Int(1)
	c.Check(c.Emit(&graph.Unary{Fn: graph.Not}, c.Binary(graph.Equal, step, zero)), "the step of axis %d is 0", axis)
	// Longer steps than the axis are all alike.
	step = c.Emit(&graph.Clip{}, step, lower.Int(-most-1), lower.Int(most+1))
	back := c.cast(c.Binary(graph.Less, step, zero), graph.I64)
	high := c.Binary(graph.Sub, size, back)
	place := func(v, low *lower.Value) *lower.Value {
		v = c.Emit(&graph.Where{}, c.Binary(graph.Less, v, zero), c.Binary(graph.Add, v, size), v)
		return c.Binary(graph.Min, c.Binary(graph.Max, v, low), high)
	}
	start, end = place(start, zero), place(end, c.Binary(graph.Sub, zero, back))
	direction := c.Binary(graph.Sub, one, c.Binary(graph.Mul, back, lower.Int(2)))
	stride := c.Binary(graph.Max, c.Binary(graph.Mul, step, direction), one)
	n := c.Binary(graph.Max, c.Binary(graph.Mul, c.Binary(graph.Sub, end, start), direction), zero)
	n = c.Binary(graph.Div, c.Binary(graph.Add, n, c.Binary(graph.Sub, stride, one)), stride).Within(0, most)
	bound, count := c.room(0, axis, n, most)
	at := c.Binary(graph.Add, c.Binary(graph.Mul, c.Positions(bound, 0, 1), step), start)
	at = c.Counting(at, 0, count, true)
	if x.Count(axis) != nil {
		x = x.Uncounted(axis) // places are within the count
	}
	return c.Emit(&graph.Gather{Axis: axis}, x, at)
}

// mayDepth reports whether the depth of a OneHot may be data.
func (c *call) mayDepth() bool {
	depth := c.In(1)
	if depth.Type.Elements() != 1 {
		return false
	}
	return c.MayDecide(depth) || depth.Type.DType.IsFloat() && c.MayDecide(c.cast(depth, graph.I64))
}

// oneHotBy is OneHot of a depth that is data; indices below zero may count from the end.
func (c *call) oneHotBy(idx *lower.Value, fromEnd bool) *lower.Value {
	axis := c.Axis(c.Int("axis"), idx.Rank()+1)
	depth := c.cast(c.one(1), graph.I64)
	bound, count := c.room(0, axis, depth, -1)
	t := idx.Type.DType
	if count != nil {
		zero := lower.Scalar(t, 0)
		if fromEnd {
			idx = c.Emit(&graph.Where{}, c.Binary(graph.Less, idx, zero), c.Binary(graph.Add, idx, c.cast(depth, t)), idx)
		}
		idx = c.Emit(&graph.Where{}, c.Binary(graph.Less, idx, zero), lower.Scalar(t, float64(bound)), idx)
	}
	y := c.Emit(&graph.OneHot{Axis: axis, Depth: bound}, idx, c.In(2).Constant())
	return c.counted(y, axis, count)
}

// windowBy is a window of a size that is data.
func (c *call) windowBy(f cosines, t graph.DType) *lower.Value {
	size := c.cast(c.one(0), graph.I64)
	bound, count := c.room(0, 0, size, -1)
	number := func(v float64) *lower.Value { return lower.Scalar(graph.F64, v) }
	last := c.cast(size, graph.F64)
	if !c.Bool("periodic") {
		last = c.Binary(graph.Sub, last, number(1))
	}
	last = c.Binary(graph.Max, last, number(1)) // a window of one element is like the first of others
	phase := c.Binary(graph.Div, c.Binary(graph.Mul, c.cast(c.Positions(bound, 0, 1), graph.F64), number(2*math.Pi)), last)
	cosine := func(phase *lower.Value, by float64) *lower.Value {
		return c.Binary(graph.Mul, c.Emit(&graph.Unary{Fn: graph.Cos}, phase), number(by))
	}
	y := c.Binary(graph.Sub, number(f[0]), cosine(phase, f[1]))
	if f[2] != 0 {
		y = c.Binary(graph.Add, y, cosine(c.Binary(graph.Mul, phase, number(2)), f[2]))
	}
	return c.counted(c.cast(y, t), 0, count)
}

// list is operand i, one number, as a list.
func (c *call) list(i int) *lower.Value {
	return c.Emit(&graph.Reshape{Shape: []int64{1}}, c.cast(c.In(i), graph.I64))
}

// melBy is MelWeightMatrix of sizes that are data: each weight is computed from the edges of its band.
func (c *call) melBy(t graph.DType) *lower.Value {
	bands, length := c.cast(c.one(0), graph.I64), c.cast(c.one(1), graph.I64)
	zero, one := lower.Int(0), lower.Int(1)
	wide := func(v *lower.Value) *lower.Value { return c.cast(v, graph.F64) }
	f64 := func(v float64) *lower.Value { return lower.Scalar(graph.F64, v) }
	rate := c.cast(c.one(2), graph.I64)
	fine := c.Binary(graph.And, c.Binary(graph.Greater, bands, zero), c.Binary(graph.And, c.Binary(graph.Greater, length, zero), c.Binary(graph.Greater, rate, zero)))
	c.Check(fine, "the bands, the length of the transform and the sample rate have to be 1 or more")
	bins := c.Binary(graph.Add, c.Binary(graph.Div, length, lower.Int(2)), one)
	rows, rowCount := c.room(0, 0, bins, -1)
	columns, columnCount := c.room(0, 1, bands, -1)
	// mel returns where a frequency lies on the scale, in single precision as ONNX's reference.
	mel := func(i int) *lower.Value {
		v := c.Binary(graph.Add, c.Binary(graph.Div, c.cast(c.one(i), graph.F32), lower.Scalar(graph.F32, 700)), lower.Scalar(graph.F32, 1))
		return c.cast(c.Binary(graph.Mul, c.Emit(&graph.Unary{Fn: graph.Log}, wide(v)), f64(2595/math.Ln10)), graph.F32)
	}
	low := mel(3)
	step := wide(c.Binary(graph.Div, c.Binary(graph.Sub, mel(4), low), c.cast(c.Binary(graph.Add, bands, lower.Int(2)), graph.F32)))
	// edge returns the frequency at which the bands begin, or those behind them.
	edge := func(behind int64) *lower.Value {
		at := wide(c.Binary(graph.Add, c.Positions(columns, 1, 2), lower.Int(behind)))
		power := c.Binary(graph.Div, c.Binary(graph.Add, c.Binary(graph.Mul, at, step), wide(low)), f64(2595))
		hertz := c.Binary(graph.Mul, c.Binary(graph.Sub, c.Binary(graph.Pow, f64(10), power), f64(1)), f64(700))
		bin := c.Binary(graph.Div, c.Binary(graph.Mul, wide(c.Binary(graph.Add, length, one)), hertz), wide(rate))
		return c.Emit(&graph.Unary{Fn: graph.Floor}, bin)
	}
	from, middle, to := edge(0), edge(1), edge(2)
	at := wide(c.Positions(rows, 0, 2))
	within := func(low, high *lower.Value) *lower.Value {
		return c.Binary(graph.And, c.Binary(graph.LessEqual, low, at), c.Binary(graph.LessEqual, at, high))
	}
	slope := func(a, b, over, under *lower.Value) *lower.Value {
		return c.Binary(graph.Div, c.Binary(graph.Sub, a, b), c.Binary(graph.Max, c.Binary(graph.Sub, over, under), f64(1)))
	}
	up := c.Emit(&graph.Where{}, c.Binary(graph.Equal, middle, from), f64(1), slope(at, from, middle, from))
	y := c.Emit(&graph.Where{}, within(from, middle), up, f64(0))
	falls := c.Binary(graph.And, within(middle, to), c.Binary(graph.Less, at, to))
	y = c.cast(c.Emit(&graph.Where{}, falls, slope(to, at, to, middle), y), t)
	last := c.Binary(graph.Sub, columnsOr(columnCount, columns), one)
	beyond := c.Emit(&graph.Reshape{Shape: []int64{}}, c.Emit(&graph.Gather{Axis: 1}, to, last))
	first := c.Emit(&graph.Reshape{Shape: []int64{}}, c.Emit(&graph.Gather{Axis: 1}, from, zero))
	c.Check(c.Binary(graph.And, c.Binary(graph.GreaterEqual, first, f64(0)), c.Binary(graph.LessEqual, beyond, wide(bins))), "the bands reach beyond the frequencies that there are")
	return c.counted(c.counted(y, 0, rowCount), 1, columnCount)
}

// columnsOr is a count, or a size where there is none.
func columnsOr(count *lower.Value, size int64) *lower.Value {
	if count != nil {
		return count
	}
	return lower.Int(size)
}
