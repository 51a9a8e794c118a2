package graph

// foldAffine gives convolutions and products the factors, addends and batch
// normalisations that follow them. What it adds for the weights depends on
// weights alone; the pass "load" computes it once.
func foldAffine(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == None || !r.single(n.Outputs[0]) {
			return false
		}
		switch op := n.Op.(type) {
		case *BatchNorm:
			return r.foldNorm(n, op)
		case *Binary:
			switch op.Fn {
			case Mul:
				return r.foldFactor(n, n.Inputs[0], n.Inputs[1], Mul) || r.foldFactor(n, n.Inputs[1], n.Inputs[0], Mul)
			case Div:
				return r.foldFactor(n, n.Inputs[0], n.Inputs[1], Div)
			case Add:
				return r.foldAddend(n, n.Inputs[0], n.Inputs[1], Add) || r.foldAddend(n, n.Inputs[1], n.Inputs[0], Add)
			case Sub:
				return r.foldAddend(n, n.Inputs[0], n.Inputs[1], Sub)
			}
		}
		return false
	})
}

// linear is a convolution or product whose result one node reads.
type linear struct {
	op       Op
	x, w, b  TensorID // b is None if there is no addend
	channels int64
	axis     int // of the channels in the result
	along    int // of the channels in w
}

// linear returns the convolution or product that writes t.
func (r *rewriter) linear(t TensorID) (l linear, ok bool) {
	n := r.node(t)
	if n == nil || !r.once(t) || len(n.Inputs) < 2 {
		return l, false
	}
	out := r.Tensors[t].Type.Shape
	l = linear{op: n.Op, x: n.Inputs[0], w: n.Inputs[1], b: None}
	if len(n.Inputs) > 2 {
		l.b = n.Inputs[2]
	}
	switch op := n.Op.(type) {
	case *Conv:
		if op.Bounded {
			return l, false
		}
		l.axis = 1
	case *ConvTranspose:
		if op.Group != 1 {
			return l, false
		}
		l.axis, l.along = 1, 1
	case *Gemm:
		l.axis, l.along = 1, 1
		if op.TransB {
			l.along = 0
		}
		if op.Bounded || l.b != None && op.Beta != 1 {
			return l, false
		}
	case *MatMul:
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
func (l *linear) byChannel(c TensorType, rank int) bool {
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

// alongWeights gives c, as byChannel has it, the shape that goes with w.
func (r *rewriter) alongWeights(l *linear, c TensorID) TensorID {
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
func (r *rewriter) asBias(l *linear, c TensorID) TensorID {
	if r.Tensors[c].Type.Elements() == l.channels {
		return r.shaped(c, l.channels)
	}
	return r.emit(&Expand{Shape: []int64{l.channels}}, r.shaped(c))
}

// biasByChannel reports whether the addend, if there is one, has one element
// for every channel, or one, and is known once the weights are.
func (r *rewriter) biasByChannel(l *linear) bool {
	if l.b == None {
		return true
	}
	t := r.Tensors[l.b].Type
	return r.settled(l.b) && (t.Elements() == l.channels && t.Rank() > 0 && t.Shape[t.Rank()-1] == l.channels || t.Elements() == 1)
}

// foldFactor multiplies the weights by c, or divides them.
func (r *rewriter) foldFactor(n *Node, y, c TensorID, fn BinaryFn) bool {
	l, ok := r.linear(y)
	if !ok || !r.keeps(y, n.Outputs[0]) || !r.settled(l.w) || !r.settled(c) || !r.biasByChannel(&l) ||
		!l.byChannel(r.Tensors[c].Type, r.Tensors[y].Type.Rank()) {
		return false
	}
	w := r.emit(&Binary{Fn: fn}, l.w, r.alongWeights(&l, c))
	in := []TensorID{l.x, w}
	if l.b != None {
		b := r.emit(&Binary{Fn: fn}, r.asBias(&l, l.b), r.asBias(&l, c))
		in = append(in, b)
	}
	return r.replace("factors folded into weights", l.op, in...)
}

// foldAddend makes c the bias, or a part of it.
func (r *rewriter) foldAddend(n *Node, y, c TensorID, fn BinaryFn) bool {
	l, ok := r.linear(y)
	if !ok || !r.keeps(y, n.Outputs[0]) {
		return false
	}
	if !l.byChannel(r.Tensors[c].Type, r.Tensors[y].Type.Rank()) || !r.settled(c) {
		return fn == Add && r.foldResidual(n, &l, y, c)
	}
	if !r.biasByChannel(&l) {
		return false
	}
	b := r.asBias(&l, c)
	switch {
	case l.b != None:
		b = r.emit(&Binary{Fn: fn}, r.asBias(&l, l.b), b)
	case fn == Sub:
		b = r.emit(&Unary{Fn: Neg}, b)
	}
	switch op := l.op.(type) {
	case *MatMul:
		return r.affine(n, &l, b)
	case *Gemm:
		g := *op
		g.Beta = 1
		return r.replace("biases", &g, l.x, l.w, b)
	}
	return r.replace("biases", l.op, l.x, l.w, b)
}

// foldResidual makes a tensor like the result the addend of a product.
func (r *rewriter) foldResidual(n *Node, l *linear, y, c TensorID) bool {
	if l.b != None || !r.keeps(c, y) {
		return false
	}
	switch op := l.op.(type) {
	case *MatMul:
		t := r.Tensors[y].Type
		return r.affine(n, l, r.shaped(c, t.Elements()/max(1, l.channels), l.channels))
	case *Gemm:
		g := *op
		g.Beta = 1
		return r.replace("residuals", &g, l.x, l.w, c)
	}
	return false
}

// affine replaces the current node by a product of matrices with an addend,
// in the shape of the node's result.
func (r *rewriter) affine(n *Node, l *linear, b TensorID) bool {
	out := r.Tensors[n.Outputs[0]].Type
	k := r.Tensors[l.w].Type.Shape[0]
	if out.Elements() == 0 || k == 0 {
		return false
	}
	x := r.shaped(l.x, out.Elements()/l.channels, k)
	g := &Gemm{Alpha: 1, Beta: 1}
	if out.Rank() == 2 {
		return r.replace("biases", g, x, l.w, b)
	}
	return r.replace("biases", &Reshape{Shape: out.Shape}, r.emit(g, x, l.w, b))
}

// foldNorm folds batch normalisation into the convolution or product before
// it, or makes it a product and a sum.
func (r *rewriter) foldNorm(n *Node, op *BatchNorm) bool {
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
	factor := r.emit(&Binary{Fn: Div}, scale,
		r.emit(&Unary{Fn: Sqrt}, r.emit(&Binary{Fn: Add}, variance, r.float(out.DType, op.Epsilon))))
	if !ok {
		shift := r.emit(&Binary{Fn: Sub}, bias, r.emit(&Binary{Fn: Mul}, mean, factor))
		shape := make([]int64, out.Rank()-1)
		for i := range shape {
			shape[i] = 1
		}
		shape[0] = out.Shape[1]
		y := r.emit(&Binary{Fn: Mul}, x, r.shaped(factor, shape...))
		return r.replace("batch normalisations made products and sums", &Binary{Fn: Add}, y, r.shaped(shift, shape...))
	}
	w := r.emit(&Binary{Fn: Mul}, l.w, r.alongWeights(&l, factor))
	if l.b != None {
		mean = r.emit(&Binary{Fn: Sub}, mean, r.asBias(&l, l.b))
	}
	b := r.emit(&Binary{Fn: Sub}, bias, r.emit(&Binary{Fn: Mul}, mean, factor))
	const what = "batch normalisations folded into weights"
	switch op := l.op.(type) {
	case *MatMul:
		l.w = w
		r.did(what)
		return r.affine(n, &l, b)
	case *Gemm:
		g := *op
		g.Beta = 1
		return r.replace(what, &g, l.x, w, b)
	}
	return r.replace(what, l.op, l.x, w, b)
}
