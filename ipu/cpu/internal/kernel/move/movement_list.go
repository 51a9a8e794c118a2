package move

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on moved and chosen elements.
var Kernels = map[string]tensor.Binder{
	"Reshape":           bindReshape,
	"Transpose":         bindTranspose,
	"Slice":             bindSlice,
	"Field":             bindField,
	"Expand":            bindExpand,
	"Concat":            bindConcat,
	"Pad":               bindPad,
	"Gather":            bindGather,
	"GatherElements":    bindGatherElements,
	"ScatterElements":   bindScatterElements,
	"GatherND":          bindGatherND,
	"ScatterND":         bindScatterND,
	"OneHot":            bindOneHot,
	"ArgMax":            bindArgMax,
	"TopK":              bindTopK,
	"Cumulate":          bindCumulate,
	"TfIdf":             bindTfIdf,
	"NonZero":           bindNonZero,
	"NonMaxSuppression": bindSuppression,
	"Unique":            bindUnique,
	"Assert":            bindAssert,
	"AssertLabels":      bindAssertLabels,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"Pad": padTableBytes,
}
