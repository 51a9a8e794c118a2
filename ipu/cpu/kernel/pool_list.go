package kernel

// windowKernels are the binders of the operators on windows, resizing and sampling.
var windowKernels = map[string]binder{
	"MaxPool":     widened(bindMaxPool),
	"AveragePool": widened(bindAveragePool),
	"LpPool":      widened(bindLpPool),
	"MaxUnpool":   bindMaxUnpool,
	"Resize":      bindResize,
	"Col2Im":      widened(bindCol2Im),
	"GridSample":  widened(bindGridSample),
	"RoiAlign":    widened(bindRoiAlign),
	"MaxRoiPool":  widened(bindMaxRoiPool),
}

// windowTables declares the tables of their kernels.
var windowTables = map[string]declared{
	"MaxPool":     poolTableBytes,
	"AveragePool": poolTableBytes,
	"Resize":      resizeTableBytes,
}
