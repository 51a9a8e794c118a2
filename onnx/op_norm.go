package onnx

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// normOps normalise.
var normOps = map[string]definition{
	"BatchNormalization": takes("X:floats scale:floats B:floats input_mean:floats input_var:floats").since(1, batchNormLegacy, "epsilon=1e-05 is_test=0 momentum=0.9 spatial=1").since(7, batchNorm, "epsilon=1e-05 momentum=0.9 spatial=1").since(14, batchNormTraining, "epsilon=1e-05 momentum=0.9 training_mode=0"),
	"Softmax":            takes("input:floats").since(1, softmaxFlat(false), "axis=1").since(13, softmax(false), "axis=-1"),
	"LogSoftmax":         takes("input:floats").since(1, softmaxFlat(true), "axis=1").since(13, softmax(true), "axis=-1"),
	"LayerNormalization": takes("X:T=floats Scale:T B:T").since(17, layerNorm, "axis=-1 epsilon=1e-05 stash_type=1"),
}

// batchNormLegacy is BatchNormalization up to version 6.
func batchNormLegacy(c *call) []*value {
	if !c.bool("is_test") {
		c.warn("BatchNormalization uses the given mean and variance, though its attribute is_test is not set: what is compiled is inference")
	}
	return batchNorm(c)
}

// batchNorm is BatchNormalization from version 7 to 13. It learns when it has
// more than one result.
func batchNorm(c *call) []*value {
	for i := 1; i < c.outputs(); i++ {
		if c.wants(i) {
			c.unsupported(hintTraining, "training mode")
		}
	}
	return c.batchNorm()
}

func batchNormTraining(c *call) []*value {
	if c.bool("training_mode") {
		c.unsupported(hintTraining, "training mode")
	}
	return c.batchNorm()
}

func (c *call) batchNorm() []*value {
	eps := c.float("epsilon")
	perElement := c.has("spatial") && !c.bool("spatial") // up to version 8
	x := c.in(0)
	params := []*value{c.in(1), c.in(2), c.in(3), c.in(4)} // scale, bias, mean, variance
	// From version 15 on types may differ. Statistics of a narrower x are kept
	// in the wider type.
	wide := x.typ.DType
	for _, p := range params {
		if p.typ.DType.Size() > wide.Size() {
			wide = p.typ.DType
		}
	}
	y := c.cast(x, wide)
	for i, p := range params {
		params[i] = c.cast(p, wide)
	}
	if perElement {
		y = c.normalise(y, params, eps)
	} else {
		y = c.emit(&graph.BatchNorm{Epsilon: eps}, append([]*value{y}, params...)...)
	}
	return one(c.cast(y, x.typ.DType))
}

// normalise is batch normalisation whose parameters have a value for each
// element of a sample.
func (c *call) normalise(x *value, params []*value, eps float64) *value {
	for i, p := range params {
		if x.rank() < 2 || !slices.Equal(p.typ.Shape, x.typ.Shape[1:]) {
			c.fail("operand %d is %v, want the shape of one sample of operand 0, %v, as attribute spatial is 0", i+1, p.typ, x.typ)
		}
	}
	binary := func(fn graph.BinaryFn, a, b *value) *value { return c.emit(&graph.Binary{Fn: fn}, a, b) }
	dev := c.emit(&graph.Unary{Fn: graph.Sqrt}, binary(graph.Add, params[3], scalar(x.typ.DType, eps)))
	y := binary(graph.Div, binary(graph.Sub, x, params[2]), dev)
	return binary(graph.Add, binary(graph.Mul, y, params[0]), params[1])
}

// softmaxFlat is Softmax before version 13: over all axes from attribute axis
// on, as if they were one.
func softmaxFlat(log bool) lowerFunc {
	return func(c *call) []*value {
		x := c.in(0)
		axis := c.int("axis")
		if axis != x.rank() {
			axis = c.axis(axis, x.rank())
		}
		if axis == x.rank()-1 {
			return one(c.emit(&graph.Softmax{Axis: axis, Log: log}, x))
		}
		y := c.emit(&graph.Softmax{Axis: 1, Log: log}, c.flatten(x, axis))
		return one(c.emit(&graph.Reshape{Shape: x.typ.Shape}, y))
	}
}

func softmax(log bool) lowerFunc {
	return func(c *call) []*value {
		x := c.in(0)
		return one(c.emit(&graph.Softmax{Axis: c.axis(c.int("axis"), x.rank()), Log: log}, x))
	}
}

func layerNorm(c *call) []*value {
	x, scale, bias := c.in(0), c.in(1), c.opt(2)
	op := &graph.LayerNorm{Axis: c.axis(c.int("axis"), x.rank()), Epsilon: c.float("epsilon")}
	stash := ElemType(c.int("stash_type"))
	if stash != Float && stash != BFloat16 {
		c.unsupported("set stash_type to 1 (float)", "stash_type %v", stash)
	}
	// Statistics are computed in single precision at least.
	out := c.emitN(op, []bool{true, c.wants(1), c.wants(2)}, x, scale, bias)
	for i, v := range out[1:] {
		if v != nil && stash == BFloat16 {
			out[1+i] = c.cast(v, graph.BF16)
		}
	}
	return out
}
