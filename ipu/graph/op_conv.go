package graph

import (
	"fmt"
	"math"
)

// Conv is ONNX's Conv over 1 to 3 spatial axes. Operands: x [N,C,…],
// w [M,C/Group,…], and b [M] or left out. All attribute lists have one number
// per spatial axis. If Bounded is set the result, not of F64 then, is kept
// within Low and High as by [Clip]; an infinite one is none.
type Conv struct {
	Strides, Dilations []int64
	PadsBegin, PadsEnd []int64
	Group              int64
	Bounded            bool
	Low, High          float64
}

// Kind returns "Conv".
func (*Conv) Kind() string { return "Conv" }

// Infer implements [Op].
func (o *Conv) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "w", "b?")
	if err != nil {
		return nil, err
	}
	x, w, b := in[0], in[1], in[2]
	if err := firstError(floats.want("x", x), sameType("w", w, x), sameType("b", b, x)); err != nil {
		return nil, err
	}
	if x.Rank() < 3 || x.Rank() > 5 {
		return nil, fmt.Errorf("x is %v, want 3 to 5 dimensions (batch, channels and 1 to 3 spatial axes)", x)
	}
	if w.Rank() != x.Rank() {
		return nil, fmt.Errorf("w is %v, want %d dimensions like x of type %v", w, x.Rank(), x)
	}
	if err := wantBounds("x", x, o.Bounded, o.Low, o.High); err != nil {
		return nil, err
	}
	c, m := x.Shape[1], w.Shape[0]
	if o.Group < 1 || c%o.Group != 0 || m%o.Group != 0 {
		return nil, fmt.Errorf("attribute Group is %d, want a number that divides the %d channels of x and the %d of w", o.Group, c, m)
	}
	if w.Shape[1] != c/o.Group {
		return nil, fmt.Errorf("w is %v, want %d channels in dimension 1 (%d of x in %d groups)", w, c/o.Group, c, o.Group)
	}
	if err := wantShape("b", b, m); err != nil {
		return nil, err
	}
	spatial, err := (&windows{
		Kernel: w.Shape[2:], Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd,
	}).output(x.Shape[2:])
	if err != nil {
		return nil, err
	}
	return results(TensorType{x.DType, append([]int64{x.Shape[0], m}, spatial...)})
}

// ConvWeightGradient is the gradient of the weights of a [Conv] to y of [N,M,…]. Operands: x [N,C,…] and the gradient of
// y, of its shape. Results: gradient [M,C/Group,Kernel…], of which element [m,c,k…] is the sum over n and o… of
// dy[n,m,o…]·x[n,c',o·Strides+k·Dilations-PadsBegin…] with channel c of m's group for c', where x is zero beyond its ends; and the
// sum of dy over all axes but the second, [M], the gradient of the bias.
type ConvWeightGradient struct {
	Kernel, Strides, Dilations []int64
	PadsBegin                  []int64 // may be negative
	Group                      int64
}

// Kind returns "ConvWeightGradient".
func (*ConvWeightGradient) Kind() string { return "ConvWeightGradient" }

// Infer implements [Op].
func (o *ConvWeightGradient) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "dy")
	if err != nil {
		return nil, err
	}
	x, dy := in[0], in[1]
	if err := firstError(floats.want("x", x), sameType("dy", dy, x)); err != nil {
		return nil, err
	}
	if x.Rank() < 3 || x.Rank() > 5 || dy.Rank() != x.Rank() || dy.Shape[0] != x.Shape[0] {
		return nil, fmt.Errorf("x is %v and dy %v, want 3 to 5 dimensions (batch, channels and 1 to 3 spatial axes) of the same batch", x, dy)
	}
	n, c, m := x.Rank()-2, x.Shape[1], dy.Shape[1]
	if o.Group < 1 || c%o.Group != 0 || m%o.Group != 0 {
		return nil, fmt.Errorf("attribute Group is %d, want a number that divides the %d channels of x and the %d of dy", o.Group, c, m)
	}
	err = firstError(perAxis("Kernel", o.Kernel, n, 0), perAxis("Strides", o.Strides, n, 1), perAxis("Dilations", o.Dilations, n, 1),
		perAxis("PadsBegin", o.PadsBegin, n, 1-MaxTensorBytes))
	if err != nil {
		return nil, err
	}
	for i := range n {
		reach := satAdd(satMul(max(dy.Shape[2+i]-1, 0), o.Strides[i]), satMul(max(o.Kernel[i]-1, 0), o.Dilations[i]))
		if reach >= MostReach {
			return nil, fmt.Errorf("spatial axis %d: strides of %d and dilations of %d spread %d elements and a kernel of %d too far apart",
				i, o.Strides[i], o.Dilations[i], dy.Shape[2+i], o.Kernel[i])
		}
	}
	return results(TensorType{x.DType, append([]int64{m, c / o.Group}, o.Kernel...)}, TensorType{x.DType, []int64{m}})
}

// wantBounds checks the limits of what is computed from x, an operand of the
// given name.
func wantBounds(name string, x TensorType, bounded bool, low, high float64) error {
	if bounded && !Boundable(x.DType) {
		return fmt.Errorf("%s is %v, want elements of type f32, f16 or bf16 where attribute Bounded is set", name, x)
	}
	if math.IsNaN(low) || math.IsNaN(high) {
		return fmt.Errorf("attributes Low and High are %v and %v, want numbers", low, high)
	}
	return nil
}

// Boundable reports whether convolutions and products limit results of type d.
func Boundable(d DType) bool { return d == F32 || d == F16 || d == BF16 }
