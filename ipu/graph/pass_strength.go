package graph

import (
	"encoding/binary"
	"math"

	"github.com/popefgen/popefgen/ipu/num"
)

// reduceStrength replaces elementwise operators by cheaper ones of the same
// result.
func reduceStrength(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		op, ok := n.Op.(*Binary)
		if !ok || len(n.Outputs) == 0 || n.Outputs[0] == None {
			return false
		}
		x, y := n.Inputs[0], n.Inputs[1]
		if !r.single(n.Outputs[0]) {
			return r.reduceHalf(op.Fn, x, y)
		}
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
				return r.divide(x, v, 100)
			}
		case Max:
			if x, ok := r.other(n, 0); ok {
				return r.replace("maxima with zero made rectifiers", &Unary{Fn: Relu}, x)
			}
		}
		return false
	})
}

// divide makes the current node, x/v, a product if v is a power of two, the
// reciprocal of which is exact; exponents are less than most.
func (r *rewriter) divide(x TensorID, v float64, most int) bool {
	f, e := math.Frexp(v)
	return math.Abs(f) == 0.5 && e > -most && e < most &&
		r.replace("divisions by powers of two made products", &Binary{Fn: Mul}, x, r.float(r.Tensors[x].Type.DType, 1/v))
}

// reduceHalf is reduceStrength for half precision, which is rounded after every
// operator: squares and products by powers of two are exact before that.
func (r *rewriter) reduceHalf(fn BinaryFn, x, y TensorID) bool {
	v := r.halfNumber(y)
	switch {
	case !r.keeps(x, r.n.Outputs[0]):
		return false
	case fn == Pow && v == 2:
		return r.replace("squares made products", &Binary{Fn: Mul}, x, x)
	case fn == Div:
		return r.divide(x, v, 14)
	}
	return false
}

// halfNumber returns the value of a constant of one element of half precision,
// NaN if t is none.
func (r *rewriter) halfNumber(t TensorID) float64 {
	if e := &r.Tensors[t]; e.Const && e.Type.Elements() == 1 {
		switch bits := e.Data; e.Type.DType {
		case F16:
			return float64(num.Float16(binary.LittleEndian.Uint16(bits)).Float32())
		case BF16:
			return float64(num.BFloat16(binary.LittleEndian.Uint16(bits)).Float32())
		}
	}
	return math.NaN()
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
