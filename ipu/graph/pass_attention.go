package graph

import (
	"encoding/binary"
	"math"
	"slices"
)

// recogniseAttention replaces the softmax of products of matrices, multiplied
// by a third one, by one operator that keeps the scores in the cache. That
// reads its operands from where they lay before they were divided into heads,
// and writes where they are put together again: the transposes, reshapes and
// slices around it vanish.
func recogniseAttention(e *Executable, c *passContext) {
	rewrite(e, c, func(r *rewriter, n *Node) bool {
		if len(n.Outputs) == 0 || n.Outputs[0] == None || !r.single(n.Outputs[0]) {
			return false
		}
		switch op := n.Op.(type) {
		case *MatMul:
			return r.attention(n)
		case *Transpose:
			return r.mergedHeads(n, op)
		case *Reshape:
			if p, a, ok := producer[*ViewedAttention](r, n.Inputs[0]); ok && r.once(n.Inputs[0]) {
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
	// hiddenBeside is what hides scores where others of the row are not hidden:
	// their exponentials are larger than these by more than float32 tells apart.
	hiddenBeside = -1e4
)

// viewed is where the elements of a tensor lie in another: for each axis of
// the tensor, the axes of the other that it runs over, outermost first.
type viewed struct {
	base TensorID
	at   int64
	axes [][]steps
}

// steps are elements that are equally far apart.
type steps struct{ size, step int64 }

// flat returns an axis of a size as what it runs over.
func flat(size, step int64) []steps { return []steps{{size, step}} }

// itself returns the view of a whole tensor.
func (r *rewriter) itself(t TensorID) viewed {
	shape := r.Tensors[t].Type.Shape
	v := viewed{base: t, axes: make([][]steps, len(shape))}
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		v.axes[i] = flat(shape[i], n)
		n *= shape[i]
	}
	return v
}

// through returns the views of a tensor as part of those that it is moved from,
// the farthest first, and factors that it was multiplied with after each.
func (r *rewriter) through(t TensorID) (views []viewed, factors []float64) {
	n := r.node(t)
	if n == nil {
		return []viewed{r.itself(t)}, []float64{1}
	}
	x, factor := None, 1.0
	var move func(v viewed) (viewed, bool)
	switch op := n.Op.(type) {
	case *Reshape:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.reshaped(op.Shape) }
	case *Transpose:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.transposed(op.Perm), true }
	case *Slice:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.sliced(op) }
	case *Expand:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.expanded(op.Shape), true }
	case *Binary:
		if y, f, ok := r.factor(t, op); ok {
			x, factor, move = y, f, func(v viewed) (viewed, bool) { return v, true }
		}
	}
	if move != nil {
		from, by := r.through(x)
		for i, v := range from {
			if v, ok := move(v); ok {
				views, factors = append(views, v), append(factors, by[i]*factor)
			}
		}
	}
	return append(views, r.itself(t)), append(factors, 1)
}

// factor returns x and f if t, which op computes and nobody else reads, is x·f
// with a number f.
func (r *rewriter) factor(t TensorID, op *Binary) (x TensorID, f float64, ok bool) {
	if op.Fn != Mul && op.Fn != Div || !r.once(t) {
		return None, 0, false
	}
	in := r.node(t).Inputs
	if f, ok := r.number(in[1]); ok && r.keeps(in[0], t) {
		if op.Fn == Div {
			f = 1 / f
		}
		return in[0], f, finite(f)
	}
	if f, ok := r.number(in[0]); ok && op.Fn == Mul && r.keeps(in[1], t) {
		return in[1], f, finite(f)
	}
	return None, 0, false
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

func (v viewed) transposed(perm []int64) viewed {
	axes := make([][]steps, len(perm))
	for i, p := range perm {
		axes[i] = v.axes[p]
	}
	v.axes = axes
	return v
}

// expanded broadcasts the view.
func (v viewed) expanded(shape []int64) viewed {
	axes := make([][]steps, len(shape))
	for i := range axes {
		axes[i] = flat(shape[i], 0)
		if k := i - len(shape) + len(v.axes); k >= 0 && count(v.axes[k]) == shape[i] {
			axes[i] = v.axes[k]
		}
	}
	v.axes = axes
	return v
}

// count returns how many elements an axis has.
func count(axis []steps) int64 {
	n := int64(1)
	for _, s := range axis {
		n *= s.size
	}
	return n
}

// sliced takes a part of the view, if that lies at equal distances.
func (v viewed) sliced(op *Slice) (viewed, bool) {
	axes := slices.Clone(v.axes)
	for i, axis := range axes {
		if op.Start[i] == 0 && op.Step[i] == 1 && op.Size[i] == count(axis) {
			continue
		}
		one, ok := joined(axis)
		if !ok || op.Step[i] < 1 {
			return v, false
		}
		v.at += op.Start[i] * one.step
		axes[i] = flat(op.Size[i], op.Step[i]*one.step)
	}
	v.axes = axes
	return v, true
}

// joined returns an axis as one run over elements that are equally far apart.
func joined(axis []steps) (steps, bool) {
	all := steps{1, 1}
	for _, s := range axis {
		switch {
		case s.size == 1:
		case all.size == 1:
			all = s
		case all.step == s.size*s.step:
			all = steps{all.size * s.size, s.step}
		default:
			return steps{}, false
		}
	}
	return all, true
}

// reshaped divides what the view runs over among other axes.
func (v viewed) reshaped(shape []int64) (viewed, bool) {
	rest := slices.Concat(v.axes...)
	axes := make([][]steps, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		for n := shape[i]; n != 1; {
			for len(rest) > 0 && rest[len(rest)-1].size == 1 {
				rest = rest[:len(rest)-1]
			}
			if n == 0 || len(rest) == 0 {
				return v, false
			}
			last := &rest[len(rest)-1]
			some := min(n, last.size)
			if n%some != 0 || last.size%some != 0 {
				return v, false
			}
			axes[i] = append(flat(some, last.step), axes[i]...)
			*last = steps{last.size / some, last.step * some}
			n /= some
		}
	}
	v.axes = axes
	return v, true
}

// aligned returns what the leading axes run over, as many elements as lead
// has, where those that are missing or have one element are broadcast.
func aligned(axes [][]steps, lead []int64) []steps {
	var all []steps
	for i, n := range lead {
		k := i - len(lead) + len(axes)
		if k < 0 || count(axes[k]) != n {
			all = append(all, steps{n, 0})
			continue
		}
		all = append(all, axes[k]...)
	}
	return all
}

// grid finds axes over which all runs go: it returns their sizes and every run's
// steps. The runs have as many elements each.
func grid(runs [][]steps) (sizes []int64, along [][]int64, ok bool) {
	rest := make([][]steps, len(runs))
	along = make([][]int64, len(runs))
	for i, run := range runs {
		rest[i] = slices.DeleteFunc(slices.Clone(run), func(s steps) bool { return s.size == 1 })
	}
	for len(rest[0]) > 0 {
		some := int64(math.MaxInt64)
		for _, run := range rest {
			if len(run) == 0 {
				return nil, nil, false
			}
			some = min(some, run[len(run)-1].size)
		}
		for i, run := range rest {
			last := &run[len(run)-1]
			if last.size%some != 0 {
				return nil, nil, false
			}
			along[i] = append(along[i], last.step)
			if last.size == some {
				rest[i] = run[:len(run)-1]
			} else {
				*last = steps{last.size / some, last.step * some}
			}
		}
		sizes = append(sizes, some)
	}
	slices.Reverse(sizes)
	for _, steps := range along {
		slices.Reverse(steps)
	}
	return sizes, along, len(sizes) <= MaxRank
}

// scores is what leads from products of matrices to a softmax.
type scores struct {
	product *Node
	scale   float64
	causal  bool
	past    int64
	biases  []TensorID
	shape   []int64 // to which the biases broadcast
}

// attention recognises softmax(scale·Q·Kᵀ + bias)·V.
func (r *rewriter) attention(n *Node) bool {
	out := r.Tensors[n.Outputs[0]].Type
	p, ok := r.sameMatrices(n.Inputs[0])
	if !ok || out.Rank() < 2 || out.Elements() == 0 || r.Tensors[n.Inputs[1]].Type.Rank() < 2 {
		return false
	}
	soft, op, ok := producer[*Softmax](r, p)
	if !ok || op.Log || op.Axis != int64(r.Tensors[p].Type.Rank())-1 || !r.once(p) {
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
	bias, ok := r.oneBias(s)
	if !ok {
		return false
	}
	o := &ViewedAttention{Rows: rows, Cols: cols, Width: out.Shape[out.Rank()-1], Shape: out.Shape, Causal: s.causal, Past: s.past}
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
	if bias != None {
		b = r.itself(bias)
		runs = append(runs, aligned(b.axes[:max(0, len(b.axes)-2)], s.shape[:len(s.shape)-2]))
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
	in := []TensorID{q.base, k.base, v.base}
	if bias != None {
		matrix := aligned(b.axes[max(0, len(b.axes)-2):], []int64{rows, cols})
		o.Bias = view(0, along[4], matrix[0].step, matrix[1].step)
		in = append(in, bias)
	}
	types := make([]TensorType, len(in))
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
	base         TensorID
	at           int64
	lead         []steps
	down, across steps
}

// operandOf returns the farthest view of the matrices in t whose rows and
// columns are equally far apart, as fit wants them, and the factor that is
// missing there.
func (r *rewriter) operandOf(t TensorID, lead []int64, fit func(down, across int64) bool) (o operandView, factor float64, ok bool) {
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
func (r *rewriter) sameMatrices(t TensorID) (TensorID, bool) {
	for {
		n, _, ok := producer[*Reshape](r, t)
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
func (r *rewriter) scores(t TensorID, s *scores) bool {
	t, ok := r.sameMatrices(t)
	if !ok || !r.once(t) {
		return false
	}
	n := r.node(t)
	if n == nil || len(n.Outputs) != 1 {
		return false
	}
	switch op := n.Op.(type) {
	case *MatMul:
		s.product = n
		return r.Tensors[n.Inputs[0]].Type.Rank() >= 2 && r.Tensors[n.Inputs[1]].Type.Rank() >= 2
	case *Binary:
		if x, f, ok := r.factor(t, op); ok {
			s.scale *= f
			return r.scores(x, s)
		}
		if op.Fn == Add {
			return r.biased(t, n.Inputs[0], n.Inputs[1], s) || r.biased(t, n.Inputs[1], n.Inputs[0], s)
		}
	case *Where:
		return r.masked(t, n.Inputs[0], n.Inputs[1], n.Inputs[2], s)
	}
	return false
}

// biased goes on at x, to which b is added.
func (r *rewriter) biased(t, x, b TensorID, s *scores) bool {
	// A factor that follows would count for the bias too.
	if s.scale != 1 || !r.keeps(x, t) || !r.stable(b) {
		return false
	}
	before := *s
	if past, ok := r.triangle(b, t, func(v float64) (hidden, ok bool) { return v != 0, v == 0 || v <= hiddenBeside }); ok && !s.causal {
		s.causal, s.past = true, past
	} else if !s.add(b, r.Tensors[t].Type.Shape) {
		return false
	}
	if r.scores(x, s) {
		return true
	}
	*s = before
	return false
}

// add notes one more bias.
func (s *scores) add(b TensorID, shape []int64) bool {
	if s.shape != nil && !slices.Equal(s.shape, shape) {
		return false
	}
	s.biases, s.shape = append(slices.Clone(s.biases), b), shape
	return true
}

// masked goes on at the scores of a selection, the others being hidden.
func (r *rewriter) masked(t, cond, a, b TensorID, s *scores) bool {
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
	if ok && !s.causal {
		s.causal, s.past = true, past
		return r.scores(x, s)
	}
	if v > hiddenBelow {
		return false
	}
	typ := r.Tensors[t].Type.DType
	hidden, shown := r.float(typ, v), r.float(typ, 0)
	if !hides {
		hidden, shown = shown, hidden
	}
	if !s.add(None, r.Tensors[t].Type.Shape) {
		return false
	}
	s.biases[len(s.biases)-1] = r.emit(&Where{}, cond, hidden, shown)
	return s.biases[len(s.biases)-1] != None && r.scores(x, s)
}

// triangle reports whether a constant that broadcasts to t hides, for all heads
// alike, what comes after an element past positions further on than a row.
func (r *rewriter) triangle(c, t TensorID, hides func(v float64) (hidden, ok bool)) (past int64, ok bool) {
	e, shape := &r.Tensors[c], r.Tensors[t].Type.Shape
	rank := len(shape)
	rows, cols := shape[rank-2], shape[rank-1]
	if !e.Const || e.Type.Rank() < 2 || e.Type.Elements() != rows*cols || !slices.Equal(e.Type.Shape[e.Type.Rank()-2:], shape[rank-2:]) {
		return 0, false
	}
	size := int64(e.Type.DType.Size())
	value := func(i int64) float64 {
		switch b := e.Data[i*size:]; e.Type.DType {
		case Bool:
			return float64(b[0])
		case F32:
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case F64:
			return math.Float64frombits(binary.LittleEndian.Uint64(b))
		}
		return math.NaN()
	}
	past = -1
	for i := range rows {
		for j := range cols {
			hidden, ok := hides(value(i*cols + j))
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

// oneBias returns the sum of all biases, None if there are none. It is to be
// no larger than one of them, unless it is known once the weights are.
func (r *rewriter) oneBias(s *scores) (TensorID, bool) {
	if len(s.biases) == 0 {
		return None, true
	}
	sum := s.biases[0]
	for _, b := range s.biases[1:] {
		x, y := r.Tensors[sum].Type, r.Tensors[b].Type
		shape, err := Broadcast(x.Shape, y.Shape)
		both := TensorType{x.DType, shape}.Elements()
		if err != nil || both > max(x.Elements(), y.Elements()) && !(r.settled(sum) && r.settled(b)) {
			return None, false
		}
		if sum = r.emit(&Binary{Fn: Add}, sum, b); sum == None {
			return None, false
		}
	}
	return sum, true
}

// mergedHeads lets attention write its result the way that it is transposed to.
func (r *rewriter) mergedHeads(n *Node, op *Transpose) bool {
	p, a, ok := producer[*ViewedAttention](r, n.Inputs[0])
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
	types := make([]TensorType, len(p.Inputs))
	for i, t := range p.Inputs {
		types[i] = r.Tensors[t].Type
	}
	if _, err := o.Infer(types); err != nil {
		return false
	}
	return r.replace("heads put together", &o, p.Inputs...)
}
