package onnx

import "github.com/popefgen/popefgen/ipu/graph"

// rmsNormOps normalise without taking off the mean.
var rmsNormOps = map[string]definition{"RMSNormalization": takes("X:floats scale:floats").since(23, rmsNorm, "axis=-1 epsilon=1e-05 stash_type=1")}

// rmsNorm lowers RMSNormalization, whose result has the type of the scale. It
// is computed in single precision at least, whatever stash_type says.
func rmsNorm(c *call) []*value {
	x, scale := c.in(0), c.in(1)
	op := &graph.RMSNorm{Axis: c.axis(c.int("axis"), x.rank()), Epsilon: c.float("epsilon")}
	to := scale.typ.DType
	if x.typ.DType != to {
		x, scale = c.wide(x), c.wide(scale)
		if x.typ.DType == graph.F64 || scale.typ.DType == graph.F64 {
			x, scale = c.cast(x, graph.F64), c.cast(scale, graph.F64)
		}
	}
	return one(c.cast(c.emit(op, x, scale), to))
}
