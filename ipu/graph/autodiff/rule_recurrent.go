package autodiff

import (
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

var recurrentRules = map[string]rule{
	"GRU":  {back: backGRU},
	"LSTM": {back: backLSTM},
	"RNN":  {back: backRNN},

	"RecurrentGradient": {back: backRecurrentGradient},
}

// usual returns the operator of the gradient of a cell with ONNX's usual activations and nothing besides, nil for another.
func usual(cell string, hidden int64, direction string, batchFirst bool, activations []string, others bool) *graph.RecurrentGradient {
	o := &graph.RecurrentGradient{Cell: cell, Hidden: hidden, Direction: direction, BatchFirst: batchFirst}
	var want []string
	switch f := o.Forward().(type) {
	case *graph.LSTM:
		want = f.Activations
	case *graph.GRU:
		want = f.Activations
	case *graph.RNN:
		want = f.Activations
	}
	if others || !slices.Equal(activations, want) {
		return nil
	}
	return o
}

// dedicated applies the operator that is the gradient of a whole recurrence.
func (p *pull) dedicated(n *graph.Node, o *graph.RecurrentGradient) {
	y := graph.None
	if t := n.Outputs[0]; t != graph.None && !p.e.Tensors[t].Persistent {
		y = t
	} else {
		y = p.ops(n.Op, n.Inputs...)[0]
	}
	operands := []graph.TensorID{n.Inputs[0], n.Inputs[1], n.Inputs[2], in(n, 3), in(n, 4), in(n, 5), in(n, 6), y, p.dy(n, 0), p.dy(n, 1), p.dy(n, 2)}
	var out []graph.TensorID
	for i, to := range []int{0, 1, 2, 3, 5, 6} {
		p.give(n, to, func() graph.TensorID {
			if out == nil {
				out = p.ops(o, operands...)
			}
			return out[i]
		})
	}
}

// backRecurrentGradient differentiates the gradients of the recurrence as a loop, which are the same numbers.
func backRecurrentGradient(p *pull, n *graph.Node) {
	o := n.Op.(*graph.RecurrentGradient)
	p.through(n, func() []graph.TensorID {
		rules := map[string]func(*pull, *graph.Node){"lstm": loopLSTM, "gru": loopGRU, "linear gru": loopGRU, "rnn": loopRNN}
		forward := graph.Node{Op: o.Forward(), Name: n.Name, Inputs: n.Inputs[:7]}
		if o.Cell != "lstm" {
			forward.Inputs = n.Inputs[:6]
		}
		forward.Inputs = slices.Clone(forward.Inputs)
		for i, to := range []int{0, 1, 2, 3, 5, 6} { // there are gradients of what is left out too
			if p.dy(n, i) != graph.None && forward.Inputs[to] == graph.None {
				forward.Inputs[to] = p.zeros(p.typ(n.Outputs[i]))
			}
		}
		d := p.again(&forward, []graph.TensorID{in(n, 8), in(n, 9), in(n, 10)}, rules[o.Cell])
		var out []graph.TensorID
		for i, to := range []int{0, 1, 2, 3, 5, 6} {
			if i < len(n.Outputs) {
				out = append(out, d[to])
			}
		}
		return out
	})
}

// recurrence writes a recurrent operator as a product of all inputs and a loop over the steps, of which the gradients follow.
type recurrence struct {
	*pull
	n             *graph.Node
	gates, hidden int64
	direction     string
	batchFirst    bool
	clip          float64
	functions     int // per direction
	activations   []string
	alpha, beta   []float64
	hasCell       bool
	steps, batch  int64
	x             graph.TensorID
	valid         graph.TensorID // Bool [steps,batch,1]: the sequence is that long; None without lengths
	cell          func(d *direction, xt, h, c graph.TensorID) (nextH, nextC graph.TensorID)
	reset         bool // a GRU's: the last gate's bias of H is apart
}

// direction is what one direction of a recurrence has of its own.
type direction struct {
	*recurrence
	at            int64
	backwards     bool
	r, peep, last graph.TensorID // R [gates·H,H], P [3·H], the last gate's bias of H
}

func backLSTM(p *pull, n *graph.Node) {
	o := n.Op.(*graph.LSTM)
	if g := usual("lstm", o.Hidden, o.Direction, o.BatchFirst, o.Activations, o.Clip != 0 || o.InputForget || in(n, 7) != graph.None); g != nil {
		p.dedicated(n, g)
		return
	}
	loopLSTM(p, n)
}

func loopLSTM(p *pull, n *graph.Node) {
	o := n.Op.(*graph.LSTM)
	r := &recurrence{pull: p, n: n, gates: 4, hidden: o.Hidden, direction: o.Direction, batchFirst: o.BatchFirst, clip: o.Clip,
		functions: 3, activations: o.Activations, alpha: o.ActAlpha, beta: o.ActBeta, hasCell: true}
	r.cell = func(d *direction, xt, h, c graph.TensorID) (graph.TensorID, graph.TensorID) {
		sums := d.add(xt, d.gemm(h, d.r, false, true, 1))
		peep := func(gate int64, sum, c graph.TensorID) graph.TensorID {
			if d.peep == graph.None {
				return sum
			}
			return d.add(sum, d.mul(d.part(d.peep, 0, gate), c))
		}
		i := d.activate(0, peep(0, d.part(sums, 1, 0), c))
		var f graph.TensorID
		if o.InputForget {
			f = d.sub(d.number(1, d.dtype(i)), i)
		} else {
			f = d.activate(0, peep(2, d.part(sums, 1, 2), c))
		}
		next := d.add(d.mul(f, c), d.mul(i, d.activate(1, d.part(sums, 1, 3))))
		out := d.activate(0, peep(1, d.part(sums, 1, 1), next))
		return d.mul(out, d.function(2, next)), next
	}
	p.through(n, r.define)
}

func backGRU(p *pull, n *graph.Node) {
	o, cell := n.Op.(*graph.GRU), "gru"
	if o.LinearBeforeReset {
		cell = "linear gru"
	}
	if g := usual(cell, o.Hidden, o.Direction, o.BatchFirst, o.Activations, o.Clip != 0); g != nil {
		p.dedicated(n, g)
		return
	}
	loopGRU(p, n)
}

func loopGRU(p *pull, n *graph.Node) {
	o := n.Op.(*graph.GRU)
	r := &recurrence{pull: p, n: n, gates: 3, hidden: o.Hidden, direction: o.Direction, batchFirst: o.BatchFirst, clip: o.Clip,
		functions: 2, activations: o.Activations, alpha: o.ActAlpha, beta: o.ActBeta, reset: o.LinearBeforeReset}
	r.cell = func(d *direction, xt, h, _ graph.TensorID) (graph.TensorID, graph.TensorID) {
		product := func(x graph.TensorID, from, to int64) graph.TensorID {
			rows := d.op(&graph.Slice{Start: []int64{from * d.hidden, 0}, Size: []int64{(to - from) * d.hidden, d.hidden}, Step: []int64{1, 1}}, d.r)
			return d.gemm(x, rows, false, true, 1)
		}
		sums := product(h, 0, 2)
		z := d.activate(0, d.add(d.part(xt, 1, 0), d.part(sums, 1, 0)))
		r := d.activate(0, d.add(d.part(xt, 1, 1), d.part(sums, 1, 1)))
		var last graph.TensorID
		if o.LinearBeforeReset {
			last = product(h, 2, 3)
			if d.last != graph.None {
				last = d.add(last, d.last)
			}
			last = d.mul(r, last)
		} else {
			last = product(d.mul(r, h), 2, 3)
		}
		g := d.activate(1, d.add(d.part(xt, 1, 2), last))
		return d.add(d.mul(d.sub(d.number(1, d.dtype(z)), z), g), d.mul(z, h)), graph.None
	}
	p.through(n, r.define)
}

func backRNN(p *pull, n *graph.Node) {
	o := n.Op.(*graph.RNN)
	if g := usual("rnn", o.Hidden, o.Direction, o.BatchFirst, o.Activations, o.Clip != 0); g != nil {
		p.dedicated(n, g)
		return
	}
	loopRNN(p, n)
}

func loopRNN(p *pull, n *graph.Node) {
	o := n.Op.(*graph.RNN)
	r := &recurrence{pull: p, n: n, gates: 1, hidden: o.Hidden, direction: o.Direction, batchFirst: o.BatchFirst, clip: o.Clip,
		functions: 1, activations: o.Activations, alpha: o.ActAlpha, beta: o.ActBeta}
	r.cell = func(d *direction, xt, h, _ graph.TensorID) (graph.TensorID, graph.TensorID) {
		return d.activate(0, d.add(xt, d.gemm(h, d.r, false, true, 1))), graph.None
	}
	p.through(n, r.define)
}

// part takes the part of a gate out of an axis that has all of them.
func (r *recurrence) part(x graph.TensorID, axis int, gate int64) graph.TensorID {
	size := slices.Clone(r.shape(x))
	start := make([]int64, len(size))
	start[axis], size[axis] = gate*r.hidden, r.hidden
	return r.op(&graph.Slice{Start: start, Size: size, Step: repeated(len(size), 1)}, x)
}

// pick takes one of the first axis and leaves that out.
func (r *recurrence) pick(x graph.TensorID, at int64) graph.TensorID {
	if x == graph.None {
		return x
	}
	size := slices.Clone(r.shape(x))
	start := make([]int64, len(size))
	start[0], size[0] = at, 1
	return r.reshape(r.op(&graph.Slice{Start: start, Size: size, Step: repeated(len(size), 1)}, x), size[1:]...)
}

// define computes Y, Y_h and, of an LSTM, Y_c.
func (r *recurrence) define() []graph.TensorID {
	r.x = r.wide(r.n.Inputs[0])
	if r.batchFirst {
		r.x = r.transpose(r.x, 1, 0, 2)
	}
	r.steps, r.batch = r.shape(r.x)[0], r.shape(r.x)[1]
	r.valid = graph.None
	if lens := in(r.n, 4); lens != graph.None {
		step := r.reshape(r.iota(r.steps), r.steps, 1, 1)
		r.valid = r.binary(graph.Less, step, r.reshape(r.cast(lens, graph.I64), 1, r.batch, 1))
	}
	directions := []bool{r.direction == "reverse"}
	if r.direction == "bidirectional" {
		directions = []bool{false, true}
	}
	var ys, hs, cs []graph.TensorID
	for i, backwards := range directions {
		y, h, c := r.directed(int64(i), backwards)
		ys, hs, cs = append(ys, r.reshape(y, r.steps, 1, r.batch, r.hidden)), append(hs, r.reshape(h, 1, r.batch, r.hidden)), append(cs, c)
	}
	join := func(axis int64, list []graph.TensorID) graph.TensorID {
		if len(list) == 1 {
			return list[0]
		}
		return r.op(&graph.Concat{Axis: axis}, list...)
	}
	y, h := join(1, ys), join(0, hs)
	state := func(h graph.TensorID) graph.TensorID {
		if r.batchFirst {
			h = r.transpose(h, 1, 0, 2)
		}
		return r.cast(h, r.dtype(r.n.Inputs[0]))
	}
	if r.batchFirst {
		y = r.transpose(y, 2, 0, 1, 3)
	}
	out := []graph.TensorID{r.cast(y, r.dtype(r.n.Inputs[0])), state(h)}
	if r.hasCell {
		for i, c := range cs {
			cs[i] = r.reshape(c, 1, r.batch, r.hidden)
		}
		out = append(out, state(join(0, cs)))
	}
	return out
}

// directed computes one direction: all results of H [steps,batch,H], and the last H and C.
func (r *recurrence) directed(at int64, backwards bool) (y, lastH, lastC graph.TensorID) {
	d := &direction{recurrence: r, at: at, backwards: backwards, r: r.pick(r.wide(r.n.Inputs[2]), at), peep: r.pick(r.wide(in(r.n, 7)), at), last: graph.None}
	input := r.shape(r.x)[2]
	w := r.pick(r.wide(r.n.Inputs[1]), at)
	all := r.gemm(r.reshape(r.x, r.steps*r.batch, input), w, false, true, 1)
	if b := r.pick(r.wide(in(r.n, 3)), at); b != graph.None {
		half := r.gates * r.hidden
		part := func(start, size int64) graph.TensorID {
			return r.op(&graph.Slice{Start: []int64{start}, Size: []int64{size}, Step: []int64{1}}, b)
		}
		ofH := part(half, half)
		if r.reset {
			d.last = r.part(ofH, 0, 2)
			ofH = r.pad(part(half, 2*r.hidden), []int64{0}, []int64{r.hidden})
		}
		all = r.add(all, r.add(part(0, half), ofH))
	}
	xs := r.reshape(all, r.steps, r.batch, r.gates*r.hidden)
	valid := r.valid
	if backwards {
		xs = r.backwards(xs, 0)
		if valid != graph.None {
			valid = r.backwards(valid, 0)
		}
	}
	state := func(i int) graph.TensorID {
		if t := r.wide(in(r.n, i)); t != graph.None {
			if r.batchFirst {
				t = r.transpose(t, 1, 0, 2)
			}
			return r.pick(t, at)
		}
		return r.zeros(graph.TensorType{DType: r.dtype(r.x), Shape: []int64{r.batch, r.hidden}})
	}
	carried := []graph.TensorID{graph.None, graph.None, state(5)}
	if r.hasCell {
		carried = append(carried, state(6))
	}
	out := r.ops(&graph.Loop{Body: d.step(xs, valid), Count: r.steps}, carried...)
	y = out[len(out)-1]
	if backwards {
		y = r.backwards(y, 0)
	}
	if r.hasCell {
		return y, out[0], out[1]
	}
	return y, out[0], graph.None
}

// step makes the body of the loop over the steps: beyond its end a sequence keeps its state and gives zeros.
func (d *direction) step(xs, valid graph.TensorID) graph.GraphID {
	return d.inside("step", func() {
		own := d.cur
		state := graph.TensorType{DType: d.dtype(xs), Shape: []int64{d.batch, d.hidden}}
		params := []graph.TensorID{d.local("step", graph.TensorType{DType: graph.I64}), d.local("h", state)}
		h, c := params[1], graph.None
		if d.hasCell {
			c = d.local("c", state)
			params = append(params, c)
		}
		nextH, nextC := d.cell(d, d.op(&graph.Gather{}, xs, params[0]), h, c)
		y := nextH
		if valid != graph.None {
			runs := d.op(&graph.Gather{}, valid, params[0])
			y = d.only(runs, nextH)
			nextH = d.where(runs, nextH, h)
			if d.hasCell {
				nextC = d.where(runs, nextC, c)
			}
		}
		results := []graph.TensorID{nextH}
		if d.hasCell {
			results = append(results, nextC)
		}
		g := &d.e.Graphs[own]
		g.Params, g.Results = params, append(results, y)
	})
}

// activate applies an activation to what is limited to ±clip.
func (d *direction) activate(i int, x graph.TensorID) graph.TensorID {
	if d.clip > 0 {
		x = d.op(&graph.Clip{}, x, d.number(-d.clip, d.dtype(x)), d.number(d.clip, d.dtype(x)))
	}
	return d.function(i, x)
}

// function applies activation i of the direction.
func (d *direction) function(i int, x graph.TensorID) graph.TensorID {
	i += int(d.at) * d.functions
	alpha, beta := d.alpha[i], d.beta[i]
	apply := func(fn graph.UnaryFn) graph.TensorID { return d.op(&graph.Unary{Fn: fn, Alpha: alpha, Beta: beta}, x) }
	switch d.activations[i] {
	case "Relu":
		return apply(graph.Relu)
	case "Tanh":
		return apply(graph.Tanh)
	case "Sigmoid":
		return apply(graph.Sigmoid)
	case "LeakyRelu":
		return apply(graph.LeakyRelu)
	case "ThresholdedRelu":
		return apply(graph.ThresholdedRelu)
	case "HardSigmoid":
		return apply(graph.HardSigmoid)
	case "Elu":
		return apply(graph.Elu)
	case "Softsign":
		return apply(graph.Softsign)
	case "Softplus":
		return apply(graph.Softplus)
	case "Affine":
		return d.plus(d.scale(x, alpha), beta)
	case "ScaledTanh":
		return d.scale(d.unary(graph.Tanh, d.scale(x, beta)), alpha)
	}
	refuse("there is no rule for the gradient of the activation %q", d.activations[i])
	return graph.None
}
