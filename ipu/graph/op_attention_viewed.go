package graph

import (
	"cmp"
	"fmt"
	"slices"
)

// ViewedAttention computes softmax(Scale·Q·Kᵀ + bias)·V like [Attention], for
// a grid of heads whose elements it reads where they lie, in tensors of any
// shape: all of Q, K and V may be parts of the result of one product. It is
// what the pass "attention" makes of primitives.
//
// Operands: Q, K, V, bias or left out. The grid has axes of the sizes in Heads;
// for every head there are Rows×Size elements of Q, Cols×Size of K, Cols×Width
// of V, and Rows×Cols of bias. Attributes of the operands' names say where: the
// number of the first element, then how many elements the next one is away
// along each axis of the grid, down and across; that may be 0. Neighbours
// across V follow each other. Y says so of the result, whose shape is Shape and
// every element of which is one of Y's.
//
// If Causal is set, row i looks at columns up to i+Past only. Where everything
// to look at is -Inf the probabilities are NaN, as those of [Softmax] are; with
// NoNaN, whatever made them NaN, they are 0 then.
type ViewedAttention struct {
	Heads                   []int64
	Rows, Cols, Size, Width int64
	Q, K, V, Bias, Y        []int64
	Shape                   []int64
	Scale                   float64
	Causal, NoNaN           bool
	Past                    int64
}

var wideFloats = typeSet{"f32 or f64", []DType{F32, F64}}

// Kind returns "ViewedAttention".
func (*ViewedAttention) Kind() string { return "ViewedAttention" }

// Infer implements [Op].
func (o *ViewedAttention) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "Q", "K", "V", "bias?")
	if err != nil {
		return nil, err
	}
	q, bias := in[0], in[3]
	if err := firstError(wideFloats.want("Q", q), sameType("K", in[1], q), sameType("V", in[2], q)); err != nil {
		return nil, err
	}
	scores := satMul(o.Rows, o.Cols)
	for _, n := range append([]int64{o.Rows, o.Cols, o.Size, o.Width}, o.Heads...) {
		if n < 1 || n >= MaxTensorBytes {
			return nil, fmt.Errorf("a size of heads is %d, want more than 0 and less than 2^40", n)
		}
	}
	for _, n := range o.Heads {
		scores = satMul(scores, n)
	}
	if len(o.Heads) > MaxRank || scores >= MaxTensorBytes {
		return nil, fmt.Errorf("there are %d axes of heads with %d scores, want up to %d and less than 2^40", len(o.Heads), scores, MaxRank)
	}
	if o.Past < 0 || o.Past >= MaxTensorBytes {
		return nil, fmt.Errorf("attribute Past is %d, want 0 or more and less than 2^40", o.Past)
	}
	err = firstError(o.within("Q", q, o.Q, o.Rows, o.Size), o.within("K", in[1], o.K, o.Cols, o.Size), o.within("V", in[2], o.V, o.Cols, o.Width))
	if err != nil {
		return nil, err
	}
	if present(bias) {
		if err := firstError(sameType("bias", bias, q), o.within("bias", bias, o.Bias, o.Rows, o.Cols)); err != nil {
			return nil, err
		}
	} else if len(o.Bias) > 0 {
		return nil, fmt.Errorf("attribute Bias has %d numbers, want none without a bias", len(o.Bias))
	}
	y := TensorType{q.DType, o.Shape}
	if err := y.Check(); err != nil {
		return nil, fmt.Errorf("attribute Shape: %w", err)
	}
	if err := o.within("Y", y, o.Y, o.Rows, o.Width); err != nil {
		return nil, err
	}
	if o.Width > 1 && (o.V[len(o.V)-1] != 1 || o.Y[len(o.Y)-1] != 1) {
		return nil, fmt.Errorf("neighbours across V and Y are %d and %d elements away, want 1", o.V[len(o.V)-1], o.Y[len(o.Y)-1])
	}
	return results(y)
}

// within checks that a view's elements are some of a tensor's; those of Y are
// to be all of them, each once.
func (o *ViewedAttention) within(name string, t TensorType, view []int64, down, across int64) error {
	if len(view) != len(o.Heads)+3 {
		return fmt.Errorf("attribute %s has %d numbers, want %d", name, len(view), len(o.Heads)+3)
	}
	type axis struct{ size, step int64 }
	axes := []axis{{down, view[len(view)-2]}, {across, view[len(view)-1]}}
	for i, n := range o.Heads {
		axes = append(axes, axis{n, view[1+i]})
	}
	for _, n := range view {
		if n < 0 || n >= MaxTensorBytes {
			return fmt.Errorf("attribute %s is %v, want numbers of 0 or more and less than 2^40", name, view)
		}
	}
	last := view[0]
	for _, a := range axes {
		last = satAdd(last, satMul(a.size-1, a.step))
	}
	if last >= t.Elements() {
		return fmt.Errorf("attribute %s reaches element %d of %v", name, last, t)
	}
	if name != "Y" {
		return nil
	}
	slices.SortFunc(axes, func(a, b axis) int { return cmp.Compare(a.step, b.step) })
	n := int64(1)
	for _, a := range axes {
		if a.size > 1 && a.step != n {
			return fmt.Errorf("attribute Y is %v, which leaves out elements of %v", view, t)
		}
		n *= a.size
	}
	if n != t.Elements() {
		return fmt.Errorf("attribute Y is %v, which leaves out elements of %v", view, t)
	}
	return nil
}
