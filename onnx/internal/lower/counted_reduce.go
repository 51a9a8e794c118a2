package lower

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// reduced reduces counted axes with what changes nothing behind the count.
func (c *Call) reduced(o *graph.Reduce, x *Value) *Value {
	var counted []int64
	for _, a := range o.Axes {
		if x.Count(a) != nil {
			counted = append(counted, a)
		}
	}
	t := x.Type.DType
	fn := o.Fn
	y := x
	if len(counted) > 0 {
		fill := Scalar(t, 0)
		switch fn {
		case graph.ReduceProd:
			fill = Scalar(t, 1)
		case graph.ReduceMax:
			fill = c.Extreme(t, false)
		case graph.ReduceMin:
			fill = c.Extreme(t, true)
		case graph.ReduceLogSumExp:
			fill = Scalar(t, math.Inf(-1))
		case graph.ReduceMean:
			fn = graph.ReduceSum
		}
		y = c.filled(x, fill, counted)
	}
	var counts []*Value
	for a := range x.Rank() {
		switch {
		case !slices.Contains(o.Axes, a):
			counts = append(counts, x.Count(a))
		case o.KeepDims:
			counts = append(counts, nil)
		}
	}
	z := c.Emit(&graph.Reduce{Fn: fn, Axes: o.Axes, KeepDims: o.KeepDims}, plain(y))
	if fn != o.Fn {
		n := Int(1)
		for _, a := range o.Axes {
			if k := x.Count(a); k != nil {
				n = c.Binary(graph.Mul, n, k)
			} else {
				n = c.Binary(graph.Mul, n, Int(x.Type.Shape[a]))
			}
		}
		z = c.Binary(graph.Div, z, c.Emit(&graph.Cast{To: t}, n))
	}
	return z.with(counts, true)
}

// Extreme returns the greatest or the least number of a type.
func (c *Call) Extreme(t graph.DType, greatest bool) *Value {
	switch {
	case t == graph.Bool && greatest:
		return Scalar(t, 1)
	case t == graph.Bool:
		return Scalar(t, 0)
	case t.IsFloat() && greatest:
		return Scalar(t, math.Inf(1))
	case t.IsFloat():
		return Scalar(t, math.Inf(-1))
	case t == graph.U64 && greatest:
		return Known(graph.TensorType{DType: t}, []byte{255, 255, 255, 255, 255, 255, 255, 255})
	}
	low, high := IntRange(t)
	if greatest {
		return Known(graph.TensorType{DType: t}, EncodeInt(t, high))
	}
	return Known(graph.TensorType{DType: t}, EncodeInt(t, low))
}

// Last returns what TopK puts behind all others, or with them behind those before it.
func (c *Call) Last(t graph.DType, least bool) *Value {
	if least && t.IsFloat() {
		return Scalar(t, math.NaN())
	}
	return c.Extreme(t, least)
}

func (c *Call) extreme(o *graph.ArgMax, x *Value) *Value {
	y := x
	if n := x.Count(o.Axis); n != nil {
		if o.Last {
			c.Refuse(x, o.Axis, "and the last of equal elements is wanted")
		}
		c.Check(c.Binary(graph.GreaterEqual, n, Int(1)), "axis %d of its operand, of which the greatest or least element is wanted, has none: data gives it no elements", o.Axis)
		y = c.filled(x, c.Extreme(x.Type.DType, o.Min), []int64{o.Axis})
	}
	counts := fullCounts(x)
	if counts[o.Axis] = nil; !o.KeepDims {
		counts = slices.Delete(counts, int(o.Axis), int(o.Axis)+1)
	}
	return c.Emit(o, plain(y)).with(counts, true)
}
