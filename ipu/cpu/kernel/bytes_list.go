package kernel

// nhwcKernels are the binders of the operators on NHWC int8 activations.
var nhwcKernels = map[string]binder{
	"ToPixels":      bindToPixels,
	"FromPixels":    bindFromPixels,
	"PixelsConv":    bindPixelsConv,
	"PixelsMaxPool": bindPixelsMaxPool,
	"PixelsBinary":  bindPixelsBinary,
	"PixelsMap":     bindPixelsMap,
	"PixelsConcat":  bindPixelsConcat,
}

// nhwcTables declares the tables of their kernels.
var nhwcTables = map[string]declared{
	"PixelsConv": pixelsConvTableBytes,
}
