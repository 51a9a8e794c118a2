package autodiff

import (
	"math"

	"github.com/popefgen/popefgen/ipu/graph"
)

var elementwiseRules = map[string]rule{
	"Binary": {back: backBinary},
	"Cast":   {back: backCast},
	"Clip":   {back: backClip},
	"Mod":    {back: backMod},
	"Unary":  {back: backUnary, zero: flat},
	"Where":  {back: backWhere},
}

// flat reports whether a unary function is constant but for jumps.
func flat(op graph.Op) bool {
	switch op.(*graph.Unary).Fn {
	case graph.Sign, graph.Floor, graph.Ceil, graph.Round, graph.Not:
		return true
	}
	return false
}

func backUnary(p *pull, n *graph.Node) {
	dy := p.dy(n, 0)
	p.give(n, 0, func() graph.TensorID { return p.chain(n.Op.(*graph.Unary), n.Inputs[0], n.Outputs[0], dy) })
}

// chain multiplies dy with the derivative of a unary function at x, where it is y.
func (p *pull) chain(o *graph.Unary, x, y, dy graph.TensorID) graph.TensorID {
	zero := p.number(0, p.dtype(x))
	one := p.number(1, p.dtype(x))
	positive := func(v graph.TensorID) graph.TensorID { return p.binary(graph.Greater, v, zero) }
	switch o.Fn {
	case graph.Abs:
		return p.mul(dy, p.unary(graph.Sign, x))
	case graph.Neg:
		return p.neg(dy)
	case graph.Reciprocal:
		return p.neg(p.mul(dy, p.square(y)))
	case graph.Sqrt:
		return p.div(p.scale(dy, 0.5), y)
	case graph.Exp:
		return p.mul(dy, y)
	case graph.Log:
		return p.div(dy, x)
	case graph.Erf:
		return p.mul(dy, p.scale(p.unary(graph.Exp, p.neg(p.square(x))), 2/math.Sqrt(math.Pi)))
	case graph.Relu: // 0 at 0
		return p.where(positive(y), dy, zero)
	case graph.LeakyRelu: // α at 0
		return p.where(positive(x), dy, p.scale(dy, o.Alpha))
	case graph.ThresholdedRelu:
		return p.only(p.binary(graph.Greater, x, p.number(o.Alpha, p.dtype(x))), dy)
	case graph.HardSigmoid:
		inside := p.binary(graph.And, positive(y), p.binary(graph.Less, y, one))
		return p.only(inside, p.scale(dy, o.Alpha))
	case graph.Sigmoid:
		return p.mul(dy, p.mul(y, p.sub(one, y)))
	case graph.Softplus:
		return p.mul(dy, p.unary(graph.Sigmoid, x))
	case graph.Softsign:
		return p.div(dy, p.square(p.plus(p.unary(graph.Abs, x), 1)))
	case graph.Elu:
		return p.where(positive(x), dy, p.mul(dy, p.scale(p.unary(graph.Exp, x), o.Alpha)))
	case graph.Selu:
		return p.scale(p.where(positive(x), dy, p.mul(dy, p.scale(p.unary(graph.Exp, x), o.Alpha))), o.Beta)
	case graph.Celu:
		return p.where(positive(x), dy, p.mul(dy, p.unary(graph.Exp, p.scale(x, 1/o.Alpha))))
	case graph.HardSwish:
		three, minus := p.number(3, p.dtype(x)), p.number(-3, p.dtype(x))
		slope := p.plus(p.scale(x, 1.0/3), 0.5)
		slope = p.where(p.binary(graph.Less, x, three), slope, one)
		return p.only(p.binary(graph.Greater, x, minus), p.mul(dy, slope))
	case graph.Swish:
		ax := p.scale(x, o.Alpha)
		s := p.unary(graph.Sigmoid, ax)
		return p.mul(dy, p.mul(s, p.add(one, p.mul(ax, p.sub(one, s)))))
	case graph.Mish:
		t := p.unary(graph.Tanh, p.unary(graph.Softplus, x))
		slope := p.mul(p.mul(x, p.unary(graph.Sigmoid, x)), p.sub(one, p.square(t)))
		return p.mul(dy, p.add(t, slope))
	case graph.Gelu: // Φ(x) + x·φ(x)
		phi := p.scale(p.unary(graph.Exp, p.scale(p.square(x), -0.5)), 1/math.Sqrt(2*math.Pi))
		cdf := p.scale(p.plus(p.unary(graph.Erf, p.scale(x, math.Sqrt2/2)), 1), 0.5)
		return p.mul(dy, p.add(cdf, p.mul(x, phi)))
	case graph.GeluTanh:
		c, k := math.Sqrt(2/math.Pi), 0.044715
		xx := p.square(x)
		t := p.unary(graph.Tanh, p.mul(p.scale(x, c), p.plus(p.scale(xx, k), 1)))
		inner := p.plus(p.scale(xx, 3*k*c), c)
		slope := p.mul(p.mul(p.scale(x, 0.5), p.sub(one, p.square(t))), inner)
		return p.mul(dy, p.add(p.scale(p.plus(t, 1), 0.5), slope))
	}
	return p.chainTrigonometric(o.Fn, x, y, dy)
}

// chainTrigonometric is chain for trigonometric and hyperbolic functions and their inverses.
func (p *pull) chainTrigonometric(fn graph.UnaryFn, x, y, dy graph.TensorID) graph.TensorID {
	one := p.number(1, p.dtype(x))
	root := func(v graph.TensorID) graph.TensorID { return p.unary(graph.Sqrt, v) }
	apart := func() graph.TensorID { return p.mul(p.sub(one, x), p.plus(x, 1)) } // 1-x²
	switch fn {
	case graph.Sin:
		return p.mul(dy, p.unary(graph.Cos, x))
	case graph.Cos:
		return p.neg(p.mul(dy, p.unary(graph.Sin, x)))
	case graph.Tan:
		return p.mul(dy, p.plus(p.square(y), 1))
	case graph.Asin:
		return p.div(dy, root(apart()))
	case graph.Acos:
		return p.neg(p.div(dy, root(apart())))
	case graph.Atan:
		return p.div(dy, p.plus(p.square(x), 1))
	case graph.Sinh:
		return p.mul(dy, p.unary(graph.Cosh, x))
	case graph.Cosh:
		return p.mul(dy, p.unary(graph.Sinh, x))
	case graph.Tanh:
		return p.mul(dy, p.sub(one, p.square(y)))
	case graph.Asinh:
		return p.div(dy, root(p.plus(p.square(x), 1)))
	case graph.Acosh:
		return p.div(dy, root(p.mul(p.sub(x, one), p.plus(x, 1))))
	case graph.Atanh:
		return p.div(dy, apart())
	}
	refuse("there is no rule for the gradient of the function %q", string(fn))
	return graph.None
}

func backBinary(p *pull, n *graph.Node) {
	a, b, y, dy := n.Inputs[0], n.Inputs[1], n.Outputs[0], p.dy(n, 0)
	give := func(i int, d func() graph.TensorID) {
		p.give(n, i, func() graph.TensorID { return p.sumTo(d(), p.shape(n.Inputs[i])) })
	}
	fn := n.Op.(*graph.Binary).Fn
	switch fn {
	case graph.Add:
		give(0, func() graph.TensorID { return dy })
		give(1, func() graph.TensorID { return dy })
	case graph.Sub:
		give(0, func() graph.TensorID { return dy })
		give(1, func() graph.TensorID { return p.neg(dy) })
	case graph.Mul:
		give(0, func() graph.TensorID { return p.mul(dy, b) })
		give(1, func() graph.TensorID { return p.mul(dy, a) })
	case graph.Div:
		give(0, func() graph.TensorID { return p.div(dy, b) })
		give(1, func() graph.TensorID { return p.neg(p.div(p.mul(dy, y), b)) })
	case graph.Pow:
		backPow(p, n, give)
	case graph.Max, graph.Min: // equal ones share the gradient
		first := graph.Greater
		if fn == graph.Min {
			first = graph.Less
		}
		half := func(x, y graph.TensorID) graph.TensorID {
			equal := p.only(p.binary(graph.Equal, x, y), p.scale(dy, 0.5))
			return p.where(p.binary(first, x, y), dy, equal)
		}
		give(0, func() graph.TensorID { return half(a, b) })
		give(1, func() graph.TensorID { return half(b, a) })
	case graph.PRelu:
		zero := p.number(0, p.dtype(a))
		give(0, func() graph.TensorID { return p.where(p.binary(graph.Greater, a, zero), dy, p.mul(dy, b)) })
		give(1, func() graph.TensorID { return p.only(p.binary(graph.Less, a, zero), p.mul(dy, a)) })
	default:
		refuse("there is no rule for the gradient of the function %q", string(fn))
	}
}

func backPow(p *pull, n *graph.Node, give func(int, func() graph.TensorID)) {
	x, y, dy := n.Inputs[0], n.Outputs[0], p.dy(n, 0)
	t := p.dtype(x)
	zero := p.number(0, t)
	e := n.Inputs[1]
	if p.dtype(e) != t {
		e = p.cast(e, t)
	}
	give(0, func() graph.TensorID {
		d := p.mul(dy, p.mul(e, p.binary(graph.Pow, x, p.plus(e, -1))))
		return p.where(p.binary(graph.Equal, e, zero), zero, d) // 0·∞ where x is 0 too
	})
	give(1, func() graph.TensorID {
		d := p.only(p.binary(graph.Greater, x, zero), p.mul(dy, p.mul(y, p.unary(graph.Log, x))))
		return p.cast(d, p.dtype(n.Inputs[1]))
	})
}

// backMod: a mod b is a - b·floor(a/b), or with trunc.
func backMod(p *pull, n *graph.Node) {
	a, b, dy := n.Inputs[0], n.Inputs[1], p.dy(n, 0)
	p.give(n, 0, func() graph.TensorID { return p.sumTo(dy, p.shape(a)) })
	p.give(n, 1, func() graph.TensorID {
		q := p.div(a, b)
		if n.Op.(*graph.Mod).Truncated {
			q = p.mul(p.unary(graph.Sign, q), p.unary(graph.Floor, p.unary(graph.Abs, q)))
		} else {
			q = p.unary(graph.Floor, q)
		}
		return p.sumTo(p.neg(p.mul(dy, q)), p.shape(b))
	})
}

// backClip gives x the gradient at the limits too, as PyTorch does. Limits above which
// the other limit is have no influence.
func backClip(p *pull, n *graph.Node) {
	x, low, high, dy := n.Inputs[0], in(n, 1), in(n, 2), p.dy(n, 0)
	// Limits have one element, but maybe axes.
	limit := func(t graph.TensorID) graph.TensorID {
		if t == graph.None {
			return t
		}
		return p.reshape(t)
	}
	lo, hi := limit(low), limit(high)
	all := make([]int64, len(p.shape(x)))
	for i := range all {
		all[i] = int64(i)
	}
	total := func(d, of graph.TensorID) graph.TensorID {
		return p.reshape(p.sum(d, all...), p.shape(of)...)
	}
	raised := x
	if lo != graph.None {
		raised = p.binary(graph.Max, x, lo)
	}
	p.give(n, 0, func() graph.TensorID {
		d := dy
		if lo != graph.None {
			d = p.only(p.binary(graph.GreaterEqual, x, lo), d)
		}
		if hi != graph.None {
			d = p.only(p.binary(graph.LessEqual, raised, hi), d)
		}
		return d
	})
	p.give(n, 1, func() graph.TensorID {
		d := p.only(p.binary(graph.Less, x, lo), dy)
		if hi != graph.None {
			d = p.only(p.binary(graph.LessEqual, raised, hi), d)
		}
		return total(d, low)
	})
	p.give(n, 2, func() graph.TensorID { return total(p.only(p.binary(graph.Greater, raised, hi), dy), high) })
}

func backWhere(p *pull, n *graph.Node) {
	cond, dy := n.Inputs[0], p.dy(n, 0)
	zero := p.number(0, p.dtype(dy))
	p.give(n, 1, func() graph.TensorID { return p.sumTo(p.where(cond, dy, zero), p.shape(n.Inputs[1])) })
	p.give(n, 2, func() graph.TensorID { return p.sumTo(p.where(cond, zero, dy), p.shape(n.Inputs[2])) })
}

func backCast(p *pull, n *graph.Node) {
	p.give(n, 0, func() graph.TensorID { return p.cast(p.dy(n, 0), p.dtype(n.Inputs[0])) })
}
