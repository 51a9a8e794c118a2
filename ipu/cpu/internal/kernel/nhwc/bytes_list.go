package nhwc

import "github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"

// Kernels are the binders of the operators on NHWC int8 activations.
var Kernels = map[string]tensor.Binder{
	"ToPixels":      bindToPixels,
	"FromPixels":    bindFromPixels,
	"PixelsConv":    bindPixelsConv,
	"PixelsMaxPool": bindPixelsMaxPool,
	"PixelsBinary":  bindPixelsBinary,
	"PixelsMap":     bindPixelsMap,
	"PixelsConcat":  bindPixelsConcat,
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"PixelsConv": pixelsConvTableBytes,
}
