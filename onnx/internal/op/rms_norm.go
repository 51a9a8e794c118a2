package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// rmsNormOps normalise without taking off the mean.
var rmsNormOps = map[string]definition{"RMSNormalization": takes("X:floats scale:floats").since(23, rmsNorm, "axis=-1 epsilon=1e-05 stash_type=1")}

// rmsNorm lowers RMSNormalization, whose result has the type of the scale. It
// is computed in single precision at least, whatever stash_type says.
func rmsNorm(c *call) []*lower.Value {
	x, scale := c.In(0), c.In(1)
	op := &graph.RMSNorm{Axis: c.Axis(c.Int("axis"), x.Rank()), Epsilon: c.Float("epsilon")}
	to := scale.Type.DType
	if x.Type.DType != to {
		x, scale = c.wide(x), c.wide(scale)
		if x.Type.DType == graph.F64 || scale.Type.DType == graph.F64 {
			x, scale = c.cast(x, graph.F64), c.cast(scale, graph.F64)
		}
	}
	return lower.One(c.cast(c.Emit(op, x, scale), to))
}
