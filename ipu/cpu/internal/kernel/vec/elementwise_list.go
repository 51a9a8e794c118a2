package vec

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Kernels are the binders of the operators on elements one by one.
var Kernels = map[string]tensor.Binder{
	"Unary":   bindUnary,
	"Binary":  bindBinary,
	"Clip":    bindClip,
	"Where":   bindWhere,
	"Cast":    bindCast,
	"Bitwise": bindBitwise,
	"Mod":     bindMod,
	"BitCast": bindBitCast,
	"Pointwise": func(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
		return bindPointwise(op.(*graph.Pointwise), out[0].DType, in, out)
	},
	"RoundedPointwise": func(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
		o := op.(*RoundedPointwise)
		return bindPointwise(&o.Pointwise, o.To, in, out)
	},
}
