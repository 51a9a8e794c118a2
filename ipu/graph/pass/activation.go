package pass

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// recogniseActivations replaces activations written as primitives by their
// functions.
func recogniseActivations(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || !r.single(n.Outputs[0]) {
			return false
		}
		op, ok := n.Op.(*graph.Binary)
		if !ok || op.Fn != graph.Mul && op.Fn != graph.Div {
			return false
		}
		p, ok := r.factors(n)
		if !ok {
			return false
		}
		return r.gelu(p) || r.gated(p) || r.hardSigmoid(p)
	})
}

// factors is a product of a number and tensors of the type of the product.
type factors struct {
	number  float64
	tensors []graph.TensorID
}

// factors takes a product apart: products and quotients by constants that
// nobody else reads belong to it.
func (r *rewriter) factors(n *graph.Node) (factors, bool) {
	p := factors{number: 1}
	return p, r.multiply(&p, n, r.Tensors[n.Outputs[0]].Type, 8)
}

func (r *rewriter) multiply(p *factors, n *graph.Node, typ graph.TensorType, depth int) bool {
	factor := func(t graph.TensorID) bool {
		if v, ok := r.number(t); ok {
			p.number *= v
			return true
		}
		if !r.Tensors[t].Type.Equal(typ) || len(p.tensors) > 8 {
			return false
		}
		if q := r.node(t); q != nil && depth > 0 && r.once(t) {
			before := factors{p.number, slices.Clone(p.tensors)}
			if r.multiply(p, q, typ, depth-1) {
				return true
			}
			*p = before
		}
		p.tensors = append(p.tensors, t)
		return true
	}
	op, ok := n.Op.(*graph.Binary)
	if !ok {
		return false
	}
	switch op.Fn {
	case graph.Mul:
		if n.Inputs[0] == n.Inputs[1] { // read twice by one node
			if !r.Tensors[n.Inputs[0]].Type.Equal(typ) {
				return false
			}
			p.tensors = append(p.tensors, n.Inputs[0], n.Inputs[0])
			return true
		}
		return factor(n.Inputs[0]) && factor(n.Inputs[1])
	case graph.Div:
		v, ok := r.number(n.Inputs[1])
		if !ok || v == 0 {
			return false
		}
		p.number /= v
		return factor(n.Inputs[0])
	}
	return false
}

// product is [rewriter.factors] of the product t, or t alone.
func (r *rewriter) product(t graph.TensorID) factors {
	if n := r.node(t); n != nil {
		if p, ok := r.factors(n); ok {
			return p
		}
	}
	return factors{1, []graph.TensorID{t}}
}

// pairs calls f with both orders of two factors.
func pairs(p factors, f func(a, b graph.TensorID) bool) bool {
	return len(p.tensors) == 2 && (f(p.tensors[0], p.tensors[1]) || f(p.tensors[1], p.tensors[0]))
}

// gelu recognises ½·x·(1+erf(x/√2)) and ½·x·(1+tanh(√(2/π)·(x+0.044715·x³))).
func (r *rewriter) gelu(p factors) bool {
	if !near(p.number, 0.5) {
		return false
	}
	return pairs(p, func(x, a graph.TensorID) bool {
		y, one, ok := r.plus(a)
		if !ok || one != 1 {
			return false
		}
		if u, ok := r.unary(y, graph.Erf); ok {
			q := r.product(u)
			return near(q.number, math.Sqrt2/2) && slices.Equal(q.tensors, []graph.TensorID{x}) && r.replace("gelu", &graph.Unary{Fn: graph.Gelu}, x)
		}
		u, ok := r.unary(y, graph.Tanh)
		if !ok {
			return false
		}
		q := r.product(u)
		if !near(q.number, math.Sqrt(2/math.Pi)) {
			return false
		}
		fits := false
		switch len(q.tensors) {
		case 1: // x + c·x³
			s, c, ok := r.binary(q.tensors[0], graph.Add)
			fits = ok && (s == x && r.cubic(c, x, 3) || c == x && r.cubic(s, x, 3))
		case 2: // x·(1 + c·x²)
			fits = pairs(q, func(y, s graph.TensorID) bool {
				c, one, ok := r.plus(s)
				return ok && one == 1 && y == x && r.cubic(c, x, 2)
			})
		}
		return fits && r.replace("gelu by tanh", &graph.Unary{Fn: graph.GeluTanh}, x)
	})
}

// cubic reports whether t is 0.044715 times a power of x.
func (r *rewriter) cubic(t, x graph.TensorID, power int) bool {
	p := r.product(t)
	if !near(p.number, 0.044715) {
		return false
	}
	n := 0
	for _, f := range p.tensors {
		if f == x {
			n++
			continue
		}
		q := r.product(f) // a power that others read too
		if q.number != 1 || slices.ContainsFunc(q.tensors, func(t graph.TensorID) bool { return t != x }) {
			return false
		}
		n += len(q.tensors)
	}
	return n == power
}

// gated recognises x times a function of x.
func (r *rewriter) gated(p factors) bool {
	return pairs(p, func(x, a graph.TensorID) bool {
		if near(p.number, 1.0/6) && r.clipped(a, x) {
			return r.replace("hard-swish", &graph.Unary{Fn: graph.HardSwish}, x)
		}
		if p.number != 1 {
			return false
		}
		if u, ok := r.unary(a, graph.Sigmoid); ok {
			q := r.product(u)
			if slices.Equal(q.tensors, []graph.TensorID{x}) {
				return r.replace("swish", &graph.Unary{Fn: graph.Swish, Alpha: q.number}, x)
			}
		}
		if u, op, ok := producer[*graph.Unary](r, a); ok && op.Fn == graph.HardSigmoid && u.Inputs[0] == x && near(op.Alpha, 1.0/6) && near(op.Beta, 0.5) {
			return r.replace("hard-swish", &graph.Unary{Fn: graph.HardSwish}, x)
		}
		if u, ok := r.unary(a, graph.Tanh); ok {
			if y, ok := r.unary(u, graph.Softplus); ok && y == x {
				return r.replace("mish", &graph.Unary{Fn: graph.Mish}, x)
			}
		}
		return false
	})
}

// hardSigmoid recognises ⅙·max(0, min(6, x+3)).
func (r *rewriter) hardSigmoid(p factors) bool {
	if !near(p.number, 1.0/6) || len(p.tensors) != 1 || !r.once(p.tensors[0]) {
		return false
	}
	c, _, ok := producer[*graph.Clip](r, p.tensors[0])
	if !ok {
		return false
	}
	x, _, ok := r.plus(c.Inputs[0])
	return ok && r.clipped(p.tensors[0], x) && r.replace("hard-sigmoid", &graph.Unary{Fn: graph.HardSigmoid, Alpha: 1.0 / 6, Beta: 0.5}, x)
}

// clipped reports whether t is max(0, min(6, x+3)).
func (r *rewriter) clipped(t, x graph.TensorID) bool {
	c, _, ok := producer[*graph.Clip](r, t)
	if !ok || len(c.Inputs) < 3 {
		return false
	}
	lo, ok := r.number(c.Inputs[1])
	if !ok || lo != 0 {
		return false
	}
	if hi, ok := r.number(c.Inputs[2]); !ok || hi != 6 {
		return false
	}
	y, three, ok := r.plus(c.Inputs[0])
	return ok && y == x && three == 3
}
