package ops

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/rt/popxl"
)

// LSTMState has what [LSTM] begins with: the zero Tensor for zeros.
type LSTMState[T popxl.Float] struct {
	Hidden popxl.Tensor[T] // [batch, hidden]
	Cell   popxl.Tensor[T] // [batch, hidden]
	// Lengths has how many elements of each sequence count: those behind them are not computed, and their results are 0. [batch]
	Lengths popxl.Tensor[int32]
}

// LSTM runs a long short-term memory over x [time, batch, input], with ONNX's order of gates: w [4·hidden, input] and r [4·hidden, hidden] have the rows of the input, output and forget gate and
// of the cell, one behind the other, and bias [4·hidden] is added to both products, or the zero Tensor for none. With i, o, f = σ(…) and c = tanh(…) of W·x + R·h + b,
// C' = f·C + i·c and h' = o·tanh(C'). It returns h' of every step, [time, batch, hidden], and the last cell C', [batch, hidden].
func LSTM[T popxl.Float](x, w, r, bias popxl.Tensor[T], begin LSTMState[T]) (h, cell popxl.Tensor[T]) {
	const call = "ops.LSTM"
	hidden := int64(1)
	if s := r.Shape(); len(s) == 2 {
		hidden = s[1]
	}
	op := &graph.LSTM{Hidden: hidden, Direction: "forward", Activations: []string{"Sigmoid", "Tanh", "Tanh"}, ActAlpha: make([]float64, 3), ActBeta: make([]float64, 3)}
	// The operator has an axis for the directions, and of the bias a half for each product.
	var b, lengths popxl.Operand
	if some(bias) {
		zero := popxl.Apply[T](call, &graph.Binary{Fn: graph.Mul}, bias, number[T](call, x.Ir(), 0))
		b = lead(call, popxl.Apply[T](call, &graph.Concat{}, bias, zero))
	}
	if some(begin.Lengths) {
		lengths = begin.Lengths
	}
	y, _, c := popxl.Apply3[T, T, T](call, op, x, lead(call, w), lead(call, r), b, lengths, optional(call, begin.Hidden), optional(call, begin.Cell))
	if !y.Valid() {
		return y, popxl.Failed[T](x.Ir())
	}
	s := y.Shape()
	return popxl.Apply[T](call, &graph.Reshape{Shape: []int64{s[0], s[2], s[3]}}, y), popxl.Apply[T](call, &graph.Reshape{Shape: []int64{s[2], s[3]}}, c)
}

// some reports whether a tensor is given: the zero Tensor is none.
func some[T popxl.Element](x popxl.Tensor[T]) bool { return x != popxl.Tensor[T]{} }

// lead returns x with an axis of one element before all others.
func lead[T popxl.Element](call string, x popxl.Tensor[T]) popxl.Tensor[T] {
	return popxl.Apply[T](call, &graph.Reshape{Shape: append([]int64{1}, x.Shape()...)}, x)
}

func optional[T popxl.Element](call string, x popxl.Tensor[T]) popxl.Operand {
	if !some(x) {
		return nil
	}
	return lead(call, x)
}
