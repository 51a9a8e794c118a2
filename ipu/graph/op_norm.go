package graph

import (
	"fmt"
	"slices"
)

// BatchNorm is inference-mode batch normalisation. Operands: x [N,C,…],
// scale, bias, mean, variance, each [C].
type BatchNorm struct{ Epsilon float64 }

// Softmax normalises along Axis; Log gives the logarithm of the result.
type Softmax struct {
	Axis int64
	Log  bool
}

// LayerNorm normalises over the axes from Axis to the last. Operands: x,
// scale, and bias or left out, broadcast one way to x. Results: y, and on
// demand mean and inverse standard deviation (F32, the normalised axes being
// 1). Statistics are computed in F32 (F64 for F64 operands).
type LayerNorm struct {
	Axis    int64
	Epsilon float64
}

// Kind returns "BatchNorm".
func (*BatchNorm) Kind() string { return "BatchNorm" }

// Infer implements [Op].
func (*BatchNorm) Infer(in []TensorType) ([]TensorType, error) {
	names := []string{"x", "scale", "bias", "mean", "variance"}
	in, err := operands(in, names...)
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(floats.want("x", x), wantRank("x", x, 2)); err != nil {
		return nil, err
	}
	for i, t := range in[1:] {
		if err := firstError(sameType(names[i+1], t, x), wantShape(names[i+1], t, x.Shape[1])); err != nil {
			return nil, err
		}
	}
	return results(x)
}

// Kind returns "Softmax".
func (*Softmax) Kind() string { return "Softmax" }

// Infer implements [Op].
func (o *Softmax) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x")
	if err != nil {
		return nil, err
	}
	if err := firstError(floats.want("x", in[0]), wantAxis(o.Axis, "x", in[0])); err != nil {
		return nil, err
	}
	return results(in[0])
}

// Kind returns "LayerNorm".
func (*LayerNorm) Kind() string { return "LayerNorm" }

// Infer implements [Op].
func (o *LayerNorm) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "scale", "bias?")
	if err != nil {
		return nil, err
	}
	x := in[0]
	if err := firstError(floats.want("x", x), wantAxis(o.Axis, "x", x)); err != nil {
		return nil, err
	}
	for i, t := range in[1:] {
		name := [...]string{"scale", "bias"}[i]
		if err := sameType(name, t, x); err != nil {
			return nil, err
		}
		if present(t) && !BroadcastsTo(t.Shape, x.Shape) {
			return nil, fmt.Errorf("%s is %v, want a shape that broadcasts to x of type %v", name, t, x)
		}
	}
	stats := slices.Clone(x.Shape)
	for i := o.Axis; i < int64(len(stats)); i++ {
		stats[i] = 1
	}
	return results(x, TensorType{F32, stats}, TensorType{F32, stats})
}
