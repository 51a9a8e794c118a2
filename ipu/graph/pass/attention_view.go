package pass

import (
	"math"
	"slices"

	"github.com/popefgen/popefgen/ipu/graph"
)

// viewed is where the elements of a tensor lie in another: for each axis of
// the tensor, the axes of the other that it runs over, outermost first.
type viewed struct {
	base graph.TensorID
	at   int64
	axes [][]steps
}

// steps are elements that are equally far apart.
type steps struct{ size, step int64 }

// flat returns an axis of a size as what it runs over.
func flat(size, step int64) []steps { return []steps{{size, step}} }

// itself returns the view of a whole tensor.
func (r *rewriter) itself(t graph.TensorID) viewed {
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
func (r *rewriter) through(t graph.TensorID) (views []viewed, factors []float64) {
	n := r.node(t)
	if n == nil {
		return []viewed{r.itself(t)}, []float64{1}
	}
	x, factor := graph.None, 1.0
	var move func(v viewed) (viewed, bool)
	switch op := n.Op.(type) {
	case *graph.Reshape:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.reshaped(op.Shape) }
	case *graph.Transpose:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.transposed(op.Perm), true }
	case *graph.Slice:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.sliced(op) }
	case *graph.Expand:
		x, move = n.Inputs[0], func(v viewed) (viewed, bool) { return v.expanded(op.Shape), true }
	case *graph.Binary:
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
func (r *rewriter) factor(t graph.TensorID, op *graph.Binary) (x graph.TensorID, f float64, ok bool) {
	if op.Fn != graph.Mul && op.Fn != graph.Div || !r.once(t) {
		return graph.None, 0, false
	}
	in := r.node(t).Inputs
	if f, ok := r.number(in[1]); ok && r.keeps(in[0], t) {
		if op.Fn == graph.Div {
			f = 1 / f
		}
		return in[0], f, finite(f)
	}
	if f, ok := r.number(in[0]); ok && op.Fn == graph.Mul && r.keeps(in[1], t) {
		return in[1], f, finite(f)
	}
	return graph.None, 0, false
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
func (v viewed) sliced(op *graph.Slice) (viewed, bool) {
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
	return sizes, along, len(sizes) <= graph.MaxRank
}
