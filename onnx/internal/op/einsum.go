package op

import (
	"slices"
	"strings"

	"github.com/popefgen/popefgen/ipu/graph"
	"github.com/popefgen/popefgen/onnx/internal/lower"
)

// einsumOps sum products over indices that they name.
var einsumOps = map[string]definition{
	"Einsum": takes("Inputs…:T=numbers").since(12, einsum, "equation:string!"),
}

// indexed is an operand of an Einsum: a tensor with an index for each axis.
// Letters stand for themselves; the axes of an ellipsis are numbered from the
// last one on, from -1 down.
type indexed struct {
	v    *lower.Value
	axes []rune
}

// einsumSum is an Einsum on its way.
type einsumSum struct {
	c        *call
	operands []indexed
	result   []rune
	size     map[rune]int64
}

func einsum(c *call) []*lower.Value {
	all := c.All()
	t := all[0].Type.DType
	s := &einsumSum{c: c, size: make(map[rune]int64)}
	s.parse(c.Str("equation"), all)
	wide := t
	switch t { // which products know
	case graph.I8, graph.I16:
		wide = graph.I32
	case graph.U8, graph.U16:
		wide = graph.U32
	}
	for i := range s.operands {
		o := &s.operands[i]
		if o.v.Type.DType != t {
			c.Fail("operand %d is %v, want elements of type %v", i, o.v.Type, t)
		}
		o.v = c.cast(o.v, wide)
		s.simplify(o)
	}
	y := s.operands[0]
	for i, o := range s.operands[1:] {
		y = s.product(y, o, s.operands[i+2:])
	}
	y = s.sum(y, s.result)
	y.v = s.arrange(y, s.result)
	return lower.One(c.cast(y.v, t))
}

// parse reads the equation.
func (s *einsumSum) parse(equation string, all []*lower.Value) {
	c := s.c
	equation = strings.ReplaceAll(equation, " ", "")
	left, right, explicit := strings.Cut(equation, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(all) {
		c.Fail("attribute \"equation\" is %q with %d terms, want one for each of %d operands", equation, len(terms), len(all))
	}
	most := 0 // axes of the longest ellipsis
	uses := make(map[rune]int)
	for i, v := range all {
		letters := len(strings.ReplaceAll(terms[i], "...", ""))
		axes := s.indices(equation, terms[i], int(v.Rank())-letters)
		if len(axes) != len(v.Type.Shape) {
			c.Fail("attribute \"equation\" is %q, whose term %q does not fit operand %d, %v", equation, terms[i], i, v.Type)
		}
		for k, a := range axes {
			if a < 0 {
				most = max(most, int(-a))
			} else {
				uses[a]++
			}
			d, old := v.Type.Shape[k], int64(1)
			if n, ok := s.size[a]; ok {
				old = n
			}
			if d != old && d != 1 && old != 1 {
				c.Fail("attribute \"equation\" is %q: axis %d of operand %d, %v, has %d elements where another has %d", equation, k, i, v.Type, d, old)
			}
			if s.size[a] = d; d == 1 {
				s.size[a] = old
			}
		}
		s.operands = append(s.operands, indexed{v, axes})
	}
	if explicit {
		s.result = s.indices(equation, right, most)
		for i, a := range s.result {
			if _, ok := s.size[a]; !ok || slices.Contains(s.result[:i], a) {
				c.Fail("attribute \"equation\" is %q, want every index of the result once, and in an operand", equation)
			}
		}
		return
	}
	// Without an arrow, the result has the indices that occur once, in order.
	for i := range most {
		s.result = append(s.result, rune(i-most))
	}
	for a := 'A'; a <= 'z'; a++ {
		if uses[a] == 1 {
			s.result = append(s.result, a)
		}
	}
}

// indices returns the indices of a term whose ellipsis has n axes.
func (s *einsumSum) indices(equation, term string, n int) []rune {
	var axes []rune
	before, after, dots := strings.Cut(term, "...")
	add := func(letters string) {
		for _, a := range letters {
			if !(a >= 'a' && a <= 'z' || a >= 'A' && a <= 'Z') {
				s.c.Fail("attribute \"equation\" is %q, want letters, one \"...\" in a term, commas and one \"->\"", equation)
			}
			axes = append(axes, a)
		}
	}
	add(before)
	if dots {
		for i := range max(n, 0) {
			axes = append(axes, rune(i-n))
		}
	}
	add(after)
	return axes
}

// simplify drops axes of one element that others stretch, and takes the
// diagonal where an index is repeated.
func (s *einsumSum) simplify(o *indexed) {
	var shape []int64
	var axes []rune
	for i, a := range o.axes {
		if d := o.v.Type.Shape[i]; d != 1 || s.size[a] == 1 {
			shape, axes = append(shape, d), append(axes, a)
		}
	}
	o.v, o.axes = s.reshape(o.v, shape), axes
	for i := 0; i < len(o.axes); i++ {
		for {
			j := slices.Index(o.axes[i+1:], o.axes[i])
			if j < 0 {
				break
			}
			s.diagonal(o, i, i+1+j)
		}
	}
}

// diagonal makes axes i and j, of the same size, one.
func (s *einsumSum) diagonal(o *indexed, i, j int) {
	n := o.v.Type.Shape[i]
	perm := make([]int64, 0, len(o.axes))
	var axes []rune
	for k, a := range o.axes {
		if k != i && k != j {
			perm, axes = append(perm, int64(k)), append(axes, a)
		}
	}
	y := s.transpose(o.v, append(perm, int64(i), int64(j)))
	shape := slices.Clone(y.Type.Shape[:len(perm)])
	y = s.reshape(y, append(slices.Clone(shape), n*n))
	cut := whole(y)
	last := len(shape)
	cut.Size[last], cut.Step[last] = n, n+1
	o.v, o.axes = s.c.Emit(cut, y), append(axes, o.axes[i])
}

// sum sums over the indices of o that are not kept.
func (s *einsumSum) sum(o indexed, kept ...[]rune) indexed {
	var over []int64
	var axes []rune
	for i, a := range o.axes {
		if slices.ContainsFunc(kept, func(k []rune) bool { return slices.Contains(k, a) }) {
			axes = append(axes, a)
		} else {
			over = append(over, int64(i))
		}
	}
	if over == nil {
		return o
	}
	return indexed{s.c.Emit(&graph.Reduce{Fn: graph.ReduceSum, Axes: over}, o.v), axes}
}

// product multiplies a and b and sums over the indices that neither the result
// nor a later operand has.
func (s *einsumSum) product(a, b indexed, later []indexed) indexed {
	needed := [][]rune{s.result}
	for _, o := range later {
		needed = append(needed, o.axes)
	}
	a = s.sum(a, append(needed, b.axes)...)
	b = s.sum(b, append(needed, a.axes)...)
	var batch, rows, columns, summed []rune
	for _, x := range a.axes {
		switch {
		case !slices.Contains(b.axes, x):
			rows = append(rows, x)
		case slices.ContainsFunc(needed, func(n []rune) bool { return slices.Contains(n, x) }):
			batch = append(batch, x)
		default:
			summed = append(summed, x)
		}
	}
	for _, x := range b.axes {
		if !slices.Contains(a.axes, x) {
			columns = append(columns, x)
		}
	}
	axes := slices.Concat(batch, rows, columns)
	n, m, k, c := s.elements(batch), s.elements(rows), s.elements(summed), s.elements(columns)
	x := s.arrange(a, slices.Concat(batch, rows, summed))
	y := s.arrange(b, slices.Concat(batch, summed, columns))
	var op graph.Op = &graph.MatMul{}
	if summed == nil {
		op = &graph.Binary{Fn: graph.Mul} // of a column and a row
	}
	var lead []int64
	if batch != nil {
		lead = []int64{n}
	}
	z := s.c.Emit(op, s.reshape(x, slices.Concat(lead, []int64{m, k})), s.reshape(y, slices.Concat(lead, []int64{k, c})))
	shape := make([]int64, len(axes))
	for i, a := range axes {
		shape[i] = s.size[a]
	}
	return indexed{s.reshape(z, shape), axes}
}

// elements returns how many elements axes have together.
func (s *einsumSum) elements(axes []rune) int64 {
	shape := make([]int64, len(axes))
	for i, a := range axes {
		shape[i] = s.size[a]
	}
	n := graph.TensorType{Shape: shape}.Elements()
	if n < 0 {
		s.c.Fail("the product of %d axes has 2^40 elements or more", len(axes))
	}
	return n
}

// arrange returns o with its axes in the given order.
func (s *einsumSum) arrange(o indexed, axes []rune) *lower.Value {
	perm := make([]int64, len(axes))
	for i, a := range axes {
		perm[i] = int64(slices.Index(o.axes, a))
	}
	return s.transpose(o.v, perm)
}

func (s *einsumSum) transpose(v *lower.Value, perm []int64) *lower.Value {
	for i, p := range perm {
		if p != int64(i) {
			return s.c.Emit(&graph.Transpose{Perm: perm}, v)
		}
	}
	return v
}

func (s *einsumSum) reshape(v *lower.Value, shape []int64) *lower.Value {
	if slices.Equal(v.Type.Shape, shape) {
		return v
	}
	return s.c.Emit(&graph.Reshape{Shape: shape}, v)
}
