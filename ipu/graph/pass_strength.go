package graph

import "math"

// reduceStrength replaces elementwise operators by cheaper ones of the same
// result.
func reduceStrength(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		op, ok := n.Op.(*Binary)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == None || !r.single(n.Outputs[0]) {
			return false
		}
		x, y := n.Inputs[0], n.Inputs[1]
		switch op.Fn {
		case Pow:
			v, ok := r.number(y)
			if !ok || !r.keeps(x, n.Outputs[0]) {
				return false
			}
			switch v {
			case 2:
				return r.replace("squares made products", &Binary{Fn: Mul}, x, x)
			case 3:
				if q := r.emit(&Binary{Fn: Mul}, x, x); q != None {
					return r.replace("cubes made products", &Binary{Fn: Mul}, q, x)
				}
			}
		case Div:
			if v, ok := r.number(y); ok && r.keeps(x, n.Outputs[0]) {
				if f, e := math.Frexp(v); math.Abs(f) == 0.5 && e > -100 && e < 100 {
					return r.replace("divisions by powers of two made products", &Binary{Fn: Mul}, x, r.float(r.Tensors[x].Type.DType, 1/v))
				}
			}
		case Max:
			if x, ok := r.other(n, 0); ok {
				return r.replace("maxima with zero made rectifiers", &Unary{Fn: Relu}, x)
			}
		}
		return false
	})
}

// other returns the operand of the current node, a function of two, whose
// other operand is a constant of one value v.
func (r *rewriter) other(n *Node, v float64) (TensorID, bool) {
	for i, x := range n.Inputs {
		if c, ok := r.number(n.Inputs[1-i]); ok && c == v && !math.Signbit(c) && r.keeps(x, n.Outputs[0]) {
			return x, true
		}
	}
	return None, false
}
