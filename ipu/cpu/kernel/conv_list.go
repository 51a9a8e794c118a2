package kernel

// convKernels are the binders of the operators on convolutions.
var convKernels = map[string]binder{
	"Conv":          widened(bindConv),
	"ConvTranspose": widened(bindConvTranspose),
	"DeformConv":    widened(bindDeformConv),
}

// convTables declares the tables of their kernels.
var convTables = map[string]declared{
	"Conv":          convTableBytes,
	"ConvTranspose": convTransposeTableBytes,
	"DeformConv":    convTableBytes,
}
