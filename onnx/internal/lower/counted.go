package lower

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// An axis whose size data decides is counted: the tensor has room for the most elements
// that there may be, its bound, and a count says how many there are, an I64 scalar
// that travels with the [Value], not with the tensor. What is behind a count is zero or,
// if the value is dirty, anything that a computation with zeros may give: whatever
// mixes elements along the axis masks it first, and so do outputs.

// leastBound is the least bound of a counted axis: axes of one element broadcast and
// vanish, counted ones never do.
const leastBound = 2

// Counted reports whether v has an axis whose size data decides.
func (v *Value) Counted() bool {
	return v != nil && slices.ContainsFunc(v.counts, func(n *Value) bool { return n != nil })
}

// Count returns how many elements an axis has, nil if it has all of its size.
func (v *Value) Count(axis int64) *Value {
	if int(axis) < len(v.counts) {
		return v.counts[axis]
	}
	return nil
}

// firstCounted returns the first counted axis, -1 if there is none.
func (v *Value) firstCounted() int64 {
	return int64(slices.IndexFunc(v.counts, func(n *Value) bool { return n != nil }))
}

// with returns x with other counts.
func (x *Value) with(counts []*Value, dirty bool) *Value {
	if !slices.ContainsFunc(counts, func(n *Value) bool { return n != nil }) {
		if !x.Counted() {
			return x
		}
		counts, dirty = nil, false
	}
	v := *x
	v.counts, v.dirty = counts, dirty
	return &v
}

// Counting returns x with a count on an axis, behind which is zero unless dirty. One that
// is known cuts x to its size.
func (c *Call) Counting(x *Value, axis int64, count *Value, dirty bool) *Value {
	if count.Known {
		n, _ := count.Ints()
		return c.take(x, axis, min(max(n[0], 0), x.Type.Shape[axis]))
	}
	counts := fullCounts(x)
	counts[axis] = c.CountOf(count, x.Type.Shape[axis])
	return x.with(counts, dirty || x.dirty)
}

// CountOf returns a count of at most bound: a scalar, with what is known of it. Values that are given
// the same one are known to have as many elements as each other.
func (c *Call) CountOf(count *Value, bound int64) *Value {
	n := c.scalar(count)
	if e := n.Elements()[0]; !n.Known && (e.Low < 0 || e.High > bound) {
		n = n.Within(max(0, e.Low), min(e.High, bound))
	}
	return n
}

// Plain returns v without its counts.
func (v *Value) Plain() *Value { return plain(v) }

// Take returns the first n elements of an axis, which zeros follow if there are fewer.
func (c *Call) Take(x *Value, axis, n int64) *Value { return c.take(x, axis, n) }

// Pair makes an axis of each of two operands the same: as many elements with the same count.
func (c *Call) Pair(a *Value, axisA int64, b *Value, axisB int64) (*Value, *Value) {
	return c.pair(a, axisA, b, axisB)
}

// Uncounted returns x with all of an axis, what is behind its count included.
func (x *Value) Uncounted(axis int64) *Value {
	counts := slices.Clone(x.counts)
	if int(axis) < len(counts) {
		counts[axis] = nil
	}
	return x.with(counts, x.dirty)
}

// take returns the first n elements of an axis, of which there may be more or less.
func (c *Call) take(x *Value, axis, n int64) *Value {
	size := x.Type.Shape[axis]
	if n == size {
		return x
	}
	counts, dirty := x.counts, x.dirty
	plain := x.with(nil, false)
	shape := slices.Clone(x.Type.Shape)
	var y *Value
	if n < size {
		shape[axis] = n
		y = c.Emit(&graph.Slice{Start: make([]int64, len(shape)), Size: shape, Step: slices.Repeat([]int64{1}, len(shape))}, plain)
	} else {
		op := &graph.Pad{Before: make([]int64, len(shape)), After: make([]int64, len(shape)), Mode: graph.PadConstant}
		op.After[axis] = n - size
		y = c.Emit(op, plain, Scalar(x.Type.DType, 0))
	}
	return y.with(counts, dirty)
}

// scalar gives a value of one element no dimensions.
func (c *Call) scalar(v *Value) *Value {
	if v.Rank() == 0 {
		return v
	}
	return c.Emit(&graph.Reshape{Shape: []int64{}}, v)
}

// Binary applies a binary function.
func (c *Call) Binary(fn graph.BinaryFn, a, b *Value) *Value {
	return c.Emit(&graph.Binary{Fn: fn}, a, b)
}

// Int returns a known I64 scalar.
func Int(n int64) *Value {
	v := KnownInts(n)
	v.Type.Shape = nil
	return v
}

// Positions returns 0, 1 … along an axis of a tensor of the given rank.
func (c *Call) Positions(n, axis, rank int64) *Value {
	c.Makes(8 * n)
	list := make([]int64, n)
	for i := range list {
		list[i] = int64(i)
	}
	v := KnownInts(list...)
	v.Type.Shape = slices.Repeat([]int64{1}, int(rank))
	v.Type.Shape[axis] = n
	return v
}

// within returns, for the places of an axis, whether they are before the count of x.
func (c *Call) within(x *Value, axis int64) *Value {
	return c.Binary(graph.Less, c.Positions(x.Type.Shape[axis], axis, x.Rank()), x.counts[axis])
}

// Masked returns x with fill behind the counts of axes, all counted ones if none are named,
// which it does not count any more then.
func (c *Call) Masked(x *Value, fill *Value, axes ...int64) *Value {
	y := c.filled(x, fill, axes)
	for _, a := range axes {
		y = y.Uncounted(a)
	}
	return y
}

// filled is Masked that leaves the counts.
func (c *Call) filled(x *Value, fill *Value, axes []int64) *Value {
	var mask *Value
	for a := range x.Rank() {
		if x.Count(a) == nil || len(axes) > 0 && !slices.Contains(axes, a) {
			continue
		}
		m := c.within(x, a)
		if mask != nil {
			m = c.Binary(graph.And, mask, m)
		}
		mask = m
	}
	if mask == nil {
		return x
	}
	y := c.Emit(&graph.Where{}, mask, x.with(nil, false), fill)
	return y.with(x.counts, true)
}

// Clean returns x with zeros behind its counts.
func (c *Call) Clean(x *Value) *Value {
	if !x.Counted() || !x.dirty {
		return x
	}
	y := c.filled(x, Scalar(x.Type.DType, 0), nil)
	return y.with(x.counts, false)
}

// Check makes the program end with a message unless cond, one bool, is true.
func (c *Call) Check(cond *Value, format string, args ...any) {
	message := c.env.where(step{c.node, c.index}) + ": " + fmt.Sprintf(format, args...)
	if !cond.Known {
		c.check(cond, true, message)
	} else if cond.Data[0] == 0 {
		c.Fail("%s", fmt.Sprintf(format, args...))
	}
}

// same makes the program end unless two counts are the same.
func (c *Call) same(a, b *Value, axis int64) {
	if a != b && (a.tensor == graph.None || a.tensor != b.tensor) {
		c.Check(c.Binary(graph.Equal, a, b), "data gives axis %d of its operands different numbers of elements, want as many", axis)
	}
}

// Refuse ends the lowering because an operand is counted along an axis where the operator
// can't honour it.
func (c *Call) Refuse(x *Value, axis int64, why string) {
	name := x.Name
	if name == "" {
		name = "an operand"
	} else {
		name = fmt.Sprintf("operand %q", name)
	}
	c.Unsupported(hintCounted, "axis %d of %s has as many elements as data decides (%d at most), %s", axis, name, x.Type.Shape[axis], why)
}

const hintCounted = "end the model before this node, or take a fixed number of elements with TopK first"

// Bound returns the largest size of an axis of result i that data decides: what the options
// give for the result, or for the symbol that the model declares for the axis, and
// natural, what follows from the operands (below 0: nothing does), if that is less.
func (c *Call) Bound(i int, axis, natural int64) int64 {
	names := c.boundNames(i, axis)
	for _, n := range names {
		if most, ok := c.l.opts.Max[n]; ok && n != "" {
			c.l.usedMax[n] = true
			if natural < 0 || most < natural {
				natural = most
			}
			break
		}
	}
	if natural < 0 {
		c.unbounded(names)
	}
	return max(natural, leastBound)
}

// MayDecide reports whether the value of an operand that decides sizes of results, a number or a list of them, may be
// left to run time: it is not known, and comes from sizes that data decides or from inputs, but is no matter of
// a loop's iteration, which is known where the loop is written out. From then on it and its like are what decides.
func (c *Call) MayDecide(v *Value) bool {
	if v.Known || v.Elements() == nil || v.Rank() > 1 || !v.bounded() && (standsIn(v) || inLoop(v) || len(inputsOf(v)) == 0) {
		return false
	}
	c.deciding = append(c.deciding, v)
	return true
}

// bounded reports whether something is known of each element of v.
func (v *Value) bounded() bool {
	return !slices.ContainsFunc(v.Elements(), func(e Element) bool { return e.High >= graph.MaxTensorBytes })
}

// unbounded ends the lowering because nothing says how much there may be of a result.
func (c *Call) unbounded(names []string) {
	var ins []string
	deciding := c.inputs
	switch {
	case c.deciding != nil:
		deciding = c.deciding
	case c.node.OpType == "Loop": // how often it runs
		deciding = deciding[:min(2, len(deciding))]
	}
	for _, v := range deciding {
		if v == nil || v.Known {
			continue
		}
		if standsIn(v) {
			panic(failure{errPoisoned})
		}
		ins = append(ins, inputsOf(v)...)
	}
	slices.Sort(ins)
	panic(failure{&need{"", slices.Compact(ins), names[len(names)-1]}})
}

// AtMost makes the program end if a count is more than the bound of an axis of result i.
func (c *Call) AtMost(i int, count *Value, bound int64) {
	if c.high(count) <= bound {
		return
	}
	name := ""
	if i < len(c.node.Outputs) {
		name = c.node.Outputs[i]
	}
	c.Check(c.Binary(graph.LessEqual, count, Int(bound)), "data makes more elements of its result than the %d that it was compiled for: compile the model for more, with --max %s=N", bound, name)
}

// high returns the most that a scalar may be, by what is known of it.
func (c *Call) high(v *Value) int64 { return v.Elements()[0].High }

// checkCounted refuses operands with counted axes unless the operator honours counts.
func (c *Call) checkCounted() {
	if canonicalDomain(c.node.Domain) == "" && c.l.counted[c.node.OpType] {
		return
	}
	c.countedOnly(c.inputs)
}

// Bounded reports whether the options bound an axis of result i.
func (c *Call) Bounded(i int, axis int64) bool {
	for _, n := range c.boundNames(i, axis) {
		if _, ok := c.l.opts.Max[n]; ok && n != "" {
			return true
		}
	}
	return false
}

// boundNames are the names by which the options can bound an axis of result i.
func (c *Call) boundNames(i int, axis int64) []string {
	name := ""
	if i < len(c.node.Outputs) {
		name = c.node.Outputs[i]
	}
	names := []string{name}
	if v, ok := c.l.infos[name]; ok && int(axis) < len(v.Dims) && v.Dims[axis].Symbol != "" {
		names = append(names, v.Dims[axis].Symbol)
	}
	return names
}
