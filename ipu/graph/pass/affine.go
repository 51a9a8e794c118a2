package pass

import "github.com/popefgen/popefgen/ipu/graph"

// foldAffine gives convolutions and products the factors, addends and batch
// normalisations that follow them. What it adds for the weights depends on
// weights alone; the pass "load" computes it once.
func foldAffine(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || !r.single(n.Outputs[0]) {
			return false
		}
		switch op := n.Op.(type) {
		case *graph.BatchNorm:
			return r.foldNorm(n, op)
		case *graph.Binary:
			switch op.Fn {
			case graph.Mul:
				return r.foldFactor(n, n.Inputs[0], n.Inputs[1], graph.Mul) || r.foldFactor(n, n.Inputs[1], n.Inputs[0], graph.Mul)
			case graph.Div:
				return r.foldFactor(n, n.Inputs[0], n.Inputs[1], graph.Div)
			case graph.Add:
				return r.foldAddend(n, n.Inputs[0], n.Inputs[1], graph.Add) || r.foldAddend(n, n.Inputs[1], n.Inputs[0], graph.Add)
			case graph.Sub:
				return r.foldAddend(n, n.Inputs[0], n.Inputs[1], graph.Sub)
			}
		}
		return false
	})
}

// linear is a convolution or product whose result one node reads.
type linear struct {
	op       graph.Op
	x, w, b  graph.TensorID // b is None if there is no addend
	channels int64
	axis     int // of the channels in the result
	along    int // of the channels in w
}

// linear returns the convolution or product that writes t.
func (r *rewriter) linear(t graph.TensorID) (l linear, ok bool) {
	n := r.node(t)
	if n == nil || !r.once(t) || len(n.Inputs) < 2 {
		return l, false
	}
	out := r.Tensors[t].Type.Shape
	l = linear{op: n.Op, x: n.Inputs[0], w: n.Inputs[1], b: graph.None}
	if len(n.Inputs) > 2 {
		l.b = n.Inputs[2]
	}
	switch op := n.Op.(type) {
	case *graph.Conv:
		if op.Bounded {
			return l, false
		}
		l.axis = 1
	case *graph.ConvTranspose:
		if op.Group != 1 {
			return l, false
		}
		l.axis, l.along = 1, 1
	case *graph.Gemm:
		l.axis, l.along = 1, 1
		if op.TransB {
			l.along = 0
		}
		if op.Bounded || l.b != graph.None && op.Beta != 1 {
			return l, false
		}
	case *graph.MatMul:
		if r.Tensors[l.w].Type.Rank() != 2 {
			return l, false
		}
		l.axis, l.along = len(out)-1, 1
	default:
		return l, false
	}
	l.channels = out[l.axis]
	return l, true
}

// byChannel reports whether c broadcasts to the result such that it has one
// element, or one for every channel.
func (l *linear) byChannel(c graph.TensorType, rank int) bool {
	if c.Rank() > rank {
		return false
	}
	for i, d := range c.Shape {
		if d != 1 && (i+rank-c.Rank() != l.axis || d != l.channels) {
			return false
		}
	}
	return true
}

// alongWeights gives c, as byChannel returns it, the shape that goes with w.
func (r *rewriter) alongWeights(l *linear, c graph.TensorID) graph.TensorID {
	if r.Tensors[c].Type.Elements() == 1 {
		return r.shaped(c)
	}
	rank := r.Tensors[l.w].Type.Rank()
	shape := make([]int64, rank-l.along)
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = l.channels
	return r.shaped(c, shape...)
}

// asBias gives c the shape of a bias.
func (r *rewriter) asBias(l *linear, c graph.TensorID) graph.TensorID {
	if r.Tensors[c].Type.Elements() == l.channels {
		return r.shaped(c, l.channels)
	}
	return r.emit(&graph.Expand{Shape: []int64{l.channels}}, r.shaped(c))
}

// biasByChannel reports whether the addend, if there is one, has one element
// for every channel, or one, and is known once the weights are.
func (r *rewriter) biasByChannel(l *linear) bool {
	if l.b == graph.None {
		return true
	}
	t := r.Tensors[l.b].Type
	return r.settled(l.b) && (t.Elements() == l.channels && t.Rank() > 0 && t.Shape[t.Rank()-1] == l.channels || t.Elements() == 1)
}

// foldFactor multiplies the weights by c, or divides them.
func (r *rewriter) foldFactor(n *graph.Node, y, c graph.TensorID, fn graph.BinaryFn) bool {
	l, ok := r.linear(y)
	if !ok || !r.keeps(y, n.Outputs[0]) || !r.settled(l.w) || !r.settled(c) || !r.biasByChannel(&l) ||
		!l.byChannel(r.Tensors[c].Type, r.Tensors[y].Type.Rank()) {
		return false
	}
	w := r.emit(&graph.Binary{Fn: fn}, l.w, r.alongWeights(&l, c))
	in := []graph.TensorID{l.x, w}
	if l.b != graph.None {
		b := r.emit(&graph.Binary{Fn: fn}, r.asBias(&l, l.b), r.asBias(&l, c))
		in = append(in, b)
	}
	return r.replace("factors folded into weights", l.op, in...)
}

// foldAddend makes c the bias, or a part of it.
func (r *rewriter) foldAddend(n *graph.Node, y, c graph.TensorID, fn graph.BinaryFn) bool {
	l, ok := r.linear(y)
	if !ok || !r.keeps(y, n.Outputs[0]) {
		return false
	}
	if !l.byChannel(r.Tensors[c].Type, r.Tensors[y].Type.Rank()) || !r.settled(c) {
		return fn == graph.Add && r.foldResidual(n, &l, y, c)
	}
	if !r.biasByChannel(&l) {
		return false
	}
	b := r.asBias(&l, c)
	switch {
	case l.b != graph.None:
		b = r.emit(&graph.Binary{Fn: fn}, r.asBias(&l, l.b), b)
	case fn == graph.Sub:
		b = r.emit(&graph.Unary{Fn: graph.Neg}, b)
	}
	switch op := l.op.(type) {
	case *graph.MatMul:
		return r.affine(n, &l, b)
	case *graph.Gemm:
		g := *op
		g.Beta = 1
		return r.replace("biases", &g, l.x, l.w, b)
	}
	return r.replace("biases", l.op, l.x, l.w, b)
}

// foldResidual makes a tensor like the result the addend of a product.
func (r *rewriter) foldResidual(n *graph.Node, l *linear, y, c graph.TensorID) bool {
	if l.b != graph.None || !r.keeps(c, y) {
		return false
	}
	switch op := l.op.(type) {
	case *graph.MatMul:
		t := r.Tensors[y].Type
		return r.affine(n, l, r.shaped(c, t.Elements()/max(1, l.channels), l.channels))
	case *graph.Gemm:
		g := *op
		g.Beta = 1
		return r.replace("residuals", &g, l.x, l.w, c)
	}
	return false
}

// affine replaces the current node by a product of matrices with an addend,
// in the shape of the node's result.
func (r *rewriter) affine(n *graph.Node, l *linear, b graph.TensorID) bool {
	out := r.Tensors[n.Outputs[0]].Type
	k := r.Tensors[l.w].Type.Shape[0]
	if out.Elements() == 0 || k == 0 {
		return false
	}
	x := r.shaped(l.x, out.Elements()/l.channels, k)
	g := &graph.Gemm{Alpha: 1, Beta: 1}
	if out.Rank() == 2 {
		return r.replace("biases", g, x, l.w, b)
	}
	return r.replace("biases", &graph.Reshape{Shape: out.Shape}, r.emit(g, x, l.w, b))
}

// foldNorm folds batch normalisation into the convolution or product before
// it, or makes it a product and a sum.
func (r *rewriter) foldNorm(n *graph.Node, op *graph.BatchNorm) bool {
	for _, t := range n.Inputs[1:] {
		if !r.settled(t) {
			return false
		}
	}
	x, scale, bias, mean, variance := n.Inputs[0], n.Inputs[1], n.Inputs[2], n.Inputs[3], n.Inputs[4]
	out := r.Tensors[n.Outputs[0]].Type
	if out.Elements() == 0 {
		return false
	}
	l, ok := r.linear(x)
	ok = ok && l.axis == 1 && r.settled(l.w) && r.biasByChannel(&l)
	factor := r.emit(&graph.Binary{Fn: graph.Div}, scale,
		r.emit(&graph.Unary{Fn: graph.Sqrt}, r.emit(&graph.Binary{Fn: graph.Add}, variance, r.float(out.DType, op.Epsilon))))
	if !ok {
		shift := r.emit(&graph.Binary{Fn: graph.Sub}, bias, r.emit(&graph.Binary{Fn: graph.Mul}, mean, factor))
		shape := make([]int64, out.Rank()-1)
		for i := range shape {
			shape[i] = 1
		}
		shape[0] = out.Shape[1]
		y := r.emit(&graph.Binary{Fn: graph.Mul}, x, r.shaped(factor, shape...))
		return r.replace("batch normalisations made products and sums", &graph.Binary{Fn: graph.Add}, y, r.shaped(shift, shape...))
	}
	w := r.emit(&graph.Binary{Fn: graph.Mul}, l.w, r.alongWeights(&l, factor))
	if l.b != graph.None {
		mean = r.emit(&graph.Binary{Fn: graph.Sub}, mean, r.asBias(&l, l.b))
	}
	b := r.emit(&graph.Binary{Fn: graph.Sub}, bias, r.emit(&graph.Binary{Fn: graph.Mul}, mean, factor))
	const what = "batch normalisations folded into weights"
	switch op := l.op.(type) {
	case *graph.MatMul:
		l.w = w
		r.did(what)
		return r.affine(n, &l, b)
	case *graph.Gemm:
		g := *op
		g.Beta = 1
		return r.replace(what, &g, l.x, w, b)
	}
	return r.replace(what, l.op, l.x, w, b)
}
