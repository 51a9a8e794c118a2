package kernel

// fourierKernels are the binders of the operators on Fourier transforms.
var fourierKernels = map[string]binder{
	"DFT": widened(bindDFT),
}

// fourierTables declares the tables of their kernels.
var fourierTables = map[string]declared{
	"DFT": dftTableBytes,
}
