package kernel

// moveKernels are the binders of the operators on moved and chosen elements.
var moveKernels = map[string]binder{
	"Reshape":         bindReshape,
	"Transpose":       bindTranspose,
	"Slice":           bindSlice,
	"Expand":          bindExpand,
	"Concat":          bindConcat,
	"Pad":             bindPad,
	"Gather":          bindGather,
	"GatherElements":  bindGatherElements,
	"ScatterElements": bindScatterElements,
	"GatherND":        bindGatherND,
	"ScatterND":       bindScatterND,
	"OneHot":          bindOneHot,
	"ArgMax":          bindArgMax,
	"TopK":            bindTopK,
	"Cumulate":        bindCumulate,
	"TfIdf":           bindTfIdf,
	"Assert":          bindAssert,
}

// moveTables declares the tables of their kernels.
var moveTables = map[string]declared{
	"Pad": padTableBytes,
}
