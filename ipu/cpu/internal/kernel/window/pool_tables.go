package window

import (
	"math"

	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// PoolTableBytes returns the bytes of the tables of a pooling: how many elements of a window count at every position of the last
// axis, in every lane of a block; the rows of the input under each row of windows;
// divisors by how many rows these are; and ones for windows at every place.
func PoolTableBytes(op graph.Op, _, out []graph.TensorType) int64 {
	var kernel, strides []int64
	switch o := op.(type) {
	case *graph.MaxPool:
		kernel, strides = o.Kernel, o.Strides
	case *graph.AveragePool:
		kernel, strides = o.Kernel, o.Strides
	}
	last := len(kernel) - 1
	columns, rows := budget.Add(out[0].Shape[2+last], 16), int64(1)
	if last > 0 {
		rows = out[0].Shape[1+last]
	} else {
		rows = budget.Mul(out[0].Shape[0], out[0].Shape[1])
	}
	sets := min(rows, kernel[max(0, last-1)]+1)
	if last == 0 {
		sets = 1
	}
	return budget.Add(budget.Mul(8*16, columns), budget.Mul(12, rows), budget.Mul(6*8, columns, sets), budget.Mul(64, sets),
		budget.Mul(8, columns, strides[last]))
}

// ResizeTableBytes returns the bytes of the tables of a Resize: an offset for every
// position of an axis, or elements and their weights.
func ResizeTableBytes(op graph.Op, in, _ []graph.TensorType) int64 {
	o := op.(*graph.Resize)
	total := int64(0)
	for axis, size := range o.Sizes {
		taps := 4.0 // of a line between two elements, cut off at both ends
		if o.Mode != graph.ResizeNearest {
			scale := 1.0
			if o.Antialias && axis < len(o.Scales) {
				scale = max(min(o.Scales[axis], 1), 0.5/float64(max(1, tensor.Dimension(in[0], axis))))
			}
			taps = max(taps, 2*math.Ceil(2/scale)+2)
		}
		each := budget.Mul(16, int64(min(taps, math.MaxInt32)))
		total = budget.Add(total, budget.Mul(max(1, size), each), each)
		if o.Coordinates == graph.CropAndResize {
			total = budget.Add(total, budget.Mul(6*8, size))
		}
	}
	return total
}
