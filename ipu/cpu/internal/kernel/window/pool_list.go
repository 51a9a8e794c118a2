package window

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/vec"
)

// Kernels are the binders of the operators on windows, resizing and sampling.
var Kernels = map[string]tensor.Binder{
	"MaxPool":     vec.Widened(bindMaxPool),
	"AveragePool": vec.Widened(bindAveragePool),
	"LpPool":      vec.Widened(bindLpPool),
	"MaxUnpool":   bindMaxUnpool,
	"Resize":      BindResize,
	"Col2Im":      vec.Widened(bindCol2Im),
	"GridSample":  vec.Widened(bindGridSample),
	"RoiAlign":    vec.Widened(bindRoiAlign),
	"MaxRoiPool":  vec.Widened(bindMaxRoiPool),

	"RoiAlignGradient": vec.Widened(bindRoiAlignGradient),
}

// Tables declares the tables of their kernels.
var Tables = map[string]tensor.Declared{
	"MaxPool":     PoolTableBytes,
	"AveragePool": PoolTableBytes,
	"Resize":      ResizeTableBytes,
}
