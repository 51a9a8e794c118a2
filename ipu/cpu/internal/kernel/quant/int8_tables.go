package quant

import (
	"github.com/popefgen/popefgen/internal/budget"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/conv"
	"github.com/popefgen/popefgen/ipu/graph"
)

// integerConvTableBytes: phases and distances of every element of an axis, where
// every step of a window lies, a row that adds up bytes, and the tiles of a
// plane, whose lines reach as far as windows do.
func integerConvTableBytes(op graph.Op, in, out []graph.TensorType) int64 {
	o, w := op.(*graph.IntegerConv), in[1]
	spatial := w.Rank() - 2
	total := int64(0)
	reach := func(i int) int64 {
		if i < 0 {
			return 1
		}
		return budget.Add(out[0].Shape[2+i], budget.Mul(w.Shape[2+i]-1, o.Dilations[i])/max(1, o.Strides[i]))
	}
	for i := range spatial {
		total = budget.Add(total, budget.Mul(16+8*6+64, w.Shape[2+i]))
	}
	steps := conv.WindowElements(w)
	if last := w.Shape[w.Rank()-1]; last > 0 { // of four channels, or of four elements of a line
		steps = min(budget.Mul(steps/last, (last+3)/4), budget.Mul(steps/max(1, w.Shape[1]), (w.Shape[1]+3)/4))
	}
	rows := int64(1)
	if spatial > 1 {
		rows = out[0].Shape[out[0].Rank()-2]
	}
	span := budget.Add(budget.Mul(rows, reach(spatial-1)), 32)
	return budget.Add(total, budget.Mul(8+8+8, budget.Add(steps, 64)), budget.Mul(64, span/32+2))
}
