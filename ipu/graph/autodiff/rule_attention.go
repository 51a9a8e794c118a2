package autodiff

import "github.com/popefgen/popefgen/ipu/graph"

var attentionRules = map[string]rule{
	"Attention":       {back: backAttention},
	"LinearAttention": {back: backLinearAttention},

	"AttentionGradient": {back: backAttentionGradient},
}

// backAttention goes back by one operator, unless scores or the bias have gradients.
func backAttention(p *pull, n *graph.Node) {
	if p.dy(n, 1) != graph.None || p.wants(n, 3) {
		plainAttention(p, n)
		return
	}
	o := graph.AttentionGradient(*n.Op.(*graph.Attention))
	operands := []graph.TensorID{n.Inputs[0], n.Inputs[1], n.Inputs[2], in(n, 3), in(n, 4), p.dy(n, 0)}
	var out []graph.TensorID
	for i := range 3 {
		p.give(n, i, func() graph.TensorID {
			if out == nil {
				out = p.ops(&o, operands...)
			}
			return out[i]
		})
	}
}

// backAttentionGradient differentiates the gradients by the operators that they are made of otherwise.
func backAttentionGradient(p *pull, n *graph.Node) {
	o := graph.Attention(*n.Op.(*graph.AttentionGradient))
	p.through(n, func() []graph.TensorID {
		forward := graph.Node{Op: &o, Name: n.Name, Inputs: n.Inputs[:5]}
		return p.again(&forward, []graph.TensorID{in(n, 5)}, plainAttention)[:len(n.Outputs)]
	})
}

// plainAttention computes the probabilities again, by the operator itself, so that every mask counts: with P the
// probabilities and S the scaled products, dV = Pᵀ·dY, dP = dY·Vᵀ, dS = P∘(dP - rowsum(P∘dP)), dQ = scale·dS·K,
// dK = scale·dSᵀ·Q, summed over the heads that share K and V.
func plainAttention(p *pull, n *graph.Node) {
	o, t := n.Op.(*graph.Attention), p.dtype(n.Inputs[0])
	scores := func(mode graph.ScoresMode) graph.TensorID {
		again := *o
		again.Scores = mode
		return p.wide(p.ops(&again, n.Inputs...)[1])
	}
	q, k, v := p.heads(n.Inputs[0], o.Heads), p.shared(n.Inputs[1], o), p.shared(n.Inputs[2], o)
	after := map[graph.ScoresMode]graph.TensorID{}
	if d := p.dy(n, 1); d != graph.None {
		after[o.Scores] = p.wide(d)
	}
	plus := func(d graph.TensorID, mode graph.ScoresMode) graph.TensorID {
		if more, ok := after[mode]; ok && d != graph.None {
			return p.add(d, more)
		} else if ok {
			return more
		}
		return d
	}
	dprob, probabilities := graph.None, graph.None
	if d := p.dy(n, 0); d != graph.None {
		dy := p.heads(d, o.Heads)
		probabilities = scores(graph.ScoresProbabilities)
		p.give(n, 2, func() graph.TensorID { return p.unshared(p.matmul(p.flip(probabilities), dy), n.Inputs[2], o, t) })
		dprob = p.matmul(dy, p.flip(v))
	}
	d := plus(dprob, graph.ScoresProbabilities)
	if d != graph.None {
		if probabilities == graph.None {
			probabilities = scores(graph.ScoresProbabilities)
		}
		d = p.mul(probabilities, p.sub(d, p.sum(p.mul(probabilities, d), 3)))
	}
	d = plus(d, graph.ScoresBiased)
	if d != graph.None {
		p.give(n, 3, func() graph.TensorID { return p.cast(p.sumTo(d, p.shape(n.Inputs[3])), t) })
	}
	d = plus(d, graph.ScoresCapped)
	if o.Softcap != 0 && d != graph.None { // c·tanh(s/c)
		capped := p.scale(scores(graph.ScoresCapped), 1/o.Softcap)
		d = p.mul(d, p.sub(p.number(1, p.dtype(d)), p.square(capped)))
	}
	d = p.scale(plus(d, graph.ScoresRaw), o.Scale)
	p.give(n, 0, func() graph.TensorID { return p.unheads(p.matmul(d, k), n.Inputs[0], t) })
	p.give(n, 1, func() graph.TensorID { return p.unshared(p.matmul(p.flip(d), q), n.Inputs[1], o, t) })
}

// heads is an operand of attention as [batch,heads,sequence,size].
func (p *pull) heads(x graph.TensorID, heads int64) graph.TensorID {
	x = p.wide(x)
	if s := p.shape(x); len(s) == 3 {
		return p.transpose(p.reshape(x, s[0], s[1], heads, s[2]/heads), 0, 2, 1, 3)
	}
	return x
}

// unheads gives x, [batch,heads,sequence,size], the layout of an operand.
func (p *pull) unheads(x, like graph.TensorID, t graph.DType) graph.TensorID {
	if len(p.shape(like)) == 3 {
		x = p.transpose(x, 0, 2, 1, 3)
	}
	return p.cast(p.reshape(x, p.shape(like)...), t)
}

// shared repeats K or V for the heads of Q that share it.
func (p *pull) shared(x graph.TensorID, o *graph.Attention) graph.TensorID {
	x = p.heads(x, o.KVHeads)
	s := p.shape(x)
	each := o.Heads / o.KVHeads
	x = p.expand(p.reshape(x, s[0], s[1], 1, s[2], s[3]), []int64{s[0], s[1], each, s[2], s[3]})
	return p.reshape(x, s[0], o.Heads, s[2], s[3])
}

// unshared adds up gradients of K or V over the heads that share it.
func (p *pull) unshared(x, like graph.TensorID, o *graph.Attention, t graph.DType) graph.TensorID {
	s := p.shape(x)
	x = p.reshape(x, s[0], o.KVHeads, o.Heads/o.KVHeads, s[2], s[3])
	return p.unheads(p.reshape(p.sum(x, 2), s[0], o.KVHeads, s[2], s[3]), like, t)
}
