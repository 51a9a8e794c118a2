package pass

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

// reduceStrength replaces elementwise operators by cheaper ones of the same
// result.
func reduceStrength(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		op, ok := n.Op.(*graph.Binary)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == graph.None {
			return false
		}
		x, y := n.Inputs[0], n.Inputs[1]
		if !r.single(n.Outputs[0]) {
			return r.reduceHalf(op.Fn, x, y)
		}
		switch op.Fn {
		case graph.Pow:
			v, ok := r.number(y)
			if !ok || !r.keeps(x, n.Outputs[0]) {
				return false
			}
			switch v {
			case 2:
				return r.replace("squares made products", &graph.Binary{Fn: graph.Mul}, x, x)
			case 3:
				if q := r.emit(&graph.Binary{Fn: graph.Mul}, x, x); q != graph.None {
					return r.replace("cubes made products", &graph.Binary{Fn: graph.Mul}, q, x)
				}
			}
		case graph.Div:
			if v, ok := r.number(y); ok && r.keeps(x, n.Outputs[0]) {
				return r.divide(x, v, 100)
			}
		case graph.Max:
			if x, ok := r.other(n, 0); ok {
				return r.replace("maxima with zero made rectifiers", &graph.Unary{Fn: graph.Relu}, x)
			}
		}
		return false
	})
}

// divide makes the current node, x/v, a product if v is a power of two, the
// reciprocal of which is exact; exponents are less than most.
func (r *rewriter) divide(x graph.TensorID, v float64, most int) bool {
	f, e := math.Frexp(v)
	return math.Abs(f) == 0.5 && e > -most && e < most &&
		r.replace("divisions by powers of two made products", &graph.Binary{Fn: graph.Mul}, x, r.float(r.Tensors[x].Type.DType, 1/v))
}

// reduceHalf is reduceStrength for half precision, which is rounded after every
// operator: squares and products by powers of two are exact before that.
func (r *rewriter) reduceHalf(fn graph.BinaryFn, x, y graph.TensorID) bool {
	v := r.halfNumber(y)
	switch {
	case !r.keeps(x, r.n.Outputs[0]):
		return false
	case fn == graph.Pow && v == 2:
		return r.replace("squares made products", &graph.Binary{Fn: graph.Mul}, x, x)
	case fn == graph.Div:
		return r.divide(x, v, 14)
	}
	return false
}

// halfNumber returns the value of a constant of one element of half precision,
// NaN if t is none.
func (r *rewriter) halfNumber(t graph.TensorID) float64 {
	if e := &r.Tensors[t]; e.Const && e.Type.Elements() == 1 {
		switch e.Type.DType {
		case graph.F16, graph.BF16:
			return graph.Number(e.Type.DType, e.Data)
		}
	}
	return math.NaN()
}

// other returns the operand of the current node, a function of two, whose
// other operand is a constant of one value v.
func (r *rewriter) other(n *graph.Node, v float64) (graph.TensorID, bool) {
	for i, x := range n.Inputs {
		if c, ok := r.number(n.Inputs[1-i]); ok && c == v && !math.Signbit(c) && r.keeps(x, n.Outputs[0]) {
			return x, true
		}
	}
	return graph.None, false
}
