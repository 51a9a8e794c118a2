package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
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

func gatherElements(c *call) []*value {
	x := c.in(0)
	return one(c.emit(&graph.GatherElements{Axis: c.axis(c.int("axis"), x.rank())}, x, c.in(1)))
}

func gatherND(c *call) []*value {
	return one(c.emit(&graph.GatherND{BatchDims: c.int("batch_dims")}, c.in(0), c.in(1))) // batch_dims from version 12 on
}

// scatterFn reads attribute reduction, which came with version 16.
func (c *call) scatterFn() graph.ScatterFn {
	if !c.has("reduction") {
		return graph.ScatterNone
	}
	return graph.ScatterFn(c.str("reduction"))
}

func scatterElements(c *call) []*value {
	x := c.in(0)
	op := &graph.ScatterElements{Axis: c.axis(c.int("axis"), x.rank()), Fn: c.scatterFn()}
	return one(c.emit(op, x, c.in(1), c.in(2)))
}

func scatterND(c *call) []*value {
	return one(c.emit(&graph.ScatterND{Fn: c.scatterFn()}, c.in(0), c.in(1), c.in(2)))
}

// oneHotPositive is OneHot-9, to which an index below zero is out of range.
func oneHotPositive(c *call) []*value {
	depth := c.depth()
	idx := c.positions(c.in(0))
	zero, beyond := scalar(idx.typ.DType, 0), scalar(idx.typ.DType, float64(depth))
	idx = c.emit(&graph.Where{}, c.emit(&graph.Binary{Fn: graph.Less}, idx, zero), beyond, idx)
	return one(c.oneHot(idx, depth))
}

func oneHot(c *call) []*value { return one(c.oneHot(c.positions(c.in(0)), c.depth())) }

func (c *call) oneHot(idx *value, depth int64) *value {
	op := &graph.OneHot{Axis: c.axis(c.int("axis"), idx.rank()+1), Depth: depth}
	return c.emit(op, idx, c.in(2).constant())
}

// depth is operand depth, which may be of any numeric type.
func (c *call) depth() int64 {
	c.in(1)
	return c.knownInt(1, "depth")
}

// knownInt returns operand i, one number that must be known now.
func (c *call) knownInt(i int, what string) int64 {
	v := c.known(i, what)
	if v.typ.Elements() != 1 {
		c.fail("operand %d (%s) is %v, want one number", i, what, v.typ)
	}
	list, err := c.cast(v, graph.I64).ints()
	if err != nil {
		c.fail("operand %d (%s): %w", i, what, err)
	}
	return list[0]
}

// positions makes indices of any numeric type int32 or int64.
func (c *call) positions(idx *value) *value {
	if idx.typ.DType == graph.I32 {
		return idx
	}
	return c.cast(idx, graph.I64)
}

// counting returns 0, 1 … n-1.
func (c *call) counting(n int64) *value {
	return c.sequence(graph.I64, float64(n), func(i int64) []byte { return encodeInt(graph.I64, i) })
}

// along gives v's elements to an axis of a tensor of rank n whose other axes
// are 1.
func (c *call) along(v *value, axis, n int64) *value {
	shape := slices.Repeat([]int64{1}, int(n))
	shape[axis] = v.typ.Elements()
	return c.emit(&graph.Reshape{Shape: shape}, v)
}

// tuples returns, for every place of a tensor of the given shape, its
// coordinates, with that on axis replaced by the one that at has there; at
// broadcasts to shape.
func (c *call) tuples(shape []int64, axis int64, at *value) *value {
	n := int64(len(shape))
	parts := make([]*value, n)
	column := append(slices.Clone(shape), 1)
	for i := range n {
		v := at
		if i != axis {
			v = c.along(c.counting(shape[i]), i, n)
		}
		parts[i] = c.emit(&graph.Reshape{Shape: column}, c.expand(v, shape))
	}
	return c.emit(&graph.Concat{Axis: n}, parts...)
}

func reverseSequence(c *call) []*value {
	x, lengths := c.in(0), c.cast(c.in(1), graph.I64)
	batch, time := c.int("batch_axis"), c.int("time_axis")
	if x.rank() < 2 || min(batch, time) != 0 || max(batch, time) != 1 {
		c.fail("attributes \"batch_axis\" and \"time_axis\" are %d and %d, want 0 and 1 or 1 and 0, and operand 0 of 2 dimensions or more, not %v", batch, time, x.typ)
	}
	if !slices.Equal(lengths.typ.Shape, x.typ.Shape[batch:batch+1]) {
		c.fail("operand 1 (sequence_lens) is %v, want one length for each of the %d sequences of %v", lengths.typ, x.typ.Shape[batch], x.typ)
	}
	// Step t of a sequence comes from its step length-1-t, or stays beyond.
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	t := c.along(c.counting(x.typ.Shape[time]), time, 2)
	n := c.along(lengths, batch, 2)
	mirrored := binary(graph.Sub, binary(graph.Sub, n, scalar(graph.I64, 1)), t)
	from := c.emit(&graph.Where{}, binary(graph.Less, t, n), mirrored, t)
	return one(c.emit(&graph.GatherND{}, x, c.tuples(x.typ.Shape[:2], time, from)))
}

func tensorScatter(c *call) []*value {
	x, update, start := c.in(0), c.in(1), c.opt(2)
	axis := c.axis(c.int("axis"), x.rank())
	if axis == 0 || update.rank() != x.rank() {
		c.fail("operands are %v and %v and the axis is %d, want equal ranks and an axis after that of the batch", x.typ, update.typ, axis)
	}
	for i, d := range update.typ.Shape {
		if n := x.typ.Shape[i]; d != n && (int64(i) != axis || d > n) {
			c.fail("operand 1 (update) is %v, want the shape of operand 0, %v, or less on axis %d", update.typ, x.typ, axis)
		}
	}
	shape := update.typ.Shape[:axis+1]
	at := c.along(c.counting(shape[axis]), axis, axis+1)
	if start != nil {
		if !slices.Equal(start.typ.Shape, shape[:1]) {
			c.fail("operand 2 (write_indices) is %v, want one index for each of the batch of %d", start.typ, shape[0])
		}
		at = c.emit(&graph.Binary{Fn: graph.Add}, at, c.along(c.cast(start, graph.I64), 0, axis+1))
	}
	switch mode := c.str("mode"); mode {
	case "linear":
	case "circular":
		at = c.emit(&graph.Mod{}, at, scalar(graph.I64, float64(x.typ.Shape[axis])))
	default:
		c.fail("attribute \"mode\" is %q, want linear or circular", mode)
	}
	return one(c.emit(&graph.ScatterND{Fn: graph.ScatterNone}, x, c.tuples(shape, axis, at), update))
}
