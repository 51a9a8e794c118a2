package graph

import (
	"fmt"
	"math"
	"slices"
)

// LpPool is ONNX's LpPool over any number of spatial axes of x [N,C,…]: the
// P-norm of every window, padding being zero.
type LpPool struct {
	Kernel, Strides, Dilations []int64
	PadsBegin, PadsEnd         []int64
	Ceil                       bool
	P                          float64 // above 0
}

// MaxUnpool is ONNX's MaxUnpool: a tensor of the given Shape, which begins
// with x's first two dimensions, that is zero but where the second operand
// (I64, x's shape) says that an element of x belongs, counted in row-major
// order over all of the result. An index out of range ends the run with an
// error; of elements with the same index the last one stays.
type MaxUnpool struct{ Shape []int64 }

// Kind returns "LpPool".
func (*LpPool) Kind() string { return "LpPool" }

// Infer implements [Op].
func (o *LpPool) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := floats.want("x", in[0]); err != nil {
		return nil, err
	}
	if !(o.P > 0) || math.IsInf(o.P, 0) {
		return nil, fmt.Errorf("attribute P is %v, want a finite number above 0", o.P)
	}
	y, err := (&windows{o.Kernel, o.Strides, o.Dilations, o.PadsBegin, o.PadsEnd, o.Ceil}).pool(in[0])
	if err != nil {
		return nil, err
	}
	return results(y)
}

// Kind returns "MaxUnpool".
func (*MaxUnpool) Kind() string { return "MaxUnpool" }

// Infer implements [Op].
func (o *MaxUnpool) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "indices")
	if err != nil {
		return nil, err
	}
	x, idx := in[0], in[1]
	if err := firstError(wantRank("x", x, 3), wantShape("indices", idx, x.Shape...)); err != nil {
		return nil, err
	}
	if idx.DType != I64 {
		return nil, fmt.Errorf("indices is %v, want elements of type i64", idx)
	}
	if len(o.Shape) != x.Rank() || !slices.Equal(o.Shape[:2], x.Shape[:2]) {
		return nil, fmt.Errorf("attribute Shape is %s, want %d dimensions and the first two of x of type %v", ShapeString(o.Shape), x.Rank(), x)
	}
	return results(TensorType{x.DType, o.Shape})
}
