package graph

import (
	"fmt"
	"slices"
)

// Quantize converts x (operand 0: F16, BF16, F32 or I32) to the integer type
// To: x / scale, rounded to nearest even, plus the zero point, limited to To's
// range. NaN gives the least number. The scale (operand 1: F16, BF16 or F32)
// and the zero point (operand 2, of type To; left out: 0) have the same shape:
// one element for all of x, or one for each place on Axis, or, with Block
// greater than 0, the shape of x with one element for every Block places on
// Axis. The quotient is rounded to Precision before: F16, BF16 or F32.
type Quantize struct {
	Axis, Block int64
	To          DType
	Precision   DType
}

// Dequantize converts the integers x (operand 0) to To (F16, BF16 or F32): x
// less the zero point (operand 2, of x's type; left out: 0) times the scale
// (operand 1). Scale and zero point are as in [Quantize].
type Dequantize struct {
	Axis, Block int64
	To          DType
}

var (
	quantized   = typeSet{"i8, u8, i16, u16, i4, u4, i2 or u2", []DType{I8, U8, I16, U16, I4, U4, I2, U2}}
	realNumbers = typeSet{"f16, bf16, f32 or i32", []DType{F16, BF16, F32, I32}}
	scales      = typeSet{"f16, bf16 or f32", []DType{F16, BF16, F32}}
	storedInts  = typeSet{"i8, u8, i16, u16, i32, i4, u4, i2 or u2", append([]DType{I32}, quantized.types...)}
)

// Kind returns "Quantize".
func (*Quantize) Kind() string { return "Quantize" }

// Infer implements [Op].
func (o *Quantize) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "scale", "zero point?")
	if err != nil {
		return nil, err
	}
	if !slices.Contains(scales.types, o.Precision) {
		return nil, fmt.Errorf("attribute Precision is %v, want %s", o.Precision, scales.words)
	}
	out := TensorType{o.To, in[0].Shape}
	err = firstError(realNumbers.want("x", in[0]), quantized.want("the result", out), sameType("zero point", in[2], out),
		checkScale(in, o.Axis, o.Block))
	if err != nil {
		return nil, err
	}
	return results(out)
}

// Kind returns "Dequantize".
func (*Dequantize) Kind() string { return "Dequantize" }

// Infer implements [Op].
func (o *Dequantize) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "scale", "zero point?")
	if err != nil {
		return nil, err
	}
	out := TensorType{o.To, in[0].Shape}
	err = firstError(storedInts.want("x", in[0]), scales.want("the result", out), sameType("zero point", in[2], in[0]),
		checkScale(in, o.Axis, o.Block))
	if err != nil {
		return nil, err
	}
	return results(out)
}

// checkScale checks the scale and the zero point of x.
func checkScale(in []TensorType, axis, block int64) error {
	x, scale, zero := in[0], in[1], in[2]
	if err := scales.want("scale", scale); err != nil {
		return err
	}
	if present(zero) && !slices.Equal(zero.Shape, scale.Shape) {
		return fmt.Errorf("zero point is %v, want the shape of scale, %v", zero, scale)
	}
	if block == 0 && scale.Elements() == 1 && scale.Rank() <= 1 {
		return nil
	}
	if err := wantAxis(axis, "x", x); err != nil {
		return err
	}
	switch {
	case block < 0 || block >= MaxTensorBytes:
		return fmt.Errorf("attribute Block is %d, want 0 or more and less than 2^40", block)
	case block == 0:
		return wantShape("scale", scale, x.Shape[axis])
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = (shape[axis] + block - 1) / block
	return wantShape("scale", scale, shape...)
}
