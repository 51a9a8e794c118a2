package conv

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on convolutions.
var Kernels = map[string]tensor.Binder{
	"Conv":               vec.Widened(bindConv),
	"ConvWeightGradient": vec.Widened(bindConvWeightGradient),
	"ConvTranspose":      vec.Widened(bindConvTranspose),
	"DeformConv":         vec.Widened(bindDeformConv),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"Conv":               ConvTableBytes,
	"ConvWeightGradient": convWeightTableBytes,
	"ConvTranspose":      convTransposeTableBytes,
	"DeformConv":         ConvTableBytes,
}
