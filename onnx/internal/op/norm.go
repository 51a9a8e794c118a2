package op

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// normOps normalise.
var normOps = map[string]definition{
	"BatchNormalization": takes("X:floats scale:floats B:floats input_mean:floats input_var:floats").since(1, batchNormLegacy, "epsilon=1e-05 is_test=0 momentum=0.9 spatial=1").since(7, batchNorm, "epsilon=1e-05 momentum=0.9 spatial=1").since(14, batchNormTraining, "epsilon=1e-05 momentum=0.9 training_mode=0"),
	"Softmax":            takes("input:floats").since(1, softmaxFlat(false), "axis=1").since(13, softmax(false), "axis=-1"),
	"LogSoftmax":         takes("input:floats").since(1, softmaxFlat(true), "axis=1").since(13, softmax(true), "axis=-1"),
	"LayerNormalization": takes("X:T=floats Scale:T B:T").since(17, layerNorm, "axis=-1 epsilon=1e-05 stash_type=1"),
}

// batchNormLegacy is BatchNormalization up to version 6.
func batchNormLegacy(c *call) []*lower.Value {
	if test := c.Bool("is_test"); !test && !c.Training().BatchStatistics {
		c.Warn("BatchNormalization uses the given mean and variance, though its attribute is_test is not set: what is compiled is inference")
	}
	return batchNorm(c)
}

// batchNorm is BatchNormalization from version 7 to 13. It learns when it has
// more than one result.
func batchNorm(c *call) []*lower.Value {
	several := false
	for i := 1; i < c.Outputs(); i++ {
		several = several || c.Wants(i)
	}
	out, mean, variance := c.batchNorm(several)
	if !several {
		return out
	}
	for i, v := range []*lower.Value{mean, variance} { // those of the batch come behind
		out = append(out, nil)
		if c.Wants(3 + i) {
			out[3+i] = c.cast(v, c.In(3+i).Type.DType)
		}
	}
	return out
}

func batchNormTraining(c *call) []*lower.Value {
	out, _, _ := c.batchNorm(c.Bool("training_mode"))
	return out
}

// batchNorm normalises with the mean and variance that it is given or, where it learns, with those of the batch. It returns
// those that it took, too, and where the model asks for training the running ones behind the result:
// running·momentum + batch·(1-momentum), with the biased variance, that of the elements and not of what they were drawn from.
func (c *call) batchNorm(asked bool) (out []*lower.Value, mean, variance *lower.Value) {
	eps := c.Float("epsilon")
	perElement := c.Has("spatial") && !c.Bool("spatial") // up to version 8
	x := c.In(0)
	params := []*lower.Value{c.In(1), c.In(2), c.In(3), c.In(4)} // scale, bias, mean, variance
	learns := c.Learns(asked || c.Training().BatchStatistics)
	// From version 15 on types may differ. Statistics of a narrower x are kept
	// in the wider type.
	wide := x.Type.DType
	for _, p := range params {
		if p.Type.DType.Size() > wide.Size() {
			wide = p.Type.DType
		}
	}
	if learns {
		wide = c.wideType(wide)
	}
	y := c.cast(x, wide)
	running := slices.Clone(params[2:])
	if learns {
		if perElement {
			c.Unsupported("normalise channels: leave attribute spatial out", "training mode with statistics of each element")
		}
		mean, variance = c.statistics(y)
		momentum := c.Float("momentum")
		for i, batch := range []*lower.Value{mean, variance} {
			if running[i].Rank() != 1 || running[i].Type.Shape[0] != batch.Type.Shape[0] {
				c.Fail("operand %d is %v, want one element for each channel of operand 0, %v", 3+i, running[i].Type, x.Type)
			}
			old := c.Unsettled(running[i])
			v := c.Binary(graph.Add, c.scale(c.cast(old, wide), momentum), c.scale(batch, 1-momentum))
			v = c.cast(v, old.Type.DType)
			c.Keep(running[i], v)
			running[i], params[2+i] = v, batch
		}
	} else {
		for i := range running {
			params[2+i] = c.Unsettled(params[2+i])
		}
		mean, variance = params[2], params[3]
	}
	for i, p := range params {
		params[i] = c.cast(p, wide)
	}
	if perElement {
		y = c.normalise(y, params, eps)
	} else {
		y = c.Emit(&graph.BatchNorm{Epsilon: eps}, append([]*lower.Value{y}, params...)...)
	}
	out = []*lower.Value{c.cast(y, x.Type.DType)}
	if asked {
		out = append(out, running...)
	}
	return out, mean, variance
}

// scale multiplies with a number.
func (c *call) scale(x *lower.Value, by float64) *lower.Value {
	return c.Binary(graph.Mul, x, lower.Scalar(x.Type.DType, by))
}

// statistics returns the mean and the biased variance of each channel, axis 1.
func (c *call) statistics(x *lower.Value) (mean, variance *lower.Value) {
	if x.Rank() < 2 {
		c.Fail("operand 0 is %v, want at least 2 dimensions", x.Type)
	}
	axes, channels := []int64{0}, []int64{x.Type.Shape[1]}
	for a := int64(2); a < x.Rank(); a++ {
		axes = append(axes, a)
	}
	if n := x.Type.Elements(); n == 0 {
		c.Fail("operand 0 is %v, want elements: without any there are no statistics", x.Type)
	}
	over := func(v *lower.Value) *lower.Value {
		return c.Emit(&graph.Reduce{Fn: graph.ReduceMean, Axes: axes, KeepDims: true}, v)
	}
	list := func(v *lower.Value) *lower.Value { return c.Emit(&graph.Reshape{Shape: channels}, v) }
	mean = over(x)
	centred := c.Binary(graph.Sub, x, mean)
	return list(mean), list(over(c.Binary(graph.Mul, centred, centred)))
}

// normalise is batch normalisation whose parameters have a value for each
// element of a sample.
func (c *call) normalise(x *lower.Value, params []*lower.Value, eps float64) *lower.Value {
	for i, p := range params {
		if x.Rank() < 2 || !slices.Equal(p.Type.Shape, x.Type.Shape[1:]) {
			c.Fail("operand %d is %v, want the shape of one sample of operand 0, %v, as attribute spatial is 0", i+1, p.Type, x.Type)
		}
	}
	binary := func(fn graph.BinaryFn, a, b *lower.Value) *lower.Value { return c.Emit(&graph.Binary{Fn: fn}, a, b) }
	dev := c.Emit(&graph.Unary{Fn: graph.Sqrt}, binary(graph.Add, params[3], lower.Scalar(x.Type.DType, eps)))
	y := binary(graph.Div, binary(graph.Sub, x, params[2]), dev)
	return binary(graph.Add, binary(graph.Mul, y, params[0]), params[1])
}

// softmaxFlat is Softmax before version 13: over all axes from attribute axis
// on, as if they were one.
func softmaxFlat(log bool) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		axis := c.Int("axis")
		if axis != x.Rank() {
			axis = c.Axis(axis, x.Rank())
		}
		if axis == x.Rank()-1 {
			return lower.One(c.Emit(&graph.Softmax{Axis: axis, Log: log}, x))
		}
		y := c.Emit(&graph.Softmax{Axis: 1, Log: log}, c.flatten(x, axis))
		return lower.One(c.Emit(&graph.Reshape{Shape: x.Type.Shape}, y))
	}
}

func softmax(log bool) lowerFunc {
	return func(c *call) []*lower.Value {
		x := c.In(0)
		return lower.One(c.Emit(&graph.Softmax{Axis: c.Axis(c.Int("axis"), x.Rank()), Log: log}, x))
	}
}

func layerNorm(c *call) []*lower.Value {
	x, scale, bias := c.In(0), c.In(1), c.Opt(2)
	op := &graph.LayerNorm{Axis: c.Axis(c.Int("axis"), x.Rank()), Epsilon: c.Float("epsilon")}
	stash := onnx.ElemType(c.Int("stash_type"))
	if stash != onnx.Float && stash != onnx.BFloat16 {
		c.Unsupported("set stash_type to 1 (float)", "stash_type %v", stash)
	}
	// Statistics are computed in single precision at least.
	out := c.EmitN(op, []bool{true, c.Wants(1), c.Wants(2)}, x, scale, bias)
	for i, v := range out[1:] {
		if v != nil && stash == onnx.BFloat16 {
			out[1+i] = c.cast(v, graph.BF16)
		}
	}
	return out
}
