package pass

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// fuseBounds lets a convolution or product apply the rectifier or the constant
// limits that follow it. Half precision may be limited before it is rounded: the
// limits are numbers of that type.
func fuseBounds(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		low, high, ok := r.limits(n)
		if !ok {
			return false
		}
		x := n.Inputs[0]
		if !r.unbounded(x) {
			return r.boundBeforeMove(n)
		}
		p := r.node(x)
		switch op := p.Op.(type) {
		case *graph.Conv:
			bounded := *op
			bounded.Bounded, bounded.Low, bounded.High = true, low, high
			return r.replace("limits of convolutions", &bounded, p.Inputs...)
		case *graph.Gemm:
			bounded := *op
			bounded.Bounded, bounded.Low, bounded.High = true, low, high
			return r.replace("limits of products", &bounded, p.Inputs...)
		}
		return false
	})
}

// unbounded reports whether t is the result of a convolution or product that
// can limit it, does not, and is read once.
func (r *rewriter) unbounded(t graph.TensorID) bool {
	n := r.node(t)
	if n == nil || !r.once(t) || !graph.Boundable(r.Tensors[t].Type.DType) {
		return false
	}
	switch op := n.Op.(type) {
	case *graph.Conv:
		return !op.Bounded
	case *graph.Gemm:
		return !op.Bounded
	}
	return false
}

// limits returns within which constant limits a rectifier or a [Clip] keeps
// its operand.
func (r *rewriter) limits(n *graph.Node) (low, high float64, ok bool) {
	low, high = math.Inf(-1), math.Inf(1)
	if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || len(n.Inputs) == 0 {
		return low, high, false
	}
	switch op := n.Op.(type) {
	case *graph.Unary:
		return 0, high, op.Fn == graph.Relu
	case *graph.Clip:
		for i, bound := range []*float64{&low, &high} {
			if i+1 >= len(n.Inputs) || n.Inputs[i+1] == graph.None {
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
// a convolution or product computes, or several of them.
func (r *rewriter) boundBeforeMove(n *graph.Node) bool {
	x := n.Inputs[0]
	move := r.node(x)
	if !r.moved(x) {
		return false
	}
	op, rest := move.Op, n.Inputs[1:]
	inputs := slices.Clone(move.Inputs)
	for i, t := range inputs {
		inputs[i] = r.emit(n.Op, append([]graph.TensorID{t}, rest...)...)
	}
	return r.replace("limits before moves", op, inputs...)
}

// moved reports whether t is a result of convolutions or products that nobody
// reads otherwise, with its elements in another order.
func (r *rewriter) moved(t graph.TensorID) bool {
	n := r.node(t)
	if n == nil || !r.once(t) {
		return false
	}
	switch n.Op.(type) {
	case *graph.Reshape, *graph.Transpose, *graph.Slice, *graph.Concat:
	default:
		return false
	}
	for _, x := range n.Inputs {
		if !r.unbounded(x) && !r.moved(x) {
			return false
		}
	}
	return len(n.Inputs) > 0
}
