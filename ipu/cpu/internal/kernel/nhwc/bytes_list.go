package nhwc

import (
	"errors"

	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Kernels are the binders of the operators on NHWC int8 activations.
var Kernels = map[string]tensor.Binder{
	"ToNHWC":      bindToNHWC,
	"FromNHWC":    bindFromNHWC,
	"NHWCConv":    where(Supported, bindConv),
	"NHWCMaxPool": where(Supported, bindMaxPool),
	"NHWCBinary":  where(Supported, bindBinary),
	"NHWCLookup":  where(HasLookup, bindLookup),
	"NHWCConcat":  where(Supported, bindConcat),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"NHWCConv": convTableBytes,
}

// where returns a binder whose kernels need what a processor may lack: it
// refuses where has reports false.
func where(has func() bool, bind tensor.Binder) tensor.Binder {
	return func(op graph.Op, in, out []graph.TensorType) (tensor.Kernel, error) {
		if !has() {
			return nil, errors.New("the instructions that its kernel needs are not to be used")
		}
		return bind(op, in, out)
	}
}
