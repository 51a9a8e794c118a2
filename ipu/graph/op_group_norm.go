package graph

import (
	"fmt"
	"math"
)

// GroupNorm normalises x [N,C,…] over each of Groups groups of neighbouring
// channels of each sample, then multiplies by scale [C] and adds bias [C].
// Results: y, and on demand mean and inverse standard deviation (F32,
// [N,Groups]). Statistics are computed in F32 (F64 for F64 operands).
type GroupNorm struct {
	Groups  int64
	Epsilon float64
}

// LRN is ONNX's LRN over the channels of x [N,C,…]:
// x / (Bias + Alpha/Size·Σ x²)^Beta, the sum being over Size channels around
// the element's own, one more of them after it than before if Size is even.
type LRN struct {
	Size              int64
	Alpha, Beta, Bias float64
}

// Det is the determinant of the matrices in the last two axes.
type Det struct{}

// Kind returns "GroupNorm".
func (*GroupNorm) Kind() string { return "GroupNorm" }

// Infer implements [Op].
func (o *GroupNorm) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "scale", "bias")
	if err != nil {
		return nil, err
	}
	x, scale, bias := in[0], in[1], in[2]
	if err := firstError(floats.want("x", x), wantRank("x", x, 2)); err != nil {
		return nil, err
	}
	c := x.Shape[1]
	if o.Groups < 1 || o.Groups >= MaxTensorBytes || c%o.Groups != 0 {
		return nil, fmt.Errorf("attribute Groups is %d, want a number that divides the %d channels of x", o.Groups, c)
	}
	err = firstError(sameType("scale", scale, x), wantShape("scale", scale, c), sameType("bias", bias, x), wantShape("bias", bias, c))
	if err != nil {
		return nil, err
	}
	stats := TensorType{F32, []int64{x.Shape[0], o.Groups}}
	return results(x, stats, stats)
}

// Kind returns "LRN".
func (*LRN) Kind() string { return "LRN" }

// Infer implements [Op].
func (o *LRN) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := firstError(floats.want("x", in[0]), wantRank("x", in[0], 2)); err != nil {
		return nil, err
	}
	if o.Size < 1 || o.Size >= MaxTensorBytes {
		return nil, fmt.Errorf("attribute Size is %d, want at least 1 and less than 2^40", o.Size)
	}
	if math.IsNaN(o.Alpha + o.Beta + o.Bias) {
		return nil, fmt.Errorf("attributes Alpha, Beta and Bias are %v, %v and %v, want numbers", o.Alpha, o.Beta, o.Bias)
	}
	return results(in[0])
}

// Kind returns "Det".
func (*Det) Kind() string { return "Det" }

// Infer implements [Op].
func (*Det) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(floats.want("x", x), wantRank("x", x, 2)); err != nil {
		return nil, err
	}
	n := x.Rank()
	if x.Shape[n-1] != x.Shape[n-2] {
		return nil, fmt.Errorf("x is %v, want square matrices in the last two axes", x)
	}
	return results(TensorType{x.DType, x.Shape[:n-2]})
}
