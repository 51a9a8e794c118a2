package onnx

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// fillOps repeat elements or put others in their place by where they are.
var fillOps = map[string]definition{
	"Tile":    takes("input:any repeats:int64").since(1, tileAxis).taking("input:any tiles:numbers axis:numbers").since(6, tile),
	"Trilu":   takes("input:any k:int64").since(14, trilu, "upper=1"),
	"EyeLike": takes("input:any").since(9, eyeLike, "dtype=0 k=0"),
	"Shrink":  takes("input:numbers").since(9, shrink, "bias=0.0 lambd=0.5"),
}

// tileAxis is Tile-1, which repeats along one axis.
func tileAxis(c *call) []*value {
	x := c.in(0)
	c.in(1)
	c.in(2)
	repeats := make([]int64, x.rank())
	for i := range repeats {
		repeats[i] = 1
	}
	repeats[c.axis(c.knownInt(2, "axis"), x.rank())] = c.knownInt(1, "tiles")
	return one(c.tile(x, repeats))
}

func tile(c *call) []*value { return one(c.tile(c.in(0), c.requireKnownInts(1, "repeats"))) }

func (c *call) tile(x *value, repeats []int64) *value {
	if int64(len(repeats)) != x.rank() {
		c.fail("operand 1 (repeats) is %s, want a number for each axis of %v", graph.ShapeString(repeats), x.typ)
	}
	// Every repeated axis is split in two, of which the first is stretched.
	var split, stretched, joined []int64
	for i, d := range x.typ.Shape {
		n := repeats[i]
		if n < 0 || n >= graph.MaxTensorBytes || d > 0 && n > math.MaxInt64/d {
			c.fail("operand 1 (repeats) is %s, want numbers from 0 on that leave %v a tensor of less than 2^40 bytes", graph.ShapeString(repeats), x.typ)
		}
		if n != 1 {
			split, stretched = append(split, 1), append(stretched, n)
		}
		split, stretched = append(split, d), append(stretched, d)
		joined = append(joined, n*d)
	}
	if len(split) > graph.MaxRank {
		c.unsupported("use several Tile operators", "repeating more than %d axes of %v", graph.MaxRank-len(x.typ.Shape), x.typ)
	}
	y := c.expand(c.emit(&graph.Reshape{Shape: split}, x), stretched)
	return c.emit(&graph.Reshape{Shape: joined}, y)
}

// compareDiagonals returns, for each place of a matrix, how its distance above
// the main diagonal compares with k.
func (c *call) compareDiagonals(fn graph.BinaryFn, rows, columns int64, k *value) *value {
	// No k beyond the matrix makes a difference, but one could overflow.
	k = c.emit(&graph.Clip{}, k, scalar(graph.I64, float64(-rows)), scalar(graph.I64, float64(columns)))
	start := c.emit(&graph.Binary{Fn: graph.Add}, c.along(c.counting(rows), 0, 2), k)
	return c.emit(&graph.Binary{Fn: fn}, c.along(c.counting(columns), 1, 2), start)
}

func trilu(c *call) []*value {
	x, k := c.in(0), c.opt(1)
	n := x.rank()
	if n < 2 {
		c.fail("operand 0 is %v, want at least 2 dimensions", x.typ)
	}
	if k == nil {
		k = scalar(graph.I64, 0)
	} else if k.typ.DType != graph.I64 || k.typ.Elements() != 1 {
		c.fail("operand 1 (k) is %v, want one int64", k.typ)
	}
	kept := graph.LessEqual
	if c.bool("upper") {
		kept = graph.GreaterEqual
	}
	mask := c.compareDiagonals(kept, x.typ.Shape[n-2], x.typ.Shape[n-1], c.emit(&graph.Reshape{}, k))
	return one(c.emit(&graph.Where{}, mask, x, scalar(x.typ.DType, 0)))
}

func eyeLike(c *call) []*value {
	x := c.in(0)
	if x.rank() != 2 {
		c.fail("operand 0 is %v, want 2 dimensions", x.typ)
	}
	t := c.dtypeOf("dtype", x.typ.DType)
	k := knownInts(c.int("k"))
	k.typ.Shape = nil
	return one(c.cast(c.compareDiagonals(graph.Equal, x.typ.Shape[0], x.typ.Shape[1], k), t))
}

// shrink moves numbers by bias towards zero, and sets those to zero that are
// less than lambd away from it.
func shrink(c *call) []*value {
	x := c.in(0)
	lambda, bias := c.float("lambd"), c.float("bias")
	y, t := x, x.typ.DType
	if t.IsInteger() {
		// The attributes are no integers.
		y, t = c.cast(x, graph.F64), graph.F64
	}
	binary := func(fn graph.BinaryFn, a *value, b float64) *value {
		return c.emit(&graph.Binary{Fn: fn}, a, scalar(t, b))
	}
	inner := c.emit(&graph.Where{}, binary(graph.Greater, y, lambda), binary(graph.Sub, y, bias), scalar(t, 0))
	y = c.emit(&graph.Where{}, binary(graph.Less, y, -lambda), binary(graph.Add, y, bias), inner)
	return one(c.cast(y, x.typ.DType))
}
