package graph

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// LSTM is ONNX's LSTM. Operands: X, W, R, and on demand B, sequence_lens
// (I32), initial_h, initial_c, P. Results: Y, Y_h, Y_c, each optional.
// Activations holds three names per direction, in ONNX's spelling, with
// ActAlpha and ActBeta as long as Activations. Clip 0 means none.
type LSTM struct {
	Hidden            int64
	Direction         string // "forward", "reverse", "bidirectional"
	Activations       []string
	ActAlpha, ActBeta []float64
	Clip              float64
	InputForget       bool
	BatchFirst        bool // ONNX's layout 1
}

// activations are the names that ONNX gives the activations of a recurrent
// operator.
var activations = []string{"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
	"HardSigmoid", "Elu", "Softsign", "Softplus"}

// Kind returns "LSTM".
func (*LSTM) Kind() string { return "LSTM" }

// Infer implements [Op].
func (o *LSTM) Infer(in []TensorType) ([]TensorType, error) {
	names := []string{"X", "W", "R", "B?", "sequence_lens?", "initial_h?", "initial_c?", "P?"}
	in, err := operands(in, names...)
	if err != nil {
		return nil, err
	}
	dirs := int64(1)
	switch o.Direction {
	case "forward", "reverse":
	case "bidirectional":
		dirs = 2
	default:
		return nil, fmt.Errorf("attribute Direction is %q, want forward, reverse or bidirectional", o.Direction)
	}
	if o.Hidden < 1 || o.Hidden >= MaxTensorBytes {
		return nil, fmt.Errorf("attribute Hidden is %d, want at least 1 and less than 2^40", o.Hidden)
	}
	if err := o.checkActivations(int(3 * dirs)); err != nil {
		return nil, err
	}
	if o.Clip < 0 || math.IsInf(o.Clip, 0) || math.IsNaN(o.Clip) {
		return nil, fmt.Errorf("attribute Clip is %v, want 0 for none or a limit above 0", o.Clip)
	}
	x := in[0]
	if err := floats.want("X", x); err != nil {
		return nil, err
	}
	for _, i := range []int{1, 2, 3, 5, 6, 7} {
		if err := sameType(strings.TrimSuffix(names[i], "?"), in[i], x); err != nil {
			return nil, err
		}
	}
	if x.Rank() != 3 {
		return nil, fmt.Errorf("operand X is %v, want 3 dimensions", x)
	}
	seq, batch, input := x.Shape[0], x.Shape[1], x.Shape[2]
	state := []int64{dirs, batch, o.Hidden}
	y := []int64{seq, dirs, batch, o.Hidden}
	if o.BatchFirst {
		seq, batch = batch, seq
		state = []int64{batch, dirs, o.Hidden}
		y = []int64{batch, seq, dirs, o.Hidden}
	}
	err = firstError(
		wantShape("W", in[1], dirs, 4*o.Hidden, input),
		wantShape("R", in[2], dirs, 4*o.Hidden, o.Hidden),
		wantShape("B", in[3], dirs, 8*o.Hidden),
		wantShape("sequence_lens", in[4], batch),
		wantShape("initial_h", in[5], state...),
		wantShape("initial_c", in[6], state...),
		wantShape("P", in[7], dirs, 3*o.Hidden))
	if err != nil {
		return nil, err
	}
	if t := in[4]; present(t) && t.DType != I32 {
		return nil, fmt.Errorf("sequence_lens is %v, want elements of type i32", t)
	}
	return results(TensorType{x.DType, y}, TensorType{x.DType, state}, TensorType{x.DType, state})
}

// checkActivations checks the activations' names and parameters, n of each.
func (o *LSTM) checkActivations(n int) error {
	if len(o.Activations) != n || len(o.ActAlpha) != n || len(o.ActBeta) != n {
		return fmt.Errorf("attributes Activations, ActAlpha and ActBeta have %d, %d and %d entries, want %d each (3 for each direction)",
			len(o.Activations), len(o.ActAlpha), len(o.ActBeta), n)
	}
	for _, a := range o.Activations {
		if !slices.Contains(activations, a) {
			return fmt.Errorf("there is no activation %q, want one of %v", a, activations)
		}
	}
	return nil
}
