package reduce

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on reductions and normalisations.
var Kernels = map[string]tensor.Binder{
	"Reduce":    vec.Widened(bindReduce),
	"BatchNorm": vec.Widened(bindBatchNorm),
	"Softmax":   vec.Widened(bindSoftmax),
	"LayerNorm": vec.Widened(bindLayerNorm),
	"GroupNorm": vec.Widened(bindGroupNorm),
	"LRN":       vec.Widened(bindLRN),
	"Det":       vec.Widened(bindDet),
	"RMSNorm":   vec.Widened(bindRMSNorm),
}
