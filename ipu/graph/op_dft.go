package graph

import (
	"fmt"
	"slices"
)

// MaxDFT is the greatest length of a [DFT].
const MaxDFT = 1 << 24

// DFT is the discrete Fourier transform along Axis. x's last axis, which is
// not Axis, holds the real part and, if it has two elements, the imaginary one.
// The sequences are cut off or continued with zeros to Length elements.
//
// Results: y, whose last axis holds real and imaginary part of every
// frequency, of the first Length/2+1 only if OneSided is set. If Inverse is
// set, x holds frequencies and y the sequence, divided by Length; OneSided then
// says that x holds the first Length/2+1 frequencies of a real sequence, and y
// has no imaginary part.
type DFT struct {
	Axis, Length      int64
	Inverse, OneSided bool
}

// Kind returns "DFT".
func (*DFT) Kind() string { return "DFT" }

// Infer implements [Op].
func (o *DFT) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(floats.want("x", x), wantRank("x", x, 2), wantAxis(o.Axis, "x", x)); err != nil {
		return nil, err
	}
	last := len(x.Shape) - 1
	if x.Shape[last] != 1 && x.Shape[last] != 2 || o.Axis == int64(last) {
		return nil, fmt.Errorf("x is %v with axis %d, want a last dimension of 1 or 2 and another axis than that", x, o.Axis)
	}
	if o.Length < 1 || o.Length > MaxDFT {
		return nil, fmt.Errorf("attribute Length is %d, want 1 to %d", o.Length, MaxDFT)
	}
	shape := slices.Clone(x.Shape)
	shape[o.Axis], shape[last] = o.Length, 2
	switch {
	case o.OneSided && o.Inverse:
		shape[last] = 1
	case o.OneSided:
		shape[o.Axis] = o.Length/2 + 1
	}
	return results(TensorType{x.DType, shape})
}
