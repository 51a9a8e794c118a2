package graph

import "fmt"

// ReduceFn names a reduction.
type ReduceFn string

// The reductions of ONNX's Reduce family.
const (
	ReduceSum       ReduceFn = "sum"
	ReduceMean      ReduceFn = "mean"
	ReduceMax       ReduceFn = "max"
	ReduceMin       ReduceFn = "min"
	ReduceProd      ReduceFn = "prod"
	ReduceL1        ReduceFn = "l1"
	ReduceL2        ReduceFn = "l2"
	ReduceLogSum    ReduceFn = "log_sum"
	ReduceLogSumExp ReduceFn = "log_sum_exp"
	ReduceSumSquare ReduceFn = "sum_square"
)

// Reduce reduces over Axes (ascending, distinct; empty reduces nothing and
// applies Fn to single elements). KeepDims leaves the axes as 1.
type Reduce struct {
	Fn       ReduceFn
	Axes     []int64
	KeepDims bool
}

// reduceTypes says which element types each reduction computes with.
var reduceTypes = map[ReduceFn]typeSet{
	ReduceSum: numeric, ReduceMean: numeric, ReduceMax: equatable, ReduceMin: equatable, ReduceProd: numeric,
	ReduceL1: numeric, ReduceL2: numeric, ReduceLogSum: numeric, ReduceLogSumExp: numeric, ReduceSumSquare: numeric,
}

// Kind returns "Reduce".
func (*Reduce) Kind() string { return "Reduce" }

// Infer implements [Op].
func (o *Reduce) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	types, ok := reduceTypes[o.Fn]
	if !ok {
		return nil, fmt.Errorf("there is no reduction %q", string(o.Fn))
	}
	if err := types.want("x", x); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Fn, err)
	}
	var reduced [MaxRank]bool
	last := int64(-1)
	for _, a := range o.Axes {
		if a <= last || a >= int64(x.Rank()) {
			return nil, fmt.Errorf("%s: Axes is %s, want ascending axes of x of type %v", o.Fn, ShapeString(o.Axes), x)
		}
		last = a
		reduced[a] = true
	}
	shape := make([]int64, 0, x.Rank())
	for i, d := range x.Shape {
		switch {
		case !reduced[i]:
			shape = append(shape, d)
		case o.KeepDims:
			shape = append(shape, 1)
		}
	}
	return results(TensorType{x.DType, shape})
}
