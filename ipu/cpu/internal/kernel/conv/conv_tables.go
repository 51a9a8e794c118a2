package conv

import (
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/tensor"
	"github.com/popefgen/popefgen/ipu/graph"
)

// WindowElements returns the elements of a convolution's window over all channels.
func WindowElements(w graph.TensorType) int64 { return tensor.AtLeastOne(w.Shape[1:]) }

// ConvTableBytes returns the bytes of the tables of a convolution: where every
// element of a window lies in a band of the image, the phases of a line, a strip for
// every few columns, and a row of zeros.
func ConvTableBytes(_ graph.Op, in, out []graph.TensorType) int64 {
	w, last := in[1], in[1].Rank()-1
	return budget.Add(budget.Mul(4, WindowElements(w)), budget.Mul(8, w.Shape[last]), budget.Mul(4, w.Shape[1]),
		budget.Mul(4, budget.Add(w.Shape[0], 64)), budget.Mul(4, budget.Add(tensor.Dimension(in[0], in[0].Rank()-1), 64)),
		budget.Mul(88, budget.Add(tensor.Dimension(out[0], out[0].Rank()-1), 16)))
}

// convTransposeTableBytes: which positions every element of the last axis meets.
func convTransposeTableBytes(_ graph.Op, in, _ []graph.TensorType) int64 {
	return budget.Mul(16, max(1, tensor.Dimension(in[1], in[1].Rank()-1)))
}
