package update

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators of optimizers.
var Kernels = map[string]tensor.Binder{
	"Update": bindUpdate,
}
