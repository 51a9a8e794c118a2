package pass

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// recogniseAttention replaces the softmax of products of matrices, multiplied
// by a third one, by one operator that keeps the scores in the cache. That
// reads its operands from where they lay before they were divided into heads,
// and writes where they are put together again: the transposes, reshapes and
// slices around it vanish.
func recogniseAttention(e *graph.Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *graph.Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == graph.None || !r.single(n.Outputs[0]) {
			return false
		}
		switch op := n.Op.(type) {
		case *graph.MatMul:
			return r.attention(n)
		case *graph.Transpose:
			return r.mergedHeads(n, op)
		case *graph.Reshape:
			if p, a, ok := producer[*graph.ViewedAttention](r, n.Inputs[0]); ok && r.once(n.Inputs[0]) {
				o := *a
				o.Shape = op.Shape
				return r.replace("heads put together", &o, p.Inputs...)
			}
		}
		return false
	})
}

const (
	// fewRows is the most rows of Q that are left to primitives, whose loops for
	// few rows wait for nothing but memory.
	fewRows = 3
	// hiddenBelow is what a number that is added to scores, or replaces them,
	// hides them with: no sum with a score differs from it by much.
	hiddenBelow = -1e9
	// hiddenTo is added in place of a number that replaces scores: no sum with a
	// score differs from it at all, so that a row of which nothing is shown is
	// still the mean of all values, and sums of a few are finite.
	hiddenTo = -1e30
	// hiddenBeside is what hides scores where others of the row are not hidden:
	// their exponentials are larger than these by more than float32 tells apart.
	hiddenBeside = -1e4
)

// scores is what leads from products of matrices to a softmax.
type scores struct {
	product *graph.Node
	scale   float64
	causal  bool
	past    int64
	biases  []bias
	hides   int // how often scores are hidden by finite numbers, which causal or a bias stands for
}

// bias is added to scores; it broadcasts to their shape at that place.
type bias struct {
	t     graph.TensorID
	shape []int64
	hides bool // it stands for a selection
}

// attention recognises softmax(scale·Q·Kᵀ + bias)·V.
func (r *rewriter) attention(n *graph.Node) bool {
	out := r.Tensors[n.Outputs[0]].Type
	p, noNaN := r.withoutNaN(n.Inputs[0])
	p, ok := r.sameMatrices(p)
	if !ok || out.Rank() < 2 || out.Elements() == 0 || r.Tensors[n.Inputs[1]].Type.Rank() < 2 {
		return false
	}
	soft, op, ok := producer[*graph.Softmax](r, p)
	if !ok || op.Log || op.Axis != int64(r.Tensors[p].Type.Rank())-1 || !noNaN && !r.once(p) {
		return false
	}
	s := &scores{scale: 1}
	if !r.scores(soft.Inputs[0], s) {
		return false
	}
	qk := r.Tensors[s.product.Outputs[0]].Type
	rank := qk.Rank()
	rows, cols := qk.Shape[rank-2], qk.Shape[rank-1]
	if rows <= fewRows || qk.Elements()/rows/cols != out.Elements()/out.Shape[out.Rank()-2]/out.Shape[out.Rank()-1] {
		return false
	}
	if !r.hidesOnce(s) {
		return false
	}
	sum, ok := r.oneBias(s)
	if !ok {
		return false
	}
	o := &graph.ViewedAttention{Rows: rows, Cols: cols, Width: out.Shape[out.Rank()-1], Shape: out.Shape, Causal: s.causal, Past: s.past, NoNaN: noNaN}
	lead := qk.Shape[:rank-2]
	q, scaleQ, okQ := r.operandOf(s.product.Inputs[0], lead, func(_, across int64) bool { return true })
	k, scaleK, okK := r.operandOf(s.product.Inputs[1], lead, func(_, across int64) bool { return true })
	v, scaleV, okV := r.operandOf(n.Inputs[1], out.Shape[:out.Rank()-2], func(_, across int64) bool { return across == 1 })
	if !okQ || !okK || !okV || scaleV != 1 {
		return false
	}
	k.down, k.across = k.across, k.down
	o.Size = q.across.size
	o.Scale = s.scale * scaleQ * scaleK
	y := r.itself(n.Outputs[0])
	runs := [][]steps{q.lead, k.lead, v.lead, aligned(y.axes[:out.Rank()-2], out.Shape[:out.Rank()-2])}
	var b viewed
	if sum.t != graph.None {
		b = r.itself(sum.t)
		runs = append(runs, aligned(b.axes[:max(0, len(b.axes)-2)], sum.shape[:len(sum.shape)-2]))
	}
	var along [][]int64
	if o.Heads, along, ok = grid(runs); !ok {
		return false
	}
	view := func(at int64, along []int64, down, across int64) []int64 {
		return append(append([]int64{at}, along...), down, across)
	}
	o.Q = view(q.at, along[0], q.down.step, q.across.step)
	o.K = view(k.at, along[1], k.down.step, k.across.step)
	o.V = view(v.at, along[2], v.down.step, v.across.step)
	o.Y = view(0, along[3], o.Width, 1)
	in := []graph.TensorID{q.base, k.base, v.base}
	if sum.t != graph.None {
		matrix := aligned(b.axes[max(0, len(b.axes)-2):], []int64{rows, cols})
		o.Bias = view(0, along[4], matrix[0].step, matrix[1].step)
		in = append(in, sum.t)
	}
	types := make([]graph.TensorType, len(in))
	for i, t := range in {
		types[i] = r.Tensors[t].Type
	}
	if _, err := o.Infer(types); err != nil {
		return false
	}
	return r.replace("attention", o, in...)
}

// operandView is a view of matrices.
type operandView struct {
	base         graph.TensorID
	at           int64
	lead         []steps
	down, across steps
}

// operandOf returns the farthest view of the matrices in t whose rows and
// columns are equally far apart, as fit wants them, and the factor that is
// missing there.
func (r *rewriter) operandOf(t graph.TensorID, lead []int64, fit func(down, across int64) bool) (o operandView, factor float64, ok bool) {
	views, factors := r.through(t)
	for i, v := range views {
		n := len(v.axes)
		if n < 2 || r.Tensors[v.base].Type.DType != r.Tensors[t].Type.DType {
			continue
		}
		down, ok1 := joined(v.axes[n-2])
		across, ok2 := joined(v.axes[n-1])
		if ok1 && ok2 && fit(down.step, across.step) {
			return operandView{v.base, v.at, aligned(v.axes[:n-2], lead), down, across}, factors[i], true
		}
	}
	return o, 0, false
}

// sameMatrices returns what t is a reshape of, which nobody else reads, as far
// as the last two axes stay the same.
func (r *rewriter) sameMatrices(t graph.TensorID) (graph.TensorID, bool) {
	for {
		n, _, ok := producer[*graph.Reshape](r, t)
		if !ok {
			return t, r.Tensors[t].Type.Rank() >= 2
		}
		x, y := r.Tensors[n.Inputs[0]].Type.Shape, r.Tensors[t].Type.Shape
		if len(x) < 2 || len(y) < 2 || !slices.Equal(x[len(x)-2:], y[len(y)-2:]) || !r.once(t) {
			return t, len(y) >= 2
		}
		t = n.Inputs[0]
	}
}

// scores finds the product that the operand of a softmax is made of, and notes
// on the way what is done to it.
func (r *rewriter) scores(t graph.TensorID, s *scores) bool {
	t, ok := r.sameMatrices(t)
	if !ok || !r.once(t) {
		return false
	}
	n := r.node(t)
	if n == nil || len(n.Outputs) != 1 {
		return false
	}
	switch op := n.Op.(type) {
	case *graph.MatMul:
		s.product = n
		return r.Tensors[n.Inputs[0]].Type.Rank() >= 2 && r.Tensors[n.Inputs[1]].Type.Rank() >= 2
	case *graph.Binary:
		if x, f, ok := r.factor(t, op); ok {
			s.scale *= f
			return r.scores(x, s)
		}
		if op.Fn == graph.Add {
			return r.biased(t, n.Inputs[0], n.Inputs[1], s) || r.biased(t, n.Inputs[1], n.Inputs[0], s)
		}
	case *graph.Where:
		return r.masked(t, n.Inputs[0], n.Inputs[1], n.Inputs[2], s)
	}
	return false
}

// biased goes on at x, to which b is added.
func (r *rewriter) biased(t, x, b graph.TensorID, s *scores) bool {
	// A factor that follows would count for the bias too.
	if s.scale != 1 || !r.keeps(x, t) || !r.stable(b) {
		return false
	}
	before := *s
	finite := 0
	if past, ok := r.triangle(b, t, func(v float64) (hidden, ok bool) {
		if v != 0 && !math.IsInf(v, 0) {
			finite = 1
		}
		return v != 0, v == 0 || v <= hiddenBeside
	}); ok && !s.causal {
		s.causal, s.past, s.hides = true, past, s.hides+finite
	} else {
		s.add(bias{t: b, shape: r.Tensors[t].Type.Shape})
	}
	if r.scores(x, s) {
		return true
	}
	*s = before
	return false
}

// add notes one more bias.
func (s *scores) add(b bias) { s.biases = append(slices.Clone(s.biases), b) }

// hidesOnce reports whether what hides scores by a finite number does so alone.
// Where all of a row is hidden, by one mask or another, the softmax weighs what is
// hidden once against what is hidden twice, which the numbers themselves decide; one
// mask that stands for another number, or is left out, weighs otherwise.
func (r *rewriter) hidesOnce(s *scores) bool {
	others := 0
	for _, b := range s.biases {
		if !b.hides && !r.mild(b.t) {
			others++
		}
	}
	return s.hides == 0 || s.hides+others == 1
}

// mild reports whether all elements of a bias are known, and too small to hide a
// score.
func (r *rewriter) mild(t graph.TensorID) bool {
	e := &r.Tensors[t]
	if !e.Const {
		return false
	}
	for i := range e.Type.Elements() {
		if v := constantFloat(e, i); !(math.Abs(v) < -hiddenBeside) {
			return false
		}
	}
	return true
}

// masked goes on at the scores of a selection, the others being hidden.
func (r *rewriter) masked(t, cond, a, b graph.TensorID, s *scores) bool {
	hides := true // where cond is true
	v, ok := r.number(a)
	x := b
	if !ok {
		hides, x = false, a
		v, ok = r.number(b)
	}
	if !ok || s.scale != 1 || !r.keeps(x, t) || !r.stable(cond) || !(v <= hiddenBeside) {
		return false
	}
	past, ok := r.triangle(cond, t, func(c float64) (hidden, ok bool) { return (c != 0) == hides, true })
	finite := 1
	if math.IsInf(v, 0) {
		finite = 0
	}
	if ok && !s.causal {
		s.causal, s.past, s.hides = true, past, s.hides+finite
		return r.scores(x, s)
	}
	if v > hiddenBelow {
		return false
	}
	if finite == 1 {
		v = hiddenTo
	}
	typ := r.Tensors[t].Type.DType
	hidden, shown := r.float(typ, v), r.float(typ, 0)
	if !hides {
		hidden, shown = shown, hidden
	}
	addend := r.emit(&graph.Where{}, cond, hidden, shown)
	s.add(bias{t: addend, shape: r.Tensors[t].Type.Shape, hides: true})
	s.hides += finite
	return addend != graph.None && r.scores(x, s)
}

// triangle reports whether a constant that broadcasts to t hides, for all heads
// alike, what comes after an element past positions further on than a row.
func (r *rewriter) triangle(c, t graph.TensorID, hides func(v float64) (hidden, ok bool)) (past int64, ok bool) {
	e, shape := &r.Tensors[c], r.Tensors[t].Type.Shape
	rank := len(shape)
	rows, cols := shape[rank-2], shape[rank-1]
	if !e.Const || e.Type.Rank() < 2 || e.Type.Elements() != rows*cols || !slices.Equal(e.Type.Shape[e.Type.Rank()-2:], shape[rank-2:]) {
		return 0, false
	}
	past = -1
	for i := range rows {
		for j := range cols {
			hidden, ok := hides(constantFloat(e, i*cols+j))
			switch {
			case !ok:
				return 0, false
			case i == 0 && !hidden && past == j-1:
				past = j
			case hidden != (j > i+past):
				return 0, false
			}
		}
	}
	return past, past >= 0
}

// constantFloat returns an element of a constant: NaN if its type is none of Bool,
// F32 and F64.
func constantFloat(e *graph.Tensor, i int64) float64 {
	switch b := e.Data[i*int64(e.Type.DType.Size()):]; e.Type.DType {
	case graph.Bool:
		return float64(b[0])
	case graph.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case graph.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	}
	return math.NaN()
}

// oneBias returns the sum of all biases, None if there are none. It is to be
// no larger than one of them, unless it is known once the weights are.
func (r *rewriter) oneBias(s *scores) (sum bias, ok bool) {
	if len(s.biases) == 0 {
		return bias{t: graph.None}, true
	}
	sum = s.biases[0]
	for _, b := range s.biases[1:] {
		sum, b, ok = r.together(sum, b)
		if !ok {
			return sum, false
		}
		x, y := r.Tensors[sum.t].Type, r.Tensors[b.t].Type
		shape, err := graph.Broadcast(x.Shape, y.Shape)
		both := graph.TensorType{DType: x.DType, Shape: shape}.Elements()
		if err != nil || both > max(x.Elements(), y.Elements()) && !(r.settled(sum.t) && r.settled(b.t)) {
			return sum, false
		}
		if sum.t = r.emit(&graph.Binary{Fn: graph.Add}, sum.t, b.t); sum.t == graph.None {
			return sum, false
		}
	}
	return sum, true
}

// together returns biases that broadcast to one shape where the scores were
// reshaped between them.
func (r *rewriter) together(a, b bias) (bias, bias, bool) {
	if slices.Equal(a.shape, b.shape) {
		return a, b, true
	}
	if c, ok := r.among(a, b.shape); ok {
		return c, b, true
	}
	c, ok := r.among(b, a.shape)
	return a, c, ok
}

// among returns a bias that broadcasts to another shape of the scores, if it is
// the same along all axes in which the shapes differ.
func (r *rewriter) among(b bias, shape []int64) (bias, bool) {
	same := 0
	for same < min(len(b.shape), len(shape)) && b.shape[len(b.shape)-1-same] == shape[len(shape)-1-same] {
		same++
	}
	dims := r.Tensors[b.t].Type.Shape
	lead := dims[:max(0, len(dims)-same)]
	if slices.ContainsFunc(lead, func(n int64) bool { return n != 1 }) {
		return b, false
	}
	return bias{t: r.shaped(b.t, dims[len(lead):]...), shape: shape}, true
}

// withoutNaN returns p if t is p with zeros in place of NaN.
func (r *rewriter) withoutNaN(t graph.TensorID) (p graph.TensorID, ok bool) {
	n, _, ok := producer[*graph.Where](r, t)
	if !ok || !r.once(t) {
		return t, false
	}
	p = n.Inputs[2]
	zero, isNumber := r.number(n.Inputs[1])
	same, isNot := r.unary(n.Inputs[0], graph.Not)
	if !isNumber || zero != 0 || !isNot {
		return t, false
	}
	a, b, isEqual := r.binary(same, graph.Equal)
	const reads = 3 // twice by the comparison, once by the selection
	if !isEqual || a != p || b != p || !r.keeps(p, t) || r.reads[p] != reads || r.Tensors[p].Persistent {
		return t, false
	}
	return p, true
}

// mergedHeads lets attention write its result the way that it is transposed to.
func (r *rewriter) mergedHeads(n *graph.Node, op *graph.Transpose) bool {
	p, a, ok := producer[*graph.ViewedAttention](r, n.Inputs[0])
	if !ok || !r.once(n.Inputs[0]) {
		return false
	}
	o := *a
	o.Shape = r.Tensors[n.Outputs[0]].Type.Shape
	// Where along each axis of the old shape the elements lie, and will lie.
	was := r.itself(n.Inputs[0])
	will := r.itself(n.Outputs[0])
	to := make([]int64, len(op.Perm))
	for i, axis := range op.Perm {
		to[axis] = will.axes[i][0].step
	}
	place := func(size, step int64) (inner, moved int64) {
		for i, axis := range was.axes {
			if s := axis[0]; s.size > 1 && s.step <= step && step < s.size*s.step {
				return min(size, s.size*s.step/step), step / s.step * to[i]
			}
		}
		return size, step // of a single element
	}
	last := len(o.Y) - 1
	var moved [2]int64
	for i, size := range []int64{o.Rows, o.Width} {
		inner, step := place(size, o.Y[last-1+i])
		if inner != size {
			return false
		}
		moved[i] = step
	}
	if o.Width > 1 && moved[1] != 1 {
		return false
	}
	// An axis of the grid that runs over several of the shape is divided.
	heads, views := o.Heads, [][]int64{o.Q, o.K, o.V, o.Bias}
	o.Heads, o.Y = nil, []int64{0}
	divided := make([][]int64, len(views))
	for i, v := range views {
		if len(v) > 0 {
			divided[i] = []int64{v[0]}
		}
	}
	for i, size := range heads {
		var parts []steps // innermost first
		for left, step := size, a.Y[1+i]; left > 1; {
			inner, to := place(left, step)
			if inner < 1 || left%inner != 0 {
				return false
			}
			parts = append(parts, steps{inner, to})
			left, step = left/inner, step*inner
		}
		slices.Reverse(parts)
		within := size
		for _, part := range parts {
			within /= part.size
			o.Heads, o.Y = append(o.Heads, part.size), append(o.Y, part.step)
			for k, v := range views {
				if len(v) > 0 {
					divided[k] = append(divided[k], v[1+i]*within)
				}
			}
		}
	}
	for i, v := range views {
		if len(v) > 0 {
			divided[i] = append(divided[i], v[len(v)-2:]...)
		}
	}
	o.Q, o.K, o.V, o.Bias = divided[0], divided[1], divided[2], divided[3]
	o.Y = append(o.Y, moved[0], moved[1])
	types := make([]graph.TensorType, len(p.Inputs))
	for i, t := range p.Inputs {
		types[i] = r.Tensors[t].Type
	}
	if _, err := o.Infer(types); err != nil {
		return false
	}
	return r.replace("heads put together", &o, p.Inputs...)
}
