package fourier

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on Fourier transforms.
var Kernels = map[string]tensor.Binder{
	"DFT": vec.Widened(bindDFT),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"DFT": dftTableBytes,
}
