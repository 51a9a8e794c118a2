package pass

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// recogniseNorms replaces softmax, layer normalisation and RMS normalisation
// written as primitives by their operators, and gives a normalisation the
// factor and the addend that follow it.
func recogniseNorms(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		op, ok := n.Op.(*graph.Binary)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == graph.None || !r.single(n.Outputs[0]) {
			return false
		}
		switch op.Fn {
		case graph.Div:
			return r.softmax(n) || r.normalised(n, n.Inputs[0], n.Inputs[1], false)
		case graph.Mul:
			return r.normalised(n, n.Inputs[0], n.Inputs[1], true) || r.normalised(n, n.Inputs[1], n.Inputs[0], true) ||
				r.scaledNorm(n, n.Inputs[0], n.Inputs[1]) || r.scaledNorm(n, n.Inputs[1], n.Inputs[0])
		case graph.Add:
			return r.shiftedNorm(n, n.Inputs[0], n.Inputs[1]) || r.shiftedNorm(n, n.Inputs[1], n.Inputs[0])
		}
		return false
	})
}

// reduced returns x and the axes if t is x reduced by fn, with axes of 1 in
// place of those that are reduced.
func (r *rewriter) reduced(t graph.TensorID, fn graph.ReduceFn) (x graph.TensorID, axes []int64, ok bool) {
	want := r.Tensors[t].Type
	for {
		n, _, ok := producer[*graph.Reshape](r, t)
		if !ok {
			break
		}
		t = n.Inputs[0]
	}
	n, op, ok := producer[*graph.Reduce](r, t)
	if !ok || op.Fn != fn || len(op.Axes) == 0 {
		return graph.None, nil, false
	}
	x = n.Inputs[0]
	kept := slices.Clone(r.Tensors[x].Type.Shape)
	for _, a := range op.Axes {
		kept[a] = 1
	}
	return x, op.Axes, slices.Equal(kept, want.Shape)
}

// softmax recognises exp(x-max x) / Σ exp(x-max x).
func (r *rewriter) softmax(n *graph.Node) bool {
	e := n.Inputs[0]
	s, axes, ok := r.reduced(n.Inputs[1], graph.ReduceSum)
	if !ok || s != e || len(axes) != 1 {
		return false
	}
	d, ok := r.unary(e, graph.Exp)
	if !ok {
		return false
	}
	x, m, ok := r.binary(d, graph.Sub)
	if !ok || !r.keeps(x, n.Outputs[0]) {
		return false
	}
	y, over, ok := r.maximum(m)
	if !ok || y != x || !slices.Equal(over, axes) {
		return false
	}
	return r.replace("softmax", &graph.Softmax{Axis: axes[0]}, x)
}

// maximum is [rewriter.reduced] for maxima, which may be limited from below
// by a number that none is below of.
func (r *rewriter) maximum(t graph.TensorID) (x graph.TensorID, axes []int64, ok bool) {
	if x, axes, ok = r.reduced(t, graph.ReduceMax); ok {
		return x, axes, ok
	}
	want := r.Tensors[t].Type.Shape
	for {
		n, _, ok := producer[*graph.Reshape](r, t)
		if !ok {
			break
		}
		t = n.Inputs[0]
	}
	a, b, ok := r.binary(t, graph.Max)
	if !ok {
		return graph.None, nil, false
	}
	if _, isNumber := r.number(a); isNumber {
		a, b = b, a
	}
	if v, ok := r.number(b); !ok || !math.IsInf(v, -1) {
		return graph.None, nil, false
	}
	n, op, ok := producer[*graph.Reduce](r, a)
	if !ok || op.Fn != graph.ReduceMax {
		return graph.None, nil, false
	}
	kept := slices.Clone(r.Tensors[n.Inputs[0]].Type.Shape)
	for _, a := range op.Axes {
		kept[a] = 1
	}
	return n.Inputs[0], op.Axes, slices.Equal(kept, want)
}

// deviation returns the variable v and ε if s is √(v+ε), or 1 divided by that
// if inverse is set.
func (r *rewriter) deviation(s graph.TensorID, inverse bool) (v graph.TensorID, epsilon float64, ok bool) {
	power := 0.5
	if inverse {
		if x, ok := r.unary(s, graph.Reciprocal); ok {
			s, inverse = x, false
		} else if a, b, ok := r.binary(s, graph.Div); ok {
			if one, ok := r.number(a); !ok || one != 1 {
				return graph.None, 0, false
			}
			s, inverse = b, false
		}
	}
	if inverse {
		power = -0.5
	}
	t, ok := r.unary(s, graph.Sqrt)
	if !ok || inverse {
		a, b, isPower := r.binary(s, graph.Pow)
		if !isPower {
			return graph.None, 0, false
		}
		if p, ok := r.number(b); !ok || p != power {
			return graph.None, 0, false
		}
		t = a
	}
	return r.plus(t)
}

// square returns x if t is x·x.
func (r *rewriter) square(t graph.TensorID) (x graph.TensorID, ok bool) {
	a, b, ok := r.binary(t, graph.Mul)
	if ok && a == b {
		return a, true
	}
	if a, b, ok = r.binary(t, graph.Pow); ok {
		if p, ok := r.number(b); ok && p == 2 {
			return a, true
		}
	}
	return graph.None, false
}

// normalised recognises d divided by s, or multiplied by it if inverse is set,
// as layer normalisation where d is x less its mean, else as RMS
// normalisation: s² is the mean of d² and ε.
func (r *rewriter) normalised(n *graph.Node, d, s graph.TensorID, inverse bool) bool {
	if !r.keeps(d, n.Outputs[0]) {
		return false
	}
	v, epsilon, ok := r.deviation(s, inverse)
	if !ok {
		return false
	}
	q, axes, ok := r.reduced(v, graph.ReduceMean)
	if !ok {
		return false
	}
	rank := int64(r.Tensors[d].Type.Rank())
	first := rank - int64(len(axes))
	if axes[0] != first || axes[len(axes)-1] != rank-1 {
		return false
	}
	if e, ok := r.square(q); !ok || e != d {
		return false
	}
	typ := r.Tensors[d].Type
	ones := func() graph.TensorID { return r.float(typ.DType, 1, typ.Shape[first:]...) }
	if typ.Elements() == 0 || (graph.TensorType{DType: typ.DType, Shape: typ.Shape[first:]}).Elements() > 1<<16 {
		return false
	}
	if x, m, ok := r.binary(d, graph.Sub); ok && r.keeps(x, d) {
		if y, over, ok := r.reduced(m, graph.ReduceMean); ok && y == x && slices.Equal(over, axes) {
			return r.replace("layer normalisations", &graph.LayerNorm{Axis: first, Epsilon: epsilon}, x, ones())
		}
	}
	return r.replace("RMS normalisations", &graph.RMSNorm{Axis: first, Epsilon: epsilon}, d, ones())
}

// scaledNorm gives a normalisation by ones the factor s.
func (r *rewriter) scaledNorm(n *graph.Node, y, s graph.TensorID) bool {
	p := r.node(y)
	if p == nil || !r.once(y) || !r.keeps(y, n.Outputs[0]) || !r.stable(s) {
		return false
	}
	switch p.Op.(type) {
	case *graph.LayerNorm:
		if len(p.Inputs) > 2 || len(p.Outputs) > 1 {
			return false
		}
	case *graph.RMSNorm:
	default:
		return false
	}
	if one, ok := r.number(p.Inputs[1]); !ok || one != 1 {
		return false
	}
	if !graph.BroadcastsTo(r.Tensors[s].Type.Shape, r.Tensors[y].Type.Shape) {
		return false
	}
	return r.replace("factors of normalisations", p.Op, p.Inputs[0], s)
}

// shiftedNorm gives a layer normalisation the addend b.
func (r *rewriter) shiftedNorm(n *graph.Node, y, b graph.TensorID) bool {
	p, op, ok := producer[*graph.LayerNorm](r, y)
	if !ok || len(p.Inputs) > 2 || len(p.Outputs) > 1 || !r.once(y) || !r.keeps(y, n.Outputs[0]) || !r.stable(b) {
		return false
	}
	if !r.settled(b) || !graph.BroadcastsTo(r.Tensors[b].Type.Shape, r.Tensors[y].Type.Shape) {
		return false
	}
	return r.replace("addends of layer normalisations", op, p.Inputs[0], p.Inputs[1], b)
}
