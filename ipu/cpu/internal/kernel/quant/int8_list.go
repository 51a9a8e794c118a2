package quant

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/gemm"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
)

// Kernels are the binders of the operators on bytes.
var Kernels = map[string]tensor.Binder{
	"Quantize":      bindQuantize,
	"Dequantize":    bindDequantize,
	"IntegerMatMul": bindIntegerMatMul,
	"IntegerConv":   bindIntegerConv,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"IntegerMatMul": gemm.MatMulTableBytes,
	"IntegerConv":   integerConvTableBytes,
}
