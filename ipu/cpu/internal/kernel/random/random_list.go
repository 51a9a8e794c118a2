package random

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on random numbers.
var Kernels = map[string]tensor.Binder{
	"Random": bindRandom,
}
