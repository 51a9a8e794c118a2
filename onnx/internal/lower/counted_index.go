package lower

import (
	"fmt"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// indices returns places along an axis of x, with zeros behind their counts. If x is counted
// there, places from the end are made such from the start, and those behind the count end the run.
func (c *Call) indices(idx, x *Value, axis int64) *Value {
	idx = c.Clean(idx)
	n := x.Count(axis)
	if n == nil || idx.Type.Elements() == 0 {
		return idx
	}
	counts, dirty := idx.counts, idx.dirty
	list := plain(idx)
	t := list.Type.DType
	count, zero := n, Scalar(t, 0)
	if t != graph.I64 {
		count = c.Emit(&graph.Cast{To: t}, n)
	}
	list = c.Emit(&graph.Where{}, c.Binary(graph.Less, list, zero), c.Binary(graph.Add, list, count), list)
	if list.Counted() {
		panic("counted")
	}
	if len(counts) > 0 {
		// Behind their own count they may be zero where there is nothing.
		list = plain(c.filled(list.with(counts, true), zero, nil))
	}
	axes := make([]int64, list.Rank())
	for i := range axes {
		axes[i] = int64(i)
	}
	all := func(fn graph.ReduceFn) *Value {
		if len(axes) == 0 {
			return list
		}
		return c.Emit(&graph.Reduce{Fn: fn, Axes: axes}, list)
	}
	most := count
	if len(counts) > 0 && slices.ContainsFunc(counts, func(v *Value) bool { return v != nil }) {
		most = c.Binary(graph.Max, count, Scalar(t, 1))
	}
	fine := c.Binary(graph.And, c.Binary(graph.Less, all(graph.ReduceMax), most), c.Binary(graph.GreaterEqual, all(graph.ReduceMin), zero))
	c.Check(fine, "an index is outside of axis %d of what it picks from, to which data gives fewer elements", axis)
	return list.with(counts, dirty)
}

func (c *Call) gathered(o *graph.Gather, x, idx *Value) *Value {
	idx = c.indices(idx, x, o.Axis)
	if x.Type.Shape[o.Axis] == 0 {
		x = c.take(x, o.Axis, 1)
	}
	own := fullCounts(x)
	counts := slices.Concat(own[:o.Axis], fullCounts(idx), own[o.Axis+1:])
	return c.Emit(o, plain(x), plain(idx)).with(counts, true)
}

// coordinates is [Call.indices] for the coordinates on the last axis of indices, of axes of x
// from first on.
func (c *Call) coordinates(idx, x *Value, first int64) *Value {
	idx = c.Clean(idx)
	last := idx.Rank() - 1
	k := idx.Type.Shape[last]
	counted := false
	for i := range k {
		counted = counted || x.Count(first+i) != nil
	}
	if !counted {
		return idx
	}
	parts := make([]*Value, k)
	for i := range k {
		start, size := make([]int64, last+1), slices.Clone(idx.Type.Shape)
		start[last], size[last] = i, 1
		parts[i] = idx
		if k > 1 {
			parts[i] = c.Emit(&graph.Slice{Start: start, Size: size, Step: slices.Repeat([]int64{1}, int(last)+1)}, idx)
		}
		if x.Count(first+i) != nil {
			parts[i] = c.indices(parts[i], x, first+i)
		}
	}
	if k == 1 {
		return parts[0]
	}
	return c.Emit(&graph.Concat{Axis: last}, parts...)
}

func (c *Call) gatheredSlices(o *graph.GatherND, x, idx *Value) *Value {
	last := idx.Rank() - 1
	k := idx.Type.Shape[last]
	if idx.Count(last) != nil {
		c.Refuse(idx, last, "but it holds coordinates")
	}
	for a := range o.BatchDims {
		if x.Count(a) != idx.Count(a) {
			c.Refuse(x, a, "and the indices' is not the same")
		}
	}
	idx = c.coordinates(idx, x, o.BatchDims)
	for a := o.BatchDims; a < o.BatchDims+k; a++ {
		if x.Type.Shape[a] == 0 {
			x = c.take(x, a, 1)
		}
	}
	counts := slices.Concat(fullCounts(idx)[:last], fullCounts(x)[o.BatchDims+k:])
	return c.Emit(o, plain(x), plain(idx)).with(counts, true)
}

// scattered writes what is behind the counts of indices to an element more, which is cut off again.
func (c *Call) scattered(op graph.Op, in []*Value) *Value {
	x, idx, updates := in[0], in[1], in[2]
	axis := int64(0)
	last := idx.Rank()
	if o, ok := op.(*graph.ScatterElements); ok {
		axis = o.Axis
		if x.Count(axis) != nil {
			idx = c.indices(idx, x, axis)
		}
	} else {
		last--
		k := idx.Type.Shape[last]
		if idx.Count(last) != nil {
			c.Refuse(idx, last, "but it holds coordinates")
		}
		idx = c.coordinates(idx, x, 0)
		if k == 0 {
			c.countedOnly(in, 0)
		}
	}
	in = []*Value{idx, updates}
	for a := range last {
		c.align(in, false, func(*Value) int64 { return a })
	}
	idx, updates = in[0], in[1]
	for a := last; a < updates.Rank(); a++ { // axes of slices
		at := a - last + idxWidth(op, idx)
		x, updates = c.pair(x, at, updates, a)
	}
	if !idx.Counted() {
		return c.Emit(op, plain(x), idx, plain(updates)).with(x.counts, true)
	}
	t := idx.Type.DType
	size := x.Type.Shape[axis]
	beyond, sizes := Scalar(t, float64(size)), Scalar(t, float64(size))
	if _, ok := op.(*graph.ScatterND); ok {
		k := idx.Type.Shape[last]
		var there, all []byte
		for a := range k {
			place := int64(0)
			if a == 0 {
				place = size
			}
			there = append(there, EncodeInt(t, place)...)
			all = append(all, EncodeInt(t, x.Type.Shape[a])...)
		}
		row := graph.TensorType{DType: t, Shape: []int64{k}}
		beyond, sizes = Known(row, there), Known(row, all)
	}
	list := plain(idx)
	list = c.Emit(&graph.Where{}, c.Binary(graph.Less, list, Scalar(t, 0)), c.Binary(graph.Add, list, sizes), list)
	list = plain(c.filled(list.with(idx.counts, true), beyond, nil))
	y := c.Emit(op, c.take(plain(x), axis, size+1), list, plain(updates))
	return c.take(y, axis, size).with(x.counts, true)
}

// idxWidth is how many axes of x the indices of a scatter name.
func idxWidth(op graph.Op, idx *Value) int64 {
	if _, ok := op.(*graph.ScatterND); ok {
		return idx.Type.Shape[idx.Rank()-1]
	}
	return 0
}

// multiplied is a product of matrices. What is summed over is zero behind its count.
func (c *Call) multiplied(a, b *Value) *Value {
	inner := func(v *Value, fromEnd int64) int64 { return max(0, v.Rank()-fromEnd) }
	ka, kb := inner(a, 1), inner(b, 2)
	if a.Count(ka) != nil || b.Count(kb) != nil {
		a, b = c.pair(c.Clean(a), ka, c.Clean(b), kb)
	}
	ra, rb := a.Rank(), b.Rank()
	rank := max(ra, rb)
	in := []*Value{a, b}
	counts := make([]*Value, 0, rank)
	for at := range rank - 2 { // batches
		counts = append(counts, c.align(in, true, func(v *Value) int64 {
			if i := at - rank + v.Rank(); i < v.Rank()-2 {
				return i
			}
			return -1
		}))
	}
	a, b = in[0], in[1]
	if ra > 1 {
		counts = append(counts, a.Count(ra-2))
	}
	if rb > 1 {
		counts = append(counts, b.Count(rb-1))
	}
	return c.Emit(&graph.MatMul{}, plain(a), plain(b)).with(counts, true)
}

func (c *Call) gemm(o *graph.Gemm, in []*Value) *Value {
	a, b := in[0], in[1]
	m, ka, kb, n := int64(0), int64(1), int64(0), int64(1)
	if o.TransA {
		m, ka = ka, m
	}
	if o.TransB {
		kb, n = n, kb
	}
	if a.Count(ka) != nil || b.Count(kb) != nil {
		a, b = c.pair(c.Clean(a), ka, c.Clean(b), kb)
	}
	counts := []*Value{a.Count(m), b.Count(n)}
	args := []*Value{plain(a), plain(b)}
	if len(in) > 2 && in[2] != nil {
		bias := in[2]
		for i, count := range counts {
			if at := int64(i) - 2 + bias.Rank(); at >= 0 && bias.Count(at) != count && (bias.Count(at) != nil || bias.Type.Shape[at] != 1) {
				if count == nil {
					c.Refuse(bias, at, "but is added to an axis of fixed size")
				}
				c.Refuse([]*Value{a, b}[i], []int64{m, n}[i], fmt.Sprintf("but what is added has another size, %s", graph.ShapeString(bias.Type.Shape)))
			}
		}
		args = append(args, plain(bias))
	}
	return c.Emit(o, args...).with(counts, true)
}

// normalised normalises over axes that are not counted.
func (c *Call) normalised(op graph.Op, want []bool, in []*Value) []*Value {
	c.countedOnly(in, 0)
	x := in[0]
	axis := int64(0)
	switch o := op.(type) {
	case *graph.LayerNorm:
		axis = o.Axis
	case *graph.RMSNorm:
		axis = o.Axis
	}
	for a := axis; a < x.Rank(); a++ {
		if x.Count(a) != nil {
			c.Refuse(x, a, "but is to be normalised")
		}
	}
	out := c.EmitN(op, want, plains(in)...)
	for i, y := range out {
		if y != nil {
			out[i] = y.with(x.counts, true)
		}
	}
	return out
}
