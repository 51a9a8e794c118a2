package gemm

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on matrix products.
var Kernels = map[string]tensor.Binder{
	"MatMul": vec.Widened(bindMatMul),
	"Gemm":   vec.Widened(bindGemm),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"MatMul": MatMulTableBytes,
}
