package nhwc

import (
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// convTableBytes returns the bytes of the tables of a [Conv]: where every pixel
// of the result and every line of a window lies, and tiles of columns.
func convTableBytes(_ graph.Op, in, out []graph.TensorType) int64 {
	w := in[1]
	pixels := tensor.AtLeastOne(out[0].Shape[1 : out[0].Rank()-1])
	return budget.Add(budget.Mul(4, pixels), budget.Mul(4+3*8*8, tensor.AtLeastOne(w.Shape[2:])), budget.Mul(6*64, budget.Add(w.Shape[0]/8, 8)))
}
