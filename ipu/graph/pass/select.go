package pass

import (
	"encoding/binary"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// selectRows replaces the product of a one-hot matrix, made by comparing
// indices with 0, 1, 2 …, and a matrix of weights by the selection of the
// weights' rows. An index without a row selects zeros, as the product does.
func selectRows(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		if _, ok := n.Op.(*graph.MatMul); !ok || !r.settled(n.Inputs[1]) {
			return false
		}
		w := r.Tensors[n.Inputs[1]].Type
		cast, _, ok := producer[*graph.Cast](r, n.Inputs[0])
		if !ok || w.Rank() != 2 || r.Tensors[n.Inputs[0]].Type.Rank() < 2 {
			return false
		}
		hot := r.Tensors[n.Inputs[0]].Type
		a, b, ok := r.binary(cast.Inputs[0], graph.Equal)
		if !ok {
			return false
		}
		if r.counting(a, w.Shape[0]) {
			a, b = b, a
		}
		if !r.counting(b, w.Shape[0]) {
			return false
		}
		idx := r.Tensors[a].Type
		if idx.DType != graph.I32 && idx.DType != graph.I64 || idx.Rank() != hot.Rank() || idx.Shape[idx.Rank()-1] != 1 ||
			!slices.Equal(idx.Shape[:idx.Rank()-1], hot.Shape[:hot.Rank()-1]) {
			return false
		}
		// A row of zeros stands for what is out of range.
		zero := graph.Tensor{Name: n.Name, Type: graph.TensorType{DType: w.DType, Shape: []int64{1, w.Shape[1]}}, Const: true}
		zero.Data = make([]byte, zero.Type.Bytes())
		rows := r.emit(&graph.Concat{Axis: 0}, n.Inputs[1], r.tensor(zero))
		i := r.shaped(a, idx.Shape[:idx.Rank()-1]...)
		none, first := r.index(idx.DType, w.Shape[0]), r.index(idx.DType, 0)
		low := r.emit(&graph.Binary{Fn: graph.Less}, i, first)
		i = r.emit(&graph.Where{}, low, none, i)
		i = r.emit(&graph.Binary{Fn: graph.Min}, i, none)
		return r.replace("selections of rows", &graph.Gather{}, rows, i)
	})
}

// index adds a constant index.
func (r *rewriter) index(d graph.DType, v int64) graph.TensorID {
	t := graph.Tensor{Name: r.n.Name, Type: graph.TensorType{DType: d}, Const: true, Data: binary.LittleEndian.AppendUint64(nil, uint64(v))[:d.Size()]}
	return r.tensor(t)
}

// counting reports whether t is a constant that counts 0, 1, … n-1 along its
// last axis, the others being 1.
func (r *rewriter) counting(t graph.TensorID, n int64) bool {
	e := &r.Tensors[t]
	d := e.Type.DType
	if !e.Const || d != graph.I32 && d != graph.I64 || e.Type.Elements() != n || e.Type.Rank() == 0 || e.Type.Shape[e.Type.Rank()-1] != n {
		return false
	}
	for i := range n {
		v := int64(0)
		if d == graph.I64 {
			v = int64(binary.LittleEndian.Uint64(e.Data[8*i:]))
		} else {
			v = int64(int32(binary.LittleEndian.Uint32(e.Data[4*i:])))
		}
		if v != i {
			return false
		}
	}
	return true
}
