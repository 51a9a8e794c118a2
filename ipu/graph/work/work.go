// Package work bounds how many operations an operator of the portable executable takes, so
// that a compiler computes nothing at compile time, and an engine runs nothing, that takes
// longer than its user allows.
package work

import (
	"math"
	"math/bits"

	"github.com/popefgen/popefgen/ipu/graph"
)

// Max is what [Of] returns where a number of operations does not fit 63
// bits.
const Max = math.MaxInt64

// What one element costs, in multiplications: moved, computed by arithmetic, or
// by a function such as exp.
const (
	workMove     = 1
	workSimple   = 4
	workFunction = 24
)

// Of returns an upper bound of the elementary operations that an operator takes, each about as
// long as a multiplication with its loads, for given types of its operands and
// results; a left-out one has the zero [graph.TensorType]. known is false for an
// operator without a declared cost, which must not be computed before somebody
// asks for it. Operators that run graphs cost nothing themselves.
func Of(op graph.Op, in, out []graph.TensorType) (n int64, known bool) {
	w := declaredWork[op.Kind()]
	if w == nil {
		return 0, false
	}
	sum := workSum(0)
	for _, t := range in {
		sum.add(workMove, size(t))
	}
	for _, t := range out {
		sum.add(workMove, size(t))
	}
	w(&sum, op, in, out)
	return int64(sum), true
}

// size returns the elements of a tensor, 0 if it is left out.
func size(t graph.TensorType) int64 {
	if t.DType == graph.Invalid {
		return 0
	}
	return max(0, t.Elements())
}

// workSum is a number of operations that stays at [Max] once it is there.
type workSum int64

// add adds a product of numbers; those below 0 count as 0.
func (s *workSum) add(factors ...int64) {
	n := int64(1)
	for _, f := range factors {
		if f <= 0 {
			return
		}
	}
	for _, f := range factors {
		if n > Max/f {
			*s = Max
			return
		}
		n *= f
	}
	if int64(*s) > Max-n {
		*s = Max
		return
	}
	*s += workSum(n)
}

// product multiplies sizes, up to [Max].
func product(sizes []int64) int64 {
	s := workSum(0)
	s.add(append([]int64{1}, sizes...)...)
	return int64(s)
}

// workOf adds the operations of one operator, besides a move of each operand and
// result.
type workOf func(s *workSum, op graph.Op, in, out []graph.TensorType)

// perElement is the work of an operator that computes every element by itself.
func perElement(cost int64) workOf {
	return func(s *workSum, _ graph.Op, in, out []graph.TensorType) {
		for _, t := range out {
			s.add(cost, size(t))
		}
		if len(in) > 0 {
			s.add(cost, size(in[0]))
		}
	}
}

// perWindow is the work of sums over windows; the second operand has the weights
// of one for each output channel.
func perWindow(cost int64) workOf {
	return func(s *workSum, _ graph.Op, in, out []graph.TensorType) {
		s.add(cost, size(out[0]), product(in[1].Shape[1:]))
	}
}

// pooling is the work of operators that look at each element of a window.
func pooling(cost int64, kernel func(graph.Op) []int64) workOf {
	return func(s *workSum, op graph.Op, _, out []graph.TensorType) {
		s.add(cost, size(out[0]), product(kernel(op)))
	}
}

// regions adds the work of a RoiAlign of x to y, at cost for each sample.
func (s *workSum) regions(cost int64, o *graph.RoiAlign, x, y graph.TensorType) {
	down, across := o.SamplingRatio, o.SamplingRatio
	if o.SamplingRatio == 0 { // as many as there are elements
		down, across = x.Shape[2]+4, x.Shape[3]+4
	}
	s.add(cost, size(y), down, across)
}

// recurrentWork is that of each element of a sequence with the weights W and
// each state with R, and of the activations of the gates.
func recurrentWork(s *workSum, _ graph.Op, in, _ []graph.TensorType) {
	x, w, r := in[0], in[1], in[2]
	rows := product(x.Shape[:2])
	s.add(rows, size(w))
	s.add(rows, size(r))
	s.add(rows, workFunction, product(w.Shape[:2]))
}

// declaredWork lists the work of all operators.
var declaredWork = map[string]workOf{
	"ArgMax": perElement(workSimple), "Assert": perElement(0), "AssertLabels": perElement(workSimple), "BatchNorm": perElement(workSimple), "Binary": perElement(workFunction), "BitCast": perElement(workMove),
	"Bitwise": perElement(workSimple), "Cast": perElement(workSimple), "Clip": perElement(workSimple), "Col2Im": perElement(workSimple),
	"Concat": perElement(workMove), "Cumulate": perElement(workSimple), "Dequantize": perElement(workFunction), "Expand": perElement(workMove), "Field": perElement(workMove),
	"Gather": perElement(workMove), "GatherElements": perElement(workSimple), "GatherND": perElement(workSimple), "GroupNorm": perElement(workFunction),
	"If": perElement(0), "LayerNorm": perElement(workFunction), "Loop": perElement(0), "MaxUnpool": perElement(workSimple),
	"Mod": perElement(workFunction), "OneHot": perElement(workSimple), "Pad": perElement(workSimple), "Quantize": perElement(workFunction),
	"RMSNorm": perElement(workFunction), "Random": perElement(4 * workFunction), "Reduce": perElement(workFunction), "Reshape": perElement(workMove), "Slice": perElement(workMove),
	"Softmax": perElement(workFunction), "Transpose": perElement(workSimple), "Unary": perElement(workFunction), "Update": perElement(2 * workFunction), "Where": perElement(workSimple),

	"ScatterElements": func(s *workSum, _ graph.Op, in, _ []graph.TensorType) { s.add(2*workSimple, size(in[1])) },
	"ScatterND":       func(s *workSum, _ graph.Op, in, _ []graph.TensorType) { s.add(2*workSimple, size(in[2])) },

	"MatMul": func(s *workSum, _ graph.Op, in, out []graph.TensorType) { s.add(size(out[0]), lastOf(in[0])) },
	"IntegerMatMul": func(s *workSum, _ graph.Op, in, out []graph.TensorType) {
		s.add(size(out[0]), lastOf(in[0]))
		s.add(workFunction, size(out[0]))
	},
	"Gemm": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		k := in[0].Shape[1]
		if op.(*graph.Gemm).TransA {
			k = in[0].Shape[0]
		}
		s.add(size(out[0]), k)
	},

	"Conv":       perWindow(1),
	"DeformConv": perWindow(2 * workSimple),
	"IntegerConv": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		perWindow(1)(s, op, in, out)
		s.add(workFunction, size(out[0]))
	},
	// Every element of x goes with a kernel for each output channel.
	"ConvTranspose": func(s *workSum, _ graph.Op, in, _ []graph.TensorType) { s.add(size(in[0]), product(in[1].Shape[1:])) },

	// Every weight is the sum of a product for each element of its output channel; so is, without products, the bias.
	"ConvWeightGradient": func(s *workSum, _ graph.Op, in, out []graph.TensorType) {
		s.add(size(out[0]), in[1].Shape[0], product(in[1].Shape[2:]))
		s.add(size(in[1]))
	},

	"MaxPool":     pooling(1, func(op graph.Op) []int64 { return op.(*graph.MaxPool).Kernel }),
	"AveragePool": pooling(1, func(op graph.Op) []int64 { return op.(*graph.AveragePool).Kernel }),
	"LpPool":      pooling(workFunction, func(op graph.Op) []int64 { return op.(*graph.LpPool).Kernel }),
	"Gradient": func(s *workSum, op graph.Op, in, _ []graph.TensorType) {
		s.add(2*workSimple, size(in[0]), product(op.(*graph.Gradient).Kernel))
		s.add(workFunction, size(in[1]))
	},
	"LRN": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		s.add(size(out[0]), min(op.(*graph.LRN).Size, in[0].Shape[1]))
		s.add(workFunction, size(out[0]))
	},

	"Resize": resizeWork,
	"GridSample": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		near := int64(workSimple) // elements near a place, on each axis
		for range in[0].Rank() - 2 {
			near *= 4
		}
		s.add(near, size(out[0]))
	},
	"RoiAlign": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		s.regions(workSimple, op.(*graph.RoiAlign), in[0], out[0])
	},
	"RoiAlignGradient": func(s *workSum, op graph.Op, in, _ []graph.TensorType) {
		o := graph.RoiAlign(*op.(*graph.RoiAlignGradient))
		s.add(workSimple, size(in[0]))
		s.regions(8*workSimple, &o, in[0], in[3])
	},
	"MaxRoiPool": func(s *workSum, op graph.Op, in, out []graph.TensorType) {
		o := op.(*graph.MaxRoiPool)
		s.add(in[1].Shape[0], in[0].Shape[1], in[0].Shape[2]+2*o.Height, in[0].Shape[3]+2*o.Width)
	},

	"LSTM": recurrentWork, "GRU": recurrentWork, "RNN": recurrentWork,
	"RecurrentGradient": func(s *workSum, op graph.Op, in, out []graph.TensorType) { // the gates again, and two products for each of theirs
		for range 3 {
			recurrentWork(s, op, in, out)
		}
	},

	"Attention": func(s *workSum, op graph.Op, in, out []graph.TensorType) { // the scores, their softmax and what they weigh
		q, k := in[0], in[1]
		rows, cols := q.Shape[q.Rank()-2], k.Shape[k.Rank()-2]
		s.add(size(q), cols)
		s.add(workFunction, q.Shape[0], op.(*graph.Attention).Heads, rows, cols)
		s.add(size(out[0]), cols)
	},
	"AttentionGradient": func(s *workSum, op graph.Op, in, _ []graph.TensorType) { // the scores again, and two products for each of theirs
		q, k := in[0], in[1]
		rows, cols := q.Shape[q.Rank()-2], k.Shape[k.Rank()-2]
		s.add(3, size(q), cols)
		s.add(workFunction, q.Shape[0], op.(*graph.AttentionGradient).Heads, rows, cols)
		s.add(2, size(in[5]), cols)
	},
	"ViewedAttention": func(s *workSum, op graph.Op, _, _ []graph.TensorType) {
		o := op.(*graph.ViewedAttention)
		s.add(product(o.Heads), o.Rows, o.Cols, o.Size+o.Width+workFunction)
	},
	"LinearAttention": func(s *workSum, op graph.Op, in, _ []graph.TensorType) { // for each step and head: key times value, query times state
		width := lastOf(in[2])
		s.add(workSimple, size(in[0]), width)
		s.add(workSimple, size(in[1]), width)
	},

	"DFT": func(s *workSum, op graph.Op, in, _ []graph.TensorType) {
		n := op.(*graph.DFT).Length
		lines := int64(1)
		for axis, d := range in[0].Shape[:max(0, in[0].Rank()-1)] {
			if int64(axis) != op.(*graph.DFT).Axis {
				lines = product([]int64{max(1, lines), d})
			}
		}
		// Three transforms of twice the length where it has a great prime factor,
		// and the roots of unity.
		steps := int64(bits.Len64(uint64(n)))
		s.add(lines, n, 3*2*4, steps+8)
		s.add(10*workFunction, n)
	},
	"Det": func(s *workSum, _ graph.Op, in, _ []graph.TensorType) { s.add(size(in[0]), lastOf(in[0])) },
	"TopK": func(s *workSum, _ graph.Op, in, _ []graph.TensorType) {
		s.add(workSimple, size(in[0]), int64(bits.Len64(uint64(size(in[0]))))+workSimple)
	},
	"NonZero": perElement(workSimple),
	"NonMaxSuppression": func(s *workSum, op graph.Op, in, _ []graph.TensorType) {
		o := op.(*graph.NonMaxSuppression)
		lists, boxes := product(in[1].Shape[:2]), in[1].Shape[2]
		s.add(workFunction, lists, boxes)                              // sorting
		s.add(workSimple, lists, boxes, min(o.Most, boxes, o.Bound+1)) // each box beside those picked
	},
	"Unique": func(s *workSum, _ graph.Op, in, _ []graph.TensorType) {
		s.add(workSimple, size(in[0]), int64(bits.Len64(uint64(in[0].Shape[0])))+workSimple)
		s.add(workFunction, in[0].Shape[0], int64(bits.Len64(uint64(in[0].Shape[0])))+workSimple)
	},
	"TfIdf": func(s *workSum, op graph.Op, in, _ []graph.TensorType) {
		o := op.(*graph.TfIdf)
		n := max(size(in[0]), 1) // items, each of which begins n-grams at every distance
		s.add(workFunction, n, min(n, o.MaxSkip)+1, o.MaxGram)
		s.add(workFunction, int64(len(o.Pool)))
	},
	"Pointwise": func(s *workSum, op graph.Op, _, out []graph.TensorType) {
		s.add(workFunction, size(out[0]), int64(len(op.(*graph.Pointwise).Fns)))
	},
}

// lastOf returns the size of a tensor's last axis.
func lastOf(t graph.TensorType) int64 {
	if t.Rank() == 0 {
		return 1
	}
	return t.Shape[t.Rank()-1]
}

// resizeWork is that of one axis after the other, each a sum of some elements
// for every one of what is in between.
func resizeWork(s *workSum, op graph.Op, in, out []graph.TensorType) {
	o := op.(*graph.Resize)
	s.add(workSimple, size(out[0]))
	if o.Mode == graph.ResizeNearest {
		return
	}
	between := make([]int64, len(o.Sizes))
	for axis, n := range o.Sizes {
		between[axis] = max(1, n, in[0].Shape[axis])
	}
	all := product(between)
	for axis, n := range o.Sizes {
		taps := 4.0
		if o.Antialias && axis < len(o.Scales) {
			taps = 4/max(min(o.Scales[axis], 1), 0.5/float64(max(1, in[0].Shape[axis]))) + 4
		}
		if n != in[0].Shape[axis] {
			s.add(all, int64(min(taps, 1<<52)))
		}
		s.add(workFunction, n, int64(min(taps, 1<<52))) // the weights
	}
}
