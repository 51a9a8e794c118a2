package lower

import (
	"fmt"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// plain returns v without its counts.
func plain(v *Value) *Value {
	if v == nil {
		return nil
	}
	return v.with(nil, false)
}

func plains(in []*Value) []*Value {
	out := make([]*Value, len(in))
	for i, v := range in {
		out[i] = plain(v)
	}
	return out
}

// emitCounted applies an operator to operands of which some have counted axes: it masks what
// would be mixed and says which axes of the results are counted.
func (c *Call) emitCounted(op graph.Op, want []bool, in []*Value) []*Value {
	x := in[0]
	switch o := op.(type) {
	case *graph.Unary:
		return c.alike(op, want, in, !keepsZero[o.Fn])
	case *graph.Cast, *graph.Quantize, *graph.Dequantize:
		_, moved := op.(*graph.Cast)
		return c.alike(op, want, in, !moved)
	case *graph.Clip:
		return c.alike(op, want, in, true)
	case *graph.BitCast:
		return c.alike(op, want, in, false)
	case *graph.Binary, *graph.Where, *graph.Mod, *graph.Bitwise:
		return c.broadcast(op, want, in)
	case *graph.Transpose:
		counts := make([]*Value, len(o.Perm))
		for i, p := range o.Perm {
			counts[i] = x.Count(p)
		}
		return One(c.Emit(op, plain(x)).with(counts, x.dirty))
	case *graph.Reshape:
		return One(c.reshaped(o, x))
	case *graph.Expand:
		return One(c.expanded(o, x))
	case *graph.Concat:
		return One(c.joined(o, in))
	case *graph.Slice:
		for a := range x.Rank() {
			if x.Count(a) != nil && (o.Start[a] != 0 || o.Step[a] != 1 || o.Size[a] != x.Type.Shape[a]) {
				c.Refuse(x, a, "but a part of fixed size is taken of it")
			}
		}
		return One(c.Emit(op, plain(x)).with(x.counts, x.dirty))
	case *graph.Pad:
		for a := range x.Rank() {
			if x.Count(a) != nil && (o.Before[a] != 0 || o.After[a] != 0) {
				c.Refuse(x, a, "and can't be padded")
			}
		}
		c.countedOnly(in, 0)
		return One(c.Emit(op, plains(in)...).with(x.counts, true))
	case *graph.Reduce:
		return One(c.reduced(o, x))
	case *graph.Softmax:
		y := c.filled(x, Scalar(x.Type.DType, math.Inf(-1)), []int64{o.Axis})
		return One(c.Emit(op, plain(y)).with(x.counts, true))
	case *graph.ArgMax:
		return One(c.extreme(o, x))
	case *graph.TopK:
		if n := x.Count(o.Axis); n != nil {
			c.Check(c.Binary(graph.GreaterEqual, n, Int(o.K)), "%d elements are wanted of an axis to which data gives fewer", o.K)
			x = c.Masked(x, c.Last(x.Type.DType, o.Least), o.Axis)
		}
		out := c.EmitN(op, want, plain(x))
		for i, y := range out {
			if y != nil {
				out[i] = y.with(x.counts, true)
			}
		}
		return out
	case *graph.Cumulate:
		fill := 0.0
		if o.Fn == graph.CumulateProd {
			fill = 1
		}
		y := x
		if o.Reverse {
			y = c.filled(x, Scalar(x.Type.DType, fill), []int64{o.Axis})
		}
		return One(c.Emit(op, plain(y)).with(x.counts, true))
	case *graph.OneHot:
		c.countedOnly(in, 0)
		counts := slices.Insert(fullCounts(x), int(o.Axis), nil)
		return One(c.Emit(op, plains(in)...).with(counts, true))
	case *graph.NonZero:
		return c.EmitN(op, want, c.Masked(x, Scalar(graph.Bool, 0), c.countedAxes(x)...))
	case *graph.Gather:
		return One(c.gathered(o, x, in[1]))
	case *graph.GatherElements:
		idx := c.indices(in[1], x, o.Axis)
		return One(c.Emit(op, plain(x), plain(idx)).with(idx.counts, true))
	case *graph.GatherND:
		return One(c.gatheredSlices(o, x, in[1]))
	case *graph.ScatterElements, *graph.ScatterND:
		return One(c.scattered(op, in))
	case *graph.MatMul:
		return One(c.multiplied(in[0], in[1]))
	case *graph.Gemm:
		return One(c.gemm(o, in))
	case *graph.LayerNorm, *graph.RMSNorm:
		return c.normalised(op, want, in)
	case *graph.RoiAlign:
		c.countedOnly(in, 1, 2)
		rois, batches := c.pair(c.Clean(in[1]), 0, c.Clean(in[2]), 0)
		c.rowsOnly(rois)
		return One(c.Emit(op, x, plain(rois), plain(batches)).with(leading(rois), true))
	case *graph.MaxRoiPool:
		c.countedOnly(in, 1)
		c.rowsOnly(in[1])
		return One(c.Emit(op, x, plain(c.Clean(in[1]))).with(leading(in[1]), true))
	case *graph.Conv, *graph.ConvTranspose, *graph.IntegerConv, *graph.MaxPool, *graph.AveragePool, *graph.LpPool, *graph.Resize, *graph.BatchNorm, *graph.GroupNorm, *graph.LRN:
		// Samples of a batch do not meet.
		c.countedOnly(in, 0)
		c.rowsOnly(x)
		if r, ok := op.(*graph.Resize); ok && r.Sizes[0] != x.Type.Shape[0] {
			c.Refuse(x, 0, fmt.Sprintf("but %d are wanted", r.Sizes[0]))
		}
		out := c.EmitN(op, want, plains(in)...)
		for i, y := range out {
			if y != nil {
				out[i] = y.with(leading(x), true)
			}
		}
		return out
	}
	for _, v := range in {
		if v.Counted() {
			c.Refuse(v, v.firstCounted(), "which operator "+c.node.OpType+" can't take")
		}
	}
	panic("unreachable")
}

// keepsZero are the functions of which that of zero is zero.
var keepsZero = map[graph.UnaryFn]bool{
	graph.Abs: true, graph.Neg: true, graph.Sign: true, graph.Floor: true, graph.Ceil: true, graph.Round: true, graph.Sqrt: true, graph.Relu: true, graph.LeakyRelu: true, graph.Tanh: true,
}

// countedOnly refuses counted operands but those at the given places.
func (c *Call) countedOnly(in []*Value, at ...int) {
	for i, v := range in {
		if v.Counted() && !slices.Contains(at, i) {
			c.Refuse(v, v.firstCounted(), fmt.Sprintf("which operator %s can't take there", c.node.OpType))
		}
	}
}

// rowsOnly refuses counted axes but the first.
func (c *Call) rowsOnly(x *Value) {
	for a := int64(1); a < x.Rank(); a++ {
		if x.Count(a) != nil {
			c.Refuse(x, a, "and operator "+c.node.OpType+" mixes its elements")
		}
	}
}

// leading is the counts of a tensor of which only the first axis is counted.
func leading(x *Value) []*Value { return []*Value{x.Count(0)} }

// fullCounts returns x's counts, one for each axis.
func fullCounts(x *Value) []*Value {
	counts := make([]*Value, x.Rank())
	copy(counts, x.counts)
	return counts
}

func (c *Call) countedAxes(x *Value) (axes []int64) {
	for a := range x.Rank() {
		if x.Count(a) != nil {
			axes = append(axes, a)
		}
	}
	return axes
}

// alike applies an operator whose results have the axes of operand 0.
func (c *Call) alike(op graph.Op, want []bool, in []*Value, dirties bool) []*Value {
	c.countedOnly(in, 0)
	out := c.EmitN(op, want, plains(in)...)
	for i, y := range out {
		if y != nil {
			out[i] = y.with(in[0].counts, in[0].dirty || dirties)
		}
	}
	return out
}

// align makes axes of operands the same, one of each: as many elements with one count, which it
// returns, nil for a fixed size. axisOf says which axis of an operand it is, below 0 none. An
// axis of 1 may stay where it broadcasts.
func (c *Call) align(in []*Value, broadcasts bool, axisOf func(v *Value) int64) *Value {
	var count *Value
	least := int64(math.MaxInt64)
	fixed := int64(-1)
	for _, v := range in {
		if v == nil {
			continue
		}
		a := axisOf(v)
		if a < 0 || broadcasts && v.Count(a) == nil && v.Type.Shape[a] == 1 {
			continue
		}
		if n := v.Count(a); n == nil {
			fixed = v.Type.Shape[a]
		} else {
			if count == nil {
				count = n
			}
			c.same(count, n, a)
		}
		least = min(least, v.Type.Shape[a])
	}
	if count == nil {
		return nil
	}
	if fixed >= 0 {
		if fixed > least {
			for _, v := range in {
				if a := axisOf(v); v != nil && a >= 0 && v.Count(a) != nil {
					c.Refuse(v, a, fmt.Sprintf("but %d are wanted", fixed))
				}
			}
		}
		c.Check(c.Binary(graph.Equal, count, Int(fixed)), "an operand has as many elements along an axis as data decides, but the other one has %d: want as many", fixed)
	}
	for i, v := range in {
		if v == nil {
			continue
		}
		if a := axisOf(v); a >= 0 && (v.Count(a) != nil || !broadcasts || v.Type.Shape[a] != 1) {
			v = c.take(v, a, least)
			if fixed >= 0 {
				v = v.Uncounted(a)
			}
			in[i] = v
		}
	}
	if fixed >= 0 {
		return nil
	}
	return count
}

// pair aligns one axis of each of two operands.
func (c *Call) pair(a *Value, axisA int64, b *Value, axisB int64) (*Value, *Value) {
	in := []*Value{a, b}
	axis := map[*Value]int64{a: axisA, b: axisB}
	if a == b {
		return a, b
	}
	c.align(in, false, func(v *Value) int64 { return axis[v] })
	return in[0], in[1]
}

// broadcast applies an operator on operands that broadcast.
func (c *Call) broadcast(op graph.Op, want []bool, in []*Value) []*Value {
	in = slices.Clone(in)
	rank := int64(0)
	dirty := true
	if b, ok := op.(*graph.Binary); ok {
		dirty = b.Fn != graph.Add && b.Fn != graph.Sub && b.Fn != graph.Mul && b.Fn != graph.And && b.Fn != graph.Or
	}
	for _, v := range in {
		rank = max(rank, v.Rank())
	}
	counts := make([]*Value, rank)
	for a := range rank {
		counts[a] = c.align(in, true, func(v *Value) int64 { return a - rank + v.Rank() })
	}
	for _, v := range in {
		dirty = dirty || v.dirty
		for a, n := range counts {
			if at := int64(a) - rank + v.Rank(); n != nil && (at < 0 || v.Count(at) == nil) {
				dirty = true
			}
		}
	}
	return []*Value{c.EmitN(op, want, plains(in)...)[0].with(counts, dirty)}
}

// reshaped maps counted axes to those of another shape: an axis stays, or the first of axes that
// are joined or split counts for all.
func (c *Call) reshaped(o *graph.Reshape, x *Value) *Value {
	from, to := x.Type.Shape, o.Shape
	counts := make([]*Value, len(to))
	for i, j := 0, 0; i < len(from) || j < len(to); {
		// A group of axes of either shape that have the same elements.
		i0, j0 := i, j
		m, n := int64(1), int64(1)
		if i < len(from) {
			m, i = from[i], i+1
		}
		if j < len(to) {
			n, j = to[j], j+1
		}
		for m != n {
			if m < n && i < len(from) {
				m, i = m*from[i], i+1
			} else if j < len(to) {
				n, j = n*to[j], j+1
			} else if i < len(from) {
				m, i = m*from[i], i+1
			} else {
				break
			}
		}
		first := func(shape []int64, lo, hi int) int {
			for k := lo; k < hi; k++ {
				if shape[k] != 1 {
					return k
				}
			}
			return lo
		}
		for k := i0; k < i; k++ {
			n := x.Count(int64(k))
			if n == nil {
				continue
			}
			f := first(from, i0, i)
			t := first(to, j0, j)
			if k != f || t >= j {
				c.Refuse(x, int64(k), fmt.Sprintf("and its elements do not lie together in the shape %s", graph.ShapeString(to)))
			}
			for l := k + 1; l < i; l++ {
				if x.Count(int64(l)) != nil {
					c.Refuse(x, int64(l), fmt.Sprintf("and its elements do not lie together in the shape %s", graph.ShapeString(to)))
				}
			}
			rest := func(shape []int64, lo, hi int) int64 {
				return graph.TensorType{Shape: shape[lo:hi]}.Elements()
			}
			counts[t] = c.rescaled(n, rest(from, k+1, i), rest(to, t+1, j))
		}
	}
	return c.Emit(o, plain(x)).with(counts, x.dirty)
}

// rescaled returns count·times/parts, which must be whole.
func (c *Call) rescaled(count *Value, times, parts int64) *Value {
	if times%parts == 0 {
		times, parts = times/parts, 1
	} else if parts%times == 0 {
		times, parts = 1, parts/times
	}
	n := count
	if times != 1 {
		n = c.Binary(graph.Mul, n, Int(times))
	}
	if parts == 1 {
		return n
	}
	whole := c.Binary(graph.Div, n, Int(parts))
	c.Check(c.Binary(graph.Equal, c.Binary(graph.Mul, whole, Int(parts)), n), "as many elements as data decides are divided in rows of %d, but they are no multiple of it", parts)
	return whole
}

func (c *Call) expanded(o *graph.Expand, x *Value) *Value {
	counts := make([]*Value, len(o.Shape))
	shift := len(o.Shape) - int(x.Rank())
	for a := range x.Rank() {
		n := x.Count(a)
		if counts[shift+int(a)] = n; n != nil && o.Shape[shift+int(a)] != x.Type.Shape[a] {
			c.Refuse(x, a, fmt.Sprintf("but the shape %s is wanted", graph.ShapeString(o.Shape)))
		}
	}
	return c.Emit(o, plain(x)).with(counts, x.dirty)
}

// joined concatenates. Where a part with a count stands before another one, what is behind its
// count is taken out again.
func (c *Call) joined(o *graph.Concat, in []*Value) *Value {
	in = slices.Clone(in)
	counts := make([]*Value, in[0].Rank())
	dirty := false
	for a := range in[0].Rank() {
		if a != o.Axis {
			counts[a] = c.align(in, false, func(*Value) int64 { return a })
		}
	}
	total, gaps, size := Int(0), false, int64(0)
	starts := make([]*Value, len(in))
	base := make([]int64, len(in))
	for i, v := range in {
		dirty = dirty || v.dirty
		starts[i], base[i] = total, size
		n := v.Count(o.Axis)
		if n == nil {
			n = Int(v.Type.Shape[o.Axis])
		} else if i+1 < len(in) {
			gaps = true
		}
		total = c.Binary(graph.Add, total, n)
		size += v.Type.Shape[o.Axis]
	}
	y := c.Emit(o, plains(in)...)
	if !total.Known {
		counts[o.Axis] = total
	}
	if gaps {
		bound := c.Bound(0, o.Axis, size)
		c.AtMost(0, total, bound)
		at := c.Positions(bound, 0, 1)
		from := c.within1(at, total)
		idx := Scalar(graph.I64, 0)
		for i := len(in) - 1; i >= 0; i-- {
			moved := at
			if i > 0 {
				moved = c.Binary(graph.Add, c.Binary(graph.Sub, at, starts[i]), Int(base[i]))
			}
			if i == len(in)-1 {
				idx = c.Emit(&graph.Where{}, from, moved, idx)
				continue
			}
			idx = c.Emit(&graph.Where{}, c.within1(at, starts[i+1]), moved, idx)
		}
		y, dirty = c.Emit(&graph.Gather{Axis: o.Axis}, y, idx), true
	}
	return y.with(counts, dirty)
}

func (c *Call) within1(at, count *Value) *Value { return c.Binary(graph.Less, at, count) }
