package op

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
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
func graphcoreGroupNorm(c *call) []*lower.Value {
	x := c.In(0)
	op := &graph.GroupNorm{Groups: c.Int("num_groups"), Epsilon: c.Float("epsilon")}
	out := c.EmitN(op, []bool{true, c.Wants(1), c.Wants(2)}, x, c.In(1), c.In(2))
	for i, v := range out[1:] {
		if v != nil {
			v = c.Emit(&graph.Reshape{Shape: []int64{v.Type.Elements()}}, v)
			out[1+i] = c.cast(v, x.Type.DType)
		}
	}
	return out
}

// convFlipWeights makes the weights of a convolution those of its gradient:
// input and output channels change places, the kernel is turned around.
func convFlipWeights(c *call) []*lower.Value {
	x := c.In(0)
	if x.Rank() < 3 {
		c.Fail("operand 0 is %v, want at least 3 dimensions: two of channels and spatial axes", x.Type)
	}
	perm := []int64{1, 0}
	flip := whole(x)
	for a := int64(2); a < x.Rank(); a++ {
		perm = append(perm, a)
		if d := x.Type.Shape[a]; d > 0 {
			flip.Start[a], flip.Step[a] = d-1, -1
		}
	}
	return lower.One(c.Emit(&graph.Transpose{Perm: perm}, c.Emit(flip, x)))
}

// subsample takes every so many elements of each axis.
func subsample(c *call) []*lower.Value {
	x := c.In(0)
	strides := c.RequireInts("strides")
	if int64(len(strides)) != x.Rank() {
		c.Fail("attribute \"strides\" is %s, want one number for each axis of %v", graph.ShapeString(strides), x.Type)
	}
	op := whole(x)
	for i, s := range strides {
		if s < 1 {
			c.Fail("attribute \"strides\" is %s, want numbers above 0", graph.ShapeString(strides))
		}
		_, op.Size[i], op.Step[i] = window(0, math.MaxInt64, s, x.Type.Shape[i])
	}
	return lower.One(c.Emit(op, x))
}

func scale(c *call) []*lower.Value {
	x := c.In(0)
	factor := c.Float("scale")
	mul := func(v *lower.Value) *lower.Value {
		return c.Emit(&graph.Binary{Fn: graph.Mul}, v, lower.Scalar(v.Type.DType, factor))
	}
	if x.Type.DType.IsFloat() {
		return lower.One(mul(x))
	}
	return lower.One(c.throughFloats(x, mul))
}

func square(c *call) []*lower.Value {
	return lower.One(c.Emit(&graph.Binary{Fn: graph.Mul}, c.In(0), c.In(0)))
}
