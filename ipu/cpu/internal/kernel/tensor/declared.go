package tensor

import (
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Dimension returns the size of an axis, 1 of one that is not there.
func Dimension(t graph.TensorType, axis int) int64 {
	if axis < 0 || axis >= t.Rank() {
		return 1
	}
	return t.Shape[axis]
}

// AtLeastOne returns the product of sizes, each taken for 1 at least.
func AtLeastOne(sizes []int64) int64 {
	n := int64(1)
	for _, d := range sizes {
		n = budget.Mul(n, max(1, d))
	}
	return n
}

// Declared returns the bytes of the tables of an operator's kernels; in and out
// are as for [New].
type Declared func(op graph.Op, in, out []graph.TensorType) int64
