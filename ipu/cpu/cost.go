package cpu

import (
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nchwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/kernel/nhwc"
	"github.com/popefgen/popefgen/ipu/cpu/internal/plan"
	"github.com/popefgen/popefgen/ipu/graph"
)

// cost is what one execution of a step has to do at least, however its kernel
// does it.
type cost struct {
	flops float64 // additions and multiplications of products and convolutions
	bytes int64   // of memory that it has to read and to write
	size  int64   // bytes of memory that it touches, each counted once
}

// costOf returns the cost of step s of a program.
//
// An operation counts if it belongs to a sum of products; what works on one
// element at a time is bounded by memory and counts as bytes alone. Every
// operand is read and every result written once, with two exceptions: of an
// operand that elements are selected from only those count, and the weights of
// a recurrence are read again for every element of the sequence. Where the
// host's memory stands in for a tensor, or a program shares the memory of two,
// nothing moves.
func (e *Engine) costOf(p *plan.Program, s *plan.Step) cost {
	switch s.Kind {
	case plan.Compute:
		node := &e.exe.Graphs[s.Graph].Nodes[s.Node]
		in, out := e.types(node.Inputs), e.types(node.Outputs)
		c := cost{flops: FLOPs(node.Op, in, out)}
		for i := range s.In {
			size := e.operandBytes(s.In[i], in, i)
			c.size += size
			c.bytes += size * reads(node.Op, in, i)
		}
		var written int64
		for i := range s.Out {
			written += e.operandBytes(s.Out[i], out, i)
		}
		if len(in) > 0 && selects(node.Op) {
			left := max(0, e.operandBytes(s.In[0], in, 0)-written)
			c.bytes -= left
			c.size -= left
		}
		c.bytes += written
		c.size += written
		return c
	case plan.CopyIn, plan.CopyOut:
		t := s.In
		if s.Kind == plan.CopyIn {
			t = s.Out
		}
		if len(t) == 0 || e.standsIn(p, t[0]) {
			return cost{}
		}
		return copyCost(e.exe.Tensors[t[0].Tensor].Type)
	case plan.Move, plan.Collect:
		if o := s.Out[0]; int(o.Tensor) < len(e.exe.Tensors) {
			return copyCost(e.exe.Tensors[o.Tensor].Type)
		}
	}
	return cost{}
}

// copyCost returns the cost of a copy of a tensor.
func copyCost(t graph.TensorType) cost { return cost{bytes: 2 * t.Bytes(), size: 2 * t.Bytes()} }

// standsIn reports whether the host's memory may stand in for a transfer's
// tensor.
func (e *Engine) standsIn(p *plan.Program, o plan.Operand) bool {
	switch o.Place {
	case plan.InBuffer:
		b := &p.Buffers[o.Index]
		return b.Input >= 0 || b.Output >= 0
	case plan.InPersistent:
		for i := range e.plan.Persistent {
			if t := &e.plan.Persistent[i]; t.Tensor == o.Tensor {
				return t.Borrowed
			}
		}
	}
	return false
}

func (e *Engine) types(tensors []graph.TensorID) []graph.TensorType {
	out := make([]graph.TensorType, len(tensors))
	for i, t := range tensors {
		if t != graph.None {
			out[i] = e.exe.Tensors[t].Type
		}
	}
	return out
}

// operandBytes returns the bytes of a step's operand or result i, of which the
// node has these types.
func (e *Engine) operandBytes(o plan.Operand, types []graph.TensorType, i int) int64 {
	switch {
	case o.Place == plan.LeftOut:
		return 0
	case o.Place == plan.InPacked:
		return e.plan.Packed[o.Index].Bytes
	case i < len(types) && types[i].DType != graph.Invalid:
		return types[i].Bytes()
	case o.Tensor >= 0 && int(o.Tensor) < len(e.exe.Tensors):
		return e.exe.Tensors[o.Tensor].Type.Bytes()
	}
	return 0
}

// selects reports whether an operator reads only those elements of its first
// operand that it writes.
func selects(op graph.Op) bool {
	switch op.(type) {
	case *graph.Gather, *graph.GatherElements, *graph.GatherND, *graph.Slice:
		return true
	}
	return false
}

// reads returns how often an operator has to read operand i.
func reads(op graph.Op, in []graph.TensorType, i int) int64 {
	const recurrence = 2
	if i != recurrence {
		return 1
	}
	switch o := op.(type) {
	case *graph.LSTM:
		return max(1, sequence(in[0], o.BatchFirst))
	case *graph.GRU:
		return max(1, sequence(in[0], o.BatchFirst))
	case *graph.RNN:
		return max(1, sequence(in[0], o.BatchFirst))
	}
	return 1
}

// sequence returns the length of a recurrent operator's sequence.
func sequence(x graph.TensorType, batchFirst bool) int64 {
	if batchFirst {
		return x.Shape[1]
	}
	return x.Shape[0]
}

// FLOPs returns how many additions and multiplications of an operator's sums
// of products there are, padding included: a product of [M,K] and [K,N] has
// 2·M·K·N.
func FLOPs(op graph.Op, in, out []graph.TensorType) float64 {
	size := func(t graph.TensorType) float64 { return float64(max(0, t.Elements())) }
	over := func(a float64, n int64) float64 { return a / float64(max(1, n)) }
	switch o := op.(type) {
	case *graph.MatMul, *graph.IntegerMatMul:
		return 2 * size(out[0]) * float64(last(in[0]))
	case *graph.Gemm:
		k := in[0].Shape[1]
		if o.TransA {
			k = in[0].Shape[0]
		}
		return 2 * size(out[0]) * float64(k)
	case *graph.Conv, *graph.DeformConv, *graph.IntegerConv:
		return 2 * size(out[0]) * over(size(in[1]), in[1].Shape[0])
	case *nhwc.Conv:
		return 2 * over(size(out[0]), last(out[0])) * size(in[1])
	case *nchwc.Conv:
		results := size(out[0])
		if o.Out {
			results = over(results, out[0].Shape[1]*o.Lanes) * float64(in[1].Shape[0])
		}
		return 2 * results * over(size(in[1]), in[1].Shape[0])
	case *nchwc.FusedTiles:
		all := 0.0
		types, _ := o.Types(in)
		for i, t := range types {
			n := len(t) - 1
			all += FLOPs(o.Members[i].Op, t[:n], t[n:])
		}
		return all
	case *graph.ConvTranspose:
		return 2 * size(in[0]) * over(size(in[1]), in[1].Shape[0])
	case *graph.ConvWeightGradient:
		return 2 * size(out[0]) * over(size(in[1]), in[1].Shape[1])
	case *graph.LSTM:
		return recurrentFLOPs(in, o.BatchFirst)
	case *graph.GRU:
		return recurrentFLOPs(in, o.BatchFirst)
	case *graph.RNN:
		return recurrentFLOPs(in, o.BatchFirst)
	case *graph.RecurrentGradient: // the gates again, and two products for each of theirs
		return 3 * recurrentFLOPs(in, o.BatchFirst)
	case *graph.Attention: // the scores and what they weigh
		q, k := in[0], in[1]
		keys := k.Shape[k.Rank()-2]
		return 2*size(q)*float64(keys) + 2*size(out[0])*float64(keys)
	case *graph.AttentionGradient: // the scores again, and two products for each of theirs
		q, k := in[0], in[1]
		keys := k.Shape[k.Rank()-2]
		return 3*2*size(q)*float64(keys) + 2*2*size(in[5])*float64(keys)
	case *graph.ViewedAttention:
		each := 2 * float64(o.Rows) * float64(o.Cols) * float64(o.Size+o.Width)
		for _, n := range o.Heads {
			each *= float64(n)
		}
		return each
	case *graph.LinearAttention: // for each step and head, key times value and query times state
		v := in[2]
		width := over(float64(last(v)), o.KVHeads)
		return 2*size(in[1])*width + 2*size(in[0])*width
	}
	return 0
}

// recurrentFLOPs returns the operations of the products of a recurrent operator:
// every element of the sequence with W, every state with R, in each direction.
func recurrentFLOPs(in []graph.TensorType, batchFirst bool) float64 {
	x, w, r := in[0], in[1], in[2]
	rows := float64(x.Shape[0]) * float64(x.Shape[1])
	return 2 * rows * (float64(max(0, w.Elements())) + float64(max(0, r.Elements())))
}

func last(t graph.TensorType) int64 {
	if t.Rank() == 0 {
		return 1
	}
	return t.Shape[t.Rank()-1]
}

// function names what an operator computes, where its kind does not.
func function(op graph.Op) string {
	switch o := op.(type) {
	case *graph.Unary:
		return string(o.Fn)
	case *graph.Binary:
		return string(o.Fn)
	case *graph.Reduce:
		return string(o.Fn)
	case *graph.Bitwise:
		return string(o.Fn)
	case *graph.Cumulate:
		return string(o.Fn)
	case *nchwc.FusedTiles:
		return "of " + o.String()
	}
	return ""
}
