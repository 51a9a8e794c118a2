package pass

import (
	"encoding/binary"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// mergeMovement merges operators that only move elements.
func mergeMovement(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		switch op := n.Op.(type) {
		case *graph.Transpose:
			return r.mergeTranspose(n, op)
		case *graph.Reshape:
			if x, _, ok := producer[*graph.Reshape](r, n.Inputs[0]); ok {
				return r.replace("reshapes merged", op, x.Inputs[0])
			}
		case *graph.Cast:
			return r.mergeCast(n, op)
		case *graph.Gather:
			return r.sliceOfGather(n, op)
		case *graph.Slice:
			return r.mergeSlice(n, op)
		case *graph.Binary, *graph.Where:
			return r.dropExpand(n)
		}
		return false
	})
}

// mergeTranspose joins two transposes in a row, and makes one that leaves the
// order of elements alone a reshape.
func (r *rewriter) mergeTranspose(n *graph.Node, op *graph.Transpose) bool {
	x := n.Inputs[0]
	if p, first, ok := producer[*graph.Transpose](r, x); ok {
		perm := make([]int64, len(op.Perm))
		for i, a := range op.Perm {
			perm[i] = first.Perm[a]
		}
		return r.replace("transposes merged", &graph.Transpose{Perm: perm}, p.Inputs[0])
	}
	if slices.IsSorted(op.Perm) {
		return false // the pass "identity" removes it
	}
	last := int64(-1)
	for _, a := range op.Perm {
		if r.Tensors[x].Type.Shape[a] == 1 {
			continue
		}
		if a < last {
			return false
		}
		last = a
	}
	return r.replace("transposes of single elements made reshapes", &graph.Reshape{Shape: r.Tensors[n.Outputs[0]].Type.Shape}, x)
}

// mergeCast joins two casts in a row if the first loses nothing.
func (r *rewriter) mergeCast(n *graph.Node, op *graph.Cast) bool {
	p, _, ok := producer[*graph.Cast](r, n.Inputs[0])
	if !ok {
		return false
	}
	from, by := r.Tensors[p.Inputs[0]].Type.DType, r.Tensors[n.Inputs[0]].Type.DType
	if !holds(by, from) {
		return false
	}
	// What does not fit wraps from one integer to another, but not from a float.
	if by.IsFloat() && !from.IsFloat() && !op.To.IsFloat() && !holds(op.To, from) && op.To != graph.Bool {
		return false
	}
	return r.replace("casts merged", op, p.Inputs[0])
}

// holds reports whether every value of type small is one of type big.
func holds(big, small graph.DType) bool {
	if big == small {
		return true
	}
	integer := func(t graph.DType) bool { return t == graph.Bool || t.IsInteger() }
	switch {
	case big == graph.F32:
		return small == graph.F16 || small == graph.BF16 || integer(small) && small.Size() <= 2
	case big == graph.F64:
		return small == graph.F16 || small == graph.BF16 || small == graph.F32 || integer(small) && small.Size() <= 4
	case small == graph.Bool:
		return big.IsInteger()
	case big.IsSigned():
		return small.IsInteger() && small.Size() < big.Size() || small.IsSigned() && small.Size() == big.Size() && big.Size() > 1
	case big.IsUnsigned():
		return small.IsUnsigned() && small.Size() < big.Size()
	}
	return false
}

// sliceOfGather makes a selection by constant indices that follow each other a
// slice.
func (r *rewriter) sliceOfGather(n *graph.Node, op *graph.Gather) bool {
	x, idx := r.Tensors[n.Inputs[0]].Type, &r.Tensors[n.Inputs[1]]
	if !idx.Const || idx.Type.Elements() == 0 || idx.Type.Elements() > 1<<16 {
		return false
	}
	size := x.Shape[op.Axis]
	at := make([]int64, idx.Type.Elements())
	for i := range at {
		if idx.Type.DType == graph.I64 {
			at[i] = int64(binary.LittleEndian.Uint64(idx.Data[8*i:]))
		} else {
			at[i] = int64(int32(binary.LittleEndian.Uint32(idx.Data[4*i:])))
		}
		if at[i] < 0 {
			at[i] += size
		}
		if at[i] < 0 || at[i] >= size || i > 0 && at[i] != at[i-1]+1 {
			return false
		}
	}
	s := &graph.Slice{Start: make([]int64, x.Rank()), Size: slices.Clone(x.Shape), Step: slices.Repeat([]int64{1}, x.Rank())}
	s.Start[op.Axis], s.Size[op.Axis] = at[0], int64(len(at))
	y := r.Tensors[n.Outputs[0]].Type.Shape
	if slices.Equal(s.Size, y) {
		return r.replace("selections made slices", s, n.Inputs[0])
	}
	t := r.emit(s, n.Inputs[0])
	if t == graph.None {
		return false
	}
	return r.replace("selections made slices", &graph.Reshape{Shape: y}, t)
}

// mergeSlice joins two slices in a row.
func (r *rewriter) mergeSlice(n *graph.Node, op *graph.Slice) bool {
	p, first, ok := producer[*graph.Slice](r, n.Inputs[0])
	if !ok || r.Tensors[n.Outputs[0]].Type.Elements() == 0 {
		return false
	}
	s := &graph.Slice{Start: slices.Clone(op.Start), Size: op.Size, Step: slices.Clone(op.Step)}
	for i := range s.Start {
		s.Start[i] = first.Start[i] + op.Start[i]*first.Step[i]
		s.Step[i] = op.Step[i] * first.Step[i]
		if s.Size[i] == 1 {
			s.Step[i] = 1
		}
	}
	return r.replace("slices merged", s, p.Inputs[0])
}

// dropExpand lets an operator that broadcasts read an operand before it was
// expanded.
func (r *rewriter) dropExpand(n *graph.Node) bool {
	in := slices.Clone(n.Inputs)
	found := false
	for i, t := range in {
		if p, _, ok := producer[*graph.Expand](r, t); ok {
			in[i], found = p.Inputs[0], true
		}
	}
	if !found {
		return false
	}
	types := make([]graph.TensorType, len(in))
	for i, t := range in {
		types[i] = r.Tensors[t].Type
	}
	if out, err := n.Op.Infer(types); err != nil || !out[0].Equal(r.Tensors[n.Outputs[0]].Type) {
		return false
	}
	return r.replace("expansions left to the operator that follows", n.Op, in...)
}
