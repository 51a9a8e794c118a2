package nhwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on NHWC int8 activations.
var Kernels = map[string]tensor.Binder{
	"ToNHWC":      bindToNHWC,
	"FromNHWC":    bindFromNHWC,
	"NHWCConv":    bindConv,
	"NHWCMaxPool": bindMaxPool,
	"NHWCBinary":  bindBinary,
	"NHWCLookup":  bindLookup,
	"NHWCConcat":  bindConcat,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"NHWCConv": convTableBytes,
}
