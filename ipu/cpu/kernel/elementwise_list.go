package kernel

import "github.com/popefgen/popefgen/ipu/graph"

// vecKernels are the binders of the operators on elements one by one.
var vecKernels = map[string]binder{
	"Unary":   bindUnary,
	"Binary":  bindBinary,
	"Clip":    bindClip,
	"Where":   bindWhere,
	"Cast":    bindCast,
	"Bitwise": bindBitwise,
	"Mod":     bindMod,
	"BitCast": bindBitCast,
	"Pointwise": func(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
		return bindPointwise(op.(*graph.Pointwise), out[0].DType, in, out)
	},
	"RoundedPointwise": func(op graph.Op, in, out []graph.TensorType) (Kernel, error) {
		o := op.(*RoundedPointwise)
		return bindPointwise(&o.Pointwise, o.To, in, out)
	},
}
