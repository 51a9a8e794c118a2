package graph

import "fmt"

// RMSNorm divides x by the root of the mean square over the axes from Axis to
// the last, Epsilon added to the mean, and multiplies it with scale. Operands:
// x, and scale, broadcast one way to x. Computed in F32 (F64 for F64
// operands).
type RMSNorm struct {
	Axis    int64
	Epsilon float64
}

// Kind returns "RMSNorm".
func (*RMSNorm) Kind() string { return "RMSNorm" }

// Infer implements [Op].
func (o *RMSNorm) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "x", "scale")
	if err != nil {
		return nil, err
	}
	x, scale := in[0], in[1]
	if err := firstError(floats.want("x", x), wantAxis(o.Axis, "x", x), sameType("scale", scale, x)); err != nil {
		return nil, err
	}
	if !BroadcastsTo(scale.Shape, x.Shape) {
		return nil, fmt.Errorf("scale is %v, want a shape that broadcasts to x of type %v", scale, x)
	}
	return results(x)
}
