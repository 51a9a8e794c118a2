package graph

import (
	"fmt"
	"math"
	"slices"
)

// IntegerMatMul is the product of matrices of bytes, I8 or U8, with the rules
// of [MatMul]. Operands:
//
//	0 a
//	1 b
//	2 a's zero point, one element; left out: 0
//	3 b's zero point, one element or one for each column; left out: 0
//	4 bias: I32 [N] or left out
//	5 scale: F32, one element or [N]; left out if and only if To is I32
//	6 shift: F32, one element or [N], or left out
//	7 zero point of the result, one element of type To; left out: 0
//
// The products of what a and b are above their zero points are added up with
// the bias, exactly modulo 2^32. If To is I32 that is the result. Otherwise
// the sum becomes a float32, is multiplied by the scale and then added to the
// shift, with a rounding each, and is kept within Low and High if Bounded is
// set. If To is F32 that is the result; I8 and U8 are rounded to nearest even,
// added to the zero point and limited to the type's range; NaN gives the least
// number.
type IntegerMatMul struct {
	To        DType
	Bounded   bool
	Low, High float64
}

// IntegerConv is the convolution of bytes, I8 or U8, over one or two spatial
// axes, with the geometry of [Conv]. What lies outside x counts as its zero
// point. Operands and results are those of [IntegerMatMul], with x [N,C,…] and
// w [M,C/Group,…] for a and b, and output channels for columns.
type IntegerConv struct {
	Strides, Dilations []int64
	PadsBegin, PadsEnd []int64
	Group              int64
	To                 DType
	Bounded            bool
	Low, High          float64
}

var (
	bytesOnly    = typeSet{"i8 or u8", []DType{I8, U8}}
	integerSums  = typeSet{"i32, f32, i8 or u8", []DType{I32, F32, I8, U8}}
	integerNames = []string{"a's zero point?", "b's zero point?", "bias?", "scale?", "shift?", "zero point of the result?"}
)

// Kind returns "IntegerMatMul".
func (*IntegerMatMul) Kind() string { return "IntegerMatMul" }

// Infer implements [Op].
func (o *IntegerMatMul) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, append([]string{"a", "b"}, integerNames...)...)
	if err != nil {
		return nil, err
	}
	if err := firstError(bytesOnly.want("a", in[0]), bytesOnly.want("b", in[1])); err != nil {
		return nil, err
	}
	y, err := new(MatMul).Infer([]TensorType{{F32, in[0].Shape}, {F32, in[1].Shape}})
	if err != nil {
		return nil, err
	}
	columns := int64(1)
	if b := in[1]; b.Rank() > 1 {
		columns = b.Shape[b.Rank()-1]
	}
	return inferInteger(in, y[0].Shape, columns, o.To, o.Bounded, o.Low, o.High)
}

// Kind returns "IntegerConv".
func (*IntegerConv) Kind() string { return "IntegerConv" }

// Infer implements [Op].
func (o *IntegerConv) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, append([]string{"x", "w"}, integerNames...)...)
	if err != nil {
		return nil, err
	}
	if err := firstError(bytesOnly.want("x", in[0]), bytesOnly.want("w", in[1])); err != nil {
		return nil, err
	}
	if r := in[0].Rank(); r < 3 || r > 4 {
		return nil, fmt.Errorf("x is %v, want 3 or 4 dimensions (batch, channels and 1 or 2 spatial axes)", in[0])
	}
	y, err := o.Conv().Infer([]TensorType{{F32, in[0].Shape}, {F32, in[1].Shape}})
	if err != nil {
		return nil, err
	}
	return inferInteger(in, y[0].Shape, in[1].Shape[0], o.To, o.Bounded, o.Low, o.High)
}

// Conv returns the convolution of floats with this geometry.
func (o *IntegerConv) Conv() *Conv {
	return &Conv{Strides: o.Strides, Dilations: o.Dilations, PadsBegin: o.PadsBegin, PadsEnd: o.PadsEnd, Group: o.Group}
}

// inferInteger checks what the products of bytes share.
func inferInteger(in []TensorType, shape []int64, columns int64, to DType, bounded bool, low, high float64) ([]TensorType, error) {
	out := TensorType{to, shape}
	perColumn := func(name string, t TensorType, d DType, many bool) error {
		switch {
		case !present(t):
			return nil
		case t.DType != d:
			return fmt.Errorf("%s is %v, want elements of type %v", name, t, d)
		case t.Rank() <= 1 && t.Elements() == 1, many && slices.Equal(t.Shape, []int64{columns}):
			return nil
		case many:
			return fmt.Errorf("%s is %v, want one element or %d", name, t, columns)
		}
		return fmt.Errorf("%s is %v, want one element", name, t)
	}
	if err := firstError(integerSums.want("the result", out), perColumn("zero point of the first operand", in[2], in[0].DType, false),
		perColumn("zero point of the second operand", in[3], in[1].DType, true), perColumn("scale", in[5], F32, true),
		perColumn("shift", in[6], F32, true), perColumn("zero point of the result", in[7], to, false)); err != nil {
		return nil, err
	}
	if b := in[4]; present(b) && (b.DType != I32 || !slices.Equal(b.Shape, []int64{columns})) {
		return nil, fmt.Errorf("bias is %v, want %v", b, TensorType{I32, []int64{columns}})
	}
	switch {
	case to == I32 && (present(in[5]) || present(in[6]) || present(in[7]) || bounded):
		return nil, fmt.Errorf("attribute To is %v, want no scale, shift, zero point and bounds of the result then", to)
	case to != I32 && !present(in[5]):
		return nil, fmt.Errorf("attribute To is %v, want a scale", to)
	case to == F32 && present(in[7]):
		return nil, fmt.Errorf("attribute To is %v, want no zero point of the result", to)
	case math.IsNaN(low) || math.IsNaN(high):
		return nil, fmt.Errorf("attributes Low and High are %v and %v, want numbers", low, high)
	}
	return results(out)
}
