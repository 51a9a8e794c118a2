package onnx

import (
	"github.com/popefgen/popefgen/ipu/cpu"
	"github.com/popefgen/popefgen/ipu/graph"
)

// Bounds on what is computed at compile time. Beyond them an operator on known
// operands is left to the executable, which is right as well, only slower.
const (
	foldBytes     = 64 << 20  // one result that is larger than its operands
	foldNewBytes  = 256 << 20 // all results together, beside some copies of what the model holds
	foldCopies    = 4
	foldWork      = 2 << 30 // multiplications or moved bytes of one operator
	foldTotalWork = 8 << 30
)

// budget counts what folding has used up.
type budget struct {
	bytes, work int64
	held        int64 // bytes of the model's own constants
}

// take reports whether op may be computed now, and counts it.
func (b *budget) take(op graph.Op, in []*value, out []graph.TensorType) bool {
	var inBytes, outBytes int64
	for _, v := range in {
		if v != nil {
			inBytes += int64(len(v.data))
		}
	}
	for _, t := range out {
		outBytes += t.Bytes() // at most a few results of less than 2^40 bytes
	}
	if outBytes > foldBytes && outBytes > inBytes {
		return false
	}
	work := foldCost(op, in, out, inBytes+outBytes)
	if work > foldWork || b.bytes+outBytes > foldNewBytes+foldCopies*b.held || b.work+work > foldTotalWork {
		return false
	}
	b.bytes += outBytes
	b.work += work
	return true
}

// foldCost estimates the work of an operator; moved is the bytes of its
// operands and results.
func foldCost(op graph.Op, in []*value, out []graph.TensorType, moved int64) int64 {
	per := func(n int64) int64 { // n operations for each element of result 0
		e := max(out[0].Elements(), 1)
		if n > foldTotalWork/e {
			return foldTotalWork + 1
		}
		return moved + e*n
	}
	product := func(dims []int64) int64 {
		n := int64(1)
		for _, d := range dims {
			if d > 0 && n > foldTotalWork/d {
				return foldTotalWork
			}
			n *= max(d, 1)
		}
		return n
	}
	switch o := op.(type) {
	case *graph.MatMul:
		return per(in[0].typ.Shape[in[0].rank()-1])
	case *graph.Gemm:
		if o.TransA {
			return per(in[0].typ.Shape[0])
		}
		return per(in[0].typ.Shape[1])
	case *graph.Conv:
		return per(product(in[1].typ.Shape[1:]))
	case *graph.ConvTranspose:
		// Every element of x goes with a kernel for each output channel.
		e, n := max(in[0].typ.Elements(), 1), product(in[1].typ.Shape[1:])
		if n > foldTotalWork/e {
			return foldTotalWork + 1
		}
		return moved + e*n
	case *graph.DeformConv:
		return per(product(in[1].typ.Shape[1:]))
	case *graph.LpPool:
		return per(product(o.Kernel))
	case *graph.RoiAlign:
		samples := max(o.SamplingRatio, in[0].typ.Shape[2]/o.Height+1, in[0].typ.Shape[3]/o.Width+1)
		return per(product([]int64{samples, samples}))
	case *graph.LRN:
		return per(min(o.Size, in[0].typ.Shape[1]))
	case *graph.Det:
		n := in[0].typ.Shape[in[0].rank()-1]
		return per(product([]int64{n, n, n}))
	case *graph.TfIdf:
		n := max(in[0].typ.Elements(), 1) // items, each of which begins n-grams at every distance
		return moved + product([]int64{n, min(n, o.MaxSkip) + 1, o.MaxGram})
	case *graph.MaxPool:
		return per(product(o.Kernel))
	case *graph.AveragePool:
		return per(product(o.Kernel))
	case *graph.LSTM:
		return per(4 * (product(in[1].typ.Shape[2:]) + o.Hidden))
	case *graph.GRU:
		return per(3 * (product(in[1].typ.Shape[2:]) + o.Hidden))
	case *graph.RNN:
		return per(product(in[1].typ.Shape[2:]) + o.Hidden)
	}
	return moved
}

// fold computes op on known operands.
func fold(op graph.Op, in []*value) ([]graph.TensorType, [][]byte, error) {
	types := make([]graph.TensorType, len(in))
	data := make([][]byte, len(in))
	for i, v := range in {
		if v != nil {
			types[i], data[i] = v.typ, v.data
		}
	}
	return cpu.Eval(op, types, data)
}
