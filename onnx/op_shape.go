package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// shapeOps change or ask for shapes and leave elements where they are.
var shapeOps = map[string]definition{
	"Reshape":   takes("data:any shape:int64").since(1, reshapeAttribute, "shape:ints!").since(5, reshape, "allowzero=0"),
	"Flatten":   takes("input:any").since(1, flatten, "axis=1"),
	"Squeeze":   takes("data:any axes:int64").since(1, squeezeAttribute, "axes:ints").since(13, squeezeOperand),
	"Unsqueeze": takes("data:any axes:int64").since(1, unsqueezeAttribute, "axes:ints!").since(13, unsqueezeOperand),
	"Expand":    takes("input:any shape:int64").since(8, expand),
	"Identity":  takes("input:any").since(1, identity),
	"Dropout":   takes("data:floats ratio:floats training_mode:bool").since(1, dropoutAttributes, "is_test=0 ratio=0.5").since(12, dropoutOperands, "seed:int"),
	"Shape":     takes("data:any").since(1, shapeOf, "end:int start=0"),
	"Size":      takes("data:any").since(1, sizeOf),
}

func reshapeAttribute(c *call) []*value {
	return one(c.reshape(c.in(0), c.requireInts("shape"), false))
}

func reshape(c *call) []*value {
	allowZero := c.bool("allowzero") // from version 14 on
	return one(c.reshape(c.in(0), c.requireKnownInts(1, "shape"), allowZero))
}

// reshape gives x the shape that want stands for: a 0 copies x's dimension
// unless allowZero, one -1 takes what is left.
func (c *call) reshape(x *value, want []int64, allowZero bool) *value {
	shape := slices.Clone(want)
	left := -1
	rest := int64(1)
	zero := false
	for i, d := range shape {
		switch {
		case d == -1 && left >= 0:
			c.fail("shape %s has more than one -1", graph.ShapeString(want))
		case d == -1:
			left = i
			continue
		case d < 0:
			c.fail("shape %s has the dimension %d, want -1, 0 or more", graph.ShapeString(want), d)
		case d == 0 && !allowZero:
			if i >= len(x.typ.Shape) {
				c.fail("shape %s copies dimension %d of %v, which has none", graph.ShapeString(want), i, x.typ)
			}
			shape[i] = x.typ.Shape[i]
		}
		zero = zero || shape[i] == 0
		if rest < graph.MaxTensorBytes && shape[i] < graph.MaxTensorBytes {
			rest *= max(shape[i], 1)
		} else {
			rest = graph.MaxTensorBytes // more than any tensor has
		}
	}
	if left >= 0 {
		n := x.typ.Elements()
		if zero || rest >= graph.MaxTensorBytes || n%rest != 0 {
			c.fail("%v can't take the shape %s: there is no size for its -1", x.typ, graph.ShapeString(want))
		}
		shape[left] = n / rest
	}
	return c.emit(&graph.Reshape{Shape: shape}, x)
}

func flatten(c *call) []*value {
	x := c.in(0)
	axis := c.int("axis")
	if axis != x.rank() {
		axis = c.axis(axis, x.rank())
	}
	return one(c.flatten(x, axis))
}

// flatten makes x a matrix whose rows are the axes before axis.
func (c *call) flatten(x *value, axis int64) *value {
	rows := graph.TensorType{Shape: x.typ.Shape[:axis]}.Elements()
	columns := graph.TensorType{Shape: x.typ.Shape[axis:]}.Elements()
	return c.emit(&graph.Reshape{Shape: []int64{rows, columns}}, x)
}

func squeezeAttribute(c *call) []*value {
	axes, ok := c.ints("axes")
	return squeeze(c, axes, ok)
}

func squeezeOperand(c *call) []*value {
	axes, ok := c.knownInts(1, "axes")
	return squeeze(c, axes, ok)
}

func squeeze(c *call, axes []int64, given bool) []*value {
	x := c.in(0)
	drop := make([]bool, len(x.typ.Shape))
	for _, a := range c.axes(axes, x.rank()) {
		if x.typ.Shape[a] != 1 {
			c.fail("axis %d of %v can't be squeezed: its size is not 1", a, x.typ)
		}
		drop[a] = true
	}
	shape := []int64{}
	for i, d := range x.typ.Shape {
		if !drop[i] && (given || d != 1) {
			shape = append(shape, d)
		}
	}
	return one(c.emit(&graph.Reshape{Shape: shape}, x))
}

func unsqueezeAttribute(c *call) []*value { return unsqueeze(c, c.requireInts("axes")) }

func unsqueezeOperand(c *call) []*value { return unsqueeze(c, c.requireKnownInts(1, "axes")) }

func unsqueeze(c *call, axes []int64) []*value {
	x := c.in(0)
	if x.rank()+int64(len(axes)) > graph.MaxRank {
		c.fail("%v with %d more dimensions has more than %d", x.typ, len(axes), graph.MaxRank)
	}
	shape := slices.Clone(x.typ.Shape)
	for _, a := range c.axes(axes, x.rank()+int64(len(axes))) { // ascending
		shape = slices.Insert(shape, int(a), 1)
	}
	return one(c.emit(&graph.Reshape{Shape: shape}, x))
}

func expand(c *call) []*value {
	x := c.in(0)
	shape := c.requireKnownInts(1, "shape")
	for _, d := range shape {
		if d < 0 {
			c.fail("operand 1 (shape) is %s, want no negative dimension", graph.ShapeString(shape))
		}
	}
	// ONNX broadcasts both ways: a 1 in shape leaves x's dimension.
	both, err := graph.Broadcast(x.typ.Shape, shape)
	if err != nil {
		c.fail("%w", err)
	}
	return one(c.expand(x, both))
}

// expand broadcasts x one way to shape.
func (c *call) expand(x *value, shape []int64) *value {
	if slices.Equal(x.typ.Shape, shape) {
		return x
	}
	return c.emit(&graph.Expand{Shape: shape}, x)
}

func identity(c *call) []*value { return one(c.in(0)) }

// dropoutAttributes is Dropout up to version 11. What the executable does is
// inference, whatever attribute is_test (up to version 6) says.
func dropoutAttributes(c *call) []*value {
	test := c.bool("is_test")
	opset := c.opset()
	if opset < 7 && !test {
		c.warn("Dropout drops nothing, though its attribute is_test is not set: what is compiled is inference")
	}
	x := c.in(0)
	mask := graph.Bool
	if opset < 10 {
		mask = x.typ.DType
	}
	return c.kept(x, mask)
}

func dropoutOperands(c *call) []*value {
	x := c.in(0)
	if t := c.opt(2); t != nil {
		c.known(2, "training_mode")
		if t.typ.DType != graph.Bool || len(t.data) != 1 {
			c.fail("operand 2 (training_mode) is %v, want one bool", t.typ)
		}
		if t.data[0] != 0 && !c.dropsNothing() {
			c.unsupported(hintTraining, "training mode")
		}
	}
	c.opt(1) // ratio
	return c.kept(x, graph.Bool)
}

// dropsNothing reports whether the ratio of a Dropout is known to be 0. Exporters
// write F.dropout(x, p=0), as attention does, in training mode.
func (c *call) dropsNothing() bool {
	if ratio := c.opt(1); ratio == nil || !ratio.known {
		return false
	}
	r, _ := c.knownFloats(1, "ratio")
	return len(r) == 1 && r[0] == 0
}

// kept returns the results of a Dropout that drops nothing.
func (c *call) kept(x *value, mask graph.DType) []*value {
	out := []*value{x, nil}
	if c.wants(1) {
		out[1] = c.expand(scalar(mask, 1), x.typ.Shape)
	}
	return out
}

func shapeOf(c *call) []*value {
	x := c.in(0)
	n := x.rank()
	bound := func(name string, def int64) int64 { // from version 15 on
		b := def
		if a := c.attr(name); a != nil {
			b = a.Int
		}
		if b < 0 {
			b += n
		}
		return min(max(b, 0), n)
	}
	start, end := bound("start", 0), bound("end", n)
	return one(knownInts(x.typ.Shape[start:max(start, end)]...))
}

func sizeOf(c *call) []*value {
	v := knownInts(c.in(0).typ.Elements())
	v.typ.Shape = nil
	return one(v)
}
