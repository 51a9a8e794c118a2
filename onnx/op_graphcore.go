package onnx

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// graphcoreOps are operators that PopART adds in a domain of its own.
var graphcoreOps = map[string]definition{
	"ai.graphcore.GroupNormalization": takes("X:T=floats scale:T bias:T").since(1, graphcoreGroupNorm, "epsilon=1e-05 num_groups:int!"),
	"ai.graphcore.ConvFlipWeights":    takes("W:any").since(1, convFlipWeights, "availableMemoryProportion:float partialsType:string"),
	"ai.graphcore.Subsample":          takes("X:any").since(1, subsample, "strides:ints!"),
	"ai.graphcore.Scale":              takes("X:numbers").since(1, scale, "scale:float!"),
	"ai.graphcore.Square":             takes("X:numbers").since(1, square),
}

// graphcoreGroupNorm gives the mean and the inverse standard deviation of
// every group of every sample, too.
func graphcoreGroupNorm(c *call) []*value {
	x := c.in(0)
	op := &graph.GroupNorm{Groups: c.int("num_groups"), Epsilon: c.float("epsilon")}
	out := c.emitN(op, []bool{true, c.wants(1), c.wants(2)}, x, c.in(1), c.in(2))
	for i, v := range out[1:] {
		if v != nil {
			v = c.emit(&graph.Reshape{Shape: []int64{v.typ.Elements()}}, v)
			out[1+i] = c.cast(v, x.typ.DType)
		}
	}
	return out
}

// convFlipWeights makes the weights of a convolution those of its gradient:
// input and output channels change places, the kernel is turned around.
func convFlipWeights(c *call) []*value {
	x := c.in(0)
	if x.rank() < 3 {
		c.fail("operand 0 is %v, want at least 3 dimensions: two of channels and spatial axes", x.typ)
	}
	perm := []int64{1, 0}
	flip := whole(x)
	for a := int64(2); a < x.rank(); a++ {
		perm = append(perm, a)
		if d := x.typ.Shape[a]; d > 0 {
			flip.Start[a], flip.Step[a] = d-1, -1
		}
	}
	return one(c.emit(&graph.Transpose{Perm: perm}, c.emit(flip, x)))
}

// subsample takes every so many elements of each axis.
func subsample(c *call) []*value {
	x := c.in(0)
	strides := c.requireInts("strides")
	if int64(len(strides)) != x.rank() {
		c.fail("attribute \"strides\" is %s, want one number for each axis of %v", graph.ShapeString(strides), x.typ)
	}
	op := whole(x)
	for i, s := range strides {
		if s < 1 {
			c.fail("attribute \"strides\" is %s, want numbers above 0", graph.ShapeString(strides))
		}
		_, op.Size[i], op.Step[i] = window(0, math.MaxInt64, s, x.typ.Shape[i])
	}
	return one(c.emit(op, x))
}

func scale(c *call) []*value {
	x := c.in(0)
	factor := c.float("scale")
	mul := func(v *value) *value {
		return c.emit(&graph.Binary{Fn: graph.Mul}, v, scalar(v.typ.DType, factor))
	}
	if x.typ.DType.IsFloat() {
		return one(mul(x))
	}
	return one(c.throughFloats(x, mul))
}

func square(c *call) []*value { return one(c.emit(&graph.Binary{Fn: graph.Mul}, c.in(0), c.in(0))) }
