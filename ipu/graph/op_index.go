package graph

import (
	"fmt"
	"slices"
)

// GatherElements picks single elements of x (operand 0): the result has the
// shape of the indices (operand 1, I32 or I64), and its element at c is that
// of x at c with coordinate Axis replaced by the index there. Negative indices
// count from the end; others out of range end the run with an error.
type GatherElements struct{ Axis int64 }

// GatherND picks slices of x (operand 0). The first BatchDims axes of x and of
// the indices (operand 1, I32 or I64) correspond; the last axis of the indices
// holds coordinates of the following axes of x. The result has the indices'
// shape without its last axis, then the axes of x that no coordinate names.
type GatherND struct{ BatchDims int64 }

// ScatterFn says what becomes of an element that is written.
type ScatterFn string

// The functions of ONNX's Scatter family.
const (
	ScatterNone ScatterFn = "none" // it is replaced, by the last update where several name it
	ScatterAdd  ScatterFn = "add"
	ScatterMul  ScatterFn = "mul"
	ScatterMax  ScatterFn = "max"
	ScatterMin  ScatterFn = "min"
)

// ScatterElements is x (operand 0) with single elements changed. Indices
// (operand 1, I32 or I64) and updates (operand 2) have the same shape; the
// update at c goes to x at c with coordinate Axis replaced by the index there.
type ScatterElements struct {
	Axis int64
	Fn   ScatterFn
}

// ScatterND is x (operand 0) with slices changed. The last axis of the indices
// (operand 1, I32 or I64) holds coordinates of the first axes of x; updates
// (operand 2) has the indices' other axes, then the axes of x that no
// coordinate names.
type ScatterND struct{ Fn ScatterFn }

// OneHot gives the indices (operand 0, I32 or I64) a new axis Axis of Depth
// elements, all the first of the two values (operand 1) but the one that the
// index names, which is the second. An index from -Depth to -1 counts from the
// end; one out of range names none.
type OneHot struct{ Axis, Depth int64 }

// Kind returns "GatherElements".
func (*GatherElements) Kind() string { return "GatherElements" }

// Infer implements [Op].
func (o *GatherElements) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices")
	if err != nil {
		return nil, err
	}
	if err := elementwiseIndices(in[0], in[1], o.Axis); err != nil {
		return nil, err
	}
	return results(TensorType{in[0].DType, in[1].Shape})
}

// elementwiseIndices checks indices of single elements of x along axis.
func elementwiseIndices(x, idx TensorType, axis int64) error {
	if err := firstError(indices.want("indices", idx), wantAxis(axis, "x", x)); err != nil {
		return err
	}
	fits := idx.Rank() == x.Rank()
	for i := 0; fits && i < x.Rank(); i++ {
		fits = int64(i) == axis || idx.Shape[i] <= x.Shape[i]
	}
	if !fits {
		return fmt.Errorf("indices is %v, want the rank of x of type %v and no larger axis but axis %d", idx, x, axis)
	}
	return nil
}

// Kind returns "GatherND".
func (*GatherND) Kind() string { return "GatherND" }

// Infer implements [Op].
func (o *GatherND) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices")
	if err != nil {
		return nil, err
	}
	x, idx := in[0], in[1]
	if err := firstError(indices.want("indices", idx), wantRank("indices", idx, 1)); err != nil {
		return nil, err
	}
	last := idx.Rank() - 1
	b, k := o.BatchDims, idx.Shape[last]
	if b < 0 || b > int64(last) || b > int64(x.Rank()) || !slices.Equal(x.Shape[:b], idx.Shape[:b]) {
		return nil, fmt.Errorf("attribute BatchDims is %d, want a number of axes that x of type %v and indices of type %v have in common", b, x, idx)
	}
	if k > int64(x.Rank())-b {
		return nil, fmt.Errorf("indices is %v, want at most %d coordinates on its last axis, as x is %v and has %d batch axes",
			idx, int64(x.Rank())-b, x, b)
	}
	return results(TensorType{x.DType, slices.Concat(idx.Shape[:last], x.Shape[b+k:])})
}

// check reports what makes f unusable for elements of x's type.
func (f ScatterFn) check(x TensorType) error {
	switch f {
	case ScatterNone:
		return nil
	case ScatterAdd, ScatterMul, ScatterMax, ScatterMin:
		return numeric.want("x", x)
	}
	return fmt.Errorf("attribute Fn is %q, want none, add, mul, max or min", string(f))
}

// Kind returns "ScatterElements".
func (*ScatterElements) Kind() string { return "ScatterElements" }

// Infer implements [Op].
func (o *ScatterElements) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices", "updates")
	if err != nil {
		return nil, err
	}
	x, idx, updates := in[0], in[1], in[2]
	err = firstError(elementwiseIndices(x, idx, o.Axis), o.Fn.check(x),
		sameType("updates", updates, x), wantShape("updates", updates, idx.Shape...))
	if err != nil {
		return nil, err
	}
	return results(x)
}

// Kind returns "ScatterND".
func (*ScatterND) Kind() string { return "ScatterND" }

// Infer implements [Op].
func (o *ScatterND) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices", "updates")
	if err != nil {
		return nil, err
	}
	x, idx, updates := in[0], in[1], in[2]
	err = firstError(indices.want("indices", idx), wantRank("indices", idx, 1), o.Fn.check(x), sameType("updates", updates, x))
	if err != nil {
		return nil, err
	}
	last := idx.Rank() - 1
	k := idx.Shape[last]
	if k > int64(x.Rank()) {
		return nil, fmt.Errorf("indices is %v, want at most %d coordinates on its last axis, as x is %v", idx, x.Rank(), x)
	}
	if err := wantShape("updates", updates, slices.Concat(idx.Shape[:last], x.Shape[k:])...); err != nil {
		return nil, err
	}
	return results(x)
}

// Kind returns "OneHot".
func (*OneHot) Kind() string { return "OneHot" }

// Infer implements [Op].
func (o *OneHot) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "indices", "values")
	if err != nil {
		return nil, err
	}
	idx, values := in[0], in[1]
	if err := firstError(indices.want("indices", idx), wantShape("values", values, 2)); err != nil {
		return nil, err
	}
	if o.Axis < 0 || o.Axis > int64(idx.Rank()) {
		return nil, fmt.Errorf("attribute Axis is %d, want 0 to %d for indices of type %v", o.Axis, idx.Rank(), idx)
	}
	if o.Depth < 0 {
		return nil, fmt.Errorf("attribute Depth is %d, want 0 or more", o.Depth)
	}
	return results(TensorType{values.DType, slices.Insert(slices.Clone(idx.Shape), int(o.Axis), o.Depth)})
}
