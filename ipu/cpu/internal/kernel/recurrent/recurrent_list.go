package recurrent

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on recurrent networks.
var Kernels = map[string]tensor.Binder{
	"LSTM": vec.Widened(bindRecurrent),
	"GRU":  vec.Widened(bindRecurrent),
	"RNN":  vec.Widened(bindRecurrent),

	"RecurrentGradient": vec.Widened(bindGradient),
}
