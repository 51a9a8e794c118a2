package graph

import (
	"math"
	"slices"
)

// fuseBounds lets a convolution apply the rectifier or the constant limits
// that follow it. Half precision may be limited before it is rounded: the
// limits are numbers of that type.
func fuseBounds(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		low, high, ok := r.limits(n)
		if !ok {
			return false
		}
		x := n.Inputs[0]
		p, conv, ok := producer[*Conv](r, x)
		if !ok {
			return r.boundBeforeMove(n)
		}
		if conv.Bounded || !r.once(x) || r.Tensors[x].Type.DType == F64 {
			return false
		}
		bounded := *conv
		bounded.Bounded, bounded.Low, bounded.High = true, low, high
		return r.replace("limits of convolutions", &bounded, p.Inputs...)
	})
}

// limits returns within which constant limits a rectifier or a [Clip] keeps
// its operand.
func (r *rewriter) limits(n *Node) (low, high float64, ok bool) {
	low, high = math.Inf(-1), math.Inf(1)
	if len(n.Outputs) == 0 || n.Outputs[0] == None || len(n.Inputs) == 0 {
		return low, high, false
	}
	switch op := n.Op.(type) {
	case *Unary:
		return 0, high, op.Fn == Relu
	case *Clip:
		for i, bound := range []*float64{&low, &high} {
			if i+1 >= len(n.Inputs) || n.Inputs[i+1] == None {
				continue
			}
			v, ok := r.number(n.Inputs[i+1])
			if !ok || math.IsNaN(v) {
				return low, high, false
			}
			*bound = v
		}
		return low, high, true
	}
	return low, high, false
}

// boundBeforeMove lets the limits that n stands for apply before a move of what
// a convolution computes, or several of them.
func (r *rewriter) boundBeforeMove(n *Node) bool {
	x := n.Inputs[0]
	move := r.node(x)
	if !r.moved(x) {
		return false
	}
	op, rest := move.Op, n.Inputs[1:]
	inputs := slices.Clone(move.Inputs)
	for i, t := range inputs {
		inputs[i] = r.emit(n.Op, append([]TensorID{t}, rest...)...)
	}
	return r.replace("limits before moves", op, inputs...)
}

// moved reports whether t is a result of convolutions that nobody reads
// otherwise, with its elements in another order.
func (r *rewriter) moved(t TensorID) bool {
	n := r.node(t)
	if n == nil || !r.once(t) {
		return false
	}
	switch n.Op.(type) {
	case *Reshape, *Transpose, *Slice, *Concat:
	default:
		return false
	}
	for _, x := range n.Inputs {
		if conv, op, ok := producer[*Conv](r, x); ok && conv != nil && r.once(x) && !op.Bounded {
			continue
		}
		if !r.moved(x) {
			return false
		}
	}
	return len(n.Inputs) > 0
}
