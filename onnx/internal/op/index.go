package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// indexOps pick or change elements at places that are data.
var indexOps = map[string]definition{
	"GatherElements":  takes("data:any indices:indices").since(11, gatherElements, "axis=0"),
	"GatherND":        takes("data:any indices:indices").since(11, gatherND, "batch_dims=0"),
	"Scatter":         takes("data:T=any indices:indices updates:T").since(9, scatterElements, "axis=0").droppedIn(11),
	"ScatterElements": takes("data:T=any indices:indices updates:T").since(11, scatterElements, "axis=0 reduction=none"),
	"ScatterND":       takes("data:T=any indices:indices updates:T").since(11, scatterND, "reduction=none"),
	"OneHot":          takes("indices:numbers depth:numbers values:any").since(9, oneHotPositive, "axis=-1").since(11, oneHot, "axis=-1"),
	"ReverseSequence": takes("input:any sequence_lens:indices").since(10, reverseSequence, "batch_axis=1 time_axis=0"),
	"TensorScatter":   takes("past_cache:T=any update:T write_indices:int64").since(24, tensorScatter, "axis=-2 mode=linear"),
}

func gatherElements(c *call) []*lower.Value {
	x := c.In(0)
	return lower.One(c.Emit(&graph.GatherElements{Axis: c.Axis(c.Int("axis"), x.Rank())}, x, c.In(1)))
}

func gatherND(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.GatherND{BatchDims: c.Int("batch_dims")}, c.In(0), c.In(1))) // batch_dims from version 12 on
}

// scatterFn reads attribute reduction, which came with version 16.
func (c *call) scatterFn() graph.ScatterFn {
	if !c.Has("reduction") {
		return graph.ScatterNone
	}
	return graph.ScatterFn(c.Str("reduction"))
}

func scatterElements(c *call) []*lower.Value {
	x := c.In(0)
	op := &graph.ScatterElements{Axis: c.Axis(c.Int("axis"), x.Rank()), Fn: c.scatterFn()}
	return lower.One(c.Emit(op, x, c.In(1), c.In(2)))
}

func scatterND(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.ScatterND{Fn: c.scatterFn()}, c.In(0), c.In(1), c.In(2)))
}

// oneHotPositive is OneHot-9, to which an index below zero is out of range.
func oneHotPositive(c *call) []*lower.Value {
	if c.mayDepth() {
		return lower.One(c.oneHotBy(c.positions(c.In(0)), false))
	}
	depth := c.depth()
	idx := c.positions(c.In(0))
	zero, beyond := lower.Scalar(idx.Type.DType, 0), lower.Scalar(idx.Type.DType, float64(depth))
	idx = c.Emit(&graph.Where{}, c.Emit(&graph.Binary{Fn: graph.Less}, idx, zero), beyond, idx)
	return lower.One(c.oneHot(idx, depth))
}

func oneHot(c *call) []*lower.Value {
	if c.mayDepth() {
		return lower.One(c.oneHotBy(c.positions(c.In(0)), true))
	}
	return lower.One(c.oneHot(c.positions(c.In(0)), c.depth()))
}

func (c *call) oneHot(idx *lower.Value, depth int64) *lower.Value {
	op := &graph.OneHot{Axis: c.Axis(c.Int("axis"), idx.Rank()+1), Depth: depth}
	return c.Emit(op, idx, c.In(2).Constant())
}

// depth is operand depth, which may be of any numeric type.
func (c *call) depth() int64 {
	c.In(1)
	return c.knownInt(1, "depth")
}

// knownInt returns operand i, one number that must be known now.
func (c *call) knownInt(i int, what string) int64 {
	v := c.Known(i, what)
	if v.Type.Elements() != 1 {
		c.Fail("operand %d (%s) is %v, want one number", i, what, v.Type)
	}
	list, err := c.cast(v, graph.I64).Ints()
	if err != nil {
		c.Fail("operand %d (%s): %w", i, what, err)
	}
	return list[0]
}

// positions makes indices of any numeric type int32 or int64.
func (c *call) positions(idx *lower.Value) *lower.Value {
	if idx.Type.DType == graph.I32 {
		return idx
	}
	return c.cast(idx, graph.I64)
}

// counting returns 0, 1 … n-1.
func (c *call) counting(n int64) *lower.Value {
	return c.sequence(graph.I64, float64(n), func(i int64) []byte { return lower.EncodeInt(graph.I64, i) })
}

// along gives v's elements to an axis of a tensor of rank n whose other axes
// are 1.
func (c *call) along(v *lower.Value, axis, n int64) *lower.Value {
	shape := slices.Repeat([]int64{1}, int(n))
	shape[axis] = v.Type.Elements()
	return c.Emit(&graph.Reshape{Shape: shape}, v)
}

// tuples returns, for every place of a tensor of the given shape, its
// coordinates, with that on axis replaced by the one that at has there; at
// broadcasts to shape.
func (c *call) tuples(shape []int64, axis int64, at *lower.Value) *lower.Value {
	n := int64(len(shape))
	parts := make([]*lower.Value, n)
	column := append(slices.Clone(shape), 1)
	for i := range n {
		v := at
		if i != axis {
			v = c.along(c.counting(shape[i]), i, n)
		}
		parts[i] = c.Emit(&graph.Reshape{Shape: column}, c.expand(v, shape))
	}
	return c.Emit(&graph.Concat{Axis: n}, parts...)
}

func reverseSequence(c *call) []*lower.Value {
	x, lengths := c.In(0), c.cast(c.In(1), graph.I64)
	batch, time := c.Int("batch_axis"), c.Int("time_axis")
	if x.Rank() < 2 || min(batch, time) != 0 || max(batch, time) != 1 {
		c.Fail("attributes \"batch_axis\" and \"time_axis\" are %d and %d, want 0 and 1 or 1 and 0, and operand 0 of 2 dimensions or more, not %v", batch, time, x.Type)
	}
	if !slices.Equal(lengths.Type.Shape, x.Type.Shape[batch:batch+1]) {
		c.Fail("operand 1 (sequence_lens) is %v, want one length for each of the %d sequences of %v", lengths.Type, x.Type.Shape[batch], x.Type)
	}
	// Step t of a sequence comes from its step length-1-t, or stays beyond.
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	t := c.along(c.counting(x.Type.Shape[time]), time, 2)
	n := c.along(lengths, batch, 2)
	mirrored := binary(graph.Sub, binary(graph.Sub, n, lower.Scalar(graph.I64, 1)), t)
	from := c.Emit(&graph.Where{}, binary(graph.Less, t, n), mirrored, t)
	return lower.One(c.Emit(&graph.GatherND{}, x, c.tuples(x.Type.Shape[:2], time, from)))
}

func tensorScatter(c *call) []*lower.Value {
	x, update, start := c.In(0), c.In(1), c.Opt(2)
	axis := c.Axis(c.Int("axis"), x.Rank())
	if axis == 0 || update.Rank() != x.Rank() {
		c.Fail("operands are %v and %v and the axis is %d, want equal ranks and an axis after that of the batch", x.Type, update.Type, axis)
	}
	for i, d := range update.Type.Shape {
		if n := x.Type.Shape[i]; d != n && (int64(i) != axis || d > n) {
			c.Fail("operand 1 (update) is %v, want the shape of operand 0, %v, or less on axis %d", update.Type, x.Type, axis)
		}
	}
	shape := update.Type.Shape[:axis+1]
	at := c.along(c.counting(shape[axis]), axis, axis+1)
	if start != nil {
		if !slices.Equal(start.Type.Shape, shape[:1]) {
			c.Fail("operand 2 (write_indices) is %v, want one index for each of the batch of %d", start.Type, shape[0])
		}
		at = c.Emit(&graph.Binary{Fn: graph.Add}, at, c.along(c.cast(start, graph.I64), 0, axis+1))
	}
	switch mode := c.Str("mode"); mode {
	case "linear":
	case "circular":
		at = c.Emit(&graph.Mod{}, at, lower.Scalar(graph.I64, float64(x.Type.Shape[axis])))
	default:
		c.Fail("attribute \"mode\" is %q, want linear or circular", mode)
	}
	return lower.One(c.Emit(&graph.ScatterND{Fn: graph.ScatterNone}, x, c.tuples(shape, axis, at), update))
}
