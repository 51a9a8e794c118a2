package kernel

// reduceKernels are the binders of the operators on reductions and normalisations.
var reduceKernels = map[string]binder{
	"Reduce":    widened(bindReduce),
	"BatchNorm": widened(bindBatchNorm),
	"Softmax":   widened(bindSoftmax),
	"LayerNorm": widened(bindLayerNorm),
	"GroupNorm": widened(bindGroupNorm),
	"LRN":       widened(bindLRN),
	"Det":       widened(bindDet),
	"RMSNorm":   widened(bindRMSNorm),
}
