package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// shapeOps change or ask for shapes and leave elements where they are.
var shapeOps = map[string]definition{
	"Reshape":   takes("data:any shape:int64").since(1, reshapeAttribute, "shape:ints!").since(5, reshape, "allowzero=0"),
	"Flatten":   takes("input:any").since(1, flatten, "axis=1"),
	"Squeeze":   takes("data:any axes:int64").since(1, squeezeAttribute, "axes:ints").since(13, squeezeOperand),
	"Unsqueeze": takes("data:any axes:int64").since(1, unsqueezeAttribute, "axes:ints!").since(13, unsqueezeOperand),
	"Expand":    takes("input:any shape:int64").since(8, expand),
	"Identity":  takes("input:any").since(1, identity),
	"Shape":     takes("data:any").since(1, shapeOf, "end:int start=0"),
	"Size":      takes("data:any").since(1, sizeOf),
}

func reshapeAttribute(c *call) []*lower.Value {
	return lower.One(c.reshape(c.In(0), c.RequireInts("shape"), false))
}

func reshape(c *call) []*lower.Value {
	allowZero := c.Bool("allowzero") // from version 14 on
	x, shape := c.In(0), c.In(1)
	if c.decided(shape) {
		if x.Counted() || c.follows(shape) {
			return lower.One(c.reshapeBy(x, shape, allowZero))
		}
		if x.Type.Elements() > 0 {
			return lower.One(c.relaid(x, shape, allowZero))
		}
	}
	return lower.One(c.reshape(x, c.RequireKnownInts(1, "shape"), allowZero))
}

// reshape gives x the shape that want stands for: a 0 copies x's dimension
// unless allowZero, one -1 takes what is left.
func (c *call) reshape(x *lower.Value, want []int64, allowZero bool) *lower.Value {
	shape := slices.Clone(want)
	left := -1
	rest := int64(1)
	zero := false
	for i, d := range shape {
		switch {
		case d == -1 && left >= 0:
			c.Fail("shape %s has more than one -1", graph.ShapeString(want))
		case d == -1:
			left = i
			continue
		case d < 0:
			c.Fail("shape %s has the dimension %d, want -1, 0 or more", graph.ShapeString(want), d)
		case d == 0 && !allowZero:
			if i >= len(x.Type.Shape) {
				c.Fail("shape %s copies dimension %d of %v, which has none", graph.ShapeString(want), i, x.Type)
			}
			shape[i] = x.Type.Shape[i]
		}
		zero = zero || shape[i] == 0
		if rest < graph.MaxTensorBytes && shape[i] < graph.MaxTensorBytes {
			rest *= max(shape[i], 1)
		} else {
			rest = graph.MaxTensorBytes // more than any tensor has
		}
	}
	if left >= 0 {
		n := x.Type.Elements()
		if zero || rest >= graph.MaxTensorBytes || n%rest != 0 {
			c.Fail("%v can't take the shape %s: there is no size for its -1", x.Type, graph.ShapeString(want))
		}
		shape[left] = n / rest
	}
	return c.Emit(&graph.Reshape{Shape: shape}, x)
}

func flatten(c *call) []*lower.Value {
	x := c.In(0)
	axis := c.Int("axis")
	if axis != x.Rank() {
		axis = c.Axis(axis, x.Rank())
	}
	return lower.One(c.flatten(x, axis))
}

// flatten makes x a matrix whose rows are the axes before axis.
func (c *call) flatten(x *lower.Value, axis int64) *lower.Value {
	rows := graph.TensorType{Shape: x.Type.Shape[:axis]}.Elements()
	columns := graph.TensorType{Shape: x.Type.Shape[axis:]}.Elements()
	return c.Emit(&graph.Reshape{Shape: []int64{rows, columns}}, x)
}

func squeezeAttribute(c *call) []*lower.Value {
	axes, ok := c.Ints("axes")
	return squeeze(c, axes, ok)
}

func squeezeOperand(c *call) []*lower.Value {
	axes, ok := c.KnownInts(1, "axes")
	return squeeze(c, axes, ok)
}

func squeeze(c *call, axes []int64, given bool) []*lower.Value {
	x := c.In(0)
	drop := make([]bool, len(x.Type.Shape))
	for _, a := range c.Axes(axes, x.Rank()) {
		if n := x.Count(a); n != nil {
			c.Check(c.Binary(graph.Equal, n, lower.Int(1)), "axis %d is to be squeezed, but data gives it another number of elements than 1", a)
			x = c.Take(x.Uncounted(a), a, 1)
		}
		if x.Type.Shape[a] != 1 {
			c.Fail("axis %d of %v can't be squeezed: its size is not 1", a, x.Type)
		}
		drop[a] = true
	}
	shape := []int64{}
	for i, d := range x.Type.Shape {
		if !drop[i] && (given || d != 1) {
			shape = append(shape, d)
		}
	}
	return lower.One(c.Emit(&graph.Reshape{Shape: shape}, x))
}

func unsqueezeAttribute(c *call) []*lower.Value { return unsqueeze(c, c.RequireInts("axes")) }

func unsqueezeOperand(c *call) []*lower.Value { return unsqueeze(c, c.RequireKnownInts(1, "axes")) }

func unsqueeze(c *call, axes []int64) []*lower.Value {
	x := c.In(0)
	if x.Rank()+int64(len(axes)) > graph.MaxRank {
		c.Fail("%v with %d more dimensions has more than %d", x.Type, len(axes), graph.MaxRank)
	}
	shape := slices.Clone(x.Type.Shape)
	for _, a := range c.Axes(axes, x.Rank()+int64(len(axes))) { // ascending
		shape = slices.Insert(shape, int(a), 1)
	}
	return lower.One(c.Emit(&graph.Reshape{Shape: shape}, x))
}

func expand(c *call) []*lower.Value {
	x := c.In(0)
	if to := c.In(1); c.decided(to) {
		return lower.One(c.expandBy(x, to))
	}
	shape := c.RequireKnownInts(1, "shape")
	for _, d := range shape {
		if d < 0 {
			c.Fail("operand 1 (shape) is %s, want no negative dimension", graph.ShapeString(shape))
		}
	}
	// ONNX broadcasts both ways: a 1 in shape leaves x's dimension.
	both, err := graph.Broadcast(x.Type.Shape, shape)
	if err != nil {
		c.Fail("%w", err)
	}
	return lower.One(c.expand(x, both))
}

// expand broadcasts x one way to shape.
func (c *call) expand(x *lower.Value, shape []int64) *lower.Value {
	if slices.Equal(x.Type.Shape, shape) {
		return x
	}
	return c.Emit(&graph.Expand{Shape: shape}, x)
}

func identity(c *call) []*lower.Value { return lower.One(c.In(0)) }

func shapeOf(c *call) []*lower.Value {
	x := c.In(0)
	n := x.Rank()
	bound := func(name string, def int64) int64 { // from version 15 on
		b := def
		if a := c.Attr(name); a != nil {
			b = a.Int
		}
		if b < 0 {
			b += n
		}
		return min(max(b, 0), n)
	}
	start, end := bound("start", 0), bound("end", n)
	sizes := []*lower.Value{}
	for a := start; a < end; a++ {
		sizes = append(sizes, c.size(x, a))
	}
	return lower.One(c.List(sizes...))
}

// size returns how many elements an axis has.
func (c *call) size(x *lower.Value, axis int64) *lower.Value {
	if n := x.Count(axis); n != nil {
		return n
	}
	return lower.Int(x.Type.Shape[axis])
}

func sizeOf(c *call) []*lower.Value {
	x := c.In(0)
	n := lower.Int(1)
	for a := range x.Rank() {
		n = c.Binary(graph.Mul, n, c.size(x, a))
	}
	return lower.One(n)
}
