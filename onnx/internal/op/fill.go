package op

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// fillOps repeat elements or put others in their place by where they are.
var fillOps = map[string]definition{
	"Tile":    takes("input:any repeats:int64").since(1, tileAxis).taking("input:any tiles:numbers axis:numbers").since(6, tile),
	"Trilu":   takes("input:any k:int64").since(14, trilu, "upper=1"),
	"EyeLike": takes("input:any").since(9, eyeLike, "dtype=0 k=0"),
	"Shrink":  takes("input:numbers").since(9, shrink, "bias=0.0 lambd=0.5"),
}

// tileAxis is Tile-1, which repeats along one axis.
func tileAxis(c *call) []*lower.Value {
	x := c.In(0)
	c.In(1)
	c.In(2)
	repeats := make([]int64, x.Rank())
	for i := range repeats {
		repeats[i] = 1
	}
	repeats[c.Axis(c.knownInt(2, "axis"), x.Rank())] = c.knownInt(1, "tiles")
	return lower.One(c.tile(x, repeats))
}

func tile(c *call) []*lower.Value {
	if by := c.In(1); by.Rank() == 1 && c.MayDecide(by) {
		return lower.One(c.tileBy(c.In(0), by))
	}
	return lower.One(c.tile(c.In(0), c.RequireKnownInts(1, "repeats")))
}

func (c *call) tile(x *lower.Value, repeats []int64) *lower.Value {
	if int64(len(repeats)) != x.Rank() {
		c.Fail("operand 1 (repeats) is %s, want a number for each axis of %v", graph.ShapeString(repeats), x.Type)
	}
	// Every repeated axis is split in two, of which the first is stretched.
	var split, stretched, joined []int64
	for i, d := range x.Type.Shape {
		n := repeats[i]
		if n < 0 || n >= graph.MaxTensorBytes || d > 0 && n > math.MaxInt64/d {
			c.Fail("operand 1 (repeats) is %s, want numbers from 0 on that leave %v a tensor of less than 2^40 bytes", graph.ShapeString(repeats), x.Type)
		}
		if n != 1 {
			split, stretched = append(split, 1), append(stretched, n)
		}
		split, stretched = append(split, d), append(stretched, d)
		joined = append(joined, n*d)
	}
	if len(split) > graph.MaxRank {
		c.Unsupported("use several Tile operators", "repeating more than %d axes of %v", graph.MaxRank-len(x.Type.Shape), x.Type)
	}
	y := c.expand(c.Emit(&graph.Reshape{Shape: split}, x), stretched)
	return c.Emit(&graph.Reshape{Shape: joined}, y)
}

// compareDiagonals returns, for each place of a matrix, how its distance above
// the main diagonal compares with k.
func (c *call) compareDiagonals(fn graph.BinaryFn, rows, columns int64, k *lower.Value) *lower.Value {
	// No k beyond the matrix makes a difference, but one could overflow.
	k = c.Emit(&graph.Clip{}, k, lower.Scalar(graph.I64, float64(-rows)), lower.Scalar(graph.I64, float64(columns)))
	start := c.Emit(&graph.Binary{Fn: graph.Add}, c.along(c.counting(rows), 0, 2), k)
	return c.Emit(&graph.Binary{Fn: fn}, c.along(c.counting(columns), 1, 2), start)
}

func trilu(c *call) []*lower.Value {
	x, k := c.In(0), c.Opt(1)
	n := x.Rank()
	if n < 2 {
		c.Fail("operand 0 is %v, want at least 2 dimensions", x.Type)
	}
	if k == nil {
		k = lower.Scalar(graph.I64, 0)
	} else if k.Type.DType != graph.I64 || k.Type.Elements() != 1 {
		c.Fail("operand 1 (k) is %v, want one int64", k.Type)
	}
	kept := graph.LessEqual
	if c.Bool("upper") {
		kept = graph.GreaterEqual
	}
	mask := c.compareDiagonals(kept, x.Type.Shape[n-2], x.Type.Shape[n-1], c.Emit(&graph.Reshape{}, k))
	return lower.One(c.Emit(&graph.Where{}, mask, x, lower.Scalar(x.Type.DType, 0)))
}

func eyeLike(c *call) []*lower.Value {
	x := c.In(0)
	if x.Rank() != 2 {
		c.Fail("operand 0 is %v, want 2 dimensions", x.Type)
	}
	t := c.dtypeOf("dtype", x.Type.DType)
	k := lower.KnownInts(c.Int("k"))
	k.Type.Shape = nil
	return lower.One(c.cast(c.compareDiagonals(graph.Equal, x.Type.Shape[0], x.Type.Shape[1], k), t))
}

// shrink moves numbers by bias towards zero, and sets those to zero that are
// less than lambd away from it.
func shrink(c *call) []*lower.Value {
	x := c.In(0)
	lambda, bias := c.Float("lambd"), c.Float("bias")
	y, t := x, x.Type.DType
	if t.IsInteger() {
		// The attributes are no integers.
		y, t = c.cast(x, graph.F64), graph.F64
	}
	binary := func(fn graph.BinaryFn, a *lower.Value, b float64) *lower.Value {
		return c.Emit(&graph.Binary{Fn: fn}, a, lower.Scalar(t, b))
	}
	inner := c.Emit(&graph.Where{}, binary(graph.Greater, y, lambda), binary(graph.Sub, y, bias), lower.Scalar(t, 0))
	y = c.Emit(&graph.Where{}, binary(graph.Less, y, -lambda), binary(graph.Add, y, bias), inner)
	return lower.One(c.cast(y, x.Type.DType))
}
