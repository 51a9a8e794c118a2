package autodiff

import "github.com/popefgen/popefgen/ipu/graph"

// backLinearAttention differentiates the definition: a loop over the steps that carries the state.
func backLinearAttention(p *pull, n *graph.Node) {
	p.through(n, func() []graph.TensorID { return p.linearAttention(n, n.Op.(*graph.LinearAttention)) })
}

func (p *pull) linearAttention(n *graph.Node, o *graph.LinearAttention) []graph.TensorID {
	q, k, v := p.wide(n.Inputs[0]), p.wide(n.Inputs[1]), p.wide(n.Inputs[2])
	batch, steps := p.shape(q)[0], p.shape(q)[1]
	size, width, each := p.shape(k)[2]/o.KVHeads, p.shape(v)[2]/o.KVHeads, o.Heads/o.KVHeads
	// byStep is [steps, …] of an operand [batch, steps, …].
	byStep := func(x graph.TensorID, shape ...int64) graph.TensorID {
		if x == graph.None {
			return x
		}
		return p.reshape(p.transpose(p.wide(x), 1, 0, 2), append([]int64{steps, batch}, shape...)...)
	}
	last := func(i int) int64 {
		if t := in(n, i); t != graph.None {
			return p.shape(t)[2]
		}
		return 0
	}
	queries, keys, values := byStep(q, o.KVHeads, each, size), byStep(k, o.KVHeads, size, 1), byStep(v, o.KVHeads, 1, width)
	decays := byStep(in(n, 4), o.KVHeads, last(4)/o.KVHeads, 1)
	betas := byStep(in(n, 5), last(5), 1, 1)
	erases := byStep(in(n, 6), o.KVHeads, size, 1)
	state := graph.TensorType{DType: p.dtype(q), Shape: []int64{batch, o.KVHeads, size, width}}
	past := graph.None
	if t := in(n, 3); t != graph.None {
		past = p.cast(t, state.DType)
	} else {
		past = p.zeros(state)
	}
	body := p.inside("step", func() {
		own := p.cur
		step, s := p.local("step", graph.TensorType{DType: graph.I64}), p.local("state", state)
		at := func(x graph.TensorID) graph.TensorID {
			if x == graph.None {
				return x
			}
			return p.op(&graph.Gather{}, x, step)
		}
		key, value, next := at(keys), at(values), s
		if o.Gated {
			next = p.mul(next, p.unary(graph.Exp, at(decays)))
		}
		if o.Delta {
			erased := key
			if erases != graph.None {
				erased = p.mul(key, at(erases))
			}
			value = p.mul(at(betas), p.sub(value, p.matmul(p.flip(erased), next)))
		}
		next = p.add(next, p.mul(key, value))
		y := p.scale(p.matmul(at(queries), next), o.Scale) // [batch, heads of K, each, width]
		p.e.Graphs[own].Params, p.e.Graphs[own].Results = []graph.TensorID{step, s}, []graph.TensorID{next, y}
	})
	out := p.ops(&graph.Loop{Body: body, Count: steps}, graph.None, graph.None, past)
	y := p.reshape(p.transpose(out[1], 1, 0, 2, 3, 4), batch, steps, o.Heads*width)
	stateType := p.dtype(n.Inputs[0])
	if t := in(n, 3); t != graph.None {
		stateType = p.dtype(t)
	}
	return []graph.TensorID{p.cast(y, p.dtype(n.Inputs[0])), p.cast(out[0], stateType)}
}
