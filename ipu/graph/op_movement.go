package graph

import (
	"fmt"
	"slices"
)

// Reshape is x in another shape with as many elements. It moves no data.
type Reshape struct{ Shape []int64 }

// Transpose permutes axes: result axis i is operand axis Perm[i].
type Transpose struct{ Perm []int64 }

// Concat joins its operands along Axis (0 ≤ Axis < rank).
type Concat struct{ Axis int64 }

// Slice takes, on every axis i, Size[i] elements starting at Start[i] with
// stride Step[i] (not 0, may be negative). All three have the operand's rank
// and every index lies inside the operand; where Size[i] is 0, Start[i] is
// between 0 and the axis' size.
type Slice struct{ Start, Size, Step []int64 }

// PadMode is what [Pad] fills with.
type PadMode string

// The padding modes of ONNX's Pad.
const (
	PadConstant PadMode = "constant"
	PadReflect  PadMode = "reflect"
	PadEdge     PadMode = "edge"
	PadWrap     PadMode = "wrap"
)

// Pad adds Before[i] and After[i] elements on axis i; negative numbers crop.
// Operands: x and, for PadConstant, the scalar to fill with (left out: zero).
type Pad struct {
	Before, After []int64
	Mode          PadMode
}

// Gather picks slices of x (operand 0) along Axis by index (operand 1, I32 or
// I64; negative indices count from the end; others out of range end the run
// with an error).
type Gather struct{ Axis int64 }

// Expand broadcasts x to Shape by numpy's rules, one way.
type Expand struct{ Shape []int64 }

// Kind returns "Reshape".
func (*Reshape) Kind() string { return "Reshape" }

// Infer implements [Op].
func (o *Reshape) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	out, err := results(TensorType{in[0].DType, o.Shape})
	if err != nil {
		return nil, err
	}
	if have, want := in[0].Elements(), out[0].Elements(); have != want {
		return nil, fmt.Errorf("x is %v of %d elements, want %d for shape %s", in[0], have, want, ShapeString(o.Shape))
	}
	return out, nil
}

// Kind returns "Transpose".
func (*Transpose) Kind() string { return "Transpose" }

// Infer implements [Op].
func (o *Transpose) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if len(o.Perm) != x.Rank() {
		return nil, fmt.Errorf("attribute Perm has %d numbers, want one for each of x's %d axes", len(o.Perm), x.Rank())
	}
	var seen [MaxRank]bool
	shape := make([]int64, x.Rank())
	for i, p := range o.Perm {
		if p < 0 || p >= int64(x.Rank()) || seen[p] {
			return nil, fmt.Errorf("attribute Perm is %s, want each axis of %v once", ShapeString(o.Perm), x)
		}
		seen[p] = true
		shape[i] = x.Shape[p]
	}
	return results(TensorType{x.DType, shape})
}

// Kind returns "Concat".
func (*Concat) Kind() string { return "Concat" }

// Infer implements [Op].
func (o *Concat) Infer(in []TensorType) ([]TensorType, error) {
	if len(in) == 0 {
		return nil, fmt.Errorf("no operands, want at least 1")
	}
	for i, t := range in {
		if !present(t) {
			return nil, fmt.Errorf("operand %d is left out, but it is needed", i)
		}
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
	}
	first := in[0]
	if err := wantAxis(o.Axis, "operand 0", first); err != nil {
		return nil, err
	}
	shape := slices.Clone(first.Shape)
	for i, t := range in[1:] {
		same := t.DType == first.DType && t.Rank() == first.Rank()
		for a := 0; same && a < t.Rank(); a++ {
			same = int64(a) == o.Axis || t.Shape[a] == first.Shape[a]
		}
		if !same {
			return nil, fmt.Errorf("operand %d is %v, want the type of operand 0, %v, except on axis %d", i+1, t, first, o.Axis)
		}
		shape[o.Axis] = satAdd(shape[o.Axis], t.Shape[o.Axis])
	}
	return results(TensorType{first.DType, shape})
}

// Kind returns "Slice".
func (*Slice) Kind() string { return "Slice" }

// Infer implements [Op].
func (o *Slice) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	rank := x.Rank()
	if len(o.Start) != rank || len(o.Size) != rank || len(o.Step) != rank {
		return nil, fmt.Errorf("attributes Start, Size and Step have %d, %d and %d numbers, want one for each of x's %d axes",
			len(o.Start), len(o.Size), len(o.Step), rank)
	}
	for i, dim := range x.Shape {
		if !sliceInside(o.Start[i], o.Size[i], o.Step[i], dim) {
			return nil, fmt.Errorf("axis %d: %d elements from %d in steps of %d do not lie inside x of type %v",
				i, o.Size[i], o.Start[i], o.Step[i], x)
		}
	}
	return results(TensorType{x.DType, o.Size})
}

// sliceInside reports whether size indices from start in the given steps lie
// in an axis of dim elements.
func sliceInside(start, size, step, dim int64) bool {
	switch {
	case step == 0 || size < 0 || start < 0:
		return false
	case size == 0:
		return start <= dim
	case start >= dim:
		return false
	case size == 1:
		return true
	case step > 0:
		return step <= (dim-1-start)/(size-1)
	default:
		return step >= -(start / (size - 1))
	}
}

// Kind returns "Pad".
func (*Pad) Kind() string { return "Pad" }

// Infer implements [Op].
func (o *Pad) Infer(in []TensorType) ([]TensorType, error) {
	names := []string{"x", "value?"}
	switch o.Mode {
	case PadConstant:
	case PadReflect, PadEdge, PadWrap:
		names = names[:1]
	default:
		return nil, fmt.Errorf("attribute Mode is %q, want constant, reflect, edge or wrap", string(o.Mode))
	}
	in, err := operands(in, names...)
	if err != nil {
		return nil, err
	}
	x := in[0]
	err = firstError(perAxis("Before", o.Before, x.Rank(), 1-MaxTensorBytes), perAxis("After", o.After, x.Rank(), 1-MaxTensorBytes))
	if len(in) > 1 {
		err = firstError(err, sameType("value", in[1], x), wantOne("value", in[1]))
	}
	if err != nil {
		return nil, err
	}
	shape := make([]int64, x.Rank())
	for i, dim := range x.Shape {
		left := dim + min(o.Before[i], 0) + min(o.After[i], 0)
		grow := max(o.Before[i], 0) + max(o.After[i], 0)
		if left < 0 {
			return nil, fmt.Errorf("axis %d: cropping %d and %d elements is more than x of type %v has",
				i, max(-o.Before[i], 0), max(-o.After[i], 0), x)
		}
		if left == 0 && grow > 0 && o.Mode != PadConstant {
			return nil, fmt.Errorf("axis %d: there is nothing in x of type %v to fill %d elements from", i, x, grow)
		}
		shape[i] = left + grow
	}
	return results(TensorType{x.DType, shape})
}

// Kind returns "Gather".
func (*Gather) Kind() string { return "Gather" }

// Infer implements [Op].
func (o *Gather) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices")
	if err != nil {
		return nil, err
	}
	x, idx := in[0], in[1]
	if err := firstError(indices.want("indices", idx), wantAxis(o.Axis, "x", x)); err != nil {
		return nil, err
	}
	shape := slices.Concat(x.Shape[:o.Axis], idx.Shape, x.Shape[o.Axis+1:])
	return results(TensorType{x.DType, shape})
}

// Kind returns "Expand".
func (*Expand) Kind() string { return "Expand" }

// Infer implements [Op].
func (o *Expand) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if !BroadcastsTo(in[0].Shape, o.Shape) {
		return nil, fmt.Errorf("x is %v, want a shape that broadcasts to %s", in[0], ShapeString(o.Shape))
	}
	return results(TensorType{in[0].DType, o.Shape})
}

// Field is a tensor of type To and of Shape whose elements stand, row-major, in the bytes of x from
// Offset on. It is how a transfer that has several inputs side by side is taken apart: no data
// is moved where an engine can read x in place.
type Field struct {
	Handle string // stream handle that the tensor has where it is an input of its own
	Offset int64  // bytes; a multiple of the size of an element
	To     DType
	Shape  []int64
}

// Kind returns "Field".
func (*Field) Kind() string { return "Field" }

// Infer implements [Op].
func (o *Field) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	out, err := results(TensorType{o.To, o.Shape})
	if err != nil {
		return nil, err
	}
	size, have := int64(o.To.Size()), in[0].Bytes()
	switch {
	case o.Handle == "":
		return nil, fmt.Errorf("attribute Handle is empty, want the stream handle of the field")
	case o.Offset < 0 || o.Offset%size != 0:
		return nil, fmt.Errorf("attribute Offset is %d, want a multiple of the %d bytes of an element of %v", o.Offset, size, o.To)
	case o.Offset > have || out[0].Bytes() > have-o.Offset:
		return nil, fmt.Errorf("%v from byte %d on ends behind x, %v of %d bytes", out[0], o.Offset, in[0], have)
	}
	return out, nil
}
