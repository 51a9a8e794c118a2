package op

import (
	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// trainingOps are the optimizers of ONNX's preview of training. Their operands are the learning rate R, the count of
// updates T, and lists of tensors: weights X, gradients G, and what they remember; the results are new weights and new
// memories. Formulas are ONNX's, which differ from those of [graph.Update].
var trainingOps = map[string]definition{
	"ai.onnx.preview.training.Adagrad":  takes("R:float|double T:int64 inputs…:T=float|double").since(1, adagrad, "decay_factor=0.0 epsilon=0.0 norm_coefficient=0.0"),
	"ai.onnx.preview.training.Adam":     takes("R:float|double T:int64 inputs…:T=float|double").since(1, adam, "alpha=0.9 beta=0.999 epsilon=0.0 norm_coefficient=0.0 norm_coefficient_post=0.0"),
	"ai.onnx.preview.training.Momentum": takes("R:float|double T:int64 inputs…:T=float|double").since(1, momentum, "alpha:float! beta:float! mode:string! norm_coefficient:float!"),
}

// optimizer is an optimizer's node being lowered.
type optimizer struct {
	*call
	rate, count *lower.Value // R and T, in the widest type of the weights
	one         *lower.Value
}

// update lowers an optimizer whose weights have so many memories each: step gives the new ones, the weight first.
func (c *call) update(memories int, prepare func(o *optimizer) *lower.Value, step func(o *optimizer, rate, x, g *lower.Value, memory []*lower.Value) []*lower.Value) []*lower.Value {
	all := c.All()
	lists := 2 + memories
	if len(all) < 2+lists || (len(all)-2)%lists != 0 {
		c.Fail("it has %d operands, want R, T, and %d for each weight: X, G and what the optimizer remembers", len(all), lists)
	}
	for i, what := range []string{"R", "T"} {
		if all[i].Type.Elements() != 1 {
			c.Fail("operand %d (%s) is %v, want one number", i, what, all[i].Type)
		}
	}
	tensors := all[2:]
	n := len(tensors) / lists
	out := make([]*lower.Value, (lists-1)*n)
	for i := range n {
		x := tensors[i]
		of := make([]*lower.Value, lists) // X, G and memories of weight i
		for k := range of {
			of[k] = tensors[k*n+i]
			if !of[k].Type.Equal(x.Type) {
				c.Fail("operand %d is %v, want the type of operand %d, the weight that it belongs to, %v", 2+k*n+i, of[k].Type, 2+i, x.Type)
			}
		}
		o := &optimizer{call: c, one: lower.Scalar(x.Type.DType, 1)}
		o.rate = c.cast(c.Emit(&graph.Reshape{}, all[0]), x.Type.DType)
		o.count = c.cast(c.Emit(&graph.Reshape{}, all[1]), x.Type.DType)
		for k, v := range step(o, prepare(o), of[0], o.regularised(of[1], of[0]), of[2:]) {
			out[k*n+i] = v
		}
	}
	return out
}

func (o *optimizer) add(a, b *lower.Value) *lower.Value { return o.Binary(graph.Add, a, b) }
func (o *optimizer) sub(a, b *lower.Value) *lower.Value { return o.Binary(graph.Sub, a, b) }
func (o *optimizer) mul(a, b *lower.Value) *lower.Value { return o.Binary(graph.Mul, a, b) }
func (o *optimizer) div(a, b *lower.Value) *lower.Value { return o.Binary(graph.Div, a, b) }
func (o *optimizer) number(v float64) *lower.Value      { return lower.Scalar(o.one.Type.DType, v) }

// regularised adds the slope of the weight's norm to its gradient.
func (o *optimizer) regularised(g, x *lower.Value) *lower.Value {
	return o.add(g, o.scale(x, o.Float("norm_coefficient")))
}

// root is √x + epsilon.
func (o *optimizer) root(x *lower.Value) *lower.Value {
	return o.add(o.Emit(&graph.Unary{Fn: graph.Sqrt}, x), o.number(o.Float("epsilon")))
}

// begun is a where there was an update before, else b.
func (o *optimizer) begun(a, b *lower.Value) *lower.Value {
	return o.Emit(&graph.Where{}, o.Binary(graph.Greater, o.count, o.number(0)), a, b)
}

// left is 1 - v^T.
func (o *optimizer) left(v float64) *lower.Value {
	return o.sub(o.one, o.Binary(graph.Pow, o.number(v), o.count))
}

// average moves an average towards v: by·old + (1-by)·v.
func (o *optimizer) average(old, v *lower.Value, by float64) *lower.Value {
	return o.add(o.scale(old, by), o.scale(v, 1-by))
}

func adagrad(c *call) []*lower.Value {
	return c.update(1, func(o *optimizer) *lower.Value {
		return o.div(o.rate, o.add(o.one, o.scale(o.count, o.Float("decay_factor"))))
	}, func(o *optimizer, rate, x, g *lower.Value, memory []*lower.Value) []*lower.Value {
		h := o.add(memory[0], o.mul(g, g))
		return []*lower.Value{o.sub(x, o.div(o.mul(rate, g), o.root(h))), h}
	})
}

func adam(c *call) []*lower.Value {
	alpha, beta, post := c.Float("alpha"), c.Float("beta"), c.Float("norm_coefficient_post")
	return c.update(2, func(o *optimizer) *lower.Value {
		corrected := o.div(o.mul(o.rate, o.Emit(&graph.Unary{Fn: graph.Sqrt}, o.left(beta))), o.left(alpha))
		return o.begun(corrected, o.rate)
	}, func(o *optimizer, rate, x, g *lower.Value, memory []*lower.Value) []*lower.Value {
		v := o.average(memory[0], g, alpha)
		h := o.average(memory[1], o.mul(g, g), beta)
		x = o.sub(x, o.div(o.mul(rate, v), o.root(h)))
		return []*lower.Value{o.scale(x, 1-post), v, h}
	})
}

func momentum(c *call) []*lower.Value {
	alpha, beta, mode := c.Float("alpha"), c.Float("beta"), c.Str("mode")
	if mode != "standard" && mode != "nesterov" {
		c.Fail("attribute \"mode\" is %q, want standard or nesterov", mode)
	}
	return c.update(1, func(o *optimizer) *lower.Value { return o.rate },
		func(o *optimizer, rate, x, g *lower.Value, memory []*lower.Value) []*lower.Value {
			v := o.add(o.scale(memory[0], alpha), o.mul(o.begun(o.number(beta), o.one), g))
			by := v
			if mode == "nesterov" {
				by = o.add(g, o.scale(v, alpha))
			}
			return []*lower.Value{o.sub(x, o.mul(rate, by)), v}
		})
}
