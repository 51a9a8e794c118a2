package graph

import "math"

// fuseBounds lets a convolution apply the rectifier or the constant limits
// that follow it. Half precision may be limited before it is rounded: the
// limits are numbers of that type.
func fuseBounds(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == None || len(n.Inputs) == 0 {
			return false
		}
		low, high := math.Inf(-1), math.Inf(1)
		switch op := n.Op.(type) {
		case *Unary:
			if op.Fn != Relu {
				return false
			}
			low = 0
		case *Clip:
			for i, bound := range []*float64{&low, &high} {
				if i+1 >= len(n.Inputs) || n.Inputs[i+1] == None {
					continue
				}
				v, ok := r.number(n.Inputs[i+1])
				if !ok || math.IsNaN(v) {
					return false
				}
				*bound = v
			}
		default:
			return false
		}
		x := n.Inputs[0]
		p, conv, ok := producer[*Conv](r, x)
		if !ok || conv.Bounded || !r.once(x) || r.Tensors[x].Type.DType == F64 {
			return false
		}
		bounded := *conv
		bounded.Bounded, bounded.Low, bounded.High = true, low, high
		return r.replace("limits of convolutions", &bounded, p.Inputs...)
	})
}
