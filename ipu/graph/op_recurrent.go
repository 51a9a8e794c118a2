package graph

import (
	"fmt"
	"math"
	"slices"
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

// GRU is ONNX's GRU. Operands: X, W, R, and on demand B, sequence_lens (I32),
// initial_h. Results: Y, Y_h, each optional. Activations holds two names per
// direction, as in [LSTM].
type GRU struct {
	Hidden            int64
	Direction         string // "forward", "reverse", "bidirectional"
	Activations       []string
	ActAlpha, ActBeta []float64
	Clip              float64
	LinearBeforeReset bool
	BatchFirst        bool // ONNX's layout 1
}

// RNN is ONNX's RNN. Operands and results are those of [GRU]; Activations
// holds one name per direction.
type RNN struct {
	Hidden            int64
	Direction         string // "forward", "reverse", "bidirectional"
	Activations       []string
	ActAlpha, ActBeta []float64
	Clip              float64
	BatchFirst        bool // ONNX's layout 1
}

// RecurrentGradient is the gradient of an [LSTM], [GRU] or [RNN] with ONNX's usual activations, without clip, coupled gates and
// peepholes. Operands: X, W, R and on demand B, sequence_lens, initial_h, initial_c (of an LSTM) as there; its result Y; and on
// demand the gradients of Y, Y_h and Y_c (of an LSTM). Results: the gradients of X, W, R, B, initial_h and initial_c (of an LSTM),
// each optional, also of operands that are left out.
type RecurrentGradient struct {
	Cell       string // "lstm", "gru", "linear gru" (LinearBeforeReset), "rnn"
	Hidden     int64
	Direction  string // "forward", "reverse", "bidirectional"
	BatchFirst bool   // ONNX's layout 1
}

// Forward returns the operator of which o is the gradient, nil if Cell names none.
func (o *RecurrentGradient) Forward() Op {
	names := map[string][]string{"lstm": {"Sigmoid", "Tanh", "Tanh"}, "gru": {"Sigmoid", "Tanh"}, "linear gru": {"Sigmoid", "Tanh"}, "rnn": {"Tanh"}}[o.Cell]
	names = slices.Repeat(names, int((&recurrence{direction: o.Direction}).directions()))
	zeros := make([]float64, len(names))
	switch o.Cell {
	case "lstm":
		return &LSTM{Hidden: o.Hidden, Direction: o.Direction, Activations: names, ActAlpha: zeros, ActBeta: zeros, BatchFirst: o.BatchFirst}
	case "gru", "linear gru":
		return &GRU{Hidden: o.Hidden, Direction: o.Direction, Activations: names, ActAlpha: zeros, ActBeta: zeros, LinearBeforeReset: o.Cell != "gru", BatchFirst: o.BatchFirst}
	case "rnn":
		return &RNN{Hidden: o.Hidden, Direction: o.Direction, Activations: names, ActAlpha: zeros, ActBeta: zeros, BatchFirst: o.BatchFirst}
	}
	return nil
}

// Kind returns "RecurrentGradient".
func (*RecurrentGradient) Kind() string { return "RecurrentGradient" }

// Infer implements [Op].
func (o *RecurrentGradient) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "X", "W", "R", "B?", "sequence_lens?", "initial_h?", "initial_c?", "Y", "dY?", "dY_h?", "dY_c?")
	if err != nil {
		return nil, err
	}
	forward, n := o.Forward(), 7
	if forward == nil {
		return nil, fmt.Errorf("attribute Cell is %q, want lstm, gru, linear gru or rnn", o.Cell)
	}
	if o.Cell != "lstm" {
		if n = 6; present(in[6]) || present(in[10]) {
			return nil, fmt.Errorf("operands initial_c and dY_c are %v and %v, want none of a %s", in[6], in[10], o.Cell)
		}
	}
	out, err := forward.Infer(in[:n])
	if err != nil {
		return nil, err
	}
	for i, t := range append([]TensorType{out[0]}, out...) {
		name := []string{"Y", "dY", "dY_h", "dY_c"}[i]
		if err := firstError(sameType(name, in[7+i], t), wantShape(name, in[7+i], t.Shape...)); err != nil {
			return nil, err
		}
	}
	b := TensorType{in[0].DType, []int64{in[1].Shape[0], satMul(2, in[1].Shape[1])}}
	return results(append([]TensorType{in[0], in[1], in[2], b}, out[1:]...)...)
}

// activations are the names that ONNX gives the activations of a recurrent
// operator.
var activations = []string{"Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh",
	"HardSigmoid", "Elu", "Softsign", "Softplus"}

// recurrence is what the recurrent operators have in common.
type recurrence struct {
	gates, functions  int64 // per direction
	hidden            int64
	direction         string
	activations       []string
	actAlpha, actBeta []float64
	clip              float64
	batchFirst        bool
}

// Kind returns "LSTM".
func (*LSTM) Kind() string { return "LSTM" }

// Infer implements [Op].
func (o *LSTM) Infer(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "X", "W", "R", "B?", "sequence_lens?", "initial_h?", "initial_c?", "P?")
	if err != nil {
		return nil, err
	}
	r := &recurrence{4, 3, o.Hidden, o.Direction, o.Activations, o.ActAlpha, o.ActBeta, o.Clip, o.BatchFirst}
	y, state, err := r.infer(in)
	if err != nil {
		return nil, err
	}
	c, p := in[6], in[7]
	err = firstError(sameType("initial_c", c, in[0]), wantShape("initial_c", c, state.Shape...),
		sameType("P", p, in[0]), wantShape("P", p, r.directions(), 3*o.Hidden))
	if err != nil {
		return nil, err
	}
	return results(y, state, state)
}

// Kind returns "GRU".
func (*GRU) Kind() string { return "GRU" }

// Infer implements [Op].
func (o *GRU) Infer(in []TensorType) ([]TensorType, error) {
	return (&recurrence{3, 2, o.Hidden, o.Direction, o.Activations, o.ActAlpha, o.ActBeta, o.Clip, o.BatchFirst}).inferPlain(in)
}

// Kind returns "RNN".
func (*RNN) Kind() string { return "RNN" }

// Infer implements [Op].
func (o *RNN) Infer(in []TensorType) ([]TensorType, error) {
	return (&recurrence{1, 1, o.Hidden, o.Direction, o.Activations, o.ActAlpha, o.ActBeta, o.Clip, o.BatchFirst}).inferPlain(in)
}

// inferPlain infers an operator whose only state is its output.
func (r *recurrence) inferPlain(in []TensorType) ([]TensorType, error) {
	in, err := operands(in, "X", "W", "R", "B?", "sequence_lens?", "initial_h?")
	if err != nil {
		return nil, err
	}
	y, state, err := r.infer(in)
	if err != nil {
		return nil, err
	}
	return results(y, state)
}

// directions returns how many directions there are.
func (r *recurrence) directions() int64 {
	if r.direction == "bidirectional" {
		return 2
	}
	return 1
}

// infer checks the attributes and the first six operands and returns the types
// of Y and of a state.
func (r *recurrence) infer(in []TensorType) (y, state TensorType, err error) {
	fail := func(err error) (y, state TensorType, _ error) { return TensorType{}, TensorType{}, err }
	if !slices.Contains([]string{"forward", "reverse", "bidirectional"}, r.direction) {
		return fail(fmt.Errorf("attribute Direction is %q, want forward, reverse or bidirectional", r.direction))
	}
	dirs := r.directions()
	if r.hidden < 1 || r.hidden >= MaxTensorBytes {
		return fail(fmt.Errorf("attribute Hidden is %d, want at least 1 and less than 2^40", r.hidden))
	}
	if err := r.checkActivations(int(dirs)); err != nil {
		return fail(err)
	}
	if r.clip < 0 || math.IsInf(r.clip, 0) || math.IsNaN(r.clip) {
		return fail(fmt.Errorf("attribute Clip is %v, want 0 for none or a limit above 0", r.clip))
	}
	x := in[0]
	if err := floats.want("X", x); err != nil {
		return fail(err)
	}
	for i, name := range []string{"X", "W", "R", "B", "", "initial_h"} {
		if name == "" {
			continue
		}
		if err := sameType(name, in[i], x); err != nil {
			return fail(err)
		}
	}
	if x.Rank() != 3 {
		return fail(fmt.Errorf("operand X is %v, want 3 dimensions", x))
	}
	seq, batch, input := x.Shape[0], x.Shape[1], x.Shape[2]
	stateShape := []int64{dirs, batch, r.hidden}
	yShape := []int64{seq, dirs, batch, r.hidden}
	if r.batchFirst {
		seq, batch = batch, seq
		stateShape = []int64{batch, dirs, r.hidden}
		yShape = []int64{batch, seq, dirs, r.hidden}
	}
	err = firstError(
		wantShape("W", in[1], dirs, r.gates*r.hidden, input),
		wantShape("R", in[2], dirs, r.gates*r.hidden, r.hidden),
		wantShape("B", in[3], dirs, 2*r.gates*r.hidden),
		wantShape("sequence_lens", in[4], batch),
		wantShape("initial_h", in[5], stateShape...))
	if err != nil {
		return fail(err)
	}
	if t := in[4]; present(t) && t.DType != I32 {
		return fail(fmt.Errorf("sequence_lens is %v, want elements of type i32", t))
	}
	return TensorType{x.DType, yShape}, TensorType{x.DType, stateShape}, nil
}

// checkActivations checks the activations' names and parameters.
func (r *recurrence) checkActivations(dirs int) error {
	n := int(r.functions) * dirs
	if len(r.activations) != n || len(r.actAlpha) != n || len(r.actBeta) != n {
		return fmt.Errorf("attributes Activations, ActAlpha and ActBeta have %d, %d and %d entries, want %d each (%d for each direction)",
			len(r.activations), len(r.actAlpha), len(r.actBeta), n, r.functions)
	}
	for _, a := range r.activations {
		if !slices.Contains(activations, a) {
			return fmt.Errorf("there is no activation %q, want one of %v", a, activations)
		}
	}
	return nil
}
