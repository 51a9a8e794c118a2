package kernel

// gemmKernels are the binders of the operators on matrix products.
var gemmKernels = map[string]binder{
	"MatMul": widened(bindMatMul),
	"Gemm":   widened(bindGemm),
}

// gemmTables declares the tables of their kernels.
var gemmTables = map[string]declared{
	"MatMul": matMulTableBytes,
}
