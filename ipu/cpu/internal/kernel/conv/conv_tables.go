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

// convTransposeTableBytes: which positions every element of the last axis meets, and the tables of a convolution for each
// phase, which have a part of the kernel's elements each; memory
// comes in sizes that are up to an eighth larger than asked for.
func convTransposeTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	o, x, w := op.(*graph.ConvTranspose), in[0], in[1]
	phases := int64(1)
	for i, stride := range o.Strides {
		phases = budget.Mul(phases, min(stride, max(1, tensor.Dimension(out[0], 2+i))))
	}
	phases = min(phases, mostPhases)
	channels, maps := x.Shape[1]/o.Group, w.Shape[1]
	window := tensor.AtLeastOne(w.Shape[2:])
	last := x.Rank() - 1
	each := budget.Add(4096, budget.Mul(8, tensor.Dimension(w, last)), budget.Mul(8, channels), budget.Mul(4, budget.Add(maps, 64)),
		budget.Mul(4, budget.Add(tensor.Dimension(x, last), 64)), budget.Mul(88, budget.Add(tensor.Dimension(out[0], last), 16)))
	return budget.Add(budget.Mul(16, max(1, tensor.Dimension(w, last))), budget.Mul(8, budget.Mul(channels, window)), budget.Mul(phases, each))
}

// convWeightTableBytes: where every pixel of a block lies in what is copied of the operand, the masks of a line of it, and the
// tiles of a window.
func convWeightTableBytes(op graph.Op, in, _ []graph.TensorType) int64 {
	o, last := op.(*graph.ConvWeightGradient), in[1].Rank()-1
	line := budget.Add(budget.Mul(tensor.Dimension(in[1], last), o.Strides[len(o.Strides)-1]), budget.Mul(tensor.AtLeastOne(o.Kernel), o.Dilations[len(o.Dilations)-1]), 64)
	return budget.Add(4096, budget.Mul(4, budget.Add(2048, tensor.Dimension(in[1], last))), budget.Mul(8, line), budget.Mul(96, tensor.AtLeastOne(o.Kernel)))
}
