package nchwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on the NCHWc layout.
var Kernels = map[string]tensor.Binder{
	"ToNCHWc":     bindToNCHWc,
	"FromNCHWc":   bindFromNCHWc,
	"NCHWcConv":   bindConv,
	"NCHWcPool":   bindPool,
	"NCHWcResize": bindResize,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"NCHWcConv":   blockedConvTableBytes,
	"NCHWcPool":   blockedPoolTableBytes,
	"NCHWcResize": blockedResizeTableBytes,
}
